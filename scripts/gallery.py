"""Writes the gallery: the pages of one real comparison and of every claim, with an index.

    python scripts/gallery.py [--work results/gallery] [--budget 2m] [--seeds 1] [--claims all]
        [--jobs 1]
    python scripts/gallery.py --only-pages            # of what was measured so far

Nothing in the gallery is written by hand: `regard compare` and `regard claims run` measure into
--work, where they continue if they are started again, and their pages are copied as they are,
except for the path of --work, which has no meaning elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.lab.claims import claim, names
from regard.lab.claims.engine.page import MARKS, NAME
from regard.lab.claims.engine.run import read_facts

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "builtin:python-docs"
REPORTS = ("report.html", "report.md")
TITLE = "# Gallery · 画廊"
EFFORTS = {"pre-norm-warm-up": 2.5}  # for claims that stay undecided with the usual effort


def measure(options: argparse.Namespace) -> bool:
    """Measures what is missing, and returns whether all succeeded. If a claim fails, the pages of
    the others are still written."""
    compared = options.work / "compare"
    if (compared / "compare.json").is_file():
        code = call("compare", "--resume", str(compared))
    else:
        words = ["--budget", options.budget, "--seeds", str(options.seeds)]
        code = call("compare", SOURCE, *words, "--out", str(compared))
    if code:
        raise SystemExit(code)
    wanted = names() if options.claims == "all" else options.claims.split(",")
    usual = [name for name in wanted if name not in EFFORTS]
    words = ["--out", str(options.work / "claims")]
    commands = [["claims", "run", *usual, "--jobs", str(options.jobs)]] if usual else []
    commands += [
        ["claims", "run", n, "--effort", str(e)] for n, e in EFFORTS.items() if n in wanted
    ]
    whole = True
    for each in commands:
        if (code := call(*each, *words)) not in (0, 1):  # the command was stopped
            raise SystemExit(code)
        whole &= code == 0  # 1: a claim failed and printed why
    return whole


def call(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "regard", *words], stdout=sys.stderr).returncode


def put(work: Path, out: Path) -> None:
    """Replaces the gallery by the current pages, after all of them are gathered."""
    if out.exists() and not is_gallery(out):
        raise SystemExit(f"{out} is not a gallery and stays as it is; choose another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="gallery-", dir=out.parent) as place:
        fresh = Path(place, "made")
        gather(work, fresh)
        if out.exists():
            out.rename(Path(place, "before"))
        fresh.rename(out)


def is_gallery(out: Path) -> bool:
    index = out / "README.md"
    return index.is_file() and index.read_text(encoding="utf-8").startswith(TITLE)


def gather(work: Path, out: Path) -> None:
    compared = [work / "compare" / name for name in REPORTS]
    runs = sorted((work / "compare" / "runs").glob("*/report.html"))
    claims = [work / "claims" / name / NAME for name in done(work)]
    for page in (*compared, *runs, work / "claims" / "gallery.html", *claims):
        copy(page, work, out)
    out.joinpath("README.md").write_text(index(work), encoding="utf-8")


def copy(page: Path, work: Path, out: Path) -> None:
    if not page.is_file():
        raise SystemExit(f"{page} does not exist; leave --only-pages out to write it")
    to = out / page.relative_to(work)
    to.parent.mkdir(parents=True, exist_ok=True)
    text = page.read_text(encoding="utf-8")
    to.write_text(text.replace(f"{work.resolve()}{os.sep}", ""), encoding="utf-8")


def done(work: Path) -> list[str]:
    """Returns the claims that have a result; one of an older version is none."""
    return [name for name in names() if read_facts(work / "claims", name)]


def index(work: Path) -> str:
    """Returns a list of everything, for readers who see files instead of pages."""
    claims = {name: read_facts(work / "claims", name) for name in done(work)}
    report = json.loads((work / "compare" / "report.json").read_text(encoding="utf-8"))
    counts = Counter(each["verdict"] for each in claims.values())
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in MARKS if counts[verdict])
    lines = [
        TITLE,
        "",
        "Made by `python scripts/gallery.py`; open the pages in a browser, they need no network.",
        "由 `python scripts/gallery.py` 生成；请用浏览器打开这些页面，无需联网。",
        "",
        f"## [{report['title']['en']} · {report['title']['zh']}](compare/report.html)",
        "",
        *(f"- {text['en']}\n  {text['zh']}" for text in report["verdict"]),
        "",
        f"`{report['recipe']['command']}`",
        "",
        "## [Claims · 论断](claims/gallery.html)",
        "",
        f"{len(claims)} of {len(names())}: {verdicts}.",
        "",
        "| claim | said · 说法 | verdict · 结论 | seeds | effort |",
        "| --- | --- | --- | --- | --- |",
        *(row(name, each) for name, each in claims.items()),
    ]
    return "\n".join(lines) + "\n"


def row(name: str, each: dict[str, Any]) -> str:
    statement = claim(name).statement
    cells = [
        f"[{name}](claims/{name}/{NAME})",
        f"{statement.en}<br>{statement.zh}",
        f"{each['verdict']}: {each['because']}",
        str(each["seeds"]),
        f"{each['effort']:g}",
    ]
    safe = [cell.replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(safe)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=ROOT / "results" / "gallery")
    parser.add_argument("--out", type=Path, default=ROOT / "gallery")
    parser.add_argument("--budget", default="2m", help="the budget of each model in the comparison")
    parser.add_argument(
        "--seeds", type=int, default=1, help="the number of seeds of the comparison"
    )
    parser.add_argument("--claims", default="all", help="all, or names separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="the number of claims at once")
    parser.add_argument("--only-pages", action="store_true", help="measure nothing")
    options = parser.parse_args()
    whole = options.only_pages or measure(options)
    put(options.work, options.out)
    print(f"the gallery is {options.out}", file=sys.stderr)
    if not whole:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
