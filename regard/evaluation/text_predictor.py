"""Predicts with a model that has learned its task as text.

>>> ask = TextPredictor(regard.load("run"), num_beams=4)
>>> ask([Pair("The cat sat on the mat.")])[0].value
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from regard.core.errors import ConfigError
from regard.data.examples import Example
from regard.decoding.generation import Decoder, Generation
from regard.decoding.generation_config import options_for
from regard.evaluation.predict import facts_of
from regard.formats.directory import Checkpoint
from regard.objectives import learns_to_write
from regard.tasks import TASKS
from regard.tasks import task as find
from regard.tasks.as_text import CHUNK, LENGTH, prefix_of
from regard.tasks.base import Prediction
from regard.tasks.inference import portions
from regard.tasks.labeled import TASK
from regard.tasks.text_forms import LabelWords, TextFormatter
from regard.training import recipe as recipes
from regard.training.run import RECIPE

TOKENS = 128  # the default number of tokens of a target


class TextPredictor:
    """Predicts with a model that writes its answers. Decoding is greedy, unless options say
    otherwise (`num_beams=4, length_penalty=0.6` is what the papers translate and summarize with).

    The model directory names the task: task.json of 'regard finetune'. A run of 'regard train' on
    pairs is a translator, and so is a published Marian. For a published T5, `task` has to name it,
    and for translate also a `prefix` that names the languages. In a dialogue the last turn is the
    one to predict: give "" there.
    """

    def __init__(
        self,
        loaded: Checkpoint,
        *,
        task: str = "",
        prefix: str | None = None,
        length: int = 0,
        **options: Any,
    ) -> None:
        facts = facts_for(loaded, task)
        self.loaded, self.task, self.labels = loaded, str(facts["task"]), list(facts["labels"])
        if options.get("precision") == "fp32":
            options["precision"] = "own"
        self.options = options_for(loaded, {"max_new_tokens": facts["tokens"]} | options)
        self.decoder = Decoder(loaded, self.options)
        self.tokenizer = self.decoder.prompts.words()
        pair, end = self.decoder.prompts.pair, self.decoder.prompts.end()
        before = facts["prefix"] if prefix is None else prefix
        if before is None:
            raise ConfigError(
                f"{loaded.path or 'this T5'} needs the languages of a translation: give "
                "prefix='translate English to German: ' (--prefix on the command line)"
            )
        self.kind = find(self.task)
        self.scribe = TextFormatter(self.kind, before, self.tokenizer, end, pair)
        self.length: int = length or facts["length"]
        self.room = self.length
        if not pair:
            self.room = max(self.length - self.options.max_new_tokens, self.length // 2)
        self.cut = 0  # the number of sources so far that were too long

    @property
    def notes(self) -> list[str]:
        """Returns notes on the sources so far that were too long."""
        if not self.cut:
            return []
        what = f"{self.cut:,} {{}} have more than {self.room:,} tokens"
        if self.kind.in_turns:
            return [
                what.format("dialogues") + " before the reply; their oldest turns were left out"
            ]
        return [what.format("texts") + " and were cut"]

    def __call__(self, examples: Iterable[Example]) -> list[Prediction]:
        return list(self.stream(examples))

    def stream(self, examples: Iterable[Example]) -> Iterator[Prediction]:
        """Yields predictions in the order of the examples."""
        number = self.options.first
        for part in portions(examples, CHUNK):
            yield from self.answers(part, number)
            number += len(part)

    def answers(self, examples: Sequence[Example], number: int) -> list[Prediction]:
        prompts, cut = self.scribe.sources(examples, self.room)
        self.cut += cut
        predictions: list[Any] = [None] * len(prompts)
        words = LabelWords(self.kind.closed(examples, self.labels), self.tokenizer)
        with self.decoder.ready():
            for places in self.decoder.batches(prompts):
                generations = self.decoder.run(
                    [prompts[i] for i in places], [number + i for i in places]
                )
                for place, best in zip(places, generations, strict=True):
                    predictions[place] = self.prediction(examples[place], best[0], words)
        return predictions

    def prediction(self, example: Example, generation: Generation, words: LabelWords) -> Prediction:
        ids = generation.ids[:-1] if generation.reason == "end" else generation.ids
        text = (
            (generation.text or "") if generation.reason == "stop" else self.tokenizer.decode(ids)
        )
        word = words.find(ids, text)
        value = self.kind.value(example, word, text.strip(), self.labels)
        sure = math.exp(generation.logprob) if self.kind.is_sure(self.labels) else None
        return Prediction(value, sure)


def facts_for(loaded: Checkpoint, task: str) -> dict[str, Any]:
    """Returns what a model writes, from its task.json, from its recipe, or from `task`."""
    place, context = loaded.path, getattr(loaded.config, "context", None)
    published: dict[str, Any] = {"labels": [], "prefix": "", "tokens": TOKENS}
    if place is not None and (place / TASK).is_file():
        facts = published | facts_of(loaded)
        if not learns_to_write(facts["objective"].get("name", "")):
            raise ConfigError(f"{place} was trained for {facts['task']} with a head, not as text")
        if task not in ("", facts["task"]):
            raise ConfigError(f"{place} was trained for {facts['task']}, not for {task}")
        return facts
    card = loaded.model.family
    of_pairs = next(name for name in TASKS if find(name).of_pairs)
    # A published model without task prefixes is a translator.
    able = [name for name in TASKS if card.writes_tasks and find(name).writable]
    able = able if card.task_prefixes else [name for name in able if find(name).text_only]
    if place is not None and (place / RECIPE).is_file():
        recipe = recipes.read_recipe(place / RECIPE)
        known = card.task_prefixes or not task or find(task).text_only  # from text to text
        if known and learns_to_write(recipe.objective.get("name", "")):
            length = recipe.batch.seq_len or LENGTH
            return published | {"task": task or of_pairs, "length": length, "tokens": length}
        able = []
    elif card.writes_tasks and not card.task_prefixes:
        task = task or of_pairs
    if task not in able:
        raise ConfigError(
            f"{place or 'this model'} has not learned to write answers"
            + (f" for {task}" if task else "")
            + "; fine-tune it first ('regard finetune'), or train it on pairs ('regard prepare "
            "--pairs')"
        )
    unknown = card.task_prefixes and find(task).names_languages  # the user has to name them
    prefix = None if unknown else prefix_of(None, find(task), card.name)
    return published | {"task": task, "prefix": prefix, "length": min(context or LENGTH, LENGTH)}
