"""The sentences of scripts/results.py about its cells. All of them are computed from the cells."""

from __future__ import annotations

from typing import Any

from page import table

Row = dict[str, Any]

EXACT = ("causal", "recurrent")  # objectives whose bits per byte can be compared
MEMORIES = {  # a run with a memory, and the one without
    "Transformer-XL": "Transformer-XL, no memory",
    "XLNet": "XLNet, no memory",
}


class Best:
    """The best figures of a run's validations."""

    def __init__(self, row: Row) -> None:
        self.curve: list[Row] = row["curve"]
        self.names = [name for name in self.curve[-1] if name != "tokens"]

    def __getitem__(self, name: str) -> float:
        values = [float(point[name]) for point in self.curve if name in point]
        return max(values) if "accuracy" in name else min(values)

    def told(self) -> str:
        return ", ".join(f"{spelt(name)} {self[name]:.4g}" for name in self.names)


def spelt(name: str) -> str:
    return name.replace("_", " ")


def crossing(row: Row, ngram: float) -> str:
    for point in row["curve"]:
        if point.get("bits_per_byte", 9e9) < ngram:
            return f"{point['tokens'] / 1e6:.2f} M tokens"
    return "not yet"


def beside_ngram(rows: list[Row], ngrams: dict[str, Row]) -> str:
    """Says how far each model is from the n-gram at the end of its budget."""
    lines = []
    for row in rows:
        ngram, budget = ngrams[row["data"]]["bits_per_byte"], f"{row['tokens'] / 1e6:.2f} M tokens"
        gap = Best(row)["bits_per_byte"] - ngram
        distance = (
            f"{gap:.3f} bits per byte above the n-gram; it has not yet passed it"
            if gap >= 0
            else f"{-gap:.3f} bits per byte below the n-gram, passed after {crossing(row, ngram)}"
        )
        lines.append(f"* {row['cell']}: after {budget} {distance}.")
    return "\n".join(lines)


# -- what a memory is worth


def remembering(rows: list[Row], memories: dict[str, list[Row]]) -> list[str]:
    """Compares runs with and without a memory, and the same weights with other memory lengths."""
    by_name = {row["cell"]: row for row in rows}
    comparisons = [
        f"* {worth(by_name[name], by_name[other], memories.get(name, []))}"
        for name, other in MEMORIES.items()
        if name in by_name and other in by_name
    ]
    parts = ["### Does a memory help?"] if comparisons or memories else []
    if comparisons:
        parts.append("\n".join(comparisons))
    if memories:
        parts += [
            "The same weights, validated with memories of other lengths; bold is the length they "
            "have learned with:",
            lengths(memories),
        ]
    return parts


def worth(with_it: Row, without: Row, others: list[Row]) -> str:
    """Says which run is better, and where the difference comes from."""
    name = Best(with_it).names[0]  # the figure that chooses the best model: lower is better
    a, b = Best(with_it)[name], Best(without)[name]
    better = "with the memory is better" if a < b else "without the memory is better"
    sentence = (
        f"{with_it['cell']}: {spelt(name)} {a:.5g} with a memory, {b:.5g} without one: {better}, "
        f"by {abs(a - b):.3g} ({abs(a - b) / b:.1%})."
    )
    by_length = {row["memory"]: row[name] for row in others}
    own = others[0]["settings"]["own"] if others else 0
    if own == 0 or not {0, own} <= by_length.keys():
        return sentence
    used, learned = by_length[0] - by_length[own], by_length[0] - b
    return (
        f"{sentence} Of the same weights, {own} remembered tokens are worth {used:+.3g}: "
        f"{by_length[0]:.5g} without them, {by_length[own]:.5g} with them. Without them, these "
        f"weights are {abs(learned):.3g} {'worse' if learned > 0 else 'better'} than those that "
        f"learned without a memory. {reason(a < b, used, learned)}"
    )


def reason(helps: bool, used: float, learned: float) -> str:
    """Explains the difference. `used` is the gain from the memory for weights that were trained
    with it; `learned` is how much worse these weights are than the others without a memory."""
    if used <= 0:
        return "So they have not learned, at this budget, to use what they remember."
    if helps:
        return "So the memory is used, and it helps."
    if learned > 0:
        return (
            "So the memory is used, but it gives less than was lost by how these weights learned: "
            "from text in its order, where the others learn from shuffled pieces."
        )
    return "So the memory is used; the difference lies in which of the validations was the best."


def lengths(memories: dict[str, list[Row]]) -> str:
    names = {cell: next(n for n in rows[0] if n not in ("memory", "settings"))
             for cell, rows in memories.items()}  # fmt: skip
    by_length = {cell: {row["memory"]: row for row in rows} for cell, rows in memories.items()}
    lines = []
    for length in sorted({length for rows in by_length.values() for length in rows}):
        line = [f"{length}"]
        for cell, rows in by_length.items():
            figure = f"{rows[length][names[cell]]:.5g}" if length in rows else "–"
            own = length in rows and rows[length]["settings"]["own"] == length
            line.append(f"**{figure}**" if own else figure)
        lines.append(line)
    return table(["memory, tokens", *(f"{c}, {spelt(n)}" for c, n in names.items())], lines)
