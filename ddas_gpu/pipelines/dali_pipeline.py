"""A DALI Pipeline that knows its order of samples and names the file behind an error."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from nvidia.dali import Pipeline

from ddas_gpu.data.scanning import BadImage, describe, find_problem
from ddas_gpu.data.sources import Records
from ddas_gpu.ops.backends import cores
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.order import Order, gpu_found, gpu_number
from ddas_gpu.pipelines.readers import READER
from ddas_gpu.streams import whole

MOST_THREADS = 8  # by default: each takes 16 MB of a GPU's memory


class ImagePipeline(Pipeline):
    """Yields what its feed defines, such as (images, labels); for DALI's iterators its reader is
    called "Reader".

    `order` says how many batches an epoch has and which samples they hold. `device_id` is the
    number of a GPU, or None for the CPU; `finished` is that of `Feed`.
    """

    def __init__(
        self,
        feed: Feed,
        order: Order,
        *,
        device_id: int | None,
        num_threads: int | None = None,
        prefetch: int = 2,
        finished: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(
            batch_size=order.batch_size,
            num_threads=num_threads or default_threads(),
            device_id=device_id,
            prefetch_queue_depth=prefetch,
            seed=feed.seed & 0x7FFFFFFF,
            exec_dynamic=True,  # batches are returned without a copy
            **options,
        )
        self.feed, self.order = feed, order
        self._gpu = device_id is not None
        feed.order, feed.finished = order, finished
        reader = {}
        if isinstance(feed.source, Records):
            self._scratch = tempfile.TemporaryDirectory()  # until the pipeline goes
            names = ("shuffle", "seed", "shard_id", "num_shards")
            reader = {name: getattr(order, name) for name in names}
            reader["scratch"] = Path(self._scratch.name)
        with self:
            self.set_outputs(*feed.define(self._gpu, reader))

    def build(self) -> None:
        if self._built:
            return
        has_node = self.feed.schedule is not None and self.feed.finished
        if self._gpu and not (gpu_found() if has_node else torch.cuda.is_available()):
            needed = "an NVIDIA GPU and CuPy" if has_node else "an NVIDIA GPU"
            raise ValueError(f"device='cuda' needs {needed}: take device='cpu'")
        super().build()
        if isinstance(self.feed.source, Records):
            samples = super().reader_meta(READER)["epoch_size"]
            self.feed.order = self.order = replace(self.order, samples=samples)

    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        if isinstance(self.feed.source, Records):
            return super().reader_meta(name)
        if name not in (None, READER):
            raise ValueError(f"the reader is called {READER!r}, not {name!r}")
        meta = self.order.reader_meta()
        return {READER: meta} if name is None else meta

    def epoch_size(self, name: str | None = None) -> Any:
        meta = self.reader_meta(name)
        if name is not None:
            return meta["epoch_size_padded"]
        return {reader: each["epoch_size_padded"] for reader, each in meta.items()}

    def torch_stream(self) -> Any:
        """Return the stream on which torch takes the outputs: DALI then waits for it, not we.

        DALI reuses the memory of outputs in the order of their stream, so torch may still read
        them when they are released.
        """
        return torch.cuda.current_stream(self.device_id) if self._gpu else None

    # DALI's own `run` and its iterators all come by one of these two.

    def outputs(self, *args: Any, **options: Any) -> Any:
        with self._plain_words():
            return super().outputs(*args, **options)

    def share_outputs(self, *args: Any, **options: Any) -> Any:
        with self._plain_words():
            return super().share_outputs(*args, **options)

    @contextmanager
    def _plain_words(self) -> Iterator[None]:
        """Raise an error that names the bad files, where there are any, from DALI's own."""
        try:
            yield
        except RuntimeError as error:
            files = self.feed.files
            bad = [] if files is None else self._bad_files(files)
            if not bad:
                raise
            raise ValueError(f"{describe(bad)}; {self.feed.advice}") from error
        if self.feed.problems:
            self.feed.problems.raise_first()

    def _bad_files(self, files: Sequence[Path]) -> list[BadImage]:
        """Return the unreadable files of the batches that may have been under way."""
        done = self.feed.first + self._consumer_iter - 1
        found = {}
        for iteration in range(done, done + self._cpu_queue_size + 1):
            for sample in self.order.batch(*self.order.locate(iteration)):
                problem = None if sample in found else find_problem(files[sample])
                if problem is not None:
                    found[sample] = BadImage(files[sample], problem)
        return list(found.values())


def default_threads() -> int:
    """Return this process's share of the cores, up to MOST_THREADS."""
    return min(cores(), MOST_THREADS)


class EpochPipeline(ImagePipeline):
    """An ImagePipeline that begins with `start_epoch`, and goes to any other."""

    def __init__(self, feed: Feed, order: Order, *, start_epoch: int = 0, **options: Any) -> None:
        super().__init__(feed, order, **options)
        self._start_epoch = whole("start_epoch", start_epoch)

    def build(self) -> None:
        if self._built:
            return
        super().build()  # only now is the number of samples in record files known
        self.feed.first += self._start_epoch * self.order.batches

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        if not self._built:
            self.build()
        return self.order.locate(self.feed.first + self._consumer_iter)[0]

    def set_epoch(self, epoch: int) -> None:
        """Make the next batch the first one of `epoch`, if it is not of this epoch already.

        For trainers that leave an epoch early. DALI's iterators count images by themselves: give
        them size=-1, or the epoch after would lose images. (`steps_per_epoch` is for epochs that
        all have another length.) Batches that were prepared ahead are thrown away.
        Record files cannot be sent anywhere: their images go on, with the policies of `epoch`.
        """
        if self.epoch == whole("epoch", epoch):
            return
        if self._api_type is None:  # nothing was run yet
            self.feed.first = epoch * self.order.batches
            return
        ahead = self._batches_to_consume
        # Without the scope DALI refuses to mix ways of running a pipeline.
        with self._check_api_type_scope(self._api_type):
            for _ in range(ahead):
                self.outputs()
            self.feed.first = epoch * self.order.batches - self._consumer_iter
            for _ in range(ahead):
                self._run_once()


class DaliBatches:
    """The batches of a pipeline as torch tensors, on its device."""

    def __init__(self, feed: Feed, order: Order, **options: Any) -> None:
        self._feed, self._order, self._options = feed, order, options
        self._records = isinstance(feed.source, Records)
        self.position: int | None = None
        self._pipeline: Any = None

    @property
    def order(self) -> Order:
        if self._records:  # whose number only the built pipeline knows
            if self._pipeline is None:
                self.seek(0)
            self._pipeline.build()
            return self._pipeline.order
        return self._order

    def seek(self, position: int, memory: Any = None) -> None:
        """Begin with the batch `position`.

        Files and arrays begin anywhere. DALI's own readers need a checkpoint of theirs, or begin
        their order anew.
        """
        first, options = position, dict(self._options)
        options["device_id"] = gpu_number(options.pop("device"))
        if self._records:
            options["enable_checkpointing"] = True
            if memory is not None:
                first = memory["first"]
                options["checkpoint"] = memory["checkpoint"].numpy().tobytes()
        feed = self._feed.from_batch(first)
        self._pipeline = EpochPipeline(feed, self._order, finished=False, **options)
        self.position = position

    def next(self) -> Any:
        assert self.position is not None, "seek comes before the first batch"
        outputs = self._pipeline.run(self._pipeline.torch_stream())
        order = self._pipeline.order
        epoch, place = order.locate(self.position)
        self.position += 1
        return self._pipeline.feed.pack(outputs, epoch, order.batch(epoch, place))

    def memory(self) -> Any:
        if not self._records or self._pipeline is None:
            return None
        checkpoint = bytearray(self._pipeline.checkpoint())
        return {
            "first": self._pipeline.feed.first,
            "checkpoint": torch.frombuffer(checkpoint, dtype=torch.uint8),
        }
