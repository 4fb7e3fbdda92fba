"""Distillation: layers that are mapped, students and teachers that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import ConfigError, RegardError, UnknownName
from regard.formats.directory import save
from regard.methods.distill.objective import Distill
from regard.methods.distill.teacher import mapped
from regard.models.extensions import extend
from tests.methods.distill.teaching import TASKS, first_batch, labeled, teach, values
from tests.methods.distill.teaching import corpora as corpora  # a fixture
from tests.objectives.rules import make, tiny
from tests.refusals import refuses
from tests.tasks.judging import TOKENIZER, examples, model_of, tokenizer


def test_mappings() -> None:
    assert mapped("uniform", 4, 12) == [3, 6, 9, 12]  # as the paper has it
    assert mapped("uniform", 5, 12) == [2, 4, 7, 9, 12]
    assert mapped("top", 4, 12) == [9, 10, 11, 12]
    assert mapped([1, 12], 2, 12) == [1, 12]
    for wrong in ([0, 1], [1, 13], [1], ["a", "b"], "bottom"):
        with refuses(ConfigError, "objective.mapping"):
            mapped(wrong, 2, 12)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("student", "options", "names"),
    [
        ({"width": 32}, {}, ["32 wide", "16"]),
        ({"layers": 3}, {}, ["3 layers", "2"]),
        ({"vocab_size": 41}, {}, ["41 tokens", "40"]),
        ({"heads": 4}, {"attention": 1.0}, ["heads = 4", "2", "attention = 0"]),
        ({"width": 8}, {"cosine": 1.0}, ["8 wide", "16", "cosine = 0"]),
        ({}, {"hidden": 1.0, "mapping": [1, 3]}, ["objective.mapping", "layer 3"]),
        ({}, {"hidden": 1.0, "mapping": [1]}, ["objective.mapping", "[1]", "2 layers"]),
    ],
)
def test_students_that_do_not_fit(
    corpora: dict[str, Any],
    tmp_path: Path,
    student: dict[str, Any],
    options: dict[str, Any],
    names: list[str],
) -> None:
    objective = teach(corpora, tiny("bert"), tmp_path / "teacher", "masked", **options)
    with refuses(ConfigError, *names):
        objective.check(objective.adapt_model(tiny("bert", **student)))


@pytest.mark.parametrize("who", ["student", "teacher"])
def test_heads_that_were_pruned_are_not_compared(
    corpora: dict[str, Any], tmp_path: Path, who: str
) -> None:
    """The configuration still has them. States are compared all the same, and units may go."""
    both = {"student": tiny("bert"), "teacher": tiny("bert")}
    extend(both[who], "pruned", {"heads": {"blocks.0.attention.layer": [1]}})
    lesson = corpora, both["teacher"], tmp_path / "teacher", "masked"
    objective = teach(*lesson, attention=1.0)
    with refuses(ConfigError, f"the {who}", "heads", "attention = 0"):
        objective.check(objective.adapt_model(both["student"]))
    states = teach(*lesson, hidden=1.0)
    states.check(states.adapt_model(both["student"]))
    assert values(states.loss(both["student"], first_batch(states)))["hidden"] > 0
    narrow = tiny("bert")
    extend(narrow, "pruned", {"ffn_units": {"blocks.0.feed_forward.layer": 16}})
    whole = teach(corpora, tiny("bert"), tmp_path / "whole", "masked", attention=1.0)
    whole.check(whole.adapt_model(narrow))


@pytest.mark.parametrize("who", ["student", "teacher", "both"])
def test_rows_that_point_have_no_angle(corpora: dict[str, Any], tmp_path: Path, who: str) -> None:
    """They hold the numbers of words, too, which would decide it."""
    both = {"student": tiny("gpt"), "teacher": tiny("gpt")}
    for model in both.values() if who == "both" else [both[who]]:
        extend(model, "pointer", {"window": 4})
    lesson = corpora, both["teacher"], tmp_path / "teacher", "causal"
    with refuses(ConfigError, "pointer", "cosine = 0"):
        teach(*lesson, cosine=1.0).check(both["student"])
    rest = teach(*lesson, hidden=1.0)
    rest.check(both["student"])
    assert values(rest.loss(both["student"], first_batch(rest)))["soft_causal"] >= 0


def test_teachers_of_another_kind(corpora: dict[str, Any], tmp_path: Path) -> None:
    """They can teach answers, and nothing else."""
    student = tiny("lstm", width=8)
    objective = teach(corpora, tiny("gpt"), tmp_path / "teacher", "causal")
    objective.check(student)
    loss = objective.loss(student, first_batch(objective))
    assert values(loss)["soft_causal"] > 0
    close = make(
        Distill, corpora["text"], of="causal", teacher=str(tmp_path / "teacher"), hidden=1.0
    )
    with refuses(ConfigError, "lstm", "gpt", "soft", "hidden"):
        close.check(close.adapt_model(student))
    lstm = teach(corpora, tiny("lstm"), tmp_path / "lstm", "causal", attention=1.0)
    with refuses(ConfigError, "LSTM", "attention = 0"):
        lstm.check(tiny("lstm"))


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"of": ""}, ConfigError, ["objective.of"]),
        ({"of": "mixture"}, UnknownName, ["objective", "'mixture'"]),
        ({"teacher": ""}, ConfigError, ["objective.teacher"]),
        ({"style": "other"}, UnknownName, ["style", "'other'"]),
        ({"temperature": 0.0}, ConfigError, ["objective.temperature is 0"]),
        ({"soft": 0.0}, ConfigError, ["weight 0", "soft"]),
        ({"only": "some"}, ConfigError, ["objective.only", "'some'"]),
        ({"options": {"shares": 0.1}}, UnknownName, ["'masked'", "objective.options.shares"]),
        ({"of": "sentences"}, ConfigError, ["'next'", "'masked'"]),
    ],
)
def test_options_that_make_no_sense(
    corpora: dict[str, Any],
    tmp_path: Path,
    options: dict[str, Any],
    error: type[RegardError],
    names: list[str],
) -> None:
    teacher = type(tiny("bert"))(tiny("bert").config, {"masked": 0}).initialize()
    save(teacher, tmp_path / "teacher")
    settings = {"of": "masked", "teacher": str(tmp_path / "teacher")} | options
    with refuses(error, *names):
        make(Distill, corpora["text"], **settings)


def test_tasks_that_do_not_fit(tmp_path: Path) -> None:
    objective, _ = labeled("classify", "bert", tmp_path / "teacher")
    corpus: Any = examples("classify", TASKS["classify"][1], ["no", "yes"])
    sizes: Any = {"seq_len": 24, "batch_size": 8, "seed": 1}

    def build(where: str, data: Any = corpus, of: str = "classify", **more: Any) -> None:
        teacher = str(tmp_path / where)
        Distill(data, Distill.Options(of=of, teacher=teacher, family="bert", **more), **sizes)

    build("teacher")
    save(model_of("bert", {"classify": 3}), tmp_path / "three", TOKENIZER)
    save(model_of("bert", {"tag": 3}), tmp_path / "tagger", TOKENIZER)
    save(model_of("bert", {"classify": 2}), tmp_path / "other", tokenizer(("pad", "unk", "sep")))
    objective.save_extras(None, tmp_path / "teacher")
    turned: Any = examples("classify", TASKS["classify"][1], ["yes", "no"])
    tags: Any = examples("tag", TASKS["tag"][1], TASKS["tag"][2])
    cases: list[tuple[dict[str, Any], list[object]]] = [
        ({"where": "three"}, [tmp_path / "three", "3 classes", "2"]),
        ({"where": "tagger"}, [tmp_path / "tagger", "head 'classify'", "'tag'"]),
        ({"where": "other"}, [tmp_path / "other", "tokenizer"]),
        ({"where": "teacher", "data": turned}, ["'no', 'yes'", "'yes', 'no'", "examples.labels"]),
        ({"where": "teacher", "only": "all"}, ['objective.only is "all"', "classify"]),
        (
            {"where": "tagger", "data": tags, "of": "tag", "options": {"crf": True}},
            ["CRF", "crf = false", "objective.options"],
        ),
    ]
    for options, names in cases:
        with refuses(ConfigError, *names):
            build(**options)


def test_every_family_has_its_stacks() -> None:
    assert {name: len(blocks) for name, blocks in tiny("t5").stacks().items()} == {
        "encoder": 2,
        "decoder": 2,
    }
    assert [len(blocks) for blocks in tiny("lstm").stacks().values()] == [2]
