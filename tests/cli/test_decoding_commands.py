"""The commands generate, fill and chat, on small models saved as any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from regard.api import LoadedModel, load
from regard.core.errors import ConfigError, FormatError, InputError, UnknownName
from regard.decoding import generate as run
from regard.models.bert import Bert
from tests.command import Result
from tests.command import run as called
from tests.decoding.small import talking, tokenizer
from tests.laws.zoo import BERT, Specimen, everything


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    loaded = talking()
    return LoadedModel(loaded.model.float(), loaded.tokenizer).save(
        tmp_path_factory.mktemp("a") / "gpt"
    )


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = tokenizer("wordpiece")
    model = Specimen("bert", Bert, BERT.replace(vocab_size=len(words)), everything).fresh()
    return LoadedModel(model, words).save(tmp_path_factory.mktemp("b") / "bert")


def call(*arguments: object, given: str | None = None) -> Result:
    return called(*arguments, input=given)


def told(*arguments: object, given: str | None = None) -> str:
    result = call(*arguments, given=given)
    assert result.exit_code == 0, result.output or result.exception
    return result.stdout


def test_generate_streams_what_it_makes(gpt: Path) -> None:
    options = (
        "--max-new-tokens",
        30,
        "--temperature",
        0.8,
        "--top-k",
        40,
        "--top-p",
        0.9,
        "--seed",
        1,
    )
    expected = run(
        load(gpt), "The cat", max_new_tokens=30, temperature=0.8, top_k=40, top_p=0.9, seed=1
    )
    text = f"{expected[0][0].text}\n"
    assert told("generate", gpt, "The cat", *options) == text
    assert told("generate", gpt, "The cat", *options, "--no-stream") == text
    assert told("generate", gpt, "The cat", *options, "--stream") == text


def test_prompts_come_from_anywhere(gpt: Path, tmp_path: Path) -> None:
    expected = told("generate", gpt, "猫坐在", "--max-new-tokens", 9)
    file = tmp_path / "prompt.txt"
    file.write_text("猫坐在\n", "utf-8")
    assert told("generate", gpt, "--file", file, "--max-new-tokens", 9) == expected
    assert told("generate", gpt, "-", "--max-new-tokens", 9, given="猫坐在\n") == expected
    assert told("generate", gpt, "--max-new-tokens", 9, given="猫坐在") == expected
    lines = told(
        "generate", gpt, "-", "--lines", "--max-new-tokens", 9, "--json", given="The\ncat\n"
    )
    assert [each["prompt"] for each in json.loads(lines)["results"]] == ["The", "cat"]


def test_generate_as_json(gpt: Path) -> None:
    options = ("--num-samples", 3, "--temperature", 1.2, "--max-new-tokens", 7, "--json")
    found = json.loads(told("generate", gpt, "The", *options))
    texts = found["results"][0]["texts"]
    assert len(texts) == 3 and found["results"][0]["prompt"] == "The"
    for each in texts:
        assert len(each["ids"]) == len(each["logprobs"]) <= 7
        assert each["score"] == pytest.approx(sum(each["logprobs"]))


def test_several_texts_are_numbered(gpt: Path) -> None:
    shown = told(
        "generate", gpt, "The", "--num-beams", 3, "--num-return-sequences", 2, "--max-new-tokens", 5
    )
    assert "[1] " in shown and "[2] " in shown
    shown = told(
        "generate", gpt, "The", "cat", "--num-samples", 2, "--max-new-tokens", 5, "--seed", 3
    )
    assert all(f"[{i}.{j}] " in shown for i in (1, 2) for j in (1, 2))


def test_stop_words_may_be_line_breaks(gpt: Path) -> None:
    free = told("generate", gpt, "The", "--max-new-tokens", 40, "--temperature", 3, "--seed", 5)[
        :-1
    ]
    word = free[4:6]
    cut = told(
        "generate",
        gpt,
        "The",
        "--max-new-tokens",
        40,
        "--temperature",
        3,
        "--seed",
        5,
        "--stop",
        word,
    )
    assert cut == free[: free.index(word)] + "\n"


def test_bf16_weights(gpt: Path) -> None:
    assert told("generate", gpt, "The", "--max-new-tokens", 5, "--precision", "bf16")
    assert load(gpt, dtype=torch.bfloat16).model.device.type == "cpu"


def test_fill_shows_candidates(bert: Path) -> None:
    shown = told("fill", bert, "The [MASK] sat on the ___.", "--candidates", 3)
    assert shown.count("%") == 6 and "blank 2" in shown
    found = json.loads(
        told("fill", bert, "-", "--candidates", 2, "--json", given="The [MASK] sat\n")
    )
    assert found["given"] == "The [MASK] sat" and len(found["blanks"][0]) == 2
    assert found["text"].split()[0].lower() == "the"


def test_chat_answers_line_by_line(gpt: Path) -> None:
    options = ("chat", gpt, "--temperature", 0, "--max-new-tokens", 6)
    twice = told(*options, given="The cat\n/reset\n\nThe cat\n/quit\nnever said\n")
    first, second = twice.splitlines()
    assert first == second
    assert told(*options, given="The cat\n") == first + "\n"
    on = told(*options, given="The cat\nThe cat\n").splitlines()
    assert on[0] == first and len(on) == 2
    assert "no command" in call(*options, given="/help\n").stderr


def refusal(*arguments: object, given: str | None = None) -> BaseException:
    result = call(*arguments, given=given)
    assert result.exception is not None and result.stdout == ""
    return result.exception


def test_refusals(gpt: Path, bert: Path, tmp_path: Path) -> None:
    cases = [
        (("generate", tmp_path / "nothing", "The"), FormatError, "does not exist"),
        (("generate", bert, "The"), InputError, "Bert: it fills blanks"),
        (("fill", gpt, "The ___"), InputError, "GPT: it goes on with a text"),
        (("chat", bert), InputError, "generate with one of transformer, gpt"),
        (("generate", gpt, "The " * 100), InputError, "reads 64 at once"),
        (("generate", gpt, "The", "--file", "x"), InputError, "not both"),
        (("generate", gpt, "The", "--lines"), InputError, "--lines needs"),
        (("generate", gpt, "The", "--num-beams", 2, "--top-k", 3), ConfigError, "beams"),
        (("generate", gpt, "The", "--num-samples", 2, "--stream"), InputError, "--stream"),
        (("generate", gpt, "The", "--precision", "fp3"), UnknownName, "fp32"),
        (("generate", gpt, "The", "--max-new-tokens", 0), ConfigError, "max_new_tokens is 0"),
        (("chat", gpt, "--max-turns", -1), ConfigError, "--max-turns is -1"),
    ]
    for arguments, kind, says in cases:
        error = refusal(*arguments)
        assert isinstance(error, kind) and says in str(error), (arguments, error)
    assert "line 2" in str(refusal("generate", gpt, "-", "--lines", given="a\n\nb\n"))
    assert told("generate", gpt, "The " * 100, "--truncate", "--max-new-tokens", 3)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for arguments in (
        ("generate", gpt, "--file", tmp_path / "latin"),
        ("generate", gpt, "a\udce9"),
    ):
        assert isinstance(refusal(*arguments), InputError)
