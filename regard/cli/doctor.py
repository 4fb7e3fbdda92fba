"""The command `regard doctor`: what is there, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regard.cli.options import Command
from regard.core.tables import Table


def doctor() -> Table:
    """Show what is installed here, and what is missing: Python, torch, extras, a compiler, caches.

    It changes nothing, and it works where torch is missing. The exit code is 1 if something that
    every command needs is missing.

    \b
    Examples:
      regard doctor
      regard doctor --json
    """
    from regard.core.doctor import examine

    return examine()


def doctor_lines(facts: Table) -> Iterator[str]:
    yield f"regard     {facts['regard']['version']} in {facts['regard']['path']}"
    untested = "" if facts["python"]["tested"] else " (the tests are run on other versions)"
    yield f"Python     {facts['python']['version']}{untested} at {facts['python']['path']}"
    machine = facts["machine"]
    yield f"machine    {machine['processor']}, {machine['cores']} cores, {machine['system']}"
    bf16 = "bf16 in hardware" if machine["fast_bf16"] else "bf16 is emulated"
    yield f"           {' '.join(machine['flags']) or 'no known vector instructions'}; {bf16}"
    for name, value in machine["threads"].items():
        yield f"           {name}={value}"
    yield from torch_lines(facts["torch"])
    compiler = facts["compiler"]
    if compiler is None:
        yield "compiler   none: the native kernels, which are optional, are not used"
    else:
        unused = "" if compiler["used"] else "; not used, because REGARD_NATIVE is 0"
        yield f"compiler   {compiler['version']}{unused}"
    from regard.core.doctor import DEVELOPERS

    for extra, rows in facts["extras"].items():
        if extra not in DEVELOPERS:
            yield f"{'[' + extra + ']':<20} {', '.join(map(library_words, rows))}"
    for place in facts["places"]:
        path = place["path"] or "not set"
        missing = "" if place["there"] or place["path"] is None else " (not there yet)"
        yield f"{place['variable']:<20} {path}{missing}: {place['what']}"
    yield from (f"problem: {problem}" for problem in facts["problems"])
    if not facts["problems"]:
        yield "nothing that every command needs is missing"


def torch_lines(facts: dict[str, Any] | None) -> Iterator[str]:
    if facts is None or "error" in facts:
        yield "torch      missing" if facts is None else f"torch      broken: {facts['error']}"
        return
    device = f"CUDA {facts['cuda']}" if facts["cuda"] else "MPS" if facts["mps"] else "CPU alone"
    yield f"torch      {facts['version']}, {device}, {facts['threads']} threads"
    yield f"           {facts['capability']}"


def library_words(row: dict[str, Any]) -> str:
    if row["version"] is None:
        return f"{row['name']} missing"
    return f"{row['name']} {row['version']}" + (f" (needs {row['needs']})" if row["needs"] else "")


COMMAND = Command(doctor, doctor_lines, lambda facts: int(bool(facts["problems"])))
