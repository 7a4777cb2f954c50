"""Which share of the images this process gets, and whether all processes agree on the order."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from typing import Any

from ddas_gpu.pipelines.order import Order


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


def require_one_seed(order: Order) -> None:
    """Raise a ValueError if the ranks shuffle with different seeds.

    Each rank would then take its share of another order: some images twice, others never. Ranks
    compare through the store of the process group and do not wait for each other.
    """
    if not order.shuffle or order.num_shards == 1 or not _initialised():
        return
    from torch.distributed import distributed_c10d, get_world_size

    if get_world_size() != order.num_shards:
        return
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


def _initialised() -> bool:
    import torch.distributed as distributed

    return distributed.is_available() and distributed.is_initialized()
