"""A task is one object that says everything about it, in one file.

`Task` is the interface; its defaults suit a task with a text and a label. A task's file ends with
`TASK`, and `regard.tasks.TASKS` names the file. No other file holds a table by task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from regard.core.errors import InputError
from regard.data.examples import Example
from regard.data.problems import FileLine
from regard.data.read_fields import Schema
from regard.metrics.base import TaskMetric
from regard.metrics.text import language_of

if TYPE_CHECKING:
    from regard.tasks.check import Checker
    from regard.tasks.labeled import LabeledObjective

NAMED = 10  # labels that a note lists


class Prediction(NamedTuple):
    """The answer of a model to one example.

    `value` is what a metric compares with the gold answer. `score` is the probability of it where
    there is one. `scores` are those of all labels or choices.
    """

    value: Any
    score: float | None = None
    scores: Any = None


class Task(Schema):
    """A task. It inherits from `Schema` how its records are read."""

    example: ClassVar[type[Example]]

    # -- data

    answers: ClassVar[tuple[str, ...]] = ("label",)  # roles that unlabeled records do without
    partly: ClassVar[bool] = False  # may some of its examples have no right answer?
    strata: ClassVar[bool] = False  # does it have classes that each part of the data should hold?
    varied: ClassVar[bool] = False  # can its texts be varied so that the answer stays right?
    pseudo: ClassVar[bool] = False  # can a model give labels to examples without?

    def labels_in(self, examples: Sequence[Example]) -> list[str]:
        """Returns the labels that a model learns to tell apart. Their order does not depend on that
        of the examples. A task whose answers are no labels returns none.
        """
        return []

    def check_labels(self, examples: Sequence[Example], known: Sequence[str], path: str) -> None:
        """Refuses labels that training never saw: no answer of the model could be right."""

    def check_tested(self, examples: Sequence[Example], known: Sequence[str]) -> None:
        """Refuses right answers that no metric can compare with the model's."""

    def check_example(self, checker: Checker, example: Example) -> None:
        """Adds to `regard check` what only this task can say of one example."""

    def check_whole(self, checker: Checker, whole: FileLine) -> None:
        """Adds to `regard check` what only this task can say of a whole file."""

    def expanded(self, examples: Sequence[Example]) -> list[Example]:
        """Returns the examples that are tested; one example of a file may become several."""
        return list(examples)

    # -- learning

    text_only: ClassVar[bool] = False  # is it learned as text, whatever the model?
    writable: ClassVar[bool] = True  # can a model that writes text learn it?
    between_marks: ClassVar[bool] = True  # do its texts stand between marks?
    heads: ClassVar[tuple[str, ...]] = ()  # published models with such a head can do it
    names_labels: ClassVar[bool] = False  # are its labels those of a published configuration?
    problem_type: ClassVar[str] = ""  # of such a published model, where several tasks share a head
    asked_as: ClassVar[tuple[str, ...]] = ()  # other tasks that its models answer, too

    learned_by: ClassVar[type[LabeledObjective] | None] = None  # what learns it with a head
    finetuned: ClassVar[bool] = True  # by `regard finetune`; else by `regard align`
    may_score: ClassVar[bool] = False  # may its answer be a number instead of a class?
    scores_as: ClassVar[str] = ""  # the task of a published model whose head has a single output

    @property
    def has_objective(self) -> bool:
        return self.learned_by is not None

    def objective(self) -> type[LabeledObjective]:
        if self.learned_by is None:
            raise NotImplementedError(f"no head learns {self.name}")
        return self.learned_by

    # -- measuring

    kind: ClassVar[str] = ""  # what its answers are, where a task can be answered in two ways
    void: ClassVar[str] = ""  # what an answer that means nothing is, and what it counts as

    measured_by: ClassVar[type[TaskMetric]]
    by_language: ClassVar[bool] = False  # does the metric go by the language of the answers?

    def metric(self, labels: Sequence[str]) -> type[TaskMetric]:
        return self.measured_by

    def metric_options(
        self, labels: Sequence[str], gold: Sequence[Any], *, strict: bool, language: str
    ) -> dict[str, Any]:
        return {"language": language or language_of(gold)} if self.by_language else {}

    def gold(self, example: Example, labels: Sequence[str]) -> Any:
        return example.gold

    def values(
        self, labels: Sequence[str], predictions: Sequence[Prediction], gold: Sequence[Any]
    ) -> tuple[list[Any], int]:
        """Returns what is compared with the right answers, and how many answers mean nothing."""
        return [one.value for one in predictions], 0

    def readable(self, values: Sequence[Any], labels: Sequence[str]) -> list[Any]:
        """Returns the values as the metric reads them."""
        return list(values)

    def void_words(self, labels: Sequence[str]) -> str:
        """Says what became of answers that mean nothing."""
        return self.void

    def kind_of(self, labels: Sequence[str]) -> str:
        """Names the kind of the answers; two models are compared only if theirs is the same."""
        return self.kind

    def aligned(self, values: list[Any], theirs: Sequence[str], ours: Sequence[str]) -> list[Any]:
        """Returns the answers of another model in the labels of this one."""
        return values

    def more_figures(
        self, gold: Sequence[Any], predictions: Sequence[Prediction], options: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns what a test reports beyond the metric."""
        return {}

    def unseen(self, examples: Sequence[Example], known: Sequence[str]) -> dict[str, int]:
        """Counts the right answers that the model cannot give."""
        return {}

    def unseen_note(self, unseen: Mapping[str, int], examples: int, known: Sequence[str]) -> str:
        total = sum(unseen.values())
        note = counted_unseen(unseen, f"of {examples:,} labels are such")
        if total == examples:
            note += f": no label of the data is one of the model's ({some(known)})"
        return note

    # -- as text

    prefix: ClassVar[str] = ""  # what T5's authors put before it
    in_turns: ClassVar[bool] = False  # is what is read the turns of a dialogue?
    of_pairs: ClassVar[bool] = False  # is it what a model does that learned pairs and no task?
    names_languages: ClassVar[bool] = False  # does a published prefix name two languages?

    def source(self, example: Example) -> str:
        """Returns the text that a model reads before it writes its answer, without the prefix."""
        raise InputError(f"{example.place}: {type(example).__name__} is not {self.name}")

    def target(self, example: Example) -> str:
        """Returns the text that a model has to write. Refuses an example that does not say it."""
        where = str(example.place) or "an example"
        raise InputError(f"{where} has no label or target, so nothing can be learned from it")

    def closed(self, examples: Sequence[Example], labels: Sequence[str]) -> list[str]:
        """Returns the words that have a meaning of their own; an answer must match one of them."""
        return list(labels)

    def value(self, example: Example, word: str | None, text: str, labels: Sequence[str]) -> Any:
        """Returns the answer that a written text means; `word` is the closed word that it is. What
        means nothing stays as it is, and counts as wrong.
        """
        return text if word is None else word

    def is_sure(self, labels: Sequence[str]) -> bool:
        """Is the probability of the written text that of the answer?"""
        return bool(labels)

    # -- by a prompt

    fields: ClassVar[tuple[str, ...]] = ()  # what a template may name
    constant_fields: ClassVar[tuple[str, ...]] = ("labels",)  # hold no text of an example
    answer_fields: ClassVar[tuple[str, ...]] = ()  # what it may end with; none: no prompt asks this
    chooses: ClassVar[bool] = False  # is the answer one of several? Else it is written.
    has_words: ClassVar[bool] = False  # does each label have a word in a prompt?
    answer_tokens: ClassVar[int] = 0  # of an answer that is written

    def template(self, examples: Sequence[Any]) -> str:
        """Returns the usual template, which is the published one where there is one."""
        raise NotImplementedError

    def prompt_values(self, example: Any, labels: str) -> dict[str, str | None]:
        """Returns the fields that a template may name, None where an example has none."""
        return {}

    def prompt_answer(self, example: Any, field: str, words: Mapping[str, str]) -> str | None:
        """Returns the right answer as a demonstration writes it, None where there is none."""
        return None

    def completions(self, example: Any, field: str, words: Mapping[str, str]) -> dict[Any, str]:
        """Returns the texts of the answers to choose from, by what they mean."""
        return dict(words)

    def prompt_words(self, labels: Sequence[str]) -> dict[str, str]:
        """Returns a word for each label, in the order in which a prompt names them."""
        return {label: label for label in labels}

    def check_prompted(self, example: Any) -> None:
        """Refuses an example that a prompt cannot ask about."""

    def written(self, text: str) -> str:
        """Returns what a written answer to a prompt means."""
        return text

    # -- on the command line

    one_at_a_time: ClassVar[bool] = False  # do the texts of a command line make one example?
    whole_lines: ClassVar[bool] = False  # is a line one text? Else tabs part several.
    record_texts: ClassVar[tuple[str, ...]] = ()  # the roles of texts in a line
    needs_records: ClassVar[bool] = False  # can no table hold its examples?

    def from_texts(self, texts: list[str], place: FileLine) -> dict[str, Any]:
        """Makes a record of the texts of a line."""
        roles = self.record_texts
        if len(texts) != len(roles):
            raise InputError(
                f"{place}: {len(texts)} texts; give {' and '.join(roles)}, in a line with a tab "
                "between them"
            )
        return dict(zip(roles, texts, strict=True))

    def check_asked(self, example: Any, model: str) -> None:
        """Refuses an example that a model of this task cannot be asked about."""

    def line(self, example: Any, prediction: Prediction, labels: Sequence[str]) -> str:
        """Writes an answer for people; it is one line, whatever it holds."""
        value = self.answer_text(example, prediction.value)
        text = f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())
        return text if prediction.score is None else f"{text}\t{prediction.score:.4f}"

    def answer_text(self, example: Any, value: Any) -> Any:
        return value

    def described(
        self, example: Any, prediction: Prediction, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Writes an answer for programs; what the model does not say is left out."""
        value, score, scores = prediction
        row = {"value": value}
        text = self.answer_text(example, value)
        row |= {} if text is value else {"text": text}
        return row | {k: v for k, v in (("score", score), ("scores", scores)) if v is not None}


def counted_unseen(unseen: Mapping[str, int], what: str) -> str:
    shown = ", ".join(f"{label!r} {count:,}" for label, count in [*unseen.items()][:NAMED])
    more = ", …" if len(unseen) > NAMED else ""
    total = sum(unseen.values())
    return f"{total:,} {what} that the model never learned ({shown}{more}); they count as wrong"


def some(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels[:NAMED])) + (", …" if len(labels) > NAMED else "")
