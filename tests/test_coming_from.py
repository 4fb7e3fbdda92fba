"""Every line of docs/coming-from.md is run: what it says of other libraries, and of this one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import regard
from regard.api import LoadedModel
from regard.cli.main import main, program
from regard.core.errors import RegardError, UnknownName
from regard.core.foreign import ours
from regard.data.tokenizer import Tokenizer
from regard.decoding import DecodingOptions
from regard.formats.registry import format_of
from regard.models import FAMILIES
from regard.objectives import objective
from regard.tasks import TASKS
from regard.training import recipe as recipes
from tests.decoding.small import tokenizer
from tests.equal.reference import scramble
from tests.refusals import refuses
from tests.test_docs import parsed

DOCS = Path(__file__).resolve().parent.parent / "docs"
ENGLISH, CHINESE = DOCS / "coming-from.md", DOCS / "coming-from.zh.md"
# The titles of the tables, in the order of the page, and the test that runs their lines.
TABLES = {
    "Hugging Face": ["python", "field", "training", "decoding", "task", "command"],
    "nanoGPT": ["training", "decoding", "command"],
    "fairseq": ["training", "decoding", "command"],
}


@dataclass(frozen=True)
class Line:
    """A line of a table."""

    library: str
    test: str
    cells: tuple[tuple[str, ...], ...]  # the pieces of code in each cell

    @property
    def words(self) -> dict[str, Any]:
        """What their side sets, by name: `a=1, b=2`, `a = 1; b = 2` or `--a 1 --b`."""
        (text,) = self.cells[0]
        if not text.startswith("--"):
            arguments: dict[str, Any] = eval(f"dict({text.replace(';', ',')})")
            return arguments
        options: dict[str, Any] = {}
        for word in shlex.split(text):
            if word.startswith("--"):
                options[word.removeprefix("--")] = None
            else:
                options[list(options)[-1]] = word
        return options

    def __str__(self) -> str:
        shown = self.cells[:2] if self.test == "field" else self.cells[:1]
        return f"{self.library}: {' '.join(word for cell in shown for word in cell)}"


def code(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell.replace(r"\|", "|")))


def tables(page: Path) -> Iterator[tuple[str, list[list[str]]]]:
    """The tables of a page with the second-level title above each."""
    title, rows = "", list[list[str]]()
    for line in [*page.read_text("utf-8").splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif rows:
            yield title, rows[2:]
            rows = []
        if line.startswith("## "):
            title = line[3:]


def lines(page: Path, names: list[str]) -> Iterator[Line]:
    titled = list(tables(page))
    tests = [(title, test) for title in names for test in TABLES[title]]
    assert [title for title, _ in titled] == [title for title, _ in tests]
    for (title, test), (_, rows) in zip(tests, titled, strict=True):
        yield from (Line(title, test, tuple(code(cell) for cell in row)) for row in rows)


EVERY = list(lines(ENGLISH, list(TABLES)))


def by(test: str) -> Any:
    return pytest.mark.parametrize("line", [one for one in EVERY if one.test == test], ids=str)


def test_there_are_lines_to_run() -> None:
    assert len(EVERY) > 200 and {line.test for line in EVERY} == {
        test for tests in TABLES.values() for test in tests
    }


def test_both_languages_map_the_same() -> None:
    assert list(lines(CHINESE, list(TABLES))) == EVERY


# -- configurations


@by("field")
def test_field(line: Line) -> None:
    kinds, (theirs,), (name,) = line.cells
    for kind in kinds:
        format_ = format_of(kind)
        value = other(kind, theirs)
        read = format_.read_config({"model_type": kind, theirs: value})
        assert read[name] == (value if theirs not in NAMED else "relu"), kind
        fields = FAMILIES[format_.family].config.__dataclass_fields__
        assert name in fields
        if theirs not in fields:
            with refuses(UnknownName, f"'{name}'"):
                FAMILIES[format_.family].config.of({theirs: value})


PUBLISHED = ("rope_theta", "decoder_start_token_id")  # in files, and elsewhere since transformers 5
NAMED = ("hidden_act", "activation_function", "ff_activation")


def other(kind: str, field: str) -> Any:
    """Another value of a field than transformers' own default."""
    if field in NAMED:
        return "relu"
    if kind == "transfo-xl":  # which transformers 5 has removed
        return 128
    usual: Any = transformers.AutoConfig.for_model(kind).to_dict()
    assert field in usual or field in PUBLISHED, f"{kind} has no {field}"
    match usual.get(field, 1.0):
        case bool(known):
            return not known
        case int(known):
            return known + 64
        case float(known):
            return known * 2
    return 64


# -- options and keys of recipes


@by("training")
def test_training(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    _, option, key = line.cells
    if line.library == "Hugging Face":
        assert line.words.keys() <= transformers.TrainingArguments.__dataclass_fields__.keys()
    answer = [word.split()[0] for word in option] or [key[0].partition("=")[0]]
    if option:
        params = parsed(["regard", "train", "gpt", "data", *shlex.split(option[0])]).params
    if key:
        table = recipes.overrides(key)
        recipe = recipes.make(table).table()
        name, _, inner = key[0].partition("=")[0].partition(".")
        value = recipe[name][inner] if inner else recipe[name]
        known(name, inner)
    if option and key:
        assert recipes.option_keys()[answer[0]] == key[0].partition("=")[0]
        leaf = answer[0].removeprefix("--").replace("-", "_")
        assert params[leaf] == value
    for word in line.words:
        if f"--{word.replace('_', '-')}" not in answer:  # underscores serve as dashes
            assert main(["train", "gpt", "data", f"--{word}", "1"]) == 2
            assert answer[0] in capsys.readouterr().err
        if key and word not in recipes.fields_of(recipes.Recipe):
            with refuses(UnknownName, key[0].partition("=")[0]):
                recipes.make(recipes.overrides([f"{word}=1"]))


def known(table: str, key: str) -> None:
    """A key of a table that is checked only when the model or the objective is known."""
    if table == "shape":
        assert any(key in card.config.__dataclass_fields__ for card in FAMILIES.values())
    if table == "objective":
        kinds = [objective(name) for name in ("pairs", "masked")]
        assert any(key in kind.Options.__dataclass_fields__ for kind in kinds)


# -- decoding


# Words that turn something on, which another word asks for here.
SWITCHES = {"do_sample": "temperature", "sampling": "temperature", "early_stopping": "stopping",
            "num_return_sequences": "num_samples"}  # fmt: skip


@by("decoding")
def test_decoding(line: Line, capsys: pytest.CaptureFixture[str], gpt: Any) -> None:
    _, (python,), option = line.cells
    arguments = eval(f"dict({python})")
    chosen = DecodingOptions.of({n: tuple(v) if n == "stop" else v for n, v in arguments.items()})
    if option:
        words = ["regard", "generate", "gpt", "text", *shlex.split(option[0])]
        assert asdict(from_command(words)) == asdict(chosen)
    answers = [f"--{name}" for name in re.findall(r"--([\w-]+)", " ".join(option))]
    for word in line.words:
        if word not in arguments:
            with pytest.raises(RegardError) as refused:
                DecodingOptions.of({word: line.words[word]})
            answer = {*arguments, SWITCHES.get(word, "")}
            assert any(name in str(refused.value) for name in answer if name), str(refused.value)
        if f"--{word.replace('_', '-')}" not in answers and option:
            assert main(["generate", "gpt", "text", f"--{word}", "1"]) == 2
            message = capsys.readouterr().err
            if word not in SWITCHES:
                assert any(name in message for name in answers), message
    if line.library == "Hugging Face":
        same_tokens(gpt, line.words, arguments)


def from_command(words: list[str]) -> DecodingOptions:
    from regard.cli.options import as_table
    from regard.cli.use import COMMANDS

    values = {
        n: v
        for n, v in parsed(words).params.items()
        if v is not None and v != () and v is not False
    }
    leaves = [leaf for leaf in COMMANDS["generate"].leaves.values() if leaf.path]
    return DecodingOptions.of(as_table(leaves, values))


def same_tokens(gpt: Any, theirs: dict[str, Any], options: dict[str, Any]) -> None:
    """Both write the same where nothing is drawn, and as many texts where something is."""
    prompt = gpt.tokenizer("the cat", return_tensors="pt")
    limit = {"max_new_tokens": 12}
    settings = {"suppress_tokens": gpt.never} | limit | {"do_sample": False} | theirs
    outputs = gpt.model.generate(**prompt, **settings, tokenizer=gpt.tokenizer)
    length = prompt["input_ids"].shape[1]
    written = gpt.loaded.generate("the cat", **(limit | options))
    texts = written if isinstance(written, list) else [written]
    assert len(texts) == len(outputs)
    if not settings["do_sample"]:
        for row, text in zip(outputs[:, length:].tolist(), texts, strict=True):
            assert row[: len(text.ids)] == text.ids
            assert all(token == gpt.tokenizer.pad_token_id for token in row[len(text.ids) :])


# -- tasks


@by("task")
def test_task(line: Line) -> None:
    (name,), (kind,), (here,) = line.cells
    mapping = getattr(transformers, kind)._model_mapping._model_mapping
    classes = {c: format_of(t) for t in ("bert", "gpt2", "t5")
               for c in [mapping.get(t)] if c in format_of(t).classes}  # fmt: skip
    assert classes, f"nothing here opens what {kind} makes"
    if here.startswith("--task "):
        task = here.removeprefix("--task ")
        assert ours(name, TASKS) == task
        heads = {head for c, format_ in classes.items() for head in format_.classes[c]}
        assert task in heads or "t5" in {f.type for f in classes.values()}
        if kind != "AutoModelForSeq2SeqLM":
            assert ours(kind, TASKS) == task
    else:
        command = here.removeprefix("regard ")
        assert parsed(here.split()) is not None and hasattr(LoadedModel, command)
        assert ours(name, program.list_commands(None)) == command  # type: ignore[arg-type]


# -- commands


@by("command")
def test_command(line: Line) -> None:
    (there,), here = line.cells
    for command in here:
        words = shlex.split(re.sub(r"^torchrun .* -m ", "", command))
        assert parsed(words).command.name == words[1]
    word = program_of(there)
    answer = shlex.split(re.sub(r"^torchrun .* -m ", "", here[-1]))[1]
    names = program.list_commands(None)  # type: ignore[arg-type]
    assert word in names or ours(word, names) == answer


def program_of(command: str) -> str:
    """The word of a command that says what it does."""
    starters = ("python", "accelerate", "launch", "torchrun", "trl")
    words = [w for w in shlex.split(command) if w not in starters and not w.startswith("-")]
    return Path(words[0]).stem


# -- Python


@dataclass
class Both:
    """One directory, opened by both."""

    path: Path
    bert: Path
    reviewer: Path
    model: Any
    tokenizer: Any
    loaded: LoadedModel

    @property
    def never(self) -> list[int]:
        """What is suppressed here unless somebody asks: padding and mask."""
        known = self.tokenizer
        return [i for i in (known.pad_token_id, known.mask_token_id) if i is not None]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Both:
    place = tmp_path_factory.mktemp("both")
    words, pieces = tokenizer("bytes-bpe"), tokenizer("wordpiece")
    end = words.ready.token_to_id("<|endoftext|>")
    config = transformers.GPT2Config(
        vocab_size=len(words), n_positions=64, n_embd=16, n_layer=2, n_head=2,
        eos_token_id=end, bos_token_id=end, pad_token_id=words.pad_id,
    )  # fmt: skip
    encoder = transformers.BertConfig(
        vocab_size=len(pieces), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=64, pad_token_id=pieces.pad_id,
        id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1},
    )  # fmt: skip
    kinds = {
        "gpt": (transformers.GPT2LMHeadModel, config, words),
        "bert": (transformers.BertForMaskedLM, encoder, pieces),
        "reviewer": (transformers.BertForSequenceClassification, encoder, pieces),
    }
    for name, (kind, settings, own) in kinds.items():
        write(kind(settings), place / name, own)
    path = place / "gpt"
    model = transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
    return Both(
        path,
        place / "bert",
        place / "reviewer",
        model.eval(),
        transformers.AutoTokenizer.from_pretrained(path),
        regard.load(path),
    )


def write(model: Any, path: Path, own: Tokenizer) -> None:
    scramble(model, 0.2, seed=4).save_pretrained(path)
    own.save(path)


def names(gpt: Both, out: Path) -> dict[str, Any]:
    """What the lines of the table speak of."""
    texts = ["the cat sat", "the dog did not sit"]
    batch = gpt.tokenizer(texts, padding=True, return_tensors="pt")
    return vars(transformers) | {
        "regard": regard, "path": str(gpt.path), "bert": str(gpt.bert), "out": out,
        "reviewer": str(gpt.reviewer), "model": gpt.model, "tokenizer": gpt.tokenizer,
        "loaded": gpt.loaded, "texts": texts, "batch": batch, "ids": batch["input_ids"][0].tolist(),
        "input_ids": batch["input_ids"], "mask": batch["attention_mask"],
        "AutoModelForCausalLM": transformers.AutoModelForCausalLM,
        "AutoModelForSequenceClassification": transformers.AutoModelForSequenceClassification,
        "AutoTokenizer": transformers.AutoTokenizer, "GPT2Config": transformers.GPT2Config,
        "GPT2LMHeadModel": transformers.GPT2LMHeadModel, "pipeline": transformers.pipeline,
    }  # fmt: skip


@by("python")
def test_python(line: Line, gpt: Both, tmp_path: Path) -> None:
    (theirs,), (here,) = line.cells
    values = []
    for number, expression in enumerate((theirs, here)):
        with torch.no_grad():
            value = eval(expression, names(gpt, tmp_path / str(number)))
        values.append(written(tmp_path / str(number)) if "save" in expression else value)
    if isinstance(values[0], Tensor) and values[0].dim() == 3:  # what padding gives is free
        real = names(gpt, tmp_path)["mask"].bool()
        values = [value[real] for value in values]
    assert same(*values), values


def written(path: Path) -> Any:
    """A directory as the other side opens it."""
    return transformers.AutoModelForCausalLM.from_pretrained(path)


def same(theirs: Any, here: Any) -> bool:
    if isinstance(here, Tensor):
        return torch.allclose(theirs.to(here.dtype), here, atol=1e-5)
    if isinstance(here, Tokenizer):
        return bool(theirs("the cat")["input_ids"] == here.encode("the cat"))
    if isinstance(here, LoadedModel | nn.Module):
        mine: Any = getattr(here, "model", here)
        count = getattr(mine, "parameter_count", getattr(mine, "num_parameters", None))
        return bool(theirs.num_parameters() == count())
    if isinstance(here, dict):
        needed = {name: value for name, value in theirs.items() if name != "token_type_ids"}
        return needed.keys() == here.keys() and all(same(needed[name], here[name]) for name in here)
    if isinstance(here, float):
        return bool(theirs == pytest.approx(here, abs=1e-5))
    return bool((theirs.tolist() if isinstance(theirs, Tensor) else theirs) == here)


def test_recorded_attention(gpt: Both, tmp_path: Path) -> None:
    """The block below the table: its last line says what it is equal to."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", ENGLISH.read_text("utf-8"), re.M | re.S)
    known = names(gpt, tmp_path)
    with torch.no_grad():
        exec(block, known)
        theirs = eval(block.strip().rpartition("# ")[2], known)
    real = known["mask"].bool()
    assert len(theirs) == len(known["weights"]) == 2
    for first, second in zip(theirs, known["weights"], strict=True):  # rows of padding are free
        one, other = first.transpose(1, 2)[real], second.transpose(1, 2)[real]
        assert torch.allclose(one, other, atol=1e-5)


def test_what_the_page_shows_of_a_foreign_word(capsys: pytest.CaptureFixture[str]) -> None:
    shown = re.findall(r"^\$ regard (.*)\n(regard: .*)$", ENGLISH.read_text("utf-8"), re.M)
    assert shown
    for command, answer in shown:
        assert main(shlex.split(command)) == 2
        assert answer in capsys.readouterr().err


def test_padding_on_the_left(gpt: Both) -> None:
    """It moves positions there, and changes nothing here."""
    ids = torch.tensor([gpt.loaded.tokenizer.encode("the cat sat")])
    fill = torch.full((1, 3), gpt.loaded.tokenizer.pad_id)
    padded = torch.cat([fill, ids], 1)
    mask = torch.cat([torch.zeros_like(fill), torch.ones_like(ids)], 1)
    with torch.no_grad():
        alone, far = gpt.loaded.logits(ids), gpt.loaded.logits(padded, attention_mask=mask)
        theirs = gpt.model(padded, attention_mask=mask).logits
    assert torch.allclose(alone, far[:, 3:], atol=1e-5)
    assert not torch.allclose(alone, theirs[:, 3:], atol=1e-2)


def test_defaults_that_the_page_names() -> None:
    usual = asdict(DecodingOptions())
    assert usual["length_penalty"] == 0.6 and usual["length_penalty_form"] == "paper"
    assert transformers.GenerationConfig().length_penalty in (None, 1.0)
