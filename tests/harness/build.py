"""Compiles CUDA sources with the C++ compiler into a library, once for each text and setting."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".pytest_cache" / "harness"

# -O1 keeps the compiler from merging or dropping the accesses that the race check looks for, and
# without contraction the floating-point results are those of `nvcc --fmad=false`.
FLAGS = ["-std=c++17", "-O1", "-gdwarf-4", "-fPIC", "-ffp-contract=off", "-w"]
# Libraries built from mutations of one source must not share a variable.
FLAGS += ["-fvisibility=hidden", "-fno-gnu-unique", "-U_FORTIFY_SOURCE"]

KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\(([^,)]+)[^)]*\)\s*)?(\w+)\s*\(([^)]*)\)'
)


@dataclass(frozen=True)
class Declaration:
    """A kernel as its source declares it."""

    name: str
    parameters: tuple[str, ...]
    most_threads: str  # an expression of the source

    @classmethod
    def all_in(cls, text: str) -> list[Declaration]:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
        return [
            cls(name, tuple(filter(None, map(str.strip, parameters.split(",")))), bounds or "1024")
            for bounds, name, parameters in KERNEL.findall(text)
        ]


def build(texts: Mapping[str, str], defines: Mapping[str, int | str], racecheck: bool) -> Path:
    """Compile the .cu texts, each beside all other texts, which it may include."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise FileNotFoundError(f"no C++ compiler {compiler!r}; set CXX")
    own = {path.name: path.read_text() for path in sorted(HERE.iterdir()) if path.is_file()}
    flags = [*FLAGS, *(f"-D{name}={value}" for name, value in defines.items())]
    flags += ["-include", str(HERE / "cuda_on_host.h")]
    if racecheck:
        flags.append("-fsanitize=thread")  # for its calls alone: its library is not linked
    library = CACHE / f"{_key(compiler, flags, texts, own)}.so"
    if library.exists():
        return library
    # The harness itself is compiled once for all sources, and without the calls.
    names = ("scheduler.cpp", "racecheck.cpp" if racecheck else "no_racecheck.cpp")
    runtime = {HERE / name: CACHE / f"{_key(compiler, FLAGS, own)}-{name}.o" for name in names}
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        units = {unit: unit.with_suffix(".o") for unit in _write_units(texts, Path(folder))}
        missing = {s: Path(folder) / o.name for s, o in runtime.items() if not o.exists()}
        _run_all(
            [
                *([compiler, *FLAGS, "-c", source, "-o", o] for source, o in missing.items()),
                *([compiler, *flags, "-c", unit, "-o", o] for unit, o in units.items()),
            ]
        )
        # Moved in one step, because other processes may look for the same files.
        for source, fresh in missing.items():
            os.replace(fresh, runtime[source])
        linked = Path(folder) / "linked.so"
        objects = [*runtime.values(), *units.values()]
        _run_all([[compiler, "-shared", "-Wl,-z,defs", "-o", linked, *objects]])
        os.replace(linked, library)
    return library


def _key(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _write_units(texts: Mapping[str, str], folder: Path) -> Iterator[Path]:
    for name, text in texts.items():
        (folder / name).write_text(text)
        if not name.endswith(".cu"):
            continue
        lines = [f'#include "{name}"']
        for kernel in Declaration.all_in(text):
            lines.append(
                f"static cuda_on_host::Trampoline<{kernel.name}> "
                f'{kernel.name}_trampoline("{kernel.name}", {kernel.most_threads});'
            )
        unit = folder / f"{name}.cpp"
        unit.write_text("\n".join(lines) + "\n")
        yield unit


def _run_all(commands: list[list[str | Path]]) -> None:
    running = [subprocess.Popen(c, stderr=subprocess.PIPE, text=True) for c in commands]
    messages = [process.communicate()[1] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError("the sources do not compile on the host:\n" + "".join(messages))
