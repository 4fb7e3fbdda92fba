"""`regard check`: what labelled data hold and what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.reading import Download, Field, Format, Header
from regard.core.errors import FormatError, InputError

if TYPE_CHECKING:
    from regard.tasks.check import Measure

SHOWN = 10  # problems of a kind
CLASSES = 20  # in the table


def register(app: typer.Typer) -> None:
    app.command(short_help="Say what labelled data hold and what is wrong.")(check)


def check(
    data: Annotated[
        list[str],
        typer.Argument(metavar="DATA", help="Files, or hub:NAME; two texts for translate."),
    ],
    task: Annotated[
        str,
        typer.Option(
            metavar="T",
            help="classify, entail, similar, tag, answer, choose, translate, summarise, converse, "
            "prefer.",
        ),
    ],
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="TRAIN", help="The data learned from: unseen labels, shared texts."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="DIR", help="Count tokens as this model does.")
    ] = None,
    field: Field = None,
    form: Format = None,
    header: Header = None,
    classes: Annotated[
        bool, typer.Option("--classes", help="The labels of similar are classes, not scores.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", help=f"Problems shown of each kind, 0: all; else {SHOWN}, in JSON all."
        ),
    ] = None,
    download: Download = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what labelled data hold and what is wrong with them, line by line.

    Nothing is changed. The exit code is 2 if there are errors. A record with an error is left out
    when the data are read; warnings and notes are about examples that are kept.

    \b
    Examples:
      regard check reviews.jsonl --task classify
      regard check test.conll --task tag --against train.conll
      regard check news.csv --task classify --field text=body --field label=section
      regard check train.en train.zh --task translate
      regard check squad.json --task answer --model ./my-bert --json
      regard check pairs.jsonl --task prefer --model ./my-gpt
    """
    if limit is not None and limit < 0:
        raise InputError(f"--limit is {limit}; give 0 for all, or a number above")
    from regard.data.readers import Options
    from regard.tasks.check import check as run

    options = Options(form, chosen(field or []), header, classes, download=download)
    shown = (0 if as_json else SHOWN) if limit is None else limit
    measure = None if model is None else measure_of(model)
    report = run(data, task, options, against=against or None, measure=measure, keep=shown or None)
    if as_json:
        print(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        print("\n".join(in_lines(report)))
    if not report.ok:
        raise typer.Exit(2)


def measure_of(directory: str) -> Measure:
    """The tokenizer and the context of a model; its weights are not read."""
    from regard.data.tokenizer import Tokenizer
    from regard.formats.directory import configure, locate, read_config
    from regard.formats.registry import format_of
    from regard.tasks.check import Measure

    path = locate(directory, download=False)
    table = read_config(path)
    config = configure(format_of(table["model_type"]), table)
    tokenizer = Tokenizer.open(path)
    if tokenizer is None:
        raise FormatError(f"{directory} has no tokenizer, so its tokens cannot be counted")
    return Measure(directory, tokenizer, getattr(config, "context", None))


def chosen(given: list[str]) -> dict[str, str]:
    """ROLE=NAME, several times."""
    found: dict[str, str] = {}
    for each in given:
        role, equals, name = each.partition("=")
        if not (role and equals and name):
            raise InputError(f"--field {each} is not ROLE=NAME, such as text=review")
        if role in found:
            raise InputError(f"--field names the {role} twice: {found[role]} and {name}")
        found[role] = name
    return found


def in_lines(report: Any) -> Iterator[str]:
    """The report for people: what is there, then what is wrong, the worst first."""
    from regard.data.problems import KINDS, SEVERITIES

    summary = report.summary
    forms = ", ".join(summary["formats"])
    yield f"{', '.join(summary['data'])}: {counted(summary['examples'], 'example')} ({forms})"
    yield from facts(summary)
    if summary["labels"]:
        yield ""
        yield from label_table(summary["labels"])
    if summary["lengths"]:
        yield ""
        yield from length_table(summary)
    yield ""
    yield ", ".join(counted(report.problems.count(each), each) for each in SEVERITIES)
    for (severity, kind), count in report.problems.ranked():
        yield ""
        yield f"{severity} {kind}: {KINDS[kind]} ({count:,})"
        found = report.problems.of(severity, kind)
        yield from (f"  {problem}" for problem in found)
        if count > len(found):
            yield f"  and {count - len(found):,} more; --limit 0 shows all"


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def facts(summary: dict[str, Any]) -> Iterator[str]:
    for name, fields in summary["fields"].items():
        if fields:
            roles = ", ".join(f"{role} from {field!r}" for role, field in fields.items())
            yield roles if len(summary["fields"]) == 1 else f"{name}: {roles}"
    if summary["labelled"] < summary["examples"]:
        yield f"{summary['labelled']:,} with a label"
    if "scheme" in summary:
        yield f"tags in {summary['scheme']}"
    if "scores" in summary:
        low, mean, high = summary["scores"].values()
        yield f"scores from {low:g} to {high:g}, {mean:.4g} in the mean"
    if "against" in summary:
        other = summary["against"]
        wrong = f", {counted(other['errors'], 'error')} of its own" if other["errors"] else ""
        names = ", ".join(other["data"])
        yield f"against {names}: {counted(other['examples'], 'example')}{wrong}"


def label_table(labels: dict[str, int]) -> Iterator[str]:
    total = sum(labels.values())
    margin = max(len("label"), *(len(label) for label in labels)) + 2
    yield f"{'label':<{margin}}{'count':>10}{'share':>9}"
    for label, count in list(labels.items())[:CLASSES]:
        yield f"{label:<{margin}}{count:>10,}{count / total:>9.2%}"
    if len(labels) > CLASSES:
        yield f"and {len(labels) - CLASSES:,} more"


def length_table(summary: dict[str, Any]) -> Iterator[str]:
    rows = [
        (f"{part}, {unit}", found)
        for part, units in summary["lengths"].items()
        for unit, found in units.items()
    ]
    if "model" in summary and summary["model"]["tokens"]:
        model = summary["model"]
        most = f" of {model['context']:,}" if model["context"] else ""
        rows.append((f"tokens{most}", model["tokens"]))
    margin = max(len(name) for name, _ in rows) + 2
    yield f"{'length':<{margin}}{'median':>10}{'95%':>10}{'max':>10}"
    for name, found in rows:
        yield f"{name:<{margin}}" + "".join(f"{value:>10,}" for value in found.values())
