"""Whole runs that judge texts: saved, opened, asked and gone on with, here and by others."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from regard.api import load
from regard.data.examples import LabeledExample
from regard.data.special_tokens import special_of
from regard.evaluation.predict import Predictor
from regard.formats.directory import save
from regard.methods.finetune.run import finetune
from regard.training.recipe import make
from tests.tasks import tuning
from tests.tasks.judging import (
    CLS,
    SEP,
    TOKENIZER,
    deciding,
    ids,
    model_of,
    tokenizer,
    write,
)

transformers.logging.set_verbosity_error()


def recipe(model: Path, data: Path, **changes: Any) -> Any:
    return tuning.recipe(model, data, **({"budget": {"steps": 30}} | changes))


def records(count: int, seed: int = 0) -> list[dict[str, Any]]:
    return [{"text": e.text, "label": e.label} for e in deciding(count, seed)]


def test_a_saved_run_answers_as_their_class_does(tmp_path: Path) -> None:
    save(model_of("bert", {"masked": 0}), tmp_path / "model", TOKENIZER)
    data = write(tmp_path / "data.jsonl", records(80))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the head that guesses words is left, which was asked for
        given = recipe(tmp_path / "model", data, budget={"steps": 60})
        finetune(given, tmp_path / "run", display="silent")
    loaded = load(tmp_path / "run")
    assert loaded.source["architectures"] == ["BertForSequenceClassification"]
    texts = deciding(20, 5)
    found = Predictor(loaded)(texts)
    kind = transformers.BertForSequenceClassification
    theirs = kind.from_pretrained(tmp_path / "run").eval()
    for example, answer in zip(texts, found, strict=True):
        tokens = torch.tensor([[CLS, *ids(example.text), SEP]])
        with torch.no_grad():
            logits = theirs(tokens).logits[0]
        assert answer.value == theirs.config.id2label[int(logits.argmax())]
        assert answer.score == pytest.approx(float(logits.softmax(0).max()), abs=1e-5)
    assert sum(a.value == e.label for a, e in zip(found, texts, strict=True)) >= 18


@pytest.mark.parametrize(("task", "norm"), [("classify", "pre"), ("similar", "post")])
def test_a_gpt_that_never_saw_marks(task: str, norm: str, tmp_path: Path) -> None:
    """A published tokenizer has no delimiter and no extract: both are added, rows are, and the run
    is asked and opened by others with them.
    """
    plain = tokenizer(("unk", "eos"))
    model = model_of("gpt", {}, vocab_size=len(plain), norm=norm, ffn_size=128)
    save(model, tmp_path / "model", plain)
    made = records(80)
    if task == "similar":
        made = [{"text": r["text"], "pair": "a", "label": float(r["label"] == "first")}
                for r in made]  # fmt: skip
    data = write(tmp_path / "data.jsonl", made)
    given = recipe(tmp_path / "model", data, examples={"task": task}, budget={"steps": 60})
    facts = finetune(given, tmp_path / "run", display="silent")
    assert facts["valid"]["accuracy" if task == "classify" else "pearson"] > 0.8
    loaded = load(tmp_path / "run")
    assert loaded.tokenizer is not None
    special = special_of(loaded.tokenizer, "run")
    assert [special.start, special.sep, special.cls] == [len(plain) + i for i in range(3)]
    assert loaded.config.vocab_size == len(loaded.tokenizer) == len(plain) + 3
    assert loaded.source["pad_token_id"] == special.end

    texts = [LabeledExample("c a d", "a" if task == "similar" else None)]
    answer = Predictor(loaded)(texts)[0]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "run")
    words = [their_tokenizer.convert_tokens_to_ids(w) for w in ("c", "a", "d")]
    start, sep, cls = (getattr(their_tokenizer, f"{n}_token_id") for n in ("bos", "sep", "cls"))
    with torch.no_grad():
        if task == "classify":
            logits = theirs.eval()(torch.tensor([[start, *words, cls]])).logits[0]
            assert answer.value == theirs.config.id2label[int(logits.argmax())] == "first"
        else:
            rows = [[start, *words, sep, words[1], cls], [start, words[1], sep, *words, cls]]
            both = theirs.eval()(torch.tensor(rows)).logits  # no bias: scores add up as vectors do
            assert answer.value == pytest.approx(float(both.sum()), abs=1e-5)


@torch.no_grad()
def test_a_gpt_of_others_is_read_as_they_do(tmp_path: Path) -> None:
    """No marks, no task.json: the text alone, and its last token."""
    plain = tokenizer(("unk", "eos"))
    model = model_of("gpt", {"classify": 3}, vocab_size=len(plain))
    save(model, tmp_path, plain)
    loaded = load(tmp_path)
    theirs = transformers.GPT2ForSequenceClassification.from_pretrained(tmp_path).eval()
    texts = [LabeledExample("c a d"), LabeledExample("a"), LabeledExample("c", "d e")]
    for example, answer in zip(texts, Predictor(loaded)(texts), strict=True):
        text = " ".join(filter(None, (example.text, example.pair)))
        logits = theirs(torch.tensor([plain.encode(text)])).logits[0]
        assert answer.value == theirs.config.id2label[int(logits.argmax())]


def test_a_run_with_new_tokens_goes_on(tmp_path: Path) -> None:
    """Stopped after a few steps and taken up again, to the bit as if it never had been."""
    plain = tokenizer(("unk", "eos"))
    save(model_of("gpt", {}, vocab_size=len(plain)), tmp_path / "model", plain)
    data = write(tmp_path / "data.jsonl", records(40))
    constant = {"schedule": {"name": "constant", "warmup": 1}, "validation": {"every": 100}}
    for name, steps in (("whole", 8), ("part", 5)):
        given = recipe(tmp_path / "model", data, budget={"steps": steps}, **constant)
        finetune(given, tmp_path / name, display="silent")
    finetune(make({"budget": {"steps": 8}}), tmp_path / "part", resume=True, display="silent")
    ends = [tmp_path / name / "checkpoints" for name in ("whole", "part")]
    weights = [sorted(end.glob("*8/weights.safetensors"))[-1].read_bytes() for end in ends]
    assert weights[0] == weights[1]
