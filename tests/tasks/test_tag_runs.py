"""Runs that learn to tag: learned, saved, opened, gone on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from transformers import AutoModelForTokenClassification, AutoTokenizer

from regard.api import load
from regard.core.errors import InputError
from regard.data.examples import TaggedExample
from regard.evaluation.predict import Predictor
from regard.evaluation.test import examine
from regard.formats.directory import save
from regard.methods.finetune.run import finetune
from regard.models.bert import Bert, BertConfig
from regard.training.recipe import Recipe
from tests.command import run as called
from tests.tasks import tuning
from tests.tasks.tagging import KINDS, SIZE, conll, pieces, sentences, tagged, whole


@pytest.fixture
def start(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = BertConfig(**SIZE | {"width": 32, "ffn_size": 64, "context": 32})
    return save(Bert(config).initialize(), tmp_path / "start", pieces())


def recipe(start: Path, data: Path, **changes: Any) -> Recipe:
    base: dict[str, Any] = {
        "examples": {"task": "tag"},
        "batch": {"size": 16, "seq_len": 32},
        "budget": {"steps": 60},
        "optimizer": {"lr": 0.005},
    }
    return tuning.recipe(start, data, **(base | changes))


@pytest.mark.parametrize("crf", [False, True])
def test_learning(crf: bool, start: Path, tmp_path: Path) -> None:
    """Every entity of the validation is found; the directory answers as the run did."""
    data = conll(tmp_path / "train.conll", sentences(200))
    made = recipe(start, data, objective={"crf": crf})
    facts = finetune(made, tmp_path / "run", display="silent")
    assert facts["valid"]["f1"] == 1.0
    assert (tmp_path / "run" / "crf.safetensors").is_file() == crf
    task = json.loads((tmp_path / "run" / "task.json").read_text())
    assert task["labels"] == KINDS and task["objective"]["crf"] is crf
    ask = Predictor(load(tmp_path / "run"))
    new = sentences(20, seed=1)
    said = ask([TaggedExample(e.words) for e in new])
    assert [tuple(one.value) for one in said] == [e.tags for e in new]
    assert all(0.5 < one.score <= 1 for one in said if one.score is not None)
    # the rest of it is transformers'
    theirs, report = AutoModelForTokenClassification.from_pretrained(
        tmp_path / "run", output_loading_info=True
    )
    assert not any(report.values())
    assert type(theirs) is hf.BertForTokenClassification
    assert theirs.config.id2label == dict(enumerate(KINDS))
    cut = AutoTokenizer.from_pretrained(tmp_path / "run")
    given_ = cut([list(e.words) for e in new], is_split_into_words=True, padding=True,
                 return_tensors="pt")  # fmt: skip
    with torch.no_grad():
        scores = theirs.eval()(**given_).logits
    mine = ask.encode(new)
    with torch.no_grad():
        batch = whole(mine)
        own = mine.scores(ask.model, batch)  # type: ignore[attr-defined]
    torch.testing.assert_close(
        scores[batch["attention_mask"]], own[batch["attention_mask"]], rtol=1e-4, atol=1e-4
    )


SPEECH = {"the": "DT", "a": "DT", "of": "IN", "in": "IN", "is": "VB", "likes": "VB", "and": "CC"}


@pytest.mark.parametrize("crf", [False, True])
def test_parts_of_speech(crf: bool, start: Path, tmp_path: Path) -> None:
    """Tags of no entities are learned, asked, and tested by words."""
    spoken = [
        [TaggedExample(e.words, tuple(SPEECH.get(word, "NN") for word in e.words)) for e in each]
        for each in (sentences(200), sentences(20, seed=1))
    ]
    data, other = (
        conll(tmp_path / f"{name}.conll", each)
        for name, each in zip(("train", "test"), spoken, strict=True)
    )
    made = recipe(start, data, objective={"crf": crf}, budget={"steps": 90})
    facts = finetune(made, tmp_path / "run", display="silent")
    assert next(iter(facts["valid"])) == "accuracy" and facts["valid"]["accuracy"] > 0.95
    assert facts["data"]["labels"] == ["CC", "DT", "IN", "NN", "VB"]
    said = load(tmp_path / "run").tag(["anna likes rome", "the new york"])
    assert [one.tags for one in said] == [["NN", "VB", "NN"], ["DT", "NN", "NN"]]
    assert all(one.entities == [] for one in said)
    found = examine(str(tmp_path / "run"), [str(other)])
    said = Predictor(load(tmp_path / "run"))(spoken[1])
    right = [a == b for e, one in zip(spoken[1], said, strict=True)
             for a, b in zip(e.tags or (), one.value, strict=True)]  # fmt: skip
    assert found["figures"] == {"accuracy": pytest.approx(sum(right) / len(right))}
    assert sum(right) / len(right) > 0.95
    assert found["task"] == "tag" and found["notes"] == []
    strange = conll(tmp_path / "strange.conll", [tagged("anna likes rome", "NN VB ??")])
    found = examine(str(tmp_path / "run"), [str(strange)])
    assert found["figures"]["accuracy"] == pytest.approx(2 / 3)
    assert found["notes"] == ["1 words have tags that the model never learned ('??' 1); they count "
                              "as wrong"]  # fmt: skip


def test_parts_of_speech_for_a_tagger_of_entities(start: Path, tmp_path: Path) -> None:
    data = conll(tmp_path / "train.conll", sentences(20))
    finetune(recipe(start, data, budget={"steps": 1}), tmp_path / "run", display="silent")
    other = conll(tmp_path / "test.conll", [tagged("anna", "B-PER"), tagged("a x", "DT NN")])
    with pytest.raises(InputError, match=r"test.conll:3: word 1 \('a'\) has the tag 'DT' among"):
        examine(str(tmp_path / "run"), [str(other)])


def test_resumed_with_a_chain(start: Path, tmp_path: Path) -> None:
    """Stopped after step 4 and gone on, to the bit the run that never stopped; the directory's
    chain is the run's.
    """
    data = conll(tmp_path / "train.conll", sentences(60))
    made = recipe(start, data, objective={"crf": True}, budget={"steps": 8},
                  checkpoint={"every": 2, "keep": 9}, validation={"every": 100})  # fmt: skip
    finetune(made, tmp_path / "run", display="silent")
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    for late in sorted((tmp_path / "again" / "checkpoints").iterdir())[2:]:
        shutil.rmtree(late)
    for name in ("model.safetensors", "crf.safetensors"):
        (tmp_path / "again" / name).unlink()
    finetune(Recipe(), tmp_path / "again", resume=True, display="silent")
    for name in ("model.safetensors", "crf.safetensors"):
        files = [(tmp_path / run / name).read_bytes() for run in ("run", "again")]
        assert files[0] == files[1]
    ask = Predictor(load(tmp_path / "run"))
    ask(sentences(1))
    moved = [float(weight.detach().abs().max()) for weight in ask.model.crf.parameters()]
    assert min(moved) > 0.1  # all of them have learned: a hundred times the rate


def test_the_command(start: Path, tmp_path: Path) -> None:
    data = conll(tmp_path / "train.conll", sentences(40))
    valid = conll(tmp_path / "valid.conll", [*sentences(5, 1), tagged("x", "B-thing")])
    said = called(
        "finetune", str(start), "--task", "tag", "--data", str(data), "--valid", str(valid),
         "--out", str(tmp_path / "run"), "budget.steps=3", "objective.crf=true",
         "engine.precision=fp32", "--json",
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    facts = json.loads(said.stdout[said.stdout.index("{") :])
    assert set(facts["valid"]) == {"f1", "precision", "recall", "loss"}
    assert facts["data"]["labels"] == KINDS
