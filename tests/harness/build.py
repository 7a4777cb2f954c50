"""Compiles CUDA sources with the C++ compiler into a library, once for each text and setting."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
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
            cls(name, tuple(p.strip() for p in parameters.split(",") if p.strip()), bounds or "1024")
            for bounds, name, parameters in KERNEL.findall(text)
        ]


def build(texts: Mapping[str, str], defines: Mapping[str, int | str], racecheck: bool) -> Path:
    """Compile the .cu texts, each beside all other texts, which it may include."""
    compiler = os.environ.get("CXX", "g++")
    flags = [*FLAGS, *(f"-D{name}={value}" for name, value in defines.items())]
    if racecheck:
        flags.append("-fsanitize=thread")  # for its calls alone: its library is not linked
    own = {path.name: path.read_text() for path in sorted(HERE.iterdir()) if path.is_file()}
    key = repr((compiler, flags, sorted(texts.items()), sorted(own.items())))
    library = CACHE / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"
    if not library.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            _compile(compiler, flags, texts, Path(folder), racecheck)
            # Another process may have been faster; both made the same.
            os.replace(Path(folder) / "library.so", library)
    return library


def _compile(
    compiler: str, flags: list[str], texts: Mapping[str, str], folder: Path, racecheck: bool
) -> None:
    if shutil.which(compiler) is None:
        raise FileNotFoundError(f"no C++ compiler {compiler!r}; set CXX")
    check = "racecheck.cpp" if racecheck else "no_racecheck.cpp"
    jobs = [[*FLAGS, str(HERE / name)] for name in ("scheduler.cpp", check)]
    for name, text in texts.items():
        (folder / name).write_text(text)
        if name.endswith(".cu"):
            unit = folder / f"{name}.cpp"
            unit.write_text(_unit(name, text))
            jobs.append([*flags, "-include", str(HERE / "cuda_on_host.h"), str(unit)])
    objects = [str(folder / f"{i}.o") for i in range(len(jobs))]
    running = [
        subprocess.Popen(
            [compiler, *job, "-c", "-o", output], stderr=subprocess.PIPE, text=True
        )
        for job, output in zip(jobs, objects, strict=True)
    ]
    messages = [process.communicate()[1] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError("the sources do not compile on the host:\n" + "\n".join(messages))
    library = str(folder / "library.so")
    link = [compiler, "-shared", "-Wl,-z,defs", "-o", library, *objects]
    subprocess.run(link, check=True)


def _unit(name: str, text: str) -> str:
    lines = [f'#include "{name}"']
    for kernel in Declaration.all_in(text):
        lines.append(
            f"static cuda_on_host::Trampoline<{kernel.name}> "
            f'{kernel.name}_trampoline("{kernel.name}", {kernel.most_threads});'
        )
    return "\n".join(lines) + "\n"
