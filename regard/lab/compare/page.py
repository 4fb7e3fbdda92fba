"""The page of a comparison: one file that needs nothing else, in English and Chinese.

Words and tables are in the page as it is; pictures are drawn by a small script from the numbers
that the page carries. What others wrote (texts, names, paths) only ever becomes text.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from regard.lab.compare.lineup import NGRAM, Budget
from regard.lab.compare.page_figures import (
    attention,
    attention_data,
    curve_panels,
    curves,
    growth,
    samples,
)
from regard.lab.compare.page_parts import (
    grid,
    know,
    lines,
    mark,
    model_name,
    safe,
    section,
    shapes,
    t,
    value,
)
from regard.lab.compare.page_words import WORDS
from regard.lab.compare.tables import PREFIX
from regard.lab.compare.verdict import BITS, HIDDEN, PAIRS, PROBE, PSEUDO, Measure, Said, listed
from regard.training.progress import duration, number, size

Report = dict[str, Any]

PAGE = """<!doctype html>
<html lang="en" data-language="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{shapes}
<header>
<div class="bar"><a class="skip" href="#verdict">{skip}</a>\
<button type="button" id="language" lang="zh-Hans" aria-label="中文">中文</button></div>
<h1>{heading}</h1>
{facts}
</header>
<main>
{body}
</main>
<div id="tip" role="status" aria-live="polite" hidden></div>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(report: Report) -> str:
    parts = [
        findings(report),
        exact(report),
        beside(report),
        measured(report, HIDDEN, "hidden"),
        measured(report, PAIRS, "pairs", line=0.5),
        probed(report),
        curves(report),
        cost(report),
        growth(report),
        samples(report),
        attention(report),
        repeat(report),
    ]
    heading, here = report["title"], files("regard.lab.compare")
    return PAGE.format(
        title=safe(heading["en"]),
        style=(here / "page.css").read_text(encoding="utf-8"),
        shapes=shapes(),
        skip=t("skip"),
        heading=know(heading),
        facts=facts(report),
        body="\n".join(part for part in parts if part),
        data=embedded(data_of(report)),
        script=(here / "page.js").read_text(encoding="utf-8"),
    )


def embedded(value: Any) -> str:
    """JSON that cannot end its script, whatever texts it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def data_of(report: Report) -> dict[str, Any]:
    """What the script draws from."""
    words = ("ngram", "seed", "seconds", "tokens", "operations", "length")
    return {
        "title": report["title"],
        "models": report["models"],
        "panels": curve_panels(report),
        "costs": report.get("costs"),
        "attention": attention_data(report),
        "words": {language: {w: getattr(WORDS[w], language) for w in words}
                  for language in ("en", "zh")},
    }  # fmt: skip


# -- the head


def facts(report: Report) -> str:
    plan, data = report["plan"], report["data"]
    learned, unseen = data.get("train", {}), data.get("test", {})

    def amount(split: dict[str, Any]) -> str:
        if not split:
            return "–"
        return (
            f"{size(split['bytes'])}<small>{number(split['tokens'])} {t('tokens_long')}</small>"
            f"<small>{number(split['documents'])} {t('documents')}</small>"
        )

    rows = [
        ("text", "<br>".join(safe(source) for source in plan["sources"])),
        ("learned", amount(learned)),
        ("unseen", amount(unseen)),
        ("budget", know(allowance(Budget(**plan["budget"]))._asdict())),
        ("runs_each", number(plan["seeds"])),
        ("size", f"{safe(plan['size'])}<small>{plan['length']:,} × {plan['samples']:,} "
                 f"{t('tokens_long')}</small>"),
    ]  # fmt: skip
    inside = "".join(f"<div><dt>{t(key)}</dt><dd>{shown}</dd></div>" for key, shown in rows)
    return f'<dl class="facts">{inside}</dl>'


def allowance(budget: Budget) -> Said:
    """The budget in words."""
    whole = budget.amount >= 1
    chinese = {
        "minutes": f"{budget.amount:g} 分钟" if whole else f"{budget.amount * 60:g} 秒",
        "tokens": f"{budget.amount:,.0f} 个词元",
        "flops": f"{budget.amount:.3g} FLOP",
    }
    return Said(str(budget), chinese[budget.kind])


def findings(report: Report) -> str:
    said = [know(each) for each in report["verdict"]] or [t("nothing")]
    rest = "".join(f"<li>{each}</li>" for each in said[1:])
    more = f"<ul>{rest}</ul>" if rest else ""
    return section("verdict", f'<p class="lead">{said[0]}</p>{more}', kind="verdict")


# -- measures


def exact(report: Report) -> str:
    ngram = report["cells"].get(NGRAM)
    limit = ngram["bits_per_byte"] if ngram else None
    inside = ranking(report, BITS, limit, ngram)
    return section("exact", f"<p>{t('exact_note')}</p>{inside}") if inside else ""


def beside(report: Report) -> str:
    """What is also in bits and means something else."""
    blocks = []
    for measure, key in ((PREFIX, "prefix"), (PSEUDO, "pseudo")):
        inside = ranking(report, measure)
        if inside:
            note = f'<p class="soft">{t(key + "_note")}</p>'
            blocks.append(f"<div><h3>{t(key)}</h3>{note}{inside}</div>")
    return section("apart", f'<div class="two">{"".join(blocks)}</div>') if blocks else ""


def measured(report: Report, measure: Measure, key: str, line: float | None = None) -> str:
    inside = ranking(report, measure, line)
    return section(key, f"<p>{t(key + '_note')}</p>{inside}") if inside else ""


def probed(report: Report) -> str:
    cells = {name.rpartition("-")[0]: cell for name, cell in reversed(report["cells"].items())}

    def figure(key: str) -> Callable[[dict[str, Any]], str]:
        return lambda row: value(cells[row["model"]].get(key), PROBE)

    columns = {"untrained": figure("probe_untrained"), "majority": figure("probe_majority")}
    inside = ranking(report, PROBE, more=columns)
    if not inside:
        return ""
    gained = [
        row["model"]
        for row in report["tables"][PROBE.key]
        if row["interval"] and row["interval"][0] > cells[row["model"]]["probe_untrained"]
    ]
    return section("probe", f"<p>{t('probe_note')}</p>{inside}<p>{know(beyond(gained))}</p>")


def beyond(models: list[str]) -> dict[str, str]:
    """Who knows more than its first weights did."""
    if not models:
        said = Said(
            "None of them is clearly above an untrained model of its shape: what the probes read "
            "here, the words alone give away.",
            "没有一个明显超过同形的未训练模型：探针在这里读到的，单凭词本身就能知道。",
        )
    else:
        said = Said(
            f"Clearly above an untrained model of its shape: {listed(models, 'en')}.",
            f"明显超过同形的未训练模型的有：{listed(models, 'zh')}。",
        )
    return said._asdict()


Column = Callable[[dict[str, Any]], str]


def ranking(
    report: Report,
    measure: Measure,
    line: float | None = None,
    ngram: dict[str, Any] | None = None,
    more: dict[str, Column] | None = None,
) -> str:
    """A table of one measure with a picture of its intervals; `line` is drawn through all."""
    rows = report["tables"][measure.key]
    if not rows:
        return ""
    seeds, spans = report["plan"]["seeds"] > 1, any(row["interval"] for row in rows)
    scale = Scale.of(rows, line)
    head = [t("model"), know(measure.name._asdict())]
    head += [t("interval_first" if seeds else "interval")] if spans else []
    head += [t("spread")] if seeds else []
    head += [t(key) for key in more or {}]
    head += [f'<span class="ends"><span>{measure.shown(scale.ends[0])}</span>'
             f"<span>{measure.shown(scale.ends[1])}</span></span>"]  # fmt: skip
    made: list[tuple[float, str, list[str]]] = []
    for row in rows:
        cells = [value(row["mean"], measure)]
        cells += [between(row["interval"], measure)] if spans else []
        cells += [spread(row, measure)] if seeds else []
        cells += [column(row) for column in (more or {}).values()]
        cells.append(scale.picture(report, row, line))
        first = model_name(report, row["model"])
        made.append((row["mean"], f"<b>{first}</b>" if row["best"] else first, cells))
    if ngram is not None:
        name = f'<span class="ngram">{ngram["order"]}-gram</span>'
        blank = [""] * (spans + seeds + len(more or {}))
        drawn = scale.picture(report, None, line)
        made.append((line or 0.0, name, [value(ngram["bits_per_byte"], measure), *blank, drawn]))
        made.sort(key=lambda each: each[0])
    best = any(row["best"] for row in rows) and len(rows) > 1
    note = f'<p class="soft">{t("not_apart")}</p>' if best else ""
    table = grid(head, ([name, *cells] for _, name, cells in made), measure.key)
    return table + note


def between(span: Sequence[float] | None, measure: Measure) -> str:
    return "" if span is None else f"{value(span[0], measure)} – {value(span[1], measure)}"


def spread(row: dict[str, Any], measure: Measure) -> str:
    """The standard deviation, and of how many seeds."""
    if row["deviation"] is None:
        return ""
    return f"± {value(row['deviation'], measure)} <small>({len(row['values'])})</small>"


class Scale:
    """From the least to the largest figure of a table, with some air."""

    def __init__(self, low: float, high: float) -> None:
        air = (high - low) * 0.06 or abs(high) * 0.05 or 0.5
        self.ends = low, high
        self.low, self.high = low - air, high + air

    @classmethod
    def of(cls, rows: Iterable[dict[str, Any]], line: float | None) -> Scale:
        known = [x for row in rows for x in (*row["values"], *(row["interval"] or ()))]
        known += [] if line is None else [line]
        return cls(min(known), max(known))

    def at(self, number: float) -> float:
        return 100 * (number - self.low) / (self.high - self.low)

    def picture(self, report: Report, row: dict[str, Any] | None, line: float | None) -> str:
        """Interval, seeds and mean, at percentages of the cell's width."""
        marks = [] if line is None else [f'<i class="limit" style="left:{self.at(line):.2f}%"></i>']
        ink = ""
        if row is not None:
            ink = f" {mark(report['models'], row['model'])}"
            if row["interval"]:
                left, right = map(self.at, row["interval"])
                marks.append(
                    f'<i class="bar" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
                )
            if len(row["values"]) > 1:
                marks += [f'<i class="seed" style="left:{self.at(x):.2f}%"></i>'
                          for x in row["values"]]  # fmt: skip
            marks.append(f'<i class="dot" style="left:{self.at(row["mean"]):.2f}%"></i>')
        return f'<span class="range{ink}" aria-hidden="true">{"".join(marks)}</span>'


# -- what it cost


def cost(report: Report) -> str:
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "parameters": lambda row: value(row["parameters"], f"{row['parameters']:,.0f}"),
        "tokens_read": lambda row: value(row["tokens"], f"{row['tokens']:,.0f}"),
        "operations": lambda row: value(row["flops"], operations(row["flops"])),
        "time": lambda row: value(row["seconds"], duration(row["seconds"])),
        "speed": lambda row: value(row["tokens_per_second"], f"{row['tokens_per_second']:,.0f}"),
        "memory": lambda row: value(row["peak_memory"], size(row["peak_memory"])),
    }
    rows = [
        [model_name(report, row["model"]), *(column(row) for column in columns.values())]
        for row in report["spent"]
    ]
    if not rows:
        return ""
    head = [t("model"), *(t(key) for key in columns)]
    spans = any(entry["objective"] == "span" for entry in report["plan"]["entries"])
    other = f'<p class="soft">{t("reads_span")}</p>' if spans else ""
    return section("spent", f"<p>{t('spent_note')}</p>{grid(head, rows, 'spent')}{other}")


def operations(count: float) -> str:
    for unit, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if count >= unit:
            return f"{count / unit:.3g} {letter}FLOP"
    return f"{count:,.0f} FLOP"


# -- again


def repeat(report: Report) -> str:
    again = report["recipe"]
    plan = [[safe(key), f"<code>{safe(json.dumps(held, ensure_ascii=False))}</code>"]
            for key, held in report["plan"].items()]  # fmt: skip
    machine = [[safe(key), safe(str(held))]
               for key, held in {**again["versions"], **again["machine"]}.items()]  # fmt: skip
    links = "".join(
        f'<li><a href="{escape(run["report"], quote=True)}">{safe(run["name"])}</a></li>'
        for run in again["runs"]
        if run["report"] is not None
    )
    singles = "\n".join(run["command"] for run in again["runs"])
    parts = [
        f"<p>{t('repeat_note')}</p><pre><code>{lines(unfolded(again['command']))}</code></pre>",
        f'<h3>{t("reports")}</h3><ul class="links">{links}</ul>' if links else "",
        folded("plan", grid([], plan)),
        folded("machine", grid([], machine)),
        folded("single", f"<pre><code>{lines(singles)}</code></pre>"),
    ]
    return section("repeat", "".join(parts))


def unfolded(command: str) -> str:
    """A line for each option; a shell reads it as one."""
    parts: list[list[str]] = [[]]
    for word in shlex.split(command):
        if word.startswith("--") and parts[-1] and parts[-1] != ["--prompt"]:
            parts.append([])
        parts[-1].append(word)
    return " \\\n  ".join(map(shlex.join, parts))


def folded(key: str, inside: str) -> str:
    return f"<details><summary>{t(key)}</summary>{inside}</details>"
