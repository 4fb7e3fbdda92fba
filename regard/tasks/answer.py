"""Questions about a passage, answered by a piece of it (SQuAD).

What learns it is in `answer_objective.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from regard.data.examples import AnswerSpan, Example, Question
from regard.data.read_fields import ID, BadRecord, FieldRecord, short
from regard.metrics.answers import Answers
from regard.tasks.answer_objective import AnswerObjective as AnswerObjective
from regard.tasks.base import Prediction, Task

NO_ANSWER = "no answer"  # as a model writes it
UNANSWERABLE = "unanswerable"  # in a prompt: the answer that a passage does not give


class AnswerTask(Task):
    name = "answer"
    by_language = True
    example = Question
    roles: ClassVar[Mapping[str, str]] = {
        "question": "question query",
        "passage": "passage context paragraph document text",
        "answers": "answers answer answer_text",
        "start": "answer_start start",
        "impossible": "is_impossible impossible",
        "id": ID,
    }
    needed = ("question", "passage")
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {
        2: ("question", "passage"),
        3: ("question", "passage", "answers"),
        4: ("question", "passage", "answers", "start"),
    }
    in_squad = True
    unique_ids = True
    answers = ("answers", "start", "impossible")
    partly = True
    varied = True
    learned_by = AnswerObjective
    measured_by = Answers
    heads = ("answer", "span")
    fields = ("question", "passage")
    answer_fields = ("answer",)
    answer_tokens = 32
    one_at_a_time = True
    record_texts = ("question", "passage")
    needs_records = True

    # -- data

    def parse(self, record: FieldRecord) -> Example:
        question, passage = record.text("question"), record.text("passage")
        value = record.get("answers")
        answers = read_answers(value, record.get("start"))
        impossible = record.get("impossible")
        if isinstance(impossible, str):
            impossible = impossible.strip().lower() in ("true", "1", "yes")
        if impossible and answers:
            record.warn(
                "contradiction",
                f"{record.id}: has no answer, it says, and {answers[0][0]!r} as one; the answer is "
                "not used",
            )
            answers = []
        none = bool(impossible) or (value is not None and not answers)
        spans = placed(answers, passage, record)
        return Question(question, passage, spans, none, record.place, record.id)

    # -- learning and measuring

    def more_figures(
        self, gold: Sequence[Any], predictions: Sequence[Prediction], options: dict[str, Any]
    ) -> dict[str, Any]:
        """Which thresholds of no answer would have been best, where the model can say that."""
        tables = [one.scores for one in predictions if isinstance(one.scores, dict)]
        known = all(isinstance(table.get("null"), int | float) for table in tables)
        if len(tables) < len(predictions) or not known:
            return {}
        best = [table["candidates"][0][0] if table.get("candidates") else "" for table in tables]
        nulls = [float(table["null"]) for table in tables]
        low = min(nulls) - 1e-6  # scores may lie below 0, where probabilities do not
        measured = Answers(gold, best, silence=[null - low for null in nulls], **options)
        thresholds = measured.details["thresholds"]
        shifted = {k: v + low if k.endswith("_threshold") else v for k, v in thresholds.items()}
        return {"thresholds": shifted}

    # -- as text

    def source(self, example: Example) -> str:
        if not isinstance(example, Question):
            return super().source(example)
        return f"question: {example.question} context: {example.passage}"

    def target(self, example: Example) -> str:
        if not isinstance(example, Question) or not example.labelled:
            return super().target(example)
        return NO_ANSWER if example.impossible else example.answers[0].text

    def closed(self, examples: Sequence[Example], labels: Sequence[str]) -> list[str]:
        return [NO_ANSWER]

    def value(self, example: Example, word: str | None, text: str, labels: Sequence[str]) -> Any:
        return text if word is None else ""

    # -- by a prompt

    def template(self, examples: Sequence[Any]) -> str:
        """GPT-2's (Radford et al. 2019, 3.5)."""
        return "{passage}\nQ: {question}\nA: {answer}"

    def prompt_values(self, example: Any, labels: str) -> dict[str, str | None]:
        return {"question": example.question, "passage": example.passage}

    def prompt_answer(self, example: Any, field: str, words: Mapping[str, str]) -> str | None:
        return example.answers[0].text if example.answers else UNANSWERABLE

    def written(self, text: str) -> str:
        return "" if text.lower().rstrip(".") == UNANSWERABLE else text

    # -- on the command line

    def line(self, example: Any, prediction: Prediction, labels: Sequence[str]) -> str:
        return " ".join(prediction.value.split()) or "(no answer)"


def placed(
    answers: list[tuple[str, int | None]], passage: str, record: FieldRecord
) -> tuple[AnswerSpan, ...]:
    """The answers that are where they say; a question keeps those that are."""
    good, wrong, name = [], [], record.id
    for text, start in answers:
        trouble = misplaced(text, start, passage) if record.options.offsets else ""
        if trouble:
            wrong.append(f"{name}: {trouble}")
            continue
        good.append(AnswerSpan(text, passage.find(text) if start is None else start))
        if start is None and passage.count(text) > 1:
            record.warn(
                "answer-offset",
                f"{name}: the answer {short(text)} has no offset and occurs "
                f"{passage.count(text)} times; the first is taken",
            )
    if wrong and not good:
        raise BadRecord("answer-offset", "; ".join(dict.fromkeys(wrong)))
    for message in wrong:
        record.warn("answer-offset", f"{message}; others are right")
    return tuple(good)


def read_answers(value: Any, start: Any) -> list[tuple[str, int | None]]:
    """Texts with offsets from every layout in use; an offset may be missing."""
    if value is None:
        return []
    if isinstance(value, dict):  # of lists, as on the Hub
        texts, starts = value.get("text", []), value.get("answer_start")
        texts = [texts] if isinstance(texts, str) else list(texts)
        starts = [starts] if isinstance(starts, int) else starts or [None] * len(texts)
        if len(texts) != len(starts):
            raise BadRecord("wrong-type", f"{len(texts)} answers but {len(starts)} offsets")
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(value, list):
        pairs = [
            (a.get("text"), a.get("answer_start", a.get("start"))) if isinstance(a, dict) else a
            for a in value
        ]
        pairs = [(each, None) if isinstance(each, str) else each for each in pairs]
    else:
        pairs = [(value, None if start in (None, "") else start)] if value != "" else []
    answers: list[tuple[str, int | None]] = []
    for each in pairs:
        if not isinstance(each, tuple) or not isinstance(each[0], str):
            raise BadRecord(
                "wrong-type", f"an answer is {type(each).__name__}, not text with offset"
            )
        at = each[1]
        if isinstance(at, str) and at.strip().isdecimal():
            at = int(at)
        if at is not None and not isinstance(at, int):
            raise BadRecord("wrong-type", f"the offset of {short(each[0])} is {at!r}, not a number")
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
    known = [place for place in places if place >= 0]
    return min(known, key=lambda place: abs(place - start), default=-1)


TASK = AnswerTask()
