"""Makes the notebooks, in both languages, from the tutorial: its words, and its commands as cells.

    python scripts/notebooks.py [--out notebooks] [--share 1.0] [--only bert …] [--language en]
    python scripts/notebooks.py --run            # and run them, each in an empty directory

A notebook is some sections of docs/tutorial.md. What they take from other sections (the text, a
model that was trained before) is made by the first cell. --share 0.1 takes a tenth of all steps.
Commands that repeat an experiment for minutes stand in a notebook as comments.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LANGUAGES = {"en": "", "zh": ".zh"}
TITLE = re.compile(r"^(##+) (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"!\[([^\]]*)\]\((figures/(?:zh/)?[\w-]+\.svg)\)")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]+\)")
LANGUAGE = re.compile(r"^\*.*\[(?:中文|English)\].*\*\n", re.MULTILINE)
AMOUNT = re.compile(r"(--(?:minutes|epochs|steps|limit)) ([\d.]+)")
# Experiments with several seeds, which alone take longer than a notebook may.
LONG = re.compile(
    r"regard claims run (?:heads|repetition|evaluation-speed|quadratic|window|accumulation)\b.*"
)
WORDS = {
    "en": ("Before you start", "This cell makes what the notebook builds on.",
           "takes minutes; remove the # to run it"),
    "zh": ("开始之前", "这个单元准备本笔记本所需要的一切。", "需要几分钟；去掉 # 即可运行"),
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Which sections a notebook has (by their numbers), and what others have to make for it: a file
    or a directory, by the name that the tutorial gives it."""

    sections: tuple[int, ...]
    needs: tuple[str, ...] = ("text",)


NOTEBOOKS = {
    "attention": Plan((1, 2), ()),
    "transformer": Plan((3,)),
    "bert": Plan((4,)),
    "gpt": Plan((5,)),
    "transformer-xl-and-xlnet": Plan((6, 7)),
    "longformer": Plan((8,)),
    "fine-tuning": Plan((10,), ("text", "train.jsonl", "my-bert")),
    "compressing-and-serving": Plan((11,), ("text", "train.jsonl", "my-bert", "sorter")),
}


def sections(language: str) -> dict[int, str]:
    """Returns the sections of the tutorial by their numbers."""
    text = (ROOT / "docs" / f"tutorial{LANGUAGES[language]}.md").read_text("utf-8")
    parts = re.split(r"^## (?=\d+\. )", LANGUAGE.sub("", text), flags=re.MULTILINE)[1:]
    return {int(part.partition(".")[0]): f"## {part}" for part in parts}


def maker(name: str, texts: dict[int, str]) -> str:
    """Returns the commands of the tutorial that make a file or a directory."""
    out = re.compile(rf"^regard .*--out {re.escape(name)}(?= |$).*$", re.MULTILINE)
    for text in texts.values():
        for fence in FENCE.finditer(text):
            if fence[1] != "sh":
                continue
            if line := out.search(fence[2]):
                return line[0]
            if "<<'END'" in fence[2] and f'"{name}"' in fence[2]:  # a program that writes it
                return "\n".join(
                    line for line in fence[2].splitlines() if not line.startswith("regard ")
                )
    raise SystemExit(f"no command of the tutorial makes {name}")


def scaled(commands: str, share: float) -> str:
    """Returns commands that do a share of the steps."""

    def amount(match: re.Match[str]) -> str:
        value = float(match[2]) * share
        shown = f"{value:g}" if match[1] == "--minutes" else str(max(1, round(value)))
        return f"{match[1]} {shown}"

    return commands if share == 1 else AMOUNT.sub(amount, commands)


def notebook(name: str, language: str, share: float = 1.0) -> dict[str, Any]:
    """Returns a notebook as Jupyter's JSON (format 4.5)."""
    plan, texts = NOTEBOOKS[name], sections(language)
    cells: list[dict[str, Any]] = []
    start, why, later = WORDS[language]
    if plan.needs:
        cells.append(words(f"## {start}\n\n{why}"))
        cells.append(shell("\n".join(maker(need, texts) for need in plan.needs), share, later))
    for number in plan.sections:
        for text, is_command in pieces(texts[number]):
            cells.append(shell(text, share, later) if is_command else words(text))
    for i, cell in enumerate(cells):
        cell["id"] = f"{name}-{i}"[-64:]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
            "nbformat": 4, "nbformat_minor": 5}  # fmt: skip


def pieces(section: str) -> Iterator[tuple[str, bool]]:
    """Yields the text of a section and its commands, in turns."""
    end, before = 0, ""
    for fence in FENCE.finditer(section):
        if fence[1] != "sh":
            continue
        before = section[end : fence.start()].strip()
        if before:
            yield before, False
        yield fence[2].strip(), True
        end = fence.end()
    if rest := section[end:].strip():
        yield rest, False


def words(text: str) -> dict[str, Any]:
    """Returns a cell of text. Pictures stand in the notebook itself; links lead out of it."""

    def picture(match: re.Match[str]) -> str:
        data = base64.b64encode((ROOT / "docs" / match[2]).read_bytes()).decode()
        return f'<img alt="{match[1]}" src="data:image/svg+xml;base64,{data}">'

    text = LINK.sub(r"\1", PICTURE.sub(picture, text))
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def shell(commands: str, share: float, later: str) -> dict[str, Any]:
    lines = LONG.sub(lambda match: f"# {match[0]}   ({later})", scaled(commands, share))
    source = f"%%bash\nset -e; unset MPLBACKEND\n{lines}"  # the kernel's way of drawing is its own
    return {"cell_type": "code", "metadata": {}, "source": source,
            "execution_count": None, "outputs": []}  # fmt: skip


def write(out: Path, names: list[str], languages: list[str], share: float) -> Iterator[Path]:
    for name in names:
        for language in languages:
            file = out / f"{name}{LANGUAGES[language]}.ipynb"
            file.parent.mkdir(parents=True, exist_ok=True)
            table = notebook(name, language, share)
            file.write_text(json.dumps(table, ensure_ascii=False, indent=1) + "\n", "utf-8")
            yield file


def run(file: Path) -> float:
    """Runs a notebook in an empty directory, as Jupyter does, and keeps what it shows; returns the
    seconds that it took. A cell that fails is an error."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(file, as_version=4)
    began = time.monotonic()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"PATH": path, "TERM": "dumb"}
        NotebookClient(book, timeout=None, resources={"metadata": {"path": place}}).execute()
    nbformat.write(book, file)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "notebooks")
    parser.add_argument("--share", type=float, default=1.0, help="of all steps")
    parser.add_argument("--only", nargs="+", choices=NOTEBOOKS, default=list(NOTEBOOKS))
    parser.add_argument("--language", nargs="+", choices=LANGUAGES, default=list(LANGUAGES))
    parser.add_argument("--run", action="store_true", help="run them, too")
    options = parser.parse_args()
    for file in write(options.out, options.only, options.language, options.share):
        took = f", ran in {run(file):.0f} s" if options.run else ""
        print(f"{file}{took}", flush=True)


if __name__ == "__main__":
    main()
