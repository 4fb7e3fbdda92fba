"""The C++ files, compiled for this machine the first time they are wanted, kept for the next.

Nothing needs it: without g++ (or with REGARD_NATIVE=0 in the environment) plain torch does the
same. It uses the OpenMP that torch has loaded, so there is one set of threads.
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
PATIENCE = 120  # seconds a compiler may take


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where they cannot be had."""
    compiler = shutil.which("g++")
    if os.environ.get("REGARD_NATIVE") == "0" or compiler is None:
        return None
    try:
        return ctypes.CDLL(str(built(compiler)))
    except (OSError, subprocess.SubprocessError):
        return None


def built(compiler: str) -> Path:
    """Where the library of these sources, compiler and processor lies; made if it is not there."""
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
            draft.replace(path)  # whole or not at all, whoever else is building it
    return path


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regard" / "native"


def processor() -> bytes:
    """What tells processors apart whose instructions differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = [f"flags {platform.processor()}"]
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {flags}".encode()
