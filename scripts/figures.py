"""Draws the pictures of the tutorial from the code that they show, in English and in Chinese.

    python scripts/figures.py [--out docs/figures] [--check]

Nothing is random and nothing is dated: a second run writes the same bytes. A picture with words has
a Chinese one of the same name in the directory zh; letters are measured in the font Noto Sans CJK
SC, which has to be installed. `--check` writes nothing and fails if a picture differs from what the
code draws today.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.attention.native.int8 import quantised
from regard.attention.pattern import Causal, Full, Ordered, Pattern
from regard.attention.window import Window
from regard.core.text import LANGUAGES, Bilingual
from regard.data.knowledge.graph import Graph
from regard.data.knowledge.tree import KnowledgeTree
from regard.lab.draw import pictures
from regard.lab.draw.kernel_regression import regress, weights
from regard.models.t5 import buckets
from regard.report.drawings import BarDrawing, Curves, HeatDrawing, Picture, Point, Text
from regard.training.adversary import climbed, norm

OUT = Path(__file__).resolve().parent.parent / "docs" / "figures"
WORDS = "the cat sat on the mat".split()
GRID = torch.linspace(0, 5, 101, dtype=torch.float64)[:, None]
KEYS = torch.linspace(0, 5, 16, dtype=torch.float64)[:, None]
NOISE = torch.sin(37.0 * torch.arange(16, dtype=torch.float64))[:, None]  # this looks random
TOKENS = Bilingual("tokens", "词元")
VALUES = 2 * KEYS.sin() + KEYS + 0.6 * NOISE


def points(x: Tensor, y: Tensor) -> list[Point]:
    return list(zip(x.flatten().tolist(), y.flatten().tolist(), strict=True))


def kernel_regression() -> Curves:
    """Draws three bandwidths through the same noisy points."""
    dots = Bilingual("points", "样本点")
    lines: dict[Text, list[Point]] = {
        f"h = {h:g}": points(GRID, regress(GRID, KEYS, VALUES, h)) for h in (0.1, 0.4, 2.0)
    }
    lines["2 sin x + x"] = points(GRID, 2 * GRID.sin() + GRID)
    lines[dots] = points(KEYS, VALUES)
    title = Bilingual("Nadaraya-Watson regression", "Nadaraya-Watson 回归")
    return Curves(title, lines, "x", "y", zero=False, dots=[dots])


def kernel_weights() -> HeatDrawing:
    """Draws the same regression as a matrix: the weight of each key for each query."""
    q = torch.linspace(0, 5, 11, dtype=torch.float64)[:, None]
    table = weights(q, KEYS, 0.4, "gaussian").tolist()
    rows, columns = ([f"{x:.1f}" for x in vector.flatten().tolist()] for vector in (q, KEYS))
    title = Bilingual("kernel regression: queries and keys, h = 0.4", "核回归：查询与键，h = 0.4")
    axes, high = (Bilingual("query", "查询"), Bilingual("key", "键")), max(map(max, table))
    return HeatDrawing(title, table, rows, columns, high=high, axes=axes)


def softmax_width() -> Curves:
    """Draws the largest of 64 weights if scores have the standard deviation √d, and if it is 1."""
    normal = torch.distributions.Normal(0.0, 1.0)
    scores = normal.icdf((torch.arange(64, dtype=torch.float64) + 0.5) / 64)
    widths = [1, 2, 4, 8, 16, 32, 64, 96, 128]
    largest = [(float(d), float((scores * d**0.5).softmax(0).max())) for d in widths]
    scaled = [(float(d), float(scores.softmax(0).max())) for d in widths]
    lines: dict[Text, list[Point]] = {
        Bilingual("without 1/√d", "没有 1/√d"): largest,
        Bilingual("with 1/√d", "有 1/√d"): scaled,
    }
    title = Bilingual("the largest of 64 weights", "64 个权重中最大的一个")
    across, up = Bilingual("width of a head", "头的宽度"), Bilingual("weight", "权重")
    return Curves(title, lines, across, up)


def positions() -> HeatDrawing:
    """Draws the same as `regard draw positions --seq-len 16 --width 24`."""
    return pictures.positions("", 16, 24, "interleaved")


def schedules() -> Curves:
    """Draws the same as `regard draw schedules noam,bert,cosine,inverse-square-root`."""
    return pictures.schedules(["noam", "bert", "cosine", "inverse-square-root"])


def order() -> HeatDrawing:
    """Draws the same as `regard draw order`."""
    return pictures.order(WORDS, seed=1)


def parameters() -> BarDrawing:
    """Draws the same as `regard draw parameters gpt2`."""
    return pictures.parameters("gpt2")


def operations() -> BarDrawing:
    """Draws the same as `regard draw operations gpt2 --seq-len 1024`."""
    return pictures.operations("gpt2", 1024)


def seen(
    pattern: Pattern, rows: Sequence[str], keys: Sequence[str], title: Bilingual
) -> HeatDrawing:
    table = pattern.dense(1, len(rows), len(keys), torch.device("cpu"))[0].double().tolist()
    return HeatDrawing(title, table, rows, keys)


def mask_full() -> HeatDrawing:
    return seen(Full(), WORDS, WORDS, Bilingual("full: an encoder", "全部可见：编码器"))


def mask_causal() -> HeatDrawing:
    return seen(Causal(), WORDS, WORDS, Bilingual("causal: a decoder", "只见之前：解码器"))


def mask_prefix() -> HeatDrawing:
    order = torch.tensor([[0, 0, 0, 1, 2, 3]])
    title = Bilingual("a prefix of three words", "三个词的前缀")
    return seen(Ordered(order, order, torch.float32), WORDS, WORDS, title)


def mask_band() -> HeatDrawing:
    pattern = Window(2, 0, len(WORDS), torch.float32, torch.device("cpu"))
    title = "a band of three rows: every second layer of GPT-3"
    return seen(pattern, WORDS, WORDS, Bilingual(title, "三行的带：GPT-3 每隔一层"))


def mask_memory() -> HeatDrawing:
    past = ["(once)", "(upon)", "(a)", "(time)"]
    title = Bilingual("Transformer-XL: a memory of four rows", "Transformer-XL：四行的记忆")
    return seen(Causal(len(past)), WORDS, [*past, *WORDS], title)


def mask_window() -> HeatDrawing:
    names = ["<s>", *(f"w{i}" for i in range(1, 12))]
    near = Window(2, 2, 12, torch.float32, torch.device("cpu"), far=torch.tensor([[0]]))
    table = near.dense(1, 12, 12, torch.device("cpu"))[0]
    table[0] = True  # the global token has its own projections and sees all tokens
    title = Bilingual(
        "Longformer: a window of 4, one global token", "Longformer：宽 4 的窗口，一个全局词元"
    )
    return HeatDrawing(title, table.double().tolist(), names, names)


def mask_knowledge() -> HeatDrawing:
    graph = Graph([("Beijing", "capital", "China"), ("Beijing", "is_a", "City")])
    flat = KnowledgeTree.of("Cook is visiting Beijing now".split(), graph).flatten()
    pairs = zip(flat.tokens, flat.soft, strict=True)
    names = [f"{token} · {place}" for token, place in pairs]
    table = flat.visible().astype(float).tolist()
    title = Bilingual("K-BERT: words with their soft positions", "K-BERT：词与它们的软位置")
    return HeatDrawing(title, table, names, names)


def costs() -> Curves:
    """Draws the number of compared pairs: all, or a window of 512 and one global token."""
    lengths = [256, 512, 1024, 2048, 3072, 4096, 6144, 8192]
    full = [(float(n), n * n / 1e6) for n in lengths]
    window = [(float(n), sum(min(n, i + 257) - max(0, i - 256) for i in range(n)) / 1e6)
              for n in lengths]  # fmt: skip
    lines: dict[Text, list[Point]] = {
        Bilingual("every pair", "每一对"): full,
        Bilingual("a window of 512", "宽 512 的窗口"): window,
    }
    title = Bilingual("scores that a head computes", "一个头要计算的分数")
    return Curves(title, lines, TOKENS, Bilingual("millions of scores", "百万个分数"))


def t5_buckets() -> Curves:
    distance = torch.arange(-160, 161)
    both = buckets(distance, True, 32, 128).double()
    causal = buckets(distance, False, 32, 128).double()
    lines: dict[Text, list[Point]] = {
        Bilingual("encoder", "编码器"): points(distance.float(), both),
        Bilingual("decoder", "解码器"): points(distance.float(), causal),
    }
    title = Bilingual("T5: the bucket of a distance", "T5：距离所属的桶")
    return Curves(title, lines, Bilingual("key - query", "键 - 查询"), Bilingual("bucket", "桶"))


def temperatures() -> Curves:
    """Draws a teacher's probabilities of eight classes, at three temperatures."""
    logits = torch.tensor([6.0, 4.0, 3.0, 2.0, 1.0, 0.0, -1.0, -2.0], dtype=torch.float64)
    at = torch.arange(1, 9).float()
    lines: dict[Text, list[Point]] = {
        f"T = {t}": points(at, (logits / t).softmax(0)) for t in (1, 2, 4)
    }
    title = Bilingual("a teacher's answer, softened", "教师的回答，经过软化")
    across = Bilingual("class, by its rank", "类别，按名次")
    return Curves(title, lines, across, Bilingual("probability", "概率"))


def staircase() -> Curves:
    """Draws the weights of a row and their int8 values; the largest sets the step size."""
    row = torch.linspace(-0.02, 0.02, 161)
    small, scale = quantised(torch.cat([row, torch.tensor([0.254])])[None])
    back = (small[0, :-1].float() * scale[0])[: len(row)]
    lines: dict[Text, list[Point]] = {
        Bilingual("as bytes", "存为字节"): points(row, back),
        Bilingual("before", "原来"): points(row, row),
    }
    title = "weights of a row whose largest is 0.254"
    across, up = Bilingual("weight", "权重"), Bilingual("weight that is stored", "存下的权重")
    return Curves(Bilingual(title, "最大值为 0.254 的一行权重"), lines, across, up, zero=False)


def adversary() -> Curves:
    """Draws how far PGD goes in five steps of 0.3, inside a ball of 1 and without one."""
    slope = torch.tensor([[[3.0, 4.0]]])

    def way(radius: float | None) -> list[Point]:
        delta, path = torch.zeros(1, 1, 2), [(0.0, 0.0)]
        for step in range(1, 6):
            delta = climbed(delta, slope, 0.3, radius)
            path.append((float(step), round(float(norm(delta)), 6)))
        return path

    lines: dict[Text, list[Point]] = {
        Bilingual("inside a ball of 1", "在半径 1 的球内"): way(1.0),
        Bilingual("without one", "没有球"): way(None),
    }
    title = Bilingual("how far the words are moved", "词被移动了多远")
    across = Bilingual("step of the adversary", "对抗扰动的步")
    return Curves(title, lines, across, Bilingual("distance", "距离"))


FIGURES: dict[str, Callable[[], Picture]] = {
    "kernel-regression": kernel_regression,
    "kernel-weights": kernel_weights,
    "softmax-width": softmax_width,
    "positions": positions,
    "schedules": schedules,
    "order": order,
    "parameters": parameters,
    "operations": operations,
    "mask-full": mask_full,
    "mask-causal": mask_causal,
    "mask-prefix": mask_prefix,
    "mask-band": mask_band,
    "mask-memory": mask_memory,
    "mask-window": mask_window,
    "mask-knowledge": mask_knowledge,
    "costs": costs,
    "t5-buckets": t5_buckets,
    "temperatures": temperatures,
    "staircase": staircase,
    "adversary": adversary,
}


def drawn() -> Iterator[tuple[str, str]]:
    """Yields the name of every file and the picture; one without words has none in Chinese."""
    for name, make in FIGURES.items():
        picture = make()
        english, chinese = (picture.svg(lang) for lang in LANGUAGES)
        yield f"{name}.svg", english
        if chinese != english:
            yield f"zh/{name}.svg", chinese


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the pictures of the tutorial again.")
    parser.add_argument("--out", type=Path, default=OUT, help="the directory of the pictures")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one differs")
    options = parser.parse_args()
    pictures, changed = dict(drawn()), []
    (options.out / "zh").mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        file = options.out / name
        if not file.is_file() or file.read_text("utf-8") != picture:
            changed.append(name)
            if not options.check:
                file.write_text(picture, "utf-8", newline="\n")
    print(f"{len(pictures)} pictures, {len(changed)} changed: {', '.join(changed) or 'none'}")
    return int(options.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
