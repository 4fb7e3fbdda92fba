"""Variants of labeled examples: which of their texts may change, so that the label stays right.

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
from regard.data.augment.thesaurus import SynonymList, Thesaurus, open_thesaurus
from regard.data.augment.words import LANGUAGES, WordSequence, WordUnit, is_one_word, split, whole
from regard.data.examples import (
    DialogueExample,
    Example,
    LabeledExample,
    MultipleChoice,
    Question,
    TaggedExample,
    TextPair,
)

METHODS = (*eda.METHODS, "masked", "back")
BY_THESAURUS = ("synonyms", "insert")
BY_MODEL = ("masked", "back")
MOST = 10_000  # variants of one example
CHUNK = 64  # examples whose variants are made together
ROOM = 2**16  # keys of the sentences that such a chunk translates
PURPOSE = "augment"


# A model that writes other words into a sentence (`regard.methods.augment.masked`).
WordModel = Callable[[WordSequence, float, np.random.Generator], WordSequence]


class Translator(Protocol):
    """Models that write texts anew (`regard.methods.augment.back_translation`)."""

    there_and_back: bool

    @property
    def notes(self) -> list[str]: ...

    def __call__(self, texts: Sequence[str], first: int) -> list[str]: ...


class TextSlot(NamedTuple):
    """Texts of an example that change, and the example with others in their places."""

    sentences: list[WordSequence]
    put: Callable[[list[WordSequence]], Example]
    single: bool = False  # does a word stay one word?


class Variant(NamedTuple):
    example: Example
    method: str


@dataclass(frozen=True)
class AugmentSettings:
    """All that decides variants; plain values, so that another process can be told."""

    methods: tuple[str, ...]
    copies: Annotated[
        float,
        Option("Variants of an example; below 1 the chance of one.", metavar="N", default="as the "
               "paper advises: 16 up to 500 examples, 8 up to 2,000, 4 above; 1 with beams alone"),
    ] = 4  # fmt: skip
    word_fraction: Annotated[
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
    top_k: Annotated[int, Option("Candidates of each masked word.", "--candidates", "N")] = 15
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
    num_beams: Annotated[int, NUM_BEAMS] = 0

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
        if not 0 < self.word_fraction <= 1:
            raise ConfigError(
                f"word_fraction is {self.word_fraction:g}; it must be above 0 and at most 1"
            )
        if not 0 < self.copies <= MOST or (self.copies > 1 and self.copies != int(self.copies)):
            raise ConfigError(
                f"copies is {self.copies:g}; it must be a whole number up to {MOST:,}, or below 1 "
                "the chance of one"
            )
        for method, model, option in (
            ("masked", self.masked, "a masked model (--mask-model DIR)"),
            ("back", self.away, "a model that translates (--back DIR)"),
        ):
            if (method in self.methods) != bool(model):
                have = "is asked for without" if not model else "is not asked for, but there is"
                raise ConfigError(f"the method {method!r} {have} {option}")
        usual = type(self)  # what would change nothing is refused
        for option, is_set, does, methods in (
            (f"a thesaurus ({self.thesaurus})", self.thesaurus, "looks words up", BY_THESAURUS),
            (f"source {self.source!r}", self.source != usual.source, "inserts words", ("insert",)),
            (f"top_k {self.top_k}", self.top_k != usual.top_k, "asks a masked model", ("masked",)),
        ):
            if is_set and not set(methods) & set(self.methods):
                raise ConfigError(
                    f"there is {option}, and no method that {does}; ask for "
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
    """Makes variants; `build` of `regard.methods.augment.processes` opens the models they need."""

    def __init__(
        self,
        settings: AugmentSettings,
        masked: WordModel | None = None,
        back: Translator | None = None,
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
        settings, notes = self.settings, list[str]()
        if isinstance(self.thesaurus, SynonymList):
            notes += self.thesaurus.notes(self.is_looked_up)
        if self.back is None:
            return notes
        if settings.num_beams and settings.copies > 1 and settings.copies >= len(settings.methods):
            notes.append(
                "beams find one translation of a text, so its variants by 'back' repeat it; ask "
                "for fewer --copies, say --distinct, or leave --num-beams out to have them drawn"
            )
        return notes + self.back.notes

    def is_looked_up(self, word: str) -> bool:
        """Can a word of a text be this one?"""
        return is_one_word(word, self.settings.language) if self.cuts else len(word.split()) == 1

    # -- many

    def variants(self, examples: Sequence[Example], first: int = 0) -> list[list[Variant]]:
        """Those of each example; `first` is the number of the first one."""
        rows: list[list[Variant]] = []
        waiting: list[tuple[int, int, TextSlot]] = []  # for the translators: example, variant
        for place, example in enumerate(examples):
            number = first + place
            dice = keyed(self.settings.seed, PURPOSE, number)
            methods = eda.drawn(self.settings.methods, self.settings.copies, dice)
            rows.append([])
            for copy, method in enumerate(methods):
                dice = keyed(self.settings.seed, PURPOSE, number, copy + 1)
                spot = self.spot(example, method, dice)
                if method == "back":
                    waiting.append((place, copy, spot))
                    new = example
                else:
                    new = self.changed(spot, method, dice)
                rows[-1].append(Variant(named(new, copy + 1), method))
        if waiting:
            assert self.back is not None
            texts = [str(sentence) for _, _, spot in waiting for sentence in spot.sentences]
            translations = iter(self.back(texts, first // CHUNK * ROOM))
            for place, copy, spot in waiting:
                new = spot.put([whole(next(translations)) for _ in spot.sentences])
                rows[place][copy] = Variant(named(new, copy + 1), "back")
        return rows

    # -- one

    def variant(self, example: Example, method: str, dice: np.random.Generator) -> Example:
        """By a method that needs no other text."""
        return self.changed(self.spot(example, method, dice), method, dice)

    def changed(self, spot: TextSlot, method: str, dice: np.random.Generator) -> Example:
        """The example with its sentences changed one after the other."""
        settings = self.settings

        def synonyms(word: str) -> Sequence[str]:
            assert self.thesaurus is not None
            words = self.thesaurus(word)
            return [each for each in words if len(each.split()) == 1] if spot.single else words

        def change(sentence: WordSequence) -> WordSequence:
            count = eda.changes(sentence, settings.word_fraction)
            match method:
                case _ if not sentence.units:
                    return sentence
                case "swap":
                    return eda.swap_words(sentence, count, dice)
                case "delete":
                    return eda.delete_words(sentence, settings.word_fraction, dice)
                case "synonyms":
                    return eda.replace_words(sentence, count, synonyms, dice)
                case "insert":
                    return eda.insert_words(sentence, count, synonyms, dice, settings.source)
            assert self.masked is not None
            return self.masked(sentence, settings.word_fraction, dice)

        return spot.put([change(sentence) for sentence in spot.sentences])

    def split(self, text: str, fixed: Sequence[tuple[int, int]] = ()) -> WordSequence:
        self.cuts = True
        return split(text, self.settings.language, fixed)

    # -- which texts

    def spot(self, example: Example, method: str, dice: np.random.Generator) -> TextSlot:
        """The texts of an example that this method may change."""
        there_and_back = self.back is not None and self.back.there_and_back
        if method == "back" and not isinstance(example, TextPair) and not there_and_back:
            raise ConfigError(
                f"{example.place}: a text that is translated once (--back) is in another language; "
                "give the model for the way back, too (--forth)"
            )

        def field(name: str) -> TextSlot:
            def put(new: list[WordSequence]) -> Example:
                return replace(example, **{name: str(new[0])})

            return TextSlot([self.split(getattr(example, name))], put)

        match example:
            case LabeledExample():
                return field("pair" if example.pair is not None and dice.random() < 0.5 else "text")
            case MultipleChoice():
                return field("premise") if dice.random() < 0.5 else self.in_choices(example)
            case Question():  # a passage that is translated has its answers nowhere
                asks = method == "back" or dice.random() < 0.5
                return field("question") if asks else self.in_passage(example)
            case TaggedExample() if method != "back":
                return self.in_tagged(example)
            case TextPair() if method == "back":
                return self.in_pair(example, there_and_back)
        raise ConfigError(refusal(example, method))

    def in_choices(self, example: MultipleChoice) -> TextSlot:
        """Two choices never become the same."""

        def put(new: list[WordSequence]) -> Example:
            choices = tuple(map(str, new))
            distinct = len(set(choices)) == len(set(example.choices))
            return replace(example, choices=choices) if distinct else example

        return TextSlot([self.split(choice) for choice in example.choices], put)

    def in_passage(self, example: Question) -> TextSlot:
        spans = merged([(a.start, a.start + len(a.text)) for a in example.answers])
        passage = self.split(example.passage, spans)
        return TextSlot([passage], lambda new: answered(example, passage, new[0]))

    def in_tagged(self, example: TaggedExample) -> TextSlot:
        """Entities stay whole. Punctuation is none of the words: it stays where it is."""
        scheme = self.settings.scheme
        groups = grouped(example, scheme)
        units = []
        for number, (kind, start, end) in enumerate(groups):
            text = " ".join(example.words[start:end])
            spoken = any(map(str.isalnum, text))
            units.append(
                WordUnit(text, number, kind is None and spoken, kind is not None or spoken)
            )
        gaps = ("", *[" "] * (len(units) - 1), "") if units else ("",)
        sentence = WordSequence(tuple(units), gaps)
        return TextSlot(
            [sentence], lambda new: tagged(example, groups, new[0], scheme), single=True
        )

    def in_pair(self, example: TextPair, there_and_back: bool) -> TextSlot:
        """One model, from the language of the target into that of the source; the source stays
        where it makes nothing of a sentence.
        """
        if example.target is None:
            raise ConfigError(f"{example.place}: there is no target to write a source for")
        if there_and_back:
            raise ConfigError(
                f"{example.place}: the source of a translation is written anew from its target by "
                "one model (--back); leave the second one (--forth) out"
            )

        def put(new: list[WordSequence]) -> Example:
            return replace(example, source=str(new[0])) if str(new[0]).strip() else example

        return TextSlot([whole(example.target)], put)


def refusal(example: Example, method: str) -> str:
    reasons: dict[type[Example], str] = {
        TaggedExample: "a translation has other words, and nobody knows their tags",
        TextPair: "its target has to say the same as its source; translations are varied by 'back'",
        DialogueExample: "a reply has to fit what was said",
    }
    reason = reasons.get(type(example), "its label would not stay right")
    return f"{example.place}: {method!r} makes no variant of this example: {reason}"


def named(example: Example, copy: int) -> Example:
    """The id of a variant is its own; where an example has none it is its place."""
    own = example.id not in ("", str(example.place))
    return example.renamed(f"{example.id}~{copy}") if own else example
