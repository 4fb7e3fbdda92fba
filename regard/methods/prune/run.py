"""Prunes the least important parts of a model and reports its size, its speed and its score.

Heads and feed-forward units are really removed. Single weights become zeros, which a dense matrix
product computes as slowly as any other number.

DIR/
  config.json, model.safetensors, …  the model, opened like any other
  prune.json                         the report
  heads.html                         the importance of each head, if it was measured
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.block import FeedForward, Gated
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.formats.directory import Checkpoint, load
from regard.methods.options import PruneOptions as Plan
from regard.methods.prune.importance import importances, losses, normalized
from regard.methods.smaller import Watch, check_out, write_measured
from regard.models.extensions import extend
from regard.models.extensions.pruned import networks_of, remaining, sites
from regard.report import pages
from regard.report.charts import HeatChart
from regard.training.optimizer import matrices_of

REPORT, PICTURE = "prune.json", "heads.html"
ZEROS = (
    "the zeros of --weights are stored and multiplied like any other number: the model is neither "
    "smaller nor faster, and further training changes them unless optimizer.keep_sparsity=true"
)

Scores = dict[str, Tensor]  # by attention or network: one number for each head or unit


def prune(run: str, out: Path, plan: Plan, *, watch: Watch = lambda what: None) -> dict[str, Any]:
    """Writes the pruned model of `run` to `out` and returns the report."""
    check_out(out)
    before, after = load(run), load(run)
    check(run, after.model, plan)
    # Counted here because `importance_scores` adds a tagger's CRF, which is saved apart.
    count = before.model.parameter_count()
    heads, units = importance_scores(before, plan, watch)
    removed = chosen_heads(after.model, heads, plan)
    staying = chosen_units(units, plan.ffn_units) if plan.ffn_units else {}
    remove(after.model, removed, staying)
    zeros = zero_smallest(after.model, plan.weights, plan.scope) if plan.weights else None
    total = sum(len(remaining(parts[0])) for parts in sites(before.model).values())
    report: dict[str, Any] = {
        "run": run, "out": str(out), "notes": [ZEROS] if plan.weights else [],
        "parameters": {"before": count, "after": after.model.parameter_count()},
        "heads": {"before": total, "after": total - sum(map(len, removed.values())),
                  "removed": {name: sorted(gone) for name, gone in removed.items()}},
        "ffn_units": {n: {"before": units[n].numel(), "after": len(k)} for n, k in staying.items()},
        "zeros": zeros, "by": plan.method if plan.ffn_units else None,
        "importance": {name: values.tolist() for name, values in heads.items()},
    }  # fmt: skip
    if plan.data and (plan.heads or (plan.ffn_units and plan.method == "gradient")):
        report["notes"].append("importance and score were measured on the same data")
    files = {REPORT: ""} | (
        {PICTURE: importance_map(run, before.model, heads, removed)} if heads else {}
    )
    speed = bool(plan.heads or plan.listed or plan.ffn_units)  # zeros change no speed
    return write_measured(run, before, after, out, plan, report, files, watch, speed=speed)


def check(run: str, model: nn.Module, plan: Plan) -> None:
    """Raises ConfigError for a plan that this model cannot follow, before anything is measured."""
    extensions: Any = model.extensions
    if "int8" in extensions:
        raise ConfigError(
            f"{run} is quantized, and a quantized model cannot be pruned; prune the model that it "
            "was made from, then quantize it"
        )
    kind = type(model).__name__
    if (plan.heads or plan.listed) and not sites(model):
        raise ConfigError(
            f"{run} is a {kind}, which has no attention heads to prune; leave "
            "--heads and --head-list out"
        )
    if plan.ffn_units and not networks_of(model):
        raise ConfigError(
            f"{run} is a {kind}, which has no feed-forward networks to prune; leave --ffn-units out"
        )
    if plan.heads:
        heads_to_go(model, plan.heads)
    for name, network in networks_of(model).items() if plan.ffn_units else ():
        units_to_go(name, network.wide.out_features, plan.ffn_units)
    listed_heads(model, plan.listed)


def importance_scores(loaded: Checkpoint, plan: Plan, watch: Watch) -> tuple[Scores, Scores]:
    """Returns the importance of each head and of each feed-forward unit, as far as the plan needs
    them."""
    units = magnitudes(loaded.model) if plan.ffn_units and plan.method == "magnitude" else {}
    if not plan.heads and (not plan.ffn_units or units):
        return {}, units
    watch("measuring importance")
    with losses(loaded, plan.data, plan.samples, plan.limit, plan.testing) as runs:
        measured = importances(loaded.model, runs)
    heads = normalized(measured.heads) if plan.normal else measured.heads
    return (heads if plan.heads else {}), units or measured.units


def magnitudes(model: nn.Module) -> Scores:
    """Returns, for each unit, the norm of its input weights times the norm of its output
    weights."""
    products = {}
    for name, network in networks_of(model).items():
        into = network.wide.weight.detach().double().norm(dim=1)
        if isinstance(network, Gated):
            into = into * network.gate.weight.detach().double().norm(dim=1)
        products[name] = into * network.narrow.weight.detach().double().norm(dim=0)
    return products


# -- choosing


def chosen_heads(model: nn.Module, scores: Scores, plan: Plan) -> dict[str, list[int]]:
    """Returns the numbers of the heads to remove, by the name of their attention."""
    if plan.listed:
        return listed_heads(model, plan.listed)
    return least_heads(model, scores, plan.heads) if plan.heads else {}


def least_heads(model: nn.Module, scores: Scores, share: float) -> dict[str, list[int]]:
    """Chooses the least important heads of the whole model; every attention keeps at least one
    head."""
    goal = heads_to_go(model, share)
    numbers = {name: remaining(parts[0]) for name, parts in sites(model).items()}
    ranked = sorted(
        (value, name, head)
        for name, heads in numbers.items()
        for head, value in zip(heads, scores[name].tolist(), strict=True)
    )
    removed: dict[str, list[int]] = {}
    for _, name, head in ranked:
        if goal and len(numbers[name]) > 1:
            numbers[name].remove(head)
            removed.setdefault(name, []).append(head)
            goal -= 1
    return {name: sorted(removed[name]) for name in numbers if name in removed}


def heads_to_go(model: nn.Module, share: float) -> int:
    counts = [len(remaining(parts[0])) for parts in sites(model).values()]
    total, layers = sum(counts), len(counts)
    goal = round(share * total)
    projections = [parts[0].project for parts in sites(model).values()]
    if any(project.kv_heads != project.heads for project in projections):
        raise ConfigError(
            "heads of this model share keys and values in groups, and only whole groups can be "
            "removed; name the heads of whole groups with --head-list"
        )
    if not goal:
        raise ConfigError(
            f"--heads {share:g} of {total} heads is less than one head; give a larger share"
        )
    if goal > total - layers:
        most = (total - layers) / total
        raise ConfigError(
            f"{goal} of {total} heads in {layers} layers cannot be removed: some layer would lose "
            + (f"every head; give at most {most:.2f}" if most else "its only head; prune no heads")
        )
    return goal


def listed_heads(model: nn.Module, listed: Sequence[str]) -> dict[str, list[int]]:
    """Parses entries such as "blocks.0:1,3". Heads have the numbers of the unpruned model, from
    0."""
    attentions, removed = sites(model), dict[str, list[int]]()
    for entry in (part for text in listed for part in text.split(";")):
        place, colon, numbers = entry.strip().partition(":")
        heads = numbers.replace(" ", "").split(",")
        if not colon or not all(head.isdigit() for head in heads):
            raise InputError(f"{entry!r} names no heads; write LAYER:HEADS, such as blocks.0:1,3")
        names = [n for n in attentions if n == place or n.startswith(f"{place}.")]
        if not names:
            raise UnknownName("layer", place, attentions, "(of this model)")
        if len(names) > 1:
            raise InputError(f"{place!r} names several layers; name one of {', '.join(names)}")
        name = names[0]
        there, gone = remaining(attentions[name][0]), removed.setdefault(name, [])
        for head in map(int, heads):
            if head not in there:
                raise InputError(f"{name} has the heads {there}, and {head} is not one of them")
            gone += [head] if head not in gone else []
        if len(gone) == len(there):
            raise ConfigError(f"every head of {name} would be removed; leave at least one")
    return removed


def chosen_units(scores: Scores, share: float) -> dict[str, list[int]]:
    """Returns the units that stay, in their order; every network loses the same share."""
    staying = {}
    for name, values in scores.items():
        gone = units_to_go(name, values.numel(), share)
        order = torch.argsort(values, descending=True, stable=True)
        staying[name] = sorted(order[: values.numel() - gone].tolist())
    return staying


def units_to_go(name: str, units: int, share: float) -> int:
    gone = round(share * units)
    if not 0 < gone < units:
        raise ConfigError(
            f"--ffn-units {share:g} of the {units} units of {name} removes {gone}; at least one "
            "unit must go and one must stay: give another share"
        )
    return gone


# -- removing


def remove(model: Any, heads: dict[str, list[int]], units: dict[str, list[int]]) -> None:
    """Removes heads and units in place. What was pruned before stays pruned."""
    if not heads and not units:
        return
    before = model.extensions.pop("pruned", {"heads": {}, "ffn_units": {}})
    parts, networks = sites(model), networks_of(model)
    left = {n: [h for h in remaining(parts[n][0]) if h not in gone] for n, gone in heads.items()}
    for name, staying in units.items():
        to_front(networks[name], staying)
    options = {
        "heads": before["heads"] | left,
        "ffn_units": before["ffn_units"] | {name: len(staying) for name, staying in units.items()},
    }
    extend(model, "pruned", options)


@torch.no_grad()
def to_front(network: FeedForward, staying: Sequence[int]) -> None:
    """Moves these units to the front; the network still computes the same function."""
    rest = sorted(set(range(network.wide.out_features)) - set(staying))
    order = torch.tensor([*staying, *rest], device=network.wide.weight.device)
    for layer in (network.wide, network.gate) if isinstance(network, Gated) else (network.wide,):
        layer.weight.copy_(layer.weight[order])
        if layer.bias is not None:
            layer.bias.copy_(layer.bias[order])
    network.narrow.weight.copy_(network.narrow.weight[:, order])


@torch.no_grad()
def zero_smallest(model: nn.Module, share: float, scope: str) -> dict[str, Any]:
    """Sets the smallest weights of the layers' matrices to 0; weights of equal size are all set or
    all left."""
    matrices = list(matrices_of(model))
    every = sum(matrix.numel() for matrix in matrices)
    if not round(share * every):
        raise ConfigError(
            f"--weights {share:g} of {every:,} weights is less than one weight; give a larger share"
        )
    groups = [matrices] if scope == "global" else [[matrix] for matrix in matrices]
    for group in groups:
        sizes = torch.cat([matrix.abs().flatten() for matrix in group])
        count = round(share * sizes.numel())
        limit = sizes.kthvalue(count).values if count else -1.0
        for matrix in group:
            matrix[matrix.abs() <= limit] = 0.0
    zeros = sum(int((matrix == 0).sum()) for matrix in matrices)
    return {"scope": scope, "weights": every, "zeros": zeros}


# -- the report


def importance_map(
    run: str, model: nn.Module, scores: Scores, removed: Mapping[str, Sequence[int]]
) -> str:
    """Returns a page with a heat map: one row for each attention. The cell of a head that it does
    not have is empty. Below it stand the heads that were removed."""
    numbers = {name: remaining(parts[0]) for name, parts in sites(model).items()}
    columns = range(max(map(max, numbers.values())) + 1)
    rows = []
    for name, heads in numbers.items():
        values = dict(zip(heads, scores[name].tolist(), strict=True))
        rows.append([values.get(head, math.nan) for head in columns])
    labels = {name: name.removesuffix(".layer").removesuffix(".attention") for name in numbers}
    words = pages.words("prune")
    names = [pages.filled(words["head"], number=str(head)) for head in columns]
    chart = HeatChart(words["title"], list(labels.values()), names, rows)
    gone = [(labels[name], ", ".join(map(str, heads))) for name, heads in removed.items()]
    return pages.page("prune", words["title"], locales=["prune"], charts={"heads": chart},
                      about=[(words["model"], run)], gone=gone)  # fmt: skip
