"""The commands `regard prepare`, `check` and `augment`, which work on data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from regard.cli.guess import check_there
from regard.cli.options import AskedFor, Command
from regard.core.errors import ConfigError, InputError, counted
from regard.core.options import FIELD, SKIP, Argument, Option, PartialOptions, Quiet
from regard.core.tables import Table
from regard.data.augment.examples import AugmentSettings
from regard.data.prepare import PreparePlan
from regard.data.readers import ReaderOptions

DEFAULT = "builtin:python-docs"
SHOWN = 10  # the number of problems shown of each kind
CLASSES = 20  # the number of classes in the table
TASKS = "classify, entail, similar, tag, answer, choose, translate, summarize, converse, prefer, …"
ROLES = {"text": "field", "source": "source_field", "target": "target_field"}  # SourceOptions names


# -- prepare


def prepare(
    sources: Annotated[
        Sequence[str],
        Argument("[SOURCE]…", "Files (txt, jsonl, csv, tsv, parquet; also .gz, .zst), directories, "
                 f"globs, - for standard input, hub:NAME, or {DEFAULT} (the default)."),
    ] = (),
    *,
    out: Annotated[Path, Option("Write the data directory here.", metavar="DATA")],
    fields: Annotated[
        Mapping[str, str],
        Option("Name a field of the records: text=body; with --pairs source=… and target=….",
               FIELD.name, FIELD.metavar),
    ] = {},
    plan: Annotated[Table, PartialOptions(PreparePlan)],
    quiet: Quiet = False,
) -> Table:  # fmt: skip
    """Turn text into training data: a tokenizer, token files, three splits.

    The tokenizer is trained on the training split, or taken from --tokenizer PATH. A hash of its
    text decides whether a document goes to train, valid or test. A hub name may name a
    configuration and a split: hub:NAME@CONFIGURATION#SPLIT.

    \b
    Examples:
      regard prepare --out text
      regard prepare my-texts/ --out data --vocab-size 16000
      regard prepare 'news/*.jsonl.gz' --field text=body --out news --tokenizer wordpiece --lower
      zcat wiki.txt.gz | regard prepare - --split-by line --out wiki
      regard prepare en-de.tsv --pairs --out pairs --tokenizer unigram
      regard prepare more.txt --out more --tokenizer ./data
    """
    from regard.core.errors import UnknownName
    from regard.data.chunks import Chunking
    from regard.data.prepare import prepare as make
    from regard.data.sources import SourceOptions
    from regard.data.splits import SplitShares

    reading = dict(plan.pop("reading", {}))
    for role, name in fields.items():
        if role not in ROLES:
            raise UnknownName("role of --field", role, ROLES)
        reading[ROLES[role]] = name
    parts: Table = {
        "reading": SourceOptions(**reading),
        "shares": SplitShares(**plan.pop("shares", {})),
        "chunking": Chunking(**plan.pop("chunking", {})),
    }
    names = tuple(sources) or (DEFAULT,)
    return make(PreparePlan(names, out, **parts, **plan), quiet=quiet)


def prepared_lines(summary: Table) -> Iterator[str]:
    yield (
        f"{'split':<7}{'documents':>11}{'tokens':>14}{'bytes':>15}{'bytes/token':>13}"
        f"{'unknown':>10}"
    )
    for name, split in [*summary["splits"].items(), ("all", summary)]:
        ratio, unknown = split["bytes_per_token"], split["unknown_share"]
        yield (
            f"{name:<7}{split['documents']:>11,}{split['tokens']:>14,}{split['bytes']:>15,}"
            + (f"{ratio:>13.2f}{unknown:>10.2%}" if split["tokens"] else f"{'-':>13}{'-':>10}")
        )
    yield (
        f"{summary['kind']} with {summary['tokenizer']}, {summary['vocab_size']:,} entries, "
        f"in {summary['out']} after {summary['seconds']:.1f} s"
    )


# -- check


def check(
    data: Annotated[
        Sequence[str], Argument("DATA…", "Files, or hub:NAME; two text files for translate.")
    ],
    *,
    task: Annotated[str, Option(f"The task: {TASKS}", metavar="T")],
    train_data: Annotated[
        Sequence[str],
        Option("The training data: report labels that it lacks and texts that it shares.",
               metavar="FILE"),
    ] = (),
    model: Annotated[
        str | None, Option("Count tokens with this model's tokenizer.", metavar="DIR")
    ] = None,
    reading: ReaderOptions,
    show_errors: Annotated[
        int | None,
        Option("Show N problems of each kind; 0: all.", metavar="N",
               default=f"{SHOWN}, in JSON all"),
    ] = None,
    typed: AskedFor,
) -> Table:  # fmt: skip
    """Report what labeled data hold and what is wrong with them, line by line.

    Nothing is changed. The exit code is 2 if there are errors. A record with an error is left out
    when the data are read; examples with a warning or a note are used.

    \b
    Examples:
      regard check reviews.jsonl --task classify
      regard check test.conll --task tag --train-data train.conll
      regard check news.csv --task classify --field text=body --field label=section
      regard check train.en train.zh --task translate
      regard check squad.json --task answer --model ./my-bert --json
      regard check pairs.jsonl --task prefer --model ./my-gpt
    """
    if show_errors is not None and show_errors < 0:
        raise InputError(f"--show-errors is {show_errors}; give 0 for all, or a larger number")
    check_there("DATA", *data)
    check_there("--train-data", *train_data)
    from regard.tasks.check import check as run

    measure = None if model is None else measure_of(model)
    shown = (0 if "--json" in typed else SHOWN) if show_errors is None else show_errors
    others = list(train_data) or None
    report = run(data, task, reading, against=others, measure=measure, keep=shown or None)
    return report.as_json()


def measure_of(directory: str) -> Any:
    """Builds a token counter from a model's tokenizer and context. No weights are read."""
    from regard.core.errors import FormatError
    from regard.data.tokenizer import Tokenizer
    from regard.formats.directory import locate
    from regard.formats.registry import configure, format_of, read_config
    from regard.tasks.check import TokenCounter

    path = locate(directory, download=False)
    table = read_config(path)
    config = configure(format_of(table["model_type"]), table)
    tokenizer = Tokenizer.open(path)
    if tokenizer is None:
        raise FormatError(f"{directory} has no tokenizer, so its tokens cannot be counted")
    return TokenCounter(directory, tokenizer, getattr(config, "context", None))


def checked_lines(report: Table) -> Iterator[str]:
    """Yields what the data hold, then the problems, the most severe first."""
    from regard.data.problems import KINDS, SEVERITIES, FileLine

    yield (
        f"{', '.join(report['data'])}: {counted(report['examples'], 'example')} "
        f"({', '.join(report['formats'])})"
    )
    yield from facts(report)
    if report["labels"]:
        yield ""
        yield from label_table(report["labels"])
    if report["lengths"]:
        yield ""
        yield from length_table(report)
    yield ""
    yield ", ".join(counted(report[f"{each}s"], each) for each in SEVERITIES)
    for group in report["kinds"]:
        yield ""
        yield f"{group['severity']} {group['kind']}: {KINDS[group['kind']]} ({group['count']:,})"
        shown = [
            problem
            for problem in report["problems"]
            if (problem["severity"], problem["kind"]) == (group["severity"], group["kind"])
        ]
        for problem in shown:
            yield f"  {FileLine(problem['file'], problem['line'] or 0)}: {problem['message']}"
        if group["count"] > len(shown):
            yield f"  and {group['count'] - len(shown):,} more; --show-errors 0 shows all"


def facts(report: Table) -> Iterator[str]:
    for name, fields in report["fields"].items():
        if fields:
            roles = ", ".join(f"{role} from {field!r}" for role, field in fields.items())
            yield roles if len(report["fields"]) == 1 else f"{name}: {roles}"
    if report["labeled"] < report["examples"]:
        yield f"{report['labeled']:,} with a label"
    if "scheme" in report:
        yield f"tags in {report['scheme']}"
    if "scores" in report:
        low, mean, high = report["scores"].values()
        yield f"scores from {low:g} to {high:g}, {mean:.4g} in the mean"
    if "against" in report:
        other = report["against"]
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


def length_table(report: Table) -> Iterator[str]:
    rows = [
        (f"{part}, {unit}", lengths)
        for part, units in report["lengths"].items()
        for unit, lengths in units.items()
    ]
    if "model" in report and report["model"]["tokens"]:
        model = report["model"]
        most = f" of {model['context']:,}" if model["context"] else ""
        rows.append((f"tokens{most}", model["tokens"]))
    margin = max(len(name) for name, _ in rows) + 2
    yield f"{'length':<{margin}}{'median':>10}{'95%':>10}{'max':>10}"
    for name, lengths in rows:
        yield f"{name:<{margin}}" + "".join(f"{value:>10,}" for value in lengths.values())


# -- augment


def augment(
    data: Annotated[str, Argument("DATA", "A labeled file, or hub:NAME; or plain text.")],
    *,
    out: Annotated[Path, Option("The file to write.", metavar="FILE")],
    task: Annotated[
        str,
        Option("The task: classify, entail, similar, choose, tag, answer, translate; text: plain "
               "text, one per line.", metavar="T"),
    ] = "text",
    methods: Annotated[
        Sequence[str],
        Option("Some of synonyms,insert,swap,delete; --mask-model and --back add theirs.",
               metavar="NAMES", default="all four, without models", commas=True),
    ] = (),
    settings: Annotated[Table, PartialOptions(AugmentSettings)],
    back_prefix: Annotated[
        str | None, Option("The prefix of every text, for a published T5.", metavar="TEXT")
    ] = None,
    forth_prefix: Annotated[
        str | None, Option("The same for the model of --forth.", metavar="TEXT")
    ] = None,
    clean: Annotated[
        bool,
        Option("First reduce texts to lowercase letters, as the code of Wei & Zou does, also in "
               "the examples. Texts in other scripts, such as Chinese, stay as they are."),
    ] = False,
    originals: Annotated[bool, Option("Also write the original examples.")] = True,
    distinct: Annotated[bool, Option("Leave out variants that equal their example.")] = False,
    jobs: Annotated[
        int, Option("Use N processes; the result is the same.", metavar="N")
    ] = 1,
    skip: Annotated[Sequence[str], SKIP] = (),
    reading: ReaderOptions,
    quiet: Quiet = False,
) -> Table:  # fmt: skip
    """Make variants of labeled examples whose labels stay right (Wei & Zou 2019, and others).

    FILE has the examples of DATA, each followed by its variants. Split off validation and test
    data first: they must not be among them. Words keep their case and punctuation.

    \b
    Examples:
      regard augment few.jsonl --task classify --out more.jsonl
      regard augment train.conll --task tag --methods swap,delete --copies 2 --out more.conll
      regard augment pairs.csv --task entail --methods synonyms --thesaurus own.tsv --out more.csv
      regard augment few.jsonl --task classify --mask-model ./my-bert --copies 3 --out more.jsonl
      regard augment few.jsonl --task classify --back ./en-zh --forth ./zh-en --out more.jsonl
      regard augment en-zh.tsv --task translate --back ./zh-en --copies 1 --out more.tsv
    """
    check_there("DATA", data)
    from regard.methods.augment.files import check_out
    from regard.methods.augment.run import augment_file

    check_out(out)
    prefixes = (back_prefix, forth_prefix)
    names = chosen_methods(methods, settings, prefixes)
    return augment_file(
        data, out, task, names, settings | {"prefixes": prefixes}, reading, skip,
        clean=clean, originals=originals, distinct=distinct, jobs=jobs, quiet=quiet,
    )  # fmt: skip


def chosen_methods(
    methods: Sequence[str], settings: Table, prefixes: tuple[str | None, str | None]
) -> list[str]:
    """Returns the methods, including those of models. Refuses options without effect."""
    masked, back = settings.get("masked"), settings.get("away")
    for option, value, other, there in (
        ("--forth", settings.get("home"), "--back", back),
        ("--mask-rule", settings.get("rule", "some") != "some", "--mask-model", masked),
        ("--candidates", "top_k" in settings, "--mask-model", masked),
        ("--temperature", "temperature" in settings, "--back", back),
        ("--num-beams", settings.get("num_beams"), "--back", back),
        ("--back-prefix", prefixes[0], "--back", back),
        ("--forth-prefix", prefixes[1], "--forth", settings.get("home")),
    ):
        if value and not there:
            raise ConfigError(f"{option} has no effect without {other}; give {other}, too")
    if settings.get("num_beams") and "temperature" in settings:
        raise ConfigError("--temperature samples and --num-beams searches; give one of them")
    names = list(methods)
    names += [name for name, model in (("masked", masked), ("back", back))
              if model and name not in names]  # fmt: skip
    return names


def augmented_lines(report: Table) -> Iterator[str]:
    for row in report["shown"]:
        yield row["example"]
        yield from (f"  {method:<9} {text}" for method, text in row["variants"].items())
    yield ""
    share = f", {report['share']:g} of the words changed" if report["share"] is not None else ""
    yield f"{counted(report['examples'], 'example')}{share}"
    for method, count in report["variants"].items():
        same = report["unchanged"].get(method)
        yield f"{method:<9} {count:>9,} variant{'' if count == 1 else 's'}" + (
            f", {same:,} of them unchanged" if same else ""
        )
    yield f"{report['out']} has {counted(report['written'], 'example')}"


COMMANDS = {
    "prepare": Command(prepare, prepared_lines),
    "check": Command(check, checked_lines, lambda report: 0 if report["ok"] else 2),
    "augment": Command(augment, augmented_lines, opens=True),
}
