"""Tasks that need no labels: what plain text says about itself.

| name | about | what is asked |
| --- | --- | --- |
| capital | a word | does it begin with a capital (sentences' first words aside)? |
| number | a word | does it hold a digit? |
| punctuation-next | a word | does a punctuation mark follow it? |
| word-length | a word | how many letters: 1-3, 4-6, 7-9, 10+ |
| position | a word | its place in the sentence: 1, 2, 3-4, 5-8, 9-16, 17+ |
| previous-word | a word | which of the 20 most frequent words stands before it? |
| sentence-length | a sentence | how many words: 4-8, 9-16, 17-24, 25-32, 33+ |
| word-order | a sentence | are two neighbours swapped (bigram shift, Conneau et al. 2018)? |
| same-document | two sentences | do they follow one another, or come from two documents? |

Sentences are drawn from all of the text by a hash, so that no order decides, and equal ones once.
"""

from __future__ import annotations

import heapq
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from regard.core.errors import InputError, UnknownName
from regard.core.seeding import keyed
from regard.data.corpus import MARKER, Corpus
from regard.data.files import Tally
from regard.data.sentences import Cutter
from regard.data.sources import Reading, documents, find
from regard.data.words import is_unspaced, words_of
from regard.methods.probe.plan import LIMIT
from regard.methods.probe.tasks import Item, Task, settled

SHORTEST, LONGEST = 4, 64  # words of a sentence that is asked about
FREQUENT = 20  # words that `previous-word` knows
HELD_OUT = 10  # a tenth validates, a tenth tests

T = TypeVar("T")


def is_mark(word: str) -> bool:
    return not any(letter.isalnum() for letter in word)


def joined(words: Sequence[str]) -> str:
    """As one text, without spaces in scripts that have none."""
    text = ""
    for word in words:
        close = not text or (is_unspaced(text[-1]) and is_unspaced(word[0]))
        text += word if close else f" {word}"
    return text


def classed(number: int, *last: int) -> str:
    """The class of a number: up to the first of `last`, up to the second, …, or above."""
    low = 1
    for high in last:
        if number <= high:
            return str(high) if low == high else f"{low}-{high}"
        low = high + 1
    return f"{low}+"


# -- a label for each word

Asked = tuple[str | None, ...]


def capital(words: Sequence[str]) -> Asked:
    def of(place: int, word: str) -> str | None:
        if place == 0 or word[0].upper() == word[0].lower():
            return None
        return "capital" if word[0].isupper() else "small"

    return tuple(of(place, word) for place, word in enumerate(words))


def number(words: Sequence[str]) -> Asked:
    return tuple(
        None if is_mark(word) else "number" if any(c.isdigit() for c in word) else "word"
        for word in words
    )


def punctuation_next(words: Sequence[str]) -> Asked:
    after = [*("mark" if is_mark(word) else "word" for word in words[1:]), None]
    return tuple(None if is_mark(word) else x for word, x in zip(words, after, strict=True))


def word_length(words: Sequence[str]) -> Asked:
    return tuple(classed(len(word), 3, 6, 9) if word.isalpha() else None for word in words)


def position(words: Sequence[str]) -> Asked:
    return tuple(classed(place, 1, 2, 4, 8, 16) for place in range(1, len(words) + 1))


BY_WORD: dict[str, Callable[[Sequence[str]], Asked]] = {
    "capital": capital,
    "number": number,
    "punctuation-next": punctuation_next,
    "word-length": word_length,
    "position": position,
}
NAMES = (*BY_WORD, "previous-word", "sentence-length", "word-order", "same-document")


# -- text


class Sentence(NamedTuple):
    document: int
    text: str
    words: tuple[str, ...]
    after: str = ""  # the sentence that follows in the same document


def stream(source: str, split: str) -> Iterator[tuple[int, list[str]]]:
    """Of each document its number and sentences: of a prepared directory, or of a text."""
    if Path(source, MARKER).is_file():
        corpus = Corpus.open(source, split)
        tokenizer = corpus.tokenizer
        for number in range(len(corpus.documents) - 1):
            edges = corpus.sentences_of(number).tolist()
            ids = (corpus.read(a, b).tolist() for a, b in pairwise(edges))
            yield number, [tokenizer.decode(each) for each in ids]
        return
    with tempfile.TemporaryDirectory() as work:
        reading = Reading()
        cutter, number, held = Cutter(), 0, list[str]()
        for piece in documents(find([source], reading, Path(work)), reading, Tally()):
            held += cutter.feed(piece.text, ends=piece.ends)
            if piece.ends or len(held) > 1000:
                yield number, held
                held = []
            number += piece.ends


def sampled(source: str, split: str, count: int, seed: int, pairs: bool = False) -> list[Sentence]:
    """At most `count` sentences (with a follower, if they are for pairs), those of the least
    hashes: drawn evenly in one pass, in memory for no more than these.
    """
    salt = seed.to_bytes(8, "little")
    kept: list[tuple[int, int, Sentence]] = []  # a heap: the largest hash first
    seen: set[int] = set()
    for number, every in stream(source, split):
        texts = [" ".join(text.split()) for text in every]
        for place, text in enumerate(texts):
            after = texts[place + 1] if place + 1 < len(texts) else ""
            key = int.from_bytes(blake2b(text.encode(), digest_size=8, key=salt).digest(), "big")
            if key in seen or (len(kept) == count and key >= -kept[0][0]):
                continue
            words = tuple(words_of(text))
            if not SHORTEST <= len(words) <= LONGEST:
                continue
            if pairs and not SHORTEST <= len(words_of(after)) <= LONGEST:
                continue
            entry = (-key, place, Sentence(number, text, words, after))
            if len(kept) < count:
                heapq.heappush(kept, entry)
            else:
                seen.discard(-heapq.heappushpop(kept, entry)[0])
            seen.add(key)
    return [sentence for _, _, sentence in sorted(kept, key=lambda entry: -entry[0])]


# -- tasks


def automatic(
    name: str, source: str, *, split: str = "train", limit: int = LIMIT, seed: int = 0
) -> Task:
    """A task by its name; four fifths of the sentences learn."""
    if name not in NAMES:
        raise UnknownName("automatic task", name, NAMES)
    total = (limit or LIMIT) * HELD_OUT // (HELD_OUT - 2)
    found = sampled(source, split, total, seed, pairs=name == "same-document")
    if len(found) < 2 * HELD_OUT:
        raise InputError(
            f"{source} has {len(found)} sentences of {SHORTEST} to {LONGEST} words"
            + (" with another behind them" if name == "same-document" else "")
            + f"; a task made of it needs at least {2 * HELD_OUT}"
        )
    shape, items = MAKERS.get(name, by_word)(name, found, seed)
    parts = {part: list[Item]() for part in ("train", "dev", "test")}
    for place, item in enumerate(items):
        part = {0: "dev", 1: "test"}.get(place % HELD_OUT, "train")
        parts[part].append(item)
    return settled(seen_in_training(Task(f"auto:{name}", shape, parts)))


def seen_in_training(task: Task) -> Task:
    """Without what is held out and has a label that the training part lacks."""
    known = task.counts["train"]
    for part in ("dev", "test"):
        task.parts[part] = [
            item for item in task.parts[part] if all(label in known for label in item.known)
        ]
    return task


Made = tuple[str, list[Item]]


def by_word(name: str, found: Sequence[Sentence], seed: int) -> Made:
    return "words", [Item(each.words, BY_WORD[name](each.words)) for each in found]


def previous_word(name: str, found: Sequence[Sentence], seed: int) -> Made:
    counts = Counter(word.lower() for each in found for word in each.words[:-1]
                     if not is_mark(word))  # fmt: skip
    known = {word for word, _ in counts.most_common(FREQUENT)}

    def asked(words: Sequence[str]) -> Asked:
        before = [None, *(word.lower() for word in words[:-1])]
        return tuple(word if word in known else None for word in before)

    return "words", [Item(each.words, asked(each.words)) for each in found]


def sentence_length(name: str, found: Sequence[Sentence], seed: int) -> Made:
    return "texts", [Item((each.text,), (classed(len(each.words), 8, 16, 24, 32),))
                     for each in found]  # fmt: skip


def word_order(name: str, found: Sequence[Sentence], seed: int) -> Made:
    return "texts", [
        swapped(each.words, keyed(seed, "swap", place), bool(place // HELD_OUT % 2))
        for place, each in enumerate(found)
    ]


def swapped(words: Sequence[str], dice: Any, swap: bool) -> Item:
    """Two neighbours that differ change places."""
    places = [i for i in range(len(words) - 1) if words[i].lower() != words[i + 1].lower()]
    made = list(words)
    if swap and places:
        i = int(dice.choice(places))
        made[i], made[i + 1] = made[i + 1], made[i]
    return Item((joined(made),), ("swapped" if swap and places else "kept",))


def same_document(name: str, found: Sequence[Sentence], seed: int) -> Made:
    """Every second block of sentences gets a follower from another document."""
    if len({each.document for each in found}) < 2:
        raise InputError(
            "the text is one document; blank lines part documents, and 'same-document' needs two"
        )
    items = []
    for place, each in enumerate(found):
        other = next((x for x in rotated(found, place + 1) if x.document != each.document), each)
        apart = bool(place // HELD_OUT % 2)
        after = other.after if apart else each.after
        items.append(Item((each.text, after), ("apart" if apart else "together",)))
    return "pairs", items


def rotated(values: Sequence[T], start: int) -> Iterable[T]:
    return (values[(start + i) % len(values)] for i in range(len(values)))


MAKERS: dict[str, Callable[[str, Sequence[Sentence], int], Made]] = {
    "previous-word": previous_word,
    "sentence-length": sentence_length,
    "word-order": word_order,
    "same-document": same_document,
}
