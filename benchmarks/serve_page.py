"""What benchmarks/serve.py says of its turns: the medians, the goals, and the section of
docs/serving.md in both languages."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from page import goal, table

CLIENTS = {"write": (1, 8, 32), "embed": (32,), "predict": (32,)}
SPEED = {"write": 1.5, "embed": 1.2, "predict": 1.2}  # tokens or texts a second, over the best peer
WAIT = 1.0  # the most of a 99th percentile, over that of the same peer
BARE = 0.95  # of our own Python call, with one client
WAITS = {
    "write": ("first_p50", "first_p99", "between_p50", "between_p99"),
    "embed": ("answer_p50", "answer_p99"), "predict": ("answer_p50", "answer_p99"),
}  # fmt: skip
HEADS = {
    "write": ["clients", "server", "tokens/s", "first p50", "first p99", "next p50", "next p99"],
    "embed": ["clients", "server", "texts/s", "p50", "p99"],
    "predict": ["clients", "server", "texts/s", "p50", "p99"],
}
WORDS = {
    "write": "续写", "embed": "嵌入", "predict": "分类", "clients": "客户端", "server": "服务器",
    "tokens/s": "词元/秒", "texts/s": "文本/秒", "first p50": "首个 p50", "first p99": "首个 p99",
    "next p50": "间隔 p50", "next p99": "间隔 p99", "per_second": "速度",
    "first_p99": "首个词元 p99", "between_p99": "词元间隔 p99", "answer_p99": "回答 p99",
    "missed": "未达到", "ours": "我们", "ours, int8": "我们，int8", "ours, fp32": "我们，fp32",
    "ours, int8 dynamic": "我们，int8 dynamic", "our Python call, int8": "我们的 Python 调用，int8",
    "our Python call, int8 dynamic": "我们的 Python 调用，int8 dynamic",
    "our Python call, fp32": "我们的 Python 调用，fp32",
    "CTranslate2 behind FastAPI, int8": "FastAPI 后的 CTranslate2，int8", "goal": "目标",
    "load": "任务", "beside": "对照", "figure": "数值", "ratio": "比值", "none": "无",
    "not judged": "无法判断",
}  # fmt: skip
ENGLISH = {
    "per_second": "speed", "first_p99": "first token p99", "between_p99": "between tokens p99",
    "answer_p99": "answer p99",
}  # fmt: skip
Medians = dict[tuple[str, str, int], dict[str, float]]
Say = Callable[[str], str]


@dataclass(frozen=True)
class Goal:
    """A figure of one of our servers over that of another side, and where it has to be."""

    load: str
    clients: int
    side: str
    peer: str  # "": there is none, so nothing is judged
    figure: str
    ratio: float
    least: float | None = None
    most: float | None = None

    @property
    def reached(self) -> bool | None:
        if not self.peer:
            return None
        if self.least is not None:
            return self.ratio >= self.least
        return self.most is not None and self.ratio <= self.most


def medians(rows: list[dict[str, Any]]) -> Medians:
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["load"], row["side"], row["clients"]), []).append(row)
    return {
        key: {
            name: statistics.median(float(row[name]) for row in group)
            for name, value in group[0].items()
            if name.endswith(("_p50", "_p99", "per_second")) and isinstance(value, int | float)
        }
        for key, group in groups.items()
    }


def goals(figures: Medians) -> list[Goal]:
    """Returns what is to be reached: with one client the speed of our own Python call; with more,
    a multiple of the best peer's speed, and no later than it."""
    rows = []
    for load, counts in CLIENTS.items():
        for clients in counts:
            sides = {s: row for (k, s, c), row in figures.items() if (k, c) == (load, clients)}
            for side in (name for name in sides if name.startswith("ours")):
                if clients == 1:
                    rows.append(beside_bare(load, side, sides))
                elif side != "ours, fp32":  # the goals are those of int8
                    rows += beside_peers(load, clients, side, sides)
    return rows


def beside_bare(load: str, side: str, sides: dict[str, dict[str, float]]) -> Goal:
    bare = side.replace("ours", "our Python call")
    if bare not in sides:
        return Goal(load, 1, side, "", "per_second", 0.0, least=BARE)
    ratio = sides[side]["per_second"] / sides[bare]["per_second"]
    return Goal(load, 1, side, bare, "per_second", ratio, least=BARE)


def beside_peers(
    load: str, clients: int, side: str, sides: dict[str, dict[str, float]]
) -> list[Goal]:
    late = [name for name in WAITS[load] if name.endswith("_p99")]
    peers = {name: row for name, row in sides.items() if not name.startswith("our")}
    best = max(peers, key=lambda name: peers[name]["per_second"], default="")

    def over(name: str) -> float:
        theirs = peers[best][name] if best else 0.0
        return sides[side][name] / theirs if theirs else math.inf

    speed = Goal(load, clients, side, best, "per_second", over("per_second"), least=SPEED[load])
    return [
        speed,
        *(Goal(load, clients, side, best, name, over(name), most=WAIT) for name in late),
    ]


def missed(rows: list[Goal]) -> list[str]:
    """Returns a sentence for each goal that was missed, or that nothing could judge."""
    lines = []
    for row in rows:
        if row.reached:
            continue
        what = f"{row.load}, {row.clients} clients, {row.side}: {ENGLISH[row.figure]}"
        need = f"≥ {row.least:g}" if row.least is not None else f"≤ {row.most:g}"
        if row.peer:
            lines.append(f"{what} is {row.ratio:.2f} times {row.peer}, the goal is {need}")
        else:
            lines.append(f"{what} was not judged, for nothing stands beside it")
    return lines


def in_english(words: str) -> str:
    return ENGLISH.get(words, words)


def in_chinese(words: str) -> str:
    return WORDS.get(words, words)


def section(
    rows: list[dict[str, Any]], absent: dict[str, str], loads: list[str], threads: int, say: Say
) -> str:
    """Returns the tables, the goals, and what stood in the way of them."""
    figures = medians(rows)
    english = say is in_english
    turns = max(int(row["repeat"]) for row in rows)
    others = max(float(row["others"]) for row in rows)
    parts = [
        f"Medians of {turns} turns; {threads} cores for clients and servers together; waits in "
        f"milliseconds. Other programs used up to {others:.0%} of the processors meanwhile."
        if english
        else f"{turns} 轮的中位数；客户端与服务器共用 {threads} 个核心；等待时间以毫秒计。"
        f"其他程序最多占用 {others:.0%} 的处理器。"
    ]
    if absent:
        names = "; ".join(f"{say(side)} ({why})" for side, why in absent.items())
        parts.append(f"Left out: {names}." if english else f"未测量：{names}。")
    for load in loads:
        heads = [say(head) for head in HEADS[load]]
        parts.append(f"**{say(load).capitalize()}**\n\n{table(heads, lines(figures, load, say))}")
    parts.append(judged(goals(figures), say))
    return "\n\n".join(parts)


def lines(figures: Medians, load: str, say: Say) -> list[list[str]]:
    def waits(row: dict[str, float]) -> list[str]:
        return [f"{row[name]:,.1f}" if name in row else "–" for name in WAITS[load]]

    return [
        [str(clients), say(side), f"{row['per_second']:,.1f}", *waits(row)]
        for (kind, side, clients), row in sorted(figures.items(), key=lambda pair: pair[0][2])
        if kind == load
    ]


def judged(rows: list[Goal], say: Say) -> str:
    """Returns the table of the goals; one that was missed is marked."""
    cells = []
    for row in rows:
        need = f"≥ {row.least:g}" if row.least is not None else f"≤ {row.most:g}"
        ratio = say("not judged")
        if row.peer:
            ratio = goal(f"{row.ratio:.2f}", bool(row.reached)).replace("missed", say("missed"))
        name, peer = say(row.side), say(row.peer or "none")
        cells.append([say(row.load), str(row.clients), name, peer, say(row.figure), ratio, need])
    heads = ("load", "clients", "server", "beside", "figure", "ratio", "goal")
    return table([say(head) for head in heads], cells)
