"""scripts/gallery.py puts pages together, and loses none that were there."""

import json

import pytest

from regard.lab.claims.engine.page import NAME
from regard.lab.claims.engine.run import FACTS, FORMAT
from scripts import gallery as script
from tests.refusals import refuses


def write(file, text=""):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def work(tmp_path):
    """What a comparison and one claim leave behind."""
    place = tmp_path / "work"
    title = {"en": "Side by side", "zh": "并排"}
    report = {"title": title, "verdict": [title], "recipe": {"command": "regard compare"}}
    write(place / "compare" / "report.json", json.dumps(report))
    for name in script.REPORTS:
        write(place / "compare" / name, name)
    run = f"data: {place.resolve()}/compare/data"
    write(place / "compare" / "runs" / "gpt-1" / "report.html", run)
    write(place / "claims" / "gallery.html")
    facts = {"format": FORMAT, "verdict": "reproduced", "because": "a | b", "seeds": 5,
             "effort": 1.0, "cells": [], "cause": "", "plan": "", "changed": [],
             "parts": []}  # fmt: skip
    write(place / "claims" / "shift" / FACTS, json.dumps(facts))
    old = {"verdict": "not reproduced", "because": "old", "seeds": 2, "effort": 1.0}
    write(place / "claims" / "heads" / FACTS, json.dumps(old))  # of other tests
    write(place / "claims" / "shift" / NAME, "first")
    return place


def test_only_claims_that_there_are_get_more_effort():
    assert set(script.EFFORTS) <= set(script.names())


def test_pages_are_put_and_replaced(work, tmp_path):
    out = tmp_path / "docs" / "gallery"
    script.put(work, out)
    write(work / "claims" / "shift" / NAME, "second")
    write(out / "claims" / "gone" / NAME)
    script.put(work, out)
    assert (out / "claims" / "shift" / NAME).read_text() == "second"
    assert not (out / "claims" / "gone").exists()
    index = (out / "README.md").read_text(encoding="utf-8")
    assert (
        "1 reproduced" in index
        and "not reproduced" not in index
        and r"a \| b" in index
        and "并排" in index
    )
    assert [each.name for each in out.parent.iterdir()] == ["gallery"]
    run = out / "compare" / "runs" / "gpt-1" / "report.html"
    assert run.read_text() == "data: compare/data"  # no path of this machine


def test_a_gallery_that_cannot_be_made_leaves_the_old_one(work, tmp_path):
    out = tmp_path / "gallery"
    script.put(work, out)
    (work / "compare" / "report.html").unlink()
    with refuses(SystemExit, "report.html"):
        script.put(work, out)
    assert (out / "compare" / "report.html").read_text() == "report.html"
    assert {each.name for each in tmp_path.iterdir()} == {"work", "gallery"}


def test_what_is_no_gallery_is_not_replaced(work, tmp_path):
    write(tmp_path / "mine" / "letter.txt", "dear")
    with refuses(SystemExit, tmp_path / "mine"):
        script.put(work, tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
