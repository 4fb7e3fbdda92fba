"""The pages of claims: one of each claim, and a gallery of all; in English and Chinese.

A page is one file that needs nothing else, made from the claim and what its run wrote down.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from regard.core.text import Bilingual
from regard.lab.claims import claim as find
from regard.lab.claims import names
from regard.lab.claims.engine.chart import drawn
from regard.lab.claims.engine.claim import Claim
from regard.lab.claims.engine.experiment import ComputedExperiment
from regard.lab.claims.engine.means import standard_error
from regard.lab.claims.engine.rulings import (
    FEWER_SEEDS,
    NOT,
    REPRODUCED,
    UNDECIDED,
    PartRuling,
    evidence,
)
from regard.lab.claims.engine.run import read_facts
from regard.metrics.figures import jsonable
from regard.report import pages
from regard.training.report import replace

NAME, GALLERY = "claim.html", "gallery.html"
VERDICTS = {
    REPRODUCED: Bilingual("reproduced", "已复现"),
    NOT: Bilingual("not reproduced", "未复现"),
    UNDECIDED: Bilingual("undecided", "无定论"),
}
MARKS = {REPRODUCED: ("yes", "✓"), NOT: ("no", "✗"), UNDECIDED: ("open", "~")}


def write_page(claim: Claim, facts: dict[str, Any], place: Path) -> Path:
    """Writes claim.html into the directory of the claim."""
    return replace(place / NAME, page(claim, facts))


def write_gallery(out: Path) -> Path:
    """Writes gallery.html over the claims that were run in `out`."""
    return replace(out / GALLERY, gallery({n: read_facts(out, n) or None for n in names()}))


def page(claim: Claim, facts: dict[str, Any]) -> str:
    figures = list(dict.fromkeys(name for cell in facts["cells"] for name in cell["figures"]))

    def order(cell: dict[str, Any]) -> tuple[int, float]:
        known = cell["arm"] in claim.arms
        return (claim.arms.index(cell["arm"]) if known else len(claim.arms), cell["at"])

    cells = sorted(facts["cells"], key=order)
    by_place: dict[tuple[str, ...], list[dict[str, float]]] = {}
    rows = []
    for cell in cells:
        where = cell["arm"], *([f"{cell['at']:g}"] if claim.axis else [])
        by_place.setdefault(where, []).append(cell["figures"])
        rows.append([*where, cell["seed"], *(number(cell["figures"].get(n)) for n in figures)])
    means = [
        [*where, *(mean([own[name] for own in seeds if name in own]) for name in figures)]
        for where, seeds in by_place.items()
    ]
    # The rule by which it was judged is shown, even if the claim's is another one by now.
    judged_by, share = str(facts["rule"]), facts["effort"]
    effort = "" if share == 1 else f" --effort {share:g}"
    look = f" --seeds {facts['seeds']}" if facts["cause"] == FEWER_SEEDS else ""
    pictures = {chart.figure: drawn(claim, facts, chart) for chart in claim.charts}
    return pages.page(
        "claim", claim.statement, locales=["claims"],
        charts={name: chart for name, chart in pictures.items() if chart is not None},
        data={"facts": jsonable(facts)},
        claim=claim, facts=facts, names=figures, cells=rows, means=means,
        places=[pages.words("claims")["arm"], *([claim.axis.name] if claim.axis else [])],
        mark=MARKS[facts["verdict"]], verdict=VERDICTS[facts["verdict"]], effort=effort_of(facts),
        cautions=cautions(claim, facts), cause=cause_of(facts), fixed=fixed_of(facts),
        reasons=reasons(facts["because"], claim.axis is not None), parts=parts_of(claim, facts),
        rule=claim.rule.parts() if judged_by == claim.rule.words else [Bilingual(judged_by,
         judged_by)],
        command=f"regard claims run {facts['name']}{look}{effort}",
    )  # fmt: skip


def gallery(records: dict[str, dict[str, Any] | None]) -> str:
    """All claims on one page, by what the run of each wrote down: None where there is none."""
    done, pictures = [], {}
    known = {name: facts for name, facts in records.items() if facts is not None}
    for name, facts in known.items():
        claim, verdict = find(name), facts["verdict"]
        badges = [(MARKS[verdict], VERDICTS[verdict]), fixed_of(facts)]
        done.append((name, claim, badges, effort_of(facts), cause_of(facts)))
        charts = (drawn(claim, facts, chart) for chart in claim.charts)
        if (first := next(filter(None, charts), None)) is not None:
            pictures[name] = first
    counts = Counter(facts["verdict"] for facts in known.values())
    return pages.page(
        "gallery", pages.words("claims")["title"], locales=["claims"], charts=pictures, done=done,
        page=NAME,
        counts=[(MARKS[v], VERDICTS[v], counts[v]) for v in MARKS if counts[v]],
        waiting=[find(name) for name, facts in records.items() if facts is None],
        about=pages.filled(
            pages.words("claims")["about_tests"],
            fixed=str(sum(not facts["changed"] for facts in known.values())), count=str(len(known)),
        ),
    )  # fmt: skip


def cautions(claim: Claim, facts: dict[str, Any]) -> list[str]:
    """Why a verdict may be none; what is only computed has no effort."""
    computed = isinstance(claim.experiment, ComputedExperiment)
    return ["first look"] if facts["effort"] < 1 and not computed else []


def cause_of(facts: dict[str, Any]) -> Bilingual | None:
    """Why a claim is undecided, in a sentence."""
    if not facts["cause"]:
        return None
    return pages.filled(
        pages.words("claims")[facts["cause"]], seeds=str(facts.get("seeds_fixed", ""))
    )


def fixed_of(facts: dict[str, Any]) -> tuple[tuple[str, str], Bilingual]:
    """The badge of the rule: fixed before the run, or changed after data, with the commits."""
    words, commits = pages.words("claims"), facts["changed"]
    if not commits:
        return ("yes", "✓"), words["fixed"]
    return ("open", "!"), pages.filled(words["changed"], commits=", ".join(commits))


def parts_of(claim: Claim, facts: dict[str, Any]) -> list[list[Any]]:
    """A row for each part of the rule: its numbers, the interval, the test and the verdict."""
    rows = []
    for table in facts["parts"]:
        part = PartRuling(**table)
        (numbers,) = reasons(part.because, claim.axis is not None)
        known = part.low is not None and part.high is not None and part.low < part.high
        span = f"{part.low:.4g} – {part.high:.4g}" if known else "–"
        rows.append([numbers, span, evidence(part), VERDICTS[part.verdict]])
    return rows


def effort_of(facts: dict[str, Any]) -> Bilingual:
    """How much work it was."""
    seeds, share = facts["seeds"], facts["effort"]
    en, zh = "1 seed" if seeds == 1 else f"{seeds} seeds", f"{seeds} 个随机种子"
    if share == 1:
        return Bilingual(en, zh)
    return Bilingual(f"{en}, {share:g} times the usual effort", f"{zh}，标准工作量的 {share:g} 倍")


def reasons(because: str, along: bool) -> list[Bilingual]:
    """The numbers that decided, one sentence a part; without an axis no place is named."""
    sentences = []
    for part in (because if along else because.replace(": 0: ", ": ")).split("; "):
        zh = part
        for english, chinese in CHINESE:
            zh = re.sub(english, chinese, zh)
        sentences.append(Bilingual(part, zh.replace(", ratio ", "，比值 ")))
    return sentences


CHINESE = (  # of what a rule says about the numbers that decided
    (r"^(\S+) of (.+?) grows with the power ", r"\2 的 \1 的幂指数为 "),
    (r"^(\S+) of (.+?) is at most (\S+) from a power", r"\2 的 \1 与幂函数至多相差 \3"),
    (
        r"^(\S+), difference at (\S+): (\S+), at (\S+): (\S+), noise ",
        r"\1 之差：在 \2 处 \3，在 \4 处 \5，噪声 ",
    ),
    (r"^(\S+), (.+?) over (.+?): ", r"\2 与 \3 的 \1 之比："),
    (r"^([^:]+) at (\S+): ", r"\1（在 \2 处）："),
    (r"^(\S+) of (.+?): ?", r"\2 的 \1："),
)


def mean(values: list[float]) -> str:
    """The mean over the seeds with its standard error, as exact as two digits of the error."""
    if not values:
        return "–"
    mean, error = statistics.fmean(values), standard_error(values)
    places = 1 - math.floor(math.log10(error)) if error else 0
    if error and mean and places > 9:
        return f"{mean:.{max(2, math.floor(math.log10(abs(mean))) + places + 1)}g} ± {error:.2g}"
    if not error or abs(mean) >= 1e6:
        return number(mean) + (f" ± {error:.2g}" if error else "")
    places = max(places, 0)
    return f"{mean:.{places}f} ± {error:.{places}f}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
