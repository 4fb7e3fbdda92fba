"""`regard train` as people use it: a fresh process, its output, its refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.cli.learn import RunOptions
from regard.cli.main import main
from tests.refusals import mentions
from tests.training.small import PLAIN, data

SHAPE = [f"shape.{name}={value}" for name, value in PLAIN.items()]
QUICK = [*SHAPE, "batch.seq_len=32", "batch.size=4", "engine.precision=fp32"]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def regard(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "regard", *map(str, words)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_from_nothing_to_a_model(where: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = regard("train", "gpt", where, *QUICK, "--out", out, "--steps", "4", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["outcome"] == "done" and facts["progress"]["step"] == 4
    assert facts["valid"]["bits_per_byte"] > 0
    assert "step 4 of 4" in done.stderr and "parameters" in done.stderr
    names = {file.name for file in out.iterdir()}
    assert {
        "model.safetensors",
        "recipe.toml",
        "metrics.jsonl",
        "report.html",
        "README.md",
    } <= names
    shown = json.loads(regard("info", out, "--json").stdout)
    assert shown["opens_in_transformers"] is True


def test_a_dry_run_writes_nothing(where: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = regard(
        "train", "bert", where, *QUICK, "--out", out, "--steps", "9", "--dry-run", "--json"
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["recipe"]["objective"]["name"] == "sentences"
    assert plan["recipe"]["budget"]["steps"] == 9 and plan["memory_needed"] > 0
    assert not out.exists()


NEW = "gpt {where} --out {run}"
QUICKLY = f"{NEW} {' '.join(QUICK)}"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("gpt {where}", "--out"),
        ("gpt --out {run}", "DATA"),
        ("gpt {none} --out {run}", "none, regard prepare"),
        ("gtp {where} --out {run}", "'gtp', 'gpt'"),
        (f"{NEW} optimizer.rat=1", "'optimizer.rat', 'optimizer.lr'"),
        (f"{NEW} objective.shfit=true", "objective.shfit, objective.shift"),
        (f"{NEW} shape.layres=2", "'layers'"),
        ("bert {where} --out {run} --objective causl", "'causl', 'causal'"),
        (f"{NEW} --size smal", "'smal', 'small'"),
        (f"{NEW} --size tiny --n_layer 2", "'shape.layers=N'"),
        (f"{NEW} --size tiny --dropout 0", "'shape.dropout=X'"),
        (f"{NEW} --size tiny --batch-size 0", "batch.size is 0"),
        (f"{NEW} --size tiny --batch-size -3", "batch.size is -3"),
        (f"{NEW} --size tiny --seq-len 0", "batch.seq_len is 0"),
        (f"{NEW} --size tiny --grad-accum 0", "batch.grad_accum is 0"),
        (f"{NEW} --size tiny --device nowhere", "engine.device, 'nowhere'"),
        (f"{NEW} --size tiny --precision fp16", "engine.precision, fp16"),
        (f"{NEW} --size tiny --schedule foo", "foo"),
        (f"{NEW} --size tiny --steps 0", "budget.steps is 0"),
        (f"{NEW} --steps 5 --epochs 1", "steps, epochs"),
        (f"{QUICKLY} --epochs -1", "budget.epochs is -1"),
        (f"{QUICKLY} batch.seq_len=99999", "tokens"),
        (f"{QUICKLY} batch.grad_accum=3", "batch.size, batch.grad_accum"),
        ("gpt {where} --out {where} --steps 5", "{where}, --out"),
        ("--resume {run}", "{run}, recipe.toml"),
        ("--resume {run} --seed 0", "--seed, --resume"),
        ("--resume {run} optimizer.lr=1", "optimizer.lr, --resume"),
        ("--resume {run} {where}", "data, --resume"),
        ("--resume {run} --steps 9 --dry-run", "--dry-run"),
        ("gpt3-175b {where} --out {run} --steps 5 batch.seq_len=32", "GB"),
    ],
)
def test_a_refused_run_says_why_and_leaves_nothing(
    words: str, named: str, where: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"where": where, "run": tmp_path / "run", "none": tmp_path / "none"}
    assert main(["train", *words.format(**places).split()]) == 2
    mentions(capsys.readouterr().err, named.format(**places).split(", "))
    assert not places["run"].exists()


def stopped(command: list[str], run: Path, lines: int, number: signal.Signals) -> int:
    """Starts it, and sends a signal once the run has written so many lines of metrics."""
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", *command], env=environment(), stderr=subprocess.PIPE
    )
    file = run / "metrics.jsonl"
    end = time.monotonic() + 240
    while not file.exists() or file.read_bytes().count(b"\n") < lines:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(number)
    _, output = process.communicate(timeout=120)
    if process.returncode:
        assert b"everything is saved" in output, output
    return process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_a_new_process_goes_on(
    number: signal.Signals, where: Path, tmp_path: Path
) -> None:
    words = ["train", "xlnet", str(where), "--size", "tiny", "--steps", "30"]
    words += ["batch.seq_len=32", "batch.size=8", "engine.precision=fp32"]
    assert regard(*words, "--out", tmp_path / "whole").returncode == 0
    code = stopped([*words, "--out", str(tmp_path / "parts")], tmp_path / "parts", 9, number)
    assert code == 130
    assert (tmp_path / "parts" / "model.safetensors").is_file()  # what there is can be used
    assert regard("train", "--resume", tmp_path / "parts").returncode == 0
    whole, parts = (tmp_path / n / "model.safetensors" for n in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()


MIXED = (
    'objective.parts=[{name="on", objective="causal", share=0.5}, '
    '{name="both", objective="prefix", share=0.5}]'
)
EVERY = [
    ("gpt", "causal", ()),
    ("transformer-xl", "recurrent", ()),
    ("transformer", "prefix", ()),
    ("longformer", "masked", ()),
    ("bert", "sentences", ()),
    ("xlnet", "permuted", ()),
    ("t5", "span", ()),
    ("t5", "pairs", ()),
    ("gpt", "mixture", (MIXED,)),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "objective", "more"), EVERY if os.environ.get("REGARD_ALL") else EVERY[:1]
)
def test_compiled_runs_go_on_too(
    family: str, objective: str, more: tuple[str, ...], where: Path, tmp_path: Path
) -> None:
    """One objective here, as compiling takes a minute; REGARD_ALL=1 takes all of them."""
    text = data(tmp_path / "pairs", kind="pairs") if objective == "pairs" else where
    words = ["train", family, str(text), "--size", "tiny", "--steps", "12", "shape.layers=1"]
    words += ["batch.seq_len=32", "batch.size=8", "engine.precision=fp32", "engine.compile=yes"]
    words += ["--objective", objective, *more]
    done = regard(*words, "--out", tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    stopped([*words, "--out", str(tmp_path / "parts")], tmp_path / "parts", 4, signal.SIGTERM)
    assert regard("train", "--resume", tmp_path / "parts").returncode == 0
    whole, parts = (tmp_path / n / "model.safetensors" for n in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()


@pytest.mark.slow
def test_going_on_with_a_model_on_other_text(where: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert regard("train", "gpt", where, *QUICK, "--out", first, "--steps", "4").returncode == 0
    other = data(tmp_path / "other", documents=30)
    words = ["batch.seq_len=32", "batch.size=4", "optimizer.lr=0.0", "--steps", "2"]
    done = regard("train", first, other, *words, "--out", second)
    assert done.returncode == 0, done.stderr
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    done = regard("train", first, other, "--out", tmp_path / "third", "batch.seq_len=64")
    assert done.returncode == 2 and "has learned 32 positions" in done.stderr


def test_an_option_overrules_a_key() -> None:
    recipe = RunOptions().recipe(["budget.steps=2", "seed=5"], {"budget": {"steps": 4}}, {})
    assert recipe.budget.steps == 4 and recipe.seed == 5
