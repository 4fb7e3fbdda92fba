"""What this machine has of what regard can use, and what is missing. Works without torch, too."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from regard.core import VERSION

EXTRA = re.compile(r"extra == ['\"]([\w-]+)['\"]")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LEAST = re.compile(r">=\s*([\d.]+)")
FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "neon")
THREADS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS")
DEVELOPERS = ("bench", "bench-inference", "test", "dev", "site")  # extras that no user needs
TESTED = ((3, 11),)  # the versions of Python on which all tests run


def examine() -> dict[str, Any]:
    """Returns everything that `regard doctor` shows."""
    facts: dict[str, Any] = {
        "regard": {"version": VERSION, "path": str(Path(__file__).parent.parent)},
        "python": {
            "version": platform.python_version(),
            "path": sys.executable,
            "tested": sys.version_info[:2] in TESTED,
        },
        "machine": machine(),
        "torch": torch_facts(),
        "compiler": compiler(),
        "required": libraries().get("", []),
        "extras": {name: rows for name, rows in libraries().items() if name},
        "places": places(),
    }
    return facts | {"problems": list(problems(facts))}


def machine() -> dict[str, Any]:
    """Returns the processor, with those of its abilities that kernels use."""
    flags: set[str] = set()
    info = Path("/proc/cpuinfo")
    text = info.read_text(errors="replace") if info.is_file() else ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            flags = set(value.split())
            break
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": name[1] if name else platform.processor() or platform.machine(),
        "cores": usable,
        "flags": [flag for flag in FLAGS if flag in flags],
        "fast_bf16": bool(flags & {"avx512_bf16", "amx_bf16", "bf16"}),  # else it is emulated
        "threads": {name: os.environ[name] for name in THREADS if name in os.environ},
    }


def torch_facts() -> dict[str, Any] | None:
    """Returns the build of torch and what it computes with; None if it cannot be imported."""
    try:
        import torch
    except (ImportError, OSError) as error:  # a library of another machine is an OSError
        return None if isinstance(error, ModuleNotFoundError) else {"error": str(error)}
    backends = torch.backends
    return {
        "version": torch.__version__,
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "mps": backends.mps.is_available(),
        "capability": backends.cpu.get_cpu_capability(),
        "mkldnn": backends.mkldnn.is_available(),
    }


def compiler() -> dict[str, Any] | None:
    """Returns the compiler that native kernels are built with; they are optional."""
    path = shutil.which("g++")
    if path is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return {
        "path": path,
        "version": done.stdout.partition("\n")[0].strip(),
        "used": os.environ.get("REGARD_NATIVE") != "0",
    }


def libraries() -> dict[str, list[dict[str, Any]]]:
    """Returns the libraries of each extra ("" are the required ones), as the package names them."""
    try:
        lines = requires("regard") or []
    except PackageNotFoundError:  # a source tree that was not installed
        return {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        name, extra = NAME.match(line), EXTRA.search(line)
        if name is None or name[0].lower() == "regard":
            continue
        least = LEAST.search(line.partition(";")[0])
        rows.setdefault(extra[1] if extra else "", []).append(library(name[0], least))
    return rows


def library(name: str, least: re.Match[str] | None) -> dict[str, Any]:
    try:
        known = version(name)
    except PackageNotFoundError:
        return {"name": name, "version": None, "needs": least[1] if least else None}
    old = least is not None and numbers(known) < numbers(least[1])
    return {"name": name, "version": known, "needs": least[1] if least and old else None}


def numbers(text: str) -> tuple[int, ...]:
    """Returns the leading numbers of a version; zeros at its end say nothing."""
    parts = [int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3]]
    return tuple(parts + [0] * (3 - len(parts)))


def places() -> list[dict[str, Any]]:
    """Returns the directories that are used, by the variable that decides each."""
    home = Path.home()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    hub = Path(os.environ.get("HF_HOME", caches / "huggingface"))
    data = os.environ.get("REGARD_DATA")
    rows: list[tuple[str, str, Path | None]] = [
        ("models of the hub", "HF_HOME", hub),
        ("compiled kernels", "XDG_CACHE_HOME", caches / "regard" / "native"),
        ("real text for tests and benchmarks", "REGARD_DATA", Path(data) if data else None),
    ]
    return [
        {
            "what": what,
            "variable": variable,
            "path": None if path is None else str(path),
            "there": path is not None and path.is_dir(),
        }
        for what, variable, path in rows
    ]


def problems(facts: dict[str, Any]) -> Iterator[str]:
    """Yields what keeps something from working, each with what to do."""
    if facts["torch"] is None:
        yield "torch is not installed; install it with: pip install torch"
    elif "error" in facts["torch"]:
        yield f"torch cannot be imported ({facts['torch']['error']}); install it again"
    for row in facts["required"]:
        if row["version"] is None and row["name"] != "torch":
            yield f"{row['name']} is missing; install it with: pip install regard"
        elif row["needs"] is not None and row["version"] is not None:
            yield (
                f"{row['name']} is {row['version']}, and regard needs {row['needs']} or newer; "
                f"install it with: pip install --upgrade {row['name']}"
            )
    if not facts["required"]:
        yield "regard is not installed, only imported; install it with: pip install -e ."
    for place in facts["places"]:
        if place["variable"] == "REGARD_DATA" and place["path"] and not place["there"]:
            yield f"{place['variable']} is {place['path']}, and there is no such directory"
