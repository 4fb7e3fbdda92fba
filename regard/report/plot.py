"""Pictures that people save, by Matplotlib: PNG, PDF and SVG, in the colors of our pages.

Nothing is dated and no identifier is random: the same numbers give the same bytes. An SVG keeps its
letters as letters, in the reader's fonts; a PNG and a PDF are drawn with fonts of this machine, and
letters that none of them has are refused.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import InputError
from regard.core.text import clean
from regard.report.heatmap import Weights, check, label, width
from regard.report.palette import palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[float, float]]

PAPER, INK, SOFT, RULE, ACCENT, WARM = (
    palette()[name].light for name in ("paper", "ink", "soft", "rule", "accent", "focus")
)
INKS = tuple(color.light for name, color in palette().items() if re.fullmatch(r"i\d+", name))
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))  # lines that lie on each other
CHINESE = (
    "Noto Sans CJK SC", "Source Han Sans SC", "Noto Sans SC", "PingFang SC", "Hiragino Sans GB",
    "Microsoft YaHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "SimHei", "Noto Sans CJK JP",
)  # fmt: skip
STYLE = {
    "text.color": INK, "axes.labelcolor": SOFT, "axes.edgecolor": RULE, "axes.facecolor": PAPER,
    "figure.facecolor": PAPER, "savefig.facecolor": PAPER, "xtick.color": SOFT,
    "ytick.color": SOFT, "xtick.labelcolor": INK, "ytick.labelcolor": INK, "grid.color": RULE,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 13,
    "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 12,
    "axes.labelsize": 10.5, "xtick.labelsize": 9.5, "ytick.labelsize": 9.5, "legend.fontsize": 10,
    "axes.axisbelow": True, "axes.unicode_minus": True, "lines.linewidth": 2,
    "text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "regard",
    "pdf.fonttype": 42, "font.sans-serif": ["DejaVu Sans"],
}  # fmt: skip
METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "regard"},
    "png": {"Software": None},
    "pdf": {"Creator": "regard", "Producer": None, "CreationDate": None},
}
DPI = 160
CELL, SMALL = 0.27, 0.15  # inches: a square, and one of many
LETTER, TITLE = 0.085, 0.115  # inches: a letter of a name, and of a title
MANY = 48  # rows or columns from which squares are small
SHADES = 51  # of a scale: odd, so that nothing is paper
RECTANGLE = re.compile(r"^M (\S+) (\S+) L (\S+) \2 L \3 (\S+) L \1 \4 L \1 \2$")
SQUARES = 2500  # of an SVG; more are one image inside of it


def check_out(out: Path) -> str:
    """The kind of file that a name asks for; refused before any work if it cannot be made."""
    kind = out.suffix.lower().removeprefix(".")
    if kind not in METADATA:
        raise InputError(f"the picture {out} must be a file that ends in .png, .pdf or .svg")
    library()
    if not out.parent.is_dir():
        raise InputError(
            f"the picture {out} cannot be written: there is no directory {out.parent}; make it, "
            "or give another place"
        )
    return kind


def library() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise InputError(
            f"a picture is drawn by the library 'matplotlib' ({error}); install it with: "
            "pip install 'regard[plot]'"
        ) from None
    return matplotlib


def saved(figure: Figure, kind: str) -> bytes:
    """The bytes of a file of this kind."""
    from matplotlib.text import Text

    texts = [str(part.get_text()) for part in figure.findobj(Text) if isinstance(part, Text)]
    letters = frozenset("".join(texts))
    _, missing = fonts(letters)
    if missing and kind != "svg":
        raise InputError(
            f"no font of this machine has the letters {' '.join(missing[:8])} (tried "
            f"{', '.join(CHINESE)}, and all others that are installed); install one that has them "
            "(on Debian: apt-get install fonts-noto-cjk), or write an .svg file"
        )
    buffer = io.BytesIO()
    with look(letters):
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=METADATA[kind])
    return shortened(buffer.getvalue()) if kind == "svg" else buffer.getvalue()


def shortened(svg: bytes) -> bytes:
    """Places to a hundredth of a point: smaller, and the same where a last digit differs."""

    def rounded(attribute: re.Match[str]) -> str:
        places = " ".join(re.sub(r"(\.\d\d)\d+", r"\1", attribute[2]).split())
        return attribute[1] + RECTANGLE.sub(r"M\1 \2H\3V\4H\1Z", places)

    text = re.sub(r'( (?:d|x|y|transform)=")([^"]*)', rounded, svg.decode("utf-8"))
    return text.encode("utf-8")


@contextmanager
def look(letters: frozenset[str]) -> Iterator[None]:
    """Matplotlib's own defaults with our style, whatever a user has set."""
    library()
    from matplotlib import style

    families = [*fonts(letters)[0], "sans-serif"]
    with style.context(["default", STYLE | {"font.family": families}]):
        yield


@cache
def fonts(letters: frozenset[str]) -> tuple[list[str], list[str]]:
    """The families that have these letters, and the letters that no family has."""
    from matplotlib import font_manager as manager

    families, open_letters = ["DejaVu Sans"], {x for x in letters if not x.isspace()}
    every = {font.name for font in manager.fontManager.ttflist}
    installed = sorted(name for name in every if "Last" not in name)  # "Last Resort": only boxes
    names = [name for name in CHINESE if name in installed]
    for name in ["DejaVu Sans", *names, *installed]:
        if not open_letters:
            break
        font = manager.get_font(manager.findfont(manager.FontProperties(family=[name])))
        drawn = {x for x in open_letters if font.scalable and font.get_char_index(ord(x))}
        if drawn and name not in families:
            families.append(name)
        open_letters -= drawn
    return families, sorted(open_letters)


@dataclass(frozen=True)
class Measured:
    """A figure with its interval, and the values that it is the mean of."""

    name: str
    value: float
    interval: tuple[float, float] | None = None
    values: Sequence[float] = ()


# -- the four kinds


def heat(
    title: str,
    values: Weights,
    rows: Sequence[str],
    columns: Sequence[str],
    span: tuple[float, float],
    axes: tuple[str, str],
) -> Figure:
    """Squares from paper to ink, names around them, and a scale unless they are only 0 and 1.

    `axes` says what a row and a column is. Below nothing the color is another one.
    """
    check(values, rows, columns)
    down, across = [label(name) for name in rows], [label(name) for name in columns]
    with look(frozenset("".join([title, *axes, *down, *across]))):
        from matplotlib.colors import LinearSegmentedColormap

        cell = CELL if max(len(rows), len(columns)) < MANY else SMALL
        sides = [LETTER * max(map(width, names), default=0) for names in (down, across)]
        scale = {value for row in values for value in row} - {0.0, 1.0}
        wide = cell * len(columns) + sides[0] + 0.75 + (0.9 if scale else 0.0)
        high = cell * len(rows) + sides[1] + 1.25
        ax = sheet(title, max(wide, 3.6, min(5.4, TITLE * width(title) + 0.4)), max(high, 2.2))
        ax.set_anchor("NW")
        low = [WARM, PAPER] if span[0] < 0 else [PAPER]
        colors = LinearSegmentedColormap.from_list("regard", [*low, ACCENT], N=SHADES)
        squares = ax.pcolormesh(
            values, cmap=colors, vmin=span[0], vmax=span[1], clip_on=False,
            rasterized=len(rows) * len(columns) > SQUARES, snap=True,
        )  # fmt: skip
        thin: dict[str, Any] = {"color": RULE, "linewidth": 0.7 if cell == CELL else 0.3}
        ax.hlines(range(1, len(rows)), 0, len(columns), **thin)
        ax.vlines(range(1, len(columns)), 0, len(rows), **thin)
        ax.set(aspect="equal", xlim=(0, len(columns)), ylim=(len(rows), 0))
        ax.set(ylabel=axes[0], xlabel=axes[1])
        size = 9.5 if cell == CELL else 6.5
        ax.set_yticks([i + 0.5 for i in range(len(rows))], down, fontsize=size)
        turned = 90 if max(map(width, across), default=0) > 2 else 0
        ax.set_xticks([j + 0.5 for j in range(len(columns))], across, fontsize=size,
                      rotation=turned)  # fmt: skip
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.tick_params(length=0)
        ax.spines[:].set(visible=True, color=RULE)
        if scale:
            bar = ax.figure.colorbar(squares, ax=ax, fraction=0.05, pad=0.03, aspect=18)
            bar.outline.set_edgecolor(RULE)
            if bar.solids is not None:
                bar.solids.set_rasterized(False)
            bar.ax.tick_params(length=0)
        return ax.figure  # type: ignore[return-value]


def curves(
    title: str,
    lines: Mapping[str, Points],
    axes: tuple[str, str],
    *,
    zero: bool = True,
    dots: Sequence[str] = (),
) -> Figure:
    """Lines over a common scale, which begins at 0 unless `zero` is false; those named by `dots`
    are points.
    """
    names = {name: clean(name) for name in lines}
    with look(frozenset("".join([title, *axes, *names.values()]))):
        ax = sheet(title, 7.2, 4.2)
        for i, (name, points) in enumerate(lines.items()):
            x, y = zip(*points, strict=True)
            how: dict[str, Any] = {"linestyle": DASHES[i % len(DASHES)]}
            if name in dots:
                how = {"linestyle": "none", "marker": "o", "markersize": 5}
            elif len(points) <= 24:
                how |= {"marker": "o", "markersize": 4}
            ax.plot(x, y, color=INKS[i % len(INKS)], label=names[name], clip_on=False, **how)
        ax.set(xlabel=axes[0], ylabel=axes[1])
        if zero:
            ax.set_ylim(bottom=min(0.0, *(y for line in lines.values() for _, y in line)))
        ax.grid(axis="y")
        ax.margins(x=0.02)
        ax.tick_params(length=0)
        ax.ticklabel_format(useOffset=False)
        if len(lines) > 1:
            ax.figure.legend(loc="outside lower left", ncols=min(4, len(lines)), frameon=False)
        return ax.figure  # type: ignore[return-value]


def bars(title: str, counts: Mapping[str, float], total: str) -> Figure:
    """A name, a bar and its number in each line; `total` says what they are together."""
    names = [label(name) for name in counts]
    with look(frozenset("".join([title, total, *names]))):
        from matplotlib.ticker import EngFormatter

        ax = sheet(title, 7.2, 1.5 + 0.3 * len(names))
        drawn = ax.barh(range(len(names)), list(counts.values()), color=ACCENT, height=0.72)
        ax.bar_label(drawn, [f"{count:,.0f}" for count in counts.values()], padding=5, fontsize=9)
        ax.set_yticks(range(len(names)), names)
        ax.set(ylim=(len(names) - 0.4, -0.6), xlabel=total)
        ax.margins(x=0.24)
        ax.grid(axis="x")
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.tick_params(length=0)
        return ax.figure  # type: ignore[return-value]


def intervals(title: str, groups: Sequence[Sequence[Measured]]) -> Figure:
    """A point with its interval in each line; what has a scale of its own is a group of its own."""
    rows = [row for group in groups for row in group]
    with look(frozenset("".join([title, *(row.name for row in rows)]))):
        heights = [0.7 + 0.34 * len(group) for group in groups]
        axes = sheets(title, 7.2, 0.9 + sum(heights), heights)
        for ax, group in zip(axes, groups, strict=True):
            for i, row in enumerate(group):
                if row.interval is not None:
                    ax.plot(row.interval, [i, i], color=ACCENT, alpha=0.45, linewidth=4)
                ax.plot(row.values, [i] * len(row.values), "|", color=SOFT, markersize=9)
                ax.plot([row.value], [i], "o", color=ACCENT, markersize=6)
            ax.set_yticks(range(len(group)), [label(row.name) for row in group])
            ax.set(ylim=(len(group) - 0.5, -0.5))
            ax.grid(axis="x")
            ax.margins(x=0.08)
            ax.tick_params(length=0)
            ax.ticklabel_format(axis="x", useOffset=False)
        return axes[0].figure  # type: ignore[return-value]


def sheet(title: str, wide: float, high: float) -> Axes:
    """An empty picture with its title, which is broken where it would be wider."""
    return sheets(title, wide, high, [1.0])[0]


def sheets(title: str, wide: float, high: float, heights: Sequence[float]) -> list[Axes]:
    """Several of them, one above the other, under one title."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(wide, high), layout=layout)
    text = clean(title)
    letters = max(8, int(wide / TITLE * len(text) / max(1, width(text))))
    lines = textwrap.wrap(text, letters) or [""]
    figure.set_size_inches(wide, high + 0.22 * (len(lines) - 1))
    figure.suptitle("\n".join(lines), x=0.02, ha="left", fontsize=13, fontweight="bold")
    return list(figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0])
