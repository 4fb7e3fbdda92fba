"""Prompts and replies as ids: what the task `prefer` and the methods that learn from it share.

A reply follows its prompt at once and is closed by the end token. In a dialogue every turn before
it is closed so, too, as `regard chat` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import ConfigError, InputError
from regard.data.corpus import Special
from regard.data.examples import DialogueExample, Preference
from regard.data.tokenizer import Tokenizer
from regard.objectives.causal import choose
from regard.tasks.corpus import TaskCorpus
from regard.tasks.labeled import task_facts
from regard.tasks.text_forms import ids_of, newest, shown

FORMS = ("text", "dialogue")


class Prompt(NamedTuple):
    """A prompt in its turns, before it is known how much room its replies leave. A text is one
    turn.
    """

    system: list[list[int]]
    rest: list[list[int]]

    def fit(self, room: int) -> tuple[list[int], bool]:
        """At most `room` ids, the oldest turns forgotten first; was something left out?"""
        ids = newest(self.system, self.rest, room)
        return ids, len(ids) < sum(map(len, (*self.system, *self.rest)))


def form_of(form: str | None, model: str) -> str:
    """How a prompt that is one text is read: as the turn of a dialogue where the model has learned
    dialogues.
    """
    if form:
        choose("objective.form", form, FORMS)
        return form
    learned = task_facts(Path(model)).get("task") if model else None
    return "dialogue" if learned == "converse" else "text"


def spoken(example: Preference, form: str) -> bool:
    """Is the prompt made of turns?"""
    return form == "dialogue" or not isinstance(example.prompt, str)


def prompts_of(
    examples: Sequence[Preference], tokenizer: Tokenizer, special: Special, form: str
) -> list[Prompt]:
    """All prompts. An empty one is the end of another text, as in a corpus."""
    parts = [turns_of(example, form) for example in examples]
    flat = iter(ids_of(tokenizer, [turn for both in parts for turns in both for turn in turns]))
    prompts = []
    for example, (system, rest) in zip(examples, parts, strict=True):
        end = [special.end] if spoken(example, form) else []
        first, then = ([[*next(flat), *end] for _ in turns] for turns in (system, rest))
        prompts.append(Prompt(first, then if any(then) or any(first) else [[special.end]]))
    return prompts


def turns_of(example: Preference, form: str) -> tuple[list[str], list[str]]:
    """What a system says, and the rest."""
    if isinstance(example.prompt, str):
        return [], [example.prompt] if example.prompt or form == "text" else []
    roles = None if example.roles is None else (*example.roles, "")
    return shown(DialogueExample((*example.prompt, ""), roles), None)


def replies_of(texts: Sequence[str], tokenizer: Tokenizer, special: Special) -> list[list[int]]:
    return [[*ids, special.end] for ids in ids_of(tokenizer, texts)]


class ReplyPair(NamedTuple):
    """A prompt with both replies."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    cut: bool  # has the prompt lost its beginning?


def pairs_of(corpus: TaskCorpus, length: int, form: str) -> Iterator[ReplyPair | None]:
    """Every pair, at most `length` tokens a row: a prompt loses its beginning, the same for both
    replies. None where a reply leaves no room for a prompt: half a reply is no reply.
    """
    examples: Any = corpus.examples
    for example in examples:
        if example.chosen is None or example.rejected is None:
            raise InputError(
                f"{str(example.place) or 'an example'}: a prompt without replies; to learn from "
                "preferences every record needs a chosen and a rejected one"
            )
    prompts = prompts_of(examples, corpus.tokenizer, corpus.special, form)
    texts = [text for e in examples for text in (e.chosen, e.rejected)]
    replies = iter(replies_of(texts, corpus.tokenizer, corpus.special))
    for prompt in prompts:
        chosen, rejected = next(replies), next(replies)
        room = length - max(len(chosen), len(rejected))
        if room < 1:
            yield None
            continue
        ids, cut = prompt.fit(room)
        yield ReplyPair(ids, chosen, rejected, cut)


def refuse_none(corpus: TaskCorpus, left: int, length: int) -> InputError:
    """No pair is left to learn from, or to validate with."""
    if left:
        return InputError(
            f"all {left:,} pairs of the {corpus.split} data have a reply of {length} tokens or "
            "more, and a row holds no more; choose a larger batch.seq_len or a longer context"
        )
    return InputError(
        f"the {corpus.split} data holds no examples; give more, a file to validate with (--valid), "
        "or set examples.valid_fraction=0"
    )


def notes_of(corpus: TaskCorpus, cut: int, left: int, length: int) -> str:
    """What a user should know of what did not fit."""
    notes, of = list(corpus.notes), f"of {len(corpus):,} examples of the {corpus.split} data"
    if cut:
        notes.append(f"{cut:,} {of} do not fit {length} tokens: their prompts lost the beginning")
    if left:
        notes.append(f"{left:,} {of} were left out: a reply has {length} tokens or more")
    return "; ".join(notes)


def check_family(objective: Any, families: Sequence[str], what: str) -> None:
    """Refuses a model that does not go on with a text."""
    if objective.options.family not in families:
        raise ConfigError(
            f"{objective.options.family or 'this model'} cannot {what}; these can: "
            f"{', '.join(families)}"
        )
