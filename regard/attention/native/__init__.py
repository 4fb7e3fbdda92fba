"""The C++ kernels, which are compiled for this machine at their first use and cached for the next.

They are optional: without g++ (or with REGARD_NATIVE=0 in the environment) plain torch computes the
same. They use the OpenMP library that torch has loaded, so there is only one set of threads.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = ("kernels.cpp", "int8.cpp", "step.cpp")
HEADERS = ("common.h",)
FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-mprefer-vector-width=512", "-ffp-contract=fast",
    "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC", "-shared",
)  # fmt: skip
PATIENCE = 120  # the most seconds that the compiler may take


@functools.cache
def library() -> ctypes.CDLL | None:
    """Returns the compiled kernels, or None where they cannot be compiled or loaded."""
    compiler = shutil.which("g++")
    if os.environ.get("REGARD_NATIVE") == "0" or compiler is None:
        return None
    try:
        return ctypes.CDLL(str(build(compiler)))
    except (OSError, subprocess.SubprocessError):
        return None


def build(compiler: str) -> Path:
    """Returns the path of the library for these sources, this compiler and this processor, and
    compiles it first if it does not exist."""
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=PATIENCE).stdout
    here = Path(__file__).parent
    texts = [(here / name).read_bytes() for name in (*SOURCES, *HEADERS)]
    made_of = [*texts, " ".join(FLAGS).encode(), version, processor()]
    name = hashlib.sha256(b"\0".join(made_of)).hexdigest()[:20]
    path = cache() / f"kernels-{name}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            draft = Path(scratch) / path.name
            command = [compiler, *FLAGS, *(str(here / name) for name in SOURCES), "-o", str(draft)]
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
            draft.replace(path)  # atomic, even if another process builds the same library
    return path


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regard" / "native"


def processor() -> bytes:
    """Returns a text that differs between processors with different instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = [f"flags {platform.processor()}"]
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {flags}".encode()
