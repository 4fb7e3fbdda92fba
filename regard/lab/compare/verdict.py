"""States the results of a comparison in words, in English and Chinese, and no more than it
showed.

Two models are called different only if a test says so, at 95%: with several seeds a paired t-test
of their figures (Welch's if their seeds differ); with one seed the bootstrap of their difference,
with both resampled over the same documents (or words, or pairs), and then the verdict says so.
Tests of one model against several are corrected by Holm's method. A model whose noise holds what
guessing gives is neither best nor last.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from regard.core.text import Bilingual as Bilingual  # exported again for the report
from regard.lab.compare.lineup import NGRAM
from regard.metrics.base import Array
from regard.metrics.bootstrap import values as resamples
from regard.metrics.t_tests import estimate, holm, welch
from regard.report.pages import words

FEWEST = 6  # examples; five examples agree by chance once in sixteen times
RARE = 0.05  # the significance level
KEPT = 0.05  # the share of the budget by which the spent amount may differ


DOCUMENTS = Bilingual("documents", "文档")


@dataclass(frozen=True)
class RankedMetric:
    """A metric that models can be ranked by."""

    key: str
    name: Bilingual
    falling: bool = False  # whether lower is better
    share: bool = False  # whether it is a share, shown in percent
    unit: Bilingual = DOCUMENTS  # the examples of its interval

    def shown(self, value: float) -> str:
        return f"{value:.1%}" if self.share else f"{value:.3f}"


BITS = RankedMetric("bits_per_byte", Bilingual("bits per byte", "每字节比特数"), falling=True)
HIDDEN = RankedMetric(
    "masked_accuracy",
    Bilingual("hidden words guessed", "被遮盖的词的准确率"),
    share=True,
    unit=Bilingual("words", "词"),
)
PAIRS = RankedMetric(
    "minimal_pairs",
    Bilingual("real sentences preferred", "选中原句的比例"),
    share=True,
    unit=Bilingual("sentences", "句子"),
)
PSEUDO = RankedMetric(
    "pseudo_bits_per_byte", Bilingual("pseudo bits per byte", "伪每字节比特数"), falling=True
)
PROBE = RankedMetric("probe_accuracy", Bilingual("linear probe", "线性探针准确率"), share=True)
PREFIX = RankedMetric(
    "prefix_bits_per_byte",
    Bilingual("bits per byte, given a prefix", "给定前缀的每字节比特数"),
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
    seeds: tuple[int, ...]
    interval: tuple[float, float] | None  # of the first seed, over examples
    each: RatioSums | None = field(default=None, compare=False)  # of the first seed, by example

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None


def scores(record: dict[str, Any], measure: RankedMetric) -> list[Score]:
    """Returns all models that have the metric, the best first."""
    by_model: dict[str, dict[int, dict[str, Any]]] = {}
    for name, cell in record["cells"].items():
        if name != NGRAM and cell.get(measure.key) is not None:
            model, _, seed = name.rpartition("-")
            by_model.setdefault(model, {})[int(seed)] = cell
    ranked = []
    for model, by_seed in by_model.items():
        cells = list(by_seed.values())
        span = cells[0].get(f"{measure.key}_interval")
        values = tuple(float(cell[measure.key]) for cell in cells)
        each = cells[0].get(f"{measure.key}_each")
        ranked.append(
            Score(
                model,
                values,
                tuple(by_seed),
                None if span is None else (span[0], span[1]),
                None if each is None else RatioSums(**each),
            )
        )
    return sorted(ranked, key=lambda s: s.mean if measure.falling else -s.mean)


def chance(one: Score, other: Score) -> float:
    """Returns the p-value of the difference: a paired t-test if both have the same seeds, else
    Welch's; with one seed, the bootstrap over the examples that both were measured on. It is 1 if
    the noise is unknown."""
    if min(len(one.values), len(other.values)) > 1:
        if one.seeds == other.seeds:
            return estimate((1.0, one.values), (-1.0, other.values)).differs()
        return welch(one.values, other.values).differs()
    if one.each and other.each and one.each.sizes == other.each.sizes:
        return resampled(one.each, other.each)
    if one.interval is None or other.interval is None:
        return 1.0
    (low, high), (least, most) = one.interval, other.interval
    return 0.0 if high < least or most < low else 1.0


def apart(one: Score, other: Score) -> bool:
    """Returns whether the difference is larger than the noise."""
    return chance(one, other) < RARE


def apart_from(one: Score, others: list[Score]) -> list[bool]:
    """Returns from which of several models one differs, corrected by Holm's method."""
    return [each < RARE for each in holm([chance(one, other) for other in others])]


def side_of(score: Score, limit: float) -> int:
    """Returns 1 if a model is above a limit and -1 if it is below, by more than its noise; 0 if the
    noise holds the limit. With one seed the noise is the interval over examples."""
    if len(score.values) > 1:
        known = estimate((1.0, score.values))
        beyond = known.differs(limit) < RARE
    else:
        beyond = score.interval is not None and not score.interval[0] <= limit <= score.interval[1]
    return (score.mean > limit) - (score.mean < limit) if beyond else 0


def noise_is_known(one: Score, other: Score) -> bool:
    """Returns whether there is an estimate of the noise of their difference."""
    if min(len(one.values), len(other.values)) > 1:
        return True
    if one.each and other.each and one.each.sizes == other.each.sizes:
        return len(one.each.sizes) >= FEWEST
    return one.interval is not None and other.interval is not None


def resampled(one: RatioSums, other: RatioSums) -> float:
    """Returns the p-value of the paired bootstrap: twice the share of resamples in which the
    difference has the other sign.

    What makes an example easy or hard for both models does not count as noise here.
    """
    if len(one.sizes) < FEWEST:
        return 1.0
    difference, sizes = np.subtract(one.sums, other.sums), np.array(one.sizes, np.float64)

    def figure(weights: Array) -> Array:
        ratio: Array = (weights @ difference) / np.maximum(weights @ sizes, 1)
        return ratio

    drawn = resamples({"difference": figure}, len(sizes))["difference"]
    tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return min(1.0, 2 * (tail + 1) / (len(drawn) + 1))


def leaders(ranked: list[Score]) -> list[Score]:
    """Returns the best model, and all models that do not differ from it by more than the noise."""
    differ = apart_from(ranked[0], ranked[1:]) if ranked else []
    return [*ranked[:1], *(s for s, far in zip(ranked[1:], differ, strict=True) if not far)]


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
        *(ranking(measure, own, guessing(record, measure)) for measure, own in ranked if own),
        *probed(record),
        *beside_ngram(record),
        *costs(record),
        *beside_budget(record),
        *trained_once(record),
        *([say("missing", models=record["missing"])] if record["missing"] else []),
    ]


def guessing(record: dict[str, Any], measure: RankedMetric) -> float | None:
    """Returns what guessing gives: every other sentence, or the commonest word of the text."""
    if measure == PAIRS:
        return 0.5
    shares = [cell["masked_commonest"] for cell in record["cells"].values()
              if cell.get("masked_commonest") is not None]  # fmt: skip
    return statistics.fmean(shares) if measure == HIDDEN and shares else None


def ranking(measure: RankedMetric, every: list[Score], guess: float | None = None) -> Bilingual:
    """Says which models are best and which is last. A model that is no better than guessing is
    neither, and one is last only if it differs from all others."""
    ranked = above_guessing(every, guess)
    level = [score.model for score in every if score not in ranked]
    name, once = measure.name, any(len(score.values) == 1 for score in every)
    basis = say("basis", unit=measure.unit) if once else Bilingual("", "")
    limit = "" if guess is None else measure.shown(guess)
    if not ranked:
        return joined(say("all_guess", measure=name, limit=limit, models=level), basis)
    first, worst = ranked[0], ranked[-1]
    value = measure.shown(first.mean)
    guessed = [say("at_guess", limit=limit, models=level)] if level else []
    if len(every) == 1:
        return joined(say("alone", model=first.model, measure=name, value=value), basis)
    if len(ranked) == 1:
        return joined(say("only", model=first.model, measure=name, value=value), *guessed, basis)
    best, last = leaders(ranked), Bilingual("", "")
    if worst not in best and not level and all(apart_from(worst, ranked[:-1])):
        last = say("last", model=worst.model, value=measure.shown(worst.mean))
    if len(best) == 1:
        sentence = say("best", measure=name, model=first.model, value=value, last=last)
        return joined(sentence, *guessed, basis)
    known = all(noise_is_known(first, score) for score in best[1:])
    key, models = "not_apart" if known else "noise_unknown", [score.model for score in best]
    sentence = say(key, measure=name, models=models, value=value, last=last)
    return joined(sentence, *guessed, basis)


def above_guessing(every: list[Score], guess: float | None) -> list[Score]:
    return [score for score in every if guess is None or side_of(score, guess) > 0]


def joined(*sentences: Bilingual) -> Bilingual:
    """Returns sentences as one text."""
    return Bilingual(" ".join(s.en for s in sentences if s.en), "".join(s.zh for s in sentences))


def beside_ngram(record: dict[str, Any]) -> list[Bilingual]:
    """Names the models that are better than counting, and those whose noise holds it."""
    ranked, ngram = scores(record, BITS), record["cells"].get(NGRAM)
    if not ranked or ngram is None:
        return []
    limit, shown = ngram["bits_per_byte"], f"{ngram['bits_per_byte']:.3f}"
    chances = holm([chance_beside(score, ngram) for score in ranked])
    tested = list(zip(ranked, chances, strict=True))
    near = [score.model for score, chance in tested if chance >= RARE]
    beat = [score.model for score, chance in tested if chance < RARE and score.mean < limit]
    if not beat and not near:
        return [say("ngram_unbeaten", limit=shown)]
    beaten = [say("ngram_beaten", limit=shown, models=beat)] if beat else []
    return beaten + ([say("ngram_near", limit=shown, models=near)] if near else [])


def chance_beside(score: Score, ngram: dict[str, Any]) -> float:
    """Returns the p-value of a model's difference to the n-gram: over seeds or, with one seed, over
    the documents that both were measured on."""
    limit = ngram["bits_per_byte"]
    if len(score.values) > 1:
        return estimate((1.0, score.values)).differs(limit)
    each = ngram.get("bits_per_byte_each")
    if each and score.each and score.each.sizes == each["sizes"]:
        return resampled(score.each, RatioSums(**each))
    return 0.0 if side_of(score, limit) else 1.0


def costs(record: dict[str, Any]) -> list[Bilingual]:
    """Names the fastest model; with several seeds, only if it differs from the next one."""
    ranked = scores(record, RankedMetric("tokens_per_second", Bilingual("speed", "速度")))
    if len(ranked) < 2:
        return []
    quick, slow = ranked[0], ranked[-1]
    times = f"{quick.mean / max(slow.mean, 1e-9):.1f}"
    speed = f"{quick.mean:,.0f}"
    if min(len(score.values) for score in ranked) == 1:
        return [say("fastest_once", quick=quick.model, speed=speed, times=times, slow=slow.model)]
    best = [score.model for score in leaders(ranked)]
    if len(best) > 1:
        return [say("fast_alike", models=best, speed=speed)]
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
    if not scores(record, PROBE):
        return []
    above = above_untrained(record)
    return [say("probe_more", models=above) if above else say("probe_no_more")]


def above_untrained(record: dict[str, Any]) -> list[str]:
    """Returns the models whose probe is above that of an untrained twin: by a paired t-test over
    seeds, or with one seed by the interval over examples."""
    above = []
    for score in scores(record, PROBE):
        cells = [record["cells"][f"{score.model}-{seed}"] for seed in score.seeds]
        twins = [float(cell.get("probe_untrained", 0.0)) for cell in cells]
        if len(twins) > 1:
            better = 2 * estimate((1.0, score.values), (-1.0, twins)).above() < RARE
        else:
            better = score.interval is not None and score.interval[0] > twins[0]
        above += [score.model] if better else []
    return above
