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
from regard.models.extensions import extend
from regard.models.state import compact_caches
from tests.command import run as call
from tests.decoding.small import talking, tokenizer
from tests.laws.zoo import BERT, ZOO, Specimen, everything
from tests.refusals import refuses


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


def output(*arguments: object, input: str | None = None) -> str:
    result = call(*arguments, input=input)
    assert result.exit_code == 0, result.output or result.exception
    return result.stdout


def test_generate_streams_what_it_makes(gpt: Path) -> None:
    options = {"max_new_tokens": 30, "temperature": 0.8, "top_k": 40, "top_p": 0.9, "seed": 1}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    expected = run(load(gpt), "The cat", **options)[0][0].text
    for streamed in ([], ["--no-stream"], ["--stream"]):
        assert output("generate", gpt, "The cat", *words, *streamed) == f"{expected}\n"


def test_prompts_come_from_anywhere(gpt: Path, tmp_path: Path) -> None:
    expected = output("generate", gpt, "猫坐在", "--max-new-tokens", 9)
    file = tmp_path / "prompt.txt"
    file.write_text("猫坐在\n", "utf-8")
    assert output("generate", gpt, "--file", file, "--max-new-tokens", 9) == expected
    assert output("generate", gpt, "-", "--max-new-tokens", 9, input="猫坐在\n") == expected
    assert output("generate", gpt, "--max-new-tokens", 9, input="猫坐在") == expected
    lines = output(
        "generate", gpt, "-", "--lines", "--max-new-tokens", 9, "--json", input="The\u2028x\ncat\n"
    )  # a line ends at a line break, not at each character that some programs call one
    assert [each["prompt"] for each in json.loads(lines)["results"]] == ["The\u2028x", "cat"]


def test_generate_as_json(gpt: Path) -> None:
    options = ("--num-samples", 3, "--temperature", 1.2, "--max-new-tokens", 7, "--json")
    (result,) = json.loads(output("generate", gpt, "The", *options))["results"]
    texts = result["texts"]
    assert len(texts) == 3 and result["prompt"] == "The"
    for each in texts:
        assert len(each["ids"]) == len(each["logprobs"]) <= 7
        assert each["score"] == pytest.approx(sum(each["logprobs"]))


def test_several_texts_are_numbered(gpt: Path) -> None:
    texts = output(
        "generate", gpt, "The", "--num-beams", 3, "--num-return-sequences", 2, "--max-new-tokens", 5
    )
    assert "[1] " in texts and "[2] " in texts
    texts = output(
        "generate", gpt, "The", "cat", "--num-samples", 2, "--max-new-tokens", 5, "--seed", 3
    )
    assert all(f"[{i}.{j}] " in texts for i in (1, 2) for j in (1, 2))


def test_stop_words_may_be_line_breaks(gpt: Path) -> None:
    words = ("generate", gpt, "The", "--max-new-tokens", 40, "--temperature", 3, "--seed", 5)
    free = output(*words)[:-1]
    word = free[4:6]
    assert output(*words, "--stop", word) == free[: free.index(word)] + "\n"


def test_bf16_weights(gpt: Path) -> None:
    assert output("generate", gpt, "The", "--max-new-tokens", 5, "--precision", "bf16")
    assert load(gpt, dtype=torch.bfloat16).model.device.type == "cpu"


@pytest.mark.parametrize("cache", ["bf16", "int8"])
def test_compact_caches(gpt: Path, bert: Path, cache: str) -> None:
    """Models that remember anything else refuse: also Transformer-XL beside a pointer."""
    small = [each for each in ZOO if each.name in ("lstm", "xlnet", "transformer-xl")]
    others = [each.fresh() for each in small]
    extend(others[[each.name for each in small].index("transformer-xl")], "pointer", {"window": 4})
    options = {"max_new_tokens": 12, "temperature": 0.8, "seed": 1}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    loaded = load(gpt, cache=cache)
    assert loaded.model.start(1, 4).layers[0].keys.element_size() == {"bf16": 2, "int8": 1}[cache]
    expected = run(loaded, "The cat", **options)[0][0].text
    assert output("generate", gpt, "The cat", *words, "--cache", cache) == f"{expected}\n"
    with refuses(ConfigError, "Bert", cache):
        load(bert, cache=cache)
    for other in others:
        with refuses(ConfigError, type(other).__name__, cache):
            compact_caches(other, cache)
    with refuses(UnknownName, "int4", "'int8'"):
        load(gpt, cache="int4")


def test_fill_shows_candidates(bert: Path) -> None:
    text = output("fill", bert, "The [MASK] sat on the ___.", "--candidates", 3)
    assert text.count("%") == 6 and "blank 2" in text
    words = ("fill", bert, "-", "--candidates", 2, "--json")
    filled = json.loads(output(*words, input="The [MASK] sat\n"))
    assert filled["given"] == "The [MASK] sat" and len(filled["blanks"][0]) == 2
    assert filled["text"].split()[0].lower() == "the"


def test_chat_answers_line_by_line(gpt: Path) -> None:
    options = ("chat", gpt, "--temperature", 0, "--max-new-tokens", 6)
    twice = output(*options, input="The cat\n/reset\n\nThe cat\n/quit\nnever said\n")
    first, second = twice.splitlines()
    assert first == second
    assert output(*options, input="The cat\n") == first + "\n"
    on = output(*options, input="The cat\nThe cat\n").splitlines()
    assert on[0] == first and len(on) == 2
    assert "no command" in call(*options, input="/help\n").stderr


def refusal(*arguments: object, input: str | None = None) -> BaseException:
    result = call(*arguments, input=input)
    assert result.exception is not None and result.stdout == ""
    return result.exception


def test_refusals(gpt: Path, bert: Path, tmp_path: Path) -> None:
    cases = [
        (("generate", tmp_path / "nothing", "The"), FormatError, str(tmp_path / "nothing")),
        (("generate", bert, "The"), InputError, "Bert"),
        (("fill", gpt, "The ___"), InputError, "GPT"),
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
    for arguments, kind, part in cases:
        error = refusal(*arguments)
        assert isinstance(error, kind) and part in str(error), (arguments, error)
    assert "line 2" in str(refusal("generate", gpt, "-", "--lines", input="a\n\nb\n"))
    assert output("generate", gpt, "The " * 100, "--truncate", "--max-new-tokens", 3)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for arguments in (
        ("generate", gpt, "--file", tmp_path / "latin"),
        ("generate", gpt, "a\udce9"),
    ):
        assert isinstance(refusal(*arguments), InputError)
