"""The C++ kernels, which are compiled for this machine at their first use and cached for the next.

They are optional: without g++ (or with REGARD_NATIVE=0 in the environment) plain torch computes the
same. REGARD_NATIVE=avx2 or avx512 compiles them for an older processor. A cached library runs in
this process with all its rights, so it is loaded only if nobody else could have written it. It uses
the OpenMP library that torch has loaded, so there is only one set of threads.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import warnings
from pathlib import Path

SOURCES = ("kernels.cpp", "int8.cpp", "int4.cpp", "decode.cpp", "encode.cpp", "output.cpp",
           "products.cpp", "norms.cpp", "activations.cpp", "rotary.cpp", "adamw.cpp",
           "copies.cpp")  # fmt: skip
HEADERS = ("common.h", "groups.h", "barrier.h", "int8_many.h", "decode_plan.h", "decode_tiles.h",
           "decode_cache.h", "decode_rows.h", "decode_parts.h", "decode_relative.h")  # fmt: skip
LEVELS = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}  # of REGARD_NATIVE; v4 has no VNNI, no bf16
FLAGS = (
    "-std=c++17", "-O3", "-mprefer-vector-width=512", "-ffp-contract=fast",
    "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC", "-shared",
)  # fmt: skip
PATIENCE = 120  # the most seconds that the compiler may take


@functools.cache
def library() -> ctypes.CDLL | None:
    """Returns the compiled kernels, or None where they cannot be compiled or loaded."""
    if os.environ.get("REGARD_NATIVE") == "0":
        return None
    compiler = shutil.which("g++")
    if compiler is None:
        say_once("there is no g++")
        return None
    try:
        return ctypes.CDLL(str(build(compiler)))
    except (OSError, subprocess.SubprocessError) as error:
        say_once(f"{compiler} could not build them ({type(error).__name__})")
        return None


def say_once(reason: str) -> None:
    """Says why plain torch computes everything; `library` is called once."""
    warnings.warn(
        f"the native kernels are not used, since {reason}; plain torch computes the same more "
        "slowly. Install g++, or say REGARD_NATIVE=0 to go on without them",
        stacklevel=3,
    )


def build(compiler: str) -> Path:
    """Returns the path of the library for these sources, this compiler and this processor, and
    compiles it first if it does not exist."""
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=PATIENCE).stdout
    here = Path(__file__).parent
    texts = [(here / name).read_bytes() for name in (*SOURCES, *HEADERS)]
    level = LEVELS.get(os.environ.get("REGARD_NATIVE", ""), "native")
    flags = [*FLAGS, f"-march={level}"]
    made_of = [*texts, " ".join(flags).encode(), version, processor()]
    name = hashlib.sha256(b"\0".join(made_of)).hexdigest()[:20]
    path = cache() / f"kernels-{name}.so"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not is_private(path.parent):
        warnings.warn(
            f"the compiled kernels are not used, since {path.parent} belongs to another user or "
            f"others may write to it; say 'chmod go-w {path.parent}', or choose another place with "
            "XDG_CACHE_HOME",
            stacklevel=2,
        )
        raise PermissionError(path.parent)
    if not path.exists() or not is_private(path):
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            draft = Path(scratch) / path.name
            command = [compiler, *flags, *(str(here / name) for name in SOURCES), "-o", str(draft)]
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
            draft.chmod(0o700)
            draft.replace(path)  # atomic, even if another process builds the same library
    return path


def is_private(path: Path) -> bool:
    """Returns whether the file or directory itself (no link) belongs to this user, and only this
    user may write to it."""
    if not hasattr(os, "geteuid"):  # Windows: the profile of a user is the user's own
        return True
    facts = path.lstat()
    link = stat.S_ISLNK(facts.st_mode)
    return not link and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022


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
