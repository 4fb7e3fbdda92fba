"""Writes docs/speed.md and docs/speed.zh.md from the files of the benchmarks.

    python scripts/speed.py --results results

Reads models.json (benchmarks/models.py), encode.json (encode.py), translating.json
(translate_speed.py) and curves.json (curves.py) in that directory, each written by `--json`. A
section whose file is missing keeps what the page says; the text around the sections is the page's
own. The section "decoding" is written by benchmarks/inference.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from page import put, table

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"en": ROOT / "docs" / "speed.md", "zh": ROOT / "docs" / "speed.zh.md"}
WORDS = {
    "model": "模型", "tokens/s": "词元/秒", "theirs": "对照", "ratio": "比值", "goal": "目标",
    "of peak": "占峰值", "MiB": "MiB", "their MiB": "对照 MiB", "precision": "精度",
    "batches": "批次", "ours": "我们", "decoding": "解码", "sentences/s": "句/秒",
    "same output": "输出相同", "curve": "曲线", "from … to": "范围", "time": "时间",
    "theory": "理论", "memory": "内存", "mixed": "混合长度", "sorted": "已排序", "1": "单条",
    "shape": "形状", "greedy": "贪心", "beam 4": "4 束", "missed": "未达到", "or": "或",
    "decoding-context": "每个词元的解码时间随上下文", "training-length": "训练随长度",
    "training-batch": "训练随批次", "training-layers": "训练随层数",
    "longformer-length": "Longformer 的训练随长度",
}  # fmt: skip
CURVES = {
    "decoding-context": "decoding, per token, by context",
    "training-length": "training, by length", "training-batch": "training, by batch",
    "training-layers": "training, by layers",
    "longformer-length": "training of a Longformer, by length",
}  # fmt: skip
Say = Callable[[str], str]


def in_language(language: str) -> Say:
    return (lambda word: word) if language == "en" else (lambda word: WORDS.get(word, word))


def judged(row: dict[str, Any], say: Say) -> str:
    """Returns the ratio, marked if its goal was missed."""
    if "ratio" not in row:
        return "–"
    return f"{row['ratio']:.2f}" + missed(row["reached"], say)


def missed(reached: bool, say: Say) -> str:
    return "" if reached else f" ({say('missed')})"


def training(data: dict[str, Any], say: Say) -> str:
    heads = ["model", "precision", "tokens/s", "theirs", "ratio", "goal", "of peak", "MiB",
             "their MiB"]  # fmt: skip
    lines = []
    for row in data["rows"]:
        if row["kind"] != "train":
            continue
        share = {"fp32": 85, "bf16": 78}[row["precision"]]
        special = row["model"] in ("xlnet", "longformer")
        goal = f"{row.get('goal')}" + ("" if special else f" {say('or')} {share}%")
        lines.append([
            row["model"], row["precision"], f"{row['ours_tokens_per_second']:,.0f}",
            f"{row['peer_tokens_per_second']:,.0f}" if "ratio" in row else "–",
            judged(row, say), goal if "ratio" in row else "–", f"{row['share_of_peak']:.0%}",
            f"{row['ours_peak_mib']:,.0f}" + missed(row.get("memory_reached", True), say),
            f"{row['peer_peak_mib']:,.0f}" if "peer_peak_mib" in row else "–",
        ])  # fmt: skip
    return table([say(head) for head in heads], lines)


def encoders(data: dict[str, Any], say: Say) -> str:
    peers = ("onnx", "openvino", "ctranslate2")
    heads = ["model", "precision", "batches", "ours", *peers, "ratio", "goal"]
    lines = []
    for row in data["rows"]:
        speeds = row["tokens_per_second"]
        shown = [f"{speeds[side]:,.0f}" if side in speeds else "–" for side in ("ours", *peers)]
        goal = f"{row['goal']}" if "ratio" in row else "–"
        lines.append([row["model"], row["precision"], say(row["batch"]), *shown,
                      judged(row, say), goal])  # fmt: skip
    return table([say(head) for head in heads], lines)


def translation(data: dict[str, Any], say: Say) -> str:
    heads = [
        "shape",
        "decoding",
        "ours",
        "BLEU",
        "ctranslate2",
        "BLEU",
        "same output",
        "ratio",
        "goal",
    ]
    lines = []
    for row in data["rows"]:
        sides = [row[side] for side in ("ours", "ctranslate2")]
        numbers = [
            text
            for side in sides
            for text in (f"{side['sentences_per_second']:,.1f}", f"{side['bleu']:.2f}")
        ]
        named = [row.get("shape", "marian"), say(row["decoding"])]
        lines.append([*named, *numbers, f"{row['same']:.0%}", judged(row, say), f"{row['goal']}"])
    return table([say(head) for head in heads], lines)


def curves(data: dict[str, Any], say: Say) -> str:
    heads = ["curve", "from … to", "time", "theory", "memory", "theory"]
    lines = []
    for name, row in data.items():
        slopes = [
            f"{row[key]:.2f}" if key in row else "–"
            for key in ("time_slope", "time_theory", "memory_slope", "memory_theory")
        ]
        title = CURVES[name] if say("or") == "or" else say(name)
        lines.append([title, f"{row['sizes'][0]:,} … {row['sizes'][-1]:,}", *slopes])
    return table([say(head) for head in heads], lines)


SECTIONS: dict[str, tuple[str, Callable[[dict[str, Any], Say], str]]] = {
    "training": ("models.json", training),
    "encoders": ("encode.json", encoders),
    "translation": ("translating.json", translation),
    "curves": ("curves.json", curves),
}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    options = parser.parse_args(words)
    for section, (name, write) in SECTIONS.items():
        file = options.results / name
        if not file.is_file():
            print(f"{file} is missing: the section {section} stays as it is", file=sys.stderr)
            continue
        data = json.loads(file.read_text(encoding="utf-8"))
        for language, page in PAGES.items():
            put(section, write(data, in_language(language)), page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
