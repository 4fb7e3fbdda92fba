"""The pictures of a comparison's page: what the script draws, and the places it draws in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from regard.lab.compare.lineup import NGRAM
from regard.lab.compare.page_parts import (
    grid,
    know,
    lines,
    model_name,
    safe,
    section,
    t,
    value,
)
from regard.lab.compare.page_words import WORDS
from regard.lab.compare.verdict import Said
from regard.training.progress import number, size
from regard.training.report import plain

Report = dict[str, Any]
AXES = ("seconds", "tokens", "operations")
EXACT = ("causal", "recurrent")  # objectives that validate by the exact bits of a text
BREAK = "↵"
POINTS = 200  # of a line; more cannot be seen


def models_of(report: Report) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """(seed, cell) of each model, in the order of the plan."""
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {m: [] for m in report["models"]}
    for name, cell in report["cells"].items():
        model, _, seed = name.rpartition("-")
        if name != NGRAM and model in found:
            found[model].append((int(seed), cell))
    return {model: sorted(own, key=lambda each: each[0]) for model, own in found.items() if own}


# -- learning


def curve_panels(report: Report) -> list[dict[str, Any]]:
    """One picture for each thing that is validated: lines of different things are never together.

    A point is [seconds, tokens, operations, value].
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for model, own in models_of(report).items():
        for seed, cell in own:
            key = measured_by(cell["curve"])
            points = [point(each, cell, key) for each in cell["curve"] if plain(each.get(key))]
            if points:
                group = "exact" if cell["objective"] in EXACT else cell["objective"]
                line = {"model": model, "seed": seed, "points": thinned(points)}
                groups.setdefault((group, key), []).append(line)
    ngram = report["cells"].get(NGRAM)
    order = sorted(groups, key=lambda each: (each[0] != "exact", each))
    return [
        {
            "group": group,
            "measure": key,
            "lines": groups[group, key],
            "line": ngram["bits_per_byte"] if ngram and group == "exact" else None,
            "factors": "perplexity" in key,
        }
        for group, key in order
    ]


def measured_by(curve: list[dict[str, Any]]) -> str:
    """Of what a run validates: the bits, else a perplexity, else the first."""
    known = [k for k in (curve[0] if curve else {}) if k not in ("step", "tokens", "seconds")]
    chosen = [k for k in known if k == "bits_per_byte"] or [k for k in known if "perplexity" in k]
    return (chosen or known or [""])[0]


def point(each: dict[str, Any], cell: dict[str, Any], key: str) -> list[float | None]:
    operations = cell["flops"] / max(cell["steps"], 1) * each["step"]
    return [each.get("seconds"), each["tokens"], operations, each[key]]


def thinned(points: list[list[float | None]]) -> list[list[float | None]]:
    """Every so many-th of them, and the last."""
    step = math.ceil(len(points) / POINTS)
    return points if step == 1 else [*points[:-1:step], points[-1]]


def curves(report: Report) -> str:
    panels = curve_panels(report)
    if not panels:
        return ""
    choices = "".join(
        f'<label><input type="radio" name="axis" value="{axis}"{" checked" * (axis == "tokens")}>'
        f"<span>{t(axis)}</span></label>"
        for axis in AXES
    )
    switch = (
        f'<fieldset class="switch"><legend>{t("by")}</legend>{choices}</fieldset>'
        f'<p class="soft keys">{t("chart_keys")}</p>'
    )
    axis = "".join(f'<span class="axis {axis}">{t(axis)}</span>' for axis in AXES)
    drawn = []
    for place, panel in enumerate(panels):
        group = "objective_" + panel["group"]
        title = t(group) if group in WORDS else safe(panel["group"])
        measure = panel["measure"]
        below = t(measure) if measure in WORDS else safe(measure.replace("_", " "))
        models = list(dict.fromkeys(line["model"] for line in panel["lines"]))
        drawn.append(figure(report, title, below, axis, models, f'data-panel="{place}"',
                            first=place == 0, line=panel["line"] is not None))  # fmt: skip
    body = f'<div class="charts" data-axis="tokens">{"".join(drawn)}</div>'
    return section("curves", f"<p>{t('curves_note')}</p>{switch}{body}")


def figure(
    report: Report,
    title: str,
    measure: str,
    axis: str,
    models: Iterable[str],
    chart: str,
    *,
    first: bool = False,
    line: bool = False,
) -> str:
    legend = "".join(f"<li>{model_name(report, model)}</li>" for model in models)
    if line:
        legend += f'<li><span class="model"><i class="dash"></i>{t("ngram")}</span></li>'
    return (
        f"<figure{' class=first' if first else ''}><figcaption><b>{title}</b> "
        f'<span class="soft">{measure}</span></figcaption><ul class="legend">{legend}</ul>'
        f'<div class="chart" {chart}></div><p class="below">{axis}</p></figure>'
    )


# -- growing texts


def growth(report: Report) -> str:
    costs = report.get("costs")
    if not costs or not costs["curves"]:
        return ""
    names = [model for model in report["models"] if model in costs["curves"]]
    drawn = "".join(
        figure(report, t(f"growth_{key}"), "", t("length"), names, f'data-cost="{key}"')
        for key in ("seconds", "bytes")
    )
    head = [t("model"), *(number(length) for length in costs["lengths"])]
    rows = {
        key: [[model_name(report, m), *(value(p[key], spelt(p[key])) for p in costs["curves"][m])]
              for m in names]
        for key, spelt in (("seconds", seconds), ("bytes", size))
    }  # fmt: skip
    tables = "".join(
        f"<h3>{t(f'growth_{key}')}</h3>{grid(head, own, f'costs-{key}')}"
        for key, own in rows.items()
    )
    numbers = f"<details><summary>{t('numbers')}</summary>{tables}</details>"
    inside = f'<p>{t("growth_note")}</p><div class="charts even">{drawn}</div>{numbers}'
    return section("growth", inside)


def seconds(count: float) -> str:
    if count >= 1:
        return f"{count:.3g} s"
    return f"{count * 1e3:.3g} ms" if count >= 1e-3 else f"{count * 1e6:.3g} µs"


# -- samples


def samples(report: Report) -> str:
    """One block for each prompt, one card for each model."""
    first = {model: own[0][1] for model, own in models_of(report).items()}
    blocks = []
    own = [(model, each) for model, cell in first.items() for each in cell.get("samples") or []]
    for prompt in dict.fromkeys(each["given"] for _, each in own):
        written = [(model, each) for model, each in own if each["given"] == prompt]
        written.sort(key=lambda each: each[1]["kind"] != "generated")
        cards = [card(report, *each) for each in written]
        if cards:
            blocks.append(
                f'<h3><q>{safe(prompt)}</q></h3><div class="cards">{"".join(cards)}</div>'
            )
    return section("samples", f"<p>{t('samples_note')}</p>{''.join(blocks)}") if blocks else ""


def card(report: Report, model: str, sample: dict[str, str]) -> str:
    kind = sample["kind"] if sample["kind"] in WORDS else "generated"
    if kind == "generated":
        text = f"<mark>{lines(sample['prompt'])}</mark>{breaks(sample['text'])}"
    else:
        filled = lines(sample["text"].replace("\n", BREAK))
        text = f'<span class="soft">{lines(sample["prompt"])}</span>\n{filled}'
    return (
        f'<article class="card"><h4>{model_name(report, model)}<small>{t(kind)}</small></h4>'
        f'<p class="written">{text}</p></article>'
    )


def breaks(text: str) -> str:
    """Lines that are empty in a row become a sign and their number: weak models write many."""
    parts = re.split(r"(\n(?:[ \t]*\n)+)", text.rstrip("\n"))
    return "".join(
        f'<span class="soft"> {BREAK}{count}</span>\n'
        if i % 2 and (count := part.count("\n"))
        else lines(part)
        for i, part in enumerate(parts)
    )


# -- attention


def attention_data(report: Report) -> list[dict[str, Any]]:
    """Tokens and layers of every model that has attention, in the order of the plan."""
    first = ((model, own[0][1].get("attention")) for model, own in models_of(report).items())
    return [{"model": model, **held} for model, held in first if held and held["layers"]]


def attention(report: Report) -> str:
    held = attention_data(report)
    if not held:
        return ""
    models = models_of(report)
    without = [m for m, own in models.items() if own[0][1].get("attention", 0) is None]
    blocks = []
    for place, each in enumerate(held):
        maps = "".join(
            f'<figure><div class="heat" data-model="{place}" data-layer="{i}"></div>'
            f"<figcaption>{layer_name(layer['number'])}</figcaption></figure>"
            for i, layer in enumerate(each["layers"])
        )
        name = model_name(report, each["model"])
        blocks.append(f'<article class="maps"><h4>{name}</h4><div>{maps}</div></article>')
    note = "".join(
        f"<p class=soft>{model_name(report, m)} {t('no_attention')}</p>" for m in without
    )
    sentence = f'<p class="sentence"><q>{safe(held[0]["text"])}</q></p>'
    inside = f"<p>{t('attention_note')}</p>{sentence}<div class=looks>{''.join(blocks)}</div>{note}"
    return section("attention", inside)


def layer_name(count: int) -> str:
    return know(Said(f"layer {count}", f"第 {count} 层")._asdict())
