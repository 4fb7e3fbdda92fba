"""Records as examples: one small function a kind of task. What is wrong is raised as `Bad`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from regard.data.examples import (
    Answer,
    Choice,
    Dialogue,
    Example,
    Labelled,
    Pair,
    Place,
    Preference,
    Problems,
    Question,
    Tagged,
)
from regard.data.read_fields import Bad, Fields, numbered_fields

Values = Mapping[str, Any]


class Maker:
    """Makes the examples of one file."""

    def __init__(
        self,
        task: str,
        fields: Fields,
        problems: Problems,
        *,
        classes: bool = False,
        offsets: bool = True,
    ) -> None:
        self.task, self.fields, self.problems = task, fields, problems
        self.classes, self.offsets = classes, offsets
        self.choices = 0  # of the first question
        kinds: dict[str, Callable[[Values, Place, str], Example]] = {
            "tag": self.tagged,
            "answer": self.question,
            "choose": self.choice,
            "translate": self.pair,
            "summarise": self.pair,
            "converse": self.dialogue,
            "prefer": self.preference,
        }
        self.make = kinds.get(task, self.labelled)

    def __call__(self, place: Place, values: dict[str, Any]) -> Example | None:
        """The example, or None and a problem."""
        try:
            if self.task == "translate" and isinstance(values.get("translation"), dict):
                values = self.flat(values)
            self.fields.take(values)
            return self.make(values, place, self.name(values, place))
        except Bad as bad:
            self.problems.add(place, bad.kind, bad.message)
            return None

    def flat(self, values: Values) -> dict[str, Any]:
        """{"translation": {"en": …, "de": …}}: two languages in the order of the file."""
        flat = {**values, **values["translation"]}
        if len(values["translation"]) == 2 and not self.fields.chosen:
            flat["source"], flat["target"] = values["translation"].values()
        return flat

    def name(self, values: Values, place: Place) -> str:
        given = self.fields.get("id", values)
        return str(place) if given is None or given == "" else str(given)

    def labelled(self, values: Values, place: Place, name: str) -> Labelled:
        text = self.fields.text("text", values)
        pair = None
        if self.task != "classify" or self.fields.known("pair"):
            pair = self.fields.text("pair", values)
        return Labelled(text, pair, self.label(values), place, name)

    def label(self, values: Values) -> str | float | None:
        if not self.fields.known("label"):
            return None
        value = self.fields.get("label", values)
        if value is None or value == "":
            raise Bad("missing-label", f"no label in {self.fields.found['label']!r}")
        if isinstance(value, list | dict):
            raise Bad("wrong-type", f"the label is {type(value).__name__}, not a name or a number")
        if self.task == "similar" and not self.classes:
            return score(value)
        if self.task == "entail" and value == "-":
            raise Bad("missing-label", "the label is '-': the people asked did not agree")
        label = str(value).lower() if isinstance(value, bool) else str(value).strip()
        if not label:
            raise Bad("missing-label", f"no label in {self.fields.found['label']!r}")
        return label

    def tagged(self, values: Values, place: Place, name: str) -> Tagged:
        words = as_words(self.fields.get("words", values), "words")
        if not words:
            raise Bad("empty-text", "a sentence without words")
        for number, word in enumerate(words, 1):
            if not word.strip():
                raise Bad("empty-text", f"word {number} of {len(words)} is empty")
        tags = None
        if self.fields.known("tags"):
            given = self.fields.get("tags", values)
            if given is None:
                raise Bad("missing-label", f"no tags in {self.fields.found['tags']!r}")
            tags = as_words(given, "tags")
            if len(tags) != len(words):
                raise Bad("ragged-line", f"{len(words)} words but {len(tags)} tags")
            if "" in tags:
                raise Bad("missing-label", f"no tag for word {tags.index('') + 1}")
        return Tagged(words, tags, place, name)

    def question(self, values: Values, place: Place, name: str) -> Question:
        question = self.fields.text("question", values)
        passage = self.fields.text("passage", values)
        given = self.fields.get("answers", values)
        answers = read_answers(given, self.fields.get("start", values))
        impossible = self.fields.get("impossible", values)
        if isinstance(impossible, str):
            impossible = impossible.strip().lower() in ("true", "1", "yes")
        if impossible and answers:
            self.problems.add(
                place,
                "contradiction",
                f"{name}: has no answer, it says, and {answers[0][0]!r} as one; the answer is "
                "not used",
                "warning",
            )
            answers = []
        none = bool(impossible) or (given is not None and not answers)
        placed = self.placed(answers, passage, place, name)
        return Question(question, passage, placed, none, place, name)

    def placed(
        self, answers: list[tuple[str, int | None]], passage: str, place: Place, name: str
    ) -> tuple[Answer, ...]:
        """The answers that are where they say; a question keeps those that are."""
        good, wrong = [], []
        for text, start in answers:
            trouble = "" if not self.offsets else misplaced(text, start, passage)
            if trouble:
                wrong.append(f"{name}: {trouble}")
            else:
                at = passage.find(text) if start is None else start
                good.append(Answer(text, at))
                if start is None and passage.count(text) > 1:
                    self.problems.add(
                        place,
                        "answer-offset",
                        f"{name}: the answer {short(text)} has no offset and occurs "
                        f"{passage.count(text)} times; the first is taken",
                        "warning",
                    )
        if wrong and not good:
            raise Bad("answer-offset", "; ".join(dict.fromkeys(wrong)))
        for message in wrong:
            self.problems.add(place, "answer-offset", f"{message}; others are right", "warning")
        return tuple(good)

    def choice(self, values: Values, place: Place, name: str) -> Choice:
        premise = self.fields.text("premise", values)
        choices, keys = self.given_choices(values)
        if len(choices) < 2:
            raise Bad("uneven-choices", f"{len(choices)} to choose from; two are needed at least")
        for number, text in enumerate(choices):
            if not isinstance(text, str):
                raise Bad("wrong-type", f"choice {number} is {type(text).__name__}, not text")
            if not text.strip():
                raise Bad("empty-text", f"choice {number} is empty")
        label = None
        if self.fields.known("label"):
            label = pointed(self.fields.get("label", values), choices, keys)
        self.choices = self.choices or len(choices)
        if len(choices) != self.choices:
            self.problems.add(
                place,
                "uneven-choices",
                f"{len(choices)} to choose from, but the first question has {self.choices}",
                "warning",
            )
        asks = self.fields.get("asks", values)
        if asks is not None and not isinstance(asks, str):
            raise Bad("wrong-type", f"what is asked is {type(asks).__name__}, not text")
        return Choice(premise, tuple(choices), asks or None, label, place, name)

    def given_choices(self, values: Values) -> tuple[list[Any], list[str]]:
        """The texts, and the names under which a label may point to them."""
        name = self.fields.found["choices"]
        if name not in values:
            several = numbered_fields(values)
            if not several:
                raise Bad("missing-field", f"no field {name!r}; there are: {', '.join(values)}")
            while several and values[several[-1]] in (None, ""):  # a table of uneven questions
                several.pop()
            return [values[key] for key in several], several
        found = values[name]
        if isinstance(found, dict) and isinstance(found.get("text"), list):
            return found["text"], [str(label) for label in found.get("label", [])]
        if not isinstance(found, list):
            kind = type(found).__name__
            raise Bad("wrong-type", f"the choices ({name!r}) are {kind}, not a list")
        return found, []

    def pair(self, values: Values, place: Place, name: str) -> Pair:
        source = self.fields.text("source", values)
        target = None
        if self.fields.known("target"):
            if self.fields.get("target", values) is None:
                raise Bad("missing-label", f"no target in {self.fields.found['target']!r}")
            target = self.fields.text("target", values)
        return Pair(source, target, place, name)

    def dialogue(self, values: Values, place: Place, name: str) -> Dialogue:
        given = self.fields.get("turns", values)
        if not isinstance(given, list) or not given:
            raise Bad("wrong-type", f"the turns are {type(given).__name__}, not a list of texts")
        turns, roles = as_turns(given)
        if len(turns) < 2:
            self.problems.add(place, "short-dialogue", "one turn; nobody replies", "warning")
        return Dialogue(turns, roles, place, name)

    def preference(self, values: Values, place: Place, name: str) -> Preference:
        given, roles = self.fields.get("prompt", values), None
        prompt: str | tuple[str, ...] = ""
        if isinstance(given, list):
            prompt, roles = as_turns(given) if given else ("", None)
        elif isinstance(given, str):
            prompt = given if given.strip() else ""
        elif given is not None:
            kind = type(given).__name__
            raise Bad("wrong-type", f"the prompt is {kind}, not a text or a list of turns")
        if not self.fields.known("chosen") and not self.fields.known("rejected"):
            if not prompt:
                raise Bad("empty-text", "the prompt is empty, and there are no replies to it")
            return Preference(prompt, None, None, roles, place, name)
        chosen, rejected = self.reply("chosen", values), self.reply("rejected", values)
        if chosen.strip() == rejected.strip():
            raise Bad("equal-replies", f"chosen and rejected are both {short(chosen)}")
        return Preference(prompt, chosen, rejected, roles, place, name)

    def reply(self, role: str, values: Values) -> str:
        """A text, or a list of one turn."""
        if self.fields.found.get(role) not in values:
            there = ", ".join(map(repr, values))
            raise Bad(
                "missing-field",
                f"no field for the {role} reply; there are: {there}; name the right one with "
                f"--field {role}=NAME",
            )
        given = self.fields.get(role, values)
        if isinstance(given, list) and len(given) == 1:
            return as_turns(given)[0][0]
        if isinstance(given, list):
            raise Bad(
                "wrong-type",
                f"the {role} reply has {len(given)} turns; the turns before the reply are the "
                "prompt",
            )
        return self.fields.text(role, values)


def as_turns(given: list[Any]) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The texts of a dialogue's turns, and who speaks, where all of them say so."""
    turns, roles = [], []
    for number, turn in enumerate(given, 1):
        text, role = spoken(turn)
        if not isinstance(text, str):
            raise Bad("wrong-type", f"turn {number} is {type(turn).__name__}, not text")
        if not text.strip():
            raise Bad("empty-text", f"turn {number} of {len(given)} is empty")
        turns.append(text)
        roles.append(role)
    named = tuple(str(role) for role in roles) if None not in roles else None
    return tuple(turns), named


def score(value: Any) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise Bad(
            "not-a-number",
            f"the score is {value!r}, not a number; if the labels are classes, say --classes",
        )
    return number


def as_words(value: Any, role: str) -> tuple[str, ...]:
    """A list, or a text with blanks between the words."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list | tuple) and all(isinstance(each, str | int) for each in value):
        return tuple(str(each) for each in value)
    raise Bad("wrong-type", f"the {role} are {type(value).__name__}, not a list of texts")


def read_answers(given: Any, start: Any) -> list[tuple[str, int | None]]:
    """Texts with offsets from every layout in use; an offset may be missing."""
    if given is None:
        return []
    if isinstance(given, dict):  # of lists, as on the Hub
        texts, starts = given.get("text", []), given.get("answer_start")
        texts = [texts] if isinstance(texts, str) else list(texts)
        starts = [starts] if isinstance(starts, int) else starts or [None] * len(texts)
        if len(texts) != len(starts):
            raise Bad("wrong-type", f"{len(texts)} answers but {len(starts)} offsets")
        found = list(zip(texts, starts, strict=True))
    elif isinstance(given, list):
        found = [
            (a.get("text"), a.get("answer_start", a.get("start"))) if isinstance(a, dict) else a
            for a in given
        ]
        found = [(each, None) if isinstance(each, str) else each for each in found]
    else:
        found = [(given, None if start in (None, "") else start)] if given != "" else []
    answers: list[tuple[str, int | None]] = []
    for each in found:
        if not isinstance(each, tuple) or not isinstance(each[0], str):
            raise Bad("wrong-type", f"an answer is {type(each).__name__}, not text with offset")
        at = each[1]
        if isinstance(at, str) and at.strip().isdecimal():
            at = int(at)
        if at is not None and not isinstance(at, int):
            raise Bad("wrong-type", f"the offset of {short(each[0])} is {at!r}, not a number")
        answers.append((each[0], at))
    return answers


def misplaced(text: str, start: int | None, passage: str) -> str:
    """What is wrong with an answer's place; empty if nothing."""
    if not text.strip():
        return "the answer is empty"
    if start is not None and start >= 0 and passage.startswith(text, start):
        return ""
    nearest = nearest_place(text, start or 0, passage)
    if start is None:
        return "" if nearest >= 0 else f"the answer {short(text)} is nowhere in the passage"
    there = short(passage[start : start + len(text)]) if 0 <= start < len(passage) else "nothing"
    where = f"the nearest place is {nearest}" if nearest >= 0 else "it is nowhere in the passage"
    return f"the answer {short(text)} is not at character {start}, there is {there}; {where}"


def nearest_place(text: str, start: int, passage: str) -> int:
    """Where the text is found nearest to `start`; -1 if nowhere."""
    places = (passage.rfind(text, 0, max(0, start) + len(text)), passage.find(text, max(0, start)))
    found = [place for place in places if place >= 0]
    return min(found, key=lambda place: abs(place - start), default=-1)


def pointed(value: Any, choices: list[str], keys: list[str]) -> int:
    """The index that a label means: a number from 0, the choice's own name, a letter, its text."""
    if value is None or value == "":
        raise Bad("missing-label", "no label")
    text = str(value).strip()
    if text in keys:
        return keys.index(text)
    counted = isinstance(value, int) and not isinstance(value, bool)
    if text in choices and not counted:
        return choices.index(text)
    if len(text) == 1 and "A" <= text <= "Z":
        index = ord(text) - ord("A")
    elif isinstance(value, bool | float) or not text.removeprefix("-").isdecimal():
        raise Bad("not-a-number", f"the label is {value!r}, not the number of a choice")
    else:
        index = int(text)
    if not 0 <= index < len(choices):
        raise Bad(
            "label-range",
            f"the label is {value!r}, but there are {len(choices)} choices, counted from 0",
        )
    return index


def spoken(turn: Any) -> tuple[Any, Any]:
    """The text and the speaker of a turn: a text, or an object with either."""
    if not isinstance(turn, dict):
        return turn, None
    text = next((turn[key] for key in ("content", "text", "utterance", "value") if key in turn), 0)
    return text, next((turn[key] for key in ("role", "speaker", "from") if key in turn), None)


def short(text: str, most: int = 40) -> str:
    return repr(text if len(text) <= most else f"{text[: most - 1]}…")
