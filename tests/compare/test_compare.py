"""`ddas compare` on a few digits: the page, going on, and what it refuses."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from commands import Killed, die
from run_folders import Page
from train_commands import at_step

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.compare import compare
from ddas_gpu.compare.__main__ import PROGRAM, main
from ddas_gpu.compare.api import keep_policy
from ddas_gpu.compare.settings import compare_preset
from ddas_gpu.report.__main__ import main as report

FEW = {"epochs": 1, "train_share": 0.03, "test_share": 0.05, "batch_size": 8, "threads": 1}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in FEW.items()]

pytestmark = pytest.mark.usefixtures("one_thread")


def run(*flags: object) -> int:
    return main([*FLAGS, *map(str, flags)])


def write_policy(path: Path, seed: int = 0) -> Path:
    space = SearchSpace.preset("digits")
    p_o = np.random.default_rng(seed).dirichlet(np.ones(len(space)), size=2)
    PolicySchedule(space, [0.2, 0.6], p_o).save(path)
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """What must be the same for the same settings: the weights and the table."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.name in ("last.pt", "comparison.json")
    }


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy") / "policy.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, policy) -> Path:
    """A comparison of two policies and two seeds that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "out"
    flags = ("--policies", "uniform", "--policy", policy, "--seeds", 2, "--out", out)
    assert run(*flags) == 0
    return out


def test_every_training_has_its_folder(whole, policy):
    assert {path.name for path in whole.iterdir()} == {
        *("comparison.html", "comparison.json", "config.json", "searched", "uniform")
    }
    searched, uniform = (
        PolicySchedule.load(whole / name / "seed-1") for name in ("searched", "uniform")
    )
    assert searched == PolicySchedule.load(policy)
    assert uniform.p_tp.tolist() == searched.p_tp.tolist() and np.ptp(uniform.p_o) == 0


def test_the_table_has_the_scores_of_the_last_epoch(whole):
    table = json.loads((whole / "comparison.json").read_text())
    for found in table["policies"]:
        for seed, score in found["scores"].items():
            folder = whole / found["name"] / f"seed-{seed}"
            line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
            assert score == line["test_accuracy"]
    (difference,) = table["differences"]
    assert (difference["ours"], difference["theirs"]) == ("searched", "uniform")
    assert difference["difference"]["seeds"] == 2


def test_the_page_says_the_sentence(whole):
    page = Page((whole / "comparison.html").read_text("utf-8"))
    page.assert_self_contained()
    headline = json.loads((whole / "comparison.json").read_text())["headline"]
    assert f"{headline}" in page.words() and "than uniform" in headline.replace("from", "than")
    assert "4 trainings, 2 settings, 2 seeds each" in page.words()


def test_the_report_command_names_the_way(whole, capsys):
    assert report([str(whole)]) == 2
    assert f"ddas compare --resume --out {whole} writes its page" in capsys.readouterr().err


def test_a_killed_comparison_goes_on_to_the_same_bytes(whole, policy, tmp_path, monkeypatch):
    flags = ("--policies", "uniform", "--policy", policy, "--seeds", 2, "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        at_step(patch, 2, die)  # of the first training
        with pytest.raises(Killed):
            run(*flags)
    assert main(["--resume", "--out", str(tmp_path / "out")]) == 0
    assert tree(tmp_path / "out") == tree(whole)


def test_a_comparison_grows_and_keeps_what_is_trained(whole, policy, tmp_path, monkeypatch):
    settings = {"policy": policy, "out": tmp_path / "out", "quiet": True, **FEW}
    compare("uniform", seeds=1, **settings)
    first = tmp_path / "out" / "searched" / "seed-0" / "last.pt"
    written = first.stat().st_mtime_ns
    result = compare("uniform", seeds=2, **settings)
    assert first.stat().st_mtime_ns == written
    assert tree(tmp_path / "out") == tree(whole)
    assert set(result.scores) == set(result.table) == {"uniform", "searched"}
    assert result.table["uniform"].mean == np.mean(list(result.scores["uniform"].values()))
    assert result.report == tmp_path / "out" / "comparison.html" and result.report.exists()


def test_a_signal_stops_it_and_says_how_to_go_on(policy, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    at_step(monkeypatch, 1, lambda: signal.raise_signal(signal.SIGTERM))
    assert run("--policy", policy, "--out", out) == 128 + signal.SIGTERM
    assert f"go on with: {PROGRAM} --resume --out {out}" in capsys.readouterr().err


def test_another_policy_under_the_same_name_is_refused(tmp_path, capsys):
    policy = write_policy(tmp_path / "policy.json")
    flags = ("--policies", "uniform", "--policy", policy, "--out", tmp_path / "out")
    assert run(*flags, "--seeds", 1) == 0
    write_policy(policy, seed=1)
    assert main(["--resume", "--seeds", "2", "--out", str(tmp_path / "out")]) == 2
    assert "was trained under another policy" in capsys.readouterr().err


WRONG = {
    "--policies none": "two policies or more",
    "--policies none,nowhere.json": "is neither a file nor one of none",
    "--seeds 0": "--seeds must be above 0",
    "--batch-size 1000": "--batch-size 1000 is larger than the set",
    "--val-share 1": "--val-share lies in [0, 1)",
}


@pytest.mark.parametrize(("flags", "reason"), WRONG.items())
def test_what_cannot_be_leaves_nothing_behind(flags, reason, tmp_path, capsys):
    assert run(*flags.split(), "--out", tmp_path / "out") == 2
    told = capsys.readouterr().err.splitlines()
    assert reason in told[-1] and told[-1].startswith(PROGRAM)
    assert not (tmp_path / "out").exists()


def test_changed_settings_are_refused(whole, policy, capsys):
    assert main(["--resume", "--epochs", "5", "--out", str(whole)]) == 2
    assert "was started with --epochs 1, not 5" in capsys.readouterr().err
    with pytest.raises(ValueError, match="was started with --epochs 1, not 5"):
        compare("uniform", policy=policy, out=whole, **FEW | {"epochs": 5})
    with pytest.raises(ValueError, match="unknown setting 'epoch'"):
        compare(out=whole, epoch=5)
    with pytest.raises(ValueError, match="epochs must be"):
        compare(out=whole, epochs="five")


# --- the policy that is kept ----------------------------------------------------------------------


def test_without_validation_images_no_policy_is_kept(whole):
    table = json.loads((whole / "comparison.json").read_text())
    assert table["kept"] is None and not (whole / "policy.json").exists()


def test_what_is_best_on_the_validation_images_is_kept(policy, tmp_path, capsys):
    flags = ("--policies", "none,uniform", "--policy", policy, "--seeds", 2, "--val-share", 0.4)
    assert run(*flags, "--out", tmp_path) == 0
    table = json.loads((tmp_path / "comparison.json").read_text())
    means = {}
    for found in table["policies"]:
        folders = (tmp_path / found["name"]).iterdir()
        lines = [json.loads((folder / "metrics.jsonl").read_text()) for folder in folders]
        means[found["name"]] = np.mean([line["val_accuracy"] for line in lines])
        assert found["validation"] == pytest.approx(means[found["name"]])
    kept = max(means, key=means.get)
    assert table["kept"] == kept
    written = PolicySchedule.load(tmp_path)
    assert written.settings["kept_of"] == pytest.approx(means)
    if kept != "none":
        trained = PolicySchedule.load(tmp_path / kept / "seed-0")
        assert (written.space, written.p_o.tolist()) == (trained.space, trained.p_o.tolist())
    assert f"is best on the validation images ({100 * means[kept]:.2f}" in capsys.readouterr().out
    page = Page((tmp_path / "comparison.html").read_text("utf-8"))
    assert "is best on the validation images" in page.words()


def test_a_training_without_a_policy_is_kept_as_one_that_augments_nothing(whole, tmp_path):
    settings = compare_preset().replace(image_size=16)
    none = tmp_path / "none"
    none.mkdir()
    keep_policy(settings, none, {"none": 0.9, "uniform": 0.8}, tmp_path)
    kept = PolicySchedule.load(tmp_path)
    assert kept.p_tp.tolist() == [0.0]
    assert kept.settings == {
        "image_size": 16,
        "baseline": "none",
        "kept_of": {"none": 0.9, "uniform": 0.8},
    }


def test_the_kept_policy_trains_at_another_size(tmp_path):
    """A baseline's shifts are pixels, too: the file says at which size."""
    result = compare(
        "trivialaugment,trivialaugment-wide",
        seeds=1,
        out=tmp_path,
        val_share=0.4,
        quiet=True,
        **FEW,
    )
    kept = PolicySchedule.load(tmp_path)
    assert result.kept in ("trivialaugment", "trivialaugment-wide")
    assert kept.scaled(32).space.scale.translate == 2 * kept.space.scale.translate


def test_data_given_to_search_policy_are_refused(tmp_path):
    with pytest.raises(ValueError, match='data="custom" belongs to ddas_gpu.search_policy'):
        compare(data="custom", out=tmp_path / "out")
