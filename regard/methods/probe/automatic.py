"""Probing tasks that need no labels: the labels come from the plain text itself.

| name | about | question |
| --- | --- | --- |
| capital | a word | does it begin with a capital (first words of sentences excluded)? |
| number | a word | does it contain a digit? |
| punctuation-next | a word | does a punctuation mark follow it? |
| word-length | a word | how many letters: 1-3, 4-6, 7-9, 10+ |
| position | a word | its position in the sentence: 1, 2, 3-4, 5-8, 9-16, 17+ |
| previous-word | a word | which of the 20 most frequent words stands before it? |
| sentence-length | a sentence | how many words: 4-8, 9-16, 17-24, 25-32, 33+ |
| word-order | a sentence | are two neighbors swapped (bigram shift, Conneau et al. 2018)? |
| same-document | two sentences | do they follow one another, or come from two documents? |

Sentences are sampled from the whole text by a hash, so that their order does not matter. Equal
sentences are sampled once.
"""

from __future__ import annotations

import heapq
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import InputError, UnknownName
from regard.core.seeding import keyed
from regard.data.corpus import MARKER, Corpus
from regard.data.files import ReadCounts
from regard.data.readers import MOST
from regard.data.sentences import SentenceSplitter
from regard.data.sources import SourceOptions, documents, find
from regard.data.words import is_unspaced, words_of
from regard.methods.probe.plan import LIMIT
from regard.methods.probe.tasks import ProbeItem, ProbeTask, with_classes

SHORTEST, LONGEST = 4, 64  # words of a sentence
FREQUENT = 20  # classes of `previous-word`
HELD_OUT = 10  # a tenth is for validation, a tenth for the test


def is_mark(word: str) -> bool:
    return not any(letter.isalnum() for letter in word)


def joined(words: Sequence[str]) -> str:
    """Joins words to one text, without spaces in scripts that have none."""
    text = ""
    for word in words:
        close = not text or (is_unspaced(text[-1]) and is_unspaced(word[0]))
        text += word if close else f" {word}"
    return text


def class_of_number(number: int, *last: int) -> str:
    """Returns the class of a number: up to the first of `last`, up to the second, …, or above the
    last."""
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
    return tuple(class_of_number(len(word), 3, 6, 9) if word.isalpha() else None for word in words)


def position(words: Sequence[str]) -> Asked:
    return tuple(class_of_number(place, 1, 2, 4, 8, 16) for place in range(1, len(words) + 1))


BY_WORD: dict[str, Callable[[Sequence[str]], Asked]] = {
    "capital": capital,
    "number": number,
    "punctuation-next": punctuation_next,
    "word-length": word_length,
    "position": position,
}
NAMES = (*BY_WORD, "previous-word", "sentence-length", "word-order", "same-document")


# -- text


class ProbeSentence(NamedTuple):
    document: int
    text: str
    words: tuple[str, ...]
    after: str = ""  # the sentence that follows in the same document


def stream(source: str, split: str, max_bytes: int) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the sentences of each document of a prepared directory or of a text."""
    if Path(source, MARKER).is_file():
        corpus = Corpus.open(source, split)
        tokenizer = corpus.tokenizer
        for number in range(len(corpus.documents) - 1):
            edges = corpus.sentences_of(number).tolist()
            ids = (corpus.read(a, b).tolist() for a, b in pairwise(edges))
            yield number, [tokenizer.decode(each) for each in ids]
        return
    with tempfile.TemporaryDirectory() as work:
        reading = SourceOptions(max_bytes=max_bytes)
        cutter, number, waiting = SentenceSplitter(), 0, list[str]()
        for piece in documents(find([source], reading, Path(work)), reading, ReadCounts()):
            waiting += cutter.feed(piece.text, ends=piece.ends)
            if piece.ends or len(waiting) > 1000:
                yield number, waiting
                waiting = []
            number += piece.ends


def sampled(
    source: str,
    split: str,
    count: int,
    seed: int,
    pairs: bool = False,
    max_bytes: int = MOST,
) -> list[ProbeSentence]:
    """Samples at most `count` sentences: those with the smallest hashes. With `pairs`, only
    sentences that another sentence follows. One pass over the text gives a uniform sample, and only
    the sample is held in memory."""
    salt = seed.to_bytes(8, "little")
    heap: list[tuple[int, int, ProbeSentence]] = []  # with the largest hash on top
    seen: set[int] = set()
    for number, every in stream(source, split, max_bytes):
        texts = [" ".join(text.split()) for text in every]
        for place, text in enumerate(texts):
            after = texts[place + 1] if place + 1 < len(texts) else ""
            key = int.from_bytes(blake2b(text.encode(), digest_size=8, key=salt).digest(), "big")
            if key in seen or (len(heap) == count and key >= -heap[0][0]):
                continue
            words = tuple(words_of(text))
            if not SHORTEST <= len(words) <= LONGEST:
                continue
            if pairs and not SHORTEST <= len(words_of(after)) <= LONGEST:
                continue
            entry = (-key, place, ProbeSentence(number, text, words, after))
            if len(heap) < count:
                heapq.heappush(heap, entry)
            else:
                seen.discard(-heapq.heappushpop(heap, entry)[0])
            seen.add(key)
    return [sentence for _, _, sentence in sorted(heap, key=lambda entry: -entry[0])]


# -- tasks


def automatic(
    name: str,
    source: str,
    *,
    split: str = "train",
    limit: int = LIMIT,
    seed: int = 0,
    max_bytes: int = MOST,
) -> ProbeTask:
    """Builds a task by its name. Four fifths of the sentences are for training. Items of the other
    fifth whose label does not occur in training are left out."""
    if name not in NAMES:
        raise UnknownName("automatic task", name, NAMES)
    total = (limit or LIMIT) * HELD_OUT // (HELD_OUT - 2)
    sentences = sampled(source, split, total, seed, name == "same-document", max_bytes)
    if len(sentences) < 2 * HELD_OUT:
        raise InputError(
            f"{source} has {len(sentences)} sentences of {SHORTEST} to {LONGEST} words"
            + (" that another sentence follows" if name == "same-document" else "")
            + f"; a task needs at least {2 * HELD_OUT}: give a longer text"
        )
    shape, items = "texts", list[ProbeItem]()
    if name in BY_WORD:
        shape, items = (
            "words",
            [ProbeItem(each.words, BY_WORD[name](each.words)) for each in sentences],
        )
    elif name == "previous-word":
        shape, items = "words", previous_word(sentences)
    elif name == "sentence-length":
        lengths = [class_of_number(len(each.words), 8, 16, 24, 32) for each in sentences]
        items = [
            ProbeItem((e.text,), (length,)) for e, length in zip(sentences, lengths, strict=True)
        ]
    elif name == "word-order":
        items = [
            swapped(each.words, keyed(seed, "swap", place), bool(place // HELD_OUT % 2))
            for place, each in enumerate(sentences)
        ]
    else:
        shape, items = "pairs", same_document(sentences)
    held_out = {0: "dev", 1: "test"}
    parts = {part: list[ProbeItem]() for part in ("train", "dev", "test")}
    for place, item in enumerate(items):
        parts[held_out.get(place % HELD_OUT, "train")].append(item)
    known = {label for item in parts["train"] for label in item.known}
    for part in held_out.values():
        parts[part] = [item for item in parts[part] if known.issuperset(item.known)]
    return with_classes(ProbeTask(f"auto:{name}", shape, parts))


def previous_word(sentences: Sequence[ProbeSentence]) -> list[ProbeItem]:
    counts = Counter(
        word.lower() for each in sentences for word in each.words[:-1] if not is_mark(word)
    )
    known = {word for word, _ in counts.most_common(FREQUENT)}
    items = []
    for each in sentences:
        before = [None, *(word.lower() for word in each.words[:-1])]
        items.append(
            ProbeItem(each.words, tuple(word if word in known else None for word in before))
        )
    return items


def swapped(words: Sequence[str], dice: Any, swap: bool) -> ProbeItem:
    """Swaps two neighboring words that differ, if `swap` is true."""
    places = [i for i in range(len(words) - 1) if words[i].lower() != words[i + 1].lower()]
    order = list(words)
    if swap and places:
        i = int(dice.choice(places))
        order[i], order[i + 1] = order[i + 1], order[i]
    return ProbeItem((joined(order),), ("swapped" if swap and places else "kept",))


def same_document(sentences: Sequence[ProbeSentence]) -> list[ProbeItem]:
    """Builds pairs of sentences. In every second block of ten, the follower comes from another
    document."""
    if len({each.document for each in sentences}) < 2:
        raise InputError(
            "the text is one document, and 'same-document' needs two; separate documents by blank "
            "lines"
        )
    items = []
    for place, each in enumerate(sentences):
        rest = (sentences[(place + 1 + i) % len(sentences)] for i in range(len(sentences)))
        other = next((x for x in rest if x.document != each.document), each)
        apart = bool(place // HELD_OUT % 2)
        after = other.after if apart else each.after
        items.append(ProbeItem((each.text, after), ("apart" if apart else "together",)))
    return items
