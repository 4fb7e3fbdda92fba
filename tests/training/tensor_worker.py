"""One of several processes that train tiny models with tensor parallelism; started by
test_tensor_parallel.

    python tests/training/tensor_worker.py WHERE LAYOUT PROCESSES RANK CASE…
"""

from __future__ import annotations

import gc
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

from regard.methods.runs import data_for
from regard.models.output import SoftTarget, surprisal
from regard.training.checkpoint import Checkpoints
from regard.training.parallel import ProcessGroup
from regard.training.plan import prepare
from regard.training.progress import SilentProgress
from regard.training.run import TrainingRun
from regard.training.tensor_parallel import in_order, orders_of
from regard.training.vocab_surprisal import split_surprisal
from tests.training.small import recipe

PLAIN: dict[str, Any] = {"layers": 2, "width": 32, "heads": 4, "ffn_size": 64}
SHAPES: dict[str, dict[str, Any]] = {
    "gpt": PLAIN | {"vocab_size": 43},  # which no number of processes divides
    "llama": PLAIN | {"heads": 8, "kv_heads": 4},
    "bert": PLAIN,
    "roberta": PLAIN,
    "longformer": PLAIN | {"window": 8},
    "longformer-characters": PLAIN | {"windows": [4, 8]},
    "transformer": PLAIN | {"layers": 1},
    "t5": PLAIN | {"layers": 1, "head_size": 8, "gated": True, "activation": "gelu_tanh"},
    "transformer-xl": PLAIN | {
        "head_size": 8, "mem_len": 12, "cutoffs": [], "ratio": 1, "same_length": False,
        "clamp_len": 0,
    },
    "xlnet": PLAIN | {"head_size": 8, "mem_len": 12},
    "lstm": {"layers": 1, "width": 16},
}  # fmt: skip
RATES: dict[str, tuple[str, ...]] = {
    "gpt": ("dropout", "dropout_attention", "dropout_embedding"),
    "transformer": ("dropout", "dropout_attention", "dropout_hidden"),
    "t5": ("dropout",),
    "xlnet": ("dropout",),
    "lstm": ("dropout",),
}
USUAL = ("dropout", "dropout_attention")
EPS = {"adafactor": 1e-12}  # see sharded_worker


def build(case: str, where: Path, out: Path, group: ProcessGroup, tensor: int) -> TrainingRun:
    """A run before its first step. A case is FAMILY, FAMILY-optimizer or FAMILY-dropout."""
    family, _, what = case.partition(":")
    rates = dict.fromkeys(RATES.get(family, USUAL), 0.25 if what == "dropout" else 0.0)
    kind = what if what not in ("", "dropout") else "adamw"
    run_recipe = recipe(
        family,
        where / "data",
        shape=SHAPES[family] | rates,
        batch={"size": 16, "grad_accum": 2},
        optimizer={"name": kind, "eps": EPS.get(kind, 1e-8)},
        engine={"parallel": "fsdp", "precision": "fp64", "tensor": tensor},
    )
    watch, cpu = SilentProgress(), torch.device("cpu")
    plan = prepare(run_recipe, group, cpu, watch.note, data=data_for(run_recipe))
    return TrainingRun(plan, out, group, watch, "")


def everything(run: TrainingRun) -> dict[str, Tensor]:
    """Weights and the state of the optimizer as one process would have them."""
    tables = {kind: dict(table) for kind, table in run.loop.tensors().items()}
    return whole({f"{kind} {name}": v for kind, t in tables.items() for name, v in t.items()})


def whole(tensors: dict[str, Any]) -> dict[str, Tensor]:
    return {
        name: (value.full_tensor() if hasattr(value, "full_tensor") else value).clone()
        for name, value in tensors.items()
    }


def gradients(run: TrainingRun) -> dict[str, Tensor]:
    """Those of the first step, of which no trace is left."""
    clear = run.loop.optimizer.zero_grad
    run.loop.optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
    metrics = run.loop.step(6)
    run.loop.optimizer.zero_grad = clear  # type: ignore[method-assign]
    model = run.loop.model
    slopes = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    tensors = whole(in_order(slopes, orders_of(model)))
    run.loop.optimizer.zero_grad()
    return tensors | {"loss": torch.tensor(metrics.loss, dtype=torch.float64)}


def learn(run: TrainingRun, steps: int) -> None:
    for _ in range(steps):
        run.loop.step(6)
    run.plan.batches.drop()


def train(case: str, where: Path, layout: str, group: ProcessGroup, tensor: int) -> None:
    """Learns six steps and saves after the third; then goes on from there a second time, and from
    what another layout has saved."""
    name, directory = case.replace(":", "-"), where / layout
    run = build(case, where, directory / name, group, tensor)
    parts = {"gradients": gradients(run)}
    learn(run, 2)
    run.save()
    parts["three"] = everything(run)
    learn(run, 3)
    parts["six"] = everything(run)
    for source in [layout, *(p.name for p in where.glob("other-*"))]:
        again = build(case, where, directory / name, group, tensor)
        learn(again, 1)  # must leave no trace
        again.checkpoints = Checkpoints(where / source / name / "checkpoints")
        if again.checkpoints.latest() is None:
            continue
        again.restore()
        assert again.loop.progress.step == 3
        learn(again, 3)
        parts[f"resumed-{source}"] = everything(again)
    if run.group.first:
        for kind, tensors in parts.items():
            save_file(tensors, directory / f"{name}.{kind}.safetensors")


def compare_losses(rank: int, world: int) -> None:
    """The loss of an output whose words are divided, and its gradients, are those of a whole one,
    also with smoothed labels, a word that is left out, z-loss and weights of targets."""
    torch.manual_seed(0)
    words, count = 23, 9
    hidden, table = torch.randn(count, 6).double(), torch.randn(words, 6).double()
    bias, targets = torch.randn(words).double(), torch.randint(words, (count,))
    shares = torch.rand(count).double()
    each = -(-words // world)
    mine = slice(rank * each, min((rank + 1) * each, words))
    softs = (None, SoftTarget(0.8, 0.01, z=0.1), SoftTarget(0.7, 0.02, without=20))
    for soft, share in product(softs, (None, shares)):
        leaves = [t.clone().requires_grad_() for t in (hidden, table, bias)]
        loss = surprisal(*leaves, targets, share, soft)
        loss.backward()
        parts = [t.clone().requires_grad_() for t in (hidden, table[mine], bias[mine])]
        split = split_surprisal(
            *parts, targets - mine.start, share, soft, words, mine.start, dist.group.WORLD
        )
        split.backward()
        assert torch.allclose(split, loss, rtol=1e-13, atol=0)
        for part, leaf, chosen in zip(parts, leaves, (slice(None), mine, mine), strict=True):
            assert part.grad is not None and leaf.grad is not None
            assert torch.allclose(part.grad, leaf.grad[chosen], rtol=1e-12, atol=1e-13)


def main() -> None:
    where, layout, processes, rank, *cases = sys.argv[1:]
    tensor = int(layout.rpartition("x")[2])
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    warnings.simplefilter("ignore")
    world, directory = int(processes), Path(where)
    (directory / layout).mkdir(exist_ok=True)
    group = ProcessGroup(int(rank), world)
    if world > 1:
        store = f"file://{directory / f'store-{layout}'}"
        dist.init_process_group("gloo", init_method=store, rank=int(rank), world_size=world)
        compare_losses(int(rank), world)
    for case in cases:
        train(case, directory, layout, group, tensor)
    if world > 1:
        dist.barrier()
        gc.collect()  # tensors that are freed by gloo's threads after Python has ended abort it
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
