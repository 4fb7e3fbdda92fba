"""The commands `regard claims list`, `run` and `show`, which test the claims of papers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from regard.cli.options import Command
from regard.cli.output import say
from regard.core.errors import ConfigError, RegardError
from regard.core.options import Argument, Option
from regard.core.tables import Table

if TYPE_CHECKING:
    from regard.lab.claims.engine.claim import Claim, ClaimCell

HERE = Path("claims")
Out = Annotated[Path, Option("The directory of measurements and pages.", metavar="DIR")]


def list_claims(*, out: Out = HERE) -> Table:
    """List every claim: its statement, how long it takes, and its verdict in DIR.

    \b
    Examples:
      regard claims list
      regard claims list --out claims --json
    """
    from regard.lab.claims import names

    return {"claims": [row_of(name, out) for name in names()]}


def row_of(name: str, out: Path) -> Table:
    from regard.lab.claims import claim as find
    from regard.lab.claims.engine.run import read_facts

    facts, card = read_facts(out, name), find(name)
    declared = {"statement": card.statement.en, "source": card.source, "minutes": card.minutes}
    return {"name": name} | declared | {key: facts.get(key) for key in ("verdict", "effort")}


def list_lines(result: Table) -> Iterator[str]:
    rows = result["claims"]
    wide = max(len(row["name"]) for row in rows)
    for row in rows:
        verdict = f"  [{row['verdict']}]" if row["verdict"] else ""
        yield f"{row['name']:<{wide}}  {row['minutes']:>4g} min  {row['statement']}{verdict}"
    total = sum(row["minutes"] for row in rows)
    say(f"{len(rows)} claims, about {total:.0f} minutes on two cores")


def show_claim(
    name: Annotated[str, Argument("NAME", "A claim of 'regard claims list'.")],
    *,
    out: Out = HERE,
) -> Table:
    """Show one claim: its statement, its paper, and its result in DIR.

    \b
    Examples:
      regard claims show scaling
      regard claims show heads --out quick --json
    """
    from regard.lab.claims import claim as find
    from regard.lab.claims.engine.run import is_outdated, read_facts

    card = find(name)
    facts = read_facts(out, name)
    declared = {"name": name, "statement": card.statement.en, "source": card.source}
    known = {"minutes": card.minutes, "out": str(out), "outdated": is_outdated(out, name)}
    return {**declared, **known, "verdict": None, **facts}


def show_lines(facts: Table) -> Iterator[str]:
    from regard.lab.claims import claim as find

    card = find(facts["name"])
    yield f"{card.statement.en}\n({card.source})\n"
    if not facts["verdict"]:
        before = "judged by other tests of an older version" if facts["outdated"] else "not run yet"
        yield f"{before}; regard claims run {card.name} takes about {card.minutes:g} minutes"
        return
    yield facts["verdict"].upper()
    yield from (f"  {part}" for part in facts["because"].split("; "))
    yield from warned(card, facts)
    say(f"the page is {Path(facts['out'], card.name, 'claim.html')}")


def warned(claim: Claim, facts: Table) -> list[str]:
    """Returns the warnings of the page: why there is no verdict, or why it may not be reliable, and
    whether the rule was changed after data."""
    from regard.lab.claims.engine.page import cause_of, cautions, fixed_of
    from regard.report.pages import words

    cause = cause_of(facts)
    changed = [fixed_of(facts)[1].en] if facts["changed"] else []
    own = [words("claims")[word].en for word in cautions(claim, facts)]
    return [*([cause.en] if cause else []), *changed, *own]


@dataclass(frozen=True)
class EffortOptions:
    """How long claims are tested, and where the pages go."""

    budget: Annotated[
        str | None,
        Option("The time for each claim, such as 90s or 5m; it sets the effort.", metavar="X"),
    ] = None
    effort: Annotated[
        float | None,
        Option("Multiply the usual number of steps by X; 0.1 gives a first look.", metavar="X"),
    ] = None
    seeds: Annotated[
        int | None,
        Option(
            "Measure only the first N of the seeds that a claim fixed: a look without a verdict.",
            metavar="N",
        ),
    ] = None
    jobs: Annotated[
        int,
        Option("Run N claims at once; claims that measure time run alone at the end.", metavar="N"),
    ] = 1
    out: Out = HERE


def run_claims(
    names: Annotated[Sequence[str], Argument("all|NAME…", "Claims of 'regard claims list'.")],
    *,
    options: EffortOptions,
) -> Table:
    """Test claims of papers, by experiments whose rules are fixed before they run.

    Each measurement is saved: the same command continues where it was stopped. The pages with
    figures and tables are DIR/NAME/claim.html and DIR/gallery.html.

    \b
    Examples:
      regard claims run scaling
      regard claims run pre-norm-warm-up --budget 10m
      regard claims run heads window --effort 0.1 --seeds 2 --out quick    # a first look
      regard claims run all --out claims --jobs 2
    """
    from regard.lab.claims import claim as find
    from regard.lab.claims import names as all_names

    if options.jobs < 1:
        raise ConfigError(f"--jobs is {options.jobs}; give at least 1")
    chosen = [find(name) for name in (all_names() if list(names) == ["all"] else names)]
    rest, failed = chosen, dict[str, str]()
    out, jobs = options.out, options.jobs
    efforts = {"budget": options.budget, "effort": options.effort, "seeds": options.seeds}
    words = "".join(f" --{name} {value}" for name, value in efforts.items() if value is not None)
    at_once = f" --jobs {jobs}" if jobs > 1 else ""
    again = f"regard claims run {' '.join(names)}{words}{at_once} --out {out}"
    with keeping(again, out):
        if jobs > 1:
            from regard.lab.claims.engine.parallel import ParallelClaims

            timed = [each for each in chosen if each.timed]
            several = [each.name for each in chosen if not each.timed]
            failed, rest = (
                ParallelClaims([*words.split(), "--out", str(out)], jobs).run(several),
                timed,
            )
        for number, each in enumerate(rest, 1):
            if len(rest) > 1:
                say(f"[{number}/{len(rest)}] {each.name}")
            try:
                facts = tried(each, out, options.budget, options.effort, options.seeds)
                say(f"  {facts['verdict']}: {facts['because']}")
            except RegardError as error:
                if len(chosen) == 1:
                    raise
                failed[each.name] = str(error)
                say(f"  failed: {error}")
            gallery(out)
    rows = [row_of(each.name, out) for each in chosen]
    return {"out": str(out), "claims": rows, "failed": failed}


def run_lines(result: Table) -> Iterator[str]:
    if len(result["claims"]) == 1 and not result["failed"]:
        yield from show_lines(show_claim(result["claims"][0]["name"], out=Path(result["out"])))
        return
    for row in result["claims"]:
        yield f"{row['name']}: {row['verdict'] or 'failed'}"
    say(f"the gallery is {Path(result['out'], 'gallery.html')}")


@contextmanager
def keeping(again: str, out: Path) -> Iterator[None]:
    """On Ctrl-C, shows what was measured so far and says how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        gallery(out)
        say(f"stopped; all measurements so far are saved. Continue with: {again}")
        raise


def tried(
    claim: Claim, out: Path, budget: str | None, effort: float | None, seeds: int | None
) -> Table:
    """Runs a claim, with its progress on stderr, and writes its page."""
    from regard.lab.claims.engine.page import write_page
    from regard.lab.claims.engine.run import run

    share = effort_of(claim, budget, effort, seeds)
    facts = run(claim, out, effort=share, seeds=seeds, tell=progress(claim, seeds), note=say)
    write_page(claim, facts, out / claim.name)
    return facts


def effort_of(
    claim: Claim, budget: str | None, effort: float | None, seeds: int | None = None
) -> float:
    """Returns the effort. A time budget is divided by the time that the claim usually takes."""
    if budget is not None and effort is not None:
        raise ConfigError("--budget and --effort both set the effort; give one of them")
    if budget is not None:
        from regard.lab.compare.lineup import ModelBudget

        time_given = ModelBudget.of(budget)
        if time_given.kind != "minutes":
            raise ConfigError(f"--budget is {budget}; it must be a time, such as 90s or 5m")
        usual = claim.minutes * (seeds or claim.seeds) / claim.seeds
        return float(f"{time_given.amount / usual:.2g}")
    if effort is not None and not 0 < effort < float("inf"):
        raise ConfigError(f"--effort is {effort:g}; it must be over 0")
    return 1.0 if effort is None else effort


def progress(claim: Claim, seeds: int | None) -> Callable[[ClaimCell, dict[str, float]], None]:
    """Prints one line per measurement: its name, some figures, and about the time left."""
    total, began, done = len(claim.cells(seeds)), time.monotonic(), 0
    shown = {chart.figure for chart in claim.charts}

    def tell(cell: ClaimCell, figures: dict[str, float]) -> None:
        nonlocal done
        done += 1
        left = (time.monotonic() - began) / done * (total - done)
        place = f" at {cell.at:g}" if claim.axis else ""
        numbers = ", ".join(f"{k} {v:.4g}" for k, v in figures.items() if k in shown)
        rest = f", about {left:.0f} s left" if left >= 1 else ""
        say(f"  {done}/{total} {cell.arm}{place}, seed {cell.seed}: {numbers}{rest}")

    return tell


def gallery(out: Path) -> None:
    from regard.lab.claims.engine.page import write_gallery

    if out.is_dir():
        write_gallery(out)


def claims_result(result: Table) -> Any:
    from regard.lab.claims.engine.result import ClaimsResult

    return ClaimsResult(result)


COMMANDS: dict[str, Any] = {
    "list": Command(list_claims, list_lines, result=claims_result),
    "run": Command(run_claims, run_lines, lambda result: 1 if result["failed"] else 0,
                   result=claims_result),
    "show": Command(show_claim, show_lines),
}  # fmt: skip
