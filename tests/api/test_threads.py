"""Many threads ask one model at once, and each gets what it would get alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import regard
from regard.api import load
from regard.attention.attention import Attention, unseen
from tests.tasks.world import World, texts

THREADS = 32
ROUNDS = 96  # questions in all
TEXTS = texts(12, 3)


def weights(loaded: Any, text: str) -> list[torch.Tensor]:
    """What a recording of one text holds, and nothing of what others ask meanwhile."""
    with torch.no_grad(), regard.record(loaded.model) as recording:
        loaded.model(**loaded.tokenizer([text], return_tensors="pt"))
    return [call.weights for call in recording]


VERBS: dict[str, list[Callable[[Any, str], Any]]] = {
    "reviewer": [
        lambda loaded, text: loaded.classify([text, *TEXTS[:3]]),
        lambda loaded, text: loaded.embed([text, "a film"]),
        lambda loaded, text: loaded.tokenizer(text, truncation=True, max_length=3 + len(text) % 3),
        weights,
    ],
    "tagger": [lambda loaded, text: loaded.tag([text, TEXTS[0]]), weights],
    "answerer": [lambda loaded, text: loaded.answer("the film", text)],
    "chooser": [lambda loaded, text: loaded.choose(text, ["it was great", "it was dull"])],
    "talker": [
        lambda loaded, text: loaded.generate(text, max_new_tokens=6),
        lambda loaded, text: "".join(loaded.stream(text, max_new_tokens=6)),
        lambda loaded, text: loaded.generate(text, max_new_tokens=5, temperature=1.0, seed=3),
        lambda loaded, text: loaded.generate(text, max_new_tokens=4, num_beams=3),
        weights,
    ],
    "translator": [lambda loaded, text: loaded.translate(text, max_new_tokens=6)],
}


def equal(one: Any, other: Any) -> bool:
    """Compares answers, to the last bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other) if not hasattr(one, "shape") else bool((one == other).all())


@pytest.mark.parametrize("name", VERBS)
def test_threads_do_not_disturb_each_other(world: World, name: str) -> None:
    loaded = load(world.run(name))
    jobs = [(VERBS[name][i % len(VERBS[name])], TEXTS[i % 7]) for i in range(ROUNDS)]
    alone = [verb(loaded, text) for verb, text in jobs]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(lambda job: job[0](loaded, job[1]), jobs))
    wrong = [i for i, pair in enumerate(zip(alone, together, strict=True)) if not equal(*pair)]
    assert wrong == []
    parts = [part for part in loaded.model.modules() if isinstance(part, Attention)]
    assert all(part.kernel is unseen for part in parts)


def test_a_recording_holds_what_its_thread_asks_with_many_batches(world: World) -> None:
    """A verb shares its batches among threads of its own; they belong to who asked."""
    loaded = load(world.run("reviewer"))
    many = TEXTS * 30
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with regard.record(loaded.model) as recording:
            loaded.classify(many)
    finally:
        torch.set_num_threads(before)
    rows = sum(call.queries.size(0) for call in recording if call.name == recording[0].name)
    assert rows == len(many)
