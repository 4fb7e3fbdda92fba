"""Tasks in words: what a model reads, what it has to write, and what the written text means.

The file of each task defines its form (`prefix`; `sides` and `second_first`, or its own `source`;
`target`). For example, `entail.py` defines how T5 reads an entailment. In short:

    task       source                                                  target
    translate  {prefix}SOURCE                                          TARGET
    summarize  {prefix}SOURCE                                          TARGET
    classify   {prefix}text: A [pair: B]                               the label
    multilabel {prefix}text: A                                         the labels, with commas
    entail     {prefix}hypothesis: B premise: A                        the label
    similar    {prefix}sentence1: A sentence2: B                       3.8, in steps of 0.2
    answer     {prefix}question: Q context: P                          the answer, or "no answer"
    choose     {prefix}choice1: … choice2: … premise: P [question: …]  choice1, choice2, …
    converse   the turns before, each closed by the end token          the reply

T5's prefixes of summarize, entail (MNLI), similar (STS-B) and choose (COPA), and the order of the
fields, are those of its authors' code and of Raffel et al. 2019, appendix D; their example in 2.4
has the premise first. Three prefixes are ours: `classify` (theirs names a data set), `translate: `
(theirs names two languages), and that of multilabel. Other models have no prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.core.errors import InputError
from regard.data.examples import DialogueExample, Example
from regard.data.tokenizer import Tokenizer
from regard.tasks.base import Task


def compact(text: str) -> str:
    """Removes white space, because some tokenizers insert it."""
    return "".join(text.split())


def ids_of(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Returns ids without special tokens. A special token spelled in a text is read as text."""
    encodings = tokenizer.literal.encode_batch_fast(list(texts), add_special_tokens=False)
    return [each.ids for each in encodings]


class LabelWords:
    """The closed words as a tokenizer writes them: it may change their case, or not know them."""

    def __init__(self, words: Sequence[str], tokenizer: Tokenizer) -> None:
        self.by_ids: dict[tuple[int, ...], str] = {}
        self.by_text: dict[str, str] = {}
        for word, ids in zip(words, ids_of(tokenizer.target, words), strict=True):
            other = self.by_ids.setdefault(tuple(ids), word)
            if other != word:
                raise InputError(
                    f"{other!r} and {word!r} are the same tokens for this model, so it cannot "
                    "write them apart; rename one"
                )
            self.by_text.setdefault(compact(tokenizer.decode(ids)), word)

    def find(self, ids: Sequence[int], text: str) -> str | None:
        return self.by_ids.get(tuple(ids)) or self.by_text.get(compact(text))


# -- dialogue


def turns_before_last(dialogue: DialogueExample, memory: int | None) -> tuple[list[str], list[str]]:
    """Returns the turns before the last one, as decoding/dialogue.py shows them: the system turns,
    and then the newest turn with `memory` turns before it (None: all)."""
    before = dialogue.turns[:-1]
    roles = (dialogue.roles or ("",) * len(dialogue.turns))[:-1]
    system = [turn for turn, role in zip(before, roles, strict=True) if role == "system"]
    rest = [turn for turn, role in zip(before, roles, strict=True) if role != "system"]
    return system, rest if memory is None else rest[max(0, len(rest) - 1 - memory) :]


def fit_turns(system: list[list[int]], rest: list[list[int]], room: int) -> list[int]:
    """Returns the ids of the turns that fit. The oldest exchanges are dropped first."""
    while True:
        ids = [i for turn in (*system, *rest) for i in turn]
        if len(ids) <= room:
            return ids
        if len(rest) <= 1:
            return ids[-room:]
        rest = rest[2:] if len(rest) > 2 else rest[1:]


# -- examples as pairs of ids


@dataclass(frozen=True)
class TextFormatter:
    """Turns examples into token ids for one model, in training and in prediction alike."""

    task: Task
    prefix: str
    tokenizer: Tokenizer
    end: int  # the token that closes a source, a target or a turn
    pair: bool  # does the model have an encoder?

    @property
    def memory(self) -> int | None:
        """How many turns before the newest are shown: the default of `regard chat`."""
        return 0 if self.pair else None

    def source(self, example: Example) -> str:
        return self.prefix + self.task.source(example)

    def sources(self, examples: Sequence[Example], room: int) -> tuple[list[list[int]], int]:
        """Returns the ids of each source, at most `room` of them, and how many sources were cut."""
        if self.task.in_turns:
            return self.contexts(examples, [room] * len(examples))
        rows = ids_of(self.tokenizer, [self.source(e) for e in examples])
        cut = sum(len(ids) >= room for ids in rows)
        return [[*ids[: room - 1], self.end] for ids in rows], cut

    def contexts(
        self, dialogues: Sequence[Any], rooms: Sequence[int]
    ) -> tuple[list[list[int]], int]:
        """Returns the ids of the turns before the last one, and how many dialogues were cut."""
        parts = [turns_before_last(dialogue, self.memory) for dialogue in dialogues]
        ids = iter(self.closed([turn for system, rest in parts for turn in (*system, *rest)]))
        sources, cut = [], 0
        for (system, rest), room in zip(parts, rooms, strict=True):
            if not rest:
                raise InputError("nothing was said before the reply; give at least one turn")
            first, then = [next(ids) for _ in system], [next(ids) for _ in rest]
            sources.append(fit_turns(first, then, room))
            cut += len(sources[-1]) < sum(map(len, (*first, *then)))
        return sources, cut

    def closed(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*ids, self.end] for ids in ids_of(self.tokenizer, texts)]

    def targets(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*ids, self.end] for ids in ids_of(self.tokenizer.target, texts)]

    def pairs(
        self, examples: Sequence[Example], length: int
    ) -> Iterator[tuple[list[int], list[int], int]]:
        """Yields source, target and the number of bytes of both. The context of a dialogue is cut
        here, where its turns are known; other sources are cut by the objective."""
        if self.task.in_turns:
            talks: list[Any] = self.task.expanded(examples)
            targets = self.targets([talk.turns[-1] for talk in talks])
            rooms = [max(length - len(ids), length - length // 2) for ids in targets]
            sources, _ = self.contexts(talks, rooms)
            sizes = [bytes_of(*talk.turns[-2:]) for talk in talks]
        else:
            texts = [(self.source(e), self.task.target(e)) for e in examples]
            sources = self.closed([source for source, _ in texts])
            targets = self.targets([target for _, target in texts])
            sizes = [bytes_of(*both) for both in texts]
        yield from zip(sources, targets, sizes, strict=True)


def bytes_of(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)
