"""The command that compares models on one text under one budget."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from regard.cli.guess import check_there
from regard.cli.options import AskedFor
from regard.cli.output import say
from regard.core.errors import ConfigError
from regard.core.options import LR, MAX_BYTES, Argument, Option, PartialOptions, Quiet
from regard.core.tables import Table
from regard.lab.compare.comparison import ComparisonPlan as Comparing

SETTING = re.compile(r"[a-z_]+(\.[a-z_]+)*=.*")
CODES = {"interrupted": 130, "failed": 1}


@dataclass(frozen=True)
class CompareOptions:
    """The options of a comparison that are not in its plan."""

    budget: Annotated[
        str,
        Option(
            "The budget of each model: a time (90s, 10m, 2h), tokens (2Mtok) or operations "
            "(0.3Pflop)."
        ),
    ] = "2m"
    models: Annotated[
        str,
        Option(
            "MODEL, MODEL@SIZE, MODEL:OBJECTIVE or MODEL:OBJECTIVE@SIZE.",
            metavar="A,B,…",
            default="one of each family",
        ),
    ] = ""
    out: Annotated[Path | None, Option("Write the comparison here.", metavar="DIR")] = None
    lr: Annotated[float | None, LR] = None
    split_by: Annotated[
        str | None, Option("Where a document of text ends: blank (at a blank line), line or file.")
    ] = None
    max_bytes: Annotated[int | None, MAX_BYTES] = None
    resume: Annotated[bool, Option("SOURCE is a comparison: continue it.")] = False
    quiet: Quiet = False

    def reading(self) -> Table:
        """How the sources are read, as far as the user says it."""
        table = {"split_by": self.split_by, "max_bytes": self.max_bytes}
        return {name: value for name, value in table.items() if value is not None}


def compare(
    sources: Annotated[
        Sequence[str],
        Argument(
            "SOURCE… [KEY=VALUE]…",
            "Text in any form that 'regard prepare' reads, or its data directory; with --resume "
            "the comparison. KEY=VALUE changes every model's recipe.",
        ),
    ] = (),
    *,
    options: CompareOptions,
    plan: Annotated[Table, PartialOptions(Comparing)],
    typed: AskedFor,
) -> Table:
    """Compare models: all have the same text, tokenizer, splits and budget, and each has its own
    objective.

    The report compares bits per byte of unseen text among causal models, masked words among models
    that see both sides, sentences against corrupted ones, speed and memory. Ctrl-C keeps finished
    work; --resume continues.

    \b
    Examples:
      regard compare builtin:python-docs --budget 1m --out lineage
      regard compare book.txt --budget 10m --models gpt,transformer-xl,lstm --seeds 3 --out three
      regard compare corpus/ --budget 2Mtok --models bert,xlnet,t5@small --out both-ways
      regard compare --resume lineage
    """
    settings = [word for word in sources if SETTING.fullmatch(word) and not Path(word).exists()]
    texts = [word for word in sources if word not in settings]
    if options.lr is not None:
        settings.append(f"optimizer.lr={options.lr}")
    if not texts:
        raise ConfigError("SOURCE is missing; give a text, or --resume and a comparison")
    check_there("SOURCE", *texts)
    from regard.lab.compare.comparison import again, begin
    from regard.lab.compare.lineup import ModelBudget, lineup
    from regard.lab.compare.planning import planned

    if options.resume:
        beside = [*(option for option in typed if option not in ("--resume", "--quiet", "--json")),
                  *settings]  # fmt: skip
        if beside:
            raise ConfigError(f"{beside[0]} is given with --resume, but a comparison continues by "
                              "its own plan; leave it out, or start a new comparison")  # fmt: skip
        if len(texts) > 1:
            raise ConfigError(f"--resume continues one comparison, and {len(texts)} are given")
        place = Path(texts[0])
        return run_comparison(again(place), place, options.quiet)
    if options.out is None:
        raise ConfigError("--out is missing; give the directory that the comparison writes")
    usual = {name: getattr(Comparing, name) for name in ("seeds", "vocab_size")}
    opened = dict.fromkeys(("seq_len", "batch_size", "jobs"))  # what the plan decides
    decided = planned(
        tuple(texts), tuple(lineup(options.models.split(","))), ModelBudget.of(options.budget),
        **{"size": ""} | opened | usual | plan, settings=tuple(settings),
        reading=options.reading(),
    )  # fmt: skip
    begin(decided, options.out)
    return run_comparison(decided, options.out, options.quiet)


def run_comparison(plan: Any, place: Path, quiet: bool) -> Table:
    """Runs the models that are missing. The report shows all results so far, however it ended."""
    from regard.lab.compare.comparison import Comparison, ComparisonFailed, ComparisonStopped
    from regard.lab.compare.display import display
    from regard.lab.compare.estimate import estimated, in_words
    from regard.lab.compare.lineup import NGRAM
    from regard.lab.compare.planning import machine_speed
    from regard.lab.compare.report import write_report

    names = [NGRAM, *(f"{e.name}-{s}" for s in range(1, plan.seeds + 1) for e in plan.entries)]
    shown = display("quiet" if quiet else "auto", names)
    comparison = Comparison(plan, place, (lambda name, record: None) if quiet else shown.tell)
    ended: Exception | None = None
    if not comparison.facts.estimate:
        comparison.facts.estimate = estimated(plan, machine_speed()).table()
    if not quiet:
        say(in_words(comparison.facts.estimate, "time_estimate").en)
    try:
        comparison.go()
    except (ComparisonStopped, ComparisonFailed) as stopped:
        ended = stopped
    finally:
        shown.stop()
    report = write_report(comparison.found(), place)
    if ended is not None:
        say(str(ended))
        report["outcome"] = "interrupted" if isinstance(ended, ComparisonStopped) else "failed"
    return report


def where_compared(report: Table) -> str:
    """Says in one sentence what was found, and where the report is."""
    sentences = [sentence["en"] for sentence in report["verdict"]]
    first = sentences[0] if sentences else "Nothing has been measured yet."
    return f"{first} The report is {Path(report['out'], 'report.html')}"


def code(result: Table) -> int:
    return CODES.get(result.get("outcome", ""), 0)


def comparison_result(result: Table) -> Any:
    from regard.lab.compare.result import ComparisonResult

    return ComparisonResult(result)
