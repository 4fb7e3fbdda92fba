"""Which field of a record plays which role of a task: by the names in use, or as chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from regard.core.errors import UnknownName

ONE = "text sentence review content document tweet comment body"
FIRST = "premise sentence1 a text1 question1 sentence_a #1_string question text sentence"
SECOND = "hypothesis sentence2 b text2 question2 sentence_b #2_string sentence pair text_pair"
CLASS = (
    "label labels class category gold_label sentiment entailment_label entailment_judgment "
    "quality is_duplicate stars"
)
ID = "id idx guid uid pairid pair_id key example_id"

# In order of preference; a field plays one role. Letters of either case, blanks as underscores.
NAMES: dict[str, dict[str, str]] = {
    "classify": {
        "text": f"{ONE} {FIRST}",
        "pair": SECOND.replace(" sentence ", " "),
        "label": CLASS,
        "id": ID,
    },
    "entail": {"text": FIRST, "pair": SECOND, "label": CLASS, "id": ID},
    "similar": {
        "text": FIRST,
        "pair": SECOND,
        "label": f"similarity score relatedness relatedness_score similarity_score {CLASS}",
        "id": ID,
    },
    "tag": {"words": "words tokens", "tags": "tags ner_tags labels ner pos_tags label", "id": ID},
    "answer": {
        "question": "question query",
        "passage": "passage context paragraph document text",
        "answers": "answers answer answer_text",
        "start": "answer_start start",
        "impossible": "is_impossible impossible",
        "id": ID,
    },
    "choose": {
        "premise": "premise article passage context ctx startphrase sent1 question",
        "choices": "choices options endings alternatives",
        "asks": "asks question",
        "label": "label answer answerkey gold",
        "id": ID,
    },
    "translate": {"source": "source src a", "target": "target tgt b", "id": ID},
    "summarise": {
        "source": "source document article text dialogue",
        "target": "target summary highlights abstract",
        "id": ID,
    },
    "converse": {"turns": "turns messages dialog dialogue utterances conversation", "id": ID},
    "prefer": {
        "prompt": "prompt question instruction query context input turns text",
        "chosen": "chosen preferred better accepted chosen_response",
        "rejected": "rejected dispreferred worse refused rejected_response",
        "id": f"{ID} prompt_id",
    },
}
NEEDED = {
    "classify": ("text",),
    "entail": ("text", "pair"),
    "similar": ("text", "pair"),
    "tag": ("words",),
    "answer": ("question", "passage"),
    "choose": ("premise", "choices"),
    "translate": ("source",),
    "summarise": ("source",),
    "converse": ("turns",),
    "prefer": ("prompt",),  # replies are written to prompts alone
}
# Tables without a header, by their number of columns.
ORDER: dict[str, dict[int, tuple[str, ...]]] = {
    "classify": {1: ("text",), 2: ("text", "label"), 3: ("text", "pair", "label")},
    "entail": {2: ("text", "pair"), 3: ("text", "pair", "label")},
    "similar": {2: ("text", "pair"), 3: ("text", "pair", "label")},
    "tag": {1: ("words",), 2: ("words", "tags")},
    "answer": {
        2: ("question", "passage"),
        3: ("question", "passage", "answers"),
        4: ("question", "passage", "answers", "start"),
    },
    "choose": {},
    "translate": {1: ("source",), **dict.fromkeys(range(2, 9), ("source", "target"))},
    "summarise": {1: ("source",), 2: ("source", "target")},
    "converse": {},
    "prefer": {1: ("prompt",), 3: ("prompt", "chosen", "rejected")},
}
NUMBERED = ("choice", "ending", "option", "alternative", "answer")  # choice1, ending0, …


class Bad(Exception):
    """A record that cannot become an example."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class Fields:
    """The roles of one file, settled by its header or its first good record."""

    def __init__(self, task: str, chosen: Mapping[str, str]) -> None:
        for role in chosen:
            if role not in NAMES[task]:
                raise UnknownName(f"role of a field for {task}", role, NAMES[task])
        self.task, self.chosen = task, dict(chosen)
        self.found: dict[str, str] = {}
        self.seen: tuple[str, ...] = ()  # the fields of the record before

    def settle(self, names: Iterable[str], table: bool = False) -> dict[str, str]:
        """A field for every role that has one, roles found before first."""
        given = list(names)
        plain = {name.casefold().replace(" ", "_"): name for name in reversed(given)}
        found = dict(self.found)
        for role in (role for role in self.chosen if role not in found):
            name = self.chosen[role]
            if name in given:
                found[role] = name
            elif table and name.isdecimal() and 1 <= int(name) <= len(given):
                found[role] = given[int(name) - 1]
        for role, known in NAMES[self.task].items():
            if role in found or role in self.chosen:
                continue
            free = (plain[name] for name in known.split() if name in plain)
            name = next((name for name in free if name not in found.values()), "")
            if name:
                found[role] = name
            elif role == "choices" and (several := numbered_fields(given)):
                found[role] = ", ".join(several)
        return found

    def complaint(self, found: Mapping[str, str], names: Iterable[str]) -> str:
        """What is missing, what is there instead and how to name it; empty if all is there."""
        wanted = dict.fromkeys((*NEEDED[self.task], *self.chosen))
        for role in wanted:
            if role not in found:
                there = ", ".join(repr(name) for name in names) or "none"
                what = f"no field {self.chosen[role]!r}" if role in self.chosen else "no field"
                return (
                    f"{what} for the {role} that {self.task} needs; there are: {there}; name the "
                    f"right one with --field {role}=NAME"
                )
        return ""

    def fits(self, names: list[str]) -> bool:
        """Is this line a header? It is if it names what the task needs.

        A lone "a" may as well be a text: as a name it counts beside "b".
        """
        named = {role: name for role, name in self.chosen.items() if not name.isdecimal()}
        alone = Fields(self.task, named)
        found = alone.settle(names)
        letters = {name.casefold() for name in found.values()} & {"a", "b"}
        return not alone.complaint(found, names) and len(letters) != 1

    def missing(self, names: list[str]) -> str:
        """Takes a header; says what it lacks."""
        self.found = self.settle(names, table=True)
        self.seen = tuple(names)
        return self.complaint(self.found, names)

    def number(self, width: int, first: list[str]) -> str:
        """Takes the columns of a table without header in their order; says why it cannot."""
        if self.chosen:
            numbers = [str(number) for number in range(1, width + 1)]
            self.found = {role: name for role, name in self.chosen.items() if name in numbers}
            trouble = self.complaint(self.found, first)
        elif width in ORDER[self.task]:
            roles = ORDER[self.task][width]
            self.found = {role: str(number) for number, role in enumerate(roles, 1)}
            trouble = ""
        else:
            shown = ", ".join(repr(cell[:30]) for cell in first)
            role = NEEDED[self.task][0]
            trouble = (
                f"{width} columns without a header that {self.task} knows ({shown}); name them "
                f"with --field {role}=NAME and so on, or by number with --field {role}=1"
            )
        self.seen = tuple(str(number) for number in range(1, width + 1))
        return trouble

    def take(self, values: Mapping[str, Any]) -> None:
        """Settles what is open with the fields of another record."""
        names = tuple(values)
        if names == self.seen:
            return
        found = self.settle(names)
        complaint = self.complaint(found, names)
        if complaint and not self.found:
            raise Bad("missing-field", complaint)
        self.found, self.seen = found, names

    def get(self, role: str, values: Mapping[str, Any]) -> Any:
        """The value; None if there is none. What the task needs must be there."""
        name = self.found.get(role)
        if name is None or name not in values:
            if role in NEEDED[self.task] and (name is not None or not self.found):
                there = ", ".join(map(repr, values)) or "none"
                wanted = f"no field for the {role}" if name is None else f"no field {name!r}"
                raise Bad("missing-field", f"{wanted}; there are: {there}")
            return None
        return values[name]

    def text(self, role: str, values: Mapping[str, Any]) -> str:
        """A text with a visible character."""
        value = self.get(role, values)
        if value is not None and not isinstance(value, str):
            kind = type(value).__name__
            raise Bad("wrong-type", f"the {role} ({self.found[role]!r}) is {kind}, not text")
        if value is None or not value.strip():
            raise Bad("empty-text", f"the {role} ({self.found[role]!r}) is empty")
        return value

    def known(self, role: str) -> bool:
        """Does this file have such a field at all?"""
        return role in self.found


def numbered_fields(names: Iterable[str]) -> list[str]:
    """Fields such as choice1, choice2 or ending0, ending1, in the order of their numbers."""
    for stem in NUMBERED:
        found = {}
        for name in names:
            number = name.casefold().removeprefix(stem).lstrip("_ ")
            if name.casefold().startswith(stem) and number.isdecimal():
                found[int(number)] = name
        if len(found) > 1:
            return [found[number] for number in sorted(found)]
    return []
