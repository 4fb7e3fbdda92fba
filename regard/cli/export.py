"""The command `regard export`, which writes models for other runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from regard.cli.guess import check_order, check_there
from regard.cli.options import Command
from regard.cli.output import say, utf8
from regard.core.options import DOWNLOAD, Argument, Option
from regard.core.tables import Table

TargetName = Literal["onnx", "openvino", "ctranslate2", "gguf", "sentence-transformers"]


def export(
    run: Annotated[str, Argument("RUN", "A run or a model directory.")],
    *,
    to: Annotated[TargetName, Option("The format of another runtime.", metavar="TARGET")],
    out: Annotated[Path, Option("Write the export into this new directory.", metavar="DIR")],
    precision: Annotated[
        Literal["fp32", "int8"],
        Option("Store the weights as fp32, or quantized to int8 (q8_0 in GGUF).", metavar="NAME"),
    ] = "fp32",
    texts: Annotated[
        Sequence[Path],
        Option(
            "Compare on the text of this file; may be repeated.",
            "--text",
            "FILE",
            "the documentation of Python",
        ),
    ] = (),
    quiet: Annotated[bool, Option("Print nothing on standard error.")] = False,
    download: Annotated[bool, DOWNLOAD] = False,
) -> Table:
    """Write a model for another runtime, and prove that this runtime computes the same.

    TARGET is onnx, openvino, ctranslate2, gguf or sentence-transformers. The real runtime opens the
    export and reads texts of several lengths; the export is kept only if its numbers, and the
    tokens that it writes, are those of the model. 'regard models --exports' shows what each target
    can hold.

    \b
    Examples:
      regard export ./my-gpt --to onnx --out ./my-gpt-onnx
      regard export ./my-gpt --to gguf --precision int8 --out ./my-gpt-gguf
      regard export ./my-bert --to sentence-transformers --out ./my-vectors
    """
    check_order("export", run, option="--text")
    check_there("--text", *texts)
    from regard.api import load
    from regard.exports.run import export as write

    read = tuple(utf8(partial(file.read_text, encoding="utf-8"), where=str(file)) for file in texts)
    watch = (lambda what: None) if quiet else (lambda what: say(f"regard: {what} …"))
    return {"run": run} | write(load(run, download=download), to, out, precision, read, watch)


def in_lines(report: Table) -> Iterator[str]:
    """Yields what was compared, and the files."""
    figures = report["compared"]
    lengths = ", ".join(map(str, figures["texts"]))
    yield f"compared     {figures['quantity']} of texts of {lengths} tokens"
    if "difference" in figures:
        yield (
            f"difference   at most {figures['difference']:.1e} of the largest number "
            f"(allowed: {figures['tolerance']:g})"
        )
    if figures.get("tokens"):
        yield f"written      {figures['tokens']} tokens, all equal"
    if "agreement" in figures:
        yield f"agreement    {figures['agreement']:.1%} of the most probable tokens are the same"
    if "perplexity" in figures:
        before, after = figures["perplexity"]
        yield f"perplexity   {before:.3f} before, {after:.3f} after"
    if "cosine" in figures:
        yield f"cosine       {figures['cosine']:.5f}"
    if figures["tokenizer"] != "none":
        yield f"tokenizer    {figures['tokenizer']}"
    for name, size in report["files"].items():
        yield f"{size / 1e6:>10,.2f} MB  {name}"


COMMANDS = {
    "export": Command(
        export, in_lines, after=lambda report: f"the export is in {report['out']}", opens=True
    ),
}
