"""The notebooks: made of the tutorial in both languages, and run as a reader runs them."""

from __future__ import annotations

import json
import re
import resource
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.files import script
from tests.refusals import refuses
from tests.resumable import resumable

ROOT = Path(__file__).parent.parent
NAMES = ("attention", "transformer", "bert", "gpt", "transformer-xl-and-xlnet", "longformer",
         "fine-tuning", "compressing-and-serving")  # fmt: skip
# Of a tenth: less than 25 seconds of a processor each. The others take 25 to 33, and are slow.
CHEAP = ("bert", "longformer", "fine-tuning")
MOST = 180  # seconds of one core, at full length, too: with two it takes no longer


@pytest.fixture(scope="module")
def notebooks() -> Any:
    return script("notebooks")


def cells(book: dict[str, Any], kind: str) -> list[str]:
    return [cell["source"] for cell in book["cells"] if cell["cell_type"] == kind]


def test_there_are_eight(notebooks: Any) -> None:
    assert tuple(notebooks.NOTEBOOKS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_have_the_same_cells(notebooks: Any, name: str) -> None:
    english, chinese = (notebooks.notebook(name, language) for language in ("en", "zh"))
    kinds = [[cell["cell_type"] for cell in book["cells"]] for book in (english, chinese)]
    assert kinds[0] == kinds[1]
    code = [[re.sub(r" {3}\(.*\)$", "", text, flags=re.MULTILINE) for text in cells(book, "code")]
            for book in (english, chinese)]  # fmt: skip
    assert code[0] == code[1] and code[0]
    assert cells(english, "markdown") != cells(chinese, "markdown")
    assert re.search("[一-鿿]", "".join(cells(chinese, "markdown")))
    json.dumps(english)
    identities = [cell["id"] for cell in english["cells"]]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_one_of_the_tutorial(notebooks: Any, name: str) -> None:
    tutorial = (ROOT / "docs" / "tutorial.md").read_text("utf-8").splitlines()
    for text in cells(notebooks.notebook(name, "en"), "code"):
        for line in text.splitlines()[2:]:  # after %%bash and set -e
            assert re.sub(r"^# (regard .*?) {3}\(.*\)$", r"\1", line) in tutorial


def test_what_a_notebook_needs_is_made_first(notebooks: Any) -> None:
    first = cells(notebooks.notebook("fine-tuning", "en"), "code")[0]
    places = [first.index(words) for words in ("--out text", '"train.jsonl"', "--out my-bert")]
    assert places == sorted(places)
    with refuses(SystemExit, "nothing-of-that-name"):
        notebooks.maker("nothing-of-that-name", notebooks.sections("en"))


def test_a_tenth_of_the_steps(notebooks: Any) -> None:
    plain = "regard train bert text --minutes 1\nregard finetune x --epochs 12 --steps 5"
    assert notebooks.scaled(plain, 0.1) == (
        "regard train bert text --minutes 0.1\nregard finetune x --epochs 1 --steps 1"
    )
    assert notebooks.scaled(plain, 1.0) == plain


@pytest.mark.parametrize("language", ["en", "zh"])
def test_pictures_stand_in_the_notebook_and_links_do_not(notebooks: Any, language: str) -> None:
    text = "".join(cells(notebooks.notebook("attention", language), "markdown"))
    assert "data:image/svg+xml;base64," in text and "figures/" not in text
    assert not re.search(r"\]\((?!https?:)", text)


def run(notebooks: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Runs a notebook with one thread, and checks what it shows; returns the seconds of the
    processor that it and its commands took, which other work on the machine hardly changes."""
    if not (find_spec("nbclient") and find_spec("ipykernel")):
        pytest.skip("the extra notebooks is not installed")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    notebooks.run(file)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    outputs = [cell["outputs"] for cell in json.loads(file.read_text("utf-8"))["cells"]
               if cell["cell_type"] == "code"]  # fmt: skip
    assert any(outputs)
    assert all(out["output_type"] == "stream" for cell in outputs for out in cell)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.long
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_notebooks_run(
    notebooks: Any, name: str, language: str, tmp_path: Path, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with resumable(request):
        (file,) = notebooks.write(tmp_path, [name], [language], 1.0 if language == "en" else 0.1)
        assert run(notebooks, file, monkeypatch) < MOST


@pytest.mark.parametrize(
    "name",
    [name if name in CHEAP else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
def test_a_notebook_runs_at_a_tenth(
    notebooks: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = notebooks.write(tmp_path, [name], ["en"], 0.1)
    assert run(notebooks, file, monkeypatch) < MOST
    assert name != "attention" or "REPRODUCED" in file.read_text("utf-8")
