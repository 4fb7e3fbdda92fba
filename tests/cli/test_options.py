"""Options: declared once, with one meaning, and known by the names of other libraries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from regard.cli.main import GROUPS, main, program
from regard.core.foreign import NOW, WORDS, plain
from regard.core.foreign_options import KEYS
from regard.core.options import Option
from regard.core.tables import fields_of
from regard.decoding import DecodingOptions
from regard.models import FAMILIES, sizes
from regard.objectives import OBJECTIVES
from regard.tasks import TASKS
from regard.training.recipe import Recipe, option_keys

ROOT = Path(__file__).resolve().parents[2]
LIGHT = ["", "--help", "--version", "models --help", "draw attention --help"]  # import nothing
LEARNING = ["--lr", "--batch-size", "--seq-len", "--epochs", "--steps", "--minutes", "--seed"]


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its name, those of groups included."""
    context = click.Context(program)
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())
        else:
            yield name, command


EVERY = dict(commands())


# What opens weights, and what reads files that may be compressed. A new command is put here, or
# into the rest: it reads neither.
OPENS = ("augment train finetune distill align generate fill chat predict embed evaluate probe "
         "quantize prune look convert serve export").split()  # fmt: skip
OPENS += ["draw attention", "draw positions"]
UNPACKS = ("prepare check augment finetune distill align predict embed evaluate probe compare "
           "quantize prune").split()  # fmt: skip
NEITHER = "models info recipes push doctor plan".split() + [
    f"{group} {name}"
    for group, names in (("claims", "list run show"), ("draw", "masks operations order parameters "
                                                       "schedules"))
    for name in names.split()
]  # fmt: skip


def options(command: Any) -> list[str]:
    return [name for one in command.params for name in one.opts if name.startswith("--")]


def test_what_a_model_and_a_packed_file_need_is_asked_everywhere() -> None:
    assert {*OPENS, *UNPACKS, *NEITHER} == {*EVERY}
    assert [name for name in EVERY if "--allow-nan" in options(EVERY[name])] == [
        name for name in EVERY if name in OPENS
    ]
    assert [name for name in EVERY if "--max-bytes" in options(EVERY[name])] == [
        name for name in EVERY if name in UNPACKS
    ]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    return capsys.readouterr().err


def test_commands_stand_in_groups_once() -> None:
    names = [name for _, named in GROUPS.values() for name in named]
    assert len(names) == len(set(names)) == 29
    assert all("\b" in (command.help or "") for command in EVERY.values())  # examples


@pytest.mark.parametrize("name", ["train", "finetune", "distill", "align"])
def test_what_learns_takes_the_same_options(name: str) -> None:
    assert {*LEARNING, "--out", "--config", "--resume", "--json"} <= set(options(EVERY[name]))


def test_an_option_has_one_kind_of_value_everywhere() -> None:
    """A number is a number in all commands, and a switch is a switch; help texts may differ."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for command, parser in EVERY.items():
        for leaf in getattr(parser, "leaves", []):
            if isinstance(leaf.about, Option):
                kind = {int: "number", float: "number"}.get(leaf.kind, "words")
                kind = "switch" if leaf.is_flag else kind
                kinds.setdefault(leaf.name, {}).setdefault(kind, []).append(command)
    assert not {name: uses for name, uses in kinds.items() if len(uses) > 1}


@pytest.mark.parametrize("words", sorted({*(f"{name} --help" for name in EVERY), *LIGHT}))
def test_help_imports_no_torch(words: str) -> None:
    heavy = {"torch", "transformers", "rich", *(["numpy", "tokenizers"] if words in LIGHT else [])}
    code = (
        "import sys; from regard.cli.main import main; code = main(sys.argv[1:]); "
        f"heavy = {heavy} & set(sys.modules); sys.exit(code or (str(heavy) if heavy else 0))"
    )
    program = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert words == "--version" or ("Example" in done.stdout and "--help" in done.stdout)


@pytest.mark.parametrize("old", NOW)
def test_an_old_command_says_what_it_is_called_now(
    old: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(capsys, old, "x")
    assert f"unknown command {old!r}" in message and NOW[old].split()[0] in message
    assert NOW[old].split()[0] in program.list_commands(click.Context(program))


# What options were called before, by command: every other one has kept its name. Gone are
# prepare --source-field and --target-field (--field source=…), ngram --model (the first word) and
# compare --set (KEY=VALUE as a word).
MOVED = {
    ("prepare", "prepare"): "vocabulary=vocab-size valid=valid-fraction test=test-fraction",
    ("ngram", "evaluate"): "order=ngram-order tokens=max-tokens",
    ("train", "train"): "recipe=config tokens=max-tokens",
    ("check", "check"): "against=train-data limit=show-errors",
    ("augment", "augment"): (
        "share=word-fraction source=insertion-rule masked=mask-model rule=mask-rule "
        "top=candidates beams=num-beams processes=jobs"
    ),
    ("finetune", "finetune"): "recipe=config rate=lr unlabeled=unlabeled",
    ("test", "evaluate"): (
        "worst=show-errors beams=num-beams tokens=max-new-tokens alpha=length-penalty "
        "batch=batch-size length=seq-len"
    ),
    ("embed", "embed"): "raw=no-normalize",
    ("prompt", "evaluate"): (
        "draw=shot-sampling fixed=fixed-shots label=verbalizer tokens=max-new-tokens "
        "beams=num-beams length=seq-len"
    ),
    ("generate", "generate"): (
        "tokens=max-new-tokens minimum=min-new-tokens typical=typical-p "
        "repetition=repetition-penalty no-repeat=no-repeat-ngram-size samples=num-samples "
        "beams=num-beams best=num-return-sequences "
        "alpha=length-penalty penalty=length-penalty-form stopping=beam-stopping"
    ),
    ("fill", "fill"): "top=candidates order=fill-order tokens=max-new-tokens",
    ("chat", "chat"): (
        "tokens=max-new-tokens repetition=repetition-penalty no-repeat=no-repeat-ngram-size "
        "memory=max-turns"
    ),
    ("prefer", "align"): "limit=target-kl group=group-size tokens=max-new-tokens rate=lr",
    ("distil", "distill"): (
        "style=method sequence=sequence-level beams=num-beams vocabulary=vocab-size recipe=config "
        "rate=lr"
    ),
    ("quantize", "quantize"): "kind=scheme",
    ("prune", "prune"): "hidden=ffn-units raw=no-normalize samples=importance-examples",
    ("probe", "probe"): "kind=probe hidden=mlp-size decay=weight-decay length=seq-len",
    ("compare", "compare"): "length=seq-len samples=batch-size vocabulary=vocab-size",
    ("look", "look"): (
        "second=second-text order=permutation memory=memory-text global=global-tokens "
        "knowledge=with-knowledge"
    ),
    ("draw positions", "draw positions"): "length=seq-len",
    ("draw schedules", "draw schedules"): "rate=lr",
    ("draw masks", "draw masks"): (
        "length=seq-len past=past-len prefix=prefix-len globals=num-globals block=block-size "
        "random=num-random memory=mem-len"
    ),
    ("draw order", "draw order"): "memory=mem-len",
    ("draw operations", "draw operations"): "length=seq-len",
    ("translate", "predict"): "beams=num-beams tokens=max-new-tokens alpha=length-penalty",
    ("choose", "predict"): "asks=question",
}


@pytest.mark.parametrize(("before", "now"), MOVED)
def test_options_that_were_renamed_are_there(before: str, now: str) -> None:
    for old, new in (pair.split("=") for pair in MOVED[before, now].split()):
        known = {name for option in EVERY[now].params
                 for name in (*option.opts, *option.secondary_opts)}  # fmt: skip
        assert f"--{new}" in known, (before, old, new)


FOREIGN = [
    ("train gpt data --learning_rate 1", "--lr"),
    ("train gpt data --num_train_epochs 1", "--epochs"),
    ("train gpt data --output_dir x", "--out"),
    ("train gpt data --max_steps 1", "--steps"),
    ("train gpt data --block_size 1", "--seq-len"),
    ("finetune m --per_device_train_batch_size 8", "--batch-size"),
    ("finetune m --gradient_accumulation_steps 8", "--grad-accum"),
    ("finetune m --recipe x", "--config"),
    ("generate m text --beam 4", "--num-beams"),
    ("generate m text --max_length 4", "--max-new-tokens"),
    ("evaluate m data --num_fewshot 4", "--shots"),
    ("distill m --style hinton", "--method"),
    ("train gpt data --out x learning_rate=1", "optimizer.lr"),
    ("train gpt data --out x batch.lr=1", "optimizer.lr"),
    ("summarise m text", "predict"),
]


@pytest.mark.parametrize(("words", "ours"), FOREIGN, ids=str)
def test_words_of_other_libraries(
    words: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"'{ours}" in refused(capsys, *words.split())


def test_every_answer_to_a_foreign_word_is_known() -> None:
    """Each is an option, a command, a task, an objective or a field of a configuration."""
    known = {plain(name) for command in EVERY.values() for name in options(command)}
    known |= {
        plain(name) for one in EVERY.values() for p in one.params for name in p.secondary_opts
    }
    known |= {plain(name) for name in [*program.list_commands(click.Context(program)), *TASKS]}
    known |= {plain(name) for name in [*FAMILIES, *sizes(), *OBJECTIVES]}
    for card in FAMILIES.values():
        for config in card.sizes.values():
            known |= {plain(name) for name in config.__dataclass_fields__}
    known |= {plain(name) for name in fields_of(DecodingOptions)}
    keys = {f"{part}." for part in fields_of(Recipe)}
    for word, key in KEYS.items():
        assert word == plain(word) and (key[: key.find(".") + 1] in keys or " " in key)
    for word, answers in WORDS.items():
        assert word == plain(word)
        plain_answers = [plain(answer) for answer in answers.split()]
        assert any(answer in known for answer in plain_answers), (word, answers)
        rest = {answer for answer in plain_answers if answer not in known}
        assert rest <= {"model", "keyvalue"}, (word, rest)


def test_keys_of_options_are_keys_of_a_recipe() -> None:
    keys = option_keys()
    assert keys["--lr"].startswith("optimizer.") and keys["--batch-size"].startswith("batch.")


def test_a_shell_can_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "regard"], capture_output=True, text=True,
        env={"_REGARD_COMPLETE": "bash_complete", "COMP_WORDS": "regard tra", "COMP_CWORD": "1",
             "PATH": "", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "plain,train\n", done.stderr


def test_a_refused_command_makes_no_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    for words in (
        ["finetune", "m", "--task", "classify", "--data", "nowhere.jsonl", "--out", str(out)],
        ["align", "m", "--data", "nowhere.jsonl", "--out", str(out)],
        ["distill", "m", "--student", "layers=1", "--data", "nowhere", "--out", str(out)],
    ):
        assert "nowhere" in refused(capsys, *words)
    assert not out.exists()
