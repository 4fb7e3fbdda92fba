"""Every forward is one graph, compiled once: the next step, with other tokens, runs it too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from regard.models.longformer import places
from regard.models.recurrent import MemoryLimits
from tests.laws.zoo import CLOSE, ZOO, Batch, Reader, Specimen, close, collate, model_of

each = pytest.mark.parametrize("specimen", ZOO, ids=str)
ALIKE = ("-pre", "-plain", "-ordered", "-left", "-v1_1", "-one-layer", "gpt1", "gpt2")
KINDS = [s for s in ZOO if not s.name.endswith(ALIKE)]  # what takes long is done for these
kinds = pytest.mark.parametrize("specimen", KINDS, ids=str)


def step(specimen: Specimen, seed: int, marks: bool) -> Batch:
    """Other tokens, marks, orders and globals; the same shapes."""
    text = specimen.text(6, 0)
    dice = torch.Generator().manual_seed(seed)
    text = {
        name: value[torch.randperm(len(value), generator=dice)] if name != "targets" else value
        for name, value in text.items()
    }
    batch = collate([text, text], marks=marks)
    if marks:
        name = "decoder_attention_mask" if specimen.pair else "attention_mask"
        batch.inputs[name][0, : seed % 3] = False
    if "global_tokens" in batch.inputs:
        global_places = places(batch.inputs["global_tokens"], batch.inputs.get("attention_mask"))
        assert global_places is not None
        batch.inputs["global_tokens"] = torch.nn.functional.pad(
            global_places, (0, 9 - global_places.size(1)), value=-1
        )
    return batch


def compiled(model: Any, backend: str) -> tuple[Any, CompileCounterWithBackend]:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    return torch.compile(model, fullgraph=True, backend=counter), counter


@each
def test_one_graph_serves_every_step(specimen: Specimen) -> None:
    model = model_of(specimen)
    with torch._dynamo.config.patch(allow_rnn=True):
        run, counter = compiled(model, "eager")
        for seed in range(3):
            inputs = step(specimen, seed, marks=True).inputs
            close(run(**inputs), model(**inputs), CLOSE[torch.float32])
    assert counter.frame_count == 1, "compiled again"


@pytest.mark.slow
@pytest.mark.parametrize("specimen", [s for s in KINDS if s.stepwise], ids=str)
def test_reading_on_settles(specimen: Specimen) -> None:
    """A growing cache needs a second graph, a memory one a step until it is full; then no more."""
    model = specimen.fresh().requires_grad_(False)
    tokens = torch.arange(42).remainder(23).view(2, 21)
    model.config = limited(model.config)
    if hasattr(model, "limits"):
        model.limits = MemoryLimits.of(model.config)
    source = {"input_ids": tokens[:, :4]} if specimen.pair else {}
    name = "decode" if specimen.pair else "forward"
    counts = []
    with torch._dynamo.config.patch(allow_rnn=True), pytest.MonkeyPatch.context() as patch:
        run, counter = compiled(getattr(model, name), "eager")
        readers = [Reader(model, source | {specimen.main: tokens}, 21) for _ in range(2)]
        for start in range(0, 21, 3):
            plain = readers[0].read(start, start + 3)
            with patch.context() as inside:
                inside.setattr(model, name, run)
                close(readers[1].read(start, start + 3), plain, CLOSE[torch.float32])
            counts.append(counter.frame_count)
    assert counts[1] <= 2 and counts[3] <= 4 and counts[-1] == counts[3], counts


def limited(config: Any) -> Any:
    return config.replace(mem_len=6) if "mem_len" in config.__dataclass_fields__ else config


@pytest.mark.slow
@kinds
def test_one_graph_serves_every_step_of_training(specimen: Specimen) -> None:
    """Forward and backward; without dropout the gradients are those of the model as it stands."""
    model = specimen.fresh()
    with torch._dynamo.config.patch(allow_rnn=True):
        run, counter = compiled(model, "aot_eager")
        for seed in range(3):
            batch, slopes = step(specimen, seed, marks=True), []
            for one in (run, model):
                model.zero_grad()
                rows = torch.cat(batch.of(one(**batch.inputs)))
                model.output.surprisal(rows, torch.cat(batch.labels)).backward()
                slopes.append({n: p.grad for n, p in model.named_parameters()})
            for name, slope in slopes[1].items():
                assert (slope is None) == (slopes[0][name] is None), name
                if slope is not None:
                    close(slopes[0][name], slope, 2e-4, name)
    assert counter.frame_count == 1, "compiled again"


@pytest.mark.slow
@kinds
def test_one_graph_with_dropout_in_mixed_precision(specimen: Specimen) -> None:
    model = specimen.fresh().train()
    with torch._dynamo.config.patch(allow_rnn=True), torch.autocast("cpu", torch.bfloat16):
        run, counter = compiled(model, "eager")
        for seed in range(3):
            batch = step(specimen, seed, marks=False)
            rows = torch.cat(batch.of(run(**batch.inputs)))
            model.output.surprisal(rows, torch.cat(batch.labels)).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert counter.frame_count == 1, "compiled again"
