"""Transformer-XL beside golden files of transformers 4.35, and the authors' own conventions."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from regard.api import LoadedModel, load
from regard.attention.recorder import record
from regard.core.errors import ConfigError
from regard.formats.directory import save
from regard.formats.format import unstacked
from regard.formats.transformer_xl import TRANSFORMER_XL
from regard.models.state import State
from regard.models.transformer_xl import TransformerXL, TransformerXLConfig
from tests.refusals import refuses

GOLDEN = Path(__file__).parent / "golden" / "transformer_xl"
SCRIPT = Path(__file__).parent / "make_transformer_xl_golden.py"
CASES = sorted(path.name for path in GOLDEN.iterdir())
SEGMENTS = range(4)
OTHER_PYTHON = os.environ.get("REGARD_GOLDEN_PYTHON")


def opened(case: str) -> tuple[LoadedModel, dict[str, Tensor]]:
    return load(GOLDEN / case), load_file(GOLDEN / case / "expected.safetensors")


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def hidden_layers(model: TransformerXL, tokens: Tensor, state: State) -> list[Tensor]:
    """What goes into the first layer, what comes out of each; the memory moves on."""
    seen: list[Tensor] = []
    hooks = [model.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))]
    hooks += [b.register_forward_hook(lambda *args: seen.append(args[2])) for b in model.blocks]
    model(tokens, state=state)
    for hook in hooks:
        hook.remove()
    return seen


def test_the_cases_cover_what_can_vary() -> None:
    configs = [load(GOLDEN / case).config for case in CASES]
    for name, values in {
        "untied": {True, False},
        "same_length": {True, False},
        "norm": {"pre", "post"},
        "shared_projections": {True, False},
        "ratio": {1, 2},
        "cutoffs": {(), (11, 20, 45)},
    }.items():
        assert {getattr(config, name) for config in configs} == values
    assert {bool(config.clamp_len) for config in configs} == {True, False}
    assert {config.embedding is None for config in configs} == {True, False}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_every_number_of_the_reference(case: str) -> None:
    loaded, expected = opened(case)
    model = loaded.model
    state = model.zeros(2)
    for i in SEGMENTS:
        tokens = expected[f"tokens.{i}"]
        with record(model) as seen:
            layers = hidden_layers(model, tokens, state)
        for j, one in enumerate(seen):
            close(one.weights, expected[f"weights.{i}.{j}"])
        assert len(layers) == loaded.config.layers + 1
        for j, hidden in enumerate(layers):
            close(hidden, expected[f"hidden.{i}.{j}"])
        close(model.logits(layers[-1]), expected[f"log_probs.{i}"])
        rows, targets = layers[-1][:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        close(model.output.surprisal(rows, targets) / targets.numel(), expected[f"loss.{i}"])
        each = model.output.each(rows, targets)
        close(each.mean(), expected[f"loss.{i}"])
        log_p = expected[f"log_probs.{i}"][:, :-1].flatten(0, 1)
        close(-each, log_p.gather(1, targets[:, None])[:, 0])
        for j, memory in enumerate(state.hidden):
            length = loaded.config.mem_len
            assert memory.shape == (2, length, loaded.config.width)
            if length:
                close(memory, expected[f"memory.{i}.{j}"])


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_log_probabilities_are_those_of_a_whole_vocabulary(case: str) -> None:
    loaded, expected = opened(case)
    log_p = loaded.model.logits(loaded.model(expected["tokens.0"]))
    close(log_p.exp().sum(-1), torch.ones(log_p.shape[:2]))


@pytest.mark.parametrize("case", ["plain", "narrower"])
def test_the_gradient_of_four_segments(case: str) -> None:
    """Nothing flows back into the memory, in neither library."""
    loaded, expected = opened(case)
    model, state, loss = loaded.model, loaded.model.zeros(2), torch.zeros(())
    for i in SEGMENTS:
        tokens = expected[f"tokens.{i}"]
        hidden = model(tokens, state=state)
        rows, targets = hidden[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        loss = loss + model.output.surprisal(rows, targets) / targets.numel()
    loss.backward()
    gradients = dict(model.named_parameters(remove_duplicate=False))
    compared = set()
    for entry in TRANSFORMER_XL.table(loaded.config, {}):
        for key, value in unstacked(gradients[entry.ours].grad, entry).items():
            scale = expected[f"gradient.{key}"].abs().max()
            close(value / scale, expected[f"gradient.{key}"] / scale)
            compared.add(f"gradient.{key}")
    assert compared == {key for key in expected if key.startswith("gradient.")}


@pytest.mark.parametrize("case", CASES)
def test_saved_again_it_is_the_same_file(case: str, tmp_path: Path) -> None:
    loaded, _ = opened(case)
    loaded.save(tmp_path)
    before = load_file(GOLDEN / case / "model.safetensors")
    after = load_file(tmp_path / "model.safetensors")
    assert set(before) - set(after) <= {"transformer.pos_emb.inv_freq"}  # a constant
    assert all(torch.equal(value, before[key]) for key, value in after.items())
    source = json.loads((GOLDEN / case / "config.json").read_text())
    written = json.loads((tmp_path / "config.json").read_text())
    assert {k: v for k, v in source.items() if k != "torch_dtype" and written.get(k) != v} == {}
    assert load(tmp_path).config == loaded.config


@pytest.mark.skipif(
    OTHER_PYTHON is None, reason="REGARD_GOLDEN_PYTHON names no interpreter with transformers 4.35"
)
def test_the_reference_opens_what_we_save(tmp_path: Path) -> None:
    command = [str(OTHER_PYTHON), str(SCRIPT)]
    for case in CASES:
        opened(case)[0].save(tmp_path / case)
        save(load(GOLDEN / case).model, tmp_path / f"{case}-bare")  # without the source's config
        for name in (case, f"{case}-bare"):
            command += ["--check", str(GOLDEN / case), str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("ties", "right"),
    [
        ([False, True, True, True], True),
        ([False, False, False, False], True),
        (None, True),
        ([True, True, True, True], False),
        ([False, True, False, True], False),
        ([False, True], False),
    ],
)
def test_projections_are_shared_all_or_none(ties: list[bool] | None, right: bool) -> None:
    table = json.loads((GOLDEN / "narrower" / "config.json").read_text()) | {"tie_projs": ties}
    if right:
        read = TRANSFORMER_XL.read_config(table)["shared_projections"]
        assert read is (ties is None or ties[-1])
    else:
        with refuses(ConfigError, "tie_projs"):
            TRANSFORMER_XL.read_config(table)


def small(**changes: Any) -> TransformerXL:
    fields: dict[str, Any] = {"vocab_size": 61, "cutoffs": (), "ratio": 1, "width": 16, "layers": 3}
    fields |= {"heads": 2, "head_size": 6, "ffn_size": 24, "clamp_len": 0, "same_length": False}
    model = TransformerXL(TransformerXLConfig(**fields | {"mem_len": 40} | changes))
    torch.manual_seed(5)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_an_empty_memory_that_holds_everything_is_one_long_segment(norm: str) -> None:
    """The authors' start: there is nothing to remember, later all of it at its true distance."""
    model = small(norm=norm)
    tokens = torch.randint(61, (2, 30), generator=torch.Generator().manual_seed(1))
    state = State()
    parts = [model(part, state=state) for part in tokens.split([7, 1, 12, 10], 1)]
    close(torch.cat(parts, 1), model(tokens))
    assert [memory.size(1) for memory in state.hidden] == [30] * 3


@torch.no_grad()
def test_the_first_layer_sees_one_long_segment_as_far_as_it_remembers() -> None:
    """Its inputs are the words themselves: a window of `memory` keys, wherever segments are cut."""
    model = small(layers=1, mem_len=8, same_length=True)
    tokens = torch.randint(61, (2, 24), generator=torch.Generator().manual_seed(2))
    whole, state = model(tokens), State()
    parts = [model(part, state=state) for part in tokens.split([5, 8, 1, 10], 1)]
    close(torch.cat(parts, 1), whole)


@torch.no_grad()
def test_without_a_memory_a_row_sees_itself_and_those_before() -> None:
    """With `same_length` their class forbids every key of every row, and averages over all."""
    torch.manual_seed(0)
    one = small(mem_len=0, same_length=True)
    other = small(mem_len=0, same_length=False)
    other.load_state_dict(one.state_dict())
    tokens = torch.randint(61, (2, 12), generator=torch.Generator().manual_seed(5))
    whole = one(tokens)
    close(whole, other(tokens))
    changed = tokens.clone()
    changed[:, 7:] = 60 - changed[:, 7:]
    assert torch.equal(one(changed)[:, :7], whole[:, :7])


@torch.no_grad()
def test_zeros_are_attended_to_and_an_empty_memory_is_not() -> None:
    model = small()
    tokens = torch.randint(61, (2, 6), generator=torch.Generator().manual_seed(3))
    alone = model(tokens)
    close(model(tokens, state=State()), alone)
    assert (model(tokens, state=model.zeros(2)) - alone).abs().max() > 1e-3


@torch.no_grad()
def test_padding_is_never_remembered() -> None:
    """Texts of uneven length, padded on the left, go on as if each had been alone."""
    model, attention_mask = small(), torch.tensor([[False] * 3 + [True] * 4, [True] * 7])
    tokens = torch.randint(61, (2, 12), generator=torch.Generator().manual_seed(4))
    state, alone = State(), State()
    model(tokens[:, :7], attention_mask, state)
    together = model(tokens[:, 7:], state=state)
    model(tokens[:1, 3:7], state=alone)
    close(together[:1], model(tokens[:1, 7:], state=alone))


def test_distances_of_the_worked_example() -> None:
    """Three rows after a memory of two: row i and key j are 2 + i - j apart."""
    view = small().view(torch.zeros(1, 3, 16), 2, None)
    assert view.distances is not None
    falling = torch.arange(4, -2, -1.0).expand(1, 1, 1, 6)
    distances = view.distances.place(torch.ones(1, 1, 3, 1), falling)[0, 0]
    rows = [[2, 1, 0, math.nan, math.nan], [3, 2, 1, 0, math.nan], [4, 3, 2, 1, 0]]
    seen = view.pattern.dense(1, 3, 5, distances.device)[0]
    expected = torch.tensor(rows)
    assert torch.equal(seen, ~expected.isnan())
    assert torch.equal(distances[seen], expected[seen])
