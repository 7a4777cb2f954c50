"""Functions on several ranks at once, each in a process of its own, as under torchrun."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

PATIENCE = 240  # seconds, for machines that have much else to do


def on_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What function(ranks, *arguments) returns on each of `count` ranks; it must be importable."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [
        context.Process(target=_rank, args=(rank, count, port, queue, function, arguments))
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    results = [queue.get(timeout=PATIENCE) for _ in processes]
    for process in processes:
        process.join()
    problems = [f"rank {rank}: {text}" for rank, failed, text in results if failed]
    assert not problems, "\n".join(problems)
    return [result for _, _, result in sorted(results, key=lambda result: result[0])]


def _rank(rank: int, count: int, port: int, queue: Any, function: Callable, arguments: tuple):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")
    for name, value in zip(names, (rank, rank, count, count, port), strict=True):
        os.environ[name] = str(value)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "test"}
    import torch

    from ddas_gpu.distributed.ranks import joined

    torch.set_num_threads(1)
    try:
        with joined(torch.device("cpu"), PATIENCE) as ranks:
            queue.put((rank, False, function(ranks, *arguments)))
    except BaseException:
        queue.put((rank, True, traceback.format_exc()))
