"""`regard align` from beginning to end, and what `regard check` says of its data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.examples import Preference
from regard.evaluation.test import examine
from regard.formats.directory import save
from regard.methods.finetune.run import finetune
from regard.methods.preference.dpo import Prefer
from regard.methods.preference.run import METHODS, recipe_for
from regard.methods.preference.run import prefer as run
from regard.models.extensions import extend
from regard.tasks import read
from regard.tasks.check import check as checked
from regard.training.recipe import Recipe, make
from tests.command import run as call
from tests.methods.preference.preferring import gpt, planted
from tests.refusals import refuses
from tests.tasks.judging import TOKENIZER, model_of, tokenizer, write
from tests.tasks.tuning import stop as stop
from tests.training.test_never_lost import bits, figures

QUICK = ("batch.size=8", "engine.precision=fp32", "--quiet", "--json")


def records(count: int, seed: int = 0) -> list[dict[str, str]]:
    roles = ("prompt", "chosen", "rejected")
    return [{role: str(getattr(e, role)) for role in roles} for e in planted(count, seed)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt(tmp_path_factory.mktemp("models") / "gpt", width=16, layers=1, context=32)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "pairs.jsonl", records(80))


@pytest.fixture(scope="module")
def judge(model: Path, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "judge"
    words = ("--method", "reward", "--data", pairs, "--out", out, "--steps", 30, "--lr", 0.01)
    succeeded("align", model, *QUICK, *words)
    return out


def succeeded(*arguments: object, input: str | None = None) -> Any:
    result = call(*arguments, input=input)
    assert result.exit_code == 0, result.output or result.exception
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


# --- runs -------------------------------------------------------------------------------------


def test_dpo_prefers_and_can_be_talked_to(model: Path, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "polite"
    words = ("--data", pairs, "--out", out, "--steps", 20, "--lr", 0.01, "--beta", 0.5)
    summary = succeeded("align", model, *QUICK, *words)
    assert summary["outcome"] == "done" and summary["objective"] == "prefer"
    assert summary["valid"]["accuracy"] == 1.0 and summary["valid"]["margin"] > 0.5
    assert summary["valid"]["loss"] < 0.5 and summary["valid"]["drift"] > 0
    assert {"config.json", "tokenizer.json", "report.html", "recipe.toml", "README.md"} <= {
        file.name for file in out.iterdir()
    }
    assert not (out / "task.json").exists()  # it has learned no task that could be asked for
    assert succeeded("generate", out, "c d", "--max-new-tokens", 4)
    assert succeeded("chat", out, "--max-new-tokens", 4, "--temperature", 0, input="c d\n")
    names = set(regard.load(out).model.state_dict())
    assert names == set(regard.load(model).model.state_dict())  # the start is not in it


def test_a_reward_model_scores_replies(judge: Path, pairs: Path, tmp_path: Path) -> None:
    loaded = regard.load(judge)
    good, bad = loaded.reward("c d", ["e a", "e b"])
    assert good > bad
    assert loaded.reward("c d", "e a") == pytest.approx(good, abs=1e-5)
    many = loaded.reward(["c d", ["c", "d"]], ["e a", "e b"])
    assert many[0] == pytest.approx(good, abs=1e-5) and many[1] != pytest.approx(bad, abs=1e-5)
    with refuses(InputError, "3 prompts", "1 replies"):
        loaded.reward(["a", "b", "c"], ["d"])
    with refuses(InputError, "reply 1 is ' '"):
        loaded.reward("a", " ")
    facts = json.loads((judge / "task.json").read_text())
    assert facts["objective"]["name"] == "reward" and facts["objective"]["form"] == "text"
    fresh = write(tmp_path / "fresh.jsonl", records(40, seed=5))
    tested = examine(str(judge), [str(fresh)])
    assert tested["figures"]["accuracy"] > 0.9 and tested["task"] == "prefer"


def test_grpo_follows_a_reward_model(model: Path, judge: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(f"{a} {b}" for a in "cdefg" for b in "hijk") + "\n")
    out = tmp_path / "better"
    words = ("--reward", judge, "--data", prompts, "--out", out, "--max-new-tokens", 4)
    summary = succeeded(
        "align", model, *QUICK, *words, "--method", "grpo", "--steps", 25, "--lr", 0.01
    )
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    parts = [step["parts"] for step in steps if "parts" in step]
    assert parts[0]["kl"] == 0.0 and len(parts) == 25
    first, last = ([p["reward"] for p in some] for some in (parts[:3], parts[-3:]))
    assert sum(last) / 3 > sum(first) / 3 + 0.2
    assert summary["valid"]["kl"] > 0 and summary["valid"]["reward"] > sum(first) / 3
    succeeded("generate", out, "c h", "--max-new-tokens", 3)


def test_what_the_start_has_learned_stays_known(model: Path, tmp_path: Path) -> None:
    """A dialogue model reads prompts as turns, and is asked for replies as before."""
    talks = [{"turns": [f"c {a}", f"{a} d"]} for a in "efghijkl"]
    recipe = make({
        "model": str(model), "data": str(write(tmp_path / "talks.jsonl", talks)),
        "examples": {"task": "converse"}, "batch": {"size": 4}, "budget": {"steps": 2},
        "engine": {"precision": "fp32", "compile": "no"},
    })  # fmt: skip
    finetune(recipe, tmp_path / "talker", display="silent")
    data = write(tmp_path / "pairs.jsonl", records(30))
    out = tmp_path / "tuned"
    succeeded("align", tmp_path / "talker", *QUICK, "--data", data, "--out", out, "--steps", 2)
    assert 'form = "dialogue"' in (out / "recipe.toml").read_text()
    assert (out / "task.json").read_text() == (tmp_path / "talker" / "task.json").read_text()
    assert isinstance(regard.load(out).converse("c e", max_new_tokens=3).value, str)


@pytest.mark.parametrize("method", ["reward", "ipo", "grpo"])
def test_resumed_equals_uninterrupted(
    method: str, model: Path, pairs: Path, tmp_path: Path, stop: list[int]
) -> None:
    reward = {"objective": {"reward": "share:a", "group": 3, "max_new_tokens": 4}}
    settings = {
        "model": str(model), "data": str(pairs), "batch": {"size": 8, "grad_accum": 2},
        "budget": {"steps": 8}, "optimizer": {"lr": 0.01}, "validation": {"every": 3},
        "engine": {"precision": "fp32"}, **(reward if method == "grpo" else {}),
    }  # fmt: skip
    run(recipe_for(method, settings), tmp_path / "whole", display="silent")
    stop += [8 + 2, 8 + 5]
    summary = run(recipe_for(method, settings), tmp_path / "parts", display="silent")
    while summary["outcome"] == "interrupted":
        summary = run(Recipe(), tmp_path / "parts", resume=True, display="silent")
    assert not stop
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")
    assert figures(tmp_path / "whole") == figures(tmp_path / "parts")


def test_a_token_that_the_model_lacked_is_the_start_s_too(pairs: Path, tmp_path: Path) -> None:
    """A tokenizer without an end gets one, and the model a row for it; so does the start."""
    few = tokenizer(("pad", "unk"))
    place = gpt(tmp_path / "gpt", width=16, layers=1, vocab_size=len(few))
    few.save(place)
    settings = {"model": str(place), "data": str(pairs), "budget": {"steps": 1},
                "optimizer": {"lr": 0.0}, "engine": {"precision": "fp32"}}  # fmt: skip
    summary = run(recipe_for("dpo", settings), tmp_path / "run", display="silent")
    assert summary["valid"]["drift"] == summary["valid"]["margin"] == 0.0
    assert regard.load(tmp_path / "run").config.vocab_size == len(few) + 1


def test_a_run_goes_on_only_beside_the_same_models(
    pairs: Path, tmp_path: Path, stop: list[int]
) -> None:
    """What the start was is in no checkpoint."""
    place = gpt(tmp_path / "gpt", width=16, layers=1, context=32)
    settings = {"model": str(place), "data": str(pairs), "budget": {"steps": 4},
                "engine": {"precision": "fp32"}}  # fmt: skip
    stop.append(2)
    summary = run(recipe_for("dpo", settings), tmp_path / "run", display="silent")
    assert summary["outcome"] != "done"
    weights = (place / "model.safetensors").read_bytes()
    gpt(place, width=16, layers=1, context=32, init_std=0.03)
    with refuses(InputError, place, "changed"):
        run(Recipe(), tmp_path / "run", resume=True, display="silent")
    (place / "model.safetensors").write_bytes(weights)
    assert run(Recipe(), tmp_path / "run", resume=True, display="silent")["outcome"] == "done"


def test_a_plan_writes_nothing(model: Path, pairs: Path, tmp_path: Path) -> None:
    result = call("align", model, "--data", pairs, "--out", tmp_path / "run", "--dry-run")
    assert result.exit_code == 0 and 'name = "prefer"' in result.stdout
    assert not (tmp_path / "run").exists()


def test_memory_is_needed_for_the_start_as_well(
    model: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in small numbers needs as much as its files hold."""
    shrunk = extend(regard.load(model).model, "int8")
    small = save(shrunk, tmp_path / "small", TOKENIZER)

    def needed(*more: object) -> int:
        words = ("--data", pairs, "--out", "run", "--dry-run", "--json", *more)
        return int(succeeded("align", model, *words)["memory_needed"])

    both, less = needed(), needed(f"objective.reference={small}")
    monkeypatch.setattr(Prefer, "auxiliary_models", lambda self: [])
    alone = needed()
    assert both - alone == 4 * shrunk.parameter_count()
    assert less - alone == (small / "model.safetensors").stat().st_size


# --- refusals ---------------------------------------------------------------------------------


def refusal(*arguments: object) -> BaseException:
    result = call(*arguments)
    assert result.exception is not None and result.stdout == ""
    return result.exception


def test_refusals(model: Path, judge: Path, pairs: Path, tmp_path: Path) -> None:
    bert = save(model_of("bert", {"masked": 0}), tmp_path / "bert", TOKENIZER)
    long = write(tmp_path / "long.jsonl", [{"prompt": "a", "chosen": "b " * 40, "rejected": "c"}])
    new = ("--out", tmp_path / "new", "--quiet")
    cases: list[tuple[tuple[object, ...], type[Exception], str]] = [
        ((model, *new), ConfigError, "--data is missing"),
        ((model, "--data", pairs), ConfigError, "--out is missing"),
        ((model, "--data", pairs, *new, "--method", "ppo"), UnknownName, "--method 'ppo'"),
        ((model, "--data", pairs, *new, "--reward", "distinct"), ConfigError, "does not use"),
        ((model, "--data", pairs, *new, "--method", "reward", "--beta", 1), ConfigError, "--beta"),
        ((model, "--data", pairs, *new, "--method", "grpo"), ConfigError, "no reward was given"),
        (("gpt2", "--data", pairs, *new), ConfigError, "is no model directory"),
        ((bert, "--data", pairs, *new), ConfigError, "these can: gpt, transformer-xl"),
        ((judge, "--data", pairs, *new), ConfigError, "is a reward model"),
        ((model, "--data", long, *new, "examples.valid_fraction=0"), InputError, "all 1 pairs"),
        ((model, "--data", pairs, *new, "--field", "prompt=question"), InputError, "'question'"),
        ((model, "--data", pairs, "--out", model, "--quiet"), ConfigError, "exists already"),
        ((model, "--data", pairs, *new, "batch.order=streams"), ConfigError, "batch.order"),
        ((model, "--data", pairs, *new, "--epochs", -1), ConfigError, "budget.epochs is -1"),
        (("--resume", model, "--beta", 2), ConfigError, "--beta is given beside --resume"),
        (("--resume", model, "optimizer.lr=1"), ConfigError, "optimizer.lr is given beside"),
        (("--resume", model, "--seed", 0), ConfigError, "--seed is given beside --resume"),
    ]
    for arguments, kind, message in cases:
        error = refusal("align", *arguments)
        assert isinstance(error, kind) and message in str(error), (arguments, error)
        assert not (tmp_path / "new" / "recipe.toml").exists()
    with refuses(ConfigError, model, "reward model"):
        regard.load(model).reward("a", "b")
    recipe = make({"model": str(model), "data": str(pairs), "examples": {"task": "prefer"}})
    with refuses(ConfigError, "regard align"):
        finetune(recipe, tmp_path / "new", display="silent")
    unfit: list[tuple[dict[str, Any], str]] = [
        ({"engine": {"parallel": "fsdp"}}, "ddp"),
        ({"robust": {"neftune": 5.0}}, "neftune"),
        ({"augment": {"methods": ["swap"]}}, "augment"),
    ]
    for changes, part in unfit:
        with refuses(ConfigError, part):
            run(recipe_for("grpo", {"model": str(model)}, changes), tmp_path / "new")


def test_every_method_has_what_a_recipe_needs() -> None:
    for method in METHODS:
        recipe = recipe_for(method)
        assert recipe.examples.task == "prefer" and recipe.budget.epochs
        assert recipe.optimizer.lr > 0
        assert recipe_for(method, {"budget": {"steps": 3}}).budget.epochs is None


# --- the data ---------------------------------------------------------------------------------


def test_what_is_wrong_is_named_line_by_line(model: Path, tmp_path: Path) -> None:
    good = {"prompt": "a", "chosen": "b", "rejected": "c"}
    lines: list[dict[str, Any]] = [
        good,
        {"prompt": "a", "chosen": "b", "rejected": "b "},
        {"prompt": "a", "chosen": " ", "rejected": "b"},
        {"prompt": "a", "chosen": "b"},
        good,
        {"prompt": "a", "chosen": "c", "rejected": "b"},
        {"prompt": ["a", {"role": "user", "content": "b"}], "chosen": ["c"], "rejected": "d"},
        {"prompt": "", "chosen": "d", "rejected": "e"},
        {"prompt": 3, "chosen": "d", "rejected": "e"},
        {"prompt": "a", "chosen": ["d", "e"], "rejected": "e"},
        {"prompt": "a " * 40, "chosen": "d", "rejected": "e"},
    ]
    file = write(tmp_path / "pairs.jsonl", lines)
    result = call("check", file, "--task", "prefer", "--model", model, "--json")
    report = json.loads(result.stdout)
    named = [(p["line"], p["kind"], p["severity"]) for p in report["problems"]]
    assert sorted(named) == [
        (2, "equal-replies", "error"), (3, "empty-text", "error"), (4, "missing-field", "error"),
        (5, "duplicate-text", "warning"), (6, "contradiction", "warning"),
        (9, "wrong-type", "error"), (10, "wrong-type", "error"), (11, "too-long", "warning"),
    ]  # fmt: skip
    assert all(p["file"] == str(file) for p in report["problems"])
    assert result.exit_code == 2 and report["examples"] == report["labeled"] == 6
    assert call("check", file, "--task", "prefer").stdout.count("equal-replies") == 1


def test_formats_and_names_of_fields(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text('prompt,chosen,rejected\n"a, b",c,d\n,e,f\n')
    (tmp_path / "bare.tsv").write_text("a, b\tc\td\n\te\tf\n")
    (tmp_path / "other.tsv").write_text("ask\tyes\tno\na\tb\tc\n")
    (tmp_path / "prompts.txt").write_text("a b\nc\n")
    fields = {"prompt": "ask", "chosen": "yes", "rejected": "no"}
    options: dict[str, Any]
    for name, options, expected in (
        ("pairs.csv", {}, [("a, b", "c", "d"), ("", "e", "f")]),
        ("bare.tsv", {}, [("a, b", "c", "d"), ("", "e", "f")]),
        ("other.tsv", {"fields": fields}, [("a", "b", "c")]),
        ("prompts.txt", {}, [("a b", None, None), ("c", None, None)]),
    ):
        examples: Any = read(tmp_path / name, "prefer", **options)
        assert [(e.prompt, e.chosen, e.rejected) for e in examples] == expected
    turns = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    replies = {"chosen": [{"role": "assistant", "content": "c"}], "rejected": "d"}
    chat = write(tmp_path / "chat.jsonl", [{"prompt": turns, **replies}])
    examples = read(chat, "prefer")
    assert (examples[0].prompt, examples[0].roles) == (("a", "b"), ("system", "user"))
    assert (examples[0].chosen, examples[0].rejected) == ("c", "d")


def test_prompts_that_both_files_hold_are_told(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    valid = write(tmp_path / "valid.jsonl", [{"prompt": "a", "chosen": "d", "rejected": "e"}])
    report = checked(str(valid), "prefer", against=str(train))
    assert [p.kind for p in report.problems.kept] == ["leaked-text"]


def test_pairs_of_one_prompt_validate_together(tmp_path: Path) -> None:
    from regard.tasks.corpus import divide

    examples = [Preference(f"prompt {i // 5}", f"{i}", "x") for i in range(100)]
    validating = divide(examples, 0.2, 0, 0)
    assert 10 <= sum(validating) <= 30
    for i in range(0, 100, 5):
        assert len(set(validating[i : i + 5])) == 1
