"""Every sentence that a page shows exists in both languages: those of the page, and the notes that
programs write in English."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.core.text import Bilingual
from regard.data.problems import KINDS, FileLine, Problems
from regard.evaluation.prompting import notes_on
from regard.evaluation.test import void_note
from regard.evaluation.text_predictor import TextPredictor
from regard.methods.probe.heads import DIRECTIONS
from regard.methods.probe.reader import StateReader
from regard.methods.probe.tasks import SAME
from regard.report.pages import translated
from regard.tasks import TASKS, task
from regard.tasks.answer_objective import AnswerObjective
from regard.tasks.labeled import LabeledObjective
from regard.tasks.tag_objective import Tag
from tests.browser.made import PAGES
from tests.html import HOSTILE

HAN = re.compile(r"[\u4e00-\u9fff]")


def from_reading() -> list[str]:
    problems = Problems()
    for kind in KINDS:
        for severity in ("error", "warning"):
            problems.add(FileLine("a.jsonl", 3), kind, "the text is empty", severity)
    return [*problems.notes(), *problems.notes("train")]


def from_tasks() -> list[str]:
    notes = []
    for name in TASKS:
        for labels in ([], ["good", "bad"], ["B-PER", "O"]):
            predictor: Any = SimpleNamespace(task=name, labels=labels)
            own = task(name)
            if own.void_words(labels):
                notes += [void_note(predictor, 1200), f"runs/a: {void_note(predictor, 3)}"]
            if labels:
                notes.append(own.unseen_note({"new": 1000, "other": 2}, 1002, labels))
                notes.append(own.unseen_note({"new": 3}, 10, labels))
    return notes


def from_long_texts() -> list[str]:
    counts = Counter(cut=1500, examples=2000, long=7, windows=30)
    own: Any = SimpleNamespace(seq_len=512, layout=SimpleNamespace(question=64))
    notes = [*LabeledObjective.cut_notes(own, counts), *Tag.cut_notes(own, counts)]
    notes += AnswerObjective.cut_notes(own, counts)
    for turns in (False, True):
        writer: Any = SimpleNamespace(cut=5, room=1024, kind=SimpleNamespace(in_turns=turns))
        notes += TextPredictor.notes.fget(writer)  # type: ignore[attr-defined]
    asker: Any = SimpleNamespace(dropped=8, short=3, cut=2, scorer=SimpleNamespace(limit=1024))
    reader: Any = SimpleNamespace(long=3, cut=4, length=512)
    notes += StateReader.notes.fget(reader)  # type: ignore[attr-defined]
    return [*notes, *notes_on(asker, 40)]


OTHERS = [
    SAME,
    "runs/gpt has learned no task: this is how well it predicts the text",
    "only the first 1,000 of 2,500 documents were tested",
    "only the first 10 of 2,500 examples were tested",
    "12 examples were left out: they have no gold answer",
    "1 seed says little about random variation; use 3 or more",
    "2 seeds say little about random variation; use 3 or more",
    "3 of 12 probes were still getting better at the last of 20 epochs; raise --epochs",
]


@pytest.mark.parametrize("notes", [from_reading, from_tasks, from_long_texts, lambda: OTHERS])
def test_a_note_is_shown_in_both_languages(notes: Any) -> None:
    written = notes()
    assert len(written) >= 5
    for note in written:
        both = translated(note)
        assert isinstance(both, Bilingual), note
        assert both.en == note and HAN.search(both.zh)
        own = re.sub(r"\([^()]*\)|（[^（）]*）|第一处是 .*|runs/\S+|--[\w-]+", "", both.zh)
        left = re.findall(r"[A-Za-z]{3,} [A-Za-z]{2,}", own)
        assert left == [], (note, both.zh)


def test_other_texts_stay_as_they_are() -> None:
    assert translated(HOSTILE) == HOSTILE and translated("a note of a user") == "a note of a user"
    assert [translated(way, "probe") for way in DIRECTIONS] == [
        ("dependent to head", "从属词 → 中心词"), ("head to dependent", "中心词 → 从属词")
    ]  # fmt: skip


# Texts of users, models and programs are the same in both languages, and so are names and code.
THEIRS = re.compile(
    r"<(script|style|pre|code|data|q|mark|svg|title|noscript|button)\b.*?</\1>"
    r'|<p class="written".*?</p>'
    r'|<span class="(?:en|zh)".*?</span>|<dd\b.*?</dd>|<a\b.*?</a>|<td\b.*?</td>'
    r'|<th scope="row">.*?</th>|<article\b.*?</article>|<p class="soft">[^<]*\d{4}[^<]*',
    re.S,
)
SENTENCE = re.compile(r"[A-Za-z]{2,}(?: [a-z]+){2,}")  # three words and more


@pytest.mark.parametrize("kind", [kind for kind in PAGES if kind != "look"])
def test_a_page_shows_no_sentence_in_english_alone(kind: str, tmp_path: Path) -> None:
    html = PAGES[kind](tmp_path, False).read_text("utf-8").partition("<body")[2]
    texts = re.split(r"<[^>]*>", THEIRS.sub(" ", html))
    english = [text.strip() for text in texts if SENTENCE.search(text.strip())]
    assert [text for text in english if "et al." not in text] == []


def test_the_test_would_see_one() -> None:
    html = '<p>Only a sentence in English.</p><span class="en" lang="en">It has two.</span>'
    texts = re.split(r"<[^>]*>", THEIRS.sub(" ", html))
    assert [text for text in texts if SENTENCE.search(text.strip())]
