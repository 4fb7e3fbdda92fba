"""The commands `regard look` and `draw`, which write pages and pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard.cli.options import Command
from regard.cli.output import text_or_input
from regard.cli.pictured import LookData, PictureData
from regard.core.errors import InputError
from regard.core.options import DOWNLOAD, LR, Argument, Option
from regard.core.tables import Table

if TYPE_CHECKING:
    from regard.report.drawings import Picture

SENTENCE = "the animal did not cross the street because it was too tired"


@dataclass(frozen=True)
class LookPageOptions:
    """What the page shows in addition to the text, and where it is written."""

    out: Annotated[
        Path | None, Option("The page.", metavar="FILE.html", default="RUN-look.html, here")
    ] = None
    second_text: Annotated[str | None, Option("Show a second text beside it.", metavar="TEXT")] = (
        None
    )
    against: Annotated[str, Option("Show another model on the same text.", metavar="RUN")] = ""
    target: Annotated[
        str | None,
        Option("The text of the decoder.", metavar="TEXT", default="the model generates it"),
    ] = None
    permutation: Annotated[
        str,
        Option(
            "XLNet: the tokens to predict, in this order, or a seed for a random order.",
            metavar="3,1,2|SEED",
        ),
    ] = ""
    memory_text: Annotated[
        str | None,
        Option("Transformer-XL, XLNet: the text before, kept in memory.", metavar="TEXT"),
    ] = None
    global_tokens: Annotated[
        Sequence[int],
        Option("Longformer: the tokens with global attention.", metavar="1,7", commas=True),
    ] = ()
    with_knowledge: Annotated[bool, Option("Add facts from the run's own graph.")] = False
    lens: Annotated[bool, Option("Show the likeliest tokens after each layer.")] = False
    ablate: Annotated[
        Sequence[str],
        Option("Show the answer without heads (3.2) or layers (3), or without each head (all).",
               metavar="3.2,cross.1.4|all", commas=True),
    ] = ()  # fmt: skip
    ablate_method: Annotated[
        Literal["zero", "mean"], Option("What a head or layer that is off becomes.")
    ] = "zero"
    patch: Annotated[
        str | None,
        Option("Show which states bring the answer back if the model reads this text instead.",
               metavar="TEXT"),
    ] = None  # fmt: skip
    attribute: Annotated[bool, Option("Show how much each token contributes.")] = False
    token: Annotated[
        str | None,
        Option("The token or label that they follow.", metavar="TEXT", default="the likeliest"),
    ] = None
    position: Annotated[
        int | None,
        Option("The position of the answer, counted from 1.", metavar="N",
               default="the first blank, or the last token"),
    ] = None  # fmt: skip
    force: Annotated[bool, Option("Overwrite an existing file.")] = False
    download: Annotated[bool, DOWNLOAD] = False


def look(
    run: Annotated[str, Argument("RUN", "A run or a model directory.")],
    text: Annotated[str, Argument("TEXT", "The text to read; - is standard input.")],
    *,
    options: LookPageOptions,
) -> Table:
    """Write one page that shows a model's attention on a text, for any browser.

    It shows every layer and head as arcs and as a matrix, their mean and rollout, cross-attention,
    memory, XLNet's two streams, windows and global tokens, and facts of a graph. The page needs no
    network.

    \b
    Examples:
      regard look ./my-gpt "the animal did not cross the street because it was too tired"
      regard look ./my-gpt "the cat sat" --against ./my-bert --out cat.html
      regard look ./translator "Good morning." --target "Guten Morgen."
      regard look ./my-xlnet "New York is a city" --permutation 4,5,1
      regard look ./my-txl "and then it slept." --memory-text "The cat sat on the mat,"
      regard look ./my-gpt "the cat sat on the" --lens --ablate all --attribute
    """
    file = options.out or Path(f"{Path(run).resolve().name}-look.html")
    if file.exists() and not options.force:
        raise InputError(f"{file} exists already; choose another --out, or give --force")
    if not file.parent.is_dir():
        raise InputError(f"there is no directory {file.parent} to write {file.name} into; make it")
    order = order_of(options.permutation)
    if any(number < 0 for number in options.global_tokens):
        raise InputError(
            f"--global-tokens has {min(options.global_tokens)}; tokens are counted from 0"
        )
    from regard.formats.directory import load
    from regard.lab.look import look as record

    recording = record(
        load(run, download=options.download),
        text_or_input(text),
        second=options.second_text,
        against=load(options.against, download=options.download) if options.against else None,
        target=options.target,
        order=order,
        memory=options.memory_text,
        knowledge=options.with_knowledge,
        global_tokens=list(options.global_tokens) or None,
        tell=layer_progress if sys.stderr.isatty() else None,
        lens=options.lens,
        ablate="all" if list(options.ablate) == ["all"] else options.ablate,
        method=options.ablate_method,
        patch=options.patch,
        attribute=options.attribute,
        token=options.token,
        position=options.position,
    )
    page = recording.save(file, force=options.force)
    return LookData({"page": str(page), **recording.facts()}, recording)


def order_of(permutation: str) -> Any:
    """Returns the tokens to predict in their order; a single number is a seed. None: no order."""
    parts = [part.strip() for part in permutation.split(",") if part.strip()]
    if permutation and not (parts and all(part.isdecimal() for part in parts)):
        raise InputError(
            f"--permutation is {permutation!r}; it must be numbers with commas, such as 3,1,2"
        )
    numbers = [int(part) for part in parts]
    return numbers if "," in permutation else next(iter(numbers), None)


def layer_progress(done: int, total: int) -> None:
    """Prints the progress in one line, which is cleared at the end."""
    line = "" if done == total else f"layer {done} of {total}"
    print(f"\r{line:<24}\r", end="", file=sys.stderr, flush=True)


# -- draw

Out = Annotated[
    Path | None,
    Option("Write the picture here; a .png, .pdf or .svg file (needs Matplotlib).",
           metavar="FILE"),
]  # fmt: skip
Lang = Annotated[Literal["en", "zh"], Option("The language of the picture's words.")]
Download = Annotated[bool, DOWNLOAD]
Length = Annotated[int, Option("The number of tokens in the picture.", "--seq-len", "N")]
Seed = Annotated[int, Option("The seed of every random choice.", "--seed", "N")]
Model = Annotated[str, Argument("MODEL", "A model directory, or a published size.")]
Text = Annotated[str, Argument("[TEXT]", "The words to read.")]


def attention(
    text: Text = SENTENCE,
    *,
    model: Annotated[
        str, Option("A model directory, or a published size (untrained).", metavar="NAME")
    ] = "gpt2",
    layer: Annotated[int, Option("The layer, counted from 1.", metavar="N")] = 1,
    head: Annotated[
        int | None, Option("The head, counted from 1.", metavar="N", default="the mean of all")
    ] = None,
    out: Out = None,
    lang: Lang = "en",
    download: Download = False,
) -> Table:
    """Draw which tokens attend to which while a model reads TEXT.

    The terminal shows a small picture; --out writes a larger one. A model without a tokenizer, or
    of a published size, reads the words of TEXT as numbers. The cross-attention of a decoder counts
    as a separate layer.

    \b
    Examples:
      regard draw attention "to be or not to be"
      regard draw attention --model ./my-model --layer 3 --head 5 --out attention.svg "the cat sat"
    """
    check_picture(out)
    from regard.lab.draw.attention import look as attended

    return drawn(attended(model, text, layer, head, download=download), out, lang, also=True)


def positions(
    model: Annotated[str, Argument("[MODEL]", "A model directory; without it, sinusoids.")] = "",
    *,
    length: Length = 32,
    width: Annotated[int, Option("Show N numbers of each position.", metavar="N")] = 64,
    layout: Annotated[
        Literal["interleaved", "halves", "tensor2tensor"], Option("The order of sinusoids.")
    ] = "interleaved",
    out: Out = None,
    lang: Lang = "en",
    download: Download = False,
) -> Table:
    """Draw position embeddings as a heat map: sinusoids, or those that a model has learned.

    \b
    Examples:
      regard draw positions --seq-len 50 --width 128 --out positions.png
      regard draw positions ./my-bert
    """
    check_picture(out)
    from regard.lab.draw import pictures

    picture = pictures.positions(model, length, width, layout, download=download)
    return drawn(picture, out, lang)


def schedules(
    names: Annotated[str, Argument("[NAME,NAME,…]", "The schedules.")] = "noam,linear,cosine",
    *,
    steps: Annotated[int, Option("The number of training steps.", metavar="N")] = 1000,
    warmup: Annotated[
        float, Option("The number of warmup steps; below 1 it is a share of all steps.")
    ] = 0.1,
    rate: Annotated[float, Option(LR.help, LR.name, LR.metavar)] = 1.0,
    power: Annotated[float, Option("The power of polynomial.", metavar="X")] = 1.0,
    out: Out = None,
    lang: Lang = "en",
) -> Table:
    """Draw learning rate schedules over the steps of a run.

    \b
    Examples:
      regard draw schedules noam,linear,cosine,inverse-square-root
      regard draw schedules polynomial --power 3 --warmup 500 --steps 3000 --out rates.svg
    """
    check_picture(out)
    from regard.lab.draw import pictures

    chosen = [name.strip() for name in names.split(",") if name.strip()]
    picture = pictures.schedules(chosen, steps=steps, warmup=warmup, rate=rate, power=power)
    return drawn(picture, out, lang)


def masks(
    kind: Annotated[
        str,
        Argument("[KIND]", "full, causal, prefix, window, longformer, bigbird, xlnet, knowledge."),
    ] = "causal",
    *,
    length: Length = 16,
    past: Annotated[
        int | None, Option("causal: the number of cached tokens before.", "--past-len", "N")
    ] = None,
    prefix: Annotated[
        int | None, Option("prefix: the number of tokens that see each other.", "--prefix-len", "N")
    ] = None,
    window: Annotated[
        int | None, Option("window, longformer: the size, both sides together.", "--window", "N")
    ] = None,
    num_globals: Annotated[
        int | None,
        Option("longformer, bigbird: the number of global tokens.", "--num-globals", "N"),
    ] = None,
    block: Annotated[
        int | None, Option("bigbird: the number of tokens of a block.", "--block-size", "N")
    ] = None,
    random: Annotated[
        int | None, Option("bigbird: the number of random blocks.", "--num-random", "N")
    ] = None,
    seed: Annotated[int | None, Option("The seed of every random choice.", metavar="N")] = None,
    memory: Annotated[
        int | None, Option("xlnet: the number of memory tokens before.", "--mem-len", "N")
    ] = None,
    branches: Annotated[
        int | None, Option("knowledge: the number of branches of a word.", "--branches", "N")
    ] = None,
    out: Out = None,
    lang: Lang = "en",
) -> Table:
    """Draw an attention mask: a row is a query, a column is a key.

    \b
    Examples:
      regard draw masks prefix --prefix-len 6
      regard draw masks longformer --seq-len 40 --window 8 --num-globals 2 --out mask.svg
    """
    check_picture(out)
    from regard.lab.draw import pictures

    named = {"past": past, "prefix": prefix, "window": window, "globals": num_globals,
             "block": block, "random": random, "seed": seed, "memory": memory,
             "branches": branches}  # fmt: skip
    options = {name: value for name, value in named.items() if value is not None}
    return drawn(pictures.masks(kind, length, **options), out, lang)


def order(
    text: Text = "the cat sat on the mat",
    *,
    seed: Seed = 1,
    memory: Annotated[int, Option("The number of memory tokens before.", "--mem-len", "N")] = 0,
    out: Out = None,
    lang: Lang = "en",
) -> Table:
    """Draw an order of XLNet and what both streams see in it: h is content, g is query.

    \b
    Example:
      regard draw order "the cat sat on the mat" --seed 3 --mem-len 2
    """
    check_picture(out)
    from regard.data.words import words_of
    from regard.lab.draw import pictures

    return drawn(pictures.order(words_of(text), seed, memory), out, lang)


def drawn_parameters(model: Model, *, out: Out = None, lang: Lang = "en") -> Table:
    """Draw the number of parameters of each layer.

    \b
    Example:
      regard draw parameters bert-base-uncased --out parameters.svg
    """
    check_picture(out)
    from regard.lab.draw import pictures

    return drawn(pictures.parameters(model), out, lang)


def operations(model: Model, *, length: Length = 512, out: Out = None, lang: Lang = "en") -> Table:
    """Draw the operations of one forward pass, by layer.

    \b
    Example:
      regard draw operations gpt2 --seq-len 1024
    """
    check_picture(out)
    from regard.lab.draw import pictures

    return drawn(pictures.operations(model, length), out, lang)


def check_picture(out: Path | None) -> None:
    """Refuses a file that cannot be made, before anything is computed."""
    if out is not None:
        from regard.report.plot import check_out

        check_out(out)


def drawn(picture: Picture, out: Path | None, lang: str, *, also: bool = False) -> Table:
    """Returns a picture's data and terminal lines; with `also`, lines even if a file is written."""
    from regard.report.heatmap import PLAIN_SHADES, SHADES

    shades = SHADES if "utf" in (sys.stdout.encoding or "").lower() else PLAIN_SHADES
    if out is None:
        return PictureData(picture.data(), picture, [picture.text(shades, lang)])
    picture.save(out, lang)
    shown = [picture.text(shades, lang)] if also else []
    data = picture.data() | {"out": str(out)}
    return PictureData(data, picture, [*shown, f"the picture is in {out}"])


def look_lines(result: Table) -> Iterator[str]:
    for side in result["sides"]:
        stacks = side["stacks"]
        sizes = ", ".join(f"{one['kind']} {one['layers']}×{max(one['heads'])}" for one in stacks)
        rows = len(side["tokens"][stacks[0]["rows"]])
        yield f"{side['model']} ({side['family']}): {rows:,} tokens; layers × heads: {sizes}"
        yield from deeper_lines(side)
    page = Path(result["page"])
    yield f"the page is {page} ({page.stat().st_size / 1e6:.1f} MB)"


def deeper_lines(side: Table) -> Iterator[str]:
    """The most important numbers; the page and --json have all of them."""
    if "lens" in side:
        last = [f"{layer[-1][0]['text']} {layer[-1][0]['probability']:.3f}"
                for layer in side["lens"]["layers"]]  # fmt: skip
        yield f"  lens at {side['lens']['tokens'][-1]}, layer by layer: {' · '.join(last)}"
    if "ablate" in side:
        heads = side["ablate"].get("heads", {})
        cells = [cell for layers in heads.values() for layer in layers for cell in layer]
        cells.sort(key=lambda cell: -abs(cell["token"]["after"] - cell["token"]["before"]))
        for cell in cells[:3] or [side["ablate"]]:
            token, off = cell["token"], ", ".join(cell["off"])
            yield f"  without {off}: {token['text']} {token['before']:.4f} → {token['after']:.4f}"
    if "patch" in side:
        patch = side["patch"]
        ends = f"{patch['clean'][0]:.4f}, {patch['corrupted'][0]:.4f}"
        yield f"  {patch['token']} in this text and in the other: {ends}"
    if "attribute" in side:
        scores, tokens = side["attribute"]["scores"], side["attribute"]["tokens"]
        pairs = [pair for name in scores for pair in zip(tokens[name], scores[name], strict=True)]
        pairs.sort(key=lambda pair: -abs(pair[1]))
        shown = " · ".join(f"{text} {value:+.3f}" for text, value in pairs[:5])
        yield f"  {side['attribute']['token']} depends most on: {shown}"


def drawn_lines(result: Table) -> Iterator[str]:
    assert isinstance(result, PictureData)
    yield from result.lines


PICTURES: dict[str, Any] = {
    "attention": attention, "positions": positions, "schedules": schedules, "masks": masks,
    "order": order, "parameters": drawn_parameters, "operations": operations,
}  # fmt: skip
COMMANDS: dict[str, Any] = {
    "look": Command(look, look_lines, opens=True),
    "draw": (
        "draw",
        "Draw what a model attends to, and what models are made of.",
        {
            name: Command(function, drawn_lines, opens=name in ("attention", "positions"))
            for name, function in PICTURES.items()
        },
    ),
}
