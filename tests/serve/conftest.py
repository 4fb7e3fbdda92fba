"""One server with a tiny model of every kind, for all tests that do not need their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.running import Running, running
from tests.tasks.world import World

RUNS = ["reviewer", "tagger", "answerer", "chooser", "judge", "translator", "sorter", "linker",
        "ranker"]  # fmt: skip
MODELS = ["gpt", "llama", "transformer-xl", "xlnet", "lstm", "bert", "t5"]


@pytest.fixture(scope="session")
def served(world: World) -> Iterator[Running]:
    paths = [world.model(name) for name in MODELS] + [world.run(name) for name in RUNS]
    with running(paths, rows=6, queue=200) as server:
        yield server
