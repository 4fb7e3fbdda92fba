"""Tasks learned and answered as text: a source is read, a target is written.

Models with an encoder and a decoder (t5, transformer) learn every task but `tag`, `link` and
`prefer` so. Models that
go on with a text (gpt, transformer-xl, lstm, longformer-characters) learn what is a text anyway:
translate, summarize, converse. text_forms.py says how each task is put in words.

    regard finetune my-t5 --task entail --data sick.jsonl --out run
    regard finetune my-gpt --task converse --data talks.jsonl --out run     # then: regard chat run

A translator may also begin without any weights:

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
from regard.core.lock import RunLock
from regard.data.corpus import MARKER, CorpusWriter, read_marker, write_marker
from regard.data.examples import Example
from regard.data.prepare import WIDEST
from regard.data.problems import Problems
from regard.data.special_tokens import completed, special_of
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import configure, read_config
from regard.formats.registry import format_of
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

DATA = "data"  # of a run: its examples as prepared pairs
CHUNK = 1024  # examples that are put in words together
LENGTH = 512  # tokens of a source, where nothing says how many
LEAST = 4  # tokens of a pair


# -- learning


class PairData(TextData):
    """The pairs that a run's examples are written as."""

    beforehand = frozenset({DATA, TASK})

    def resume_command(self, out: Path) -> str:
        return f"finetune --resume {out}"


def finetune_as_text(
    recipe: Recipe, out: Path, *, data: TextData | None = None, display: str = "auto"
) -> dict[str, Any]:
    """Writes the examples as pairs into the run, and trains on them; gives what run.json says.

    Going on (`--resume`) needs the model it began with, but not the file of examples.
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
    """Refuses what this model cannot learn so; gives its family."""
    kind, options = family(recipe), recipe.examples
    task = find(options.task or "")
    if not task.writable:
        able = ", ".join(task.objective().learners()) if task.has_objective else "none"
        raise ConfigError(f"{kind} writes texts and cannot {task.name} words; these can: {able}")
    if kind not in writers(task):
        raise ConfigError(
            f"{kind} cannot learn {task.name} as text; these can: {', '.join(writers(task))}"
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
    """The families that learn a task as text: those that write every task so, and, where a text is
    learned from a text, those that go on with one.
    """
    if not task.writable:
        return []
    every = text_writers()
    go_on = [n for n, card in FAMILIES.items() if card.model.causal and n not in every]
    return [*every, *go_on] if task.text_only else every


def prefix_of(prefix: str | None, task: Task, kind: str) -> str:
    """What stands before a source; None: what the paper of the model has there."""
    if prefix is not None:
        return prefix
    return task.prefix if FAMILIES[kind].task_prefixes else ""


def write_examples(recipe: Recipe, out: Path, kind: str, display: str) -> None:
    """RUN/data, and RUN/task.json, by which the run is asked later."""
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
            raise InputError(f"{recipe.data} holds nothing to learn: no turn is replied to")
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
    """The examples of a recipe that learn and those that validate."""

    train: list[Example]
    valid: list[Example]
    labels: list[str]  # of a task that has a few of them
    digest: str  # of the files


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
    """Without a chat template: turns are learned in the plain format."""
    files = {k: v for k, v in tokenizer.files.items() if k != "chat_template.jinja"}
    if "tokenizer_config.json" in files:
        config = json.loads(files["tokenizer_config.json"])
        if config.pop("chat_template", None) is not None:
            files["tokenizer_config.json"] = json.dumps(config, indent=2).encode()
    return replace(tokenizer, files=files)
