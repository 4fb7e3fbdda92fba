"""The table of a comparison while it runs: redrawn in a terminal, lines elsewhere."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import IO, Any

from regard.core.text import visible
from regard.lab.compare.lineup import validates_exactly
from regard.training.progress import Record, duration, number, size

COLUMNS = ("model", "state", "step", "loss", "bits per byte", "tokens/s", "memory")


class LineDisplay:
    """One line for every change of state."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self.out = out or sys.stderr
        self.states: dict[str, str] = {}

    def tell(self, name: str, record: Record) -> None:
        state = str(record.get("state", ""))
        if self.states.get(name) == state:
            return
        self.states[name] = state
        details = figures(record) if state == "done" else ""
        line = " · ".join(filter(None, (name, state, details)))
        print(visible(line), file=self.out, flush=True)

    def stop(self) -> None: ...


class LiveTable:
    """The whole table, four times a second."""

    def __init__(self, names: list[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self.rows: dict[str, Record] = {name: {"state": "waiting"} for name in names}
        self.note = ""
        console = Console(file=sys.stderr, highlight=False)
        self.live = Live(console=console, get_renderable=self.draw, refresh_per_second=4)
        self.live.start()

    def tell(self, name: str, record: Record) -> None:
        if name:
            self.rows[name] = record
        else:
            self.note = visible(str(record.get("state", "")))

    def stop(self) -> None:
        self.live.stop()

    def draw(self) -> Any:
        from rich.table import Table

        table = Table(box=None, padding=(0, 2), caption=self.note or None)
        for column in COLUMNS:
            left = column in COLUMNS[:2]
            table.add_column(column, justify="left" if left else "right", header_style="dim")
        for name, record in list(self.rows.items()):  # another may come meanwhile
            style = {"waiting": "dim", "done": ""}.get(str(record.get("state")), "bold")
            table.add_row(name, *cells(record), style=style)
        return table


def cells(record: Record) -> list[str]:
    """A row of the table, from what is known."""
    # What follows a prefix has bits of another kind.
    exact = validates_exactly(record.get("objective", ""))
    valid = (record.get("valid") or {}) if exact else {}
    bits = record.get("bits_per_byte", valid.get("bits_per_byte"))
    step = record.get("step", record.get("steps"))
    memory = record.get("peak_memory")
    speed = record.get("tokens_per_second")
    return [
        str(record.get("state", "")),
        "" if step is None else f"{step:,}",
        number(record["loss"]) if "loss" in record else "",
        "" if bits is None else f"{bits:.3f}",
        "" if speed is None else f"{speed:,.0f}",
        "" if memory is None else size(memory),
    ]


def figures(record: Record) -> str:
    """What was measured of a model, in a few words."""
    parts = []
    if record.get("bits_per_byte") is not None:
        parts.append(f"{record['bits_per_byte']:.3f} bits per byte")
    if record.get("masked_accuracy") is not None:
        parts.append(f"{record['masked_accuracy']:.1%} of hidden words")
    if record.get("minimal_pairs") is not None:
        parts.append(f"{record['minimal_pairs']:.1%} of minimal pairs")
    if record.get("tokens"):
        parts.append(f"{record['tokens']:,} tokens")
    if isinstance(record.get("seconds"), float):
        parts.append(duration(record["seconds"]))
    return ", ".join(parts)


def display(kind: str, names: list[str]) -> LineDisplay | LiveTable:
    able = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if kind == "auto" and able and importlib.util.find_spec("rich"):
        return LiveTable(names)
    return LineDisplay()
