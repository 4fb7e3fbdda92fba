"""The interface of a task. A task is one object, in one file, that says everything about the task.

`Task` is the interface; its defaults suit a task with a text and a label. A task's file ends with
`TASK`, and `regard.tasks.TASKS` names the file. No other file holds a table by task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from regard.core.errors import InputError
from regard.core.text import Bilingual
from regard.data.examples import Example
from regard.data.problems import FileLine
from regard.data.read_fields import Schema
from regard.metrics.base import TaskMetric
from regard.metrics.text import language_of

if TYPE_CHECKING:
    from regard.tasks.check import Checker
    from regard.tasks.labeled import LabeledObjective

NAMED = 10  # the number of labels that a note lists
SHOWN = 20  # labels whose probabilities a notebook shows
ANSWER, PROBABILITY = Bilingual("answer", "答案"), Bilingual("probability", "概率")


class Prediction(NamedTuple):
    """The answer of a model to one example.

    `value` is compared with the gold answer by a metric. `score` is the probability of `value`, if
    there is one. `scores` are the scores of all labels or choices.
    """

    value: Any
    score: float | None = None
    scores: Any = None

    def _repr_html_(self) -> str:
        """In a notebook: the answer, and the probabilities of all labels or choices as bars."""
        from regard.report import notebook

        facts = [(ANSWER, self.value if isinstance(self.value, str | float) else str(self.value))]
        if self.score is not None:
            facts.append((PROBABILITY, self.score))
        scores = self.scores
        if isinstance(scores, list | tuple):
            scores = {str(number): score for number, score in enumerate(scores)}
        chances = scores if isinstance(scores, dict) else {}
        rows = [(str(name), x) for name, x in chances.items() if isinstance(x, float)]
        best = self.value if isinstance(self.value, list) else [self.value]
        bars = notebook.Bars(sorted(rows, key=lambda row: -row[1])[:SHOWN], [*map(str, best)])
        return notebook.rendered("", notebook.Facts(facts), *([bars] if rows else []))


class Task(Schema):
    """A task. How its records are read is inherited from `Schema`."""

    example: ClassVar[type[Example]]

    # -- data

    answers: ClassVar[tuple[str, ...]] = ("label",)  # roles that unlabeled records do not have
    partly: ClassVar[bool] = False  # may some of its examples have no gold answer?
    strata: ClassVar[bool] = False  # does it have classes that each split should hold?
    varied: ClassVar[bool] = False  # can its texts be augmented so that the answer stays right?
    pseudo: ClassVar[bool] = False  # can a model give pseudo-labels to unlabeled examples?

    def labels_in(self, examples: Sequence[Example]) -> list[str]:
        """Returns the labels that a model learns to tell apart. Their order does not depend on the
        order of the examples. A task without labels returns an empty list."""
        return []

    def check_labels(self, examples: Sequence[Example], known: Sequence[str], path: str) -> None:
        """Refuses labels that are not in the training data: no answer could be right."""

    def check_tested(self, examples: Sequence[Example], known: Sequence[str]) -> None:
        """Refuses gold answers that no metric can compare with the answers of the model."""

    def check_example(self, checker: Checker, example: Example) -> None:
        """Adds this task's own problems of one example to the report of `regard check`."""

    def check_whole(self, checker: Checker, whole: FileLine) -> None:
        """Adds this task's own problems of a whole file to the report of `regard check`."""

    def expanded(self, examples: Sequence[Example]) -> list[Example]:
        """Returns the examples to test on; one example of a file may become several."""
        return list(examples)

    # -- learning

    text_only: ClassVar[bool] = False  # is it learned as text, whatever the model?
    writable: ClassVar[bool] = True  # can a model that writes text learn it?
    between_marks: ClassVar[bool] = True  # do its texts stand between special tokens?
    heads: ClassVar[tuple[str, ...]] = ()  # published models with one of these heads can do it
    names_labels: ClassVar[bool] = False  # are its labels the id2label of a published config?
    problem_type: ClassVar[str] = ""  # in a published config, if several tasks share a head
    asked_as: ClassVar[tuple[str, ...]] = ()  # other tasks that its models can do, too

    learned_by: ClassVar[type[LabeledObjective] | None] = None  # the objective that trains a head
    finetuned: ClassVar[bool] = True  # is it trained by `regard finetune`, not `regard align`?
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

    keeps_scores: ClassVar[bool] = True  # are the scores of an answer written to a file?
    kind: ClassVar[str] = ""  # the kind of its answers, if a task has two kinds
    void: ClassVar[str] = ""  # says what a void answer is, and how it is counted

    measured_by: ClassVar[type[TaskMetric]]
    by_language: ClassVar[bool] = False  # does the metric depend on the language of the answers?

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
        """Returns the values to compare with the gold answers, and how many answers are void."""
        return [one.value for one in predictions], 0

    def readable(self, values: Sequence[Any], labels: Sequence[str]) -> list[Any]:
        """Returns the values in the form that the metric reads."""
        return list(values)

    def void_words(self, labels: Sequence[str]) -> str:
        """Says how void answers were counted."""
        return self.void

    def kind_of(self, labels: Sequence[str]) -> str:
        """Returns the kind of the answers. Two models can be compared only if it is the same."""
        return self.kind

    def aligned(self, values: list[Any], theirs: Sequence[str], ours: Sequence[str]) -> list[Any]:
        """Returns the answers of another model, expressed in the labels of this one."""
        return values

    def more_figures(
        self, gold: Sequence[Any], predictions: Sequence[Prediction], options: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns the figures that a test reports in addition to the metric."""
        return {}

    def unseen(self, examples: Sequence[Example], known: Sequence[str]) -> dict[str, int]:
        """Counts the gold answers that the model cannot give, by label."""
        return {}

    def unseen_note(self, unseen: Mapping[str, int], examples: int, known: Sequence[str]) -> str:
        total = sum(unseen.values())
        note = counted_unseen(unseen, f"of {examples:,} labels are such")
        if total == examples:
            note += f": no label of the data is one of the model's ({some(known)})"
        return note

    # -- as text

    prefix: ClassVar[str] = ""  # the text that T5's authors put before the source
    in_turns: ClassVar[bool] = False  # is the source made of the turns of a dialogue?
    of_pairs: ClassVar[bool] = False  # is it the task of a model that learned pairs and no task?
    names_languages: ClassVar[bool] = False  # does a published prefix name two languages?

    def source(self, example: Example) -> str:
        """Returns the text that the model reads before it writes its answer, without the prefix."""
        raise InputError(f"{example.place}: {type(example).__name__} is not {self.name}")

    def target(self, example: Example) -> str:
        """Returns the text that the model has to write. Refuses an example without one."""
        where = str(example.place) or "an example"
        raise InputError(f"{where} has no label or target, so nothing can be learned from it")

    def closed(self, examples: Sequence[Example], labels: Sequence[str]) -> list[str]:
        """Returns the closed words: an answer must be one of them to have a meaning."""
        return list(labels)

    def value(self, example: Example, word: str | None, text: str, labels: Sequence[str]) -> Any:
        """Returns the answer that a written text means; `word` is the closed word that the text
        matches, or None. A text without a meaning is returned unchanged and counts as wrong."""
        return text if word is None else word

    def is_sure(self, labels: Sequence[str]) -> bool:
        """Returns whether the probability of the written text is the probability of the answer."""
        return bool(labels)

    # -- by a prompt

    fields: ClassVar[tuple[str, ...]] = ()  # the fields that a template may name
    constant_fields: ClassVar[tuple[str, ...]] = ("labels",)  # the same for every example
    answer_fields: ClassVar[tuple[str, ...]] = ()  # the last field; empty: there is no prompt
    chooses: ClassVar[bool] = False  # is the answer chosen from a few? If not, it is generated.
    has_words: ClassVar[bool] = False  # does each label have a word in a prompt?
    answer_tokens: ClassVar[int] = 0  # the maximum number of tokens of a generated answer

    def template(self, examples: Sequence[Any]) -> str:
        """Returns the default template, which is the published one if there is one."""
        raise NotImplementedError

    def prompt_values(self, example: Any, labels: str) -> dict[str, str | None]:
        """Returns the fields that a template may name; None if the example lacks a field."""
        return {}

    def prompt_answer(self, example: Any, field: str, words: Mapping[str, str]) -> str | None:
        """Returns the gold answer as a demonstration writes it, or None if there is none."""
        return None

    def completions(self, example: Any, field: str, words: Mapping[str, str]) -> dict[Any, str]:
        """Returns the texts of the answers to choose from, by their meaning."""
        return dict(words)

    def prompt_words(self, labels: Sequence[str]) -> dict[str, str]:
        """Returns a word for each label, in the order in which a prompt names them."""
        return {label: label for label in labels}

    def check_prompted(self, example: Any) -> None:
        """Refuses an example that a prompt cannot ask about."""

    def written(self, text: str) -> str:
        """Returns the meaning of an answer that the model wrote after a prompt."""
        return text

    # -- on the command line

    one_at_a_time: ClassVar[bool] = False  # are all texts of a command line one example?
    whole_lines: ClassVar[bool] = False  # is a line one text? If not, tabs separate its texts.
    record_texts: ClassVar[tuple[str, ...]] = ()  # the roles of the texts of a line
    needs_records: ClassVar[bool] = False  # are its examples too nested for a table?

    def from_texts(self, texts: list[str], place: FileLine) -> dict[str, Any]:
        """Builds a record from the texts of one line."""
        roles = self.record_texts
        if len(texts) != len(roles):
            raise InputError(
                f"{place}: {self.name} needs {' and '.join(roles)}, and there are {len(texts)} "
                "texts; write them in one line with a tab between them"
            )
        return dict(zip(roles, texts, strict=True))

    def check_asked(self, example: Any, model: str) -> None:
        """Refuses an example that a model of this task cannot be asked about."""

    def line(self, example: Any, prediction: Prediction, labels: Sequence[str]) -> str:
        """Formats an answer for people. It is always one line."""
        value = self.answer_text(example, prediction.value)
        text = f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())
        return text if prediction.score is None else f"{text}\t{prediction.score:.4f}"

    def answer_text(self, example: Any, value: Any) -> Any:
        return value

    def described(
        self, example: Any, prediction: Prediction, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Formats an answer for programs. Values that the model does not give are left out."""
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
