"""The last section of a search's page: what to do with the policy."""

from __future__ import annotations

import shlex
from pathlib import Path

from ddas_gpu.data.catalog import CUSTOM
from ddas_gpu.ops.table import BOX_OPS
from ddas_gpu.report.html import Html, el
from ddas_gpu.report.parts import section
from ddas_gpu.report.run import Run

# {policy} is the path of the policy as a Python string, {folder} that of the run.
LOADER = """\
import ddas_gpu

train = "data/train"  # a folder per class, or arrays (images, labels)
batches = ddas_gpu.loader(train, {policy}, batch_size=256, epochs=90)
for epoch in range(90):
    for images, labels in batches:  # float tensors, ready for the model
        ...
"""
TRANSFORM = """\
import ddas_gpu

policy = ddas_gpu.PolicyTransform({policy}, epochs=90)  # a step of your transform
for epoch in range(90):
    policy.set_epoch(epoch)  # reaches the workers of a DataLoader, too
    for image in images:  # PIL images, or uint8 arrays (H, W, 3)
        image = policy(image)
"""
BATCHES = """\
import ddas_gpu

policy = ddas_gpu.BatchPolicy({policy}, epochs=90)
for epoch in range(90):
    policy.set_epoch(epoch)
    for images, labels in batches:  # uint8, (B, 3, H, W), on any device
        images = policy(images)  # every image gets a policy of its own
"""
DETECTION = """\
import ddas_gpu

batches = ddas_gpu.detection_loader("data/coco", {policy}, batch_size=16, epochs=12)
for epoch in range(12):
    for batch in batches:  # images with their boxes and labels
        ...
"""
BOXES = """\
import ddas_gpu

policy = ddas_gpu.BoxPolicyTransform({policy}, epochs=90)
for epoch in range(90):
    policy.set_epoch(epoch)
    for image, boxes, labels in examples:  # boxes: (n, 4), x0 y0 x1 y1 in pixels
        image, boxes, labels = policy(image, boxes, labels)
"""
# Where the data are Python objects: `search_policy` has them, no command.
RESUME = """\
import ddas_gpu

# the same model, images and settings as before
result = ddas_gpu.search_policy(model, train, validation, out={folder}, resume=True)
"""
TRIVIALAUGMENT = """\
import ddas_gpu
from ddas_gpu.train.baselines import trivialaugment

searched = ddas_gpu.PolicySchedule.load({policy})
policy = ddas_gpu.PolicyTransform(trivialaugment(searched.space.scale), epochs=90)
"""
UNIFORM = """\
import ddas_gpu
from ddas_gpu.train.baselines import levelled

searched = ddas_gpu.PolicySchedule.load({policy})
policy = ddas_gpu.BoxPolicyTransform(levelled(searched), epochs=90)
"""
PEERS = """\
import ddas_gpu
from ddas_gpu.train.baselines import levelled, nothing, trivialaugment

searched = ddas_gpu.PolicySchedule.load({policy})
policies = {{
    "none": nothing(searched.space),
    "uniform": levelled(searched),
    "trivialaugment": trivialaugment(searched.space.scale),
    "searched": searched,
}}
for name, schedule in policies.items():
    for seed in range(3):
        policy = ddas_gpu.PolicyTransform(schedule, epochs=90, seed=seed)
        ...  # train with it; note the score on images that the search has not seen
"""
PEERS_WITH_BOXES = """\
import ddas_gpu
from ddas_gpu.train.baselines import levelled, nothing

searched = ddas_gpu.PolicySchedule.load({policy})
policies = {{
    "none": nothing(searched.space),
    "uniform": levelled(searched),
    "searched": searched,
}}
for name, schedule in policies.items():
    for seed in range(3):
        policy = ddas_gpu.BoxPolicyTransform(schedule, epochs=90, seed=seed)
        ...  # train with it; note the score on images that the search has not seen
"""
WAYS = {
    "Read the images through this package": LOADER,
    "In the transform of a data set of your own": TRANSFORM,
    "On batches, in your training loop": BATCHES,
}


def next_steps(run: Run) -> Html:
    """Return the ways to use the policy, and the commands that test it."""
    if run.unfinished:
        return section(
            "What to do next",
            "This search is not finished, and its policy is not written yet. Resume it:",
            step(run, RESUME, f"ddas search --resume --out {_quoted(run.folder)}"),
        )
    has_boxes, own = _has_boxes(run), is_own_data(run)
    peers = "with uniform probabilities" + ("" if has_boxes and own else ", with TrivialAugment")
    told = f"{'the spread over the seeds' if own else 'one page'} says what can be told apart"
    return section(
        "What to do next",
        "Use the policy in a training. Its schedule is stretched to the epochs that you train for.",
        None
        if run.schedule.verdict.get("told", True)
        else [
            el("h3", as_uniform(run)),
            step(run, UNIFORM if has_boxes else TRIVIALAUGMENT, instead(run)),
        ],
        [
            [el("h3", title), code(in_python(run, text), f"Python code: {title}")]
            for title, text in ways(run).items()
        ],
        None if has_boxes else _elsewhere(run),
        el("h3", "Is it better than uniform?"),
        el(
            "p",
            f"Train without a policy, {peers} and with this policy, three seeds each; {told}.",
            class_="lead",
        ),
        step(run, PEERS_WITH_BOXES if has_boxes else PEERS, comparison(run)),
    )


def step(run: Run, python: str, command: str) -> Html:
    """Return the code of a step: a command, or Python where no command has the data."""
    if is_own_data(run):
        return code(in_python(run, python), "Python code")
    return code(command, "Command")


def in_python(run: Run, text: str) -> str:
    """Return the code with the paths of a run."""
    return text.format(policy=repr(str(run.folder / "policy.json")), folder=repr(str(run.folder)))


def is_own_data(run: Run) -> bool:
    """Return whether the images came as Python objects, from `search_policy`."""
    return run.settings.get("data") == CUSTOM.name


def ways(run: Run) -> dict[str, str]:
    """Return the ways to use the policy in a training, {title: code}."""
    if not _has_boxes(run):
        return WAYS
    if is_own_data(run):
        return {"In the transform of a data set of your own": BOXES}
    return {"Read the images through this package": DETECTION}


def as_uniform(run: Run) -> str:
    """Say what to use where no policy is told apart from uniform."""
    _, choice = without_search(_has_boxes(run))
    return f"No policy is told apart from uniform here: {choice} is a good choice."


def instead(run: Run) -> str:
    """Return the command that trains without the policy."""
    name, _ = without_search(_has_boxes(run))
    return f"ddas train{_data_flags(run)} --policy {name}"


def without_search(has_boxes: bool) -> tuple[str, str]:
    """Return the policy to take where a search tells nothing: for --policy, and in words."""
    return ("uniform", "it") if has_boxes else ("trivialaugment", "TrivialAugment")


def _has_boxes(run: Run) -> bool:
    return any(candidate.op in BOX_OPS for candidate in run.schedule.space)


def _data_flags(run: Run) -> str:
    return data_flags(run.settings.get("data"), run.settings.get("root"))


def data_flags(data: str | None, root: str | Path | None) -> str:
    """Return the flags that name a data set."""
    flags = f" --data {_quoted(data)}" if data else ""
    return flags + (f" --root {_quoted(root)}" if root else "")


def _elsewhere(run: Run) -> list[Html]:
    export = f"ddas export {_quoted(run.folder)} --to pillow  # torchvision, albumentations, dali"
    return [el("h3", "Where ddas_gpu is not installed"), code(export, "Command")]


def comparison(run: Run) -> str:
    """Return the command that compares the policy with uniform and with other baselines."""
    flags = _data_flags(run)
    elsewhere = run.settings.get("val_root")
    if elsewhere:
        flags += f" --val-root {_quoted(elsewhere)} --policies free"
    return (
        f"ddas compare{flags} --policy {_quoted(run.folder)} "
        f"--out {_quoted(f'{run.folder}-compared')}"
    )


def code(text: str, label: str) -> Html:
    """Return a block of code that scrolls sideways."""
    return el("pre", el("code", text), tabindex="0", role="region", aria_label=label)


def _quoted(value: str | Path) -> str:
    return shlex.quote(str(value))
