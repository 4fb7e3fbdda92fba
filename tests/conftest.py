"""Hypothesis draws the same examples in every run, so that a failure can be repeated and a change
that is right is never refused for what it did not touch. To look for new ones:

    HYPOTHESIS_PROFILE=random make test
"""

from __future__ import annotations

import gc
import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.files import Write

if TYPE_CHECKING:
    from tests.tasks.world import World

settings.register_profile("same", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_collection_finish() -> None:
    """No collection of garbage searches again through what the test modules have imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes small files, compressed if their names say so."""

    def run(name: str, content: str | bytes) -> Path:
        file = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return file

    return run


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Tiny models that have learned each task, made when they are asked for."""
    from tests.tasks.world import World

    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def bert(world: World) -> Path:
    """A tiny BERT with the heads of pre-training; nobody writes into it."""
    return Path(world.model("bert"))


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighty reviews whose words decide their class."""
    from tests.tasks import tuning

    return tuning.write(tmp_path_factory.mktemp("data") / "reviews.jsonl", tuning.reviews(80))
