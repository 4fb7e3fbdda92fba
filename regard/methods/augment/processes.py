"""Builds the augmenter with the models that its methods need, and makes the variants of many
examples in one process or in several."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor

from regard.core.errors import ConfigError
from regard.data.augment.examples import BY_MODEL, CHUNK, Augmenter, AugmentSettings, Variant
from regard.data.examples import Example, TaggedExample
from regard.formats.directory import load
from regard.methods.augment.back_translation import BackTranslator
from regard.methods.augment.masked import MaskedAugmenter

AHEAD = 4  # finished chunks of each process that may wait to be written


def build(settings: AugmentSettings) -> Augmenter:
    masked, back = None, None
    if settings.masked:
        masked = MaskedAugmenter(load(settings.masked), top=settings.top_k, rule=settings.rule)
    if settings.away:
        back = BackTranslator(
            load(settings.away),
            load(settings.home) if settings.home else None,
            seed=settings.seed,
            temperature=settings.temperature,
            beams=settings.num_beams,
            prefixes=settings.prefixes,
        )
    return Augmenter(settings, masked, back)


def augmented(
    examples: Sequence[Example],
    settings: AugmentSettings,
    processes: int = 1,
    notes: list[str] | None = None,
) -> Iterator[list[Variant]]:
    """Yields the variants of each example in order. They are the same for any number of
    processes."""
    if processes < 1:
        raise ConfigError(f"processes is {processes}; it must be at least 1")
    if processes > 1 and set(BY_MODEL) & set(settings.methods):
        raise ConfigError(
            f"--jobs is {processes}, but masked and back use a model, which uses all cores in one "
            "process; leave --jobs out"
        )
    augmenter = build(settings)  # raises errors of the thesaurus here, not in a worker
    if processes == 1:
        for first in range(0, len(examples), CHUNK):
            yield from augmenter.variants(examples[first : first + CHUNK], first)
    else:
        augmenter.cuts = not all(isinstance(example, TaggedExample) for example in examples)
        yield from side_by_side(examples, settings, processes)
    if notes is not None:
        notes += augmenter.notes


def side_by_side(
    examples: Sequence[Example], settings: AugmentSettings, processes: int
) -> Iterator[list[Variant]]:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, prepare_worker, (settings,)) as pool:
        waiting: deque[Future[list[list[Variant]]]] = deque()
        for first in range(0, len(examples), CHUNK):
            waiting.append(pool.submit(in_worker, examples[first : first + CHUNK], first))
            if len(waiting) > AHEAD * processes:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


WORKER: dict[str, Augmenter] = {}


def prepare_worker(settings: AugmentSettings) -> None:
    WORKER["own"] = build(settings)


def in_worker(examples: Sequence[Example], first: int) -> list[list[Variant]]:
    return WORKER["own"].variants(examples, first)
