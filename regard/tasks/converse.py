"""The task `converse` (dialogue): the model writes the reply to the turns before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from regard.core.errors import InputError
from regard.data.examples import DialogueExample, Example
from regard.data.read_fields import ID, BadRecord, FieldRecord
from regard.metrics.text import TranslationMetric
from regard.tasks.base import Task


class Converse(Task):
    name = "converse"
    by_language = True
    measured_by = TranslationMetric
    example = DialogueExample
    roles: ClassVar[Mapping[str, str]] = {
        "turns": "turns messages dialog dialogue utterances conversation",
        "id": ID,
    }
    needed = ("turns",)
    in_tables = False
    text_only = True
    in_turns = True
    fields = ("history",)
    answer_fields = ("reply",)
    answer_tokens = 48

    def parse(self, record: FieldRecord) -> Example:
        value = record.get("turns")
        if not isinstance(value, list) or not value:
            raise BadRecord(
                "wrong-type", f"the turns are {type(value).__name__}, not a list of texts"
            )
        turns, roles = as_turns(value)
        if len(turns) < 2:
            record.warn("short-dialogue", "the dialogue has one turn and no reply")
        return DialogueExample(turns, roles, record.place, record.id)

    def expanded(self, examples: Sequence[Example]) -> list[Example]:
        """Returns one example for every reply."""
        return [
            talk for one in examples if isinstance(one, DialogueExample) for talk in exchanges(one)
        ]

    def target(self, example: Example) -> str:
        return (
            example.turns[-1] if isinstance(example, DialogueExample) else super().target(example)
        )

    def template(self, examples: Sequence[Any]) -> str:
        return "{history}\n{reply}"

    def prompt_values(self, example: Any, labels: str) -> dict[str, str | None]:
        return {"history": "\n".join(example.turns[:-1])}

    def prompt_answer(self, example: Any, field: str, words: Mapping[str, str]) -> str | None:
        reply: str = example.turns[-1]
        return reply

    def check_prompted(self, example: Any) -> None:
        if len(example.turns) < 2:
            raise InputError(
                f"{example.place}: the dialogue has one turn, so there is no reply to compare with"
            )


def as_turns(values: list[Any]) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Returns the texts of a dialogue's turns, and the speakers if every turn names one."""
    turns, roles = [], []
    for number, turn in enumerate(values, 1):
        text, role = spoken(turn)
        if not isinstance(text, str):
            raise BadRecord("wrong-type", f"turn {number} is {type(turn).__name__}, not text")
        if not text.strip():
            raise BadRecord("empty-text", f"turn {number} of {len(values)} is empty")
        turns.append(text)
        roles.append(role)
    named = tuple(str(role) for role in roles) if None not in roles else None
    return tuple(turns), named


def spoken(turn: Any) -> tuple[Any, Any]:
    """Returns the text and the speaker of a turn, which is a text or an object with both."""
    if not isinstance(turn, dict):
        return turn, None
    text = next((turn[key] for key in ("content", "text", "utterance", "value") if key in turn), 0)
    return text, next((turn[key] for key in ("role", "speaker", "from") if key in turn), None)


def exchanges(dialogue: DialogueExample) -> Iterator[DialogueExample]:
    """Yields each reply with all turns before it: a dialogue of n turns gives n - 1 examples. A
    system turn is not a reply, and there is no reply to system turns alone."""
    roles = dialogue.roles or ("",) * len(dialogue.turns)
    for last in range(1, len(dialogue.turns)):
        if roles[last] != "system" and set(roles[:last]) != {"system"}:
            named = dialogue.roles and dialogue.roles[: last + 1]
            turns = dialogue.turns[: last + 1]
            yield DialogueExample(turns, named, dialogue.place, f"{dialogue.id}#{last}")


TASK = Converse()
