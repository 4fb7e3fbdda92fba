"""Makes variants of labeled examples: which of their texts may change while the label stays right.

| task | what a variant changes |
| --- | --- |
| classify | the text |
| entail, similar | one of the two texts |
| choose | the premise, or all choices: a single changed choice would stand out |
| tag | words; an entity is moved or left out as a whole, its own words never change |
| answer | the question, or the passage outside of its answers |
| translate | the source, which `back` generates anew from the target |
| text | the line |

A variant is a function of (seed, number of the example, number of the variant), in any process.
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
MOST = 10_000  # the most variants of one example
CHUNK = 64  # examples whose variants are made together
ROOM = 2**16  # seeding keys for the sentences that one chunk translates
PURPOSE = "augment"


# A model that writes other words into a sentence (`regard.methods.augment.masked`).
WordModel = Callable[[WordSequence, float, np.random.Generator], WordSequence]


class Translator(Protocol):
    """Models that rewrite texts (`regard.methods.augment.back_translation`)."""

    there_and_back: bool

    @property
    def notes(self) -> list[str]: ...

    def __call__(self, texts: Sequence[str], first: int) -> list[str]: ...


class TextSlot(NamedTuple):
    """The texts of an example that change, and a function that puts new ones into the example."""

    sentences: list[WordSequence]
    put: Callable[[list[WordSequence]], Example]
    single: bool = False  # whether a word must stay one word


class Variant(NamedTuple):
    example: Example
    method: str


@dataclass(frozen=True)
class AugmentSettings:
    """All settings of the variants; plain values, so that they can be sent to another process."""

    methods: tuple[str, ...]
    copies: Annotated[
        float,
        Option("The variants of an example; below 1 it is the probability of one.", metavar="N",
               default="as in the paper: 16 up to 500 examples, 8 up to 2,000, 4 above; 1 with "
               "beams alone"),
    ] = 4  # fmt: skip
    word_fraction: Annotated[
        float,
        Option("The share of the words to change.", "--word-fraction", "P",
               "as in the paper: 0.05 up to 2,000 examples, 0.1 above"),
    ] = 0.1  # fmt: skip
    seed: Annotated[int, SEED] = 1
    thesaurus: Annotated[str, THESAURUS] = ""
    source: Annotated[
        Literal["paper", "code"],
        Option("Insert words by the rule of the paper or of its code.", "--insertion-rule"),
    ] = "paper"  # eda.py says where they differ
    language: Annotated[str, LANGUAGE] = ""  # a key of LANGUAGES in words.py
    scheme: str = ""  # the scheme of entity tags; "": each tag belongs to its word alone
    masked: Annotated[
        str, Option("Replace words by predictions of this masked model.", "--mask-model", "DIR")
    ] = ""
    rule: Annotated[
        str,
        Option("Which words to mask: some (--word-fraction), or tinybert.", "--mask-rule", "NAME"),
    ] = "some"  # masked.py has the rules
    top_k: Annotated[int, Option("Candidates for each masked word.", "--candidates", "N")] = 15
    away: Annotated[
        str, Option("Translate into another language with this model.", "--back", "DIR")
    ] = ""
    home: Annotated[
        str, Option("Translate back into the first language with this model.", "--forth", "DIR")
    ] = ""
    prefixes: tuple[str | None, str | None] = (None, None)
    temperature: Annotated[
        float, Option("The temperature of sampled translations.", metavar="T")
    ] = 0.9
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
                f"copies is {self.copies:g}; it must be a whole number up to {MOST:,}, or a "
                "probability between 0 and 1"
            )
        for method, model, option in (
            ("masked", self.masked, "a masked model (--mask-model DIR)"),
            ("back", self.away, "a model that translates (--back DIR)"),
        ):
            if (method in self.methods) != bool(model):
                have = "needs" if not model else "is not among the methods, but there is"
                raise ConfigError(f"the method {method!r} {have} {option}")
        usual = type(self)  # a setting that would change nothing is refused
        for option, is_set, does, methods in (
            (f"a thesaurus ({self.thesaurus})", self.thesaurus, "looks words up", BY_THESAURUS),
            (f"source {self.source!r}", self.source != usual.source, "inserts words", ("insert",)),
            (f"top_k {self.top_k}", self.top_k != usual.top_k, "asks a masked model", ("masked",)),
        ):
            if is_set and not set(methods) & set(self.methods):
                raise ConfigError(
                    f"there is {option}, but no method that {does}; add the method "
                    f"{' or '.join(methods)}"
                )

    @property
    def uses_share(self) -> bool:
        """Whether a method uses `word_fraction`; TinyBERT's rule has its own probability."""
        free = {"back", "masked"} if self.rule == "tinybert" else {"back"}
        return bool(set(self.methods) - free)


def check_methods(methods: Sequence[str]) -> None:
    if not methods:
        raise ConfigError(f"there is no method; give some of {', '.join(METHODS)}")
    for method in methods:
        if method not in METHODS:
            raise UnknownName("method", method, METHODS)
    if len(set(methods)) < len(methods):
        raise ConfigError(f"a method is named twice ({', '.join(methods)}); name it once")


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
        self.cuts = False  # whether a text was cut into words; tagged examples come in words
        if set(BY_THESAURUS) & set(settings.methods):
            self.thesaurus = open_thesaurus(settings.thesaurus)

    @property
    def notes(self) -> list[str]:
        """The notes for the user, once the variants are made."""
        settings, notes = self.settings, list[str]()
        if isinstance(self.thesaurus, SynonymList):
            notes += self.thesaurus.notes(self.is_looked_up)
        if self.back is None:
            return notes
        if settings.num_beams and settings.copies > 1 and settings.copies >= len(settings.methods):
            notes.append(
                "beam search finds one translation of a text, so its variants by 'back' repeat "
                "it; give fewer --copies, or --distinct, or leave --num-beams out to sample them"
            )
        return notes + self.back.notes

    def is_looked_up(self, word: str) -> bool:
        """Tells whether a word of a text can be this entry."""
        return is_one_word(word, self.settings.language) if self.cuts else len(word.split()) == 1

    # -- many

    def variants(self, examples: Sequence[Example], first: int = 0) -> list[list[Variant]]:
        """Returns the variants of each example; `first` is the number of the first example."""
        rows: list[list[Variant]] = []
        waiting: list[tuple[int, int, TextSlot]] = []  # (example, variant, texts) to translate
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
        """Makes a variant by a method that needs no other text."""
        return self.changed(self.spot(example, method, dice), method, dice)

    def changed(self, spot: TextSlot, method: str, dice: np.random.Generator) -> Example:
        """Returns the example with its sentences changed one after the other."""
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
        """Returns the texts of an example that this method may change."""
        there_and_back = self.back is not None and self.back.there_and_back
        if method == "back" and not isinstance(example, TextPair) and not there_and_back:
            raise ConfigError(
                f"{example.place}: a text that is translated once (--back) is in another language; "
                "give the model that translates it back, too (--forth)"
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
            case Question():  # a translated passage no longer holds the answers
                asks = method == "back" or dice.random() < 0.5
                return field("question") if asks else self.in_passage(example)
            case TaggedExample() if method != "back":
                return self.in_tagged(example)
            case TextPair() if method == "back":
                return self.in_pair(example, there_and_back)
        raise ConfigError(refusal(example, method))

    def in_choices(self, example: MultipleChoice) -> TextSlot:
        """Returns all choices; if two of them would become equal, the example stays unchanged."""

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
        """Returns the sentence with entities as single units. Punctuation stays where it is."""
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
        """Returns the target, which one model translates into the language of the source. If the
        translation is empty, the source stays."""
        if example.target is None:
            raise ConfigError(f"{example.place}: there is no target to translate; add one")
        if there_and_back:
            raise ConfigError(
                f"{example.place}: one model (--back) translates the target of a pair into its "
                "source; leave the second model (--forth) out"
            )

        def put(new: list[WordSequence]) -> Example:
            return replace(example, source=str(new[0])) if str(new[0]).strip() else example

        return TextSlot([whole(example.target)], put)


def refusal(example: Example, method: str) -> str:
    reasons: dict[type[Example], str] = {
        TaggedExample: "a translation has other words, whose tags are not known",
        TextPair: "its target must keep the meaning of its source; only 'back' varies translations",
        DialogueExample: "a reply must fit the turns before it",
    }
    reason = reasons.get(type(example), "its label would not stay right")
    return f"{example.place}: {method!r} makes no variant of this example: {reason}"


def named(example: Example, copy: int) -> Example:
    """Gives a variant an id of its own; an example without an id is known by its file and line."""
    own = example.id not in ("", str(example.place))
    return example.renamed(f"{example.id}~{copy}") if own else example
