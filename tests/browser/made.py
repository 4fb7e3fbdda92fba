"""One small page of each kind, as it is and with hostile texts wherever others may write."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import regard
from regard.core.text import Bilingual
from regard.evaluation.page import write_page as write_test
from regard.lab.claims import names
from regard.lab.claims.engine.page import gallery
from regard.lab.claims.engine.page import page as claim_page
from regard.lab.compare.report import write_report as write_comparison
from regard.lab.look import look
from regard.methods.probe.page import page as probe_page
from regard.methods.prune.importance import sites
from regard.methods.prune.run import importance_map
from regard.training.report import write_report as write_run
from tests.evaluation.test_page import results
from tests.html import HOSTILE
from tests.lab.claims.measured import measured
from tests.lab.compare.made import comparison
from tests.lab.look.small import speaking
from tests.training.test_report import FACTS, make


def run(out: Path, hostile: bool) -> Path:
    if not hostile:
        return write_run(make(out))
    facts = FACTS | {
        "model": {"name": HOSTILE, "paper": HOSTILE, "config": {HOSTILE: HOSTILE}},
        "objective": HOSTILE, "outcome": HOSTILE, "machine": {HOSTILE: HOSTILE},
        "data": {"path": HOSTILE, "splits": {HOSTILE: {"tokens": 5}}},
    }  # fmt: skip
    records = [{"step": n, "loss": 1.0 / n} for n in (1, 2)]
    records += [{"step": 2, "valid": {HOSTILE: 3.0}}]
    return write_run(make(out, facts, HOSTILE, records))


def test(out: Path, hostile: bool) -> Path:
    if not hostile:
        return write_test(out, results(lambda i: f"kind {i}", lambda i: f"Text {i}.\nAnd more."))
    report = results(lambda i: f"{HOSTILE}{i}", lambda i: HOSTILE)
    report["comparison"] |= {"names": [HOSTILE, HOSTILE], "verdict": HOSTILE}
    return write_test(out, report | {
        "title": HOSTILE, "model": HOSTILE, "data": HOSTILE, "notes": [HOSTILE],
        "signatures": {HOSTILE: HOSTILE}, "thresholds": {HOSTILE: 0.5},
    })  # fmt: skip


def compare(out: Path, hostile: bool) -> Path:
    facts = comparison()
    if hostile:  # its samples and tokens hold markup anyway
        facts["plan"] |= {"sources": [HOSTILE], "prompts": [HOSTILE]}
        for name, cell in facts["cells"].items():
            for sample in cell["samples"] if name != "ngram" else ():
                sample |= {"given": HOSTILE, "prompt": HOSTILE, "text": HOSTILE}
    write_comparison(facts, out)
    return out / "report.html"


def claimed(out: Path, hostile: bool, name: str = "scaling") -> Path:
    study, facts = measured(name, out.parent)
    if hostile:
        study = dataclasses.replace(study, statement=Bilingual(HOSTILE, HOSTILE), source=HOSTILE)
        facts |= {"because": HOSTILE, "printed": {HOSTILE: HOSTILE}, "name": HOSTILE}
    return written(out, claim_page(study, facts))


def bars(out: Path, hostile: bool) -> Path:
    return claimed(out, hostile, "word-order")


def cards(out: Path, hostile: bool) -> Path:
    _, facts = measured("scaling", out.parent)
    if hostile:
        facts = facts | {"changed": [HOSTILE]}
    return written(out, gallery(dict.fromkeys(names()) | {"scaling": facts}))


def probed(hostile: bool) -> dict[str, Any]:
    """As `summary` gives it."""

    def spread(mean: float) -> dict[str, Any]:
        return {"mean": mean, "sd": 0.02, "values": [mean - 0.02, mean + 0.02]}

    def row(layer: int) -> dict[str, Any]:
        own = {"task": {"accuracy": spread(0.6 + 0.1 * layer), "selectivity": spread(0.2)},
               "control": {"accuracy": spread(0.4), "majority": spread(0.3)}}  # fmt: skip
        names = ("distance", "entropy", "first", "previous", "next", "self", "separator")
        heads = [dict.fromkeys(names, 0.1 * (1 + layer + n)) for n in range(3)]
        own["heads"] = {name: spread(0.3) for name in names} | {"heads": heads}
        return {"layer": layer, "trained": own, "untrained": own}

    text = HOSTILE if hostile else "auto:capital"
    relation = {"relation": text, "words": 1200, "layer": 1, "head": 2, "direction": text,
                "accuracy": 0.5, "offset": -1, "baseline": 0.25}  # fmt: skip
    return {
        "task": text, "run": text, "family": "gpt", "depth": 2, "notes": [text], "of": "heads",
        "units": {"train": 90, "test": 10}, "kind": "linear", "seeds": 2,
        "control": {"task": "control"}, "layers": [row(0), row(1), row(2)],
        "baselines": {"task": {"accuracy": {"majority": 0.5}}},
        "relations": {"trained": [[relation]]},
    }  # fmt: skip


def probe(out: Path, hostile: bool) -> Path:
    return written(out, probe_page(probed(hostile)))


def looked(out: Path, hostile: bool) -> Path:
    text = HOSTILE if hostile else "The cat sat on the mat."
    model = speaking("gpt", seed=1)
    return look(model, text, against=speaking("bert", seed=2)).save(out / "look.html")


def deeper(out: Path, hostile: bool) -> Path:
    text, other = (
        (HOSTILE, None) if hostile else ("The cat sat on the mat", "The dog sat on the mat")
    )
    recorded = look(speaking("gpt"), text, lens=True, ablate="all", patch=other, attribute=True)
    return recorded.save(out / "look.html")


def pruned(out: Path, hostile: bool) -> Path:
    model = regard.create("bert", vocab_size=20, width=16, layers=3, heads=4)
    scores = {name: torch.linspace(0.1, 1.0, 4) for name in sites(model)}
    run = HOSTILE if hostile else "my-bert"
    gone = {next(iter(scores)): [1, 3]}
    return written(out, importance_map(run, model, scores, gone))


def written(out: Path, html: str) -> Path:
    file = out / "page.html"
    file.write_text(html, encoding="utf-8")
    return file


PAGES: dict[str, Callable[[Path, bool], Path]] = {
    "run": run, "test": test, "compare": compare, "claim": claimed, "bars": bars,
    "gallery": cards, "probe": probe, "look": looked, "deeper": deeper, "heads": pruned,
}  # fmt: skip


def data_of(page: Any) -> dict[str, Any]:
    """What the page carries, as the browser reads it."""
    text = page.evaluate("document.getElementById('data').textContent")
    return dict(json.loads(text))
