"""All claims on one page: what was said, what came out, a small figure, and where to read on."""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from regard.core.files import read_json
from regard.lab.claims import claim as find
from regard.lab.claims import names
from regard.lab.claims.engine.chart import drawn
from regard.lab.claims.engine.claim import Claim
from regard.lab.claims.engine.page import NAME, badge, bar, both, section, whole
from regard.lab.claims.engine.run import FACTS
from regard.lab.claims.engine.words import MARKS, WORDS, effort
from regard.training.report import replace

GALLERY = "gallery.html"


def write_gallery(out: Path) -> Path:
    """Writes gallery.html over the claims that were run in `out`."""
    found = {name: read_json(out / name / FACTS) for name in names()}
    return replace(out / GALLERY, gallery(found))


def gallery(found: dict[str, dict[str, Any] | None]) -> str:
    """Of every claim what its run wrote down, None where there is none."""
    done = {name: facts for name, facts in found.items() if facts is not None}
    counts = Counter(facts["verdict"] for facts in done.values())
    shown = "".join(f"<span>{badge(v)} {counts[v]}</span>" for v in MARKS if counts[v])
    cards = "".join(card(find(name), facts) for name, facts in done.items())
    waiting = "".join(f"<li>{line(find(n))}</li>" for n, facts in found.items() if facts is None)
    parts = [
        bar("<span>regard</span>"),
        f"<h1>{both(WORDS['title'])}</h1>",
        f"<p>{both(WORDS['about'])}</p>",
        f'<div class="counts">{shown}</div>' if shown else "",
        f'<ul class="cards">{cards}</ul>' if cards else "",
        section("waiting", f"<ul>{waiting}</ul>" if waiting else ""),
    ]
    return whole(WORDS["title"].en, parts, "gallery.css")


def card(claim: Claim, facts: dict[str, Any]) -> str:
    figure = next((made for chart in claim.charts if (made := drawn(claim, facts, chart))), "")
    return (
        f'<li id="{escape(claim.name)}"><div>{badge(facts["verdict"])}</div>'
        f"<h2>{both(claim.statement)}</h2>"
        f'<p class="soft">{escape(claim.source)} · {both(effort(facts))}</p>'
        f'<p><a href="{escape(claim.name)}/{NAME}">{both(WORDS["more"])}</a></p>{figure}</li>'
    )


def line(claim: Claim) -> str:
    return f"<code>regard claims run {escape(claim.name)}</code> – {both(claim.statement)}"
