from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.small import data


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared text."""
    return data(tmp_path_factory.mktemp("data"))
