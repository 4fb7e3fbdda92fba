"""The page of a claim: one file that needs nothing else, in English and Chinese.

Made from the claim and what its run wrote down. Whatever comes from there only becomes text.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from regard.lab.claims.engine.chart import drawn
from regard.lab.claims.engine.claim import Claim, Said
from regard.lab.claims.engine.experiment import Computed
from regard.lab.claims.engine.rules import standard_error
from regard.lab.claims.engine.words import MARKS, VERDICTS, WORDS, effort, reasons
from regard.report.curves import STYLE
from regard.training.report import PAGE, replace

NAME = "claim.html"
HERE = files("regard.lab.claims.engine")


def write_page(claim: Claim, facts: dict[str, Any], place: Path) -> Path:
    """Writes claim.html into the directory of the claim."""
    return replace(place / NAME, page(claim, facts))


def page(claim: Claim, facts: dict[str, Any]) -> str:
    pictures = [drawn(claim, facts, chart) for chart in claim.charts]
    figures = "".join(f'<div class="wide">{picture}</div>' for picture in pictures if picture)
    parts = [
        bar('<a href="../gallery.html">← ' + both(WORDS["all"]) + "</a>"),
        f"<h1>{both(claim.statement)}</h1>",
        f'<p class="soft">{escape(claim.source)}</p>',
        f'<p>{badge(facts["verdict"])} <span class="soft">{both(effort(facts))}</span></p>',
        "".join(soft(word) for word in cautions(claim, facts)),
        section("because", listed(reasons(facts["because"], claim.axis is not None))),
        section("figures", f'<div class="curves">{figures}</div>{soft("band")}' if figures else ""),
        section("setting", f"<p>{both(claim.setting)}</p>"),
        section("rule", listed(rule_of(claim, facts)) + soft("noise")),
        section("printed", printed(facts["printed"])),
        section("notes", listed(claim.notes)),
        section("means", means(claim, facts)),
        f"<details><summary>{both(WORDS['cells'])}</summary>{cells(claim, facts)}</details>",
        section("repeat", f"<pre>{escape(command(facts))}</pre>"),
        data(facts),
    ]
    return whole(claim.statement.en, parts)


def rule_of(claim: Claim, facts: dict[str, Any]) -> list[Said]:
    """The rule by which it was judged, even if the claim's is another one by now."""
    given = str(facts["rule"])
    return claim.rule.parts() if given == claim.rule.words else [Said(given, given)]


def cautions(claim: Claim, facts: dict[str, Any]) -> list[str]:
    """Why a verdict may be none; what is only computed has no effort, and often no noise."""
    if isinstance(claim.experiment, Computed):
        return []
    given = {"first look": facts["effort"] < 1, "one seed": facts["seeds"] == 1}
    return [word for word, holds in given.items() if holds]


def whole(title: str, parts: Iterable[str], *styles: str) -> str:
    """A page in both languages; `styles` are files that add to how it looks."""
    looks = [(HERE / name).read_text(encoding="utf-8") for name in ("claim.css", *styles)]
    switch = (HERE / "language.js").read_text(encoding="utf-8")
    body = "\n".join([*(part for part in parts if part), f"<script>\n{switch}</script>"])
    return PAGE.format(title=escape(title), style=STYLE + "\n" + "\n".join(looks), body=body)


def bar(left: str) -> str:
    """What stands on top of every page: where to go, and the other language."""
    return f'<nav>{left}<button id="language" type="button" lang="zh">中文</button></nav>'


def both(said: Said) -> str:
    en, zh = escape(said.en), escape(said.zh)
    return f'<span class="en" lang="en">{en}</span><span class="zh" lang="zh">{zh}</span>'


def section(word: str, body: str) -> str:
    return f"<section><h2>{both(WORDS[word])}</h2>{body}</section>" if body else ""


def soft(word: str) -> str:
    return f'<p class="soft">{both(WORDS[word])}</p>'


def badge(verdict: str) -> str:
    kind, mark = MARKS[verdict]
    return f'<strong class="badge {kind}">{mark} {both(VERDICTS[verdict])}</strong>'


def listed(items: Iterable[Said]) -> str:
    rows = "".join(f"<li>{both(item)}</li>" for item in items)
    return f"<ul>{rows}</ul>" if rows else ""


def printed(given: dict[str, str]) -> str:
    rows = [[escape(arm), escape(text)] for arm, text in given.items()]
    return table([both(WORDS["arm"]), both(WORDS["value"])], rows) if rows else ""


def means(claim: Claim, facts: dict[str, Any]) -> str:
    """A row for each arm and place: the mean and its standard error."""
    names = figure_names(facts)
    held: dict[tuple[str, float], list[dict[str, float]]] = {}
    for cell in facts["cells"]:
        held.setdefault((cell["arm"], cell["at"]), []).append(cell["figures"])
    rows = [
        [
            *where(claim, arm, at),
            *(mean([row[name] for row in found if name in row]) for name in names),
        ]
        for (arm, at), found in sorted(held.items(), key=lambda item: order(claim, *item[0]))
    ]
    return table([*head(claim), *map(escape, names)], rows)


def cells(claim: Claim, facts: dict[str, Any]) -> str:
    names = figure_names(facts)
    rows = [
        [*where(claim, cell["arm"], cell["at"]), str(cell["seed"]),
         *(number(cell["figures"].get(name)) for name in names)]
        for cell in sorted(facts["cells"], key=lambda c: order(claim, c["arm"], c["at"]))
    ]  # fmt: skip
    return table([*head(claim), both(WORDS["seed"]), *map(escape, names)], rows)


def figure_names(facts: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for cell in facts["cells"] for name in cell["figures"]))


def head(claim: Claim) -> list[str]:
    return [both(WORDS["arm"]), *([both(claim.axis.name)] if claim.axis else [])]


def where(claim: Claim, arm: str, at: float) -> list[str]:
    return [escape(arm), *([f"{at:g}"] if claim.axis else [])]


def order(claim: Claim, arm: str, at: float) -> tuple[int, float]:
    return (claim.arms.index(arm) if arm in claim.arms else len(claim.arms), at)


def mean(values: list[float]) -> str:
    if not values:
        return "–"
    error = standard_error(values)
    return number(statistics.fmean(values)) + (f" ± {error:.2g}" if error else "")


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


def table(names: list[str], rows: Iterable[list[str]]) -> str:
    top = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join("<tr>" + "".join(f"<td>{x}</td>" for x in row) + "</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def command(facts: dict[str, Any]) -> str:
    share = "" if facts["effort"] == 1 else f" --effort {facts['effort']:g}"
    return f"regard claims run {facts['name']} --seeds {facts['seeds']}{share}"


def data(facts: dict[str, Any]) -> str:
    """What was written down, for programs; never executed."""
    text = json.dumps(facts, ensure_ascii=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="data">{text}</script>'
