"""Nothing of a run is lost or mixed: locks, checksums, and starts that were killed."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import threading
from pathlib import Path

import pytest
import torch

from ddas_gpu.files import write_atomically
from ddas_gpu.runs import run_folder
from ddas_gpu.runs.run_folder import RunFolder, check_free, read_schedule, sealed, unsealed

FILES = {"samples.npz": b"samples", "policy.json": b"policy"}


def create(path: Path) -> RunFolder:
    return RunFolder.create(path, "digits", "train", "classification", {"seed": 1}, FILES)


def names(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()}


# --- checkpoints ----------------------------------------------------------------------------------

STATE = {"data": [1, 2], "search": {"steps": 3, "weights": torch.arange(1000.0)}}


def test_a_sealed_checkpoint_is_a_file_of_torch(tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(sealed(STATE))
    for state in (
        torch.load(tmp_path / "checkpoint.pt", weights_only=True),
        unsealed(sealed(STATE), Path("checkpoint.pt")),
    ):
        assert state["data"] == [1, 2] and state["search"]["steps"] == 3
        assert torch.equal(state["search"]["weights"], torch.arange(1000.0))


def test_any_flipped_bit_is_found():
    content = sealed(STATE)
    generator = random.Random(0)
    for place in generator.sample(range(8 * len(content)), 200):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(ValueError, match="checkpoint.pt is (damaged|not a checkpoint)"):
            unsealed(bytes(damaged), Path("checkpoint.pt"))


@pytest.mark.parametrize("length", [0, 1, 50, 73, 74, 1000])
def test_a_truncated_checkpoint_is_refused(length):
    with pytest.raises(ValueError, match="is not a checkpoint"):
        unsealed(sealed(STATE)[:length], Path("checkpoint.pt"))


# --- starts ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize("writes", range(3))
@pytest.mark.parametrize("during", ["fsync", "replace"])
def test_a_start_killed_anywhere_is_no_run(tmp_path, monkeypatch, writes, during):
    """Killed between any two files, or within one: a new start takes the folder."""
    path, count = tmp_path / "run", 0
    real = getattr(os, during)

    def fail(*arguments):
        nonlocal count
        count += 1
        if count > writes:
            raise Killed
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder.os, during, fail)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a killed process removes nothing
        patch.setattr(Path, "rmdir", lambda *_: None)
        with pytest.raises(Killed):
            create(path)
        assert not (path / "config.json").exists()
    check_free(path)
    create(path).close()
    assert names(path) == {"config.json", *FILES}


def test_the_policy_of_a_killed_start_is_not_taken_over(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / "policy.json").write_text("of the killed start")
    RunFolder.create(tmp_path, "digits", "train", "classification", {}, {}).close()
    assert names(tmp_path) == {"config.json"}


def test_lone_temporary_files_are_nothing(tmp_path):
    (tmp_path / ".config.json.0123abcd.part").write_bytes(b"{")
    check_free(tmp_path)
    create(tmp_path).close()
    assert names(tmp_path) == {"config.json", *FILES}


@pytest.mark.parametrize("name", ["policy.json", "samples.npz", "letter.txt", ".hidden"])
def test_files_of_the_user_are_left_alone(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match="is not an empty folder"):
        create(tmp_path)
    assert names(tmp_path) == {name}


def test_a_missing_policy_is_refused(tmp_path):
    with pytest.raises(ValueError, match="policy.json is missing"):
        read_schedule(tmp_path)


# --- two processes --------------------------------------------------------------------------------


def test_a_second_start_leaves_the_first_alone(tmp_path):
    with create(tmp_path / "run") as first:
        before = names(first.path)
        for _ in range(2):
            with pytest.raises(ValueError, match="already holds a run"):
                create(tmp_path / "run")
        with pytest.raises(ValueError, match="another process is working on"):
            RunFolder(tmp_path / "run")
        assert names(first.path) == before
    assert names(tmp_path / "run") == {"config.json", *FILES}


def _start(path: Path, barrier, results) -> None:
    barrier.wait()
    try:
        folder = create(path)
        barrier.wait()
        folder.close()
        results.put("created")
    except ValueError as error:
        barrier.wait()
        results.put(str(error))


def test_of_four_that_start_at_once_one_gets_the_folder(tmp_path):
    context = multiprocessing.get_context("fork")
    for attempt in range(20):
        path = tmp_path / str(attempt)
        barrier, results = context.Barrier(4), context.Queue()
        racers = [context.Process(target=_start, args=(path, barrier, results)) for _ in range(4)]
        for racer in racers:
            racer.start()
        told = [results.get(timeout=60) for _ in racers]
        for racer in racers:
            racer.join()
        assert told.count("created") == 1, told
        assert names(path) == {"config.json", *FILES}


def test_a_failed_start_removes_what_it_made_and_keeps_the_first_error(tmp_path, monkeypatch):
    """On a mount point the folder cannot be removed: "busy" must not hide "the disk is full"."""

    def busy(*_):
        raise OSError(errno.EBUSY, "Device or resource busy")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_folder.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        create(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "mounted").mkdir()
    with pytest.raises(OSError, match="No space left"):
        create(tmp_path / "mounted")
    assert names(tmp_path / "mounted") == set()
    monkeypatch.setattr(Path, "rmdir", busy)
    with pytest.raises(OSError, match="No space left"):
        create(tmp_path / "other")


def test_the_error_of_a_write_outlives_the_error_of_its_removal(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(run_folder.os, "fsync", full)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "file", b"content")


def test_writers_of_one_file_do_not_mix(tmp_path):
    path, size, rounds = tmp_path / "file", 1 << 16, 60
    contents = [bytes([number]) * size for number in range(4)]
    write_atomically(path, contents[0])
    failures = []

    def write(content: bytes) -> None:
        try:
            for _ in range(rounds):
                write_atomically(path, content)
        except OSError as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_bytes() in contents
    assert not failures
    assert names(tmp_path) == {"file"}
