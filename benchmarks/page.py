"""Writes docs/results.md and docs/results.zh.md, section by section, and stores the cells they are
made from.

Each measuring script owns one section of the page, between two marks, and replaces only that
section, in both languages: chinese.py says in Chinese what the script wrote. A cell is measured
once, in a separate process, and stored.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chinese import in_chinese, untranslated

TITLES = {"en": "# Results\n", "zh": "# 结果\n"}
SURE = 0.95  # the confidence level: by chance, one of twenty differences is significant


def say(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def twin(page: Path) -> Path:
    """Returns the page in Chinese that stands beside an English one."""
    return page.with_suffix(".zh.md")


def put_both(section: str, text: str, page: Path) -> None:
    """Replaces a section of the page, and the same section of its Chinese twin."""
    chinese = in_chinese(section, text)
    put(section, text, page)
    put(section, chinese, twin(page), TITLES["zh"])
    for words in untranslated(chinese):
        say(f"benchmarks/chinese.toml lacks words of the section {section}: {words}")


def put(section: str, text: str, page: Path, title: str = TITLES["en"]) -> None:
    """Replaces a section of the page, or adds it at the end; the page is never half written."""
    begin, end = f"<!-- begin {section} -->", f"<!-- end {section} -->"
    before = page.read_text(encoding="utf-8") if page.is_file() else title
    block = f"{begin}\n{text.strip()}\n{end}"
    if begin in before:
        head, _, rest = before.partition(begin)
        old, closed, tail = rest.partition(end)
        if not closed or "<!-- begin " in old:
            raise SystemExit(f"{page}: {begin} has no {end}; mend the page first")
        after = f"{head}{block}{tail}"
    else:
        after = f"{before.rstrip()}\n\n{block}\n"
    page.parent.mkdir(parents=True, exist_ok=True)
    replace(page, after)


def once(
    file: Path, make: Callable[[], dict[str, Any]], settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the cell of a file. If there is none, measures it and writes it to the file.

    A cell holds the settings that it was measured with; if they differ from `settings`, it is
    measured again.
    """
    wanted = None if settings is None else plain(settings)
    if file.is_file():
        cell: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if wanted is None or cell.get("settings") == wanted:
            return cell
        say(f"{file} has other settings: measured again")
    cell = plain(make()) | ({} if wanted is None else {"settings": wanted})
    file.parent.mkdir(parents=True, exist_ok=True)
    replace(file, json.dumps(cell, indent=1, ensure_ascii=False) + "\n")
    return cell


def cells(
    place: Path, settings: Callable[[dict[str, Any]], Mapping[str, Any] | None]
) -> list[dict[str, Any]]:
    """Returns all cells. `settings` returns the settings that a cell must have today, or None if
    the script no longer measures it; a cell with other settings is left out, with a message."""
    rows = []
    for file in sorted(place.glob("*.json")):
        row = json.loads(file.read_text(encoding="utf-8"))
        wanted = settings(row) if "settings" in row else None
        if wanted is not None and row["settings"] == plain(wanted):
            rows.append(row)
        else:
            say(f"{file} has other settings: left out of the page")
    return rows


def plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a table as it comes back from a JSON file."""
    return dict(json.loads(json.dumps(value)))


def replace(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def in_process(script: str, words: Sequence[str]) -> dict[str, Any]:
    """Measures a cell in a separate process: the script, called with `--cell FILE`, writes it
    there.

    The output of the process is shown only if it fails.
    """
    with tempfile.TemporaryDirectory() as place:
        result, log = Path(place, "cell.json"), Path(place, "log")
        with log.open("w") as file:
            command = [sys.executable, script, *words, "--cell", str(result)]
            code = subprocess.run(command, stdout=file, stderr=file).returncode
        if code or not result.is_file():
            raise SystemExit(f"{' '.join(command)} ended with {code}:\n{log.read_text()}")
        return dict(json.loads(result.read_text(encoding="utf-8")))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: Sequence[float], form: str = ".3f") -> str:
    """Returns the mean of several seeds and their standard deviation; one value stays as it is."""
    middle = format(statistics.fmean(values), form)
    return f"{middle} ± {statistics.stdev(values):{form}}" if len(values) > 1 else middle


def judged(gains: Sequence[float]) -> str:
    """Returns "better", "worse" or "level" by Student's t of paired gains; "" for a single one."""
    from scipy.stats import t

    if len(gains) < 2:
        return ""
    error = statistics.stdev(gains) / len(gains) ** 0.5
    mean = statistics.fmean(gains)
    if abs(mean) <= t.ppf((1 + SURE) / 2, len(gains) - 1) * error:
        return "level"
    return "better" if mean > 0 else "worse"


def apart(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Returns the difference of means in pooled standard deviations; None if there are too few."""
    if min(len(ours), len(theirs)) < 2:
        return None
    pooled = ((statistics.variance(ours) + statistics.variance(theirs)) / 2) ** 0.5
    difference = statistics.fmean(ours) - statistics.fmean(theirs)
    if pooled == 0:
        return math.copysign(math.inf, difference) if difference else 0.0
    return difference / pooled


def goal(text: str, reached: bool) -> str:
    """Returns a figure that has a goal, marked if the goal was missed."""
    return text if reached else f"{text} (missed)"
