"""Claims of papers and tutorials as experiments: one short file declares each claim."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, UnknownName
from regard.core.text import Bilingual
from regard.lab.claims import library
from regard.lab.claims.engine import finetuning, labeled_texts, texts
from regard.lab.claims.engine.claim import (
    LEAST_SEEDS,
    Axis,
    Chart,
    Claim,
    ClaimExperiment,
)
from regard.lab.claims.engine.experiment import ComputedExperiment, TrainedExperiment
from regard.lab.claims.engine.finetuning import TUNING, FinetunedExperiment, PretrainedStart
from regard.lab.claims.engine.rules import rule_of

LIBRARY = Path(library.__file__).parent


@cache
def names() -> list[str]:
    """Returns the names of all claims in alphabetical order."""
    return sorted(file.stem.replace("_", "-") for file in LIBRARY.glob("*.toml"))


def claim(name: str) -> Claim:
    """Reads the declaration of a claim."""
    if name not in names():
        raise UnknownName("claim", name, names())
    stem = name.replace("-", "_")
    table = tomllib.loads((LIBRARY / f"{stem}.toml").read_text(encoding="utf-8"))
    experiment = experiment_of(stem, table)
    seeds = table.get("seeds", LEAST_SEEDS)
    if not isinstance(experiment, ComputedExperiment) and seeds < LEAST_SEEDS:
        raise ConfigError(
            f"{name} trains models with {seeds} seeds; declare at least {LEAST_SEEDS} seeds"
        )
    axis = table.pop("axis", None)
    charts = [(chart, Bilingual(chart.pop("en"), chart.pop("zh"))) for chart in table.pop("charts")]
    return Claim(
        name=name,
        statement=Bilingual(**table.pop("statement")),
        setting=Bilingual(**table.pop("setting")),
        arms=tuple(table.pop("arms", None) or experiment.arms),  # type: ignore[attr-defined]
        experiment=experiment,
        rule=rule_of(table.pop("rule"), table.pop("provided", [])),
        charts=tuple(Chart(title=title, **chart) for chart, title in charts),
        axis=axis
        and Axis(Bilingual(axis.pop("en"), axis.pop("zh")), tuple(axis.pop("places")), **axis),
        notes=tuple(Bilingual(**note) for note in table.pop("notes", [])),
        revised=tuple(table.pop("revised", ())),
        **table,
    )


def experiment_of(stem: str, table: dict[str, Any]) -> ClaimExperiment:
    """Returns the experiment that a claim declares under `trained` or `tuned`, otherwise the
    EXPERIMENT of its module.

    A declaration names functions: texts and examples of the engine, and `look` of its own module.
    """

    def text(name: str) -> Any:
        return getattr(texts, name, None) or getattr(labeled_texts, name)

    trained, tuned = table.pop("trained", None), table.pop("tuned", None)
    declared = trained or tuned
    if declared is None or "look" in declared:
        module = import_module(f"regard.lab.claims.library.{stem}")
        if declared is None:
            experiment: ClaimExperiment = module.EXPERIMENT
            return experiment
        declared["look"] = getattr(module, declared["look"])
    if trained:
        return TrainedExperiment(text(trained.pop("text")), **trained)
    start, common = tuned.pop("start"), tuned.pop("common", {})
    if isinstance(start, str):  # a start that several claims share, with its fine-tuning settings
        begin, common = getattr(finetuning, start), TUNING | common
    else:
        begin = PretrainedStart(text=text(start.pop("text")), **start)
    examples = getattr(labeled_texts, tuned.pop("examples"))
    return FinetunedExperiment(begin, examples, common, **tuned)
