"""`regard plan`: its formulas against what processes allocate and send, and against papers."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core.errors import ConfigError, RegardError
from regard.models import create
from regard.training import layouts
from regard.training import recipe as recipes
from regard.training.layout_costs import Costs, Layout, Numbers
from regard.training.layouts import Devices, TrainingJob, job
from regard.training.train_module import checkpoint_blocks
from tests.refusals import refuses
from tests.training import layout_worker
from tests.training.small import data, loop_of, recipe

ROOT = Path(__file__).resolve().parents[2]
A100 = Devices(1024, 80e9, 25e9, 8, 300e9, 312e12, 140 / 312)
WITHIN = 0.1
SHAPE: dict[str, Any] = {"layers": 4, "width": 128, "heads": 4, "ffn_size": 512}
STILL = {"dropout": 0.0, "dropout_attention": 0.0}
MEASURED: dict[str, tuple[str, dict[str, Any], int, bool, str]] = {
    "gpt": ("gpt", STILL | {"dropout_embedding": 0.0}, 1, False, "fp32"),
    "gpt-dropout": ("gpt", {}, 2, False, "fp32"),
    "gpt-checkpointing": ("gpt", STILL | {"dropout_embedding": 0.0}, 2, True, "fp32"),
    "llama": ("llama", {"kv_heads": 2}, 1, False, "fp32"),
    "bert": ("bert", STILL, 1, False, "fp32"),
    "bert-checkpointing": ("bert", STILL, 2, True, "fp32"),
    "t5": ("t5", {"dropout": 0.0, "layers": 2, "head_size": 32}, 1, False, "fp32"),
    # few samples: the rounded weights are a sixth of what is kept; with checkpointing they would be
    # half of it if autocast kept them
    "gpt-bf16": ("gpt", STILL | {"dropout_embedding": 0.0}, 4, False, "bf16"),
    "gpt-checkpointing-bf16": ("gpt", {}, 8, True, "bf16"),
    "t5-bf16": ("t5", {"dropout": 0.0, "layers": 2, "head_size": 32}, 2, False, "bf16"),
}


def costs(name: str, facts: dict[str, Any]) -> tuple[Costs, Layout]:
    """The formulas for a measured run of four processes."""
    family, changes, accumulate, checkpointing, precision = MEASURED[name]
    size = {} if family == "t5" else {"context": 128}
    with torch.device("meta"):
        model = create(family, initialize=False, vocab_size=40, **SHAPE | size | changes)
    targets = facts["targets"]
    priced = Costs(model, facts["longest"], precision=precision, targets=targets, flash=False)
    return priced, Layout(2, 2, 1, 8 // accumulate, accumulate, checkpointing)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What four processes, two by two, have allocated and sent."""
    place = tmp_path_factory.mktemp("layouts")
    data(place / "data", documents=1500)
    files = []
    for name, (family, changes, accumulate, checkpointing, precision) in MEASURED.items():
        engine = {"parallel": "fsdp", "tensor": 2, "checkpointing": checkpointing}
        files.append(place / f"{name}.toml")
        run = recipe(
            family, place / "data", shape=SHAPE | changes,
            batch={"size": 16, "seq_len": 128, "grad_accum": accumulate},
            engine=engine | {"precision": precision}, optimizer={"name": "adamw"},
            budget={"steps": 60},
        )  # fmt: skip
        recipes.write(run, files[-1])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "4", layout_worker.__file__, str(place / "facts.json")]
    done = subprocess.run(
        [*command, *map(str, files)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=590,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    measured: dict[str, dict[str, Any]] = json.loads((place / "facts.json").read_text())
    return measured


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_memory_and_traffic_of_four_processes(facts: dict[str, dict[str, Any]], name: str) -> None:
    """Weights, gradients and optimizer state to the byte; what a forward pass keeps, and what is
    sent, within 10 %."""
    seen = facts[name]
    priced, layout = costs(name, seen)
    memory, traffic = priced.memory(layout), priced.traffic(layout)
    assert seen["states"] == memory.states
    stored = priced.activations(layout)[0] + priced.logits(layout)[1]
    stored += priced.rounded(layout) * (not layout.checkpointing)  # none is left of other blocks
    stored += (
        priced.root.each(layout.tensor) * priced.exact
    )  # gathered until the backward pass ends
    assert seen["kept"] == pytest.approx(stored, rel=WITHIN)
    assert seen["sharding"] == pytest.approx(traffic.sharding, rel=WITHIN)
    assert seen["tensor"] == pytest.approx(traffic.tensor, rel=WITHIN)


def test_checkpointing_keeps_no_rounded_weights() -> None:
    """Autocast would hold those of every block to the end of the forward pass."""
    torch.manual_seed(1)
    model = create("gpt", vocab_size=40, context=8, **SHAPE | STILL | {"dropout_embedding": 0.0})
    ids = torch.arange(8)[None]
    blocks = sum(p.numel() for block in model.blocks for p in block.parameters())
    alive, gradients = [], []
    for again in (False, True):
        if again:
            checkpoint_blocks(model)
        live = layout_worker.LiveStorages()
        with live, torch.autocast("cpu", torch.bfloat16):
            loss = model(ids).square().sum()
            alive.append(live.nbytes())
        loss.backward()
        gradients.append([p.grad for p in model.blocks.parameters()])
        model.zero_grad()
    assert alive[0] - alive[1] > 1.9 * blocks
    assert all(map(torch.equal, *gradients))


# -- time

TIMED_SHAPE = SHAPE | STILL | {"width": 256, "ffn_size": 1024, "dropout_embedding": 0.0}
TIMED_BATCH = {"size": 4, "seq_len": 128}
TIMED: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "one": ({}, {}, False),
    "twice the layers": ({"layers": 8}, {}, False),
    "twice the samples": ({}, {"size": 8}, False),
    "twice the length": ({}, {"seq_len": 256}, False),
    "checkpointing": ({}, {}, True),
}
ALONE = Devices(1, 1e12, 1e12, 1, 1e12, 1e12, 1.0)
TIME_WITHIN = 0.15  # of a step with its optimizer, for which the formula counts products alone


@pytest.fixture(scope="module")
def seconds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """The processor's seconds of five steps of each run; the runs take turns."""
    place = data(tmp_path_factory.mktemp("times"), documents=600)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        loops = {}
        for name, (changes, batch, checkpointing) in TIMED.items():
            loops[name] = loop_of(
                "gpt", place, shape=TIMED_SHAPE | changes, batch=TIMED_BATCH | batch,
                engine={"precision": "fp32", "compile": "no", "checkpointing": checkpointing},
                optimizer={"name": "adamw"}, budget={"steps": 20},
            )  # fmt: skip
        seconds: dict[str, list[float]] = {name: [] for name in loops}
        for loop in loops.values():
            loop.begin_epoch(0)
            loop.step(1)
        for step in range(2, 7):
            for name, loop in loops.items():
                start = time.process_time()
                loop.step(step)
                seconds[name].append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    return seconds


@pytest.mark.long  # other work beside it would decide
@pytest.mark.parametrize("name", list(TIMED)[1:])
def test_times_are_in_the_predicted_ratio(seconds: dict[str, list[float]], name: str) -> None:
    """Of products alone: what a device reaches of its speed is an argument of the plan."""

    def predicted(name: str) -> float:
        changes, batch, checkpointing = TIMED[name]
        sizes = TIMED_BATCH | batch
        with torch.device("meta"):
            shape = TIMED_SHAPE | {"context": sizes["seq_len"]} | changes
            model = create("gpt", initialize=False, vocab_size=40, **shape)
        priced = Costs(model, sizes["seq_len"], precision="fp32", flash=False)
        layout = Layout(1, micro=sizes["size"], checkpointing=checkpointing)
        return layouts.priced(priced, ALONE, layout).seconds

    rounds = zip(seconds[name], seconds["one"], strict=True)
    seen = statistics.median(mine / one for mine, one in rounds)
    assert seen == pytest.approx(predicted(name) / predicted("one"), rel=TIME_WITHIN)


# -- figures of papers


def gpt3() -> TrainingJob:
    return job("gpt3-175b")


def test_zero_needs_sixteen_bytes_a_parameter() -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5 billion parameters with Adam need 120 GB, and shared
    by 64 devices 1.9 GB each."""
    priced = gpt3().costs()
    assert priced.copies * priced.exact == 16
    priced.__dict__ |= {"blocks": [], "inside": Numbers(), "root": Numbers(0, 7_500_000_000)}
    assert priced.memory(Layout(1)).states == pytest.approx(120e9)
    assert priced.memory(Layout(64)).states == pytest.approx(1.9e9, rel=0.02)


def test_the_arithmetic_of_gpt3() -> None:
    """Brown et al. 2020, table D.1: 3.14e23 FLOPs for 300 billion tokens, from 6 per parameter and
    token. Ours count attention and logits, too, and no lookups of embeddings."""
    work = gpt3()
    tokens, flops = 300e9, work.costs().flops(1) / 2048
    assert work.model.parameter_count() * 6 * tokens == pytest.approx(3.14e23, rel=0.01)
    assert flops * tokens == pytest.approx(3.14e23, rel=0.05)


def test_the_days_of_megatron() -> None:
    """Narayanan et al. 2021, 5.1: 300 billion tokens on 1,024 A100 at 140 TFLOP/s each take 34
    days, with activations computed again."""
    work = gpt3()
    layout = Layout(16, 8, 8, 1, 96, True)  # 1,536 samples
    products = work.costs().flops(layout.samples) * 4 / 3 / (1024 * 140e12)
    days = products * 300e9 / (layout.samples * 2048) / 86400
    assert days == pytest.approx(34, rel=0.05)


def test_the_traffic_of_megatron() -> None:
    """Narayanan et al. 2021, 3.2: tensor parallelism sends 8 b s h (t - 1) / t numbers for each
    layer and micro-batch. In bf16 half of ours, the gradients, are in 32 bits."""
    work = dataclasses.replace(gpt3(), precision="fp32")
    priced = work.costs()
    layout = Layout(1, 8)
    numbers = priced.traffic(layout).tensor / priced.exact
    ends = 2 * 7 / 8 * 2048 * (2 * 12288 + 3)  # embeddings and logits
    assert (numbers - ends) / 96 == pytest.approx(8 * 2048 * 12288 * 7 / 8, rel=1e-6)


# -- the choice


def test_gpt3_on_1024_devices() -> None:
    facts = layouts.plan(gpt3(), A100)
    chosen = facts["chosen"]
    assert chosen["fits"] and not chosen["on_paper"] and facts["parameters"] == 174_604_259_328
    assert chosen["data"] * chosen["tensor"] * chosen["pipeline"] == 1024
    assert chosen["memory"]["total"] <= 72e9
    running = [c for c in facts["candidates"] if c["fits"] and not c["on_paper"]]
    assert chosen["seconds"] == min(c["seconds"] for c in running)
    assert 30 < facts["days"] < 50
    json.dumps(facts)


@pytest.mark.parametrize(
    "name", ["gpt2", "t5-11b", "bert-base-uncased", "llama-7b", "transformer-base"]
)
def test_published_sizes_have_a_layout(name: str) -> None:
    facts = layouts.plan(job(name), dataclasses.replace(A100, count=64))
    assert facts["chosen"]["fits"] and facts["fitting"] <= facts["layouts"]


def test_too_little_memory_names_what_would_do() -> None:
    few = dataclasses.replace(A100, count=8, memory=16e9)
    with refuses(RegardError, "8 devices with 16 GB", "gpt3-175b", "--memory", "--devices") as seen:
        layouts.plan(gpt3(), few)
    words = str(seen.value)
    enough = float(words.split("--memory ")[1].split()[0]) * 1e9
    count = int(words.rpartition("--devices ")[2])
    assert layouts.plan(gpt3(), dataclasses.replace(few, memory=enough))["fitting"]
    assert layouts.plan(gpt3(), dataclasses.replace(few, count=count))["fitting"]
    with pytest.raises(RegardError):
        layouts.plan(gpt3(), dataclasses.replace(few, count=count // 2))
    with pytest.raises(RegardError):
        layouts.plan(gpt3(), dataclasses.replace(few, memory=enough * 0.9))


def test_a_recipe_file_is_planned(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'model = "llama"\nsize = "small"\n[batch]\nsize = 12\nseq_len = 64\n[budget]\nsteps = 5\n'
    )
    facts = layouts.plan(job(str(file)), dataclasses.replace(A100, count=4))
    assert (facts["seq_len"], facts["samples"], facts["steps"]) == (64, 12, 5)


def test_impossible_wishes_are_refused() -> None:
    with refuses(ConfigError, "efficiency", "at most 1"):
        dataclasses.replace(A100, efficiency=1.5)
    with refuses(ConfigError, "memory", "above 0"):
        dataclasses.replace(A100, memory=0.0)
    with refuses(ConfigError, "seq_len is 4096", "1024 positions"):
        job("gpt2", seq_len=4096)
