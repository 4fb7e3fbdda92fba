"""Prompts and replies as token ids, for the task `prefer` and the methods that learn from it.

A reply directly follows its prompt and is closed by the end token. In a dialogue every turn before
it is closed by the end token, too, as `regard chat` does it.
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
from regard.tasks.text_forms import fit_turns, ids_of, turns_before_last

FORMS = ("text", "dialogue")


class Prompt(NamedTuple):
    """A prompt as a list of turns, before the room that its replies leave is known. A plain text is
    one turn."""

    system: list[list[int]]
    rest: list[list[int]]

    def fit(self, room: int) -> tuple[list[int], bool]:
        """Returns at most `room` ids, without the oldest turns, and whether any was dropped."""
        ids = fit_turns(self.system, self.rest, room)
        return ids, len(ids) < sum(map(len, (*self.system, *self.rest)))


def form_of(form: str | None, model: str) -> str:
    """Returns how a prompt that is one text is read: as the turn of a dialogue if the model has
    learned dialogues, otherwise as a text."""
    if form:
        choose("objective.form", form, FORMS)
        return form
    learned = task_facts(Path(model)).get("task") if model else None
    return "dialogue" if learned == "converse" else "text"


def spoken(example: Preference, form: str) -> bool:
    """Returns whether the prompt is made of turns."""
    return form == "dialogue" or not isinstance(example.prompt, str)


def prompts_of(
    examples: Sequence[Preference], tokenizer: Tokenizer, special: Special, form: str
) -> list[Prompt]:
    """Returns all prompts. An empty prompt becomes one end token, as between documents."""
    parts = [turns_of(example, form) for example in examples]
    flat = iter(ids_of(tokenizer, [turn for both in parts for turns in both for turn in turns]))
    prompts = []
    for example, (system, rest) in zip(examples, parts, strict=True):
        end = [special.end] if spoken(example, form) else []
        first, then = ([[*next(flat), *end] for _ in turns] for turns in (system, rest))
        prompts.append(Prompt(first, then if any(then) or any(first) else [[special.end]]))
    return prompts


def turns_of(example: Preference, form: str) -> tuple[list[str], list[str]]:
    """Returns the system turns, and the other turns."""
    if isinstance(example.prompt, str):
        return [], [example.prompt] if example.prompt or form == "text" else []
    roles = None if example.roles is None else (*example.roles, "")
    return turns_before_last(DialogueExample((*example.prompt, ""), roles), None)


def replies_of(texts: Sequence[str], tokenizer: Tokenizer, special: Special) -> list[list[int]]:
    return [[*ids, special.end] for ids in ids_of(tokenizer, texts)]


class ReplyPair(NamedTuple):
    """A prompt with both of its replies."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    cut: bool  # has the prompt lost its beginning?


def pairs_of(corpus: TaskCorpus, length: int, form: str) -> Iterator[ReplyPair | None]:
    """Yields every pair, with at most `length` tokens per row. A long prompt loses its beginning,
    the same part for both replies. Yields None if a reply leaves no room for a prompt: replies are
    not cut."""
    examples: Any = corpus.examples
    for example in examples:
        if example.chosen is None or example.rejected is None:
            raise InputError(
                f"{str(example.place) or 'an example'}: the prompt has no replies; to learn from "
                "preferences every record needs a chosen and a rejected reply"
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
    """Returns the error for a split in which no pair is left."""
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
    """Describes the examples that did not fit, for the user."""
    notes, of = list(corpus.notes), f"of {len(corpus):,} examples of the {corpus.split} data"
    if cut:
        notes.append(f"{cut:,} {of} do not fit {length} tokens: their prompts were cut at the left")
    if left:
        notes.append(f"{left:,} {of} were left out: a reply has {length} tokens or more")
    return "; ".join(notes)


def check_family(objective: Any, families: Sequence[str], what: str) -> None:
    """Refuses a model of a family that is not among `families`; `what` says what it cannot do."""
    if objective.options.family not in families:
        raise ConfigError(
            f"{objective.options.family or 'this model'} cannot {what}; these can: "
            f"{', '.join(families)}"
        )
