"""A fixture that writes small files, compressed if their names say so."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.tasks.files import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def run(name: str, content: str | bytes) -> Path:
        file = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return file

    return run
