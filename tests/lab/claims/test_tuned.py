"""Fine-tuned claims: made data has the answer that it says, cells run, rules of differences."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.core.errors import UnknownName
from regard.lab.claims import claim
from regard.lab.claims.engine import labeled_texts
from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import Workspace
from regard.lab.claims.engine.finetuning import FinetunedExperiment, PretrainedStart, filled
from regard.lab.claims.engine.rulings import UNDECIDED
from regard.lab.claims.engine.run import run
from regard.objectives import masked
from tests.refusals import refuses
from tests.tasks.tuning import stop

__all__ = ["stop"]  # a fixture

QUICK = ("freezing", "both-orders")
REST = ("adversarial", "augmentation", "distillation", "knowledge", "layer-wise-rates",
        "long-documents", "masking-80-10-10", "next-sentence", "pretraining", "probing",
        "quantization")  # fmt: skip
ALL = bool(os.environ.get("REGARD_ALL"))
TINY = 0.01  # of the usual steps


def records(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


# -- made data


def test_words_are_all_different() -> None:
    every = [word for word, _ in labeled_texts.EVERY] + labeled_texts.PLAIN
    assert len(set(every)) == len(every)
    others = [w for kind in (*labeled_texts.OF_SUBJECT, *labeled_texts.OF_STAGE) for w in kind]
    assert len({*every, *others}) == len(every) + len(others)


def test_most_words_of_a_sentence_are_of_its_mood(tmp_path: Path) -> None:
    rows = records(labeled_texts.moods(tmp_path, 1, 300)["train"])
    kinds = dict(labeled_texts.EVERY)
    right = [
        Counter(kinds[word].split("-")[0] for word in str(row["text"]).split()).most_common(1)[0][0]
        == row["label"]
        for row in rows
    ]
    assert 0.85 < sum(right) / len(right) < 1.0  # it can be learned, and not without errors
    assert Counter(row["label"] for row in rows) == {"glad": 150, "sad": 150}


def test_a_seed_decides_and_tests_are_others(tmp_path: Path) -> None:
    parts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        parts.append(labeled_texts.moods(tmp_path / name, seed, 50))
    a, b, c = (files["train"].read_text() for files in parts)
    assert a == b != c
    train, test = (
        {str(row["text"]) for row in records(parts[0][part])} for part in ("train", "test")
    )
    assert not train & test


def test_pairs_are_of_the_mood_that_they_say(tmp_path: Path) -> None:
    rows = records(labeled_texts.same_moods(tmp_path, 1, 400)["train"])
    kinds = dict(labeled_texts.EVERY)

    def mood(text: object) -> str:
        return Counter(kinds[w].split("-")[0] for w in str(text).split()).most_common(1)[0][0]

    right = [(mood(r["sentence1"]) == mood(r["sentence2"])) == (r["label"] == "same") for r in rows]
    assert sum(right) / len(right) > 0.75


def test_a_long_text_has_four_telling_words(tmp_path: Path) -> None:
    kinds = dict(labeled_texts.EVERY)
    for row in records(labeled_texts.long_moods(100)(tmp_path, 1, 20)["train"]):
        telling = [kinds[word] for word in str(row["text"]).split() if word in kinds]
        assert len(str(row["text"]).split()) == 100
        assert telling == [f"{row['label']}-0"] * 4


def test_the_graph_answers_what_the_text_does_not(tmp_path: Path) -> None:
    from regard.data.knowledge.graph import Graph

    files = labeled_texts.facts(tmp_path, 1, 200)
    colors = {a: c for a, b, c in Graph.read(files["graph"]) if b == "color"}
    names: dict[str, set[str]] = {}
    for part in ("train", "test"):
        rows = records(files[part])
        names[part] = {w for row in rows for w in str(row["premise"]).split() if w in colors}
        for row in rows:
            (name,) = [word for word in str(row["hypothesis"]).split() if word in colors]
            assert row["label"] == colors[name] and str(row["label"]) in str(row["hypothesis"])
    assert not names["train"] & names["test"]


def test_stories_are_cut_into_their_sentences(tmp_path: Path) -> None:
    from regard.data.corpus import Corpus

    corpus = Corpus.open(labeled_texts.story_text(tmp_path), "valid")
    assert len(corpus.sentences) - 1 == 6 * (len(corpus.documents) - 1)


def test_who_always_says_the_same_is_right_half_of_the_time(tmp_path: Path) -> None:
    import regard
    from regard.data.corpus import Corpus
    from regard.lab.claims.library.next_sentence import LENGTH, both
    from regard.models.bert import Bert, BertConfig

    data = labeled_texts.story_text(tmp_path)
    shape = {"layers": 1, "width": 8, "heads": 1, "ffn_size": 8, "context": LENGTH}
    words = Corpus.open(data, "valid").vocab_size
    model = Bert(BertConfig(vocab_size=words, **shape), Bert.PRETRAINING).initialize()
    model.heads["next"].out.weight.data.zero_()
    model.heads["next"].out.bias.data.copy_(torch.tensor([0.0, 1.0]))
    regard.save(model, tmp_path / "run")
    (tmp_path / "run" / "recipe.toml").write_text(f'data = "{data}"\n')
    assert both(tmp_path / "run", ClaimCell("", 0.0, 1)) == {"next": 0.5, "order": 0.5}


# -- experiments


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("claims"), TINY)


@pytest.mark.parametrize("name", [*QUICK, *(REST if ALL else ())])
def test_a_cell_of_every_arm(name: str, room: Workspace) -> None:
    study = claim(name)
    at = study.axis.places[0] if study.axis else 0.0
    for arm in study.arms:
        figures = study.experiment.figures(ClaimCell(arm, at, 1), room)
        assert {chart.figure for chart in study.charts} <= figures.keys()
        assert all(value == value for value in figures.values())
    left = {file.name for file in room.place.iterdir()}
    assert not [name for name in left if name.startswith(("claim-", "made-", "start-"))]


def test_a_start_is_trained_once(room: Workspace) -> None:
    experiment = claim("freezing").experiment
    assert isinstance(experiment, FinetunedExperiment)
    one = experiment.start.trained(1, room)
    before = (one / "model.safetensors").stat().st_mtime_ns
    assert experiment.start.trained(1, room) == one
    assert (one / "model.safetensors").stat().st_mtime_ns == before
    assert experiment.start.trained(1, Workspace(room.place, 2 * TINY)) != one
    fresh = experiment.start.fresh(1, room)
    assert (fresh / "model.safetensors").read_bytes() != (one / "model.safetensors").read_bytes()
    assert replace(experiment.start, steps=7).place(room, "1") != experiment.start.place(room, "1")


def test_a_cell_is_a_function_of_its_seed(room: Workspace) -> None:
    experiment = claim("freezing").experiment
    first, again, other = (
        experiment.figures(ClaimCell("all layers", 0.0, seed), room)["loss"] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_another_split_of_masks_is_put_back() -> None:
    from regard.lab.claims.library.masking_80_10_10 import split

    before = masked.HIDE, masked.KEEP
    with pytest.raises(ValueError), split(1.0, 0.0):
        assert (masked.HIDE, masked.KEEP) == (1.0, 0.0)
        raise ValueError
    assert before == (masked.HIDE, masked.KEEP)


def test_files_are_named_in_arms() -> None:
    table = {"a": {"b": "{graph}", "c": 1}, "d": "plain", "e": ["x"]}
    figures = filled(table, {"graph": Path("facts.tsv")})
    assert figures == {"a": {"b": "facts.tsv", "c": 1}, "d": "plain", "e": ["x"]}


@pytest.mark.skipif(not ALL, reason="REGARD_ALL=1")
def test_a_whole_claim(tmp_path: Path) -> None:
    facts = run(claim("pretraining"), tmp_path, effort=TINY, seeds=1)
    assert facts["verdict"] == UNDECIDED and facts["cause"] == "fewer seeds"


def test_what_was_stopped_is_no_result(stop: list[int], tmp_path: Path) -> None:
    experiment = claim("freezing").experiment
    assert isinstance(experiment, FinetunedExperiment)
    room = Workspace(tmp_path, TINY)
    stop.append(2)
    with pytest.raises(KeyboardInterrupt):
        experiment.start.trained(1, room)
    assert not [path for path in (tmp_path / "starts").iterdir() if path.suffix != ".lock"]


def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    broken = PretrainedStart("broken", labeled_texts.mood_text, {"model": "no-such-model"})
    with refuses(UnknownName, "'no-such-model'"):
        broken.trained(1, Workspace(tmp_path, TINY))
    assert not [path for path in (tmp_path / "starts").iterdir() if path.suffix != ".lock"]
