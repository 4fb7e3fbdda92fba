"""Embeddings that are learned: the losses, what a step is, and a run from a file to a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch.nn import functional as F

from regard.api import load
from regard.core.errors import ConfigError, InputError
from regard.core.seeding import keyed
from regard.evaluation.test import Plan, examine
from regard.formats.directory import save
from regard.formats.sentence import write_pipeline
from regard.methods.finetune.run import finetune
from regard.tasks import read, task
from regard.tasks.contrast import Contrast, ContrastOptions
from regard.tasks.corpus import TaskCorpus
from regard.tasks.embed import EmbedExample
from regard.tasks.row_groups import OVERHEAD, grouped
from regard.training.loop import Batches
from regard.training.recipe import make
from tests.refusals import refuses
from tests.tasks import judging, tuning
from tests.tasks.tuning import stop as stop

WORDS = [*tuning.GOOD, *tuning.BAD, *tuning.OTHERS]


def words(count: int, *key: int | str) -> str:
    return " ".join(keyed(7, *key).choice(WORDS, count))


def examples(count: int = 6, negatives: int = 0, scored: bool = False) -> list[EmbedExample]:
    """Lengths differ, and so do the numbers of negatives; the last two share their positive."""
    rows = []
    for i in range(count):
        extra = tuple(words(2 + i, "negative", i, n) for n in range(min(i, negatives)))
        same = min(i, count - 2)
        positive = words(3 + 2 * same, "positive", same)
        score = i / count if scored else None
        rows.append(EmbedExample(words(1 + i, "text", i), positive, extra, score))
    return rows


def objective(rows: list[EmbedExample], family: str = "bert", **options: Any) -> Contrast:
    corpus = TaskCorpus("embed", rows, tuning.tokenizer(), [], "train")
    settings = ContrastOptions(family=family, **options)
    return Contrast(corpus, settings, seq_len=20, batch_size=4, seed=1)  # type: ignore[arg-type]


def whole(learned: Contrast) -> Any:
    return learned.collate([learned.sample(0, i) for i in range(len(learned))])


def model_of(place: Path) -> Any:
    """Without dropout."""
    still = {"dropout": 0.0, "dropout_attention": 0.0, "dropout_head": 0.0}
    return load(tuning.bert(place, **still), heads={"pool": 0}).model.double()


@torch.no_grad()
def encoded(model: Any, rows: list[EmbedExample]) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """The vectors of texts and passages, each text alone: no padding, no groups."""
    tokenizer = tuning.tokenizer()

    def vector(text: str) -> torch.Tensor:
        ids = [2, *tokenizer.encode(text, special=False), 3]
        return F.normalize(model.eval()(torch.tensor([ids])).mean(1), dim=1)[0]

    passages = [row.positive or row.text for row in rows]
    passages += [text for row in rows for text in row.negatives]
    texts = torch.stack([vector(row.text) for row in rows])
    return texts, torch.stack([vector(text) for text in passages]), passages


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_contrastive_loss(symmetric: bool, tmp_path: Path) -> None:
    rows = examples(negatives=2)
    learned = objective(rows, symmetric=symmetric, temperature=0.1)
    model = model_of(tmp_path)
    loss = learned.loss(model.eval(), whole(learned))
    texts, passages, names = encoded(model, rows)
    count, total = len(rows), 0.0
    for i in range(count):
        seen = [j for j in range(len(names)) if j == i or names[j] != names[i]]
        own = F.log_softmax(texts[i] @ passages[seen].T / 0.1, 0)[seen.index(i)]
        back_seen = [j for j in range(count) if j == i or names[j] != names[i]]
        back = F.log_softmax(passages[i] @ texts[back_seen].T / 0.1, 0)[back_seen.index(i)]
        total -= float((own + back) / 2 if symmetric else own)
    assert names[count - 1] == names[count - 2]  # a copy of the right passage is no negative
    assert float(loss.sums["embed"].detach()) == pytest.approx(total, rel=1e-6)
    assert loss.counts == {"embed": count}


def test_the_loss_is_that_of_sentence_transformers(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    rows = examples(5)[:4]  # no passage twice
    model = model_of(tmp_path)
    texts, passages, _ = encoded(model, rows)
    for symmetric in (False, True):
        one_way = MultipleNegativesRankingLoss(torch.nn.Module())  # type: ignore[arg-type]
        theirs = one_way.compute_loss_from_embeddings([texts, passages], torch.zeros(0))
        if symmetric:
            back = one_way.compute_loss_from_embeddings([passages, texts], torch.zeros(0))
            theirs = (theirs + back) / 2
        learned = objective(rows, symmetric=symmetric)
        loss = learned.loss(model.eval(), whole(learned)).sums["embed"] / len(rows)
        assert float(loss.detach()) == pytest.approx(float(theirs), rel=1e-6)


def test_scored_pairs_and_widths(tmp_path: Path) -> None:
    rows = examples(scored=True)
    learned = objective(rows)
    model = model_of(tmp_path)
    texts, passages, _ = encoded(model, rows)
    gold = torch.tensor([row.score for row in rows]).double()
    cosines = (texts * passages[: len(rows)]).sum(1)
    loss = learned.loss(model.eval(), whole(learned)).sums["embed"]
    assert float(loss.detach()) == pytest.approx(float((cosines - gold).square().sum()), rel=1e-5)
    several = objective(rows, matryoshka=[8])
    short = (F.normalize(texts[:, :8], dim=1) * F.normalize(passages[:6, :8], dim=1)).sum(1)
    both = float(loss.detach()) + float((short - gold).square().sum())
    total = several.loss(model, whole(several)).sums["embed"]
    assert float(total.detach()) == pytest.approx(both, rel=1e-5)
    with refuses(ConfigError, "matryoshka is [64]", "32"):
        wide = objective(rows, matryoshka=[64])
        wide.loss(model, whole(wide))


def test_chunks_give_the_same_gradient(tmp_path: Path) -> None:
    """With dropout, too: what is computed again drops what was dropped."""
    rows = examples(negatives=3)
    model = load(tuning.bert(tmp_path), heads={"pool": 0}).model.train()

    def gradient(**options: Any) -> list[torch.Tensor]:
        learned = objective(rows, **options)
        model.zero_grad()
        torch.manual_seed(5)
        learned.loss(model, whole(learned)).sums["embed"].backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    def apart(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
        return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))

    assert apart(gradient(chunk=100), gradient()) < 1e-6
    model.eval().double()
    assert apart(gradient(chunk=1), gradient()) < 1e-12
    assert apart(gradient(chunk=3), gradient()) < 1e-12


def test_a_step_is_not_divided() -> None:
    with refuses(ConfigError, "compares the samples", "grad_accum", "objective.chunk"):
        Batches(objective(examples()), 4, 2, 0, 1)
    with refuses(ConfigError, "one process"):
        Batches(objective(examples()), 4, 1, 0, 2)
    Batches(objective(examples(scored=True)), 4, 2, 0, 1).close()  # pairs are learned one by one


def test_groups_hold_every_row_once() -> None:
    sizes = keyed(3, "sizes").integers(1, 200, 300)
    groups = grouped(sizes, most=64)
    assert sorted(np.concatenate(groups).tolist()) == list(range(300))
    assert max(map(len, groups)) <= 64

    def cost(parts: list[np.ndarray]) -> int:
        return sum(len(part) * int(sizes[part].max()) + OVERHEAD for part in parts)

    assert cost(grouped(sizes)) < 0.8 * cost([np.arange(300)])
    few = np.array([3, 7, 7, 12])
    assert [part.tolist() for part in grouped(few)] == [[3, 1, 2, 0]]  # one pass is cheapest


@pytest.mark.parametrize("family", ["xlnet", "longformer", "gpt"])
def test_other_families(family: str, tmp_path: Path) -> None:
    """What is learned from is what `embed` gives, whatever the padding."""
    model = judging.model_of(family, {"masked": 0})
    loaded = load(save(model, tmp_path / "m", judging.TOKENIZER))
    rows = [EmbedExample("a b c d", "e f"), EmbedExample("c", "h i j a b")]
    corpus = TaskCorpus("embed", rows, judging.TOKENIZER, [], "train")
    settings = ContrastOptions(family=family)
    learned = Contrast(corpus, settings, seq_len=20, batch_size=2, seed=1)  # type: ignore[arg-type]
    batch = learned.collate([learned.sample(0, i) for i in range(2)])
    learned.opened(loaded.model, None)
    with torch.no_grad():
        vectors = F.normalize(learned.vectors(loaded.model.eval(), batch), dim=1).numpy()
    texts = ["a b c d", "c", "e f", "h i j a b"]
    pooling = "last" if family == "gpt" else "mean"
    np.testing.assert_allclose(vectors, loaded.embed(texts, pooling=pooling), atol=2e-5)


# -- runs


def retrieval(place: Path, count: int = 40) -> Path:
    """The good word of a question is in its passage."""
    rows = []
    for i in range(count):
        word = WORDS[i % 8]
        rows.append({"question": f"{word} {words(2, 'q', i)}", "passage": f"{word} film {word}"})
    return tuning.write(place, rows)


def test_from_a_file_to_a_page(tmp_path: Path) -> None:
    base, file = tuning.bert(tmp_path / "bert"), retrieval(tmp_path / "train.jsonl")
    recipe = tuning.recipe(
        base, file, examples={"task": "embed"}, budget={"steps": 20},
        objective={"matryoshka": [16]},
    )  # fmt: skip
    facts = finetune(recipe, tmp_path / "run", display="silent")
    assert list(facts["valid"]) == ["in_batch_accuracy", "loss"]
    run = load(tmp_path / "run")
    assert run.source["architectures"] == ["BertModel"]
    report = examine(str(tmp_path / "run"), [str(file)], Plan(resamples=20))
    before = examine(str(tmp_path / "run"), [str(file)], Plan(resamples=20, out=tmp_path / "t"))
    assert report["main"] == "ndcg_at_10" and report["figures"] == before["figures"]
    assert "recall at 1" in Path(report["out"], "report.html").read_text()
    row = json.loads(Path(report["out"], "predictions.jsonl").read_text().splitlines()[0])
    assert "scores" not in row and isinstance(row["predicted"], float)
    one, other = run.embed(["fine film", "dull plot"])
    answer = run.predict({"text": "fine film", "positive": "dull plot"})
    assert answer.value == pytest.approx(float(one @ other), abs=1e-5)
    assert run.embed("fine film", width=16).shape == (16,)
    assert float(np.linalg.norm(run.embed("fine film", width=16))) == pytest.approx(1, abs=1e-5)
    copy = load(run.save(tmp_path / "copy"))
    assert np.array_equal(copy.embed("fine film"), one)
    scored = [{"a": "fine", "b": "warm", "score": 0.9}, {"a": "fine", "b": "dull", "score": 0.1},
              {"a": "poor film", "b": "cold film", "score": 0.7}]  # fmt: skip
    pairs = tuning.write(tmp_path / "pairs.jsonl", scored)
    report = examine(str(tmp_path / "run"), [str(pairs)], Plan(resamples=20))
    assert report["main"] == "spearman"


def test_vectors_of_others_are_evaluated_as_they_are(tmp_path: Path) -> None:
    """A directory of sentence-transformers needs no task file; scores may have any range."""
    base = tuning.bert(tmp_path / "bert")
    write_pipeline(base, pooling="first", normalize=True, length=9, width=32)
    scored = [{"a": words(3, "a", i), "b": words(4, "b", i), "score": 1 + i} for i in range(5)]
    pairs = tuning.write(tmp_path / "pairs.jsonl", scored)
    loaded = load(base)
    one, other = (loaded.embed([str(row[side]) for row in scored]) for side in ("a", "b"))
    expected = spearmanr((one * other).sum(1), [row["score"] for row in scored]).statistic
    report = examine(str(base), [str(pairs)], Plan(resamples=20))
    assert report["figures"]["spearman"] == pytest.approx(expected)


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, stop: list[int]) -> None:
    base, file = tuning.bert(tmp_path / "bert"), retrieval(tmp_path / "train.jsonl")
    recipe = tuning.recipe(
        base, file, examples={"task": "embed"}, objective={"chunk": 6}, budget={"steps": 5}
    )
    finetune(recipe, tmp_path / "whole", display="silent")
    stop.append(5 + 3)
    finetune(recipe, tmp_path / "part", display="silent")
    finetune(make({}), tmp_path / "part", resume=True, display="silent")
    files = [tmp_path / name / "model.safetensors" for name in ("whole", "part")]
    assert files[0].read_bytes() == files[1].read_bytes()


# -- data


def test_records(tmp_path: Path) -> None:
    def example(**record: Any) -> Any:
        file = tuning.write(tmp_path / "a.jsonl", [record])
        return read(str(file), "embed")[0]

    assert example(query="a", passage="b", negatives=["c", "d"]).gold == ["a", "b", "c", "d"]
    assert example(sentence1="a", sentence2="b", score=0.5).gold == 0.5
    assert example(text="a").gold is None
    for record, words_of_it in (
        ({"query": "a", "negatives": ["c"]}, "no positive"),
        ({"query": "a", "passage": "b", "negatives": 3}, "neither a text"),
        ({"query": "a", "passage": "b", "negatives": "c", "score": 1}, "two texts"),
    ):
        with refuses(InputError, words_of_it):
            example(**record)


def test_refusals() -> None:
    rows = examples()
    with refuses(ConfigError, "temperature is 0"):
        objective(rows, temperature=0)
    with refuses(ConfigError, "chunk is 0"):
        objective(rows, chunk=0)
    with refuses(InputError, "has no score"):
        objective([*examples(2, scored=True), *rows])
    high = [EmbedExample("a", "b", (), 4.0)]
    with refuses(InputError, "score is 4", "score_range=[1,5]"):
        objective(high)
    assert objective(high, score_range=[1.0, 5.0]).gold[0] == 0.75
    with refuses(ConfigError, "text alone"):
        task("embed").check_tested([EmbedExample("a")], [])
    with refuses(ConfigError, "one text", "regard embed"):
        task("embed").check_asked(EmbedExample("a"), "m")
