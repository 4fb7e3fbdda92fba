"""The commands that ask a model: what they take, what they print, what they refuse."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.api import load
from regard.cli.main import main
from tests.refusals import mentions
from tests.tasks import tuning
from tests.tasks.world import World, alternatives, questions, texts

COMMANDS = ["predict", "embed"]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command, given standard input; what it printed, and what it noted."""

    def run(*words: str, stdin: str | bytes = "") -> tuple[str, str]:
        stdin = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        assert main(words) == 0, capsys.readouterr().err
        out, err = capsys.readouterr()
        return out, err

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(*words: str, stdin: str | bytes = "") -> str:
        stdin = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("regard: ")
        return err

    return run


# -- what they take


def test_arguments_lines_and_files_say_the_same(world: World, ask: Any, tmp_path: Path) -> None:
    run, many = world.run("reviewer"), texts(4, 7)
    wanted = [f"{each.value}\t{each.score:.4f}" for each in load(run).classify(many)]
    assert ask("predict", run, *many) == ("\n".join(wanted) + "\n", "")
    lines = "".join(f"{text}\n" for text in many)
    assert ask("predict", run, stdin=lines)[0].splitlines() == wanted
    (tmp_path / "a.txt").write_text(lines)
    assert ask("predict", run, "--file", str(tmp_path / "a.txt"))[0].splitlines() == wanted
    file = tuning.write(tmp_path / "a.jsonl", [{"review": t, "label": "good"} for t in many])
    named = ("--field", "text=review")
    assert ask("predict", run, "--file", str(file), *named)[0].splitlines() == wanted
    assert ask("predict", run, *named, stdin=file.read_text())[0].splitlines() == wanted
    assert ask("predict", run, *named, stdin=lines)[0].splitlines() == wanted


def test_one_object_or_one_a_line(world: World, ask: Any) -> None:
    run, many = world.run("reviewer"), texts(3, 7)
    output = json.loads(ask("predict", run, *many, "--json")[0])
    assert output["model"] == run and output["task"] == "classify"
    wanted = load(run).classify(many)
    assert [row["value"] for row in output["answers"]] == [each.value for each in wanted]
    assert output["answers"][0]["scores"] == pytest.approx(wanted[0].scores)
    rows = [json.loads(line) for line in ask("predict", run, *many, "--jsonl")[0].splitlines()]
    assert rows == output["answers"]
    record = json.dumps({"text": many[0], "id": "seven"})
    assert json.loads(ask("predict", run, "--jsonl", stdin=record)[0])["id"] == "seven"


def test_pairs(world: World, ask: Any) -> None:
    run, (first, second) = world.run("reviewer"), texts(2, 3)
    predictions = load(run).classify(first, second)
    wanted = f"{predictions.value}\t{predictions.score:.4f}\n"
    assert ask("predict", run, first, "--pair", second)[0] == wanted
    assert ask("predict", run, stdin=f"{first}\t{second}")[0] == wanted
    judge = world.run("judge")
    score = f"{load(judge).similar(first, second).value:.4f}\n"
    assert ask("predict", judge, first, second)[0] == score
    assert ask("predict", judge, stdin=f"{first}\t{second}\r\n")[0] == score
    assert ask("predict", judge, first, "--pair", second)[0] == score


def test_notes_of_the_reader_and_of_long_texts(world: World, ask: Any, tmp_path: Path) -> None:
    run = world.run("reviewer")
    records = [{"text": "a film", "id": "1"}, {"text": "the film " * 40, "id": "1"}]
    file = tuning.write(tmp_path / "a.jsonl", records)
    out, err = ask("predict", run, "--file", str(file))
    assert len(out.splitlines()) == 2
    notes = err.splitlines()
    assert notes[0].startswith("regard: note: ids that occur twice (duplicate-id): 1, the first is")
    assert "1 of 2 texts have more than" in notes[1] and "were cut" in notes[1]


def test_broken_characters(world: World, ask: Any, refused: Any) -> None:
    """Of a stream they are replaced and told, as in a file; an argument is refused."""
    run = world.run("tagger")
    out, err = ask("predict", run, stdin=b"the film was great\na \xff plot\n")
    assert out == "praise: great\n(no entity)\n"
    assert "note: bytes that are no UTF-8 (broken-utf8): 1, the first is standard input:2" in err
    half = '{"words": ["the", "film", "\\ud800"]}'
    assert "half a character" in ask("predict", run, stdin=half)[1]
    assert "not valid Unicode at character 3" in refused("predict", run, "a \udcff")


# -- what they print


def test_tag(world: World, ask: Any, tmp_path: Path) -> None:
    run = world.run("tagger")
    out = ask("predict", run, "the film was great, dull", "the film")[0]
    assert out == "praise: great\tblame: dull\n(no entity)\n"
    (tmp_path / "a.txt").write_text("the film was great, dull\n")
    assert (
        ask("predict", run, "--file", str(tmp_path / "a.txt"))[0] == "praise: great\tblame: dull\n"
    )
    (tmp_path / "a.conll").write_text("the O\nplot O\ndull NN\n")
    output = json.loads(ask("predict", run, "--file", str(tmp_path / "a.conll"), "--json")[0])
    assert output["answers"][0] == {
        "words": ["the", "plot", "dull"],
        "tags": ["O", "O", "B-blame"],
        "entities": [{"kind": "blame", "text": "dull", "first": 2, "last": 2}],
        "score": output["answers"][0]["score"],
    }


def test_answer(world: World, ask: Any, tmp_path: Path) -> None:
    run, passages = world.run("answerer"), texts(6, 3)
    predictions = load(run).answer(["the film"] * 6, passages)
    wanted = [one.value or "(no answer)" for one in predictions]
    lines = "".join(f"the film\t{passage}\n" for passage in passages)
    assert ask("predict", run, stdin=lines)[0].splitlines() == wanted
    assert ask("predict", run, "the film", passages[0])[0] == f"{wanted[0]}\n"
    file = tuning.write(tmp_path / "q.jsonl", questions(6, 3))
    rows = [
        json.loads(x)
        for x in ask("predict", run, "--file", str(file), "--jsonl")[0].split("\n")[:-1]
    ]
    assert [(row["id"], row["value"]) for row in rows] == [
        (f"q{i}", one.value) for i, one in enumerate(predictions)
    ]


def test_choose(world: World, ask: Any, tmp_path: Path) -> None:
    run = world.run("chooser")
    choices = ["the film was great", "the plot was dull"]
    predictions = load(run).choose("a film", choices, "effect")
    wanted = f"{choices[predictions.value]}\t{predictions.score:.4f}\n"
    assert ask("predict", run, "a film", *choices, "--question", "effect")[0] == wanted
    assert (
        ask("predict", run, "--question", "effect", stdin="\t".join(["a film", *choices]))[0]
        == wanted
    )
    file = tuning.write(tmp_path / "c.jsonl", alternatives(3, 1))
    output = json.loads(ask("predict", run, "--file", str(file), "--json")[0])["answers"]
    assert [row["text"] for row in output] == [choices[row["value"]] for row in output]


def test_translate(world: World, ask: Any) -> None:
    run, many = world.run("translator"), texts(3, 4)
    predictions = load(run).translate(many, num_beams=2, max_new_tokens=6)
    out = ask("predict", run, "--num-beams", "2", "--max-new-tokens", "6", stdin="\n".join(many))[0]
    assert out.splitlines() == [" ".join(one.value.split()) for one in predictions]


def test_embed(world: World, ask: Any, tmp_path: Path) -> None:
    run, many, out = world.model("bert"), texts(3, 4), tmp_path / "v.npy"
    wanted = load(run).embed(many)
    shown, noted = ask("embed", run, *many, "--out", str(out))
    assert shown == "" and f"{out} has 3 vectors of 32" in noted
    np.testing.assert_array_equal(np.load(out), wanted)
    vectors = json.loads(ask("embed", run, "--json", stdin="\n".join(many))[0])["vectors"]
    np.testing.assert_allclose(vectors, wanted, atol=1e-6)
    lines = ask("embed", run, *many)[0].splitlines()
    np.testing.assert_allclose([[*map(float, x.split())] for x in lines], wanted, atol=1e-5)
    first = json.loads(ask("embed", run, many[0], "--no-normalize", "--layer", "1", "--jsonl")[0])[
        "vector"
    ]
    np.testing.assert_allclose(first, load(run).embed(many[0], layer=1, normalize=False), atol=1e-5)


# -- what they refuse


@pytest.mark.parametrize(
    ("words", "stdin", "named"),
    [
        (["predict", "RUN", "a film", " "], "", "text 2: the text ('text') is empty"),
        (["predict", "RUN"], "a film\n\nthe plot\n", "standard input:2, 'text', empty"),
        (["predict", "RUN"], "", "standard input, empty"),
        (["predict", "RUN"], "a\tb\tc", "standard input:1, 3 texts, text and pair"),
        (["predict", "RUN", "a", "b", "--pair", "c"], "", "--pair, one TEXT, 2"),
        (["predict", "RUN", "a", "--file", "x.txt"], "", "texts, --file"),
        (["predict", "RUN", "--file", "nowhere.txt"], "", "nowhere.txt, no file"),
        (["predict", "RUN", "--file", "nowhere.csv"], "", "nowhere.csv, no file"),
        (["predict", "RUN", "a", "--json", "--jsonl"], "", "--json, --jsonl"),
        (["predict", "RUN"], '{"story": "a film"}', "no field, text, classify"),
        (["predict", "RUN", "a film", "--task", "tag"], "", "classify, tag"),
        (["predict", "RUN", "a", "b", "--task", "similar"], "", "classify, similar"),
        (["predict", "RUN", "who?", "--task", "answer"], "", "1 texts, question, passage"),
        (["predict", "RUN", "a", "b", "--task", "choose"], "", "premise, two choices"),
        (["predict", "RUN", "a", "--task", "translate"], "", "classify, translate"),
        (["embed", "RUN", "a", "--out", "v.txt"], "", "--out, v.txt"),
        (["predict", "RUN", "a", "--precision", "fp8"], "", "fp8"),
    ],
    ids=str,
)
def test_refusals(world: World, refused: Any, words: list[str], stdin: str, named: str) -> None:
    run = world.run("reviewer")
    message = refused(*[run if word == "RUN" else word for word in words], stdin=stdin)
    mentions(message, named.split(", "))


def test_one_text_for_a_model_that_compares(world: World, refused: Any) -> None:
    err = refused("predict", world.run("judge"), "a film")
    assert "1 texts" in err and "text and pair" in err
