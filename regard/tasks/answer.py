"""The task `answer`: a question about a passage is answered by a span of the passage (SQuAD).

This file holds what needs no model: how questions are read, measured, written and shown. The
objective that trains the head is in `answer_objective.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from regard.core.text import Bilingual
from regard.data.examples import Example, Question
from regard.data.read_answers import placed, read_answers
from regard.data.read_fields import ID, BadRecord, FieldRecord
from regard.metrics.answers import Answers
from regard.tasks.answer_objective import AnswerObjective as AnswerObjective
from regard.tasks.base import ANSWER, Prediction, Task

NO_ANSWER = "no answer"  # the text that a model writes for an unanswerable question
UNANSWERABLE = "unanswerable"  # the same in a prompt


class MarkedAnswer(Prediction):
    """An answer with its question and passage: a notebook marks it where it stands."""

    example: Question

    @classmethod
    def of(cls, prediction: Prediction, example: Question) -> MarkedAnswer:
        answer = cls(*prediction)
        answer.example = example
        return answer

    def candidates(self) -> list[tuple[str, int, int, float]]:
        return self.scores["candidates"] if isinstance(self.scores, dict) else []

    def _repr_html_(self) -> str:
        from regard.report import notebook

        passage, candidates = self.example.passage, self.candidates()
        begin = next((c[1] for c in candidates if c[0] == self.value), passage.find(self.value))
        end = begin + len(self.value)
        pieces = [(passage, "")]
        if self.value and passage[begin:end] == self.value:
            share = "" if self.score is None else f"{self.score:.4f}"
            marked = (self.value, share or ANSWER.en)
            pieces = [(passage[:begin], ""), marked, (passage[end:], "")]
        facts = notebook.Facts([(ANSWER, self.value or Bilingual("no answer", "没有答案"))])
        bars = notebook.Bars([(c[0], c[3]) for c in candidates], [self.value])
        return notebook.rendered(
            self.example.question, notebook.Marked(pieces), facts, *([bars] if candidates else [])
        )


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
        try:
            question, passage = record.text("question"), record.text("passage")
        except BadRecord as bad:  # all questions of a file may stand in one line
            name = "" if record.id == str(record.place) else f"{record.id}: "
            raise BadRecord(bad.kind, f"{name}{bad.message}") from None
        value = record.get("answers")
        answers = read_answers(value, record.get("start"))
        impossible = record.get("impossible")
        if isinstance(impossible, str):
            impossible = impossible.strip().lower() in ("true", "1", "yes")
        if impossible and answers:
            record.warn(
                "contradiction",
                f"{record.id} is marked as impossible and has the answer {answers[0][0]!r}; the "
                "answer is not used",
            )
            answers = []
        none = bool(impossible) or (value is not None and not answers)
        spans = placed(answers, passage, record)
        return Question(question, passage, spans, none, record.place, record.id)

    # -- learning and measuring

    def more_figures(
        self, gold: Sequence[Any], predictions: Sequence[Prediction], options: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns the best no-answer thresholds, if the model gives a no-answer score."""
        tables = [one.scores for one in predictions if isinstance(one.scores, dict)]
        known = all(isinstance(table.get("null"), int | float) for table in tables)
        if len(tables) < len(predictions) or not known:
            return {}
        best = [table["candidates"][0][0] if table.get("candidates") else "" for table in tables]
        nulls = [float(table["null"]) for table in tables]
        low = min(nulls) - 1e-6  # `silence` must be positive; these scores may be negative
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
        if not isinstance(example, Question) or not example.labeled:
            return super().target(example)
        return NO_ANSWER if example.impossible else example.answers[0].text

    def closed(self, examples: Sequence[Example], labels: Sequence[str]) -> list[str]:
        return [NO_ANSWER]

    def value(self, example: Example, word: str | None, text: str, labels: Sequence[str]) -> Any:
        return text if word is None else ""

    # -- by a prompt

    def template(self, examples: Sequence[Any]) -> str:
        """Returns GPT-2's template (Radford et al. 2019, 3.5)."""
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


TASK = AnswerTask()
