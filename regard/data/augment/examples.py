"""Variants of labelled examples: which of their texts may change, so that the label stays right.

| task | what a variant changes |
| --- | --- |
| classify | the text |
| entail, similar | one of the two texts |
| choose | the premise, or all choices: one alone would be known by its scars |
| tag | words; an entity is moved or left out whole, its own words never change |
| answer | the question, or the passage outside of its answers |
| translate | the source, which `back` writes anew from the target |
| text | the line |

A variant is a function of (seed, number of the example, number of the variant), whoever makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np

from regard.core.errors import ConfigError, UnknownName
from regard.core.options import LANGUAGE, NUM_BEAMS, SEED, THESAURUS, Option
from regard.core.seeding import keyed
from regard.data.augment import eda
from regard.data.augment.realign import answered, grouped, merged, tagged
from regard.data.augment.thesaurus import Listed, Thesaurus, open_thesaurus
from regard.data.augment.words import LANGUAGES, Sentence, Unit, is_one_word, split, whole
from regard.data.examples import Choice, Example, Labelled, Pair, Question, Tagged

METHODS = (*eda.METHODS, "masked", "back")
BY_THESAURUS = ("synonyms", "insert")
BY_MODEL = ("masked", "back")
MOST = 10_000  # variants of one example
CHUNK = 64  # examples whose variants are made together
ROOM = 2**16  # keys of the sentences that such a chunk translates
PURPOSE = "augment"


class WordModel(Protocol):
    """A model that writes other words into a sentence (`regard.methods.augment.masked`)."""

    def __call__(self, sentence: Sentence, share: float, dice: np.random.Generator) -> Sentence: ...


class Translator(Protocol):
    """Models that write texts anew (`regard.methods.augment.back_translation`)."""

    there_and_back: bool

    @property
    def notes(self) -> list[str]: ...

    def __call__(self, texts: Sequence[str], first: int) -> list[str]: ...


class Spot(NamedTuple):
    """Texts of an example that change, and the example with others in their places."""

    sentences: list[Sentence]
    made: Callable[[list[Sentence]], Example]
    single: bool = False  # does a word stay one word?


class Variant(NamedTuple):
    example: Example
    method: str


@dataclass(frozen=True)
class Settings:
    """All that decides variants; plain values, so that another process can be told."""

    methods: tuple[str, ...]
    copies: Annotated[
        float,
        Option("Variants of an example; below 1 the chance of one.", metavar="N", default="as the "
               "paper advises: 16 up to 500 examples, 8 up to 2,000, 4 above; 1 with beams alone"),
    ] = 4  # fmt: skip
    share: Annotated[
        float,
        Option("Share of the words to change.", "--word-fraction", "P",
               "by the paper: 0.05 up to 2,000 examples, 0.1 above"),
    ] = 0.1  # fmt: skip
    seed: Annotated[int, SEED] = 1
    thesaurus: Annotated[str, THESAURUS] = ""
    source: Annotated[
        Literal["paper", "code"],
        Option("Whose rule of insertion, where paper and code differ.", "--insertion-rule"),
    ] = "paper"  # eda.py says where they differ
    language: Annotated[str, LANGUAGE] = ""  # words.py
    scheme: str = ""  # of tags that name entities; "": each tag is its word's own
    masked: Annotated[
        str, Option("Replace words by those of this masked model.", "--mask-model", "DIR")
    ] = ""
    rule: Annotated[
        str,
        Option("Masked: some words by the fraction, or as tinybert has it.", "--mask-rule", "NAME"),
    ] = "some"  # masked.py
    top: Annotated[int, Option("Candidates of each masked word.", "--candidates", "N")] = 15
    away: Annotated[
        str, Option("Translate into another language with this model …", "--back", "DIR")
    ] = ""
    home: Annotated[str, Option("… and from there into the first one again.", "--forth", "DIR")] = (
        ""
    )
    prefixes: tuple[str | None, str | None] = (None, None)
    temperature: Annotated[float, Option("Back-translations are sampled with it.", metavar="T")] = (
        0.9
    )
    beams: Annotated[int, NUM_BEAMS] = 0

    def __post_init__(self) -> None:
        check_methods(self.methods)
        for name, value, known in (
            ("source", self.source, eda.SOURCES),
            ("language", self.language, tuple(LANGUAGES)),
        ):
            if value not in known:
                raise UnknownName(name, value, [word for word in known if word])
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; it must be 0 or more")
        if not 0 < self.share <= 1:
            raise ConfigError(f"share is {self.share:g}; it must be above 0 and at most 1")
        if not 0 < self.copies <= MOST or (self.copies > 1 and self.copies != int(self.copies)):
            raise ConfigError(
                f"copies is {self.copies:g}; it must be a whole number up to {MOST:,}, or below 1 "
                "the chance of one"
            )
        for method, given, option in (
            ("masked", self.masked, "a masked model (--mask-model DIR)"),
            ("back", self.away, "a model that translates (--back DIR)"),
        ):
            if (method in self.methods) != bool(given):
                have = "is asked for without" if not given else "is not asked for, but there is"
                raise ConfigError(f"the method {method!r} {have} {option}")
        self.check_uses()

    def check_uses(self) -> None:
        """Refuses what would change nothing."""
        usual = type(self)
        for told, given, does, methods in (
            (f"a thesaurus ({self.thesaurus})", self.thesaurus, "looks words up", BY_THESAURUS),
            (f"source {self.source!r}", self.source != usual.source, "inserts words", ("insert",)),
            (f"top {self.top}", self.top != usual.top, "asks a masked model", ("masked",)),
        ):
            if given and not set(methods) & set(self.methods):
                raise ConfigError(
                    f"there is {told}, and no method that {does}; ask for "
                    f"{' or '.join(methods)}, too"
                )

    @property
    def uses_share(self) -> bool:
        """Does any method change so many words? TinyBERT's rule has a chance of its own."""
        free = {"back", "masked"} if self.rule == "tinybert" else {"back"}
        return bool(set(self.methods) - free)


def check_methods(methods: Sequence[str]) -> None:
    if not methods:
        raise ConfigError(f"no method; give some of {', '.join(METHODS)}")
    for method in methods:
        if method not in METHODS:
            raise UnknownName("method", method, METHODS)
    if len(set(methods)) < len(methods):
        raise ConfigError(f"a method is named twice: {', '.join(methods)}")


class Augmenter:
    """Makes variants. `regard.methods.augment.build` opens the models of methods that need one."""

    def __init__(
        self, settings: Settings, masked: WordModel | None = None, back: Translator | None = None
    ) -> None:
        for method, model in (("masked", masked), ("back", back)):
            assert (method in settings.methods) == (model is not None), method
        self.settings, self.masked, self.back = settings, masked, back
        self.thesaurus: Thesaurus | None = None
        self.cuts = False  # has a text been cut into words? what is tagged comes in words
        if set(BY_THESAURUS) & set(settings.methods):
            self.thesaurus = open_thesaurus(settings.thesaurus)

    @property
    def notes(self) -> list[str]:
        """What people should know, once the variants are made."""
        given, made = self.settings, list[str]()
        if isinstance(self.thesaurus, Listed):
            made += self.thesaurus.notes(self.is_looked_up)
        if self.back is None:
            return made
        if given.beams and given.copies > 1 and given.copies >= len(given.methods):
            made.append(
                "beams find one translation of a text, so its variants by 'back' repeat it; ask "
                "for fewer --copies, say --distinct, or leave --num-beams out to have them drawn"
            )
        return made + self.back.notes

    def is_looked_up(self, word: str) -> bool:
        """Can a word of a text be this one?"""
        return is_one_word(word, self.settings.language) if self.cuts else len(word.split()) == 1

    @property
    def there_and_back(self) -> bool:
        return self.back is not None and self.back.there_and_back

    # -- many

    def variants(self, examples: Sequence[Example], first: int = 0) -> list[list[Variant]]:
        """Those of each example; `first` is the number of the first one."""
        made: list[list[Variant]] = []
        waiting: list[tuple[int, int, Spot]] = []  # for the translators: example, variant
        for place, example in enumerate(examples):
            number = first + place
            dice = keyed(self.settings.seed, PURPOSE, number)
            methods = eda.drawn(self.settings.methods, self.settings.copies, dice)
            made.append([])
            for copy, method in enumerate(methods):
                dice = keyed(self.settings.seed, PURPOSE, number, copy + 1)
                spot = self.spot(example, method, dice)
                if method == "back":
                    waiting.append((place, copy, spot))
                    new = example
                else:
                    new = self.at(spot, method, dice)
                made[-1].append(Variant(named(new, copy + 1), method))
        if waiting:
            self.translate(waiting, made, first // CHUNK * ROOM)
        return made

    def translate(
        self, waiting: list[tuple[int, int, Spot]], made: list[list[Variant]], key: int
    ) -> None:
        assert self.back is not None
        texts = [str(sentence) for _, _, spot in waiting for sentence in spot.sentences]
        found = iter(self.back(texts, key))
        for place, copy, spot in waiting:
            example = spot.made([whole(next(found)) for _ in spot.sentences])
            made[place][copy] = Variant(named(example, copy + 1), "back")

    # -- one

    def variant(self, example: Example, method: str, dice: np.random.Generator) -> Example:
        """By a method that needs no other text."""
        return self.at(self.spot(example, method, dice), method, dice)

    def at(self, spot: Spot, method: str, dice: np.random.Generator) -> Example:
        return spot.made([self.changed(s, method, dice, spot.single) for s in spot.sentences])

    def changed(
        self, sentence: Sentence, method: str, dice: np.random.Generator, single: bool
    ) -> Sentence:
        given = self.settings
        if not sentence.units:
            return sentence
        if method == "swap":
            return eda.swap_words(sentence, eda.changes(sentence, given.share), dice)
        if method == "delete":
            return eda.delete_words(sentence, given.share, dice)
        if method == "masked":
            assert self.masked is not None
            return self.masked(sentence, given.share, dice)
        count = eda.changes(sentence, given.share)
        synonyms = self.single_words if single else self.all_words
        if method == "synonyms":
            return eda.replace_words(sentence, count, synonyms, dice)
        return eda.insert_words(sentence, count, synonyms, dice, given.source)

    def all_words(self, word: str) -> Sequence[str]:
        assert self.thesaurus is not None
        return self.thesaurus(word)

    def single_words(self, word: str) -> Sequence[str]:
        return [each for each in self.all_words(word) if len(each.split()) == 1]

    def split(self, text: str, fixed: Sequence[tuple[int, int]] = ()) -> Sentence:
        self.cuts = True
        return split(text, self.settings.language, fixed)

    # -- which texts

    def spot(self, example: Example, method: str, dice: np.random.Generator) -> Spot:
        if method == "back" and not isinstance(example, Pair) and not self.there_and_back:
            raise ConfigError(
                f"{example.place}: a text that is translated once (--back) is in another language; "
                "give the model for the way back, too (--forth)"
            )
        match example:
            case Labelled():
                return self.in_labelled(example, dice)
            case Choice():
                return self.in_choice(example, dice)
            case Question():
                return self.in_question(example, method, dice)
            case Tagged() if method != "back":
                return self.in_tagged(example)
            case Pair() if method == "back":
                return self.in_pair(example)
        raise ConfigError(refusal(example, method))

    def in_labelled(self, example: Labelled, dice: np.random.Generator) -> Spot:
        side = "pair" if example.pair is not None and dice.random() < 0.5 else "text"
        text = example.text if side == "text" else str(example.pair)

        def made(found: list[Sentence]) -> Example:
            new = str(found[0])
            return replace(example, text=new) if side == "text" else replace(example, pair=new)

        return Spot([self.split(text)], made)

    def in_choice(self, example: Choice, dice: np.random.Generator) -> Spot:
        """Two choices never become the same."""

        def premise(found: list[Sentence]) -> Example:
            return replace(example, premise=str(found[0]))

        def choices(found: list[Sentence]) -> Example:
            new = tuple(map(str, found))
            kept = len(set(new)) == len(set(example.choices))
            return replace(example, choices=new) if kept else example

        if dice.random() < 0.5:
            return Spot([self.split(example.premise)], premise)
        return Spot([self.split(choice) for choice in example.choices], choices)

    def in_question(self, example: Question, method: str, dice: np.random.Generator) -> Spot:
        """A passage that is translated has its answers nowhere, so only questions are."""

        def asked(found: list[Sentence]) -> Example:
            return replace(example, question=str(found[0]))

        if method == "back" or dice.random() < 0.5:
            return Spot([self.split(example.question)], asked)
        spans = merged([(a.start, a.start + len(a.text)) for a in example.answers])
        passage = self.split(example.passage, spans)
        return Spot([passage], lambda found: answered(example, passage, found[0]))

    def in_tagged(self, example: Tagged) -> Spot:
        scheme = self.settings.scheme
        groups = grouped(example, scheme)
        texts = [" ".join(example.words[a:b]) for _, a, b in groups]
        units = tuple(
            Unit(text, number, kind is None and spoken(text), kind is not None or spoken(text))
            for number, ((kind, _, _), text) in enumerate(zip(groups, texts, strict=True))
        )
        gaps = ("", *[" "] * (len(units) - 1), "") if units else ("",)

        def made(found: list[Sentence]) -> Example:
            return tagged(example, groups, found[0], scheme)

        return Spot([Sentence(units, gaps)], made, single=True)

    def in_pair(self, example: Pair) -> Spot:
        """One model, from the language of the target into that of the source; the source stays
        where it makes nothing of a sentence.
        """
        if example.target is None:
            raise ConfigError(f"{example.place}: there is no target to write a source for")
        if self.there_and_back:
            raise ConfigError(
                f"{example.place}: the source of a translation is written anew from its target by "
                "one model (--back); leave the second one (--forth) out"
            )

        def made(found: list[Sentence]) -> Example:
            new = str(found[0])
            return replace(example, source=new) if new.strip() else example

        return Spot([whole(example.target)], made)


def spoken(text: str) -> bool:
    """Punctuation is none of the words: it stays where it is."""
    return any(map(str.isalnum, text))


def refusal(example: Example, method: str) -> str:
    name = type(example).__name__
    reasons = {
        "Tagged": "a translation has other words, and nobody knows their tags",
        "Pair": "its target has to say the same as its source; translations are varied by 'back'",
        "Dialogue": "a reply has to fit what was said",
    }
    reason = reasons.get(name, "its label would not stay right")
    return f"{example.place}: {method!r} makes no variant of this example: {reason}"


def named(example: Example, copy: int) -> Example:
    """The id of a variant is its own; where an example has none it is its place."""
    own = example.id not in ("", str(example.place))
    return example.renamed(f"{example.id}~{copy}") if own else example
