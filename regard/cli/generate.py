"""`regard generate`: a model goes on with a text, or makes one of a source."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.core.errors import InputError


def register(app: typer.Typer) -> None:
    app.command(short_help="Let a model go on with a text.")(generate)


def generate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model directory.")],
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPT…", help="Texts; - reads one from standard input."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the prompt from here.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Every line of the file or input is a prompt.")
    ] = False,
    tokens: Annotated[int, typer.Option(metavar="N", help="At most so many new tokens.")] = 100,
    minimum: Annotated[int, typer.Option(metavar="N", help="No end before so many.")] = 0,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="Draw: below 1 the likely is likelier.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(metavar="K", help="Draw among the K likeliest.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", help="Draw among the fewest that reach P.")
    ] = None,
    typical: Annotated[
        float | None, typer.Option(metavar="P", help="Draw among the typical that reach P.")
    ] = None,
    repetition: Annotated[
        float | None, typer.Option(metavar="X", help="Penalty of what was there before; 1: none.")
    ] = None,
    no_repeat: Annotated[
        int | None, typer.Option(metavar="N", help="No N tokens in a row come twice.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every draw.")] = 0,
    samples: Annotated[int, typer.Option(metavar="N", help="Draw so many of each prompt.")] = 1,
    beams: Annotated[int, typer.Option(metavar="N", help="Search with so many beams.")] = 1,
    best: Annotated[int, typer.Option(metavar="N", help="Show so many of the beams.")] = 1,
    alpha: Annotated[float, typer.Option(help="Strength of the beams' length penalty.")] = 0.6,
    penalty: Annotated[
        str, typer.Option(help="Of length n: paper is ((5+n)/6)^alpha, common is n^alpha.")
    ] = "paper",
    stopping: Annotated[
        str, typer.Option(help="When a search is done: certain, estimate or full.")
    ] = "certain",
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="Ends the text (\\n: a line break); may be repeated."),
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut off the beginning of a prompt too long.")
    ] = False,
    precision: Annotated[str, typer.Option(help="Of the weights: fp32 or bf16.")] = "fp32",
    streamed: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Print as it grows (one text: yes)."),
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="MODEL is a name on the Hugging Face Hub: fetch it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Let a model go on with a text (GPT, Transformer-XL, XLNet, LSTM, …), or make one of a source
    (T5, Transformer).

    Without --temperature, --top-k, --top-p, --typical or --samples it takes the likeliest token at
    each step; with --beams it searches for the likeliest text.

    \b
    Examples:
      regard generate ./my-gpt "Once upon a time" --tokens 50 --top-p 0.9 --seed 1
      regard generate ./my-gpt "Dear" --samples 3 --temperature 0.8 --stop "\\n"
      regard generate ./my-t5 "translate English to German: Hello" --beams 4
      regard generate ./my-marian - --lines --beams 4 --json < sentences.txt
    """
    options: dict[str, Any] = {
        "tokens": tokens, "minimum": minimum, "temperature": temperature, "top_k": top_k,
        "top_p": top_p, "typical": typical, "repetition": repetition, "no_repeat": no_repeat,
        "seed": seed, "samples": samples, "beams": beams, "best": best, "alpha": alpha,
        "penalty": penalty, "stopping": stopping, "truncate": truncate, "stop": stop_words(stop),
    }  # fmt: skip
    given = gather(prompts or [], file, lines)
    several = len(given) > 1 or samples > 1 or best > 1 or beams > 1
    if streamed and (several or as_json):
        raise InputError(
            "--stream shows one text as it grows; leave out --json, --samples, --beams and further "
            "prompts"
        )
    from regard.decoding.options import Options

    Options.of(options)  # what cannot be is refused before a model is opened
    loaded = opened(model, precision, download)
    if not several and not as_json and streamed is not False:
        from regard.decoding import stream

        for piece in stream(loaded, given[0], **options):
            print(piece, end="", flush=True)
        print()
        return
    from regard.decoding import generate as run

    found = run(loaded, given, **options)
    if as_json:
        print(json.dumps(described(model, given, found), indent=2, ensure_ascii=False))
    else:
        show(found)


def stop_words(given: list[str] | None) -> tuple[str, ...]:
    """A line break can be written as \\n."""
    return tuple(word.replace("\\n", "\n").replace("\\t", "\t") for word in given or ())


def gather(given: list[str], file: Path | None, lines: bool) -> list[str]:
    """All prompts, from wherever they come."""
    if given and file is not None:
        raise InputError("give a prompt or --file, not both")
    if file is not None:
        return split(utf8(lambda: file.read_text("utf-8"), str(file)), lines)
    if lines and given != ["-"]:
        raise InputError("--lines needs --file, or - for standard input")
    if not given and sys.stdin.isatty():
        raise InputError(
            'PROMPT is missing; give a text, --file, or - for standard input ("": none)'
        )
    made: list[str] = []
    for each in given or ["-"]:
        made += split(utf8(sys.stdin.read), lines) if each == "-" else [each]
    return made


def utf8(read: Callable[[], str], where: str = "standard input") -> str:
    try:
        return read()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 text: {error}") from None


def split(text: str, lines: bool) -> list[str]:
    """A file as one prompt without its last line break, or as one a line."""
    if not lines:
        return [text.removesuffix("\n")]
    found = text.splitlines()
    empty = next((number for number, line in enumerate(found, 1) if not line.strip()), None)
    if empty is not None or not found:
        raise InputError(f"line {empty or 1} of the prompts is empty; every line must hold one")
    return found


def opened(model: str, precision: str, download: bool) -> Any:
    import torch

    from regard.core.errors import UnknownName
    from regard.formats.directory import load
    from regard.training.run import pick_device

    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if precision not in kinds:
        raise UnknownName("precision", precision, kinds)
    loaded = load(model, dtype=kinds[precision], download=download)
    loaded.model.to(pick_device(None))
    return loaded


def described(model: str, given: list[str], found: list[list[Any]]) -> dict[str, Any]:
    """Everything that was found, for programs."""
    return {
        "model": model,
        "results": [
            {
                "prompt": prompt,
                "texts": [
                    {
                        "text": each.text,
                        "reason": each.reason,
                        "score": each.score,
                        "ids": each.ids,
                        "logprobs": each.logprobs,
                    }
                    for each in texts
                ],
            }
            for prompt, texts in zip(given, found, strict=True)
        ],
    }


def show(found: list[list[Any]]) -> None:
    """One text as it is; several with a number before each."""
    several = len(found) > 1 and len(found[0]) > 1
    for number, texts in enumerate(found, 1):
        for which, each in enumerate(texts, 1):
            label = f"[{number}.{which}] " if several else f"[{which}] "
            print((label if len(texts) > 1 else "") + each.text)
