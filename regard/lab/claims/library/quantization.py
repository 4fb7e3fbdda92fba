"""Weights of eight bits."""

from __future__ import annotations

from pathlib import Path

from regard.lab.claims.engine.claim import Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Room, seconds
from regard.lab.claims.engine.finetuning import GPT, TUNING, Tuned
from regard.lab.claims.engine.labelled_texts import Files, moods
from regard.lab.claims.engine.rules import Alike, All, Less, Ratio
from regard.training.recipe import Table

LARGER: Table = {"vocabulary": 8000, "width": 768, "layers": 4, "heads": 12, "hidden": 3072,
          "context": 128}  # fmt: skip


def costs(small: bool, seed: int) -> dict[str, float]:
    """Of a model large enough that its weights are what is waited for: bytes, and seconds a token
    when it writes one text.
    """
    import torch

    from regard.core.seeding import seed_torch
    from regard.formats.directory import Loaded
    from regard.methods.smaller import task_for
    from regard.models.extensions import extend
    from regard.models.gpt import GPT as Model
    from regard.models.gpt import GPTConfig

    with torch.random.fork_rng(devices=[]):
        seed_torch(seed, "quantization")
        model = Model(GPTConfig(**LARGER)).initialise().eval()
    if small:
        extend(model, "int8", {"kind": "weight", "exclude": []})
    held = [*model.parameters(), *model.buffers()]
    _, tokens, write = task_for(Loaded(model))
    return {
        "bytes": float(sum(x.numel() * x.element_size() for x in held)),
        "seconds a token": seconds(write) / tokens,
    }


def made_small(run: Path, files: Files, cell: Cell, room: Room) -> dict[str, float]:
    from regard.evaluation.test import Plan as Testing
    from regard.evaluation.test import examine
    from regard.methods.quantize.run import Plan, quantize

    small = cell.arm == "int8"
    found = costs(small, cell.seed)
    if small:
        quantize(str(run), run.with_name("int8"), Plan(repeats=0))
        tested = Testing(out=run.with_name("test"), resamples=1)
        figures = examine(str(run.with_name("int8")), [str(files["test"])], tested)["figures"]
        right = float(figures["accuracy"])
        found |= {"accuracy": right, "error": 1.0 - right}
    return found


CLAIM = Claim(
    name="quantization",
    statement=Said(
        "With weights of eight bits a model is faster on a CPU, takes about a quarter of the "
        "memory and scores the same.",
        "权重用八位整数后，模型在 CPU 上更快，内存约为四分之一，得分不变。",
    ),
    source="CTranslate2, README",
    setting=Said(
        "The score is that of a fine-tuned GPT of four layers and width 64, before and after; "
        "bytes and seconds are those of one of width 768 that writes one text, its weights random.",
        "得分取自微调后的四层、宽 64 的 GPT，量化前后相比；字节与秒数取自宽 768、权重随机、"
        "逐词生成一段文本的 GPT。",
    ),
    arms=("fp32", "int8"),
    experiment=Tuned(
        GPT, moods, TUNING, {"fp32": {}, "int8": {}}, labels=256, steps=150, look=made_small
    ),
    rule=All((
        Less("seconds a token", "int8", "fp32"),
        Ratio("bytes", "int8", "fp32", most=0.35),
        Alike("error", "int8", "fp32", within=0.01),
    )),
    charts=(
        Chart("seconds a token", Said("seconds a token", "每词元秒数")),
        Chart("bytes", Said("bytes", "字节")),
        Chart("error", Said("share of wrong answers", "错误率")),
    ),
    minutes=3,
    timed=True,
)  # fmt: skip
