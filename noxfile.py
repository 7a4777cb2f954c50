"""Run the tests under every supported Python, and with the oldest versions that setup.py allows.

nox                     all of them; interpreters that are missing are skipped
nox -s tests-3.13 -- tests/test_space.py
"""

import re
from pathlib import Path

import nox

nox.options.error_on_missing_interpreters = False
CONSTRAINTS = ("--constraint", "constraints.txt")


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    session.install(*CONSTRAINTS, "--editable", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """CuPy 14 needs NumPy 2 and is left out; what needs it is skipped."""
    text = Path("setup.py").read_text("utf-8")
    block = text[text.index("install_requires=[") : text.index("extras_require=")]
    lowest = [found.replace(">=", "==") for found in re.findall(r'"([\w-]+>=[\d.]+)"', block)]
    session.install(*lowest, "nvidia-dali-cuda130==2.2.0", "pytest", "hypothesis", "scipy<1.14")
    session.install("pycocotools", "safetensors", "setuptools>=70", "wheel")
    session.install("--no-deps", "--no-build-isolation", "--editable", ".")
    session.run("python", "-m", "pytest", *session.posargs)
