"""`regard look` with its deeper options says what Python says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.main import main
from tests.lab.look.small import speaking

TEXT, OTHER = "The cat sat on the mat", "The dog sat on the mat"
DEEPER = ["--lens", "--patch", OTHER, "--attribute", "--position", "3"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("deeper") / "gpt"
    speaking("gpt").save(place)
    return place


def test_the_command_line_says_what_python_says(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "page.html"), "--json", "--force"]
    assert main(["look", str(model), TEXT, *DEEPER, "--ablate", "2.1,1", *out]) == 0
    side = json.loads(capsys.readouterr().out)["sides"][0]
    loaded: Any = regard.load(model)
    results = {
        "lens": loaded.lens(TEXT),
        "ablate": loaded.ablate(TEXT, heads=[(2, 1)], layers=[1], position=3),
        "patch": loaded.patch(TEXT, OTHER, position=3),
        "attribute": loaded.attribute(TEXT, position=3),
    }
    for name, result in results.items():
        assert side[name] == json.loads(json.dumps(result.facts())), name
    every = ["look", str(model), TEXT, "--ablate", "all", "--ablate-method", "mean"]
    assert main([*every, *out]) == 0
    side = json.loads(capsys.readouterr().out)["sides"][0]
    table = loaded.ablate(TEXT, heads="all", method="mean")
    assert side["ablate"] == json.loads(json.dumps(table.facts()))
    assert not {"lens", "patch", "attribute"} & set(side)


def test_lines_and_refusals(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "page.html")]
    assert main(["look", str(model), TEXT, *DEEPER, "--ablate", "all", *out]) == 0
    lines = capsys.readouterr().out
    for part in ("lens at mat", "without ", "depends most on"):
        assert part in lines
    for words in (["--ablate", "9.9"], ["--ablate", "x"], ["--token", "the cat"]):
        other = ["--ablate", "1"] if "--ablate" not in words else []
        out = ["--out", str(tmp_path / "none.html")]
        assert main(["look", str(model), TEXT, *words, *other, *out]) == 2
        assert not (tmp_path / "none.html").exists()
        assert "Traceback" not in capsys.readouterr().err
