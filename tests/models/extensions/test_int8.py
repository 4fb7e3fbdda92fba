"""Models in small numbers: near to what they were, small, saved as they are, never trained."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.api import LoadedModel, load
from regard.core.errors import ConfigError, InputError
from regard.decoding import generate
from regard.formats.directory import describe, save
from regard.models import create
from regard.models.bert import Bert
from regard.models.extensions import extend
from regard.models.extensions import small as small_numbers
from regard.models.extensions.small import SmallEmbedding, SmallLinear, SmallMatrix, SmallOutput
from tests.decoding.small import SPEAKERS, score
from tests.laws.zoo import BERT, STEPWISE, ZOO, Reader, Specimen, collate
from tests.models.extensions.shared import comes_back
from tests.refusals import refuses

KINDS = ("weight", "dynamic", "bf16", "int4")
FAR = {"weight": 0.06, "dynamic": 0.12, "bf16": 0.06, "int4": 0.5}  # of the deviation of logits


def small(specimen: Specimen, kind: str = "weight", **options: Any) -> Any:
    return extend(specimen.fresh(), "int8", {"kind": kind, **options}).eval()


def logits(specimen: Specimen, model: Any, left: bool = False) -> Tensor:
    batch = collate([specimen.text(n, 3) for n in (5, 9)], left=left)
    with torch.inference_mode():
        hidden = model(**batch.inputs)
        return torch.cat([model.logits(rows) for rows in batch.of(hidden)])


def gpt(**changes: Any) -> Any:
    torch.manual_seed(1)
    shape = {"layers": 2, "width": 64, "heads": 2, "vocab_size": 300, "context": 32}
    return create("gpt", **shape | changes).eval()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("specimen", ZOO, ids=str)
def test_every_family_stays_close(specimen: Specimen, kind: str) -> None:
    before = logits(specimen, specimen.fresh())
    after = logits(specimen, small(specimen, kind))
    error = (after - before).square().mean().sqrt() / before.std()
    assert 0 < error < FAR[kind], f"{float(error):.3f}"


@pytest.mark.parametrize("specimen", ZOO, ids=str)
def test_padding_changes_nothing(specimen: Specimen) -> None:
    model = small(specimen)
    first, second = (logits(specimen, model, left) for left in (False, True))
    assert torch.allclose(first, second, atol=float(first.abs().max()) * 1e-3)


@pytest.mark.parametrize("specimen", STEPWISE, ids=str)
def test_piece_by_piece(specimen: Specimen) -> None:
    model = small(specimen)
    batch = collate([specimen.text(9, 1)], marks=False)
    with torch.inference_mode():
        whole = model(**batch.inputs)
        reader = Reader(model, batch.inputs, whole.size(1))
        edges = [0, 4, 5, whole.size(1)]
        parts = [reader.read(a, b) for a, b in pairwise(edges)]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=float(whole.abs().max()) * 2e-3)


@pytest.mark.parametrize("specimen", SPEAKERS, ids=str)
def test_it_goes_on_with_texts(specimen: Specimen) -> None:
    """With a memory as without one."""
    model, prompts = small(specimen), [[3, 4, 5], [6]]
    results = generate(
        LoadedModel(model), prompts, max_new_tokens=4, eos_ids=[], suppress_tokens=[]
    )
    for prompt, (best,) in zip(prompts, results, strict=True):
        assert best.logprobs == pytest.approx(score(model, prompt, best.ids), abs=0.05)


@pytest.mark.parametrize("kind", ["weight", "bf16", "int4"])
@pytest.mark.parametrize("specimen", ZOO, ids=str)
def test_saved_and_read_back_bit_for_bit(specimen: Specimen, kind: str, tmp_path: Path) -> None:
    model = small(specimen, kind)
    again = comes_back(model, collate([specimen.text(5, 3)]).inputs, tmp_path)
    assert torch.equal(logits(specimen, model), logits(specimen, again))


@pytest.mark.parametrize("kind, most", [("weight", 0.3), ("dynamic", 0.3), ("bf16", 0.55),
                                        ("int4", 0.24)])  # fmt: skip
def test_size(kind: str, most: float, tmp_path: Path) -> None:
    shape = {"layers": 2, "width": 256, "vocab_size": 4000}
    before = save(gpt(**shape), tmp_path / "a")
    after = save(extend(gpt(**shape), "int8", {"kind": kind}), tmp_path / "b")
    sizes = [(place / "model.safetensors").stat().st_size for place in (before, after)]
    assert sizes[1] <= most * sizes[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("specimen", ZOO, ids=str)
def test_small_numbers_are_parameters_too(specimen: Specimen, kind: str) -> None:
    """A table with two uses counts once, as before."""
    assert small(specimen, kind).parameter_count() == specimen.fresh().parameter_count()


def test_a_directory_of_small_numbers_is_described(tmp_path: Path) -> None:
    saved = save(extend(gpt(), "int8"), tmp_path / "m")
    assert describe(saved)["parameters"] == gpt().parameter_count()


def test_one_table_has_both_uses(tmp_path: Path) -> None:
    model = extend(gpt(), "int8")
    assert isinstance(model.tokens, SmallEmbedding) and isinstance(model.output, SmallOutput)
    again = load(save(model, tmp_path / "m")).model
    for each in (model, again, copy.deepcopy(model), again.to(torch.float64)):
        assert each.tokens.matrix is each.output.matrix
    tokens = torch.arange(300)
    assert torch.equal(model.tokens(tokens), model.tokens.matrix.whole())
    table = gpt().tokens.weight
    bound = table.abs().amax(-1, keepdim=True) / 254
    assert ((model.tokens(tokens) - table).abs() <= bound * 1.001).all()


def test_a_copy_has_its_own_numbers() -> None:
    model = extend(gpt(), "int8").eval()
    tokens = torch.arange(8)[None]
    with torch.inference_mode():
        before = model(tokens)
        twin = copy.deepcopy(model)
        twin.blocks[0].feed_forward.layer.wide.matrix.weight.zero_()
        assert not torch.equal(twin(tokens), before) and torch.equal(model(tokens), before)
        assert torch.allclose(model.to(torch.float64)(tokens).float(), before, atol=1e-2)


def test_what_is_excluded_is_untouched() -> None:
    plain, model = gpt(), gpt()
    extend(model, "int8", {"exclude": ["blocks.0.*", "*.narrow"]})
    state, before = model.state_dict(), plain.state_dict()
    untouched = [name for name in before if name.startswith("blocks.0.") or ".narrow." in name]
    assert untouched and all(torch.equal(state[name], before[name]) for name in untouched)
    assert isinstance(model.blocks[1].feed_forward.layer.wide, SmallLinear)
    assert isinstance(model.blocks[1].attention.layer.project.matrix, SmallMatrix)


@pytest.mark.parametrize("options", [{"exclude": ["tokens"]}, {"exclude": ["output"]},
                                     {"output": "float"}])  # fmt: skip
def test_a_table_stays_for_both_uses(options: dict[str, Any]) -> None:
    model = extend(gpt(), "int8", options)
    assert model.tokens.weight is model.output.weight and model.tokens.weight.is_floating_point()
    assert isinstance(model.blocks[0].feed_forward.layer.wide, SmallLinear)


def test_surprisal_is_that_of_the_logits() -> None:
    model = extend(gpt(), "int8").eval()
    hidden, targets = torch.randn(7, 64), torch.arange(7)
    shares = torch.rand(7)
    with torch.no_grad():
        each = -model.logits(hidden).log_softmax(-1)[torch.arange(7), targets]
        assert torch.allclose(model.output.surprisal(hidden, targets), each.sum())
        assert torch.allclose(
            model.output.surprisal(hidden, targets, shares), (each * shares).sum()
        )
        assert torch.allclose(model.output.each(hidden, targets), each)


def test_a_table_that_another_part_uses_stays() -> None:
    model = extend(extend(gpt(), "pointer"), "int8")
    assert model.tokens.weight is model.output.weight and model.tokens.weight.is_floating_point()


def test_heads_stay() -> None:
    torch.manual_seed(1)
    model = extend(Bert(BERT, {"classify": 3}).eval(), "int8")
    assert all(p.is_floating_point() for p in model.heads.state_dict().values())
    assert not model.embeddings.tokens.weight.is_floating_point()


@pytest.mark.parametrize("part", ["placed", "ready_bytes"])
def test_threads_that_come_first_at_once_make_it_ready_once(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a copy of the matrix for each; and the addresses are of what the matrix holds."""
    matrix, both = SmallMatrix(torch.randn(8, 16), "weight"), threading.Barrier(2)
    plain, calls = getattr(small_numbers, part), []

    def slowly(*args: Any) -> Any:
        calls.append(args)
        with suppress(threading.BrokenBarrierError):  # where only one comes, it waits in vain
            both.wait(timeout=1)
        return plain(*args)

    monkeypatch.setattr(small_numbers, part, slowly)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: matrix.made_ready(None, 0, 8), range(2))
    assert len(calls) == 1 and first is second is matrix.ready[0, 8]
    assert first.addresses[0] == matrix.weight.data_ptr()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(wrong: float) -> None:
    model = gpt()
    model.blocks[0].feed_forward.layer.wide.weight.data[0, 0] = wrong
    with refuses(ConfigError, "blocks.0.feed_forward.layer.wide", "NaN"):
        extend(model, "int8")
    assert model.extensions == {}


def test_a_cache_of_other_texts_is_refused() -> None:
    """By the ordinary way: native code would write beyond its end."""
    model = extend(gpt(), "int8").eval()
    state = model.start(2, 8)
    with torch.inference_mode():
        model(torch.tensor([[1, 2], [3, 4]]), state=state)
        with pytest.raises((InputError, RuntimeError)):
            model(torch.tensor([[3]] * 5), state=state)


def test_a_full_cache_is_refused() -> None:
    model = extend(gpt(), "int8").eval()
    state = model.start(1, 2)
    with torch.inference_mode():
        model(torch.tensor([[1, 2]]), state=state)
        with refuses(InputError, "3 rows", "2"):
            model(torch.tensor([[3]]), state=state)
