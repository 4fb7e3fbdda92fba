"""The task `choose` (multiple choice): each choice is one row with one score, and a softmax runs
over the choices.

BERT: Devlin et al. 2018, 4.4 (SWAG). XLNet: run_race.py of zihangdai/xlnet; Longformer does the
same. GPT-1: Radford et al. 2018, 3.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.attention.kernels import wide
from regard.core.errors import InputError
from regard.data.examples import Example, MultipleChoice
from regard.data.input_formats import FormattedInput, framed
from regard.data.problems import FileLine
from regard.data.read_fields import ID, BadRecord, FieldRecord, numbered_fields
from regard.metrics import labels as metrics
from regard.objectives.base import Batch, HeadAnswers, Sample
from regard.tasks.base import Prediction, Task
from regard.tasks.multi_row import MultiRow, MultiRowOptions

# The questions of COPA in its own words (Roemmele et al. 2011). Other questions stay as they are.
ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
GAP = "_"  # the place for the choice in a question of RACE
LONGEST = 128  # tokens of a question with a choice (run_race.py); its beginning is cut off


@dataclass(frozen=True)
class ChooseOptions(MultiRowOptions):
    """The options of `choose`. It has none beyond those of MultiRow."""


class Choose(MultiRow):
    Options: ClassVar[type] = ChooseOptions
    name = "choose"
    comparable = True

    def prepare(self) -> None:
        self.gold = self.answers()
        super().prepare()

    def answers(self) -> np.ndarray:
        """Returns the index of the right choice of every example, or -1 if it is not known."""
        examples: Any = self.corpus.examples
        for example in examples:
            count, label = len(example.choices), example.label
            if count == 0 or (label is not None and not 0 <= label < count):
                raise InputError(
                    f"{example.place}: the label is {label}, and there are {count} choices, "
                    "counted from 0; correct the label"
                )
        gold = np.array([-1 if e.label is None else e.label for e in examples], np.int64)
        self.check_known(gold >= 0)
        return gold

    # -- rows

    def groups_of(self, examples: Any) -> Iterator[list[FormattedInput]]:
        return self.asked_first(examples) if self.causal else self.asked_second(examples)

    def asked_first(self, examples: Sequence[MultipleChoice]) -> Iterator[list[FormattedInput]]:
        """Yields rows for GPT-1: the premise, then the question, then the choice."""
        questions = sorted({q for example in examples if (q := question(example))})
        sizes = {q: len(ids) for q, ids in zip(questions, self.texts(questions), strict=True)}
        stems = self.texts([joined(e.premise, question(e)) for e in examples])
        flat = iter(self.texts([choice for e in examples for choice in e.choices]))
        for example, stem in zip(examples, stems, strict=True):
            size = sizes.get(question(example), 0)
            yield [self.row_of_stem(stem, size, next(flat)) for _ in example.choices]

    def row_of_stem(self, stem: list[int], question_size: int, choice: list[int]) -> FormattedInput:
        """Builds one row. A long premise loses its end, but not the question after it."""
        room, shortened = max(self.room - len(choice), question_size), stem
        if question_size and len(stem) > room:
            shortened = stem[: room - question_size] + stem[-question_size:]
        return self.row(shortened, choice, len(shortened) < len(stem))

    def asked_second(self, examples: Sequence[MultipleChoice]) -> Iterator[list[FormattedInput]]:
        """Yields rows for encoders: the premise, then the question together with the choice."""
        premises = self.texts([example.premise for example in examples])
        flat = iter(
            self.texts([question_with_choice(e, choice) for e in examples for choice in e.choices])
        )
        for example, premise in zip(examples, premises, strict=True):
            asks = bool(question(example))
            yield [self.row_of_answer(premise, next(flat), asks) for _ in example.choices]

    def row_of_answer(self, premise: list[int], second: list[int], asks: bool) -> FormattedInput:
        """Builds one row. With a question only the premise is cut, otherwise the longer text."""
        if not asks:
            return self.row(premise, second, False)
        end = second[-min(LONGEST, max(self.room, 1)) :]
        left = premise[: max(self.room - len(end), 0)]
        return self.row(left, end, len(left) + len(end) < len(premise) + len(second))

    @property
    def room(self) -> int:
        """The number of tokens in a row that are not special tokens."""
        return self.seq_len - sum(part not in ("a", "b") for part, _ in self.frame.double)

    def row(self, first: list[int], second: list[int], cut: bool) -> FormattedInput:
        framed_row = framed(self.frame, self.corpus.special, first, second, self.seq_len)
        return framed_row._replace(cut=framed_row.cut or cut)

    def extra(self, index: int) -> Sample:
        gold = self.gold[index]
        return {"gold": np.array(max(gold, 0)), "known": np.array(gold >= 0)}

    # -- learning

    def heads(self) -> dict[str, int]:
        return {"choose": 1}

    def judged(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        """Returns scores [B, choices], with -∞ in the columns of missing choices."""
        scores = wide(model.read("choose", hidden, batch["attention_mask"]))[:, 0]
        return scores[batch["rows"]].masked_fill(~batch["held"], -torch.inf)

    def nats(self, scores: Tensor, batch: Batch) -> tuple[Tensor, dict[str, tuple[Tensor, Any]]]:
        gold, known = batch["gold"], batch["known"]
        each = torch.nn.functional.cross_entropy(scores, gold, reduction="none")
        right = ((scores.argmax(1) == gold) & known).sum()
        return each, {"right": (right, known.sum())}

    def head_answers(self, scores: Mapping[str, Tensor], batch: Batch) -> list[HeadAnswers]:
        choices = scores["choose"][:, 0][batch["rows"]]
        return [HeadAnswers(self.name, choices, batch["known"], batch["held"])]

    # -- answers

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        shares = self.scores(model, batch).softmax(1).tolist()
        counts = batch["held"].sum(1).tolist()
        return [row[:count] for row, count in zip(shares, counts, strict=True)]

    def merge(self, shares: list[Any]) -> list[Prediction]:
        best = [max(range(len(row)), key=row.__getitem__) for row in shares]
        return [Prediction(i, row[i], row) for i, row in zip(best, shares, strict=True)]


def question(example: MultipleChoice) -> str:
    """Returns the question about the premise, or "" if there is none."""
    asks = (example.asks or "").strip()
    return ASKED.get(asks.lower(), asks)


def question_with_choice(example: MultipleChoice, choice: str) -> str:
    """Returns the question with a choice. If the question has a gap, the choice fills it."""
    asks = question(example)
    return asks.replace(GAP, choice) if GAP in asks else joined(asks, choice)


def joined(*texts: str) -> str:
    return " ".join(filter(None, texts))


# -- the task

LINKS = {"cause": "because", "effect": "so"}  # for COPA (Brown et al. 2020, appendix G)


class ChooseTask(Task):
    name = "choose"
    example = MultipleChoice
    roles: ClassVar[Mapping[str, str]] = {
        "premise": "premise article passage context ctx startphrase sent1 question",
        "choices": "choices options endings alternatives",
        "asks": "asks question",
        "label": "label answer answerkey gold",
        "id": ID,
    }
    needed = ("premise", "choices")
    listed = "choices"
    varied = True
    learned_by = Choose
    measured_by = metrics.ChoiceAccuracy
    heads = ("choose",)
    prefix = "copa "
    void = "none of the choices and count as wrong"
    fields = ("premise", "asks", "stem", "link")
    constant_fields = ("labels", "link")
    answer_fields = ("choice", "ending")
    chooses = True
    one_at_a_time = True
    needs_records = True

    # -- data

    def parse(self, record: FieldRecord) -> Example:
        premise = record.text("premise")
        choices, keys = listed_choices(record)
        if len(choices) < 2:
            raise BadRecord(
                "uneven-choices", f"the number of choices is {len(choices)}; give at least two"
            )
        for number, text in enumerate(choices):
            if not isinstance(text, str):
                raise BadRecord("wrong-type", f"choice {number} is {type(text).__name__}, not text")
            if not text.strip():
                raise BadRecord("empty-text", f"choice {number} is empty")
        label = choice_index(record.get("label"), choices, keys) if record.has("label") else None
        first = record.fields.first.setdefault("choices", len(choices))
        if len(choices) != first:
            record.warn(
                "uneven-choices",
                f"the number of choices is {len(choices)}, but the first question has {first}",
            )
        asks = record.get("asks")
        if asks is not None and not isinstance(asks, str):
            raise BadRecord("wrong-type", f"the question is {type(asks).__name__}, not text")
        return MultipleChoice(premise, tuple(choices), asks or None, label, record.place, record.id)

    # -- measuring

    def values(
        self, labels: Sequence[str], predictions: Sequence[Prediction], gold: Sequence[Any]
    ) -> tuple[list[Any], int]:
        """Counts answers that are a text as void: the model wrote none of the choices."""
        values = [one.value for one in predictions]
        return values, sum(isinstance(value, str) for value in values)

    # -- as text

    def source(self, example: Example) -> str:
        if not isinstance(example, MultipleChoice):
            return super().source(example)
        named = [f"{choice_name(i)}: {text}" for i, text in enumerate(example.choices)]
        asks = [f"question: {example.asks}"] if example.asks is not None else []
        return " ".join([*named, f"premise: {example.premise}", *asks])

    def target(self, example: Example) -> str:
        label = getattr(example, "label", None)
        return choice_name(label) if isinstance(label, int) else super().target(example)

    def closed(self, examples: Sequence[Example], labels: Sequence[str]) -> list[str]:
        most = max((len(e.choices) for e in examples if isinstance(e, MultipleChoice)), default=0)
        return [choice_name(i) for i in range(most)]

    def value(self, example: Any, word: str | None, text: str, labels: Sequence[str]) -> Any:
        known = [choice_name(i) for i in range(len(example.choices))]
        return known.index(word) if word in known else text

    def is_sure(self, labels: Sequence[str]) -> bool:
        return True

    # -- by a prompt

    def template(self, examples: Sequence[Any]) -> str:
        """Returns GPT-3's template of COPA, Story Cloze, HellaSwag (Brown et al. 2020, app. G)."""
        asks = {example.asks for example in examples}
        if asks <= set(LINKS):
            return "{stem} {link} {ending}"
        return "{premise} {choice}" if None in asks else "{premise}\nQ: {asks}\nA: {choice}"

    def prompt_values(self, example: Any, labels: str) -> dict[str, str | None]:
        stem = example.premise.rstrip().removesuffix(".")
        link = LINKS.get(example.asks or "")
        return {"premise": example.premise, "asks": example.asks, "stem": stem, "link": link}

    def prompt_answer(self, example: Any, field: str, words: Mapping[str, str]) -> str | None:
        if example.label is None:
            return None
        return self.completions(example, field, words)[example.label]

    def completions(self, example: Any, field: str, words: Mapping[str, str]) -> dict[Any, str]:
        """Returns the choices by index. An `ending` is written as the rest of a sentence."""
        change = lowered if field == "ending" else str
        return {i: change(text) for i, text in enumerate(example.choices)}

    # -- on the command line

    def from_texts(self, texts: list[str], place: FileLine) -> dict[str, Any]:
        if len(texts) < 3:
            raise InputError(
                f"{place}: the number of texts is {len(texts)}; give a premise and at least two "
                "choices"
            )
        return {"premise": texts[0], "choices": texts[1:]}

    def answer_text(self, example: Any, value: Any) -> Any:
        return value if isinstance(value, str) else example.choices[value]

    def described(
        self, example: Any, prediction: Prediction, labels: Sequence[str]
    ) -> dict[str, Any]:
        text = {"text": self.answer_text(example, prediction.value)}
        row = super().described(example, prediction, labels)
        return {"value": row.pop("value")} | text | row


def listed_choices(record: FieldRecord) -> tuple[list[Any], list[str]]:
    """Returns the texts of the choices, and the names by which a label may refer to them."""
    name, values = record.field("choices"), record.values
    if name not in values:
        several = numbered_fields(values)
        if not several:
            raise BadRecord("missing-field", f"no field {name!r}; there are: {', '.join(values)}")
        while several and values[several[-1]] in (None, ""):  # in a table, other rows have more
            several.pop()
        return [values[key] for key in several], several
    value = values[name]
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        return value["text"], [str(label) for label in value.get("label", [])]
    if not isinstance(value, list):
        kind = type(value).__name__
        raise BadRecord("wrong-type", f"the choices ({name!r}) are {kind}, not a list")
    return value, []


def choice_index(value: Any, choices: list[str], keys: list[str]) -> int:
    """Returns the index that a label means. A label is a number from 0, the choice's name, a
    letter, or the text of the choice."""
    if value is None or value == "":
        raise BadRecord("missing-label", "no label")
    text = str(value).strip()
    if text in keys:
        return keys.index(text)
    counted = isinstance(value, int) and not isinstance(value, bool)
    if text in choices and not counted:
        return choices.index(text)
    if len(text) == 1 and "A" <= text <= "Z":
        index = ord(text) - ord("A")
    elif isinstance(value, bool | float) or not text.removeprefix("-").isdecimal():
        raise BadRecord("not-a-number", f"the label is {value!r}, not the number of a choice")
    else:
        index = int(text)
    if not 0 <= index < len(choices):
        raise BadRecord(
            "label-range",
            f"the label is {value!r}, but there are {len(choices)} choices, counted from 0",
        )
    return index


def choice_name(index: int) -> str:
    return f"choice{index + 1}"


def lowered(text: str) -> str:
    """Lowers the first letter, so that the text can end a sentence. The word "I" stays as it is."""
    return text if re.match(r"I\b", text) else text[:1].lower() + text[1:]


TASK = ChooseTask()
