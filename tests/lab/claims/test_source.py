"""Files of claims, read as text: what they declare, and a mark of what they do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from regard.lab.claims import claim, names
from regard.lab.claims.engine import followed, source
from regard.lab.claims.engine.checkpoints import GPT
from regard.lab.claims.engine.claim import Cell
from regard.lab.claims.engine.experiment import Room
from regard.lab.claims.engine.followed import Followed
from regard.lab.claims.engine.run import setting
from regard.lab.claims.engine.texts import home

CLAIM = """
\"\"\"About something.\"\"\"
from regard.lab.claims.engine.claim import Claim
from regard.lab.claims.helper import size

RATE = 1

CLAIM = Claim(name="mine", notes=("so it is",), arms=("a", "b"))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(CLAIM)
    (tmp_path / "helper.py").write_text("from regard.lab.claims.deeper import depth\nsize = 1\n")
    (tmp_path / "deeper.py").write_text("depth = 1\n")
    (tmp_path / "other.py").write_text("x = 1\n")
    monkeypatch.setattr(source, "HERE", tmp_path)
    return tmp_path


def mark() -> str:
    return source.mark.__wrapped__("regard.lab.claims.mine")


@pytest.mark.parametrize(
    ("file", "before", "after", "same"),
    [
        ("mine.py", "RATE = 1", "RATE = 2", False),
        ("mine.py", '("a", "b")', '("a",)', False),
        ("helper.py", "size = 1", "size = 2", False),
        ("deeper.py", "depth = 1", "depth = 2", False),
        ("mine.py", "so it is", "so it was", True),
        ("mine.py", "About something", "About it", True),
        ("mine.py", "RATE = 1", "RATE = 1  # slow", True),
        ("other.py", "x = 1", "x = 2", True),
    ],
)
def test_a_mark_is_of_what_is_done(
    package: Path, file: str, before: str, after: str, same: bool
) -> None:
    first, text = mark(), (package / file).read_text()
    assert before in text
    (package / file).write_text(text.replace(before, after))
    assert (mark() == first) is same


def test_what_is_kept_hangs_on_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made, room = claim("path-length"), Room(tmp_path)

    def places() -> tuple[object, ...]:
        return setting(made), home(tmp_path, "text"), GPT.place(room, "1")

    before = places()
    assert places() == before
    for module in ("run", "texts", "finetuning"):
        monkeypatch.setattr(f"regard.lab.claims.engine.{module}.mark", lambda module: "other")
    assert all(one != other for one, other in zip(before, places(), strict=True))


def test_what_other_code_left_half_asked_for_is_learned_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[str] = []

    def learn(arm: str, seed: int, room: Room) -> dict[tuple[str, float], dict[str, float]]:
        seen.append(arm)
        return {(arm, 1.0): {"x": 1.0}, (arm, 2.0): {"x": 2.0}}

    held = Followed("toy", learn)
    held.figures(Cell("a", 1.0, 1), Room(tmp_path))
    monkeypatch.setattr(followed, "mark", lambda module: "other")
    held.figures(Cell("a", 2.0, 1), Room(tmp_path))
    assert len(seen) == 2


@pytest.mark.parametrize("name", names())
def test_what_is_declared_is_what_is_imported(name: str) -> None:
    made = claim(name)
    assert source.declared(name) == {
        "statement": made.statement.en, "source": made.source, "minutes": made.minutes,
    }  # fmt: skip


def test_a_list_of_claims_needs_no_torch() -> None:
    listing = (
        "import sys; from regard.cli.main import main; code = main(['claims']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and len(done.stdout.splitlines()) == len(names()), done.stderr
