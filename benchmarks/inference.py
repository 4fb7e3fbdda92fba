"""GPT-2 124M (random weights) continues texts: ours in five number formats, compared with peers.

    python benchmarks/inference.py [--repeats 5] [--llama-bench DIR/llama-bench] [--json]
    python benchmarks/inference.py --only "ours, int8" "llama.cpp, Q8_0" --llama-bench …
    python benchmarks/inference.py --pair MODEL SMALL_MODEL    # drafts of models that were trained
    python benchmarks/inference.py --tiny

Greedy decoding of 128 new tokens after a prompt of 16, with one text and with eight at once, and
reading a prompt of 512 tokens, in two threads. Every side is a process of its own with the same
weights; they take turns, and the medians count. The peers are Hugging Face transformers (fp32,
bf16), CTranslate2 (int8, by its own converter) and llama.cpp (fp32, bf16, Q8_0, Q4_K_M, made by its
own program; llama-batched-bench and llama-quantize must lie beside llama-bench). A peer that is not
installed is left out, and the page says so.

Then the same model continues one text with and without a draft: a prompt that repeats itself with
draft="lookup", and a model with a draft of its first layers (random weights, which such a draft
guesses well; --pair measures two trained models). The gain depends on how many tokens one call of
the model yields, which stands beside it.

What the machine can do is measured in the same run: the bytes per second that two threads read, and
the operations per second of matrix products. A new token has to read every weight once, so bytes
per second / bytes of the weights is the limit with one text. The section is "decoding" of
docs/speed.md and its Chinese sister.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from inference_drafts import drafted
from inference_sides import NEEDED, SIDES, THREADS, build, made, there
from measure import gemm_peak, reading_rate
from page import goal, once, put, table

from regard.core.seeding import keyed

ROOT = Path(__file__).resolve().parent.parent
CASES = {"1 text": (1, 16, 128), "8 texts": (8, 16, 128), "prompt of 512": (1, 512, 1)}
TINY = {"1 text": (1, 16, 8), "8 texts": (8, 16, 8), "prompt of 512": (1, 512, 1)}
# ours, case, peers ("": all others), the least ratio to the best of them
GOALS = (
    ("ours, int8", "1 text", ("llama.cpp, Q8_0",), 1.25),
    ("ours, int4", "1 text", ("llama.cpp, Q4_K_M",), 1.0),
    ("ours, fp32", "1 text", ("Hugging Face, fp32",), 1.5),
    ("ours, bf16", "1 text", ("llama.cpp, bf16",), 1.0),
    ("ours, int8", "8 texts", (), 2.0),
    ("ours, int8 dynamic", "prompt of 512", (), 1.0),
)
WORDS = {
    "ours, fp32": "我们，fp32", "ours, bf16": "我们，bf16", "ours, int8": "我们，int8",
    "ours, int8 dynamic": "我们，int8 dynamic", "ours, int4": "我们，int4",
    "1 text": "词元/秒，1 条文本",
    "8 texts": "词元/秒，8 条文本", "prompt of 512": "词元/秒，512 个词元的提示",
    "of the limit": "占极限", "goal": "目标", "the machine in this run": "本次运行中的机器",
    "not installed, not measured": "没有安装，未测量",
    "draft": "草稿", "tokens/s with it": "使用时的词元/秒", "without": "不使用", "gain": "增益",
    "tokens a call": "每次调用的词元", "lookup": "在文本中查找", "the first layers": "前几层",
    "a small model": "小模型",
}  # fmt: skip
Say = Callable[[str], str]
SHARE = 0.6  # of the limit that reading the weights sets, with one text in int8


class Side:
    """A process that continues texts on request, and reports how long it took."""

    def __init__(self, name: str, model: Path, tools: Path | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        target = (theirs, name, model, tools)
        self.process = context.Process(target=serve, args=target, daemon=True)
        self.process.start()
        theirs.close()
        self.name, self.bytes = name, self.answer()

    def ask(self, prompts: list[list[int]], new: int) -> tuple[float, list[list[int]]]:
        self.pipe.send((prompts, new))
        seconds, ids = self.answer()
        return seconds, ids

    def answer(self) -> Any:
        try:
            return self.pipe.recv()
        except EOFError:
            raise SystemExit(f"{self.name}: its process ended, see above") from None

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


def serve(pipe: Any, name: str, model: Path, tools: Path | None) -> None:
    measure, size = build(name, model, tools)
    pipe.send(size)
    while True:
        try:
            prompts, new = pipe.recv()
        except EOFError:
            return
        pipe.send(measure(prompts, new))


def measured(
    sides: list[str], repeats: int, tiny: bool, tools: Path | None, pair: list[Path]
) -> dict[str, Any]:
    """Returns the tokens per second of every side in every case, and what the machine can do."""
    import torch

    torch.set_num_threads(THREADS)
    cases = TINY if tiny else CASES
    machine = {"bytes": reading_rate(THREADS), "fp32": gemm_peak(torch.float32),
               "bf16": gemm_peak(torch.bfloat16)}  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        model = made(Path(place), tiny, tools)
        running = []
        for name in sides:
            print(f"{name} …", file=sys.stderr, flush=True)
            running.append(Side(name, model, tools))
        by_side: dict[str, Any] = {
            side.name: {"bytes": side.bytes, "seconds": {}, "rate": {}} for side in running
        }
        for case, (count, before, new) in cases.items():
            print(f"{case} …", file=sys.stderr, flush=True)
            dice = keyed(0, "benchmark", "inference")
            texts = dice.integers(900, size=(count, before)).tolist()
            times: dict[str, list[float]] = {name: [] for name in sides}
            for turn in range(repeats + 1):  # the first one is a warmup and is not counted
                for side in running:
                    seconds, ids = side.ask(texts, new)
                    if ids:
                        by_side[side.name].setdefault("ids", ids[0])
                    if turn:
                        times[side.name].append(seconds)
            tokens = before if new == 1 else count * new
            for name, durations in times.items():
                by_side[name]["seconds"][case] = durations
                by_side[name]["rate"][case] = tokens / statistics.median(durations)
        for side in running:
            side.close()
        print("drafts …", file=sys.stderr, flush=True)
        drafts = drafted(model, pair, repeats, tiny)
    return {"sides": by_side, "machine": machine, "drafts": drafts}


def judged(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns every goal that can be judged, with the ratio to the best of its peers."""
    sides, rows = report["sides"], []
    for ours, case, names, least in GOALS:
        peers = [name for name in names or NEEDED if name in sides]
        if ours in sides and peers:
            best = max(peers, key=lambda name: sides[name]["rate"][case])
            ratio = sides[ours]["rate"][case] / sides[best]["rate"][case]
            rows.append({"ours": ours, "case": case, "peer": best, "ratio": ratio, "goal": least})
    return rows


def limit_of(report: dict[str, Any], name: str, case: str) -> float:
    """Returns the most tokens per second that the machine allows: with one text by reading the
    weights, else by the products of GPT-2's 124 million weights."""
    machine, size = report["machine"], report["sides"][name]["bytes"]
    count = CASES[case][0] if case != "prompt of 512" else 512
    by_bytes = machine["bytes"] / size * count
    operations = machine["fp32" if "fp32" in name else "bf16"]
    return float(min(by_bytes, operations / (2 * 124e6)))


def in_chinese(words: str) -> str:
    return WORDS.get(words, words)


def section(report: dict[str, Any], say: Say) -> str:
    """Returns the table of all sides, what the machine can do, and the goals."""
    sides, machine, rows = report["sides"], report["machine"], []
    for name, row in sides.items():
        cells = [say(name), f"{row['bytes'] / 1e6:,.0f}"]
        for case, rate in row["rate"].items():
            cells += [f"{rate:,.1f}", f"{rate / limit_of(report, name, case):.0%}"]
        rows.append(cells)
    heads = ["", "MB", *(head for case in CASES for head in (say(case), say("of the limit")))]
    can = [f"{machine['bytes'] / 1e9:.1f} GB/s", f"fp32 {machine['fp32'] / 1e9:,.0f} GFLOP/s",
           f"bf16 {machine['bf16'] / 1e9:,.0f} GFLOP/s"]  # fmt: skip
    lines = [f"* {say('the machine in this run')}: {', '.join(can)}"]
    for row in judged(report):
        ratio = goal(f"{row['ratio']:.2f}", row["ratio"] >= row["goal"])
        words = f"{say(row['ours'])} / {row['peer']}, {say(row['case'])}"
        lines.append(f"* {words}: {ratio} ({say('goal')} {row['goal']:g})")
    if "ours, int8" in sides:
        share = sides["ours, int8"]["rate"]["1 text"] / limit_of(report, "ours, int8", "1 text")
        reached = goal(f"{share:.0%}", share >= SHARE)
        words = f"{say('ours, int8')}, {say('1 text')}, {say('of the limit')}"
        lines.append(f"* {words}: {reached} ({say('goal')} {SHARE:.0%})")
    if missing := [name for name in NEEDED if name not in sides]:
        lines.append(f"* {say('not installed, not measured')}: {'; '.join(missing)}")
    return "\n\n".join([table(heads, rows), "\n".join(lines), drafts_of(report, say)])


def drafts_of(report: dict[str, Any], say: Say) -> str:
    """Returns the table of what drafts gain."""
    heads = ["draft", "without", "tokens/s with it", "gain", "tokens a call"]
    rows = [
        [say(row["draft"]), f"{row['without']:,.1f}", f"{row['with']:,.1f}",
         f"{row['with'] / row['without']:.2f}", f"{row['tokens_a_call']:.1f}"]
        for row in report["drafts"]
    ]  # fmt: skip
    return table([say(head) for head in heads], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/inference"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help=f"some of: {'; '.join(SIDES)}")
    parser.add_argument("--llama-bench", type=Path, help="the program llama-bench of llama.cpp")
    parser.add_argument("--pair", nargs=2, type=Path, default=[], metavar=("MODEL", "DRAFT"),
                        help="two trained models of one tokenizer, to measure drafts")  # fmt: skip
    parser.add_argument("--tiny", action="store_true", help="a very small model: to try it")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "speed.md")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    unknown = [name for name in options.only if name not in SIDES]
    if unknown:
        parser.error(f"unknown side {unknown[0]!r}; known are: {'; '.join(SIDES)}")
    tools = options.llama_bench.resolve().parent if options.llama_bench else None
    wanted = options.only or SIDES
    sides = [name for name in SIDES if there(name, tools) and name in wanted]
    settings = {"sides": sides, "repeats": options.repeats, "tiny": options.tiny,
                "threads": THREADS, "cases": CASES, "pair": [*map(str, options.pair)]}  # fmt: skip
    name = "tiny" if options.tiny else "some" if options.only else "all"
    report = once(
        options.out.resolve() / f"{name}.json",
        lambda: measured(sides, options.repeats, options.tiny, tools, options.pair),
        settings,
    )
    if name == "all":
        for page, say in ((options.page, str), (options.page.with_suffix(".zh.md"), in_chinese)):
            put("decoding", section(report, say), page)
    shown = report | {"goals": judged(report)}
    print(json.dumps(shown, indent=1) if options.json else section(report, str))


if __name__ == "__main__":
    main()
