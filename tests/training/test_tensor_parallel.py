"""A model that is split over processes learns what one process learns, in every family."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from regard.core.errors import ConfigError
from regard.models import FAMILIES, create
from regard.training import parallel
from regard.training.parallel import ProcessGroup
from regard.training.tensor_parallel import check, check_dropout, drawn_part, planned
from tests.refusals import refuses
from tests.training import tensor_worker
from tests.training.small import data, loop_of
from tests.training.tensor_worker import SHAPES

ROOT = Path(__file__).resolve().parents[2]
OPTIMIZERS = ("gpt:muon", "t5:adafactor", "xlnet:bert-adam")
DROPOUT = (
    "gpt:dropout",
    "t5:dropout",
    "xlnet:dropout",
    "longformer:dropout",
    "transformer:dropout",
)
# Relative to the norm of a tensor, or to the loss where the true gradient is 0 (biases of keys).
GRADIENT, WEIGHT = 1e-13, 1e-10


def run(where: Path, layout: str, processes: int, cases: list[str]) -> None:
    """Runs the cases in so many processes; `layout` is data x tensor."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, tensor_worker.__file__, str(where), layout, str(processes)]
    started = [
        subprocess.Popen([*command, str(rank), *cases], env=environment, stderr=subprocess.PIPE,
                         text=True)
        for rank in range(processes)
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=590)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert not any(process.returncode for process in started), "\n".join(errors)[-4000:]


def parts(where: Path, layout: str, case: str, kind: str) -> dict[str, Tensor]:
    return load_file(where / layout / f"{case.replace(':', '-')}.{kind}.safetensors")


def check_equal(where: Path, one: str, two: str, case: str) -> None:
    """Compares the gradients of a step, and weights and optimizer after three and six."""
    first, second = (parts(where, layout, case, "gradients") for layout in (one, two))
    assert first.keys() == second.keys()
    for name, value in first.items():
        scale = max(float(value.norm()), 1e-3 * float(first["loss"]))
        assert float((second[name] - value).norm()) <= GRADIENT * scale, name
    for kind in ("three", "six"):
        first, second = (parts(where, layout, case, kind) for layout in (one, two))
        assert first.keys() == second.keys()
        for name, value in first.items():
            assert value.dtype == second[name].dtype and value.shape == second[name].shape
            assert float((second[name].double() - value).abs().max()) <= WEIGHT, (kind, name)


def check_resumed(where: Path, layout: str, source: str, case: str) -> None:
    """The same layout goes on bit for bit; another one within the rounding of fp64."""
    straight = parts(where, layout, case, "six")
    resumed = parts(where, layout, case, f"resumed-{source}")
    assert straight.keys() == resumed.keys()
    for name, value in straight.items():
        if layout == source:
            assert torch.equal(value, resumed[name]), name
        else:
            assert float((resumed[name].double() - value).abs().max()) <= WEIGHT, name


def test_two_processes_equal_one_with_dropout(tmp_path: Path) -> None:
    """Also dropout in the split heads and the split network draws the same masks; and a checkpoint
    goes on, in the same layout and in the other."""
    data(tmp_path / "data")
    run(tmp_path, "other-1x1", 1, ["gpt:dropout"])
    run(tmp_path, "1x2", 2, ["gpt:dropout"])
    check_equal(tmp_path, "other-1x1", "1x2", "gpt:dropout")
    check_resumed(tmp_path, "1x2", "1x2", "gpt:dropout")
    check_resumed(tmp_path, "1x2", "other-1x1", "gpt:dropout")
    sizes = [
        {file.name: file.stat().st_size for file in path.glob("*.safetensors")}
        for path in sorted(tmp_path.glob("*/gpt-dropout/checkpoints/step-00000003"))
    ]
    assert len(sizes) == 2 and sizes[0] == sizes[1]  # the files are those of one process


CASES = [*SHAPES, *OPTIMIZERS]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process has learned."""
    place = tmp_path_factory.mktemp("tensor")
    data(place / "data")
    run(place, "other-1x1", 1, [*CASES, *DROPOUT])
    return place


@pytest.fixture(
    scope="module",
    # the first is FSDP alone, which test_sharded knows with two processes
    params=[pytest.param("4x1", marks=pytest.mark.long), "2x2", "1x4"],
)
def layout(request: pytest.FixtureRequest, place: Path) -> str:
    """A mesh whose four processes have learned the same, data x tensor."""
    name = str(request.param)
    cases = [*CASES, *(DROPOUT if name == "1x4" else ())]
    if name == "1x4":  # of its heads, two have a dilated window
        cases.remove("longformer-characters")
    run(place, name, 4, cases)
    return name


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_family_on_every_mesh(place: Path, case: str, layout: str) -> None:
    if (case, layout) == ("longformer-characters", "1x4"):
        with refuses(ConfigError, "2 heads", "engine.tensor"):
            check(create(case, **SHAPES[case]), 4)
        return
    check_equal(place, "other-1x1", layout, case)
    check_resumed(place, layout, layout, case)
    check_resumed(place, layout, "other-1x1", case)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["1x4"], indirect=True)
@pytest.mark.parametrize("case", DROPOUT)
def test_the_masks_of_four_processes_are_those_of_one(place: Path, case: str, layout: str) -> None:
    check_equal(place, "other-1x1", layout, case)


def test_a_plan_names_parts_of_every_family() -> None:
    """Every pattern of a card fits something, and all large matrices of the layers are split."""
    for name, card in FAMILIES.items():
        with torch.device("meta"):
            model = create(name, **SHAPES[name])
        split = {id(p) for part, style in planned(model).values() if style != "shared"
                 for p in part.parameters(recurse=False)}  # fmt: skip
        assert split, name
        for layer, parameter in model.named_parameters():
            if "blocks" in layer and parameter.dim() == 2:
                assert id(parameter) in split, (name, layer)
        own = {k: v for k, v in card.tensor_plan.items() if "*" not in k}
        assert own.keys() <= planned(model).keys(), name


def test_a_drawn_part_is_a_part_of_the_whole_mask() -> None:
    shape, cpu = torch.Size((2, 2, 3, 5)), torch.device("cpu")
    parts = []
    for rank in range(3):
        torch.manual_seed(1)
        parts.append(drawn_part(rank, 3, 1, shape, 0.5, cpu))
    torch.manual_seed(1)
    from regard.attention.dropout import keep_mask

    assert torch.equal(torch.cat(parts, 1), keep_mask(torch.Size((2, 6, 3, 5)), 0.5, cpu))


@pytest.mark.parametrize(
    ("family", "changes", "count", "words"),
    [
        ("gpt", {}, 3, ("4 heads", "not 3")),
        ("llama", {"kv_heads": 2}, 4, ("2 key/value heads",)),
        ("gpt", {"ffn_size": 66}, 4, ("wide", "66")),
        ("transformer", {"learns_padding": False}, 2, ("learns_padding",)),
        ("lstm", {"vocab_size": 3}, 4, ("3 rows",)),
    ],
)
def test_what_cannot_be_split_is_refused(
    family: str, changes: dict[str, object], count: int, words: tuple[str, ...]
) -> None:
    model = create(family, **SHAPES[family] | changes)
    with refuses(ConfigError, *words):
        check(model, count)


def test_layouts_that_do_not_exist_are_refused() -> None:
    assert ProcessGroup(5, 8).split(2).data_rank == 2
    assert ProcessGroup().split(2) == ProcessGroup()
    for tensor in (0, 3):
        with refuses(ConfigError, f"engine.tensor is {tensor}", "4 processes"):
            ProcessGroup(0, 4).split(tensor)
    with refuses(ConfigError, "engine.tensor is 2", "engine.parallel=fsdp"):
        parallel.engine("ddp", torch.nn.Linear(1, 1), ProcessGroup(0, 4, tensor=2), 1, 1)
    model = create("gpt", **SHAPES["gpt"])
    with refuses(ConfigError, "dropout", "cuda"):
        check_dropout(model, torch.device("cuda"))
    model.extensions["pointer"] = {}
    with refuses(ConfigError, "pointer"):
        check(model, 2)


def test_layers_that_share_a_parameter_are_refused(where: Path) -> None:
    shape = SHAPES["xlnet"] | {"untied": False}
    with refuses(ConfigError, "share", "shape.untied=true"):
        parallel.refuse_shared(loop_of("xlnet", where, shape=shape).model)
