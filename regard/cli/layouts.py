"""The command `regard plan`, which lays out a training over many devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from regard.cli.options import Command
from regard.cli.output import columns, fitted
from regard.core.options import Argument, Option
from regard.core.tables import Table

GB = 1e9


def plan(
    name: Annotated[str, Argument("NAME", "A published size, a family, or a recipe file.")],
    *,
    devices: Annotated[int, Option("The number of devices.", metavar="N")] = 8,
    memory: Annotated[float, Option("The memory of a device, in GB.", metavar="X")] = 80.0,
    bandwidth: Annotated[
        float, Option("What a device sends to another node, in GB a second.", metavar="X")
    ] = 25.0,
    per_node: Annotated[int, Option("The devices of a node.", metavar="N")] = 8,
    node_bandwidth: Annotated[
        float, Option("What a device sends within its node, in GB a second.", metavar="X")
    ] = 300.0,
    tflops: Annotated[
        float, Option("The speed of a device by its data sheet, in TFLOP/s.", metavar="X")
    ] = 312.0,
    efficiency: Annotated[
        float, Option("The share of this speed that matrix products reach.", metavar="X")
    ] = 0.45,
    batch_size: Annotated[
        int | None, Option("The samples of a step.", metavar="N", default="the paper's")
    ] = None,
    seq_len: Annotated[
        int | None, Option("The tokens of a sample.", metavar="N", default="the paper's")
    ] = None,
    steps: Annotated[
        int | None, Option("The steps of the training.", metavar="N", default="the paper's")
    ] = None,
    optimizer: Annotated[
        str | None, Option("The optimizer.", metavar="NAME", default="the paper's")
    ] = None,
    precision: Annotated[
        Literal["bf16", "fp16", "fp32", "fp64"], Option("The precision of matrix products.")
    ] = "bf16",
) -> Table:
    """Plan a training over many devices: memory, communication, time; nothing is trained.

    Weights are sharded over the devices that read other data (engine.parallel=fsdp), layers are
    split within a node (engine.tensor), activations are kept or computed again
    (engine.checkpointing). A pipeline is priced on paper. The defaults describe nodes of eight
    A100 with 80 GB.

    \b
    Examples:
      regard plan gpt3-175b --devices 1024
      regard plan llama-7b --devices 8 --memory 40 --bandwidth 12.5
      regard plan my-recipe.toml --devices 4 --memory 24 --tflops 82 --json
    """
    from regard.training.layouts import Devices, job
    from regard.training.layouts import plan as planned

    work = job(
        name, batch_size=batch_size, seq_len=seq_len, steps=steps, optimizer=optimizer,
        precision=precision,
    )  # fmt: skip
    machine = Devices(
        devices, memory * GB, bandwidth * GB, per_node, node_bandwidth * GB, tflops * 1e12,
        efficiency,
    )  # fmt: skip
    return planned(work, machine)


def plan_lines(facts: Table) -> Iterator[str]:
    """Yields the candidates as a table, and the choice with its reason."""
    yield (
        f"{facts['model']}: {facts['parameters']:,} parameters, {facts['optimizer']}, "
        f"{facts['precision']}, {facts['state_bytes_per_parameter']} bytes a parameter; "
        f"{facts['samples']:,} samples of {facts['seq_len']:,} tokens in a step"
    )
    head = ("", "data", "tensor", "pipeline", "micro-batch", "checkpointing", "memory", "sent",
            "s/step")  # fmt: skip
    rows = [head, *(row(each, facts["chosen"]) for each in facts["candidates"])]
    yield from map(fitted, columns(rows, "<>>>><>>>"))
    layout = facts["chosen"]
    yield f"chosen   {facts['reason']}"
    memory = {name: size / GB for name, size in layout["memory"].items()}
    yield (
        f"memory   {memory['total']:.1f} GB: states {memory['states']:.1f}, gathered weights "
        f"{memory['gathered']:.1f}, activations {memory['activations']:.1f}, "
        f"logits {memory['logits']:.1f}"
    )
    traffic = {name: size / GB for name, size in layout["traffic"].items()}
    yield (
        f"sent     {traffic['total']:.1f} GB a device and step: sharding "
        f"{traffic['sharding']:.1f}, tensor {traffic['tensor']:.1f}, "
        f"pipeline {traffic['pipeline']:.1f}"
    )
    if "days" in facts:
        yield (
            f"time     {facts['days']:.3g} days for {facts['steps']:,} steps, "
            f"{facts['training_flops']:.3g} FLOPs"
        )
    if not layout["on_paper"]:
        yield f"recipe   {settings(layout)}"


def row(each: Table, chosen: Table) -> tuple[str, ...]:
    state = "*" if each == chosen else "" if each["fits"] else "too large"
    pipeline = f"{each['pipeline']}" + " (paper)" * each["on_paper"]
    return (
        state, f"{each['data']:,}", f"{each['tensor']}", pipeline,
        f"{each['accumulate']} × {each['micro']}", "yes" if each["checkpointing"] else "no",
        f"{each['memory']['total'] / GB:.1f} GB", f"{each['traffic']['total'] / GB:.1f} GB",
        f"{each['seconds']:.3g}",
    )  # fmt: skip


def settings(layout: Table) -> str:
    """Returns the recipe keys of a layout."""
    keys: dict[str, Any] = {
        "engine.parallel": "fsdp",
        "engine.tensor": layout["tensor"],
        "engine.checkpointing": str(layout["checkpointing"]).lower(),
        "batch.size": layout["samples"],
        "batch.grad_accum": layout["accumulate"],
    }
    return " ".join(f"{key}={value}" for key, value in keys.items())


COMMAND = Command(plan, plan_lines)
