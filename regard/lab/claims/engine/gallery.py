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
from regard.lab.claims.engine.page import NAME, SWITCH, badge, bar, both, section, whole
from regard.lab.claims.engine.run import FACTS
from regard.lab.claims.engine.words import MARKS, WORDS, effort
from regard.training.report import replace

GALLERY = "gallery.html"
CARDS = """<style>
  .counts { display: flex; flex-wrap: wrap; gap: .5rem 1rem; margin: 1rem 0 1.5rem }
  .cards { display: grid; gap: 1rem; padding: 0; list-style: none;
    grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)) }
  .cards > li { border: 1px solid var(--rule); border-radius: 8px; padding: .9rem 1rem;
    display: flex; flex-direction: column; gap: .5rem }
  .cards h2 { font-size: 1rem; margin: 0 } .cards p { margin: 0; font-size: .9rem }
  .cards svg { width: 100%; height: auto; margin-top: auto } .cards a { color: inherit }
  body { max-width: 1400px }
</style>"""


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
        CARDS,
        bar("<span>regard</span>"),
        f"<h1>{both(WORDS['title'])}</h1>",
        f"<p>{both(WORDS['about'])}</p>",
        f'<div class="counts">{shown}</div>' if shown else "",
        f'<ul class="cards">{cards}</ul>' if cards else "",
        section("waiting", f"<ul>{waiting}</ul>" if waiting else ""),
        SWITCH,
    ]
    return whole(WORDS["title"].en, [part for part in parts if part])


def card(claim: Claim, facts: dict[str, Any]) -> str:
    figure = next((made for chart in claim.charts if (made := drawn(claim, facts, chart))), "")
    return (
        f'<li id="{escape(claim.name)}"><div>{badge(facts["verdict"])}</div>'
        f"<h2>{both(claim.statement)}</h2>"
        f'<p class="soft">{escape(claim.source)} · {both(effort(facts))}</p>'
        f'<p><a href="{escape(claim.name)}/{NAME}">{both(WORDS["more"])}</a></p>{figure}</li>'
    )


def line(claim: Claim) -> str:
    return f"<code>regard claim {escape(claim.name)}</code> – {both(claim.statement)}"
