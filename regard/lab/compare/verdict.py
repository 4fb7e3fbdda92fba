"""What a comparison showed, in words: English and Chinese, and no more than it showed.

Two models are told apart only where their difference is larger than the noise: with several seeds
by Welch's t-test of their figures; with one seed where the 95% interval of their difference leaves
out zero, both resampled over the same documents (or words, or pairs). With one seed that is said.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from regard.core.bilingual import Said as Said  # for the report: all from one place
from regard.lab.compare.lineup import NGRAM
from regard.metrics.base import Array
from regard.metrics.bootstrap import intervals

FEWEST = 6  # examples: with five that all point one way, chance does so once in sixteen
RARE = 0.05  # of differences that are none, so many are taken for some
KEPT = 0.05  # of a budget: what is spent may differ by so much


@dataclass(frozen=True)
class Measure:
    """A figure that models can be ranked by."""

    key: str
    name: Said
    falling: bool = False  # is less better?
    share: bool = False  # is it a share, shown in percent?

    def shown(self, value: float) -> str:
        return f"{value:.1%}" if self.share else f"{value:.3f}"


BITS = Measure("bits_per_byte", Said("bits per byte", "每字节比特数"), falling=True)
HIDDEN = Measure("masked_accuracy", Said("hidden words guessed", "遮盖词猜对率"), share=True)
PAIRS = Measure("minimal_pairs", Said("real sentences preferred", "偏好原句的比例"), share=True)
PSEUDO = Measure(
    "pseudo_bits_per_byte", Said("pseudo bits per byte", "伪每字节比特数"), falling=True
)
PROBE = Measure("probe_accuracy", Said("linear probe", "线性探针准确率"), share=True)
RANKED = (BITS, HIDDEN, PAIRS)


class Each(NamedTuple):
    """What a figure is made of: over all examples, the sum of the first by that of the second."""

    sums: list[float]
    sizes: list[float]


@dataclass(frozen=True)
class Score:
    """A model by one measure, over its seeds."""

    model: str
    values: tuple[float, ...]
    interval: tuple[float, float] | None  # of the first seed, over what was measured
    each: Each | None = field(default=None, compare=False)  # of the first seed, by example

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def error(self) -> float | None:
        """The standard error of the mean."""
        return None if self.deviation is None else self.deviation / math.sqrt(len(self.values))


def scores(found: dict[str, Any], measure: Measure) -> list[Score]:
    """All models that have the measure, the best first."""
    by_model: dict[str, list[dict[str, Any]]] = {}
    for name, cell in found["cells"].items():
        if name != NGRAM and cell.get(measure.key) is not None:
            by_model.setdefault(name.rpartition("-")[0], []).append(cell)
    made = []
    for model, cells in by_model.items():
        span = cells[0].get(f"{measure.key}_interval")
        values = tuple(float(cell[measure.key]) for cell in cells)
        each = cells[0].get(f"{measure.key}_each")
        made.append(
            Score(
                model,
                values,
                None if span is None else (span[0], span[1]),
                None if each is None else Each(**each),
            )
        )
    return sorted(made, key=lambda s: s.mean if measure.falling else -s.mean)


def apart(one: Score, other: Score) -> bool:
    """Is the difference larger than the noise?"""
    if one.error is not None and other.error is not None:
        return more_than_noise(one.mean - other.mean, one, other)
    if one.each and other.each and one.each.sizes == other.each.sizes:
        return differ(one.each, other.each)
    if one.interval is None or other.interval is None:
        return False
    (low, high), (least, most) = one.interval, other.interval
    return high < least or most < low


def more_than_noise(difference: float, *held: Score) -> bool:
    """Would means over seeds differ so much less than once in twenty by chance? (Welch)"""
    noisy = [(score.error**2, len(score.values) - 1) for score in held if score.error]
    if not noisy:
        return difference != 0
    square = sum(each for each, _ in noisy)
    free = square**2 / sum(each**2 / count for each, count in noisy)
    return beyond(abs(difference) / math.sqrt(square), free) < RARE


def beyond(distance: float, free: float) -> float:
    """How often Student's t with so many degrees of freedom is further from 0.

    With t = sqrt(free) tan(angle) its density is a power of a cosine.
    """
    angles = np.linspace(0, math.pi / 2, 20_001)
    weights = np.cos(angles) ** (free - 1)
    weights[[0, -1]] /= 2
    return float(weights[angles > math.atan(distance / math.sqrt(free))].sum() / weights.sum())


def noise_is_known(one: Score, other: Score) -> bool:
    """Can their difference be held against anything?"""
    if one.error is not None and other.error is not None:
        return True
    if one.each and other.each and one.each.sizes == other.each.sizes:
        return len(one.each.sizes) >= FEWEST
    return one.interval is not None and other.interval is not None


def differ(one: Each, other: Each) -> bool:
    """Does the interval of their difference leave out zero?

    What makes an example easy or hard for both is no noise here.
    """
    if len(one.sizes) < FEWEST:
        return False
    difference, sizes = np.subtract(one.sums, other.sums), np.array(one.sizes, np.float64)

    def figure(weights: Array) -> Array:
        made: Array = (weights @ difference) / np.maximum(weights @ sizes, 1)
        return made

    span = intervals({"difference": figure}, len(sizes))["difference"]
    return span is not None and not span.low <= 0 <= span.high


def leaders(ranked: list[Score]) -> list[Score]:
    """The best, and all that cannot be told from it."""
    return [score for score in ranked if score is ranked[0] or not apart(ranked[0], score)]


def listed(names: list[str], language: str) -> str:
    if language == "zh":
        return "、".join(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def verdict(found: dict[str, Any]) -> list[Said]:
    """The findings, the most important one first."""
    said = []
    for measure in RANKED:
        ranked = scores(found, measure)
        if ranked:
            said.append(ranking(measure, ranked))
    said += probed(found)
    said += beside_ngram(found)
    said += costs(found)
    said += beside_budget(found)
    said += trained_once(found)
    if found["missing"]:
        names = found["missing"]
        said.append(
            Said(
                f"Not finished: {listed(names, 'en')}.",
                f"尚未完成：{listed(names, 'zh')}。",
            )
        )
    return said


def ranking(measure: Measure, ranked: list[Score]) -> Said:
    best, first = leaders(ranked), ranked[0]
    value = measure.shown(first.mean)
    names = [score.model for score in best]
    if len(ranked) == 1:
        return Said(
            f"{first.model}: {measure.name.en} {value}; no other model has this measure.",
            f"{first.model}：{measure.name.zh} {value}；没有其他模型有这一指标。",
        )
    worst = ranked[-1]
    rest = (
        f"; the last is {worst.model} with {measure.shown(worst.mean)}"
        if worst not in best
        else "",
        f"；最后是 {worst.model}，{measure.shown(worst.mean)}" if worst not in best else "",
    )
    if len(best) == 1:
        return Said(
            f"By {measure.name.en}, {first.model} is best with {value}{rest[0]}.",
            f"按{measure.name.zh}，{first.model} 最好，为 {value}{rest[1]}。",
        )
    if not all(noise_is_known(first, score) for score in best[1:]):
        return Said(
            f"By {measure.name.en}, {listed(names, 'en')} cannot be told apart: the best figure is "
            f"{value}, but one seed and so little unseen text do not show the noise{rest[0]}.",
            f"按{measure.name.zh}，{listed(names, 'zh')} 之间分不出高下：最好的数值是 {value}，"
            f"但只有一个种子，未读文本又太少，看不出噪声有多大{rest[1]}。",
        )
    return Said(
        f"By {measure.name.en}, {listed(names, 'en')} cannot be told apart (the best figure is "
        f"{value}; differences are within the noise){rest[0]}.",
        f"按{measure.name.zh}，{listed(names, 'zh')} 之间分不出高下"
        f"（最好的数值是 {value}，差别在噪声之内）{rest[1]}。",
    )


def beside_ngram(found: dict[str, Any]) -> list[Said]:
    ranked, ngram = scores(found, BITS), found["cells"].get(NGRAM)
    if not ranked or ngram is None:
        return []
    limit = ngram["bits_per_byte"]
    near = [s.model for s in ranked if not more_than_noise(s.mean - limit, s)]
    beat = [s.model for s in ranked if s.mean < limit and s.model not in near]
    if not beat and not near:
        return [
            Said(
                f"None of them beats the n-gram ({limit:.3f} bits per byte), which only counts "
                "words, with this budget.",
                f"在这样的预算下，没有一个胜过只数词的 n 元模型（每字节 {limit:.3f} 比特）。",
            )
        ]
    said = []
    if beat:
        said.append(
            Said(
                f"Better than the n-gram ({limit:.3f} bits per byte): {listed(beat, 'en')}.",
                f"胜过 n 元模型（每字节 {limit:.3f} 比特）的有：{listed(beat, 'zh')}。",
            )
        )
    if near:
        said.append(
            Said(
                f"Within the noise of the n-gram ({limit:.3f} bits per byte): "
                f"{listed(near, 'en')}.",
                f"与 n 元模型（每字节 {limit:.3f} 比特）的差别在噪声之内的有："
                f"{listed(near, 'zh')}。",
            )
        )
    return said


def costs(found: dict[str, Any]) -> list[Said]:
    ranked = scores(found, Measure("tokens_per_second", Said("speed", "速度")))
    if len(ranked) < 2:
        return []
    quick, slow = ranked[0], ranked[-1]
    times = quick.mean / max(slow.mean, 1e-9)
    return [
        Said(
            f"{quick.model} learns fastest ({quick.mean:,.0f} tokens a second), {times:.1f} times "
            f"as fast as {slow.model}.",
            f"{quick.model} 学得最快（每秒 {quick.mean:,.0f} 个词元），"
            f"是 {slow.model} 的 {times:.1f} 倍。",
        )
    ]


def beside_budget(found: dict[str, Any]) -> list[Said]:
    """Who has spent more or less than was given."""
    budget = found["plan"]["budget"]
    key, unit = {"minutes": ("seconds", 60), "tokens": ("tokens", 1), "flops": ("flops", 1)}[
        budget["kind"]
    ]
    given = budget["amount"] * unit
    spent = scores(found, Measure(key, Said(key, key)))
    off = [s for s in spent if max(abs(v / given - 1) for v in s.values) > KEPT]
    if not off:
        return []
    shares = [f"{score.model} ({score.mean / given:.0%})" for score in off]
    return [
        Said(
            f"Not within {KEPT:.0%} of the budget, in percent of it: {listed(shares, 'en')}. A "
            "larger budget, or a smaller --batch-size, comes closer.",
            f"与预算相差超过 {KEPT:.0%} 的有：{listed(shares, 'zh')}（括号内为用去的比例）。"
            "预算大一些，或者--batch-size 小一些，会更接近。",
        )
    ]


def trained_once(found: dict[str, Any]) -> list[Said]:
    """A comparison that was stopped may have fewer seeds than its plan."""
    ran = Counter(name.rpartition("-")[0] for name in found["cells"] if name != NGRAM)
    once = [model for model, times in ran.items() if times == 1]
    if not once:
        return []
    if found["plan"]["seeds"] == 1:
        return [
            Said(
                "Every model was trained once: how much another seed would change is not known, "
                "and small differences may be chance. --seeds 3 shows it.",
                "每个模型只训练了一次：换一个随机种子会差多少并不知道，小的差别可能只是偶然。"
                "用 --seeds 3 可以看出。",
            )
        ]
    return [
        Said(
            f"Trained once so far: {listed(once, 'en')}. How much another seed would change there "
            "is not known, and small differences may be chance.",
            f"到目前为止只训练了一次的有：{listed(once, 'zh')}。"
            "换一个随机种子会差多少并不知道，小的差别可能只是偶然。",
        )
    ]


def probed(found: dict[str, Any]) -> list[Said]:
    """What a probe reads counts only where it is more than it reads of an untrained twin."""
    above = [
        score.model
        for score in scores(found, PROBE)
        if score.interval is not None and score.interval[0] > untrained(found, score.model)
    ]
    if not scores(found, PROBE):
        return []
    if not above:
        return [
            Said(
                "A linear probe reads no more of any model than of an untrained twin, as far as "
                "its 95% interval can tell.",
                "就 95% 区间所能分辨的而言，线性探针从任何模型里读出的，"
                "都不多于从未训练的同形模型里读出的。",
            )
        ]
    return [
        Said(
            f"A linear probe reads more of {listed(above, 'en')} than of an untrained twin.",
            f"线性探针从 {listed(above, 'zh')} 里读出的，多于从未训练的同形模型里读出的。",
        )
    ]


def untrained(found: dict[str, Any], model: str) -> float:
    cells = [c for n, c in found["cells"].items() if n.rpartition("-")[0] == model]
    return statistics.fmean(float(c.get("probe_untrained", 0.0)) for c in cells)
