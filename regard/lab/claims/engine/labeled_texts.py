"""Artificial texts and labeled examples with known answers, simple enough for a tiny model.

* moods: a sentence is glad or sad, in one of two shades, and most of its words have that shade.
  Texts without labels show which words occur together; the labels only name these groups.
* stories: a text has a subject, and its sentences pass through stages in order.
* creatures: each has a color and fears another color; these facts stand only in a graph.

Words consist of syllables and are entries of the vocabulary. Every random choice has its own key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from regard.core.files import write_text
from regard.core.seeding import keyed, permutation
from regard.lab.claims.engine.cache import mark, once

Files = dict[str, Path]
Record = dict[str, Any]
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SYLLABLES = [c + v for c in "bdfghjklmnprstvwyz" for v in "aeiou"]
TESTED = 1000  # examples of a test set


def words(count: int, begin: int = 0) -> list[str]:
    """Returns artificial words, no two alike. With `begin`, two groups of words do not overlap."""
    size = len(SYLLABLES)
    picked = permutation(size * size, "made words")[begin : begin + count]
    return [SYLLABLES[i // size] + SYLLABLES[i % size] for i in picked]


# -- files


def lines(file: Path, records: Iterable[Record]) -> Path:
    text = "".join(json.dumps(record) + "\n" for record in records)
    write_text(file, text)
    return file


def tokenizer(vocabulary: Iterable[str]) -> Any:
    """Builds a tokenizer with one token for each word."""
    from regard.data.special_tokens import completed, special_of
    from regard.data.tokenizer import Tokenizer
    from regard.data.tokenizer_classes import bert_pieces

    pieces = Tokenizer(bert_pieces([*MARKS, *vocabulary]))
    return completed(pieces, special_of(pieces, "the tokenizer"))


def prepared(
    place: Path, name: str, vocabulary: Iterable[str], documents: Callable[[], Iterable[str]]
) -> Path:
    """Prepares text with its own words as tokens and one document a line. It is made once for this
    version of the code."""
    from regard.data import prepare
    from regard.data.corpus import MARKER
    from regard.data.sources import SourceOptions

    out = place / f"{name}-{mark(__file__)}"

    def make() -> None:
        with TemporaryDirectory(prefix="made-", dir=place) as work:
            tokenizer(vocabulary).save(Path(work))
            text = Path(work, "made.txt")
            text.write_text("".join(f"{line}\n" for line in documents()), encoding="utf-8")
            reading = SourceOptions(split_by="line")
            prepare.prepare(prepare.PreparePlan((str(text),), out, reading=reading, tokenizer=work))

    return once(out, MARKER, make)


# -- moods

SHADES, WORDS = 2, 60  # shades of a mood, and words of a shade, which occur together
TELLING, TURNED = 6, 0.4  # words of a sentence, and the share of misleading ones
SENTENCES = 4  # sentences of a text
MOODS = {
    mood: [words(WORDS, WORDS * (SHADES * k + shade)) for shade in range(SHADES)]
    for k, mood in enumerate(("glad", "sad"))
}
EVERY = [(word, f"{mood}-{i}") for mood, shades in MOODS.items() for i, shade in enumerate(shades)
         for word in shade]  # fmt: skip
PLAIN = words(30, 400)  # words of no mood


def mood_sentence(mood: str, shade: int, *key: int | str) -> list[str]:
    """Returns words of one shade of a mood; a misleading word may have any shade."""
    dice = keyed(*key)
    picked = [str(word) for word in dice.choice(MOODS[mood][shade], TELLING)]
    any_of = [EVERY[int(i)][0] for i in dice.integers(len(EVERY), size=TELLING)]
    turned = dice.random(TELLING) < TURNED
    return [b if t else a for a, b, t in zip(picked, any_of, turned, strict=True)]


def mood_at(index: int) -> tuple[str, int]:
    """Returns the mood and the shade of an example: all combinations in turn."""
    return tuple(MOODS)[index % 2], index // 2 % SHADES


def mood_text(place: Path) -> Path:
    """Prepares 4,000 texts without labels, each of one shade."""

    def documents() -> Iterator[str]:
        for i in range(4000):
            sentences = (
                mood_sentence(*mood_at(i), "moods", "text", i, n) for n in range(SENTENCES)
            )
            yield " ".join(word for sentence in sentences for word in sentence)

    return prepared(place, "moods", [*(word for word, _ in EVERY), *PLAIN], documents)


def both_parts(place: Path, count: int, tested: int, record: Callable[[str, int], Record]) -> Files:
    """Writes the training and the test examples, each made from its part and its number."""
    sizes = {"train": count, "test": tested}
    return {
        part: lines(place / f"{part}.jsonl", (record(part, i) for i in range(size)))
        for part, size in sizes.items()
    }


def moods(place: Path, seed: int, count: int) -> Files:
    """Writes sentences that are glad or sad, and synonyms: two other words of each word's shade."""

    def record(part: str, i: int) -> Record:
        mood, shade = mood_at(i)
        text = " ".join(mood_sentence(mood, shade, "moods", part, seed, i))
        return {"text": text, "label": mood}

    synonyms = place / "synonyms.tsv"
    shades = [shade for kinds in MOODS.values() for shade in kinds]
    rows = ((kinds[i], kinds[i - 1], kinds[i - 2]) for kinds in shades for i in range(len(kinds)))
    write_text(synonyms, "".join("\t".join(row) + "\n" for row in rows))
    return both_parts(place, count, TESTED, record) | {"synonyms": synonyms}


def same_moods(place: Path, seed: int, count: int) -> Files:
    """Writes pairs of sentences with the label whether they have the same mood. The order of the
    two does not matter."""

    def record(part: str, i: int) -> Record:
        dice = keyed("pairs", part, seed, i)
        first, alike = mood_at(int(dice.integers(2 * SHADES))), i % 2 == 0
        second = mood_at(tuple(MOODS).index(first[0]) + int(not alike) + 2 * int(dice.integers(2)))
        a, b = (" ".join(mood_sentence(*each, "pairs", part, seed, i, n))
                for n, each in enumerate((first, second)))  # fmt: skip
        return {"sentence1": a, "sentence2": b, "label": "same" if alike else "other"}

    return both_parts(place, count, TESTED, record)


def shades(place: Path, seed: int, count: int) -> Files:
    """Writes tagged sentences: the tag of a word is its own shade, whatever the shade of the
    sentence."""
    kinds = dict(EVERY)

    def record(part: str, i: int) -> Record:
        text = mood_sentence(*mood_at(i), "shades", part, seed, i)
        return {"words": text, "tags": [kinds[word] for word in text]}

    return both_parts(place, count, TESTED // 2, record)


def long_moods(length: int) -> Callable[[Path, int, int], Files]:
    """Returns a function that writes texts of `length` words, of which four, anywhere in the text,
    show the mood."""

    def record(seed: int, part: str, i: int) -> Record:
        dice, mood = keyed("long moods", part, length, seed, i), mood_at(i)[0]
        text = [str(word) for word in dice.choice(PLAIN, length)]
        for at in dice.choice(length, 4, replace=False):
            text[int(at)] = str(dice.choice(MOODS[mood][0][:20]))
        return {"text": " ".join(text), "label": mood}

    def files(place: Path, seed: int, count: int) -> Files:
        return both_parts(place, count, TESTED // 2, lambda part, i: record(seed, part, i))

    return files


# -- stories

SUBJECTS, STAGES, SENTENCES = 60, 12, 6
OF_SUBJECT = [words(4, 1000 + 4 * k) for k in range(SUBJECTS)]
OF_STAGE = [words(6, 1300 + 6 * k) for k in range(STAGES)]


def story(*key: int | str) -> str:
    """Returns sentences about one subject. Three words of each sentence show its stage, and the
    stages only rise."""
    dice = keyed(*key)
    own = OF_SUBJECT[int(dice.integers(SUBJECTS))]
    sentences = []
    for stage in sorted(dice.choice(STAGES, SENTENCES, replace=False)):
        picked = [str(word) for kind, n in ((own, 5), (OF_STAGE[stage], 3))
                  for word in dice.choice(kind, n)]  # fmt: skip
        sentences.append(
            " ".join(str(word) for word in dice.permutation(picked)).capitalize() + "."
        )
    return " ".join(sentences)


def story_text(place: Path) -> Path:
    def documents() -> Iterator[str]:
        for i in range(4000):
            yield story("stories", i)

    every = [word for kind in (*OF_SUBJECT, *OF_STAGE) for word in kind]
    return prepared(place, "stories", [*every, "."], documents)


# -- creatures

STARTS = "ba da fe go hu ji ka lo mi nu pe ra so ti vu qi xe yo za zo".split()
ENDS = "bi dok fa gur kalu lim mo nex pol rit sen tu vas wop yin zel".split()
COLOURS = "red blue green white black brown grey pink".split()
FRAMES = ("the {a} met the {b}", "a {a} saw the {b} today", "the {b} and the {a} were there")
ASKS = ("is the {x} {a} or {b}", "was that {x} {a} or was it {b}")


class Creature(NamedTuple):
    name: str
    color: str
    fears: str  # another color


def creatures(seed: int) -> list[Creature]:
    every = [first + last for first in STARTS for last in ENDS]
    animals = []
    for i in permutation(len(every), seed, "creatures"):
        color, fears = keyed(seed, "properties", every[i]).choice(COLOURS, 2, replace=False)
        animals.append(Creature(every[i], str(color), str(fears)))
    return animals


def question(among: list[Creature], index: int, *key: int | str) -> Record:
    """Returns a question with two colors. The wrong one is a random color, the color of the other
    creature, or the color that the creature fears."""
    dice = keyed(*key, index)
    subject, other = (among[i] for i in dice.choice(len(among), 2, replace=False))
    while other.color == subject.color or other.name == subject.name:
        other = among[int(dice.integers(len(among)))]
    rest = [c for c in COLOURS if c not in (subject.color, subject.fears, other.color)]
    wrong = (str(dice.choice(rest)), other.color, subject.fears)[index % 3]
    first, second = (str(c) for c in dice.permutation([subject.color, wrong]))
    a, b = (str(x) for x in dice.permutation([subject.name, other.name]))
    return {
        "premise": str(dice.choice(FRAMES)).format(a=a, b=b),
        "hypothesis": str(dice.choice(ASKS)).format(x=subject.name, a=first, b=second),
        "label": subject.color,
    }


def creature_text(place: Path) -> Path:
    """Prepares questions about creatures of another world: they contain the words, but no fact that
    the test asks for."""
    known = {word for text in (*FRAMES, *ASKS) for word in text.split() if "{" not in word}
    known |= {*COLOURS, "color", "fears"}
    pieces = [*(s for s in STARTS if s not in known), *(f"##{end}" for end in ENDS)]

    def documents() -> Iterator[str]:
        among = creatures(0)
        for i in range(500):
            record = question(among, i, "creatures", "text")
            yield f"{record['premise']} {record['hypothesis']}"

    return prepared(place, "creatures", [*sorted(known), *pieces], documents)


def facts(place: Path, seed: int, count: int) -> Files:
    """Writes questions about some creatures, a test about other creatures, and a graph with the
    facts about all."""
    from regard.data.knowledge.graph import Graph

    every = creatures(seed)
    seen, unseen = every[: len(every) * 3 // 4], every[len(every) * 3 // 4 :]
    graph = place / "facts.tsv"
    Graph(
        fact for c in every for fact in ((c.name, "color", c.color), (c.name, "fears", c.fears))
    ).write(graph)
    parts = {"train": (count, seen), "test": (TESTED, unseen)}
    files = {
        part: lines(place / f"{part}.jsonl", (question(among, i, seed, part) for i in range(size)))
        for part, (size, among) in parts.items()
    }
    return files | {"graph": graph}
