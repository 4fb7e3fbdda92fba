"""The commands `regard quantize` and `prune`, which make models smaller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from regard.cli.guess import check_order, check_there
from regard.cli.options import AskedFor, Command
from regard.cli.output import say
from regard.core.errors import ConfigError
from regard.core.options import Argument, Option, PartialOptions, Quiet
from regard.core.tables import Table
from regard.data.readers import ReaderOptions as Reading
from regard.evaluation.options import EvaluateOptions
from regard.methods.options import PruneOptions, QuantizeOptions

NAMED = 5  # the number of matrices named in a line
TESTING = ("task", "split", "skip")  # options of the test before and after
OF_DATA = {"--limit", "--task", "--split", "--skip", "--field", "--format", "--header",
           "--importance-examples"}  # fmt: skip
Run = Annotated[str, Argument("RUN", "A run or a model directory.")]
Out = Annotated[Path, Option("Write the model into this new directory.", metavar="DIR")]
Testing = Annotated[Table, PartialOptions(EvaluateOptions, *TESTING)]
Fields = Annotated[Table, PartialOptions(Reading, "form", "fields", "header", "max_bytes")]


def testing_of(data: Sequence[str], typed: Sequence[str], testing: Table, reading: Table) -> Table:
    """Returns the options of the test before and after. Refuses them if there is no data."""
    named = [option for option in typed if option in OF_DATA]
    if named and not data:
        raise ConfigError(
            f"{named[0]} is about the data that a model is tested on, and --data is not given; "
            "give it, or leave the option out"
        )
    check_there("--data", *data)
    return testing | {"reading": reading}


def quantize(
    run: Run,
    *,
    out: Out,
    options: Annotated[Table, PartialOptions(QuantizeOptions)],
    testing: Testing,
    reading: Fields,
    quiet: Quiet = False,
    typed: AskedFor,
) -> Table:
    """Make a model smaller, and faster on a CPU, by storing its matrices in 8 or 4 bits.

    DIR is a model directory like any other, for the commands that evaluate, predict and generate.
    It cannot be trained further, and transformers does not open it. Size and speed are measured
    before and after, and with --data also the score.

    \b
    Examples:
      regard quantize ./my-gpt --out ./my-gpt-int8
      regard quantize ./reviewer --scheme int8-dynamic --data test.jsonl --out ./reviewer-int8
      regard quantize ./my-gpt --calibrate typical.txt --out ./my-gpt-int8
      regard quantize ./my-gpt --scheme int4 --calibrate typical.txt --out ./my-gpt-int4
      regard quantize ./my-gpt --exclude 'blocks.0.*' --exclude output --out ./other
    """
    check_order("quantize", run, option="--data")
    testing = testing_of(options.get("data", ()), typed, testing, reading)
    plan = QuantizeOptions(**options, testing=testing)
    from regard.methods.quantize.run import quantize as shrink
    from regard.training.hardware import quick_malloc

    quick_malloc()
    return shrink(run, out, plan, watch=watching(quiet))


def prune(
    run: Run,
    *,
    out: Out,
    options: Annotated[Table, PartialOptions(PruneOptions)],
    testing: Testing,
    reading: Fields,
    quiet: Quiet = False,
    typed: AskedFor,
) -> Table:
    """Remove the least important parts of a model: heads, feed-forward units, single weights.

    The importance of a head is how much the loss depends on it (Michel et al. 2019). Heads and
    units are really removed: DIR is a smaller model like any other, which can be trained further.
    Size, speed and score are measured before and after. DIR/heads.html shows each importance.

    \b
    Examples:
      regard prune ./reviewer --heads 0.3 --data valid.jsonl --out ./smaller
      regard prune ./my-gpt --ffn-units 0.25 --data ./data --split valid --out ./narrower
      regard prune ./my-gpt --head-list blocks.0:1,3 --head-list blocks.2:0 --out ./fewer
      regard prune ./my-bert --weights 0.5 --out ./sparse
    """
    check_order("prune", run, option="--data")
    testing = testing_of(options.get("data", ()), typed, testing, reading)
    plan = PruneOptions(**options, testing=testing)
    by_importance = plan.heads or (plan.ffn_units and plan.by != "magnitude")
    if "samples" in options and not by_importance:
        raise ConfigError(
            "--importance-examples says how much of --data measures importance, and nothing is "
            "pruned by importance here; leave it out"
        )
    from regard.methods.prune.run import prune as shrink
    from regard.training.hardware import quick_malloc

    quick_malloc()
    return shrink(run, out, plan, watch=watching(quiet))


def watching(quiet: bool) -> Any:
    return (lambda what: None) if quiet else (lambda what: say(f"regard: {what} …"))


def in_lines(report: Table) -> Iterator[str]:
    """Yields the figures before and after, and what was removed or left as it was."""
    rows = list(figures(report))
    margin = max(len(name) for name, *_ in rows) + 2
    yield f"{'':<{margin}}{'before':>14}{'after':>14}"
    for name, before, after, change in rows:
        yield f"{name:<{margin}}{before:>14}{after:>14}{change:>9}".rstrip()
    for name, heads in report.get("heads", {}).get("removed", {}).items():
        yield f"{name} without heads {', '.join(map(str, heads))}"
    if unread := report.get("calibration", {}).get("unread"):
        # A text is only read by the encoder, so the decoder sees nothing of it.
        yield f"not fitted, because the text does not pass them: {listed(unread)}"
    if stays := report.get("stays"):
        yield f"as they were: {listed(stays)}"


def figures(report: Table) -> Iterator[tuple[str, str, str, str]]:
    """Yields the name of each figure, its values before and after, and their ratio."""

    def row(name: str, before: float, after: float, form: str) -> tuple[str, str, str, str]:
        return name, f"{before:{form}}", f"{after:{form}}", f"{after / before:.1%}"

    if "parameters" in report:
        yield row("parameters", *sides(report["parameters"]), ",.0f")
    before, after = sides(report["bytes"])
    yield row("size, MB", before / 1e6, after / 1e6, ",.1f")
    if report.get("heads", {}).get("removed"):
        yield row("heads", *sides(report["heads"]), ".0f")
    if units := report.get("ffn_units"):
        before, after = (sum(each[key] for each in units.values()) for key in ("before", "after"))
        yield row("units", before, after, ",.0f")
    if zeros := report.get("zeros"):
        weights = zeros["weights"]
        yield row("weights not 0", weights, weights - zeros["zeros"], ",.0f")
    if speed := report.get("speed"):
        before, after = sides(speed)
        yield speed["unit"], f"{before:,.1f}", f"{after:,.1f}", f"{after / before:.2f} ×"
    if score := report.get("score"):
        share = "" if score["kept"] is None else f"{score['kept']:.1%}"
        before, after = sides(score)
        yield score["figure"].replace("_", " "), f"{before:.4f}", f"{after:.4f}", share
    if fitted := report.get("calibration"):
        before, after = sides(fitted["error"])
        yield "error of layers", f"{before:.2%}", f"{after:.2%}", ""


def sides(table: Table) -> tuple[float, float]:
    return table["before"], table["after"]


def listed(names: list[str]) -> str:
    """Joins the first names, and says how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def where(report: Table) -> str:
    return f"the model is in {report['out']}"


COMMANDS = {
    "quantize": Command(quantize, in_lines, after=where, opens=True),
    "prune": Command(prune, in_lines, after=where, opens=True),
}
