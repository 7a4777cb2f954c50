"""Which samples make up which batch, for every epoch and rank; which GPU is the rank's."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from ddas_gpu import streams
from ddas_gpu.distributed import torchrun
from ddas_gpu.streams import Stream, whole

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Order:
    """The order of `samples` samples, cut into shards and batches.

    Every batch is full, and every rank has equally many: the last ones are filled up, or with
    `drop_last` left out. Shuffled samples are dealt to the ranks round-robin, so that batch n of
    all ranks together holds what batch n of a single rank with the whole batch holds; they are
    filled up from the start of the epoch's order. Others are cut into blocks, as DALI's readers
    do, and filled up with their last sample.

    With `steps` every epoch has that many batches on each rank: the rest of the epoch's order is
    left out, or the order is repeated.
    """

    samples: int
    batch_size: int
    seed: int = 0
    shard_id: int = 0
    num_shards: int = 1
    shuffle: bool = True
    drop_last: bool = False
    steps: int | None = None

    def __post_init__(self) -> None:
        whole("batch_size", self.batch_size, 1)
        whole("seed", self.seed)
        if not 0 <= self.shard_id < self.num_shards:
            raise ValueError(f"shard {self.shard_id} is not one of {self.num_shards}, from 0 on")
        if self.samples < self.num_shards:
            raise ValueError(f"{self.samples} samples cannot be dealt to {self.num_shards} shards")
        if self.steps is not None:
            whole("steps_per_epoch", self.steps, 1)

    @cached_property
    def shard_size(self) -> int:
        """Samples of this rank in an epoch."""
        return self._dealt if self.steps is None else self.steps * self.batch_size

    @cached_property
    def _dealt(self) -> int:
        """Samples of this rank, each once."""
        if self.shuffle:
            return -(-self.samples // self.num_shards)
        return len(self._block)

    @cached_property
    def batches(self) -> int:
        """Batches of an epoch, the same on all ranks."""
        if self.steps is not None:
            return self.steps
        whole = self.num_shards * self.batch_size
        return self.samples // whole if self.drop_last else -(-self.samples // whole)

    @property
    def _block(self) -> range:
        ends = (self.samples * (self.shard_id + i) // self.num_shards for i in (0, 1))
        return range(*ends)

    def locate(self, iteration: int) -> tuple[int, int]:
        """Return the epoch of an iteration, counted over all epochs, and its place in there."""
        return divmod(iteration, self.batches)

    def batch(self, epoch: int, place: int) -> np.ndarray:
        """Return the samples of a batch, (batch_size,) places in the data set."""
        wanted = np.arange(place * self.batch_size, (place + 1) * self.batch_size)
        if not self.shuffle:
            return self._block.start + np.minimum(wanted, self._dealt - 1)
        order = epoch_order(self.samples, self.seed, epoch)
        filled = wanted % self._dealt
        return order[(filled * self.num_shards + self.shard_id) % self.samples]

    def reader_meta(self) -> dict[str, Any]:
        """Return what DALI's iterators ask of a reader."""
        even = -(-self.samples // self.num_shards) * self.num_shards
        size = even if self.shuffle else self.samples
        if self.steps is not None:
            size = even = self.steps * self.batch_size * self.num_shards
        return {
            "epoch_size": size,
            "epoch_size_padded": even,
            "number_of_shards": self.num_shards,
            "shard_id": self.shard_id,
            "pad_last_batch": 1,
            "stick_to_shard": 1,
        }


@dataclass(frozen=True)
class ReaderOrder(Order):
    """The order of a DALI reader, which only DALI knows: samples are numbered as they come.

    All numbers differ, those of filled-up places too.
    """

    @cached_property
    def _dealt(self) -> int:
        return len(self._block)

    def batch(self, epoch: int, place: int) -> np.ndarray:
        numbers = np.arange(place * self.batch_size, (place + 1) * self.batch_size)
        return numbers * self.num_shards + self.shard_id


@lru_cache(maxsize=8)  # prefetching alternates between two epochs, of up to two sets
def epoch_order(samples: int, seed: int, epoch: int) -> np.ndarray:
    """Return the random order of the samples in an epoch."""
    return streams.generator(seed, Stream.TRAINING_ORDER, epoch).permutation(samples)


def check_shards(shard_id: int | None, num_shards: int | None) -> None:
    """Raise a ValueError if only one of the two is given."""
    if (shard_id is None) != (num_shards is None):
        raise ValueError("shard_id and num_shards go together: give both or none")


def shard_of(shard_id: int | None, num_shards: int | None, *, warn: bool = True) -> tuple[int, int]:
    """Return the shard of this process: as given, else torch.distributed's rank.

    warn: whether to warn if the process was started as one of several, but none can be told.
    """
    check_shards(shard_id, num_shards)
    if shard_id is not None and num_shards is not None:
        return shard_id, num_shards
    if _initialised():
        import torch.distributed as distributed

        return distributed.get_rank(), distributed.get_world_size()
    started = os.environ.get("WORLD_SIZE", "1")
    if warn and started.isdecimal() and int(started) > 1:
        warnings.warn(
            f"WORLD_SIZE is {started}, but torch.distributed has no process group: every process "
            "gets all images. Call torch.distributed.init_process_group before, or give shard_id "
            "and num_shards",
            RuntimeWarning,
            stacklevel=3,
        )
    return 0, 1


_compared: Counter[str] = Counter()  # how many orders of a kind this process has compared


def require_one_seed(order: Order) -> bool:
    """Raise a ValueError if the ranks shuffle with different seeds.

    Return False if they cannot be compared, because there is no process group of these ranks yet.

    Each rank would then take its share of another order: some images twice, others never. Ranks
    compare through the store of the process group and do not wait for each other.
    """
    if not order.shuffle or order.num_shards == 1:
        return True
    if not _initialised():
        return False
    from torch.distributed import distributed_c10d, get_world_size

    if get_world_size() != order.num_shards:
        return False
    store: Any = distributed_c10d._get_default_store()
    kind = f"ddas_gpu order of {order.samples} in {order.batch_size} on {order.num_shards}"
    _compared[kind] += 1
    first = store.compare_set(f"{kind}, {_compared[kind]}", "", str(order.seed)).decode()
    if first != str(order.seed):
        raise ValueError(
            f"shard {order.shard_id} of {order.num_shards} shuffles with seed {order.seed}, but "
            f"another one with seed {first}: some images would be seen twice and others never. "
            "Give all ranks the same seed; what happens to an image depends on its number, too"
        )
    return True


def _initialised() -> bool:
    import torch.distributed as distributed

    return distributed.is_available() and distributed.is_initialized()


def order_for(
    samples: int, batch_size: int, seed: int, rank: int, ranks: int, flag: str = "--batch-size"
) -> Order:
    """Return the order of a run's training images on this rank."""
    if batch_size * ranks > samples:
        on_all = f" on {ranks} ranks" if ranks > 1 else ""
        raise ValueError(
            f"{flag} {batch_size}{on_all} is larger than the set, which has {samples} images"
        )
    return Order(samples, batch_size, seed, rank, ranks, shuffle=True, drop_last=True)


def spread(count: int, most: int) -> np.ndarray:
    """Return up to `most` numbers below `count`, evenly spread."""
    return np.linspace(0, count - 1, min(most, count)).astype(int)


def parse_device(
    device: str | torch.device, device_id: int | None = None
) -> tuple[str, int | None]:
    """Return one of DEVICES, and the number of the GPU if one is given.

    device: one of DEVICES, "cuda:1", DALI's own word "gpu", or a torch.device.
    """
    word, colon, number = str(device).partition(":")
    word = "cuda" if word == "gpu" else word
    if word not in DEVICES or (colon and not (word == "cuda" and number.isdecimal())):
        raise ValueError(f"device is one of {', '.join(DEVICES)}, or cuda:1 …, not {device!r}")
    if not colon:
        return word, device_id
    if device_id not in (None, int(number)):
        raise ValueError(f"device={str(device)!r} and device_id={device_id} are different GPUs")
    return word, int(number)


def torch_device(device: str | torch.device, device_id: int | None = None) -> str:
    """Return torch's name of the device; raise a ValueError for a GPU that torch does not have."""
    word, number = parse_device(device, device_id)
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if word == "cpu" or (word == "auto" and not found):
        return "cpu"
    if not found:
        raise ValueError(f"device={str(device)!r}, but torch finds no CUDA GPU: take device='cpu'")
    if number is not None and number >= found:
        raise ValueError(f"there is no GPU {number}: torch finds {found}, counted from 0")
    return "cuda" if number is None else f"cuda:{number}"


def gpu_number(device: str | torch.device, device_id: int | None = None) -> int | None:
    """Return the number of the GPU that `device` means, or None for the CPU.

    Without a number it is this process's GPU under torchrun, then torch's current one.
    """
    word, number = parse_device(device, device_id)
    if word == "cpu" or (word == "auto" and not gpu_found()):
        return None
    return own_gpu() if number is None else number


def gpu_found() -> bool:
    """Return whether the op bank can run on a GPU here."""
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.is_available())


def own_gpu() -> int:
    """Return the GPU of this process: that of its local rank under torchrun, else torch's current.

    The rank comes first: before `torch.cuda.set_device` torch's current GPU is 0 on all ranks. A
    rank that sees fewer GPUs than there are ranks was given its own by CUDA_VISIBLE_DEVICES.
    """
    rank, count = torchrun.local_rank(), torch.cuda.device_count()
    if torchrun.launched() and (rank < count or count == 0):
        return rank
    return torch.cuda.current_device() if torch.cuda.is_available() else 0
