"""Measures how well a language model predicts a text: the surprisal of each document, or the
figures of its objective.

A causal model predicts every token exactly once, in the way it was trained: in chunks of its
length, or in streams with a memory. Other models are measured by their training objective (masked
words, spans, …), as in validation.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.corpus import MARKER, Corpus, read_marker
from regard.data.tokenizer import Tokenizer
from regard.evaluation.predictors import load_to_device, names_of, task_of
from regard.evaluation.preflight import check_used
from regard.formats.directory import Checkpoint
from regard.metrics.bootstrap import between, counts
from regard.metrics.figures import jsonable, summarize
from regard.metrics.numbers import LanguageModelMetric
from regard.metrics.significance import compare
from regard.objectives import objective as find
from regard.objectives import objective_of_kind
from regard.objectives.base import Objective
from regard.objectives.causal import CausalObjective
from regard.objectives.reading import inner
from regard.objectives.recurrent import Recurrent
from regard.training import recipe as recipes
from regard.training.data import options_of
from regard.training.parallel import ProcessGroup
from regard.training.resolve import LENGTH, STEP
from regard.training.run import RECIPE
from regard.training.train_module import TrainModule, added, autocast, evaluating, moved, steps

if TYPE_CHECKING:
    from regard.evaluation.test import Plan, Watch

SHOWN = 200  # the number of tokens shown of a document with a high loss
Figures = dict[str, float]


class TextScore(NamedTuple):
    """The surprisal of each document of a text."""

    objective: Objective
    gold: list[tuple[int, int]]  # tokens and bytes of each document
    nats: list[float]  # the surprisal of each document

    @property
    def corpus(self) -> Corpus:
        return self.objective.corpus


# -- the text


@contextmanager
def corpus_for(loaded: Checkpoint, data: Sequence[str], plan: Plan) -> Iterator[Corpus]:
    """Yields a split of a prepared directory, or texts tokenized with the model's tokenizer."""
    if loaded.tokenizer is None:
        raise InputError(
            f"{loaded.path} has no tokenizer, so it cannot read text; add its tokenizer.json"
        )
    if len(data) == 1 and Path(data[0], MARKER).is_file():
        yield split_of(loaded, loaded.tokenizer, data[0], plan.split)
        return
    from regard.data import prepare
    from regard.data.sources import SourceOptions as How
    from regard.data.splits import SplitShares

    for name in data:
        if Path(name).is_dir() and not any(Path(name).iterdir()):
            raise InputError(f"{name} is empty; give text, or a directory of 'regard prepare'")
    with TemporaryDirectory(prefix="regard-test-") as work:
        same = {n: plan.reading[n] for n in ("form", "max_bytes", "download") if n in plan.reading}
        how = How(field=plan.reading.get("fields", {}).get("text") or "text", **same)
        preparing = prepare.PreparePlan(
            tuple(data),
            Path(work, "data"),
            how,
            tokenizer=str(loaded.path),
            shares=SplitShares(0, 0),
        )
        prepare.prepare(preparing)
        yield Corpus.open(preparing.out, "train")


def split_of(loaded: Checkpoint, tokenizer: Tokenizer, data: str, split: str) -> Corpus:
    splits = read_marker(Path(data))["splits"]
    full = [name for name, about in splits.items() if about["tokens"]]
    if split not in full:
        raise UnknownName("split", split, full, f"(of {data}; choose with --split)")
    corpus = Corpus.open(data, split)
    if corpus.tokenizer.ready.get_vocab() != tokenizer.ready.get_vocab():
        raise InputError(
            f"{data} was prepared with a tokenizer that is not that of {loaded.path}; give the "
            f"text itself, or prepare it again with --tokenizer {loaded.path}"
        )
    return corpus


def first_documents(corpus: Corpus, documents: int) -> Corpus:
    """Returns the corpus with its first documents only; 0 means all."""
    if not documents or documents >= len(corpus.documents) - 1:
        return corpus
    first = copy.copy(corpus)
    last = int(corpus.documents[documents])
    first.documents = corpus.documents[: documents + 1]
    first.document_bytes = corpus.document_bytes[:documents]
    first.bytes = int(first.document_bytes.sum())
    first.sentences = corpus.sentences[: int(np.searchsorted(corpus.sentences, last)) + 1]
    first.starts = [*(start for start in corpus.starts if start < last), last]
    return first


# -- the objective


def objective_for(loaded: Checkpoint, corpus: Corpus, plan: Plan) -> Objective:
    """Returns the objective of the run, or that of the paper of its family."""
    if not hasattr(loaded.model, "output"):
        raise ConfigError(
            f"{loaded.path} was not fine-tuned for a task, and without an output over the "
            "vocabulary it cannot be tested on text; fine-tune it first ('regard finetune')"
        )
    card = loaded.model.family
    options: dict[str, Any] = {"name": card.running_objective}
    context = getattr(loaded.config, "context", None)
    length, samples, seed = context or LENGTH, 0, 1
    file = Path(loaded.path or "") / RECIPE
    if file.is_file():
        recipe = recipes.read_recipe(file)
        options = dict(recipe.objective) or {"name": card.objective}
        if "of" in options:  # a distilled model is tested by the objective inside the distillation
            options = {"name": options["of"], **options.get("options", {})}
        batch, seed = recipe.batch, recipe.seed
        length, samples = batch.seq_len or length, batch.size or 0
    name = objective_of_kind(corpus.kind, options["name"])
    if name != options["name"]:
        options = {"name": name}
    length = plan.length or length
    kind = find(str(options.pop("name")))
    samples = samples or max(1, STEP // length)
    if kind is Recurrent:  # no stream may be shorter than a segment
        samples = max(1, min(samples, len(corpus) // length))
    objective = kind.build(
        corpus,
        options_of(kind, options),
        seq_len=length,
        batch_size=samples,
        seed=seed,
        learning=False,
    )
    objective.check(loaded.model)
    return objective


# -- every document by itself


def read_through(
    loaded: Checkpoint, corpus: Corpus, plan: Plan, watch: Watch
) -> TextScore | Objective:
    """Returns the surprisal of every document. Returns the objective itself if it is not causal."""
    objective = objective_for(loaded, corpus, plan)
    if not isinstance(objective, CausalObjective | Recurrent):
        return objective
    return surprisals(loaded.model, objective, plan.precision, watch)


def batches_of(model: Any, objective: Objective, watch: Watch) -> Iterator[Any]:
    """Yields every batch of a split, with the indices of its samples and the state of the model."""
    like, state = next(model.parameters()), None
    for first, places, _ in steps(objective, ProcessGroup(), 0):
        state = objective.begin(model, len(places)) if first else state
        batch = objective.collate([objective.get(place) for place in places])
        yield places, moved(batch, like.device, like.dtype), state
        watch("reading", places[-1] + 1, len(objective))


def surprisals(
    model: Any, objective: CausalObjective | Recurrent, precision: str, watch: Watch
) -> TextScore:
    """Returns the surprisal of every document of a split, for a causal model."""
    corpus, device = objective.corpus, next(model.parameters()).device
    nats = np.zeros(len(corpus.documents) - 1)
    with evaluating(model):
        for places, batch, state in batches_of(model, objective, watch):
            scored = batch["scored"]
            with autocast(device, precision):
                hidden = objective.hidden(model, batch, state)
                each = inner(model).output.each(hidden[scored], batch["targets"][scored])
            where = [first_target(objective, place) for place in places]
            sizes = scored.sum(1).tolist()
            at = np.concatenate([np.arange(b, b + n) for b, n in zip(where, sizes, strict=True)])
            documents = np.searchsorted(corpus.documents, at, "right") - 1
            nats += np.bincount(documents, each.cpu().double().numpy(), len(nats))
    tokens = np.diff(np.asarray(corpus.documents)).tolist()
    gold = list(zip(tokens, corpus.document_bytes.tolist(), strict=True))
    return TextScore(objective, gold, nats.tolist())


def first_target(objective: CausalObjective | Recurrent, sample: int) -> int:
    """Returns the position in the split of the first token that a sample predicts and counts."""
    if isinstance(objective, Recurrent):
        stream, segment = sample % objective.batch_size, sample // objective.batch_size
        return min(stream * objective.stream + segment * objective.seq_len, len(objective.corpus))
    tiles = objective.tiles
    run = int(np.searchsorted(tiles.before, sample, "right")) - 1
    return int(tiles.starts[run]) + (sample - int(tiles.before[run])) * tiles.step


def measured_documents(reading: TextScore, plan: Plan) -> dict[str, Any]:
    """Returns perplexity and bits per byte, with confidence intervals over documents."""
    result = summarize(
        LanguageModelMetric,
        reading.gold,
        reading.nats,
        seed=plan.seed,
        resamples=plan.resamples,
        worst=plan.worst,
    )
    tokenizer = reading.corpus.tokenizer
    for row in result["worst"]:
        ids = reading.corpus.document(row["index"])
        tokens, size = reading.gold[row["index"]]
        row["text"] = tokenizer.decode(ids[:SHOWN].tolist()) + (" …" if len(ids) > SHOWN else "")
        row["gold"] = {"tokens": tokens, "bytes": size}
        row["predicted"] = {"nats": reading.nats[row["index"]]}
        row["loss"] = -row.pop("score")
    return {"task": "model"} | result | about(reading.objective) | {"units": "documents"}


# -- what another objective measures


def measured_batches(loaded: Checkpoint, objective: Objective, plan: Plan, watch: Watch) -> Any:
    """Returns the figures of a validation, with confidence intervals over its batches."""
    model, rows = loaded.model, []
    learner, device = TrainModule(model, objective), next(model.parameters()).device
    with evaluating(learner), torch.no_grad():
        for _, batch, state in batches_of(model, objective, watch):
            with autocast(device, plan.precision):
                sums, seen = learner(batch, state)
            tables = {"sums": sums, "counts": objective.counts(batch), "seen": seen}
            rows.append({k: {n: float(v) for n, v in t.items()} for k, t in tables.items()})
    names = sorted({(part, name) for row in rows for part, table in row.items() for name in table})
    table = np.array([[row[part].get(name, 0.0) for part, name in names] for row in rows])

    def figures(sums: np.ndarray) -> Figures:
        parts: dict[str, dict[str, float]] = {"sums": {}, "counts": {}, "seen": {}}
        for (part, name), value in zip(names, sums.tolist(), strict=True):
            parts[part][name] = value
        return objective.measure(
            added(parts["sums"], parts["counts"], parts["seen"], ProcessGroup())
        )

    own = figures(table.sum(0))
    drawn: dict[str, list[float]] = defaultdict(list)
    if len(rows) > 1:
        for weights in counts(len(rows), plan.resamples, plan.seed):
            for sums in weights @ table:
                for name, value in figures(sums).items():
                    drawn[name].append(value)
    spans = {name: between(np.array(values)) for name, values in drawn.items()}
    return jsonable({
        "task": "model", "units": f"batches of {objective.batch_size}", "examples": len(rows),
        "main": next(iter(own)), "falling": objective.better(0.0, 1.0), "figures": own,
        "intervals": {n: [s.low, s.high] if (s := spans.get(n)) else None for n in own},
        "level": 0.95, "resamples": plan.resamples, "seed": plan.seed, "worst": [],
        **about(objective),
    })  # fmt: skip


def about(objective: Objective) -> dict[str, Any]:
    corpus = objective.corpus
    return {
        "objective": objective.name,
        "length": objective.seq_len,
        "tokens": len(corpus),
        "bytes": corpus.bytes,
    }


def same_words(one: Checkpoint, other: Checkpoint) -> bool:
    """Returns whether both models split a text into the same tokens."""
    if one.tokenizer is None or other.tokenizer is None:
        return False
    return one.tokenizer.ready.to_str() == other.tokenizer.ready.to_str()


# -- a test


def examine_text(
    loaded: Checkpoint, run: str, data: Sequence[str], plan: Plan, watch: Watch
) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    if plan.decoding:
        raise ConfigError(
            f"{', '.join(plan.decoding)} is for models that write the answers of a task; {run} was "
            "not fine-tuned for one, so its data are read and no text is written: leave it out"
        )
    prepared = len(data) == 1 and Path(data[0], MARKER).is_file()
    check_used(plan, {"strict": False, "language": False, "split": prepared}, "text")
    other = comparison_model(run, plan)
    notes = [f"{run} has learned no task: this is how well it predicts the text"]
    with corpus_for(loaded, data, plan) as whole:
        corpus = first_documents(whole, plan.limit)
        if corpus is not whole:
            total = len(whole.documents) - 1
            notes.append(f"only the first {plan.limit:,} of {total:,} documents were tested")
        reading = read_through(loaded, corpus, plan, watch)
        if not isinstance(reading, TextScore):
            if plan.against:
                raise ConfigError(
                    f"{run} is measured by {reading.name}, which has no value for each document; "
                    "--against compares models that read from left to right"
                )
            result = measured_batches(loaded, reading, plan, watch)
            return result | {"notes": notes}, iter(())
        result = measured_documents(reading, plan) | {"notes": notes}
    if other is not None:
        alike = same_words(loaded, other)
        result["comparison"] = against_reader(other, alike, run, data, reading, plan, watch)
    rows = (
        {"document": i, "tokens": tokens, "bytes": size, "nats": nats}
        for i, ((tokens, size), nats) in enumerate(zip(reading.gold, reading.nats, strict=True))
    )
    return result, rows


def comparison_model(run: str, plan: Plan) -> Checkpoint | None:
    """Opens the model to compare with, and refuses a wrong one before any text is read."""
    if not plan.against:
        return None
    other = load_to_device(plan.against)
    if task_of(other):
        raise ConfigError(
            f"{plan.against} was fine-tuned for {task_of(other)}, and {run} for no task; compare "
            "two models of one kind"
        )
    return other


def against_reader(
    other: Checkpoint,
    alike: bool,
    run: str,
    data: Sequence[str],
    ours: Any,
    plan: Plan,
    watch: Watch,
) -> dict[str, Any]:
    """Compares with another model. If the tokens differ, only bits per byte can be compared."""
    with corpus_for(other, data, plan) as corpus:
        theirs = read_through(other, first_documents(corpus, plan.limit), plan, watch)
    if not isinstance(theirs, TextScore):
        raise ConfigError(
            f"{plan.against} does not read from left to right, but {run} does; compare two causal "
            "models"
        )
    gold = ours.gold if alike else [(size, size) for _, size in ours.gold]
    names = names_of(plan.against, run)
    comparison = compare(
        LanguageModelMetric, gold, theirs.nats, ours.nats, names=names, seed=plan.seed,
        resamples=plan.resamples,
    )  # fmt: skip
    if not alike:
        row = comparison["figures"].pop("perplexity") and comparison["figures"]["bits_per_byte"]
        comparison |= {"main": "bits_per_byte", "verdict": row["verdict"]}
    return comparison
