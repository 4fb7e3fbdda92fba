"""`regard chat`: talk with a model in the terminal."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from regard.cli.generate import opened, stop_words, utf8
from regard.core.errors import ConfigError

HELP = "/reset forgets the conversation, /quit or Ctrl-D ends it"


def register(app: typer.Typer) -> None:
    app.command(short_help="Talk with a model.")(chat)


def chat(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model directory.")],
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Said before the conversation (templates).")
    ] = None,
    tokens: Annotated[int, typer.Option(metavar="N", help="Of an answer, at most.")] = 100,
    temperature: Annotated[float, typer.Option(metavar="T", help="0: the likeliest.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(metavar="K", help="Among the K likeliest.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", help="Among the fewest that reach P.")
    ] = 0.9,
    repetition: Annotated[
        float | None, typer.Option(metavar="X", help="Penalty of what was there before.")
    ] = None,
    no_repeat: Annotated[
        int | None, typer.Option(metavar="N", help="No N tokens in a row come twice.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every draw.")] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="Ends an answer; may be repeated.")
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Turns before the newest that the model is shown.  [default: all; "
            "a model with an encoder: none]",
        ),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Leave the tokenizer's chat template aside.")
    ] = False,
    precision: Annotated[str, typer.Option(help="Of the weights: fp32 or bf16.")] = "fp32",
    download: Annotated[
        bool, typer.Option("--download", help="MODEL is a name on the Hugging Face Hub: fetch it.")
    ] = False,
) -> None:  # fmt: skip
    """Talk with a model that was trained on dialogue.

    Turns are marked by the tokenizer's chat template, run in a sandbox; without one every turn ends
    with the end token. What no longer fits the model's context is forgotten, the oldest first.
    /reset forgets the conversation, /quit or Ctrl-D ends it.

    \b
    Examples:
      regard chat ./my-gpt
      regard chat ./my-gpt --temperature 0.7 --top-p 0.95 --seed 3
      echo "How are you?" | regard chat ./my-gpt --temperature 0
    """
    from regard.decoding.options import Options

    options = Options.of(
        {"tokens": tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
         "repetition": repetition, "no_repeat": no_repeat, "seed": seed, "stop": stop_words(stop)}
    )  # fmt: skip
    if memory is not None and memory < 0:
        raise ConfigError(f"--memory is {memory}; it must be 0 or more")
    loaded = opened(model, precision, download)
    from regard.decoding.dialogue import Dialogue

    dialogue = Dialogue(loaded, options, plain, memory)
    if system is not None:
        dialogue.turns.append({"role": "system", "content": system})
    talk(dialogue, sys.stdin.isatty())


def talk(dialogue: Any, asks: bool) -> None:
    """Until the input ends; piped input gets the answers alone."""
    if asks:
        print(HELP)
    while (line := heard(asks)) is not None:
        match line.strip():
            case "":
                continue
            case "/quit":
                return
            case "/reset":
                dialogue.reset()
            case text if text.startswith("/"):
                print(f"{text} is no command; {HELP}", file=sys.stderr)
            case text:
                answer(dialogue, text)


def heard(asks: bool) -> str | None:
    """The next line, None at the end of the input."""
    try:
        return utf8(lambda: input("> " if asks else ""))
    except EOFError:
        if asks:
            print()
        return None


def answer(dialogue: Any, text: str) -> None:
    """Prints an answer as it grows; Ctrl-C breaks it off, and it is not remembered."""
    begun = False
    pieces = dialogue.say(text)
    try:
        for piece in pieces:
            shown = piece if begun else piece.lstrip()
            begun = begun or bool(shown)
            print(shown, end="", flush=True)
    except KeyboardInterrupt:
        pieces.close()
    print()
