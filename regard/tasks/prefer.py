"""The task `prefer`: which of two replies to a prompt people chose. `regard align` learns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data.examples import Example, Preference, fingerprint
from regard.data.read_fields import ID, BadRecord, FieldRecord, short
from regard.metrics.labels import ChoiceAccuracy
from regard.tasks.base import Task
from regard.tasks.converse import as_turns
from regard.tasks.reward import Reward

if TYPE_CHECKING:
    from regard.tasks.check import Checker


class PreferTask(Task):
    name = "prefer"
    measured_by = ChoiceAccuracy
    example = Preference
    roles: ClassVar[Mapping[str, str]] = {
        "prompt": "prompt question instruction query context input turns text",
        "chosen": "chosen preferred better accepted chosen_response",
        "rejected": "rejected dispreferred worse refused rejected_response",
        "reply": "reply",
        "id": f"{ID} prompt_id",
    }
    one_at_a_time = True
    record_texts = ("prompt", "reply")
    needed = ("prompt",)  # a prompt may come without replies: then a model writes them
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {
        1: ("prompt",),
        3: ("prompt", "chosen", "rejected"),
    }
    learned_by = Reward
    finetuned = False
    writable = False
    between_marks = False
    void = "none of the choices and count as wrong"

    def parse(self, record: FieldRecord) -> Example:
        value, roles = record.get("prompt"), None
        prompt: str | tuple[str, ...] = ""
        if isinstance(value, list):
            prompt, roles = as_turns(value) if value else ("", None)
        elif isinstance(value, str):
            prompt = value if value.strip() else ""
        elif value is not None:
            kind = type(value).__name__
            raise BadRecord("wrong-type", f"the prompt is {kind}, not a text or a list of turns")
        if record.has("reply") and not record.has("chosen"):  # a reply that is only scored
            return Preference(prompt, reply(record, "reply"), None, roles, record.place, record.id)
        if not record.has("chosen") and not record.has("rejected"):
            if not prompt:
                raise BadRecord("empty-text", "the prompt is empty, and there are no replies to it")
            return Preference(prompt, None, None, roles, record.place, record.id)
        chosen, rejected = reply(record, "chosen"), reply(record, "rejected")
        if chosen.strip() == rejected.strip():
            raise BadRecord("equal-replies", f"chosen and rejected are both {short(chosen)}")
        return Preference(prompt, chosen, rejected, roles, record.place, record.id)

    def check_example(self, checker: Checker, example: Any) -> None:
        """Reports a pair that occurs in the file a second time with the replies exchanged."""
        if example.chosen is None:
            return
        other = replace(example, chosen=example.rejected, rejected=example.chosen)
        key = fingerprint("\0".join(text for _, text in other.parts()))
        if key in checker.texts:
            message = f"{checker.texts[key][0]} chose what is rejected here"
            checker.problems.add(example.place, "contradiction", message, "warning")


def reply(record: FieldRecord, role: str) -> str:
    """Reads a reply, which is a text or a list of one turn."""
    if record.fields.names.get(role) not in record.values:
        there = ", ".join(map(repr, record.values))
        raise BadRecord(
            "missing-field",
            f"no field for the {role} reply; there are: {there}; name the right one with "
            f"--field {role}=NAME",
        )
    value = record.get(role)
    if isinstance(value, list) and len(value) == 1:
        return as_turns(value)[0][0]
    if isinstance(value, list):
        raise BadRecord(
            "wrong-type",
            f"the {role} reply has {len(value)} turns; the turns before the reply are the prompt",
        )
    return record.text(role)


TASK = PreferTask()
