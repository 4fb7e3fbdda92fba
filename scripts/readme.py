"""Runs the commands that both READMEs show, and puts what they print between their marks.

    python scripts/readme.py                # everything: a few minutes on two quiet cores
    python scripts/readme.py --only claim   # one of the runs
    python scripts/readme.py --pictures     # the pictures of the report and of the look page alone

The runs are made in a directory of their own (--work keeps it). The pictures need Chromium; each
holds the command whose page it shows, and a test compares it with the READMEs.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.browser.conftest import OPTIONS, chromium

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"
READMES = (ROOT / "README.md", ROOT / "README.zh.md")
LONGEST = 100  # characters of a line that is shown
RUNS = {
    "first": [
        "regard prepare builtin:python-docs --out text",
        "regard train gpt text --out my-gpt --minutes 0.5",
        'regard generate my-gpt "Return a list of" --max-new-tokens 40 --temperature 0.7 --seed 2',
    ],
    "compare": [
        "regard compare builtin:python-docs --budget 15Tflop "
        "--models gpt,transformer-xl,llama --out lineage"
    ],
    "claim": ["regard claims run scaling"],
}
LOOK = 'regard look my-gpt "Return a list of the names" --out look.html'
# What is pictured: the page, the command that wrote it, and what of the page stays.
PICTURES = {
    "report": ("lineage/report.html", RUNS["compare"][0], ("#verdict", "#curves")),
    "look": ("look.html", LOOK, ()),
}
LANGUAGES = {"": "en-US", ".zh": "zh-CN"}  # behind the name of a picture, and of a README
WIDTH, HEIGHT = 1100, 690
# Leaves these sections of a page, the first sentence and chart of each; returns where they end.
FRAME = """(shown) => {
  for (const section of document.querySelectorAll("main > section"))
    section.hidden = !shown.some((name) => section.matches(name));
  for (const part of document.querySelectorAll("main figure:not(.first), #verdict ul, main .keys"))
    part.hidden = true;
  return document.querySelector("main .first").getBoundingClientRect().bottom + scrollY;
}"""
# What a command prints that the READMEs leave out: progress, and notes of this machine.
LEFT_OUT = re.compile(
    r"note: |step |\s*$|\||preparing |.* · (starting|training|measuring|counting|done)$"
    r"|\s*\d+/\d+ |.*\b(resumes?|bytes-bpe)\b|\s*(not )?reproduced: "
)


def shown(command: str, work: Path) -> list[str]:
    """Runs a command; returns it with the lines that it prints."""
    print(f"$ {command}", file=sys.stderr, flush=True)
    words = [sys.executable, "-m", *shlex.split(command)]
    wide = os.environ | {"COLUMNS": "300"}  # no line is cut off; long ones are wrapped below
    done = subprocess.run(
        words, cwd=work, env=wide, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout}")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    lines = [line for line in lines if not LEFT_OUT.match(line)]
    wrapped = [part for line in lines for part in wrap(line, LONGEST, subsequent_indent="  ")]
    return [f"$ {command}", *wrapped, ""]


def put(readme: Path, name: str, lines: list[str]) -> None:
    """Replaces what stands between the marks of a run."""
    text = readme.read_text("utf-8")
    block = "\n".join(["```console", *lines[:-1], "```"])
    pattern = rf"(<!-- run: {name} -->\n).*?(<!-- end -->)"
    new, count = re.subn(
        pattern, lambda mark: f"{mark[1]}{block}\n{mark[2]}", text, count=1, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"{readme.name} has no mark for the run {name!r}")
    readme.write_text(new, "utf-8")


def pictures(work: Path) -> None:
    """Takes pictures of the comparison's report and of the look page, in both languages."""
    from playwright.sync_api import sync_playwright

    shown(LOOK, work)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        for name, (page, command, sections) in PICTURES.items():
            for language, locale in LANGUAGES.items():
                file = FIGURES / f"{name}{language}.png"
                picture(browser, work / page, file, locale, sections)
                sign(file, command)
                own = ROOT / f"README{language}.md"
                link = rf"(docs/figures/{name})(?:\.zh)?\.png"
                own.write_text(re.sub(link, rf"\1{language}.png", own.read_text("utf-8")), "utf-8")
        browser.close()


def picture(browser: Any, page: Path, file: Path, locale: str, sections: Sequence[str]) -> None:
    """Takes a picture of a page from its top: of these sections alone, if there are any."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, locale=locale)
    tab = context.new_page()
    tab.goto(page.resolve().as_uri())
    end = tab.evaluate(FRAME, list(sections)) + 24 if sections else HEIGHT
    tab.wait_for_timeout(500)
    frame = {"x": 0, "y": 0, "width": WIDTH, "height": end}
    tab.screenshot(path=file, clip=frame, full_page=True)
    context.close()


def sign(file: Path, command: str) -> None:
    """Writes into a picture the command whose page it shows."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_text("Command", command)
    with Image.open(file) as image:
        image.save(file, pnginfo=info, optimize=True)


def command_of(file: Path) -> str | None:
    """Returns the command whose page a picture shows, if it says so."""
    from PIL import Image

    with Image.open(file) as image:
        return image.info.get("Command")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=RUNS, help="make one of the runs")
    parser.add_argument("--pictures", action="store_true", help="take the pictures alone")
    parser.add_argument("--work", type=Path, help="the directory of the runs; it is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="readme-") as place:
        work = (options.work or Path(place)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        for name, commands in RUNS.items():
            if options.pictures or options.only not in (None, name):
                continue
            lines = [line for command in commands for line in shown(command, work)]
            for readme in READMES:
                put(readme, name, lines)
        if options.only is None:
            pictures(work)


if __name__ == "__main__":
    main()
