"""Loads a server far beyond what it can do, and says what came of it.

    python scripts/overload.py [--seconds 600] [--times 4] [--json]
    python scripts/overload.py --tiny

A small GPT and a small BERT with random weights, and a server for both in a process of its own, are
made on the spot. First the rate is measured that the server sustains. Then requests arrive at more
than `times` that rate: of ten, eight ask (to continue a text, streamed or not, or how similar texts
are), one is broken, one goes away. Beside them, clients send byte by byte, and others do not read
what they asked for, until the server drops them. Every answer is compared with that of the Python
call. At last the server is told to end (SIGTERM) in the middle of the same load.

The exit code is 1 if the load was less than `times` the sustained rate, an answer was wrong, a
status was none of 200, 400 (the broken), 408 (the slow) and 429, nobody got 408 or 429, no slow
client was dropped, the memory of the second half was more than 32 MiB above that of the first, or a
request after the load took a second longer than one before it; and at shutdown if the server's exit
code was not 0, an accepted request was not finished, nobody got 503, or a later one got anything
else. The section is "overload" of docs/serving.md and its Chinese sister; a run of less than ten
minutes, or of less than four times the load, does not write it.

A machine may be suspended meanwhile, with all of its processes. That time does not count, and a
request that was on its way then may be too late (504, or a connection that has ended).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from overload_clients import FINE, LOAD, Clock, Crowd, Seen, Work, answer_of, models_in, work_for
from page import put, table

ROOT = Path(__file__).resolve().parent.parent
ROWS, QUEUE, CROWD, CALM, SLOW = 8, 16, 160, 16, 2
PATIENCE = 5.0  # seconds, of the server
GROWTH = 32  # MiB
MARGIN = 1.3  # more requests than `times`: some of them are broken, and chance makes some late
EDGE = 1.0  # seconds before the door closes in which a connection may end without an answer
WHOLE = 600.0  # seconds of a load that the page shows
WORDS = {
    "sustained": "可持续（请求/秒）", "load": "到达的负载", "requests": "请求",
    "wrong": "错误的回答", "memory": "内存：前半与后半（MiB）", "waits": "负载前后的等待（秒）",
    "shutdown": "关闭时：完成的、503、丢失的", "ended": "关闭用时（秒）", "times": "倍",
    "failed": "未通过",
}  # fmt: skip
ENGLISH = {
    "sustained": "sustained (requests/s)", "load": "load reached", "requests": "requests",
    "wrong": "wrong answers", "memory": "memory: first half, second half (MiB)",
    "waits": "wait before and after the load (s)",
    "shutdown": "at shutdown: finished, 503, lost", "ended": "shutdown (s)", "times": "times",
    "failed": "failed",
}  # fmt: skip


def started(models: dict[str, Path]) -> tuple[subprocess.Popen[str], int]:
    places = [f"{name}={path}" for name, path in models.items()]
    command = [sys.executable, "-m", "regard", "serve", *places, "--port", "0", "--rows",
               str(ROWS), "--queue", str(QUEUE), "--patience", str(PATIENCE)]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("listening"):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, int(line.split()[2].rpartition(":")[2])
    raise SystemExit("the server did not start")


def memory_of(process: subprocess.Popen[str]) -> float:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def waited(port: int, work: list[Work], clock: Clock) -> float:
    begun = clock.now()
    status, _ = answer_of(port, work[0])
    return clock.now() - begun if status == 200 else float("inf")


def measured(plan: argparse.Namespace, place: Path) -> dict[str, Any]:
    models = models_in(place)
    work = work_for(models)
    process, port = started(models)
    clock = Clock()
    try:
        calm = Crowd(port, work, plan.calm, None, clock)
        calm.run(CALM)
        rate = calm.statuses["200"] / plan.calm
        before = min(waited(port, work, clock) for _ in range(3))
        crowd, memory = loaded(process, port, work, plan, rate, clock)
        after = waited(port, work, clock)
        ending = ended(process, port, work, plan.times * MARGIN * rate, clock)
    finally:
        process.kill()
        process.wait()
    arrived = sum(crowd.statuses[name] for name in LOAD) / plan.seconds
    half = len(memory) // 2
    return {
        "seconds": plan.seconds, "wanted_times": plan.times, "sustained_per_second": rate,
        "arrived_per_second": arrived, "times": arrived / rate,
        "statuses": dict(crowd.statuses), "wrong": crowd.wrong + calm.wrong + ending.pop("wrong"),
        "memory_mib": memory, "first_half_mib": max(memory[:half]),
        "second_half_mib": max(memory[half:]), "wait_before": before, "wait_after": after,
        "shutdown": ending, "suspended": round(clock.lost, 1),
    }  # fmt: skip


def loaded(
    process: subprocess.Popen[str], port: int, work: list[Work], plan: argparse.Namespace,
    rate: float, clock: Clock,
) -> tuple[Crowd, list[float]]:  # fmt: skip
    """Returns what a crowd has seen, and the memory of the server meanwhile."""
    crowd = Crowd(port, work, plan.seconds, plan.times * MARGIN * rate, clock)
    thread = threading.Thread(target=crowd.run, args=(CROWD, SLOW, PATIENCE))
    thread.start()
    memory = [memory_of(process)]
    while thread.is_alive():
        thread.join(max(0.5, plan.seconds / 60))
        memory.append(memory_of(process))
    return crowd, memory


def ended(
    process: subprocess.Popen[str], port: int, work: list[Work], rate: float, clock: Clock
) -> dict[str, Any]:
    """Tells the server to end in the middle of a load, and returns what became of it."""
    crowd = Crowd(port, work, 3600, rate, clock)
    thread = threading.Thread(target=crowd.run, args=(CROWD,))
    thread.start()
    time.sleep(3)
    moment = time.monotonic()
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(90)
    except subprocess.TimeoutExpired:
        code = None
    end = time.monotonic()
    crowd.end = 0.0
    thread.join()
    early = [one for one in crowd.seen if one.sent < moment]
    late = Counter(late_statuses([one for one in crowd.seen if one.sent >= moment], end))
    return {
        "code": code, "seconds": end - moment, "wrong": crowd.wrong,
        "finished": sum(one.status == "200" and one.ended > moment for one in early),
        "lost": sum(one.status not in FINE | {"503", "suspended"} for one in early),
        "late": dict(late),
    }  # fmt: skip


def late_statuses(seen: list[Seen], end: float) -> list[str]:
    """Returns what came of requests after the signal. The door closes when a connection is first
    refused (the program ends after that): who stood before it then is cut off without an answer."""
    closed = min((one.ended for one in seen if one.status == "refused"), default=end)
    return [one.status for one in seen if one.status[:4] != "conn" or one.ended <= closed - EDGE]


def failures(facts: dict[str, Any]) -> list[str]:
    """Returns a sentence for everything that is not as it has to be."""
    statuses, shutdown = facts["statuses"], facts["shutdown"]
    odd = sorted(set(statuses) - FINE - {"suspended"})
    grown = facts["second_half_mib"] - facts["first_half_mib"]
    later = sorted(set(shutdown["late"]) - {"503", "refused", "gone", "suspended"})
    checks = {
        f"the load was {facts['times']:.2f} times the sustained rate, and not "
        f"{facts['wanted_times']:g} times": facts["times"] < facts["wanted_times"],
        f"{len(facts['wrong'])} answers were wrong": bool(facts["wrong"]),
        f"there were answers that nobody may get: {', '.join(odd)}": bool(odd),
        "no slow sender was refused (408)": not statuses.get("408"),
        "no slow reader was dropped": not statuses.get("dropped"),
        "nobody was refused for the load (429)": not statuses.get("429"),
        f"the memory grew by {grown:.0f} MiB": grown > GROWTH,
        f"a request after the load took {facts['wait_after']:.1f} s, before it "
        f"{facts['wait_before']:.1f} s": facts["wait_after"] > facts["wait_before"] + 1,
        f"the server ended with {shutdown['code']}": shutdown["code"] != 0,
        f"{shutdown['lost']} accepted requests were lost at shutdown": shutdown["lost"] > 0,
        "no accepted request was finished after the signal": not shutdown["finished"],
        "nobody got 503 at shutdown": not shutdown["late"].get("503"),
        f"after the signal there were other answers than 503: {', '.join(later)}": bool(later),
    }
    return [sentence for sentence, failed in checks.items() if failed]


def section(facts: dict[str, Any], chinese: bool) -> str:
    words, shutdown = WORDS if chinese else ENGLISH, facts["shutdown"]
    counts = ", ".join(f"{name}: {count:,}" for name, count in sorted(facts["statuses"].items()))
    rows = [
        ("sustained", f"{facts['sustained_per_second']:.1f}"),
        ("load", f"{facts['times']:.2f} {words['times']}, {facts['seconds']:,.0f} s"),
        ("requests", counts),
        ("wrong", f"{len(facts['wrong'])}"),
        ("memory", f"{facts['first_half_mib']:,.0f}, {facts['second_half_mib']:,.0f}"),
        ("waits", f"{facts['wait_before']:.2f}, {facts['wait_after']:.2f}"),
        ("shutdown", f"{shutdown['finished']}, {shutdown['late'].get('503', 0):,}, "
                     f"{shutdown['lost']}"),
        ("ended", f"{shutdown['seconds']:.1f}"),
    ]  # fmt: skip
    cells = table(["", ""], [[words[name], value] for name, value in rows])
    failed = [f"* {words['failed']}: {sentence}" for sentence in failures(facts)]
    return "\n\n".join([cells, *(["\n".join(failed)] if failed else [])])


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=WHOLE, help="of the load")
    parser.add_argument("--times", type=float, default=4, help="the sustainable rate")
    parser.add_argument("--calm", type=float, default=20, help="seconds to measure that rate")
    parser.add_argument("--tiny", action="store_true", help="short: to try it")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "serving.md")
    parser.add_argument("--json", action="store_true")
    plan = parser.parse_args(words)
    if plan.tiny:
        plan.seconds, plan.calm = 20.0, 5.0
    with tempfile.TemporaryDirectory() as place:
        facts = measured(plan, Path(place))
    if plan.seconds >= WHOLE and plan.times >= 4:
        put("overload", section(facts, chinese=False), plan.page)
        put("overload", section(facts, chinese=True), plan.page.with_suffix(".zh.md"))
    print(json.dumps(facts, indent=1) if plan.json else section(facts, chinese=False))
    problems = failures(facts)
    for sentence in problems:
        print(f"failed: {sentence}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
