"""Tasks learned and answered as text: a source is read, a target is written.

Models with an encoder and a decoder (t5, transformer) learn every task but `tag` so. Models that
go on with a text (gpt, transformer-xl, lstm, longformer-characters) learn what is a text anyway:
translate, summarise, converse. text_forms.py says how each task is put in words.

    regard finetune my-t5 --task entail --data sick.jsonl --out run
    regard finetune my-gpt --task converse --data talks.jsonl --out run     # then: regard chat run

A translator may also begin without any weights; its run is asked in the same way:

    regard prepare en-zh.tsv --pairs --out data
    regard train transformer data --size small --out run --minutes 30

    >>> ask = TextPredictor(regard.load("run"), beams=4)
    >>> ask([Pair("The cat sat on the mat.")])[0].value
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.atomic_dir import workplace
from regard.core.errors import ConfigError, InputError, RegardError, UnknownName
from regard.core.lock import RunLock
from regard.data.corpus import MARKER, Writer, read_marker, write_marker
from regard.data.examples import TASKS, Example, Pair, Problems
from regard.data.labelled import (
    check_labels,
    divide,
    labels_in,
    noted,
    read_all,
    settle_digest,
    tokenizer_of,
)
from regard.data.prepare import WIDEST
from regard.data.special_tokens import completed, special_of
from regard.data.tokenizer import Tokenizer
from regard.decoding.generation import Decoder, Generation
from regard.decoding.options import Options
from regard.evaluation.predict import ROWS, by_tokens, facts_of, portions
from regard.formats.directory import Loaded, configure, read_config
from regard.formats.registry import format_of
from regard.models import FAMILIES
from regard.objectives import objective as find
from regard.tasks.labelled import TASK, Prediction
from regard.tasks.paper_defaults import TEXT
from regard.tasks.text_forms import PREFIXES, Form, Scribe, Words, divide_pairs
from regard.training import recipe as recipes
from regard.training.build import family
from regard.training.progress import watch
from regard.training.recipe import Recipe
from regard.training.run import (
    RECIPE,
    check_place,
    company,
    pick_device,
    started_again,
    train,
    write_json,
)

READERS = ("gpt", "transformer-xl", "lstm", "longformer-characters")  # go on with a text
DATA = "data"  # of a run: its examples as prepared pairs
CHUNK = 1024  # examples that are put in words together
LENGTH = 512  # tokens of a source, where nothing says how many
LEAST = 4  # tokens of a pair
TOKENS = 128  # of a target, where nothing says how many


# -- learning


def finetune_as_text(recipe: Recipe, out: Path, *, display: str = "auto") -> dict[str, Any]:
    """Writes the examples as pairs into the run, and trains on them; gives what run.json says.

    Going on (`--resume`) needs the model it began with, but not the file of examples.
    """
    given, out = deepcopy(recipe), Path(out)
    kind = check(given)
    device = pick_device(given.engine.device)
    with company(device) as group:
        ready = deepcopy(given)
        ready.data = str(out / DATA)
        if not started_again(ready, out):

            def write() -> None:
                check_place(out, False, group)
                with RunLock(out):
                    write_examples(given, out, kind, display)

            group.first_does(write, RegardError)
        facts = read_marker(out / DATA)["examples"]
        ready.examples.labels, ready.examples.digest = facts["labels"], facts["digest"]
        ready.batch.length = max(LEAST, min(facts["length"], facts["longest"]))
        smoothing = {} if FAMILIES[kind].smooths_labels else {"smoothing": 0.0}
        ready.objective = {"name": "pairs"} | smoothing | ready.objective
        return train(ready, out, display=display)


def check(recipe: Recipe) -> str:
    """Refuses what this model cannot learn so; gives its family."""
    kind, given = family(recipe), recipe.examples
    card = FAMILIES[kind]
    if given.task not in TASKS:
        raise UnknownName("task", given.task, TASKS)
    if given.task == "tag":
        able = ", ".join(getattr(find("tag"), "FAMILIES", ()))
        raise ConfigError(f"{kind} writes texts and cannot tag words; these can: {able}")
    if not card.writes_tasks and (given.task not in TEXT or kind not in READERS):
        able = ", ".join([*writers(), *READERS] if given.task in TEXT else writers())
        raise ConfigError(f"{kind} cannot learn {given.task} as text; these can: {able}")
    if given.task == "converse" and given.prefix not in ("", "paper"):
        raise ConfigError(
            f"examples.prefix is {given.prefix!r}, but 'regard chat' shows turns as they are; "
            "leave it out"
        )
    if recipe.objective.get("name", "pairs") != "pairs":
        raise ConfigError(
            f"objective.name is {recipe.objective['name']!r}; {kind} learns {given.task} as text, "
            "which is 'pairs': leave it out"
        )
    return kind


def writers() -> list[str]:
    """The families that learn every task as text."""
    return [name for name, card in FAMILIES.items() if card.writes_tasks]


def prefix_of(prefix: str, task: str, kind: str) -> str:
    if prefix != "paper":
        return prefix
    return PREFIXES.get(task, "") if FAMILIES[kind].task_prefixes else ""


def write_examples(recipe: Recipe, out: Path, kind: str, display: str) -> None:
    """RUN/data, and RUN/task.json, by which the run is asked later."""
    given, place = recipe.examples, out / DATA
    if (place / MARKER).is_file() and "examples" not in read_marker(place):
        raise ConfigError(f"{place} is prepared text of another kind; choose another --out")
    splits = divided(recipe, display)
    config = configure(format_of((source := read_config(Path(recipe.model)))["model_type"]), source)
    context = getattr(config, "context", None)
    length = recipe.batch.length or min(
        FAMILIES[kind].finetuned(given.task).seq_len or LENGTH, context or 2**62
    )
    form = Form(given.task, prefix_of(given.prefix, given.task, kind), given.labels)
    tokenizer = plain(tokenizer_of(recipe.model))
    special = special_of(tokenizer, recipe.model)
    special = replace(special, end=config.end) if FAMILIES[kind].writes_tasks else special
    scribe = Scribe(form, tokenizer, special.end, FAMILIES[kind].writes_tasks)
    Words(form.closed(splits["train"]), tokenizer)
    vocabulary = max(tokenizer.ready.get_vocab().values()) + 1
    dtype = "uint16" if vocabulary <= WIDEST else "uint32"
    with workplace(place, True, MARKER) as work:
        longest, target, about = 0, 0, {}
        for name, examples in splits.items():
            written = Written(Writer(work, name, dtype), special.unknown)
            for part in portions(examples, CHUNK):
                written.add(scribe.pairs(part, length))
            about[name] = written.close()
            longest = max(longest, written.longest)
            target = max(target, written.target)
        if not about["train"]["documents"]:
            raise InputError(f"{recipe.data} holds nothing to learn: no turn is replied to")
        completed(tokenizer, special).save(work)
        facts = {"labels": given.labels, "length": length, "longest": longest,
                 "digest": given.digest}  # fmt: skip
        write_marker(
            work,
            {"kind": "pairs", "vocabulary": vocabulary, "dtype": dtype, "special": asdict(special),
             "tokenizer": "existing", "splits": about, "sources": [recipe.data],
             "examples": facts},
        )  # fmt: skip
    write_json(
        out / TASK,
        {"task": form.task, "objective": {"name": "pairs"}, "labels": form.labels,
         "length": length, "prefix": form.prefix, "form": "text", "tokens": min(target, length)},
    )  # fmt: skip


class Written:
    """Pairs on their way into a split."""

    def __init__(self, writer: Writer, unknown: int | None) -> None:
        self.writer, self.unknown = writer, unknown
        self.longest = self.target = self.strange = 0

    def add(self, pairs: Iterable[tuple[list[int], list[int], int]]) -> None:
        for source, target, size in pairs:
            self.writer.add([source, target], size)
            self.longest = max(self.longest, len(source) + len(target))
            self.target = max(self.target, len(target))
            if self.unknown is not None:
                self.strange += source.count(self.unknown) + target.count(self.unknown)

    def close(self) -> dict[str, Any]:
        return {**self.writer.close(), "unknown": self.strange}


def divided(recipe: Recipe, display: str) -> dict[str, list[Example]]:
    """The examples that learn and those that validate; labels are settled."""
    given, problems = recipe.examples, Problems()
    found, valid = read_all(recipe.data, recipe, problems), []
    if given.valid and not given.folds:
        valid = read_all(given.valid, recipe, problems)
    else:
        rest = given.share, given.folds, given.fold
        pairs = [e for e in found if isinstance(e, Pair)]
        inside = divide_pairs(pairs, *rest) if pairs else divide(found, *rest)
        valid = [e for e, held in zip(found, inside, strict=True) if held]
        found = [e for e, held in zip(found, inside, strict=True) if not held]
    if given.more:
        found = [*found, *read_all(given.more, recipe, problems)]
    settle_digest(recipe)
    if given.task in ("classify", "entail", "similar"):
        given.labels = given.labels or labels_in(found, given.task)
        check_labels(found, given.labels, recipe.data, given.task)
        check_labels(valid, given.labels, given.valid or recipe.data, given.task)
    for line in noted(problems):
        watch(display).note(line)
    return {"train": found, "valid": valid}


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """Without a chat template: turns are learned in the plain format."""
    files = {k: v for k, v in tokenizer.files.items() if k != "chat_template.jinja"}
    if "tokenizer_config.json" in files:
        held = json.loads(files["tokenizer_config.json"])
        if held.pop("chat_template", None) is not None:
            files["tokenizer_config.json"] = json.dumps(held, indent=2).encode()
    return Tokenizer(tokenizer.fast, files)


# -- answering


class TextPredictor:
    """Asks a model that writes its answers. Greedy, unless decoding options say otherwise
    (`beams=4, alpha=0.6` is what the papers translate and summarise with).

    The directory says the task: task.json of 'regard finetune'; a run of 'regard train' on pairs
    is a translator, and so is a published Marian. Of a published T5 `task` has to say it, and of
    translate a `prefix` that names the languages. Of a dialogue the last turn is what is asked for:
    give "" there.
    """

    def __init__(
        self,
        loaded: Loaded,
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
        self.options = Options.of({"tokens": facts["tokens"]} | options)
        self.batch = self.options.batch if "batch" in options else ROWS
        self.decoder = Decoder(loaded, self.options)
        self.tokenizer = self.decoder.prompts.words()
        pair, ends = self.decoder.prompts.pair, self.decoder.prompts.ends()
        before = facts["prefix"] if prefix is None else prefix
        if before is None:
            raise ConfigError(
                f"{loaded.path or 'this T5'} has to be told the languages of a translation: say "
                "prefix='translate English to German: ' (--prefix on the command line)"
            )
        form = Form(self.task, before, self.labels)
        self.scribe = Scribe(form, self.tokenizer, ends[0], pair)
        self.length: int = length or facts["length"]
        self.room = self.length
        if not pair:
            self.room = max(self.length - self.options.tokens, self.length // 2)
        self.cut = 0  # sources that were too long, so far

    @property
    def notes(self) -> list[str]:
        """What became of sources that were too long, so far."""
        if not self.cut:
            return []
        what = f"{self.cut:,} {{}} have more than {self.room:,} tokens"
        if self.task == "converse":
            return [
                what.format("dialogues") + " before the reply; their oldest turns were left out"
            ]
        return [what.format("texts") + " and were cut"]

    def __call__(self, examples: Iterable[Example]) -> list[Prediction]:
        return list(self.stream(examples))

    def stream(self, examples: Iterable[Example]) -> Iterator[Prediction]:
        """Answers in the order of the examples."""
        number = self.options.first
        for part in portions(examples, CHUNK):
            yield from self.answers(part, number)
            number += len(part)

    def answers(self, examples: Sequence[Example], number: int) -> list[Prediction]:
        prompts, cut = self.scribe.sources(examples, self.room)
        self.cut += cut
        found: list[Any] = [None] * len(prompts)
        words = Words(self.scribe.form.closed(examples), self.tokenizer)
        rows = self.options.beams * self.options.samples
        sizes = np.array([(len(ids) + self.options.tokens) * rows for ids in prompts])
        with self.decoder.ready():
            for fitting in by_tokens(sizes):
                for at in range(0, len(fitting), self.batch):
                    places = fitting[at : at + self.batch]
                    made = self.decoder.run(
                        [prompts[i] for i in places], [number + i for i in places]
                    )
                    for place, best in zip(places, made, strict=True):
                        found[place] = self.prediction(examples[place], best[0], words)
        return found

    def prediction(self, example: Example, made: Generation, words: Words) -> Prediction:
        ids = made.ids[:-1] if made.reason == "end" else made.ids
        text = (made.text or "") if made.reason == "stop" else self.tokenizer.decode(ids)
        word = words.find(ids, text)
        value = self.scribe.form.value(example, word, text.strip())
        sure = math.exp(made.logprob) if self.labels or self.task == "choose" else None
        return Prediction(value, sure)


def facts_for(loaded: Loaded, task: str) -> dict[str, Any]:
    """What a model writes: by task.json, by its recipe, or by what is asked of it."""
    place, context = loaded.path, getattr(loaded.config, "context", None)
    published: dict[str, Any] = {"labels": [], "prefix": "", "tokens": TOKENS}
    if place is not None and (place / TASK).is_file():
        facts = published | facts_of(loaded)
        if facts["objective"].get("name") != "pairs":
            raise ConfigError(f"{place} has learned {facts['task']} by its labels, not as text")
        if task not in ("", facts["task"]):
            raise ConfigError(f"{place} has learned {facts['task']}; {task} was asked of it")
        return facts
    kind = loaded.model.family.name
    able: Sequence[str] = {"t5": [*TASKS], "transformer": TEXT}.get(kind, ())
    if place is not None and (place / RECIPE).is_file():
        held = recipes.make(recipes.read(place / RECIPE))
        if held.objective.get("name") == "pairs":
            length = held.batch.length or LENGTH
            return published | {"task": task or "translate", "length": length, "tokens": length}
        able = ()
    elif kind == "transformer":
        task = task or "translate"
    if task not in able or task == "tag":
        raise ConfigError(
            f"{place or 'this model'} has not learned to write answers"
            + (f" for {task}" if task else "")
            + "; fine-tune it first ('regard finetune'), or train it on pairs ('regard prepare "
            "--pairs')"
        )
    named = (kind, task) == ("t5", "translate")  # by its languages, which nobody knows here
    return published | {"task": task, "prefix": None if named else prefix_of("paper", task, kind),
                        "length": min(context or LENGTH, LENGTH)}  # fmt: skip
