"""The registry of claims is data, and what was measured knows the code it comes from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from regard.core.errors import UnknownName
from regard.lab.claims import claim, library, names
from regard.lab.claims.engine import cache, experiment, finetuning, run, texts
from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import FollowedExperiment, Workspace
from regard.lab.claims.engine.finetuning import GPT


def test_every_file_of_code_belongs_to_a_claim() -> None:
    files = Path(library.__file__).parent.glob("[!_]*.py")
    assert {file.stem.replace("_", "-") for file in files} < set(names())
    assert [claim(name).name for name in names()] == sorted(names())


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"scalling.*'scaling'"):
        claim("scalling")


def test_a_list_of_claims_needs_no_torch() -> None:
    listing = (
        "import sys; from regard.cli.main import main; code = main(['claims', 'list']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and len(done.stdout.splitlines()) == len(names()), done.stderr


def test_a_mark_is_of_every_byte(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("RATE = 1\n")
    two.write_text("x = 1\n")
    first = cache.mark(one, two)
    assert cache.mark(one, two) == first != cache.mark(one)
    two.write_text("x = 2\n")
    assert cache.mark(one, two) != first


def test_all_files_that_measure_are_marked() -> None:
    measuring = {"experiment", "finetuning", "labeled_texts", "small", "texts"}
    assert measuring <= {file.stem for file in cache.ENGINE}
    assert {"rules", "page"}.isdisjoint(file.stem for file in cache.ENGINE)


@pytest.fixture
def other_code(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Every module takes its code for another from now on; of which files, is listed."""
    seen: list[set[str]] = []

    def mark(*files: str | Path) -> str:
        seen.append({Path(file).stem for file in files})
        return "other"

    for module in (run, texts, finetuning, experiment):
        monkeypatch.setattr(module, "mark", mark)
    return seen


def places(room: Path) -> tuple[object, ...]:
    return (
        run.setting(claim("path-length")),
        texts.home(room, "text"),
        GPT.place(Workspace(room), "1"),
    )


def test_what_is_kept_hangs_on_the_code(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before = places(tmp_path)
    assert places(tmp_path) == before
    seen: list[set[str]] = request.getfixturevalue("other_code")
    assert all(one != other for one, other in zip(before, places(tmp_path), strict=True))
    own = {"path_length", "experiment"}, {"texts"}, {"labeled_texts", "finetuning", "experiment"}
    assert all(files <= marked for files, marked in zip(own, seen, strict=True))


def test_what_other_code_left_half_asked_for_is_learned_again(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    arms: list[str] = []

    def learn(arm: str, seed: int, room: Workspace) -> dict[tuple[str, float], dict[str, float]]:
        arms.append(arm)
        return {(arm, 1.0): {"x": 1.0}, (arm, 2.0): {"x": 2.0}, (arm, 3.0): {"x": 3.0}}

    followed = FollowedExperiment(learn)
    for at in (1.0, 2.0):
        followed.figures(ClaimCell("a", at, 1), Workspace(tmp_path))
    assert len(arms) == 1
    request.getfixturevalue("other_code")
    followed.figures(ClaimCell("a", 3.0, 1), Workspace(tmp_path))
    assert len(arms) == 2
