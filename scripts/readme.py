"""Runs the commands that both READMEs show, and puts what they print between their marks.

    python scripts/readme.py                # everything: a few minutes on two quiet cores
    python scripts/readme.py --only claim   # one of the runs
    python scripts/readme.py --pictures     # the pictures of the report and of the look page alone

The runs are made in a directory of their own (--work keeps it). The pictures need Chromium.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).resolve().parent.parent
READMES = (ROOT / "README.md", ROOT / "README.zh.md")
LONGEST = 100  # characters of a line that is shown
RUNS = {
    "first": [
        "regard prepare builtin:python-docs --out text",
        "regard train gpt text --out my-gpt --size tiny --minutes 0.5",
        'regard generate my-gpt "Return a list of" --max-new-tokens 40 --temperature 0.7 --seed 2',
    ],
    "compare": [
        "regard compare builtin:python-docs --budget 30s --models gpt,transformer-xl,lstm "
        "--out lineage"
    ],
    "claim": ["regard claims run scaling"],
}
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
    """Takes pictures of the comparison's report and of the look page."""
    from playwright.sync_api import sync_playwright

    text = "Return a list of the names of the files in the directory"
    shown(f"regard look my-gpt {shlex.quote(text)} --out look.html", work)
    pages = {"report": work / "lineage/report.html", "look": work / "look.html"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for name, page in pages.items():
            tab = browser.new_page(viewport={"width": 1100, "height": 760})
            tab.goto(page.resolve().as_uri())
            tab.wait_for_timeout(500)
            tab.screenshot(path=ROOT / f"docs/figures/{name}.png")
        browser.close()


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
