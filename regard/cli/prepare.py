"""`regard prepare`: text to tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

DEFAULT = "builtin:python-docs"


def register(app: typer.Typer) -> None:
    app.command("prepare", short_help="Turn text into tokens to learn from.")(prepare)


def prepare(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DATA", help="The data directory to make.")
    ],
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            help="Files (txt, jsonl, csv, tsv, parquet; also .gz, .zst), directories, globs, - for "
            f"standard input, hub:NAME, or {DEFAULT} (the default).",
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        str,
        typer.Option(
            metavar="KIND|PATH",
            help="bytes-bpe (as GPT-2), bpe (GPT-1), wordpiece (BERT), unigram (XLNet, T5), words, "
            "characters, bytes; or the directory of an existing one.",
        ),
    ] = "bytes-bpe",
    vocabulary: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Entries, special ones included.  [default: 8192; words: 32768]"
        ),
    ] = None,
    lower: Annotated[
        bool | None,
        typer.Option(
            "--lower/--no-lower", help="Lower-case the text.  [default: only bpe, as GPT-1]"
        ),
    ] = None,
    sentinels: Annotated[int, typer.Option(metavar="N", help="T5's <extra_id_…> tokens.")] = 100,
    split_by: Annotated[
        str, typer.Option(metavar="HOW", help="What parts documents of text: blank, line, file.")
    ] = "blank",
    field: Annotated[
        str, typer.Option(metavar="NAME", help="The text's field in jsonl, csv, tsv, parquet.")
    ] = "text",
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="text, jsonl, csv, tsv or parquet, whatever the name."
        ),
    ] = None,
    broken: Annotated[
        str, typer.Option(metavar="HOW", help="What is not UTF-8: replace, refuse, skip.")
    ] = "replace",
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="Sources and targets: a table of two columns, or two text files line by line.",
        ),
    ] = False,
    source_field: Annotated[
        str, typer.Option(metavar="NAME", help="With --pairs: the field of the source.")
    ] = "source",
    target_field: Annotated[
        str, typer.Option(metavar="NAME", help="With --pairs: the field of the target.")
    ] = "target",
    valid: Annotated[float, typer.Option(metavar="SHARE", help="Documents to validate.")] = 0.05,
    test: Annotated[float, typer.Option(metavar="SHARE", help="Documents to test.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Decides which document goes where.")] = 0,
    chunk: Annotated[
        str,
        typer.Option(
            metavar="HOW", help="Cut long documents: none, fixed, overlapping, sentences."
        ),
    ] = "none",
    chunk_length: Annotated[int, typer.Option(metavar="N", help="Tokens of a chunk.")] = 512,
    overlap: Annotated[
        int, typer.Option(metavar="N", help="Tokens that overlapping chunks share.")
    ] = 64,
    download: Annotated[
        bool, typer.Option("--download", help="Allow hub:NAME to be fetched.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a data directory that exists.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of lines.")
    ] = False,
) -> None:
    """Turn text into tokens to learn from: a tokenizer, token files, three splits.

    The tokenizer is trained on the text that learns, or taken from --tokenizer PATH. Documents go
    to train, valid or test by a hash of what they say. A hub name may carry a configuration and a
    split: hub:NAME@CONFIGURATION#SPLIT.

    \b
    Examples:
      regard prepare --out docs
      regard prepare my-texts/ --out data --vocabulary 16000
      regard prepare 'news/*.jsonl.gz' --field body --out news --tokenizer wordpiece --lower
      zcat wiki.txt.gz | regard prepare - --split-by line --out wiki
      regard prepare en-de.tsv --pairs --out pairs --tokenizer unigram
      regard prepare more.txt --out more --tokenizer ./data
    """
    from regard.data.chunks import Chunking
    from regard.data.prepare import Plan
    from regard.data.prepare import prepare as make
    from regard.data.sources import Reading
    from regard.data.splits import Shares

    plan = Plan(
        sources=tuple(sources or [DEFAULT]),
        out=out,
        reading=Reading(split_by, field, source_field, target_field, form, broken, download),
        pairs=pairs,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        lower=lower,
        sentinels=sentinels,
        shares=Shares(valid, test),
        chunking=Chunking(chunk, chunk_length, overlap),
        seed=seed,
        force=force,
    )
    summary = make(plan, quiet=False)
    print(json.dumps(summary, indent=2) if as_json else in_lines(summary))


def in_lines(summary: dict[str, Any]) -> str:
    """The summary for people."""
    lines = [
        f"{'split':<7}{'documents':>11}{'tokens':>14}{'bytes':>15}{'bytes/token':>13}{'unknown':>10}"
    ]
    for name, split in [*summary["splits"].items(), ("all", summary)]:
        ratio, unknown = split["bytes_per_token"], split["unknown_share"]
        lines.append(
            f"{name:<7}{split['documents']:>11,}{split['tokens']:>14,}{split['bytes']:>15,}"
            + (f"{ratio:>13.2f}{unknown:>10.2%}" if split["tokens"] else f"{'-':>13}{'-':>10}")
        )
    lines.append(
        f"{summary['kind']} with {summary['tokenizer']}, {summary['vocabulary']:,} entries, "
        f"in {summary['out']} after {summary['seconds']:.1f} s"
    )
    return "\n".join([*lines, *(f"note: {note}" for note in summary["notes"])])
