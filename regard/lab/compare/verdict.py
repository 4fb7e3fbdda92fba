"""States the results of a comparison in words, in English and Chinese, and no more than it
showed.

Two models are called different only if their difference is larger than the noise: with several
seeds by Welch's t-test of their figures; with one seed if the 95% interval of their difference
excludes zero, with both resampled over the same documents (or words, or pairs). With one seed, the
verdict says so.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from regard.core.text import Bilingual as Bilingual  # exported again for the report
from regard.lab.compare.lineup import NGRAM
from regard.metrics.base import Array
from regard.metrics.bootstrap import intervals
from regard.report.pages import words

FEWEST = 6  # examples; five examples agree by chance once in sixteen times
RARE = 0.05  # the significance level
KEPT = 0.05  # the share of the budget by which the spent amount may differ


@dataclass(frozen=True)
class RankedMetric:
    """A metric that models can be ranked by."""

    key: str
    name: Bilingual
    falling: bool = False  # whether lower is better
    share: bool = False  # whether it is a share, shown in percent

    def shown(self, value: float) -> str:
        return f"{value:.1%}" if self.share else f"{value:.3f}"


BITS = RankedMetric("bits_per_byte", Bilingual("bits per byte", "每字节比特数"), falling=True)
HIDDEN = RankedMetric(
    "masked_accuracy", Bilingual("hidden words guessed", "遮盖词猜对率"), share=True
)
PAIRS = RankedMetric(
    "minimal_pairs", Bilingual("real sentences preferred", "偏好原句的比例"), share=True
)
PSEUDO = RankedMetric(
    "pseudo_bits_per_byte", Bilingual("pseudo bits per byte", "伪每字节比特数"), falling=True
)
PROBE = RankedMetric("probe_accuracy", Bilingual("linear probe", "线性探针准确率"), share=True)
PREFIX = RankedMetric(
    "prefix_bits_per_byte",
    Bilingual("bits per byte, given a prefix", "给定前文的每字节比特数"),
    falling=True,
)
RANKED = (BITS, HIDDEN, PAIRS)
MEASURES = (BITS, PREFIX, PSEUDO, HIDDEN, PAIRS, PROBE)


class RatioSums(NamedTuple):
    """The parts of a figure: over all examples, the sum of `sums` divided by the sum of `sizes`."""

    sums: list[float]
    sizes: list[float]


@dataclass(frozen=True)
class Score:
    """One metric of a model, over its seeds."""

    model: str
    values: tuple[float, ...]
    interval: tuple[float, float] | None  # of the first seed, over examples
    each: RatioSums | None = field(default=None, compare=False)  # of the first seed, by example

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def error(self) -> float | None:
        """Returns the standard error of the mean."""
        return None if self.deviation is None else self.deviation / math.sqrt(len(self.values))


def scores(record: dict[str, Any], measure: RankedMetric) -> list[Score]:
    """Returns all models that have the metric, the best first."""
    by_model: dict[str, list[dict[str, Any]]] = {}
    for name, cell in record["cells"].items():
        if name != NGRAM and cell.get(measure.key) is not None:
            by_model.setdefault(name.rpartition("-")[0], []).append(cell)
    ranked = []
    for model, cells in by_model.items():
        span = cells[0].get(f"{measure.key}_interval")
        values = tuple(float(cell[measure.key]) for cell in cells)
        each = cells[0].get(f"{measure.key}_each")
        ranked.append(
            Score(
                model,
                values,
                None if span is None else (span[0], span[1]),
                None if each is None else RatioSums(**each),
            )
        )
    return sorted(ranked, key=lambda s: s.mean if measure.falling else -s.mean)


def apart(one: Score, other: Score) -> bool:
    """Returns whether the difference is larger than the noise."""
    if one.error is not None and other.error is not None:
        return more_than_noise(one.mean - other.mean, one, other)
    if one.each and other.each and one.each.sizes == other.each.sizes:
        return differ(one.each, other.each)
    if one.interval is None or other.interval is None:
        return False
    (low, high), (least, most) = one.interval, other.interval
    return high < least or most < low


def more_than_noise(difference: float, *models: Score) -> bool:
    """Returns whether means over seeds would differ this much by chance less than once in twenty
    times (Welch's t-test)."""
    from scipy import stats

    noisy = [(score.error**2, len(score.values) - 1) for score in models if score.error]
    if not noisy:
        return difference != 0
    square = sum(each for each, _ in noisy)
    free = square**2 / sum(each**2 / count for each, count in noisy)
    return 2 * float(stats.t.sf(abs(difference) / math.sqrt(square), free)) < RARE


def noise_is_known(one: Score, other: Score) -> bool:
    """Returns whether there is an estimate of the noise of their difference."""
    if one.error is not None and other.error is not None:
        return True
    if one.each and other.each and one.each.sizes == other.each.sizes:
        return len(one.each.sizes) >= FEWEST
    return one.interval is not None and other.interval is not None


def differ(one: RatioSums, other: RatioSums) -> bool:
    """Returns whether the interval of their difference excludes zero.

    What makes an example easy or hard for both models does not count as noise here.
    """
    if len(one.sizes) < FEWEST:
        return False
    difference, sizes = np.subtract(one.sums, other.sums), np.array(one.sizes, np.float64)

    def figure(weights: Array) -> Array:
        ratio: Array = (weights @ difference) / np.maximum(weights @ sizes, 1)
        return ratio

    span = intervals({"difference": figure}, len(sizes))["difference"]
    return span is not None and not span.low <= 0 <= span.high


def leaders(ranked: list[Score]) -> list[Score]:
    """Returns the best model, and all models that do not differ from it by more than the noise."""
    return [score for score in ranked if score is ranked[0] or not apart(ranked[0], score)]


def say(key: str, **values: str | list[str] | Bilingual) -> Bilingual:
    """Returns a sentence of the verdict in both languages; lists of names follow each language's
    style."""

    def shown(value: str | list[str] | Bilingual, english: bool) -> str:
        if isinstance(value, Bilingual):
            return value.en if english else value.zh
        if isinstance(value, str):
            return value
        if not english:
            return "、".join(value)
        return value[0] if len(value) == 1 else f"{', '.join(value[:-1])} and {value[-1]}"

    en, zh = words("verdict")[key]
    return Bilingual(
        en.format(**{name: shown(value, True) for name, value in values.items()}),
        zh.format(**{name: shown(value, False) for name, value in values.items()}),
    )


def verdict(record: dict[str, Any]) -> list[Bilingual]:
    """Returns the findings, the most important one first."""
    ranked = ((measure, scores(record, measure)) for measure in RANKED)
    return [
        *(ranking(measure, own) for measure, own in ranked if own),
        *probed(record),
        *beside_ngram(record),
        *costs(record),
        *beside_budget(record),
        *trained_once(record),
        *([say("missing", models=record["missing"])] if record["missing"] else []),
    ]


def ranking(measure: RankedMetric, ranked: list[Score]) -> Bilingual:
    best, first, worst = leaders(ranked), ranked[0], ranked[-1]
    value, name = measure.shown(first.mean), measure.name
    if len(ranked) == 1:
        return say("alone", model=first.model, measure=name, value=value)
    last = Bilingual("", "")
    if worst not in best:
        last = say("last", model=worst.model, value=measure.shown(worst.mean))
    if len(best) == 1:
        return say("best", measure=name, model=first.model, value=value, last=last)
    known = all(noise_is_known(first, score) for score in best[1:])
    models = [score.model for score in best]
    key = "not_apart" if known else "noise_unknown"
    return say(key, measure=name, models=models, value=value, last=last)


def beside_ngram(record: dict[str, Any]) -> list[Bilingual]:
    ranked, ngram = scores(record, BITS), record["cells"].get(NGRAM)
    if not ranked or ngram is None:
        return []
    limit, shown = ngram["bits_per_byte"], f"{ngram['bits_per_byte']:.3f}"
    near = [s.model for s in ranked if not more_than_noise(s.mean - limit, s)]
    beat = [s.model for s in ranked if s.mean < limit and s.model not in near]
    if not beat and not near:
        return [say("ngram_unbeaten", limit=shown)]
    beaten = [say("ngram_beaten", limit=shown, models=beat)] if beat else []
    return beaten + ([say("ngram_near", limit=shown, models=near)] if near else [])


def costs(record: dict[str, Any]) -> list[Bilingual]:
    ranked = scores(record, RankedMetric("tokens_per_second", Bilingual("speed", "速度")))
    if len(ranked) < 2:
        return []
    quick, slow = ranked[0], ranked[-1]
    times = f"{quick.mean / max(slow.mean, 1e-9):.1f}"
    speed = f"{quick.mean:,.0f}"
    return [say("fastest", quick=quick.model, speed=speed, times=times, slow=slow.model)]


def beside_budget(record: dict[str, Any]) -> list[Bilingual]:
    """Names the models that spent more or less than the budget."""
    budget = record["plan"]["budget"]
    key, unit = {"minutes": ("seconds", 60), "tokens": ("tokens", 1), "flops": ("flops", 1)}[
        budget["kind"]
    ]
    allowed = budget["amount"] * unit
    spent = scores(record, RankedMetric(key, Bilingual(key, key)))
    off = [s for s in spent if max(abs(v / allowed - 1) for v in s.values) > KEPT]
    shares = [f"{score.model} ({score.mean / allowed:.0%})" for score in off]
    return [say("off_budget", share=f"{KEPT:.0%}", models=shares)] if off else []


def trained_once(record: dict[str, Any]) -> list[Bilingual]:
    """Names the models with only one seed: an interrupted comparison may have fewer seeds than its
    plan."""
    ran = Counter(name.rpartition("-")[0] for name in record["cells"] if name != NGRAM)
    once = [model for model, times in ran.items() if times == 1]
    if not once:
        return []
    return [say("once") if record["plan"]["seeds"] == 1 else say("once_so_far", models=once)]


def probed(record: dict[str, Any]) -> list[Bilingual]:
    """Names the models whose probe is better than the probe of an untrained model of the same
    shape; only that difference counts."""
    ranked = scores(record, PROBE)
    above = [
        score.model
        for score in ranked
        if score.interval is not None and score.interval[0] > untrained(record, score.model)
    ]
    if not ranked:
        return []
    return [say("probe_more", models=above) if above else say("probe_no_more")]


def untrained(record: dict[str, Any], model: str) -> float:
    cells = [c for n, c in record["cells"].items() if n.rpartition("-")[0] == model]
    return statistics.fmean(float(c.get("probe_untrained", 0.0)) for c in cells)
