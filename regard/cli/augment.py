"""`regard augment`: more labelled examples, made of those that there are."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.check import chosen
from regard.cli.reading import Download, Field, Format, Header, Skip
from regard.core.errors import ConfigError

SHOWN = 3  # examples with a variant of each method
WIDTH = 160  # characters of a text that is shown


def register(app: typer.Typer) -> None:
    app.command(short_help="Make variants of labelled examples.")(augment)


def augment(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A labelled file, or hub:NAME; or plain text.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.")],
    task: Annotated[
        str,
        typer.Option(
            metavar="T",
            help="classify, entail, similar, choose, tag, answer, translate; text: a text a line.",
        ),
    ] = "text",
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Some of synonyms,insert,swap,delete; masked and back come with their models.  "
            "[default: all four, without models]",
            show_default=False,
        ),
    ] = "",
    copies: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Variants of an example; below 1 the chance of one. Else as the paper advises for "
            "so many examples: 16 up to 500, 8 up to 2,000, 4 above; 1 with beams alone.",
            show_default=False,
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Of the words are changed. Else by the paper: 0.05 up to 2,000 examples, 0.1 "
            "above.",
            show_default=False,
        ),
    ] = None,
    thesaurus: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="A word, a tab and its synonyms in each line; or a directory of WordNet.  "
            "[default: the WordNet of this machine]",
            show_default=False,
        ),
    ] = "",
    source: Annotated[
        str, typer.Option(help="Whose rules of insertion, where they differ: paper or code.")
    ] = "paper",
    clean: Annotated[
        bool,
        typer.Option(
            "--clean",
            help="First reduce texts to small letters, as that code does; the examples are written "
            "so, too. Texts in other than Latin letters, such as Chinese, stay.",
        ),
    ] = False,
    language: Annotated[
        str,
        typer.Option(
            metavar="CODE",
            help="zh: words are cut by jieba; en: at spaces.  [default: by the text]",
            show_default=False,
        ),
    ] = "",
    masked: Annotated[
        str, typer.Option(metavar="DIR", help="Put words of this masked model in place of others.")
    ] = "",
    rule: Annotated[
        str, typer.Option(help="Of masked: some words by the share, or as tinybert has it.")
    ] = "some",
    top: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Candidates of a masked word.  [default: 15]",
            show_default=False,
        ),
    ] = None,
    back: Annotated[
        str,
        typer.Option(metavar="DIR", help="Translate into another language with this model …"),
    ] = "",
    forth: Annotated[
        str, typer.Option(metavar="DIR", help="… and from there into the first one again.")
    ] = "",
    back_prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Published T5: before every text.")
    ] = None,
    forth_prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The same for the way back.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="Translations are drawn with it.  [default: 0.9]", show_default=False),
    ] = None,
    beams: Annotated[
        int, typer.Option(metavar="N", help="Translations: search with so many beams instead.")
    ] = 0,
    originals: Annotated[
        bool, typer.Option("--originals/--no-originals", help="Write the examples, too?")
    ] = True,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="Leave out variants that are no different.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides every random choice.")] = 1,
    processes: Annotated[
        int, typer.Option(metavar="N", help="Work side by side; the file is the same.")
    ] = 1,
    skip: Skip = None,
    field: Field = None,
    form: Format = None,
    header: Header = None,
    classes: Annotated[
        bool, typer.Option("--classes", help="The labels of similar are classes, not scores.")
    ] = False,
    download: Download = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on standard error.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make variants of labelled examples whose labels stay right (Wei & Zou 2019, and others).

    FILE has the examples of DATA, each with its variants behind it. What validates or tests must
    not be among them: divide the data first. Words keep their case and punctuation.

    \b
    Examples:
      regard augment few.jsonl --task classify --out more.jsonl
      regard augment few.jsonl --task classify --methods swap,delete --copies 4 --out more.jsonl
      regard augment train.conll --task tag --methods swap,delete --copies 2 --out more.conll
      regard augment pairs.csv --task entail --methods synonyms --thesaurus own.tsv --out more.csv
      regard augment few.jsonl --task classify --masked ./my-bert --copies 3 --out more.jsonl
      regard augment few.jsonl --task classify --back ./en-zh --forth ./zh-en --out more.jsonl
      regard augment en-zh.tsv --task translate --back ./zh-en --copies 1 --out more.tsv
    """
    from regard.data.augment.clean import clean_example
    from regard.data.augment.eda import METHODS, published
    from regard.data.augment.examples import Settings
    from regard.data.problems import Problems
    from regard.data.readers import Options
    from regard.methods.augment.files import check_out, form_for, read_source

    check_out(out)
    together(
        ("--forth", forth, "--back", back),
        ("--rule", rule != "some", "--masked", masked),
        ("--top", top is not None, "--masked", masked),
        ("--temperature", temperature is not None, "--back", back),
        ("--beams", beams, "--back", back),
        ("--back-prefix", back_prefix, "--back", back),
        ("--forth-prefix", forth_prefix, "--forth", forth),
    )
    names = [name.strip() for name in methods.split(",") if name.strip()]
    names += [n for n, given in (("masked", masked), ("back", back)) if given and n not in names]
    names = names or list(METHODS)
    problems = Problems()
    reading = Options(form, chosen(field or []), header, classes, download=download)
    held = read_source(data, task, reading, skip or (), problems)
    if clean:
        held.examples = [clean_example(example) for example in held.examples]
    advised = published(len(held.examples))
    if beams and names == ["back"]:
        advised = advised[0], 1  # beams find the same again
    settings = Settings(
        tuple(names),
        copies=advised[1] if copies is None else copies,
        share=advised[0] if share is None else share,
        seed=seed, thesaurus=thesaurus, source=source, language=language, scheme=held.scheme,
        masked=masked, rule=rule, away=back, home=forth, prefixes=(back_prefix, forth_prefix),
        beams=beams, top=Settings.top if top is None else top,
        temperature=Settings.temperature if temperature is None else temperature,
    )  # fmt: skip
    check_numbers(settings, share, temperature)
    written_as = form_for(out, held)
    report = Report(out, settings, problems.notes())
    report.write(held, written_as, processes, originals, distinct, quiet)
    if as_json:
        print(json.dumps(report.table(), indent=2, ensure_ascii=False))
    else:
        print("\n".join(report.in_lines()))
    for note in [] if quiet else report.notes:
        print(f"regard: note: {note}", file=sys.stderr)


def together(*pairs: tuple[str, Any, str, str]) -> None:
    """Refuses options that would change nothing."""
    for option, given, other, there in pairs:
        if given and not there:
            raise ConfigError(f"{option} is of no use without {other}; give {other}, too")


def check_numbers(settings: Any, share: float | None, temperature: float | None) -> None:
    """Refuses those that would change nothing."""
    if settings.beams and temperature is not None:
        raise ConfigError("--temperature draws and --beams searches; give one of them")
    if share is not None and not settings.uses_share:
        raise ConfigError(
            "--share plays no part here: a translation changes what it will, and TinyBERT's rule "
            "has a chance of its own; leave it out"
        )


@dataclass
class Report:
    """Writes the file, and counts."""

    out: Path
    settings: Any
    notes: list[str]
    examples: int = 0
    written: int = 0
    made: Counter[str] = field(default_factory=Counter)
    same: Counter[str] = field(default_factory=Counter)  # no different from their examples
    shown: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)

    def write(
        self, held: Any, form: str, processes: int, originals: bool, distinct: bool, quiet: bool
    ) -> None:
        from regard.core.progress import Progress
        from regard.methods.augment.files import Writer, written
        from regard.methods.augment.processes import augmented

        progress, total = Progress(quiet=quiet), len(held.examples)
        with written(self.out) as file:
            writer = Writer(file, form, held)
            found = augmented(held.examples, self.settings, processes, self.notes)
            for number, (example, variants) in enumerate(zip(held.examples, found, strict=True)):
                file.write("\n" * (held.blanks[number] if held.blanks else 0))
                kept = [example] if originals else []
                seen = {essence(example)}
                for variant in variants:
                    new = essence(variant.example)
                    self.made[variant.method] += 1
                    self.same[variant.method] += new == essence(example)
                    if not distinct or new not in seen:
                        kept.append(variant.example)
                    seen.add(new)
                for each in kept:
                    writer.add(each)
                self.show(example, variants)
                progress.step(f"variants of {number + 1:,} of {total:,} examples", 0, 0)
            writer.close()
        progress.close()
        self.examples, self.written = total, writer.count

    def show(self, example: Any, variants: list[Any]) -> None:
        if len(self.shown) < SHOWN and variants:
            old = in_line(example)
            found = {v.method: around(in_line(v.example), old) for v in variants}
            self.shown.append((around(old, old), list(found.items())))

    def table(self) -> dict[str, Any]:
        return {
            "out": str(self.out),
            "examples": self.examples,
            "variants": dict(self.made),
            "unchanged": {name: count for name, count in self.same.items() if count},
            "written": self.written,
            "share": self.settings.share if self.settings.uses_share else None,
            "copies": self.settings.copies,
            "seed": self.settings.seed,
            "shown": [{"example": old, "variants": dict(new)} for old, new in self.shown],
            "notes": self.notes,
        }

    def in_lines(self) -> Iterator[str]:
        for old, new in self.shown:
            yield old
            yield from (f"  {method:<9} {text}" for method, text in new)
        yield ""
        given = self.settings
        share = f", {given.share:g} of the words changed" if given.uses_share else ""
        yield f"{self.examples:,} examples{share}"
        for method, count in self.made.items():
            same = f", {self.same[method]:,} of them unchanged" if self.same[method] else ""
            yield f"{method:<9} {count:>9,} variants{same}"
        yield f"{self.out} has {self.written:,} examples"


def essence(example: Any) -> Any:
    """An example without its name."""
    from dataclasses import replace

    return replace(example, id="")


def in_line(example: Any) -> str:
    """What a person sees of an example."""
    return " | ".join(" ".join(text.split()) for _, text in example.parts())


def around(text: str, old: str) -> str:
    """Of a long text the part where it begins to differ."""
    if len(text) <= WIDTH:
        return text
    same = next((i for i, (a, b) in enumerate(zip(text, old, strict=False)) if a != b), 0)
    start = max(0, min(same - WIDTH // 3, len(text) - WIDTH))
    end = start + WIDTH
    return "…" * (start > 0) + text[start:end] + "…" * (end < len(text))
