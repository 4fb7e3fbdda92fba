"""Tasks that are learned and answered as text: the model reads a source and writes a target.

Models with an encoder and a decoder (t5, transformer) learn every task this way except `tag`,
`link` and `prefer`. Models that continue a text (gpt, transformer-xl, lstm, longformer-characters)
learn this way only the tasks whose answer is a text: translate, summarize, converse. text_forms.py
says how each task is put in words.

    regard finetune my-t5 --task entail --data sick.jsonl --out run
    regard finetune my-gpt --task converse --data talks.jsonl --out run     # then: regard chat run

A translator may also start without any weights:

    regard prepare en-zh.tsv --pairs --out data
    regard train transformer data --size small --out run --minutes 30
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.atomic_dir import workplace
from regard.core.errors import ConfigError, InputError, RegardError
from regard.core.files import parse_json
from regard.core.processes import RunLock
from regard.data.corpus import MARKER, CorpusWriter, read_marker, write_marker
from regard.data.examples import Example
from regard.data.prepare import WIDEST
from regard.data.problems import Problems
from regard.data.special_tokens import completed, special_of
from regard.data.tokenizer import Tokenizer
from regard.formats.registry import configure, format_of, read_config
from regard.models import FAMILIES
from regard.tasks import task as find
from regard.tasks.base import Task
from regard.tasks.corpus import digest_of, splits_of, tokenizer_of
from regard.tasks.inference import portions
from regard.tasks.labeled import TASK, text_writers
from regard.tasks.text_forms import LabelWords, TextFormatter
from regard.training.build import family
from regard.training.data import TextData
from regard.training.progress import watch
from regard.training.recipe import Recipe, replaced
from regard.training.run import (
    check_place,
    distributed,
    pick_device,
    started_again,
    train,
    write_json,
)

DATA = "data"  # the folder of a run that holds its examples as prepared pairs
CHUNK = 1024  # the number of examples that are put in words together
LENGTH = 512  # the default number of tokens of a source
LEAST = 4  # the minimum number of tokens of a pair


# -- learning


class PairData(TextData):
    """The examples of a run, written as pairs of source and target."""

    beforehand = frozenset({DATA, TASK})

    def resume_command(self, out: Path) -> str:
        return f"finetune --resume {out}"


def finetune_as_text(
    recipe: Recipe, out: Path, *, data: TextData | None = None, display: str = "auto"
) -> dict[str, Any]:
    """Writes the examples as pairs into the run directory, trains on them, and returns the content
    of run.json.

    Resuming (`--resume`) needs the model that the run began with, but not the file of examples.
    """
    out, data = Path(out), data or PairData()
    kind = check(recipe)
    with distributed(pick_device(recipe.engine.device)) as group:
        ready = replaced(recipe, data=str(out / DATA))
        if not started_again(ready, out):

            def write() -> None:
                check_place(out, False, group, data.beforehand)
                with RunLock(out):
                    write_examples(recipe, out, kind, display)

            group.first_does(write, RegardError)
        facts = read_marker(out / DATA)["examples"]
        smoothing = {} if FAMILIES[kind].smooths_labels else {"smoothing": 0.0}
        ready = replaced(
            ready,
            examples={"labels": facts["labels"], "digest": facts["digest"]},
            batch={"seq_len": max(LEAST, min(facts["length"], facts["longest"]))},
            objective={"name": "pairs"} | smoothing | recipe.objective,
        )
        return train(ready, out, data=data, display=display)


def check(recipe: Recipe) -> str:
    """Refuses a task that this model cannot learn as text. Returns the family of the model."""
    kind, options = family(recipe), recipe.examples
    task = find(options.task or "")
    if not task.writable:
        able = ", ".join(task.objective().learners()) if task.has_objective else "none"
        raise ConfigError(
            f"{kind} learns tasks as text, and {task.name} cannot be learned as text; these "
            f"families can learn it with a head: {able}"
        )
    if kind not in writers(task):
        raise ConfigError(
            f"{kind} cannot learn {task.name} as text; these families can: "
            f"{', '.join(writers(task))}"
        )
    if task.in_turns and options.prefix:
        raise ConfigError(
            f"examples.prefix is {options.prefix!r}, but 'regard chat' shows turns as they are; "
            "leave it out"
        )
    if recipe.objective.get("name", "pairs") != "pairs":
        raise ConfigError(
            f"objective.name is {recipe.objective['name']!r}; {kind} learns {options.task} as "
            "text, which is 'pairs': leave it out"
        )
    return kind


def writers(task: Task) -> list[str]:
    """Returns the families that learn a task as text: those that write the answer of every task,
    and, if the task turns a text into a text, also the causal ones."""
    if not task.writable:
        return []
    every = text_writers()
    go_on = [n for n, card in FAMILIES.items() if card.model.causal and n not in every]
    return [*every, *go_on] if task.text_only else every


def prefix_of(prefix: str | None, task: Task, kind: str) -> str:
    """Returns the prefix of a source. If `prefix` is None, it is the one of the model's paper."""
    if prefix is not None:
        return prefix
    return task.prefix if FAMILIES[kind].task_prefixes else ""


def write_examples(recipe: Recipe, out: Path, kind: str, display: str) -> None:
    """Writes RUN/data, and RUN/task.json, which says later what the model was trained for."""
    task, place = find(recipe.examples.task or ""), out / DATA
    if (place / MARKER).is_file() and "examples" not in read_marker(place):
        raise ConfigError(f"{place} is prepared text of another kind; choose another --out")
    splits = divided(recipe, display)
    config = configure(format_of((raw := read_config(Path(recipe.model)))["model_type"]), raw)
    context = getattr(config, "context", None)
    length = recipe.batch.seq_len or min(
        FAMILIES[kind].finetuned(task.name).seq_len or LENGTH, context or 2**62
    )
    prefix = prefix_of(recipe.examples.prefix, task, kind)
    tokenizer = plain(tokenizer_of(recipe.model))
    special = special_of(tokenizer, recipe.model)
    special = replace(special, end=config.eos_id) if FAMILIES[kind].writes_tasks else special
    scribe = TextFormatter(task, prefix, tokenizer, special.end, FAMILIES[kind].writes_tasks)
    LabelWords(task.closed(splits.train, splits.labels), tokenizer)
    vocab_size = max(tokenizer.ready.get_vocab().values()) + 1
    dtype = "uint16" if vocab_size <= WIDEST else "uint32"
    with workplace(place, True, MARKER) as work:
        longest = longest_target = 0
        about = {}
        for name, examples in {"train": splits.train, "valid": splits.valid}.items():
            writer, unknown = CorpusWriter(work, name, dtype), 0
            for part in portions(examples, CHUNK):
                for source, target, size in scribe.pairs(part, length):
                    writer.add([source, target], size)
                    longest = max(longest, len(source) + len(target))
                    longest_target = max(longest_target, len(target))
                    if special.unknown is not None:
                        unknown += source.count(special.unknown) + target.count(special.unknown)
            about[name] = {**writer.close(), "unknown": unknown}
        if not about["train"]["documents"]:
            raise InputError(
                f"{recipe.data} has no reply to learn from; give dialogues of two turns or more"
            )
        completed(tokenizer, special).save(work)
        facts = {"labels": splits.labels, "length": length, "longest": longest,
                 "digest": splits.digest}  # fmt: skip
        write_marker(
            work,
            {"kind": "pairs", "vocab_size": vocab_size, "dtype": dtype, "special": asdict(special),
             "tokenizer": "existing", "splits": about, "sources": [recipe.data],
             "examples": facts},
        )  # fmt: skip
    write_json(
        out / TASK,
        {"task": task.name, "objective": {"name": "pairs"}, "labels": splits.labels,
         "length": length, "prefix": prefix, "form": "text", "tokens": min(longest_target, length)},
    )  # fmt: skip


class ExampleSplit(NamedTuple):
    """The examples of a recipe, split into a training set and a validation set."""

    train: list[Example]
    valid: list[Example]
    labels: list[str]  # empty for a task without labels
    digest: str  # the hash of the files


def divided(recipe: Recipe, display: str) -> ExampleSplit:
    options, task, problems = recipe.examples, find(recipe.examples.task or ""), Problems()
    train, valid = splits_of(recipe, problems).values()
    digest, labels = digest_of(recipe), list(options.labels or [])
    if task.writable:
        labels = labels or task.labels_in(train)
        task.check_labels(train, labels, recipe.data)
        task.check_labels(valid, labels, options.valid or recipe.data)
    for line in problems.notes():
        watch(display).note(line)
    return ExampleSplit(train, valid, labels, digest)


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """Returns the tokenizer without its chat template: turns are learned in the plain format."""
    files = {k: v for k, v in tokenizer.files.items() if k != "chat_template.jinja"}
    if "tokenizer_config.json" in files:
        config = parse_json(files["tokenizer_config.json"], "tokenizer_config.json", repeated=True)
        if config.pop("chat_template", None) is not None:
            files["tokenizer_config.json"] = json.dumps(config, indent=2).encode()
    return replace(tokenizer, files=files)
