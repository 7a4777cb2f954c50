"""Does a searched policy help a detector? Scenes, in their own domain and in two others.

    python benchmarks/evidence_scenes.py --work DIR     # runs what is missing, and may be stopped
    python benchmarks/evidence_scenes.py --render       # writes the tables of docs/scenes.md

All trainings see the same source images. Those of a target domain are for the search's validation
(its train2017) and for the test (its val2017) alone. Every training is tested once, after its last
epoch, in every domain that the table has for it. `evidence_scenes.jsonl` has one line per run.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from PIL import Image, ImageEnhance, ImageFilter

from ddas_gpu import PolicySchedule
from ddas_gpu.__main__ import main as ddas
from ddas_gpu.data.scenes import write_scenes
from ddas_gpu.files import write_atomically
from ddas_gpu.models import build
from ddas_gpu.pipelines.batches import EvaluationBatches
from ddas_gpu.pipelines.order import Order
from ddas_gpu.tasks.task import open_task
from ddas_gpu.train.settings import preset

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "evidence_scenes.jsonl"
PAGE = HERE.parent / "docs" / "scenes.md"

SAME = "same domain"
IMAGES = {"train2017": 1500, "val2017": 250}  # half as many to train on as `--data scenes` has


def dark(image: Image.Image) -> Image.Image:
    faint = ImageEnhance.Contrast(image).enhance(0.5)
    return ImageEnhance.Brightness(faint).enhance(0.5)


def blurred(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(2))


DOMAINS: dict[str, Callable[[Image.Image], Image.Image] | None] = {
    SAME: None,
    "dark, low contrast": dark,
    "blurred": blurred,
}
BASELINES = ("none", "uniform", "trivialaugment")
SEARCHED = "searched"


def folder_of(domain: str) -> str:
    return domain.replace(",", "").replace(" ", "-")


def write_domains(work: Path) -> None:
    source = work / folder_of(SAME)
    if not source.exists():
        write_scenes(source, images=IMAGES)
    for domain, change in DOMAINS.items():
        target = work / folder_of(domain)
        if change is None or target.exists():
            continue
        part = target.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part)
        (part / "scenes.json").unlink()
        for file in sorted(part.glob("*/*.png")):
            with Image.open(file) as image:
                change(image.convert("RGB")).save(file)
        part.rename(target)


def run(command: str, out: Path, flags: list[str]) -> float:
    """Run a command, or continue it; return its seconds of CPU time in this process."""
    start = time.process_time()
    resume = ["--resume", "--out", str(out)] if (out / "config.json").exists() else None
    code = ddas([command, *(resume or [*flags, "--out", str(out)])])
    if code:
        sys.exit(code)
    return time.process_time() - start


def search(work: Path, domain: str, seed: int, flags: list[str]) -> dict[str, Any]:
    out = work / f"search-{folder_of(domain)}-{seed}"
    chosen = ["--data", "scenes", "--root", str(work / folder_of(SAME)), "--seed", str(seed)]
    if domain != SAME:
        chosen += ["--val-root", str(work / folder_of(domain))]
    seconds = run("search", out, [*chosen, *flags])
    policy = PolicySchedule.load(out)
    relative = policy.p_o[-1] * len(policy.space)
    top = [[str(policy.space[int(i)]), round(float(relative[i]), 2)] for i in (-relative).argsort()]
    return {"cpu_seconds": round(seconds, 1), "p_tp": float(policy.p_tp[-1]), "top": top[:6]}


def train(
    work: Path, name: str, policy: str, seed: int, domains: list[str], flags: list[str]
) -> dict[str, Any]:
    out = work / f"train-{name}-{seed}"
    root = work / folder_of(SAME)
    seconds = run(
        "train",
        out,
        [
            *("--data", "scenes", "--root", str(root), "--seed", str(seed), "--policy", policy),
            *("--evaluate-every", "1000", *flags),
        ],
    )
    scores = {domain: tested(out, work / folder_of(domain)) for domain in domains}
    return {"cpu_seconds": round(seconds, 1), "scores": scores}


def tested(out: Path, root: Path) -> dict[str, float]:
    """Test the weights after the last epoch of a training on another val2017."""
    last = torch.load(out / "last.pt", weights_only=True)
    settings = preset("scenes").replace(root=root, model=last["model"])
    task = open_task(settings)
    _, source = task.training_sets()
    feed = task.model_feed(source, training=False)
    order = Order(len(source), settings.training.test_batch_size, shuffle=False)
    model = build(last["model"], len(source.class_names))
    batches = EvaluationBatches(feed, order, "cpu", 1)
    return task.test(model, last["weights"], batches, source)


def wanted(seeds: list[int], searches: int) -> Iterator[dict[str, Any]]:
    """Yield what is to be run, the first seed of everything first.

    searches: how many seeds to search with; the trainings take the policies in turn.
    """
    for number, seed in enumerate(seeds):
        for policy in BASELINES:
            yield {"run": "train", "policy": policy, "domain": "", "seed": seed}
        for domain in DOMAINS:
            job = {"policy": SEARCHED, "domain": domain, "seed": seed}
            if number < searches:
                yield {"run": "search", **job}
            yield {"run": "train", **job, "search_seed": seeds[number % searches]}


def same_job(row: dict[str, Any], job: dict[str, Any]) -> bool:
    return all(row[name] == job[name] for name in ("run", "policy", "domain", "seed"))


def carry_out(
    job: dict[str, Any], work: Path, search_flags: list[str], train_flags: list[str]
) -> dict[str, Any]:
    seed, domain = job["seed"], job["domain"]
    if job["run"] == "search":
        return search(work, domain, seed, search_flags)
    if job["policy"] != SEARCHED:
        return train(work, job["policy"], job["policy"], seed, list(DOMAINS), train_flags)
    policy = str(work / f"search-{folder_of(domain)}-{job['search_seed']}")
    return train(work, f"searched-{folder_of(domain)}", policy, seed, [domain], train_flags)


def results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def spread(values: list[float]) -> str:
    """Return the mean in points, ± its standard error if there are several values."""
    values = [100 * value for value in values]
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else "–"
    return f"{mean(values):.1f} ± {stdev(values) / len(values) ** 0.5:.1f}"


def table(rows: list[dict[str, Any]], score: str) -> str:
    policies = (*BASELINES, SEARCHED)
    lines = [f"| domain | {' | '.join(policies)} |", "| --- |" + " --- |" * len(policies)]
    for domain in DOMAINS:
        cells = [
            spread(
                [
                    row["scores"][domain][score]
                    for row in rows
                    if row["run"] == "train" and row["policy"] == policy and domain in row["scores"]
                ]
            )
            for policy in policies
        ]
        lines.append(f"| {domain} | {' | '.join(cells)} |")
    return "\n".join(lines)


def findings(rows: list[dict[str, Any]]) -> str:
    lines = ["| domain | seed | p_tp | most probable (1.00× is uniform) |"]
    lines.append("| --- | --- | --- | --- |")
    for row in sorted(rows, key=lambda row: (list(DOMAINS).index(row["domain"]), row["seed"])):
        top = ", ".join(f"{name} {times:.2f}×" for name, times in row["top"][:4])
        lines.append(f"| {row['domain']} | {row['seed']} | {row['p_tp']:.2f} | {top} |")
    return "\n".join(lines)


def render(rows: list[dict[str, Any]], page: Path) -> None:
    """Replace what is between the marks of the page."""
    searches = [row for row in rows if row["run"] == "search"]
    parts = {
        "mAP": table(rows, "test_mAP"),
        "mAP50": table(rows, "test_mAP50"),
        "found": findings(searches),
    }
    text = page.read_text("utf-8")
    for name, content in parts.items():
        mark = re.escape(f"<!-- {name} -->"), re.escape(f"<!-- end of {name} -->")
        text, count = re.subn(
            f"({mark[0]}\n).*?({mark[1]})",
            lambda found, new=content: f"{found[1]}\n{new}\n\n{found[2]}",
            text,
            flags=re.S,
        )
        if count != 1:
            raise ValueError(f"{page} needs one place for {name}")
    write_atomically(page, text.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder for images and runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--searches", type=int, help="search with the first so many seeds only")
    # Parts of the work, to run them side by side:
    parser.add_argument("--only", choices=("search", "train"))
    parser.add_argument("--policies", nargs="+", default=[*BASELINES, SEARCHED])
    parser.add_argument("--domains", nargs="+", default=["", *DOMAINS], help='"": the baselines')
    parser.add_argument("--search-flags", default="", help="further flags of the searches")
    parser.add_argument("--train-flags", default="", help="further flags of the trainings")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--render", action="store_true")
    chosen = parser.parse_args()
    if chosen.work:
        write_domains(chosen.work)
        flags = chosen.search_flags.split(), chosen.train_flags.split()
        for job in wanted(chosen.seeds, chosen.searches or len(chosen.seeds)):
            if chosen.only not in (None, job["run"]) or job["policy"] not in chosen.policies:
                continue
            done = results(chosen.results)
            if job["domain"] not in chosen.domains or any(same_job(row, job) for row in done):
                continue
            line = json.dumps(job | carry_out(job, chosen.work, *flags))
            with chosen.results.open("a") as file:
                file.write(f"{line}\n")
    if chosen.render:
        render(results(chosen.results), PAGE)


if __name__ == "__main__":
    main()
