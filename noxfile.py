"""Run the tests under every supported Python, and with the oldest versions that setup.py allows.

nox                     all of them; interpreters that are missing are skipped
nox -s tests-3.13 -- tests/test_space.py
"""

import re
from pathlib import Path

import nox

nox.options.error_on_missing_interpreters = False
CONSTRAINTS = ("--constraint", "constraints.txt")
# CI runs everything under 3.11; these show what a Python or an old version breaks.
QUICK = (
    "tests/test_policy.py",
    "tests/test_space.py",
    "tests/test_released.py",
    "tests/test_transforms.py",
    "tests/ops/test_api.py",
    "tests/ops/test_pillow_exact.py",
    "tests/search/test_alpha.py",
    "tests/search/test_command.py",
    "tests/pipelines/test_loader.py",
    "tests/cli",
    "tests/trust",
)
# What no test of ours needs; and CuPy 14, which needs NumPy 2: what needs it is skipped.
LEFT_OUT = re.compile(r"mkdocs.*|import-linter|mypy|ruff|torchvision|.*-cu12|.*cuda12.*|cupy.*")


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    session.install(*CONSTRAINTS, "--editable", ".[test]")
    run_tests(session)


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """All lowest versions at once."""
    wanted = re.findall(r'"([\w-]+)>=([\d.]+)"', Path("setup.py").read_text("utf-8"))
    lowest = {name: version for name, version in wanted if not LEFT_OUT.fullmatch(name)}
    session.install(*(f"{name}=={version}" for name, version in lowest.items()), "wheel")
    session.install("--no-deps", "--no-build-isolation", "--editable", ".")
    run_tests(session)


def run_tests(session: nox.Session) -> None:
    chosen = session.posargs or ("-q", "-p", "no:xdist", *QUICK)
    session.run("python", "-m", "pytest", *chosen, env={"OMP_NUM_THREADS": "1"})
