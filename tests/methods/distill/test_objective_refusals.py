"""Distillation: layers that are mapped, students and teachers that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import ConfigError, RegardError
from regard.formats.directory import save
from regard.methods.distill.objective import Distill
from regard.methods.distill.teacher import mapped
from regard.models.extensions import extend
from tests.methods.distill.teaching import TASKS, first_batch, labeled, teach, values
from tests.methods.distill.teaching import corpora as corpora  # a fixture
from tests.objectives.rules import make, tiny
from tests.tasks.judging import TOKENIZER, examples, model_of, tokenizer


def test_mappings() -> None:
    assert mapped("uniform", 4, 12) == [3, 6, 9, 12]  # as the paper has it
    assert mapped("uniform", 5, 12) == [2, 4, 7, 9, 12]
    assert mapped("top", 4, 12) == [9, 10, 11, 12]
    assert mapped([1, 12], 2, 12) == [1, 12]
    for wrong in ([0, 1], [1, 13], [1], ["a", "b"], "bottom"):
        with pytest.raises(ConfigError, match=r"objective\.mapping"):
            mapped(wrong, 2, 12)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("student", "options", "said"),
    [
        ({"width": 32}, {}, "no wider"),
        ({"layers": 3}, {}, "no deeper"),
        ({"vocab_size": 41}, {}, "same vocabulary"),
        ({"heads": 4}, {"attention": 1.0}, "head by head"),
        ({"width": 8}, {"cosine": 1.0}, "angle"),
        ({}, {"hidden": 1.0, "mapping": [1, 3]}, "layer 3"),
        ({}, {"hidden": 1.0, "mapping": [1]}, "2 layers"),
    ],
)
def test_students_that_do_not_fit(
    corpora: dict[str, Any],
    tmp_path: Path,
    student: dict[str, Any],
    options: dict[str, Any],
    said: str,
) -> None:
    objective = teach(corpora, tiny("bert"), tmp_path / "teacher", "masked", **options)
    with pytest.raises(ConfigError, match=said):
        objective.check(objective.adapt_model(tiny("bert", **student)))


@pytest.mark.parametrize("who", ["student", "teacher"])
def test_heads_that_were_pruned_are_not_compared(
    corpora: dict[str, Any], tmp_path: Path, who: str
) -> None:
    """The configuration still has them. States are compared all the same, and units may go."""
    both = {"student": tiny("bert"), "teacher": tiny("bert")}
    extend(both[who], "pruned", {"heads": {"blocks.0.attention.layer": [1]}})
    given = corpora, both["teacher"], tmp_path / "teacher", "masked"
    objective = teach(*given, attention=1.0)
    with pytest.raises(ConfigError, match=f"the {who} .*head by head; set attention = 0"):
        objective.check(objective.adapt_model(both["student"]))
    states = teach(*given, hidden=1.0)
    states.check(states.adapt_model(both["student"]))
    assert values(states.loss(both["student"], first_batch(states)))["hidden"] > 0
    narrow = tiny("bert")
    extend(narrow, "pruned", {"hidden": {"blocks.0.feed_forward.layer": 16}})
    whole = teach(corpora, tiny("bert"), tmp_path / "whole", "masked", attention=1.0)
    whole.check(whole.adapt_model(narrow))


@pytest.mark.parametrize("who", ["student", "teacher", "both"])
def test_rows_that_point_have_no_angle(corpora: dict[str, Any], tmp_path: Path, who: str) -> None:
    """They hold the numbers of words, too, which would decide it."""
    both = {"student": tiny("gpt"), "teacher": tiny("gpt")}
    for model in both.values() if who == "both" else [both[who]]:
        extend(model, "pointer", {"window": 4})
    given = corpora, both["teacher"], tmp_path / "teacher", "causal"
    with pytest.raises(ConfigError, match=r"pointer .*set cosine = 0"):
        teach(*given, cosine=1.0).check(both["student"])
    rest = teach(*given, hidden=1.0)
    rest.check(both["student"])
    assert values(rest.loss(both["student"], first_batch(rest)))["soft_causal"] >= 0


def test_teachers_of_another_kind(corpora: dict[str, Any], tmp_path: Path) -> None:
    """They can teach answers, and nothing else."""
    student = tiny("lstm", width=8)
    objective = teach(corpora, tiny("gpt"), tmp_path / "teacher", "causal")
    objective.check(student)
    found = objective.loss(student, first_batch(objective))
    assert values(found)["soft_causal"] > 0
    close = make(
        Distill, corpora["text"], of="causal", teacher=str(tmp_path / "teacher"), hidden=1.0
    )
    with pytest.raises(ConfigError, match="two kinds"):
        close.check(close.adapt_model(student))
    lstm = teach(corpora, tiny("lstm"), tmp_path / "lstm", "causal", attention=1.0)
    with pytest.raises(ConfigError, match="no attention"):
        lstm.check(tiny("lstm"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"of": ""}, "objective.of is missing"),
        ({"of": "mixture"}, "objective to distill"),
        ({"teacher": ""}, "teacher is missing"),
        ({"style": "other"}, "style of distillation"),
        ({"temperature": 0.0}, "above 0"),
        ({"soft": 0.0}, "weight 0"),
        ({"only": "some"}, "objective.only"),
        ({"options": {"shares": 0.1}}, "option of 'masked'"),
        ({"of": "sentences"}, "no head 'next'"),
    ],
)
def test_options_that_make_no_sense(
    corpora: dict[str, Any], tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    teacher = type(tiny("bert"))(tiny("bert").config, {"masked": 0}).initialize()
    save(teacher, tmp_path / "teacher")
    given = {"of": "masked", "teacher": str(tmp_path / "teacher")} | options
    with pytest.raises(RegardError, match=said):
        make(Distill, corpora["text"], **given)


def test_tasks_that_do_not_fit(tmp_path: Path) -> None:
    objective, _ = labeled("classify", "bert", tmp_path / "teacher")
    corpus: Any = examples("classify", TASKS["classify"][1], ["no", "yes"])
    sizes: Any = {"length": 24, "batch": 8, "seed": 1}

    def made(where: str, held: Any = corpus, **more: Any) -> None:
        given = Distill.Options(of="classify", teacher=where, family="bert", **more)
        Distill(held, given, **sizes)

    made(str(tmp_path / "teacher"))
    save(model_of("bert", {"classify": 3}), tmp_path / "three", TOKENIZER)
    with pytest.raises(ConfigError, match="3 classes"):
        made(str(tmp_path / "three"))
    save(model_of("bert", {"tag": 3}), tmp_path / "tagger", TOKENIZER)
    with pytest.raises(ConfigError, match="no head 'classify'"):
        made(str(tmp_path / "tagger"))
    save(model_of("bert", {"classify": 2}), tmp_path / "other", tokenizer(("pad", "unk", "sep")))
    with pytest.raises(ConfigError, match="same tokens"):
        made(str(tmp_path / "other"))
    objective.save_extras(None, tmp_path / "teacher")
    turned: Any = examples("classify", TASKS["classify"][1], ["yes", "no"])
    with pytest.raises(ConfigError, match="classes 'no', 'yes'"):
        made(str(tmp_path / "teacher"), turned)
    with pytest.raises(ConfigError, match="targets alone"):
        made(str(tmp_path / "teacher"), only="all")
    tags: Any = examples("tag", TASKS["tag"][1], TASKS["tag"][2])
    chosen = Distill.Options(
        of="tag", options={"crf": True}, teacher=str(tmp_path / "tagger"), family="bert"
    )
    with pytest.raises(ConfigError, match="CRF"):
        Distill(tags, chosen, **sizes)


def test_every_family_has_its_stacks() -> None:
    assert {name: len(held) for name, held in tiny("t5").stacks().items()} == {
        "encoder": 2,
        "decoder": 2,
    }
    assert [len(held) for held in tiny("lstm").stacks().values()] == [2]
