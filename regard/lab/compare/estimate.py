"""How long a comparison takes: the estimate before it starts, with every part of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from regard.core.text import Bilingual
from regard.data import builtin
from regard.data.corpus import MARKER, read_marker
from regard.lab.compare.comparison import ComparisonPlan
from regard.lab.compare.lineup import LineupEntry
from regard.models.family import SHAPES
from regard.objectives import objective
from regard.report.pages import filled, words
from regard.training.progress import duration

START = 4.0  # seconds in which a process imports torch and opens a model
REPORT = 2.0  # seconds of the page
BUILTIN = 2_300_000  # bytes of the built-in text
BYTES_A_TOKEN = 4
PREPARED, COUNTED = 0.4e6, 5e6  # bytes a second: prepared, and counted by the n-gram
UNSEEN = 0.05  # the share of the text that is tested on
PAIR_TOKENS = 25  # of a sentence of a minimal pair
PROBED = 20_000  # tokens that the probes read
WRITTEN = 2.0  # seconds of the samples, the probes and the attention
FORWARD, BACKWARD = 2, 6  # operations for each parameter and token


@dataclass(frozen=True)
class TimeEstimate:
    """The seconds of each part of a comparison."""

    preparing: float
    counting: float  # of the n-gram
    training: float
    measuring: float  # figures, probes and samples of all models
    costs: float  # a forward pass as texts grow longer
    report: float

    @property
    def total(self) -> float:
        return sum(asdict(self).values())

    def table(self) -> dict[str, float]:
        return asdict(self) | {"total": self.total}


def estimated(plan: ComparisonPlan, speed: float) -> TimeEstimate:
    """Returns how long a plan takes on a machine of `speed` operations a second for small models,
    on all cores together."""
    text, runs, start = text_bytes(plan.sources), plan.seeds, START / plan.jobs
    is_prepared = len(plan.sources) == 1 and Path(plan.sources[0], MARKER).is_file()
    return TimeEstimate(
        preparing=0.0 if is_prepared else text / PREPARED,
        counting=text / COUNTED if plan.order else 0.0,
        training=runs * sum(start + learning(plan, e, speed) for e in plan.entries),
        measuring=runs * sum(start + reading(plan, e, text, speed) for e in plan.entries),
        costs=START + sum(passes(plan, entry, speed) for entry in plan.entries),
        report=REPORT,
    )


def parameters(plan: ComparisonPlan, entry: LineupEntry) -> int:
    shape = SHAPES[entry.size or plan.size]
    return 12 * shape.layers * shape.width**2 + plan.vocab_size * shape.width


def learning(plan: ComparisonPlan, entry: LineupEntry, speed: float) -> float:
    """Returns the seconds of one training."""
    budget = plan.budget
    if budget.kind == "minutes":
        return budget.amount * 60 / plan.jobs
    operations = budget.amount
    if budget.kind == "tokens":
        operations *= BACKWARD * parameters(plan, entry)
    return operations / speed


def reading(plan: ComparisonPlan, entry: LineupEntry, text: int, speed: float) -> float:
    """Returns the seconds in which a model is measured. A model that sees both sides hides every
    word of a sentence in turn."""
    tokens = PROBED + text * UNSEEN / BYTES_A_TOKEN
    if objective(entry.objective).fills_blanks:
        tokens += plan.blanks * plan.seq_len + 2 * plan.pairs * PAIR_TOKENS**2
    else:
        tokens += 2 * plan.pairs * PAIR_TOKENS
    return WRITTEN + tokens * FORWARD * parameters(plan, entry) / speed


def passes(plan: ComparisonPlan, entry: LineupEntry, speed: float) -> float:
    """Returns the seconds of forward passes of all lengths; each is run for a while."""
    from regard.lab.compare.costs import LEAST, LENGTHS, SECONDS

    one = FORWARD * parameters(plan, entry) / speed
    return sum(SECONDS + (LEAST + 2) * length * one for length in LENGTHS)


def text_bytes(sources: tuple[str, ...]) -> int:
    """Returns the bytes of the text, as far as they are known before it is read."""
    total = 0
    for source in sources:
        path = Path(source)
        if source == builtin.NAME:
            total += BUILTIN
        elif (path / MARKER).is_file():
            total += sum(split["bytes"] for split in read_marker(path)["splits"].values())
        elif path.is_dir():
            total += sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        elif path.is_file():
            total += path.stat().st_size
    return total


def in_words(seconds: dict[str, float], key: str) -> Bilingual:
    """Returns the time of all parts in a sentence of the report, the parts in their order."""
    sentences = words("compare")
    named = [(sentences[f"time_{name}"], seconds[name]) for name in seconds if name != "total"]
    parts = Bilingual(
        ", ".join(f"{name.en} {duration(took)}" for name, took in named),
        "，".join(f"{name.zh} {duration(took)}" for name, took in named),
    )
    return filled(sentences[key], total=duration(seconds["total"]), parts=parts)
