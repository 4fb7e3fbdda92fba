"""What scripts/torture.py interrupts: small versions of the commands that write, each of which can
be started again after it was stopped and has an end that can be compared bit by bit."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.cli.main import main

WORDS = "the a cat dog sun moon house sat ran is was on to and red blue big small old new".split()
EXACT = ("engine.precision=fp32", "engine.compile=no", "batch.size=4")
SMALL = ("shape.layers=2", "shape.width=16", "shape.heads=2", "shape.ffn_size=32",
         "batch.seq_len=32")  # fmt: skip
OFTEN = ("checkpoint.every=1", "validation.every=3")
CHECKED = ("model.safetensors", "config.json", "tokenizer.json", "task.json")


@dataclass(frozen=True)
class Scene:
    """`go(inputs, work)` starts or resumes and returns an exit code. `begin` fills `work` before
    the first start. After a kill, a scene that is `whole` has the old result or the new one."""

    name: str
    go: Callable[[Path, Path], int]
    digest: Callable[[Path], str]
    begin: Callable[[Path, Path], None] = lambda inputs, work: None
    whole: bool = False


def sentences(dice: random.Random, count: int) -> str:
    rows = (" ".join(dice.choice(WORDS) for _ in range(dice.randint(4, 9))) for _ in range(count))
    return " ".join(f"{row}." for row in rows)


def make_inputs(inputs: Path) -> None:
    """Texts, examples and models that the scenes read."""
    inputs.mkdir(parents=True, exist_ok=True)
    dice = random.Random(1)
    for name in ("one", "two"):
        text = "\n\n".join(sentences(dice, dice.randint(3, 6)) for _ in range(60))
        (inputs / f"{name}.txt").write_text(text, encoding="utf-8")
    rows = [
        {"text": f"{sentences(dice, 1)} {('red', 'blue')[i % 2]}", "label": ("good", "bad")[i % 2]}
        for i in range(24)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (inputs / "rows.jsonl").write_text(lines, encoding="utf-8")
    run("prepare", inputs / "one.txt", "--out", inputs / "data", "--tokenizer", "words")
    for family, steps in (("gpt", 2), ("bert", 2)):
        train(inputs, inputs / f"{family}-run", family, steps)
    finetune(inputs, inputs / "tuned")


def run(*words: object) -> int:
    return main([str(word) for word in words])


def train(inputs: Path, out: Path, family: str = "gpt", steps: int = 5) -> int:
    if (out / "recipe.toml").is_file():
        return run("train", "--resume", out, "--quiet")
    return run("train", family, inputs / "data", *SMALL, *EXACT, *OFTEN, "--out", out, "--steps",
               steps, "--quiet")  # fmt: skip


def finetune(inputs: Path, out: Path) -> int:
    if (out / "finetune.json").is_file() or (out / "recipe.toml").is_file():
        return run("finetune", "--resume", out, "--quiet")
    return run("finetune", inputs / "bert-run", "--task", "classify", "--data",
               inputs / "rows.jsonl", "--out", out, "--steps", 4, *EXACT, "checkpoint.every=1",
               "--quiet")  # fmt: skip


def distill(inputs: Path, out: Path) -> int:
    if (out / "first" / "distill.json").is_file():
        return run("distill", "--resume", out, "--quiet")
    return run("distill", inputs / "tuned", "--student", "layers=1", "--data",
               inputs / "rows.jsonl", "--out", out, "--steps", 3, *EXACT, "checkpoint.every=1",
               "--quiet")  # fmt: skip


def compare(inputs: Path, out: Path) -> int:
    if (out / "compare.json").is_file():
        return run("compare", "--resume", out, "--quiet")
    return run("compare", inputs / "one.txt", "--models", "gpt,lstm", "--budget", "1200tok",
               "--out", out, "--size", "tiny", "--seq-len", 32, "--batch-size", 8, "shape.width=32",
               "checkpoint.every=1", "--quiet")  # fmt: skip


def prepare(inputs: Path, work: Path) -> int:
    return run("prepare", inputs / "two.txt", "--out", work / "data", "--tokenizer", "words",
               "--force", "--quiet")  # fmt: skip


def prepare_first(inputs: Path, work: Path) -> None:
    shutil.copytree(inputs / "data", work / "data")


def save(inputs: Path, work: Path) -> int:
    import regard

    regard.load(inputs / "bert-run").save(work / "model")
    return 0


def save_first(inputs: Path, work: Path) -> None:
    shutil.copytree(inputs / "tuned", work / "model")


# -- what must be the same


def digest_of(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        if file.is_file():
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def run_digest(run_directory: Path) -> str:
    """The model, and the metrics without the clock."""
    steps = []
    for line in (run_directory / "metrics.jsonl").read_text().splitlines():
        steps.append({k: v for k, v in json.loads(line).items() if "second" not in k})
    own = digest_of(*(run_directory / name for name in CHECKED))
    return hashlib.sha256((own + json.dumps(steps)).encode()).hexdigest()


def data_digest(directory: Path) -> str:
    return digest_of(*sorted(directory.iterdir()))


def model_digest(directory: Path) -> str:
    return digest_of(*(directory / name for name in CHECKED))


def compare_digest(out: Path) -> str:
    runs = [run_digest(place) for place in sorted((out / "runs").iterdir())]
    return hashlib.sha256("".join([data_digest(out / "data"), *runs]).encode()).hexdigest()


def in_run(go: Callable[[Path, Path], int]) -> Callable[[Path, Path], int]:
    return lambda inputs, work: go(inputs, work / "run")


SCENES = {
    scene.name: scene
    for scene in (
        Scene("prepare", prepare, lambda w: data_digest(w / "data"), prepare_first, whole=True),
        Scene("save", save, lambda w: model_digest(w / "model"), save_first, whole=True),
        Scene("train", in_run(train), lambda w: run_digest(w / "run")),
        Scene("finetune", in_run(finetune), lambda w: run_digest(w / "run")),
        Scene("distill", in_run(distill), lambda w: run_digest(w / "run")),
        Scene("compare", in_run(compare), lambda w: compare_digest(w / "run")),
    )
}


def left_behind(work: Path) -> list[str]:
    """Returns hidden files and directories: no command leaves one when it has ended."""
    return sorted(str(path.relative_to(work)) for path in work.rglob(".*"))
