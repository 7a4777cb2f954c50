from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from run_folders import Page, write_run

from ddas_gpu.report import __main__ as report
from ddas_gpu.report.__main__ import main
from ddas_gpu.report.writing import write_report


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "a")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Run the command, which must fail; its one sentence."""
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Traceback" not in err
    return err


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_write_report_returns_the_page(run: Path):
    path = write_report(run)
    assert path == run / "report.html"
    assert "TranslateX" in Page(path.read_text("utf-8")).words()


def test_the_command_prints_what_it_wrote(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert not (run.parent / "compare.html").exists()


def test_several_runs_are_compared(run: Path, capsys: pytest.CaptureFixture[str]):
    other = write_run(run.parent / "b", seed=1)
    assert main([str(run), str(other)]) == 0
    wrote = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert wrote == [run / "report.html", other / "report.html", run.parent / "compare.html"]
    assert "a – b" in Page(wrote[2].read_text("utf-8")).words()


def test_a_shell_pattern_may_name_an_earlier_comparison(run: Path):
    write_run(run.parent / "b", seed=1)
    for _ in range(2):
        assert main([str(path) for path in sorted(run.parent.iterdir())]) == 0


def test_out_names_the_comparison(run: Path, tmp_path: Path):
    other = write_run(run.parent / "b", seed=1)
    assert main([str(run), str(other), "--out", str(tmp_path / "both.html")]) == 0
    assert (tmp_path / "both.html").exists() and not (run.parent / "compare.html").exists()


def test_bad_folders(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert f"{tmp_path / 'none'} does not exist" in refused(capsys, tmp_path / "none")
    assert "has no policy.json" in refused(capsys, run.parent)
    assert "is not a folder" in refused(capsys, run / "policy.json")
    assert "at least one run" in refused(capsys)
    assert "only one" in refused(capsys, run, "--out", tmp_path / "x.html")
    assert "given twice" in refused(capsys, run, run)


def test_a_comparison_that_cannot_be_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = write_run(run.parent / "b", seed=1)
    before = files(tmp_path)
    assert "none is not a folder" in refused(
        capsys, run, other, "--out", tmp_path / "none" / "x.html"
    )
    assert "report of a run" in refused(capsys, run, other, "--out", run / "report.html")
    assert files(tmp_path) == before


@pytest.mark.parametrize("name", ["policy.json", "config.json", "samples.npz"])
@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_a_broken_file_changes_nothing(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
):
    good = write_run(run.parent / "b", seed=1)
    write_report(run)
    (run / name).write_bytes(content)
    before = files(run.parent)
    assert name in refused(capsys, good, run)
    assert files(run.parent) == before


def test_a_full_disk_leaves_the_old_page(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    write_report(run)
    before = files(run)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device", "report.html")

    monkeypatch.setattr("os.fsync", full)
    assert "the disk is full" in refused(capsys, run)
    assert files(run) == before


def test_the_command_itself(run: Path):
    command = [sys.executable, "-m", "ddas_gpu.report"]
    done = subprocess.run([*command, str(run)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{run / 'report.html'}\n"
    failed = subprocess.run([*command, str(run / "no")], capture_output=True, text=True)
    assert failed.returncode == 2 and failed.stderr.count("\n") == 1


def test_help_needs_neither_torch_nor_the_op_bank():
    code = (
        "import sys; from ddas_gpu.report.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as stop: assert not stop.code\n"
        "heavy = {'torch', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert report.Report.__doc__ in done.stdout
