"""The pointer-sentinel output: its probabilities, gradient and past, and what it is good at."""

from __future__ import annotations

import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.api import LoadedModel
from regard.core.errors import ConfigError, InputError
from regard.decoding import generate
from regard.models import create
from regard.models.extensions import extend
from regard.models.extensions.pointer import band
from regard.models.output import CHUNK, SoftTarget
from regard.models.state import State, caches
from regard.training.run import train
from tests.decoding.small import naive
from tests.laws.zoo import MARKS, STEPWISE, VOCABULARY, ZOO, Reader, Specimen, close, collate
from tests.models.extensions.shared import cached_is_uncached, comes_back
from tests.refusals import refuses
from tests.tasks.tuning import stop as stop  # a fixture
from tests.training import small

POINTERS = [s for s in STEPWISE if not s.name.startswith("xlnet")]
each = pytest.mark.parametrize("specimen", POINTERS, ids=str)
WINDOW = 4


def pointing(specimen: Specimen, dtype: torch.dtype = torch.float64, window: int = WINDOW) -> Any:
    """Pointers that point: what goes to the vocabulary is neither little nor all."""
    model = extend(specimen.fresh(dtype), "pointer", {"window": window})
    dice = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in model.output.pointer.parameters():
            value.normal_(0.0, 0.3, generator=dice)
    return model


def naively(model: Any, plain: Any, batch: Any, main: str) -> list[Tensor]:
    """p of every row of every text, position by position, from the paper's formulas."""
    texts, hidden = [], batch.of(plain(**batch.inputs))
    pointer = model.output.pointer
    for row, span, h in zip(batch.inputs[main], batch.spans, hidden, strict=True):
        words, rows = row[span], []
        for t in range(len(words)):
            q = torch.tanh(pointer.query.weight @ h[t] + pointer.query.bias)
            seen = range(max(0, t - pointer.window + 1), t + 1)
            z = torch.stack([*(q @ h[i] for i in seen), q @ pointer.sentinel])
            a = z.softmax(0)
            p = a[-1] * plain.logits(h[t]).softmax(-1)
            for weight, i in zip(a, seen, strict=False):
                p = p + weight * torch.nn.functional.one_hot(words[i], VOCABULARY)
            rows.append(p)
        texts.append(torch.stack(rows))
    return texts


@each
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_every_row_is_the_formula(specimen: Specimen, left: bool) -> None:
    model, plain = pointing(specimen), specimen.fresh(torch.float64)
    batch = collate([specimen.text(9, 0), specimen.text(6, 1)], left=left)
    expected = naively(model, plain, batch, specimen.main)
    labels = batch.labels
    for rows, p, wanted in zip(batch.of(model(**batch.inputs)), expected, labels, strict=True):
        log_p = model.logits(rows)
        close(log_p.exp(), p, 1e-10)
        close(log_p.exp().sum(-1), torch.ones(len(rows)), 1e-10)
        own = -p.gather(1, wanted[:, None])[:, 0].log()
        close(model.output.each(rows, wanted), own, 1e-10)
        shares = torch.linspace(0.5, 2.0, len(rows), dtype=torch.float64)
        close(model.output.surprisal(rows, wanted, shares), (own * shares).sum(), 1e-10)
        close(model.output.surprisal(rows, wanted), own.sum(), 1e-10)


@each
def test_gradients_are_those_of_the_formula(specimen: Specimen) -> None:
    """Of every weight, through the chunked sum and through plain log-probabilities."""
    model = pointing(specimen)
    batch = collate([specimen.text(8, 0), specimen.text(5, 1)])
    other = deepcopy(model)
    specimen.loss(model, batch).backward()
    rows = torch.cat(batch.of(other(**batch.inputs)))
    labels = torch.cat(batch.labels)
    (-other.logits(rows).gather(1, labels[:, None]).sum()).backward()
    for (name, value), copy in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (value.grad is None) == (copy.grad is None), name
        if value.grad is not None:
            assert value.grad.isfinite().all()
            close(value.grad, copy.grad, 1e-8, name)


def test_gradients_are_those_of_differences() -> None:
    specimen = next(s for s in POINTERS if s.name == "gpt2")
    model = pointing(specimen)
    batch = collate([specimen.text(6, 0)])
    specimen.loss(model, batch).backward()
    step = 1e-6
    for value in (model.output.pointer.sentinel, model.output.pointer.query.weight,
                  model.tokens.weight, model.blocks[0].attention.layer.out.weight):  # fmt: skip
        place = tuple(size // 2 for size in value.shape)
        ends = []
        for by in (step, -2 * step):
            with torch.no_grad():
                value[place] += by
                ends.append(float(specimen.loss(model, batch)))
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(value.grad[place]) == pytest.approx(slope, rel=1e-5, abs=1e-8)


@each
def test_a_sentinel_that_takes_all_leaves_the_plain_model(specimen: Specimen) -> None:
    model, plain = pointing(specimen), specimen.fresh(torch.float64)
    with torch.no_grad():
        model.output.pointer.query.weight.zero_()
        model.output.pointer.query.bias.fill_(5.0)
        model.output.pointer.sentinel.fill_(60.0)
    batch = collate([specimen.text(7, 0), specimen.text(5, 1)])
    rows, own = torch.cat(batch.of(model(**batch.inputs))), batch.of(plain(**batch.inputs))
    close(model.logits(rows), plain.logits(torch.cat(own)).log_softmax(-1), 1e-10)
    close(specimen.loss(model, batch), specimen.loss(plain, batch), 1e-10)


def test_at_first_the_vocabulary_has_most() -> None:
    torch.manual_seed(1)
    for window in (10, 100):
        model = create("gpt", layers=1, width=64, heads=2, vocab_size=50, context=128)
        extend(model, "pointer", {"window": window, "open": 0.9})
        rows = model(torch.randint(50, (4, 128)))[:, window:]
        assert 0.8 < float(rows[..., -1].detach().exp().mean()) < 0.97


@each
def test_cached_is_uncached(specimen: Specimen) -> None:
    cached_is_uncached(specimen, pointing(specimen), [0.5], [0.7, 0.8, 0.9])


@each
def test_a_state_that_is_reordered(specimen: Specimen) -> None:
    model = pointing(specimen).requires_grad_(False)
    batch = collate([specimen.text(8, 0), specimen.text(8, 7)], extra=0)
    length = min(text.stop - text.start for text in batch.spans)
    inputs = {k: v[:, :length] if k == specimen.main else v for k, v in batch.inputs.items()}
    inputs.pop(MARKS[specimen.main])
    whole = model(**inputs)
    turned = torch.tensor([1, 0])
    reader = Reader(model, inputs, length)
    reader.read(0, length - 2)
    reader.state.reorder(turned)
    reader.inputs = inputs | {specimen.main: inputs[specimen.main][turned]}
    close(reader.read(length - 2, length), whole[turned, -2:], 1e-10)


@each
@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 3}, {"num_samples": 2, "top_k": 3, "seed": 1}]
)
def test_generation(specimen: Specimen, options: dict[str, Any]) -> None:
    """Whatever a decoder does with its state, what it says has the probability of one pass."""
    model = pointing(specimen).requires_grad_(False)
    prompts = [specimen.text(n, n)["input_ids"].tolist()[:9] for n in (4, 2)]
    results = generate(
        LoadedModel(model), prompts, max_new_tokens=6, eos_ids=[], suppress_tokens=[], **options
    )
    for prompt, beams in zip(prompts, results, strict=True):
        for one in beams:
            if not options:
                assert one.ids == naive(model, prompt, 6)
            if specimen.pair:
                begun = torch.tensor([[model.config.start_id, *one.ids]])
                rows, first = model(torch.tensor([prompt]), begun)[0], 0
            else:
                rows, first = model(torch.tensor([[*prompt, *one.ids]]))[0], len(prompt) - 1
            log_p = model.logits(rows[first:-1])
            sure = log_p.gather(1, torch.tensor(one.ids)[:, None])[:, 0].tolist()
            if "num_samples" not in options:  # there those of what top_k leaves
                assert one.logprobs == pytest.approx(sure, abs=1e-8)


@each
def test_saved_and_loaded_is_the_same(specimen: Specimen, tmp_path: Path) -> None:
    again = comes_back(pointing(specimen), collate([specimen.text(5, 0)]).inputs, tmp_path)
    assert again.extensions == {"pointer": {"window": WINDOW, "open": 0.9}}


@pytest.mark.parametrize("length", [1, 2, 5, 12])
@pytest.mark.parametrize("window", [1, 3, 8])
def test_the_band(length: int, window: int) -> None:
    torch.manual_seed(1)
    q, keys = torch.randn(2, length, 5), torch.randn(2, window - 1 + length, 5)
    scores = band(q, keys, window)
    assert scores.shape == (2, length, window)
    for t in range(length):
        close(scores[:, t], torch.einsum("bd,bkd->bk", q[:, t], keys[:, t : t + window]), 1e-5)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits are made a few rows at a time, and the sum is the same."""
    specimen = next(s for s in POINTERS if s.name == "gpt2")
    model, batch = pointing(specimen), collate([specimen.text(9, 0), specimen.text(7, 1)])
    expected = specimen.loss(model, batch)
    shapes: list[int] = []
    plain = type(model.output).__mro__[1].forward

    def watched(self: Any, hidden: Tensor) -> Tensor:
        shapes.append(hidden.size(0))
        return plain(self, hidden)

    monkeypatch.setattr(type(model.output).__mro__[1], "forward", watched)
    monkeypatch.setattr("regard.models.extensions.pointer.CHUNK", 3 * VOCABULARY)
    close(specimen.loss(model, batch), expected, 1e-12)
    assert max(shapes) == 3 and sum(shapes) == 16 and CHUNK > 3 * VOCABULARY


@pytest.mark.parametrize("family", ["lstm", "gpt"])
def test_copying_is_learned_at_once(family: str) -> None:
    """Every text has three words of its own, of 200: whoever points is near log 3 in few steps."""
    dice = torch.Generator().manual_seed(3)

    def texts(count: int) -> Tensor:
        own = torch.randint(200, (count, 3), generator=dice)
        return own.gather(1, torch.randint(3, (count, 33), generator=dice))

    shape = {"layers": 1, "width": 32, "vocab_size": 200, "dropout": 0.0}
    more = {"gpt": {"heads": 2, "context": 32, "dropout_attention": 0.0, "dropout_embedding": 0.0}}
    nats = {}
    for pointer in (False, True):
        torch.manual_seed(1)
        model = create(family, **shape, **more.get(family, {})).train()
        if pointer:
            extend(model, "pointer", {"window": 16})
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(40):
            batch = texts(16)
            rows = model(batch[:, :-1])[:, 8:].flatten(0, 1)
            loss = model.output.surprisal(rows, batch[:, 9:].flatten()) / rows.size(0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        batch = texts(64)
        rows = model.eval()(batch[:, :-1])[:, 8:].flatten(0, 1)
        nats[pointer] = float(model.output.each(rows, batch[:, 9:].flatten()).mean())
    assert nats[True] < 1.5 < math.log(3) + 0.5 < 3.0 < nats[False], nats


@pytest.mark.parametrize("model", ["gpt", "transformer-xl", "lstm"])
def test_a_recipe_with_a_pointer_goes_on_as_if_never_stopped(
    model: str, tmp_path: Path, stop: list[int]
) -> None:
    """With a memory the past of the pointer goes into the checkpoint."""
    where = small.data(tmp_path / "data")
    recipe = small.recipe(model, where, extensions={"pointer": {"window": 8}})
    train(deepcopy(recipe), tmp_path / "whole", display="silent")
    stop.append(recipe.budget.steps + 3)
    halves = tmp_path / "halves"
    assert train(deepcopy(recipe), halves, display="silent")["outcome"] == "interrupted"
    train(deepcopy(recipe), halves, resume=True, display="silent")
    states = [regard.load(tmp_path / name).model.state_dict() for name in ("whole", "halves")]
    assert "output.pointer.sentinel" in states[0]
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


def test_refusals() -> None:
    def gpt(**more: Any) -> Any:
        return create("gpt", layers=1, width=16, heads=2, vocab_size=30, context=16, **more)

    for name in ("bert", "xlnet", "longformer", "characters"):
        with refuses(ConfigError, "point", "gpt, llama"):
            extend(next(s for s in ZOO if s.name == name).fresh(), "pointer")
    from regard.models.gpt import GPT

    with refuses(ConfigError, "GPT", "classify"):
        extend(GPT(gpt().config, {"classify": 2}), "pointer")
    model = extend(gpt(), "pointer")
    tokens = torch.zeros(1, 3, dtype=torch.long)
    with refuses(InputError, "model.start"):
        model(tokens, state=State(caches(model.blocks, 1, 8)))
    with refuses(ConfigError, "objective.smoothing=0"):
        model.output.softened(model(tokens)[0], tokens[0], SoftTarget(0.9, 0.1))
