"""`regard claim` and `regard claims`: what papers say, tried."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.core.errors import ConfigError, RegardError

if TYPE_CHECKING:
    from regard.lab.claims.engine.claim import Cell, Claim

HERE = Path("claims")
Out = Annotated[Path, typer.Option(metavar="DIR", help="Where measurements and pages go.")]
Share = Annotated[
    float | None,
    typer.Option(metavar="X", help="Times the usual number of steps; 0.1 for a first look."),
]
Limit = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Of each claim, such as 90s or 5m: sets the effort."),
]
Seeds = Annotated[
    int | None, typer.Option(help="Runs of everything; noise shows from 2 on.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def register(app: typer.Typer) -> None:
    app.command(short_help="Try what a paper says.")(claim)
    several = typer.Typer(rich_markup_mode=None, add_completion=False)
    several.callback(invoke_without_command=True)(claims)
    several.command("run", short_help="Try several, or all.")(run_several)
    app.add_typer(several, name="claims", short_help="List or try all claims.")


def claim(
    name: Annotated[str, typer.Argument(metavar="NAME", help="'regard claims' lists them.")],
    budget: Limit = None,
    effort: Share = None,
    seeds: Seeds = None,
    out: Out = HERE,
    as_json: Json = False,
) -> None:
    """Try what a paper says: an experiment with a rule that was fixed before it runs.

    Measurements are kept one by one: the same command goes on where it was stopped. The page with
    figures and table is DIR/NAME/claim.html.

    \b
    Examples:
      regard claim scaling
      regard claim pre-norm-warm-up --budget 10m
      regard claim heads --effort 0.1 --seeds 2 --out quick
    """
    from regard.lab.claims import claim as find

    found = find(name)
    with Stopping(f"regard claim {name}{given(budget, effort, seeds)} --out {out}", out):
        facts = tried(found, out, budget, effort, seeds)
    gallery(out)
    if as_json:
        print(json.dumps(facts, indent=1, ensure_ascii=False))
    else:
        print(f"{found.statement.en}\n({found.source})\n\n{facts['verdict'].upper()}")
        print("\n".join(f"  {part}" for part in facts["because"].split("; ")))
        print("".join(f"{caution}\n" for caution in warned(found, facts)), end="")
        print(f"the page is {out / name / 'claim.html'}", file=sys.stderr)


def claims(context: typer.Context, out: Out = HERE, as_json: Json = False) -> None:
    """List every claim: what is said, how long it takes, and what came out in DIR.

    \b
    Examples:
      regard claims
      regard claims --out claims --json
      regard claims run all --out claims
    """
    if context.invoked_subcommand is not None:
        return
    rows = [row_of(name, out) for name in all_names()]
    if as_json:
        print(json.dumps({"claims": rows}, indent=1, ensure_ascii=False))
        return
    wide = max(len(row["name"]) for row in rows)
    for row in rows:
        verdict = f"  [{row['verdict']}]" if row["verdict"] else ""
        print(f"{row['name']:<{wide}}  {row['minutes']:>4g} min  {row['statement']}{verdict}")
    total = sum(row["minutes"] for row in rows)
    print(f"{len(rows)} claims, about {total:.0f} minutes on two cores", file=sys.stderr)


def run_several(
    names: Annotated[
        list[str], typer.Argument(metavar="all|NAME…", help="Which; 'regard claims' lists them.")
    ],
    budget: Limit = None,
    effort: Share = None,
    seeds: Seeds = None,
    jobs: Annotated[
        int,
        typer.Option(metavar="N", help="Claims at once; those that measure time follow alone."),
    ] = 1,
    out: Out = HERE,
    as_json: Json = False,
) -> None:
    """Try several claims, or all; goes on where it was stopped, and makes DIR/gallery.html.

    \b
    Examples:
      regard claims run all --out claims --jobs 2
      regard claims run heads window scaling --effort 0.5
      regard claims run all --budget 2m
    """
    from regard.lab.claims import claim as find

    if jobs < 1:
        raise ConfigError(f"--jobs is {jobs}; give at least 1")
    chosen = [find(name) for name in (all_names() if names == ["all"] else names)]
    rest, failed = chosen, dict[str, str]()
    asked = given(budget, effort, seeds)
    at_once = f" --jobs {jobs}" if jobs > 1 else ""
    again = f"regard claims run {' '.join(names)}{asked}{at_once} --out {out}"
    with Stopping(again, out):
        if jobs > 1:
            from regard.lab.claims.engine.parallel import Several

            options = [*asked.split(), "--out", str(out)]
            failed = Several(options, jobs).run([each.name for each in chosen if not each.timed])
            rest = [each for each in chosen if each.timed]
        for number, each in enumerate(rest, 1):
            print(f"[{number}/{len(rest)}] {each.name}", file=sys.stderr)
            try:
                facts = tried(each, out, budget, effort, seeds)
                print(f"  {facts['verdict']}: {facts['because']}", file=sys.stderr)
            except RegardError as error:
                failed[each.name] = str(error)
                print(f"  failed: {error}", file=sys.stderr)
            gallery(out)
    rows = [row_of(each.name, out) for each in chosen]
    if as_json:
        print(json.dumps({"claims": rows, "failed": failed}, indent=1, ensure_ascii=False))
    else:
        for row in rows:
            print(f"{row['name']}: {row['verdict'] or 'failed'}")
        print(f"the gallery is {out / 'gallery.html'}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


class Stopping:
    """Ctrl-C keeps what was measured, shows it, and says how to go on."""

    def __init__(self, again: str, out: Path) -> None:
        self.again, self.out = again, out

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is KeyboardInterrupt:
            gallery(self.out)
            print(f"stopped; what was measured stays. Go on with: {self.again}", file=sys.stderr)
            raise typer.Exit(130) from None


def given(budget: str | None, effort: float | None, seeds: int | None) -> str:
    """The options as they were typed: with others everything would be measured anew."""
    options = {"budget": budget, "effort": effort, "seeds": seeds}
    return "".join(f" --{name} {value}" for name, value in options.items() if value is not None)


def tried(
    found: Claim, out: Path, budget: str | None, effort: float | None, seeds: int | None
) -> dict[str, Any]:
    """Runs a claim, with its progress on stderr, and writes its page."""
    from regard.lab.claims.engine.page import write_page
    from regard.lab.claims.engine.run import run

    if seeds is not None and seeds < 1:
        raise ConfigError(f"--seeds is {seeds}; give at least 1")
    share = effort_of(found, budget, effort, seeds)
    facts = run(found, out, effort=share, seeds=seeds, tell=progress(found, seeds))
    write_page(found, facts, out / found.name)
    return facts


def effort_of(
    found: Claim, budget: str | None, effort: float | None, seeds: int | None = None
) -> float:
    """What was asked for; a time goes by what a claim takes with so many seeds."""
    if budget is not None and effort is not None:
        raise ConfigError("--budget sets the effort, and --effort does; give one of them")
    if budget is not None:
        from regard.lab.compare.lineup import Budget

        given = Budget.of(budget)
        if given.kind != "minutes":
            raise ConfigError(f"--budget is {budget}; of a claim it is a time, such as 90s or 5m")
        usual = found.minutes * (seeds or found.seeds) / found.seeds
        return float(f"{given.amount / usual:.2g}")
    if effort is not None and not 0 < effort < float("inf"):
        raise ConfigError(f"--effort is {effort:g}; it must be over 0")
    return 1.0 if effort is None else effort


def progress(found: Claim, seeds: int | None) -> Callable[[Cell, dict[str, float]], None]:
    """A line a measurement: which it was, some numbers, and about how long the rest takes."""
    total, began, done = len(found.cells(seeds)), time.monotonic(), 0
    shown = {chart.figure for chart in found.charts}

    def tell(cell: Cell, figures: dict[str, float]) -> None:
        nonlocal done
        done += 1
        left = (time.monotonic() - began) / done * (total - done)
        place = f" at {cell.at:g}" if found.axis else ""
        numbers = ", ".join(f"{k} {v:.4g}" for k, v in figures.items() if k in shown)
        rest = f", about {left:.0f} s left" if left >= 1 else ""
        line = f"  {done}/{total} {cell.arm}{place}, seed {cell.seed}: {numbers}{rest}"
        print(line, file=sys.stderr, flush=True)

    return tell


def warned(found: Claim, facts: dict[str, Any]) -> list[str]:
    """Why the verdict may be none, as its page says it."""
    from regard.lab.claims.engine.page import cautions
    from regard.report.pages import words

    return [words("claims")[word].en for word in cautions(found, facts)]


def all_names() -> list[str]:
    from regard.lab.claims import names

    return names()


def row_of(name: str, out: Path) -> dict[str, Any]:
    from regard.core.files import read_json
    from regard.lab.claims import claim as find
    from regard.lab.claims.engine.run import FACTS

    facts, card = read_json(out / name / FACTS) or {}, find(name)
    declared = {"statement": card.statement.en, "source": card.source, "minutes": card.minutes}
    return {"name": name} | declared | {key: facts.get(key) for key in ("verdict", "effort")}


def gallery(out: Path) -> None:
    from regard.lab.claims.engine.page import write_gallery

    if out.is_dir():
        write_gallery(out)
