"""The served models: each is loaded once, unloaded when idle, and knows what it can do."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard.api import LoadedModel, load
from regard.attention.native import library
from regard.core.errors import ConfigError, RegardError, RequestError, UnknownName
from regard.decoding.decode_state import reader_for
from regard.decoding.filling import filler_for
from regard.decoding.templates import template_of
from regard.evaluation.predictors import check_task
from regard.evaluation.predictors import task_of as learned_task
from regard.lab.deeper.hooks import stacks_of
from regard.models.extensions import extend
from regard.models.output import answering_head
from regard.models.state import compact_caches, keeps_caches
from regard.serve.memory import cache_bytes, mebibytes, step_bytes
from regard.serve.metrics import ServerMetrics
from regard.serve.options import ServeOptions, precision_of
from regard.serve.worker import Turns, Worker
from regard.training.hardware import quick_malloc
from regard.training.run import pick_device

KINDS = {"int8": "weight", "int8-dynamic": "dynamic"}
TASKS = {  # the verbs that need a task, and the tasks that answer them
    "classify": ("classify", "entail", "similar"),
    "tag": ("tag",),
    "answer": ("answer",),
    "choose": ("choose",),
    "link": ("link",),
    "rerank": ("rerank",),
    "translate": ("translate",),
    "summarize": ("summarize",),
}


@dataclass(frozen=True)
class ServedFacts:
    """What a page or a client wants to know of a model."""

    name: str
    family: str
    parameters: int
    verbs: tuple[str, ...]
    task: str  # that it was trained for; "": none
    labels: tuple[str, ...]
    context: int | None  # the tokens that it reads at once; None: no limit of its own
    precision: str
    cache_bytes: int  # that the texts it writes at once take at most
    weight_bytes: int
    step_bytes: int  # that one step of it computes with, about
    created: int
    chat_template: bool
    kind: str  # encoder, decoder or encoder-decoder
    heads: dict[str, list[int]]  # of each layer, by the kind of its attention

    @property
    def layers(self) -> int:
        return sum(map(len, self.heads.values()))

    @property
    def all_heads(self) -> int:
        return sum(map(sum, self.heads.values()))


class ServedModel:
    """A model directory behind a name. `use` gives the model and keeps it loaded meanwhile."""

    def __init__(
        self, name: str, path: str, options: ServeOptions, turns: Turns, metrics: ServerMetrics
    ) -> None:
        path, precision = precision_of(path)
        options = replace(options, precision=precision or options.precision)
        self.name, self.path, self.options, self.metrics = name, path, options, metrics
        self.loading, self.users, self.last = threading.Lock(), 0, time.monotonic()
        self.loaded: LoadedModel | None = None
        self.facts = self.describe(self.load())
        self.worker = Worker(name, options, turns, metrics)

    def load(self) -> LoadedModel:
        """Returns the model; the first call, and the first after it was unloaded, reads it."""
        with self.loading:
            if self.loaded is None:
                quick_malloc()
                options = self.options
                dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
                loaded = load(
                    self.path, dtype=dtype, download=options.download, allow_nan=options.allow_nan
                )
                if options.precision in KINDS and "int8" not in loaded.model.extensions:
                    extend(loaded.model, "int8", {"kind": KINDS[options.precision]})
                if options.cache is not None and keeps_caches(loaded.model):
                    compact_caches(loaded.model, options.cache)
                loaded.model.to(pick_device(None))
                loaded.model.eval()
                self.loaded = loaded
                self.metrics.loaded.labels(self.name).set(1)
            return self.loaded

    @asynccontextmanager
    async def use(self) -> AsyncIterator[LoadedModel]:
        self.users += 1  # only the event loop counts
        try:
            loaded = self.loaded
            yield loaded if loaded is not None else await asyncio.to_thread(self.load)
        finally:
            self.users -= 1
            self.last = time.monotonic()

    def unload_idle(self) -> None:
        """Lets go of a model that nobody uses. Called by the event loop, which counts users."""
        keep = self.options.keep
        busy = self.users or any(lane.busy for lane in self.worker.lanes)
        if not keep or busy or self.loaded is None or time.monotonic() - self.last < keep:
            return
        self.worker.generation.forget()
        self.loaded = None
        self.metrics.loaded.labels(self.name).set(0)
        gc.collect()

    def describe(self, loaded: LoadedModel) -> ServedFacts:
        model, verbs = loaded.model, tuple(verbs_of(loaded))
        task = learned_task(loaded) if loaded.tokenizer is not None else ""
        labels: Sequence[str] = ()
        if task and set(verbs) & {"classify", "tag", "answer", "choose"}:
            from regard.api import predictor

            labels = predictor(loaded, (task,), {}).labels
        tensors = [*model.parameters(), *model.buffers()]
        directory = Path(self.path)
        return ServedFacts(
            self.name,
            model.family.name,
            model.parameter_count(),
            verbs,
            task,
            tuple(labels),
            getattr(loaded.config, "context", None),
            self.options.precision,
            cache_bytes(model, self.options) if "complete" in verbs else 0,
            sum(tensor.numel() * tensor.element_size() for tensor in tensors),
            step_bytes(model, self.options),
            int(directory.stat().st_mtime) if directory.exists() else 0,
            has_template(loaded),
            model.kind,
            heads_of(model) if model.attends else {},
        )

    def check(self, verb: str) -> None:
        """Refuses a request for what the model cannot do."""
        if verb not in self.facts.verbs:
            able = ", ".join(self.facts.verbs) or "nothing that this server offers"
            raise RequestError(
                f"{self.name} ({self.facts.family}) cannot {verb}; it can: {able}",
                400,
                "unsupported_task",
                "model",
            )


def verbs_of(loaded: LoadedModel) -> Iterator[str]:
    """Yields what a model can do, by the names of the routes."""
    readable = loaded.tokenizer is not None and loaded.tokenizer.fast is not None
    if works(reader_for, loaded.model):
        yield "complete"
        if readable:
            yield "chat"
    if not readable:
        return
    if works(filler_for, loaded, 5, "confident", 10):
        yield "fill"
    for verb, tasks in TASKS.items():
        if works(check_task, loaded, tasks):
            yield verb
    if loaded.config is not None and hasattr(loaded.config, "width"):
        yield "embed"
    explains = works(answering_head, loaded.model)
    if loaded.model.attends:
        yield from ("attention", *(("lens", "ablate", "patch") if explains else ()))
    if explains and "int8" not in loaded.model.extensions:
        yield "attribute"


def heads_of(model: Any) -> dict[str, list[int]]:
    return {
        kind: [parts.heads(layer) for layer in range(1, len(parts.blocks) + 1)]
        for kind, parts in stacks_of(model).items()
    }


def has_template(loaded: LoadedModel) -> bool:
    """Returns whether the tokenizer says how a conversation is written."""
    tokenizer = loaded.tokenizer
    return tokenizer is not None and works(template_of, tokenizer) and bool(template_of(tokenizer))


def works(function: Any, *arguments: Any) -> bool:
    try:
        function(*arguments)
    except RegardError:
        return False
    return True


class ServedModels:
    """All models of a server, by name."""

    def __init__(self, paths: Sequence[str], options: ServeOptions) -> None:
        self.options, self.metrics, turns = options, ServerMetrics(), Turns()
        if not paths:
            raise ConfigError("no model is given; name at least one model directory")
        self.models: dict[str, ServedModel] = {}
        for name, path in named(paths).items():
            self.models[name] = ServedModel(name, path, options, turns, self.metrics)

    def find(self, name: str | None) -> ServedModel:
        """Returns the model of a request, which needs no name if there is only one model."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name is None:
            raise RequestError(
                f"the request names no model, and there are several: {', '.join(self.models)}",
                400,
                "missing_model",
                "model",
            )
        if name not in self.models:
            raise RequestError(
                f"{UnknownName('model', name[:100], self.models)}; GET /v1/models lists them",
                404,
                "model_not_found",
                "model",
            )
        return self.models[name]

    def lines(self) -> Iterator[str]:
        """Yields what is printed at the start: each model with its memory, and the sum."""
        if library() is None:
            yield "the native kernels are missing (they need g++): the models answer more slowly"
        total = step = 0
        for model in self.models.values():
            facts = model.facts
            total += facts.weight_bytes + facts.cache_bytes
            step = max(step, facts.step_bytes)  # one model computes at a time
            yield (
                f"{facts.name} · {facts.family}, {facts.parameters:,} parameters, "
                f"{facts.precision} · {', '.join(facts.verbs)} · "
                f"{mebibytes(facts.weight_bytes)} of weights and up to "
                f"{mebibytes(facts.cache_bytes)} for texts in the making"
            )
        waiting = self.options.requests(len(self.models)) * self.options.max_body
        yield (
            f"at most about {mebibytes(total + step + waiting)} besides the program: the models "
            f"{mebibytes(total)}, one step {mebibytes(step)}, requests {mebibytes(waiting)}"
        )

    def stop(self) -> None:
        for model in self.models.values():
            model.worker.stop()


def named(paths: Sequence[str]) -> dict[str, str]:
    """Returns paths by the names under which they are served: NAME=PATH, or the last part of a
    path."""
    table: dict[str, str] = {}
    for path in paths:
        name, equals, rest = path.partition("=")
        if not equals or "/" in name:
            plain = Path(precision_of(path)[0].removeprefix("hub:"))
            name, rest = plain.name if plain.name != ".." else "", path
            name = name or plain.resolve().name  # of the directory where the user is, or above
        if not name or name in table:
            raise ConfigError(
                f"two models are called {name!r}: {table.get(name)} and {rest}; name one of them "
                "yourself, as NAME=PATH"
            )
        table[name] = rest
    return table
