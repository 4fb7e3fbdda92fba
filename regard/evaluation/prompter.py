"""Builds prompts, and turns the output of a model into answers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from regard.core.errors import ConfigError, InputError
from regard.data.examples import Example
from regard.decoding.generation import generate
from regard.decoding.prompts import readable
from regard.evaluation.demonstrations import DemonstrationPool
from regard.evaluation.likelihood import Likelihood, LikelihoodRequest, Scorer, size
from regard.evaluation.options import PromptOptions as Options
from regard.formats.directory import Checkpoint
from regard.tasks.base import Task
from regard.tasks.templates import (
    Template,
    listed,
    prompted,
    words_for,
)

REMEMBERED = 2**14  # the number of cached scores of neutral contexts

T = TypeVar("T")
Row = dict[str, Any]  # the prompt and the answer of one example


class Prompter:
    """Prompts one model for one task. A subclass implements `answer`."""

    def __init__(
        self,
        loaded: Checkpoint,
        examples: Sequence[Example],
        task: Task,
        pool: Sequence[Example] | None,
        options: Options,
    ) -> None:
        self.loaded, self.examples, self.task, self.options = loaded, examples, task, options
        check_examples(examples, prompted(task))
        usual = task.template(examples)
        self.template = Template(usual if options.template is None else options.template, task)
        self.words: dict[str, str] = {}
        if task.has_words:
            shown = [*examples, *(pool or ())]
            if len(labels := {label for example in shown for label in example.labels()}) == 1:
                raise InputError(
                    f"all examples have the label {labels.pop()!r}; give examples of at least 2 "
                    "classes"
                )
            self.words = words_for(task, task.labels_in(shown), options.labels)
        elif options.labels:
            raise ConfigError(
                f"{task.name} has no labels, so they have no words; leave --verbalizer out"
            )
        self.labels = listed(list(self.words.values()))
        text = self.template.text
        # Two line breaks between demonstrations that have several lines.
        usual = "\n\n" if "\n" in text else "\n"
        self.separator = usual if options.separator is None else options.separator
        # A context that asks for an answer and holds nothing else (Brown et al. 2020, 2.4).
        usual = "A:" if text.endswith(f"A: {{{self.template.answer}}}") else "Answer:"
        self.neutral = usual if options.neutral is None else options.neutral
        self.shots = DemonstrationPool(
            examples if pool is None else pool, options.shots, options.draw, options.fixed,
            options.seed,
        )  # fmt: skip
        self.scorer = Scorer(loaded, options.length)
        self.tokens = options.max_new_tokens or task.answer_tokens
        self.dropped = self.short = self.cut = 0  # dropped shots, prompts with fewer, cut prompts

    # -- prompts

    def values(self, example: Example) -> dict[str, str]:
        known = self.task.prompt_values(example, self.labels).items()
        values = {name: value for name, value in known if value is not None}
        self.template.check(example, values)
        return values

    def prompt(self, shots: Sequence[Example], values: Mapping[str, str]) -> tuple[str, str]:
        """Returns the context, and the blanks at its end, which belong to the completion."""
        parts = [self.options.instruction] if self.options.instruction else []
        for shot in shots:
            right = self.task.prompt_answer(shot, self.template.answer, self.words)
            if right is None:
                raise InputError(
                    f"{shot.place}: the example has no answer, so it cannot be a demonstration"
                )
            parts.append(self.template.context(self.values(shot)) + right)
        text = self.separator.join([*parts, self.template.context(values)])
        context = text.rstrip(" ")
        return context, text[len(context) :]

    def fitted(
        self, number: int, make: Callable[[list[Example]], list[T]], fits: Callable[[list[T]], bool]
    ) -> tuple[list[Example], list[T]]:
        """Returns the demonstrations for an example that fit (the first ones are dropped), and the
        result of `make` for them."""
        shots = self.shots.of(number, self.examples[number])
        result = make(shots)
        if shots and not fits(result):
            gone = bisect_left(range(len(shots)), True, lo=1, key=lambda n: fits(make(shots[n:])))
            shots = shots[gone:]
            result = make(shots)
            self.dropped += gone
            self.short += 1
        self.cut += not fits(result)
        return shots, result

    def answer(self, numbers: Sequence[int]) -> list[Row]:
        """Returns a row for each of these examples."""
        raise TypeError(f"{type(self).__name__} does not say how it answers")


class ChoicePrompter(Prompter):
    """Chooses the most likely of several answers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.known: dict[LikelihoodRequest, tuple[float, ...]] = {}  # scores of neutral contexts
        self.tell_apart()

    def tell_apart(self) -> None:
        """Refuses words that have the same tokens, such as two unknown words."""
        asks = {label: self.scorer.ask("Answer:", f" {word}") for label, word in self.words.items()}
        for label, ask in asks.items():
            for other in (o for o in asks if o != label and asks[o] == ask):
                raise InputError(
                    f"this model's tokenizer writes {self.words[label]!r} and "
                    f"{self.words[other]!r} with the same tokens, so it cannot choose; give "
                    "words that it knows with --verbalizer LABEL=WORD"
                )

    def completions(self, example: Example) -> dict[Any, str]:
        """Returns the answers to choose from, by label or by the number of a choice."""
        return self.task.completions(example, self.template.answer, self.words)

    def asks(
        self, shots: Sequence[Example], example: Example, blank: str | None = None
    ) -> list[LikelihoodRequest]:
        """Returns the requests for an example. A `blank` replaces the fields of the example."""
        values = self.values(example)
        if blank is not None:
            values |= {name: blank for name in values if name not in self.task.constant_fields}
        context, gap = self.prompt(shots, values)
        return self.scorer.asks(context, [gap + t for t in self.completions(example).values()])

    def answer(self, numbers: Sequence[int]) -> list[Row]:
        waiting: list[
            tuple[list[Example], list[LikelihoodRequest], list[list[LikelihoodRequest]]]
        ] = []
        for number in numbers:
            example = self.examples[number]
            shots, asks = self.fitted(
                number,
                partial(self.asks, example=example),
                lambda asks: all(map(self.scorer.fits, asks)),
            )
            blanks = [self.asks(shots, example, blank) for blank in self.options.blank]
            if not blanks:
                gap = self.prompt((), self.values(example))[1]
                texts = self.completions(example).values()
                blanks = [self.scorer.asks(self.neutral, [gap + text for text in texts])]
            cut = self.scorer.cut
            waiting.append((shots, cut(asks), [cut(each) for each in blanks]))
        logprobs = self.scorer.run([ask for _, asks, _ in waiting for ask in asks])
        self.learn([ask for _, _, blanks in waiting for row in blanks for ask in row])
        rest = iter(logprobs)
        return [
            self.row(number, shots, [next(rest) for _ in asks], blanks)
            for number, (shots, asks, blanks) in zip(numbers, waiting, strict=True)
        ]

    def learn(self, asks: list[LikelihoodRequest]) -> None:
        """Scores the neutral contexts that were not scored before."""
        if len(self.known) > REMEMBERED:  # with `blank` each example has its own contexts
            self.known.clear()
        new = [ask for ask in dict.fromkeys(asks) if ask not in self.known]
        self.known |= dict(zip(new, self.scorer.run(new), strict=True))

    def row(
        self,
        number: int,
        shots: Sequence[Example],
        logprobs: Sequence[tuple[float, ...]],
        blanks: Sequence[Sequence[LikelihoodRequest]],
    ) -> Row:
        example = self.examples[number]
        completions = self.completions(example)
        texts, names = list(completions.values()), list(completions)
        likelihoods = [Likelihood(p, size(text)) for p, text in zip(logprobs, texts, strict=True)]
        raw = [each.total for each in likelihoods]
        neutral = self.neutrally([[sum(self.known[ask]) for ask in each] for each in blanks])
        scores = {
            "raw": raw,
            "token": [each.per_token for each in likelihoods],
            "byte": [each.per_byte for each in likelihoods],
            "calibrated": [a - b for a, b in zip(raw, neutral, strict=True)],
        }
        choices = {name: names[argmax(values)] for name, values in scores.items()}
        return {
            "id": example.id,
            "number": number,
            "gold": example.gold,
            "predicted": choices[self.options.score],
            "by": choices,
            "scores": {name: dict(zip(names, v, strict=True)) for name, v in scores.items()},
            "shots": [shot.id for shot in shots],
        }

    def neutrally(self, rows: Sequence[Sequence[float]]) -> list[float]:
        """Returns log P of each answer given the neutral contexts; for several contexts, of the
        mean probability."""
        if not self.options.blank:
            return list(rows[0])
        shares = [[x - log_sum_exp(row) for x in row] for row in rows]
        return [log_sum_exp(column) - math.log(len(rows)) for column in zip(*shares, strict=True)]


class OpenAnswerPrompter(Prompter):
    """Generates the answer, up to the first line break."""

    def answer(self, numbers: Sequence[int]) -> list[Row]:
        prompts: list[list[int]] = []
        shots_of: list[list[Example]] = []
        for number in numbers:
            values = self.values(self.examples[number])
            shots, ids = self.fitted(
                number,
                partial(self.encoded, values=values),
                lambda ids: len(ids) <= self.room,
            )
            prompts.append(ids[-int(min(self.room, len(ids))) :])
            shots_of.append(shots)
        generations = generate(
            self.loaded,
            prompts,
            max_new_tokens=self.tokens,
            num_beams=self.options.num_beams,
            temperature=0,
            stop=("\n",),
        )
        return [
            {
                "id": self.examples[number].id,
                "number": number,
                "gold": self.examples[number].gold,
                "predicted": self.task.written((texts[0].text or "").strip()),
                "shots": [shot.id for shot in shots],
            }
            for number, texts, shots in zip(numbers, generations, shots_of, strict=True)
        ]

    @property
    def room(self) -> float:
        """Returns the number of prompt tokens that leave enough room for the answer."""
        limit = self.scorer.limit
        if limit is None:
            return math.inf
        if not self.scorer.prompts.pair:
            limit -= self.tokens
        if limit < 1:
            raise ConfigError(
                f"an answer of {self.tokens:,} tokens leaves no room for a prompt in the context "
                f"of {self.scorer.limit:,} tokens; choose fewer (--max-new-tokens)"
            )
        return limit

    def encoded(self, shots: Sequence[Example], values: Mapping[str, str]) -> list[int]:
        prompts = self.scorer.prompts
        text = readable(self.prompt(shots, values)[0])
        ids = self.scorer.words.encode(text, special=prompts.pair)
        if prompts.pair and ids[-1:] != [prompts.config.eos_id]:
            ids.append(prompts.config.eos_id)
        return ids or prompts.encode("")


def prompter_for(
    loaded: Checkpoint,
    examples: Sequence[Example],
    task: Task,
    pool: Sequence[Example] | None,
    options: Options,
) -> Prompter:
    kind = ChoicePrompter if task.chooses else OpenAnswerPrompter
    return kind(loaded, examples, task, pool, options)


def argmax(values: Sequence[float]) -> int:
    """Returns the index of the first maximum."""
    return max(range(len(values)), key=lambda i: values[i])


def log_sum_exp(values: Sequence[float]) -> float:
    """Returns log Σ exp of the values."""
    most = max(values)
    return most + math.log(sum(math.exp(value - most) for value in values))


def softmax(values: Sequence[float]) -> list[float]:
    """Returns the softmax of the values."""
    return [math.exp(value - log_sum_exp(values)) for value in values]


def check_examples(examples: Sequence[Example], task: Task) -> None:
    """Refuses data that cannot be measured: no examples, no labels, or scores as labels."""
    if not examples:
        raise InputError("there are no examples; give labeled data")
    for example in examples:
        if not example.labeled:
            raise InputError(
                f"{example.place}: the example has no label, so its answer cannot be measured; "
                "give labeled data"
            )
        task.check_prompted(example)
