"""Cross-encoders: the loss, a run from a file to a page, and CrossEncoder with the same scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from regard.api import load
from regard.core.errors import InputError
from regard.evaluation.test import Plan, examine
from regard.methods.finetune.run import finetune
from regard.tasks import read, task
from regard.tasks.corpus import TaskCorpus
from regard.tasks.rerank import RankedExample, Rerank, RerankOptions
from tests.refusals import refuses
from tests.tasks import tuning

ROWS = [
    RankedExample("fine film", ("a great film", "dull plot", "the music"), (1.0, 0.0, 0.0)),
    RankedExample("cold actor", ("a poor actor of the film",), (1.0,)),
    RankedExample("warm", ("empty",), (0.25,)),
    RankedExample("moving", ("plot", "of"), (1.0, 0.0)),
    RankedExample("the", ("film",)),
]


def objective(rows: list[RankedExample]) -> Rerank:
    corpus = TaskCorpus("rerank", rows, tuning.tokenizer(), [], "train")
    options = RerankOptions(family="bert")
    return Rerank(corpus, options, seq_len=20, batch_size=4, seed=1)  # type: ignore[arg-type]


def test_the_loss(tmp_path: Path) -> None:
    """A softmax over several candidates, binary cross-entropy of one; the last has no label."""
    learned = objective(ROWS)
    model = load(tuning.bert(tmp_path), heads=learned.heads()).model.double().eval()
    tokenizer, total = tuning.tokenizer(), 0.0
    for row in ROWS[:4]:
        logits = []
        for text in row.candidates:
            first, second = (tokenizer.encode(t, special=False) for t in (row.query, text))
            ids = torch.tensor([[2, *first, 3, *second, 3]])
            segments = torch.tensor([[0] * (len(first) + 2) + [1] * (len(second) + 1)])
            logits.append(model.read("classify", model(ids, segments=segments))[0, 0])
        scores, gains = torch.stack(logits), torch.tensor(row.gains).double()
        if len(logits) > 1:
            total -= float(scores.log_softmax(0)[0].detach())
        else:
            total += float(F.binary_cross_entropy_with_logits(scores, gains).detach())
    batch = learned.collate([learned.sample(0, i) for i in range(5)])
    loss = learned.loss(model, batch)
    assert float(loss.sums["rerank"].detach()) == pytest.approx(total, rel=1e-6)
    assert loss.counts["rerank"] == 4
    answers = learned.merge(learned.predict(model, batch))
    assert [len(answer.value) for answer in answers] == [3, 1, 1, 2, 1]


def records(count: int, negatives: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for i, review in enumerate(tuning.reviews(count)):
        good, bad = tuning.GOOD[i % 4], tuning.BAD[i % 4]
        right, wrong = (good, bad) if review["label"] == "good" else (bad, good)
        if negatives:
            rows.append({"query": review["text"], "positive": right, "negatives": [wrong]})
        else:
            rows += [{"query": review["text"], "passage": text, "label": int(text == right)}
                     for text in (wrong, right)]  # fmt: skip
    return rows


def test_from_a_file_to_a_page(tmp_path: Path) -> None:
    base = tuning.bert(tmp_path / "bert", words=tuning.marking())
    file = tuning.write(tmp_path / "train.jsonl", records(30, negatives=True))
    recipe = tuning.recipe(base, file, examples={"task": "rerank"}, budget={"steps": 6})
    facts = finetune(recipe, tmp_path / "run", display="silent")
    assert list(facts["valid"]) == ["accuracy", "loss"]
    run = load(tmp_path / "run")
    assert run.source["architectures"] == ["BertForSequenceClassification"]
    answer = run.predict({"query": "fine film", "positive": "great", "negatives": ["dull", "of"]})
    for name, negatives in (("a", True), ("b", False)):
        test = tuning.write(tmp_path / f"{name}.jsonl", records(8, negatives))
        report = examine(str(tmp_path / "run"), [str(test)], Plan(resamples=20))
        assert report["main"] == "ndcg_at_10"
    assert "mrr at 10" in Path(report["out"], "report.html").read_text()
    st = pytest.importorskip("sentence_transformers")
    theirs = st.CrossEncoder(str(tmp_path / "run"), device="cpu", local_files_only=True)
    pairs = [("fine film", text) for text in ("great", "dull", "of")]
    assert theirs.predict(pairs).tolist() == pytest.approx(answer.value, abs=1e-6)


def test_records(tmp_path: Path) -> None:
    def example(**record: Any) -> Any:
        return read(str(tuning.write(tmp_path / "a.jsonl", [record])), "rerank")[0]

    assert example(query="a", positive="b", negatives=["c"]).gold == [1.0, 0.0]
    assert example(query="a", passage="b", label=0.5).gold == [0.5]
    assert example(query="a", passage="b").gold is None
    with refuses(InputError, "from 0 to 1"):
        example(query="a", passage="b", label=3)
    with refuses(InputError, "give one"):
        example(query="a", passage="b", negatives=["c"], label=1)
    with refuses(InputError, "at least one passage"):
        task("rerank").from_texts(["a"], ROWS[0].place)
