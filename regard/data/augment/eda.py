"""Easy data augmentation: the four operations of Wei & Zou (EMNLP 2019) and their parameters.

Each operation changes n = max(1, int(share · words)) words; deletion removes each word with
probability `share`. The paper and its code (jasonwei20/eda_nlp) differ in insertion:

| source | a synonym is looked up for | which one is inserted |
| --- | --- | --- |
| paper | a word that is not a stop word | one at random |
| code | any word | the first |

The code lowercases a text and drops everything but its letters before it begins (`clean.py`); here
a text keeps its case, its punctuation and its spaces unless cleaning is requested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from regard.core.errors import ConfigError
from regard.data.augment.words import WordSequence, WordUnit

Synonyms = Callable[[str], Sequence[str]]  # the synonyms of a lowercase word; may be empty

METHODS = ("synonyms", "insert", "swap", "delete")
SOURCES = ("paper", "code")
LOOKS = 9  # the code counts to ten and gives up at the tenth try
SWAPS = 3  # tries to find a second place
# Table 3 of the paper: most training examples, share of words, variants of each example.
TABLE = ((500, 0.05, 16), (2000, 0.05, 8), (5000, 0.1, 4), (math.inf, 0.1, 4))
STOP = frozenset(
    """i me my myself we our ours ourselves you your yours yourself yourselves he him his himself
    she her hers herself it its itself they them their theirs themselves what which who whom this
    that these those am is are was were be been being have has had having do does did doing a an
    the and but if or because as until while of at by for with about against between into through
    during before after above below to from up down in out on off over under again further then
    once here there when where why how all any both each few more most other some such no nor not
    only own same so than too very s t can will just don should now""".split()
)
CHINESE_STOP = frozenset(
    """的 了 着 过 地 得 是 在 有 和 与 及 或 但 而 也 都 就 还 又 很 太 更 最 不 没 没有 别 把
    被 给 对 从 到 向 为 以 于 因为 所以 如果 虽然 但是 而且 我 你 您 他 她 它 我们 你们 他们
    她们 它们 这 那 这个 那个 这些 那些 什么 谁 哪 怎么 吗 呢 吧 啊 之 其 等""".split()
)


def is_stop(word: str) -> bool:
    """Tells function words, and negations such as "don't", without which a meaning reverses."""
    bare = word.lower().replace("’", "'")
    if bare in STOP or bare in CHINESE_STOP:
        return True
    return "'" in bare and (bare.endswith("n't") or bare.partition("'")[0] in STOP)


def published(examples: int) -> tuple[float, int]:
    """Returns the share of words and the variants per example of the paper (Table 3)."""
    return next((share, copies) for most, share, copies in TABLE if examples <= most)


def changes(sentence: WordSequence, share: float) -> int:
    return max(1, int(share * len(sentence.units)))


def drawn(methods: Sequence[str], copies: float, dice: np.random.Generator) -> list[str]:
    """Draws the methods of a text's variants: int(copies / methods) + 1 of each, shuffled and cut
    to `copies`. Below 1, `copies` is the probability that there is a variant at all."""
    if not methods or copies < 0:
        raise ConfigError(
            f"there are {len(methods)} methods and {copies:g} variants; give at least one method, "
            "and 0 or more variants"
        )
    every = [method for method in methods for _ in range(int(copies / len(methods)) + 1)]
    mixed = [every[place] for place in dice.permutation(len(every))]
    if copies >= 1:
        return mixed[: int(copies)]
    chance = copies / len(mixed)
    return [method for method in mixed if dice.random() < chance]


# -- the operations


def replace_words(
    sentence: WordSequence, count: int, synonyms: Synonyms, dice: np.random.Generator
) -> WordSequence:
    """SR: replaces all occurrences of up to `count` distinct words that are not stop words."""
    places: dict[str, list[int]] = {}
    for place, unit in enumerate(sentence.units):
        if unit.free and not is_stop(unit.text):
            places.setdefault(unit.text.lower(), []).append(place)
    words, new = list(places), dict[int, str]()
    left = count
    for number in dice.permutation(len(words)):
        choices = synonyms(words[number])
        if choices:
            word = choices[int(dice.integers(len(choices)))]
            new.update(dict.fromkeys(places[words[number]], word))
            left -= 1
        if not left:
            break
    return sentence.replaced(new)


def insert_words(
    sentence: WordSequence,
    count: int,
    synonyms: Synonyms,
    dice: np.random.Generator,
    source: str = "paper",
) -> WordSequence:
    """RI: inserts `count` times a synonym of some word before a random word."""
    for _ in range(count):
        for _ in range(LOOKS):
            unit = sentence.units[dice.integers(len(sentence.units))]
            if not unit.free or (source == "paper" and is_stop(unit.text)):
                continue
            choices = synonyms(unit.text.lower())
            if choices:
                word = choices[0 if source == "code" else int(dice.integers(len(choices)))]
                place = int(dice.integers(len(sentence.units)))
                sentence = sentence.inserted(place, WordUnit(word, unit.origin))
                break
    return sentence


def swap_words(sentence: WordSequence, count: int, dice: np.random.Generator) -> WordSequence:
    """RS: swaps two words, `count` times."""
    places = [place for place, unit in enumerate(sentence.units) if unit.loose]
    for _ in range(count if places else 0):
        first = places[dice.integers(len(places))]
        for _ in range(SWAPS):
            second = places[dice.integers(len(places))]
            if second != first:
                sentence = sentence.swapped(first, second)
                break
    return sentence


def delete_words(sentence: WordSequence, chance: float, dice: np.random.Generator) -> WordSequence:
    """RD: deletes each word with probability `chance`; at least one word stays."""
    count = len(sentence.units)
    if count < 2:
        return sentence
    draws = dice.random(count)
    gone = {i for i, unit in enumerate(sentence.units) if unit.loose and draws[i] <= chance}
    if len(gone) == count:
        gone.remove(int(dice.integers(count)))
    return sentence.without(gone)
