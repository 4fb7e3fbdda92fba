"""Shows a run: a live view in a terminal, plain lines elsewhere, and metrics.jsonl.

Everything for people goes to standard error; standard output stays free for results.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Protocol

from regard.core.errors import StorageError, UnknownName, counted
from regard.core.files import flush_directory, parse_json, storing
from regard.core.text import visible
from regard.training.loggers import MetricsLogger, check_loggers, open_loggers

Record = dict[str, Any]
BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*#@"


class ProgressDisplay(Protocol):
    """The interface through which a run reports its progress."""

    def start(self, facts: Record) -> None: ...
    def step(self, record: Record) -> None: ...
    def note(self, text: str) -> None: ...
    def valid(self, record: Record) -> None: ...
    def stop(self, text: str = "") -> None: ...


class SilentProgress:
    """A display that shows nothing."""

    def start(self, facts: Record) -> None: ...
    def step(self, record: Record) -> None: ...
    def note(self, text: str) -> None: ...
    def valid(self, record: Record) -> None: ...
    def stop(self, text: str = "") -> None: ...


class RunningMean:
    """A running mean that is unbiased from the first value on (corrected as in Adam)."""

    def __init__(self, keep: float = 0.98) -> None:
        self.keep, self.sum, self.weight = keep, 0.0, 0.0

    def __call__(self, value: float) -> float:
        if math.isfinite(value):
            self.sum = self.keep * self.sum + (1 - self.keep) * value
            self.weight = self.keep * self.weight + (1 - self.keep)
        return self.sum / self.weight if self.weight else math.nan


class PlainProgress:
    """Prints lines for a log: the first step, then a line every few seconds, then the last."""

    def __init__(self, every: float = 10.0, out: IO[str] | None = None) -> None:
        self.every, self.out = every, out
        self.smooth = RunningMean()
        self.shown = -math.inf

    def say(self, text: str) -> None:
        print(visible(text), file=self.out or sys.stderr, flush=True)

    def start(self, facts: Record) -> None:
        for line in summary(facts):
            self.say(line)

    def step(self, record: Record) -> None:
        average = self.smooth(float(record.get("loss", math.nan)))
        now = time.monotonic()
        if now - self.shown < self.every and record["step"] != record.get("steps"):
            return
        self.shown = now
        self.say(" · ".join(step_words(record, average)))

    def note(self, text: str) -> None:
        self.say(f"note: {text}")

    def valid(self, record: Record) -> None:
        best = " (best)" if record.get("best") else ""
        self.say(f"step {record['step']:,} · validation: {figures(record)}{best}")

    def stop(self, text: str = "") -> None:
        if text:
            self.say(text)


class LiveProgress:
    """A live view that is redrawn four times a second, however fast the steps are."""

    def __init__(self, out: IO[str] | None = None) -> None:
        from rich.console import Console
        from rich.live import Live as Screen

        self.console = Console(file=out or sys.stderr, highlight=False)
        self.bars = BARS if "utf" in (self.console.encoding or "").lower() else ASCII_BARS
        self.smooth = RunningMean()
        self.losses: deque[float] = deque(maxlen=4096)
        self.facts: Record = {}
        self.record: Record = {}
        self.average = math.nan
        self.last: Record = {}
        self.best: Record = {}
        self.screen = Screen(console=self.console, get_renderable=self.draw, refresh_per_second=4)

    def start(self, facts: Record) -> None:
        self.facts = facts
        for line in summary(facts):
            self.say(line)
        atexit.register(self.screen.stop)  # a failed run must still restore the cursor
        self.screen.start()

    def say(self, text: str) -> None:
        self.console.print(visible(text), markup=False, soft_wrap=True)

    def step(self, record: Record) -> None:
        self.average = self.smooth(float(record.get("loss", math.nan)))
        self.losses.append(self.average)
        self.record = record

    def note(self, text: str) -> None:
        self.say(f"note: {text}")

    def valid(self, record: Record) -> None:
        self.last = record
        if record.get("best"):
            self.best = record

    def stop(self, text: str = "") -> None:
        self.screen.stop()
        atexit.unregister(self.screen.stop)
        if text:
            self.say(text)

    def draw(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        record = self.record
        if not record:
            return Text("…")
        steps = record.get("steps") or self.facts.get("steps") or 0
        head = Table.grid(padding=(0, 1))
        head.add_row(
            ProgressBar(total=steps or None, completed=record["step"], width=32),
            Text(f"{record['step']:,} / {steps:,}" if steps else f"{record['step']:,}"),
            Text(f"{duration(record['left'])} left" if "left" in record else "", style="dim"),
        )
        table = Table.grid(padding=(0, 2))
        for name, text in self.rows():
            table.add_row(Text(name, style="dim"), Text(text))
        return Group(head, table)

    def rows(self) -> list[tuple[str, str]]:
        record = self.record
        line = spark(list(self.losses), 32, self.bars)
        rows = [("loss", f"{number(record.get('loss'))}  mean {number(self.average)}  {line}")]
        rate = [number(record["lr"])] if "lr" in record else []
        rate += [f"gradient {number(record['norm'])}"] if "norm" in record else []
        rows.append(("lr", "  ".join(rate)))
        rows.append(("speed", speed(record)))
        if record.get("memory"):
            rows.append(("memory", size(record["memory"])))
        if self.last:
            rows.append(("valid", f"{figures(self.last)}  at step {self.last['step']:,}"))
        if self.best and self.best is not self.last:
            rows.append(("best", f"{figures(self.best)}  at step {self.best['step']:,}"))
        return [(name, text) for name, text in rows if text]


def watch(kind: str = "auto") -> ProgressDisplay:
    """Returns the named display; "auto" is the live view on a terminal, else plain lines."""
    kinds: dict[str, Callable[[], ProgressDisplay]] = {
        "live": LiveProgress,
        "plain": PlainProgress,
        "silent": SilentProgress,
    }
    if kind == "auto":
        able = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        kind = "live" if able and importlib.util.find_spec("rich") else "plain"
    if kind not in kinds:
        raise UnknownName("display", kind, ["auto", *kinds])
    return kinds[kind]()


class Metrics:
    """Writes metrics.jsonl: one JSON object per line, on disk before the next step.

    `begin(step)` drops all lines after that step and a half-written last line, so that the file of
    a resumed run equals that of a run that never stopped. The same numbers go to the loggers.
    """

    def __init__(
        self,
        path: Path,
        *,
        enabled: bool = True,
        log: Sequence[str] | None = (),  # names of loggers; None: TensorBoard if it is installed
        recipe: Record | None = None,
    ) -> None:
        self.path, self.enabled, self.recipe = path, enabled, recipe or {}
        self.names = check_loggers(log) if enabled else []
        self.loggers: list[MetricsLogger] = []
        self.seen = 0  # the last step that loggers know which cannot forget one
        self.file: IO[str] | None = None

    def begin(self, step: int = 0) -> None:
        if not self.enabled:
            return
        with storing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.seen = last_step(self.path) if step and self.names else 0
            with self.path.open("ab") as file:
                file.truncate(kept_bytes(self.path, step))
            self.file = self.path.open("a", encoding="utf-8")
            flush_directory(self.path.parent)
        self.loggers = open_loggers(self.names, self.path.parent, step, self.recipe)

    def write(self, record: Record) -> None:
        if self.file is None:
            return
        with storing(self.path):
            self.file.write(json.dumps(finite(record), ensure_ascii=False) + "\n")
            self.file.flush()
        for logger in self.loggers:
            if logger.forgets or record["step"] > self.seen:  # a resumed run repeats the same steps
                logger.add(record["step"], scalars(record))

    def flush(self) -> None:
        """Forces the metrics onto the disk, before the checkpoint of the same step."""
        if self.file is not None:
            with storing(self.path):
                os.fsync(self.file.fileno())
        for logger in self.loggers:
            logger.flush()

    def close(self) -> None:
        file, loggers, self.file, self.loggers = self.file, self.loggers, None, []
        closing = [logger.close for logger in loggers]
        for close in closing if file is None else [file.close, *closing]:
            with storing(self.path):
                close()


METRIC_KINDS: dict[str, Any] = {
    "step": int, "loss": float | None, "lr": float | None, "norm": float | None,
    "tokens": int | None, "seconds": float | None, "tokens_per_second": float | None,
    "memory": float | None, "valid": dict[str, Any] | None,
}  # fmt: skip


def kept_bytes(path: Path, step: int) -> int:
    """Returns how many bytes of the file belong to the steps up to this one."""
    size = 0
    if step == 0:  # a new run, whatever was there
        return size
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") or metrics_record(line, path, number)["step"] > step:
                break
            size += len(line)
    return size


def last_step(path: Path) -> int:
    """Returns the last step that the file holds, whether or not it is kept."""
    try:
        return max((record["step"] for record in read_metrics(path)), default=0)
    except StorageError:  # damaged behind the steps that are kept: those are refused by themselves
        return 0


def read_metrics(path: Path) -> list[Record]:
    """Reads all complete lines; the last line may be half-written while a run is going on."""
    content = path.read_bytes() if path.is_file() else b""
    lines = content.split(b"\n")[:-1]
    return [metrics_record(line, path, number) for number, line in enumerate(lines, 1)]


def metrics_record(line: bytes, path: Path, number: int) -> Record:
    name, advice = f"{path}:{number}", "delete this line to go on"
    return parse_json(line, name, advice=advice, kinds=METRIC_KINDS)


def finite(value: Any) -> Any:
    """Replaces infinity and NaN, which JSON does not have, by null."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def scalars(record: Record, prefix: str = "") -> list[tuple[str, float]]:
    numbers: list[tuple[str, float]] = []
    for name, value in record.items():
        if isinstance(value, dict):
            numbers += scalars(value, f"{prefix}{name}/")
        elif name != "step" and isinstance(value, int | float) and not isinstance(value, bool):
            numbers.append((f"{prefix}{name}", float(value)))
    return numbers


# -- words


def summary(facts: Record) -> list[str]:
    """Returns the lines shown before the first step, as far as the facts are known."""
    model = facts.get("model") or {}
    model = model if isinstance(model, dict) else {"name": model}
    words = [str(model.get("name") or "a model")]
    if model.get("parameters"):
        words.append(f"{model['parameters']:,} parameters")
    if facts.get("objective"):
        words.append(f"objective {facts['objective']}")
    if facts.get("precision"):
        words.append(str(facts["precision"]))
    if facts.get("learning"):
        words.append(str(facts["learning"]))
    cost = []
    if facts.get("steps"):
        cost.append(counted(facts["steps"], "step"))
    if facts.get("tokens_per_step"):
        cost.append(f"{counted(facts['tokens_per_step'], 'token')} a step")
    if facts.get("memory_needed"):
        cost.append(f"about {size(facts['memory_needed'])} of memory")
    if facts.get("seconds_needed"):
        cost.append(f"about {duration(facts['seconds_needed'])}")
    lines = [" · ".join(words), " · ".join(cost)]
    return [line for line in lines if line]


def step_words(record: Record, average: float) -> list[str]:
    steps = record.get("steps")
    words = [f"step {record['step']:,}" + (f" of {steps:,}" if steps else "")]
    if "loss" in record:
        words.append(f"loss {number(record['loss'])} (mean {number(average)})")
    if "lr" in record:
        words.append(f"lr {number(record['lr'])}")
    if speed(record):
        words.append(speed(record))
    if record.get("memory"):
        words.append(size(record["memory"]))
    if "left" in record:
        words.append(f"{duration(record['left'])} left")
    return words


def speed(record: Record) -> str:
    words = []
    if record.get("tokens_per_second"):
        words.append(f"{record['tokens_per_second']:,.0f} tokens/s")
    if record.get("peak_share"):
        words.append(f"{record['peak_share']:.0%} of peak")
    return ", ".join(words)


def peak_share(operations: float, seconds: float, peak: float) -> float:
    """How much of the peak was used. What a machine has done it can do: a peak that was measured
    while other programs took its cores is raised to that, so that no share is above 1.
    """
    rate = operations / max(seconds, 1e-9)
    return rate / max(rate, peak)


def figures(record: Record) -> str:
    """Formats the metrics of a validation, which may be nested under "valid"."""
    numbers = scalars(record.get("valid") or record)
    return ", ".join(
        f"{name.replace('_', ' ')} {number(value)}" for name, value in numbers if name != "tokens"
    )


def number(value: Any) -> str:
    """Formats a number with four significant digits."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "–"
    if not math.isfinite(value):
        return str(value)
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e6):
        return f"{int(value):,}"
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.2e}"


def short_count(count: int) -> str:
    """Writes 1,000,000 as 1M and 250,000 as 250k; a count that is not round stays as it is."""
    for letter, unit in (("M", 10**6), ("k", 10**3)):
        if count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def spark(values: list[float], width: int, bars: str = BARS) -> str:
    """Draws a curve in one line: the values in `width` groups, each as a bar."""
    known = [v for v in values if math.isfinite(v)]
    if len(known) < 2:
        return ""
    groups = min(width, len(known))
    edges = [len(known) * i // groups for i in range(groups + 1)]
    means = [sum(known[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join(bars[round((mean - low) * scale)] for mean in means)
