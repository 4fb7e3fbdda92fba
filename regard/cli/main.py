"""The command line: parses, calls, prints. A command is imported when it is asked for."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from regard.core import VERSION
from regard.core.errors import RegardError, UnknownName
from regard.core.foreign import KEYS, NOW, ours, plain

# The module of each group, and what its commands do.
GROUPS: dict[str, tuple[str, dict[str, str]]] = {
    "Data": ("data", {
        "prepare": "Turn text into tokens to learn from.",
        "check": "Say what labeled data hold and what is wrong.",
        "augment": "Make variants of labeled examples.",
    }),
    "Learning": ("learn", {
        "train": "Train a model on prepared text.",
        "finetune": "Teach a model a task from labeled examples.",
        "distill": "Teach a small model what a large one knows.",
        "align": "Tune a model by what people prefer: dpo, ipo, reward, grpo.",
    }),
    "Using a model": ("use", {
        "generate": "Let a model continue a text.",
        "fill": "Let a model fill the blanks of a text.",
        "chat": "Talk with a model.",
        "predict": "Classify, tag, answer, choose, translate, … by the task of the model.",
        "embed": "Make vectors of texts.",
    }),
    "Measuring": ("measure", {
        "evaluate": "Measure a model on data that it has not learned from.",
        "probe": "Ask what the layers and heads of a model know.",
        "compare": "Compare models on your text under one budget.",
        "claims": "Try what papers say: list, run, show.",
    }),
    "Shrinking": ("shrink", {
        "quantize": "Make a model smaller and faster: weights of 8 bits.",
        "prune": "Remove what matters least: heads, units, weights.",
    }),
    "Looking": ("picture", {
        "look": "Make a page of a model's attention on a text.",
        "draw": "Draw attention, positions, schedules, masks, ….",
    }),
    "Models and recipes": ("catalog", {
        "models": "List every published size.",
        "info": "Say what a model directory holds.",
        "convert": "Convert pickled weights to safetensors.",
        "recipes": "List the recipes that come along, or show one.",
    }),
}  # fmt: skip
SHELLS = ("bash", "zsh", "fish")


class CommandGroup(click.Group):
    """A command that only groups others; a name that is not known is answered with the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            meant = NOW.get(name, "") if ctx.parent is None else ""
            error = UnknownName("command", name, self.list_commands(ctx), meant=meant)
            raise click.UsageError(str(error), ctx)
        return super().resolve_command(ctx, args)


class Program(CommandGroup):
    """All commands by their groups; each is imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for _, commands in GROUPS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for module, commands in GROUPS.values():
            if cmd_name in commands:
                return as_click(import_module(f"regard.cli.{module}").COMMANDS[cmd_name])
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, (_, commands) in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<9}", summary) for name, summary in commands.items()])


def as_click(command: Any) -> click.Command:
    """A command, or of a table of them a group: its function, then its commands by name."""
    if not isinstance(command, tuple):
        built: click.Command = command.as_click()
        return built
    name, summary, inner = command
    commands = {each: one.as_click() for each, one in inner.items()}
    for each, one in commands.items():
        one.name = each
    return CommandGroup(
        name, commands, help=summary, invoke_without_command=True, callback=help_alone
    )


@click.pass_context
def help_alone(context: click.Context) -> None:
    """A command that only groups others shows them when it is given none."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def show_completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    """Prints what a shell reads to complete commands and options."""
    if shell is not None:
        from click.shell_completion import get_completion_class

        kind = get_completion_class(shell)
        assert kind is not None
        print(kind(program, {}, "regard", "_REGARD_COMPLETE").source())
        context.exit()


program = Program(
    "regard",
    callback=help_alone,
    invoke_without_command=True,
    params=[
        click.Option(
            ["--show-completion"], type=click.Choice(SHELLS), metavar="SHELL", is_eager=True,
            expose_value=False, callback=show_completion,
            help="Print what completes commands in bash, zsh or fish: eval \"$(regard "
            "--show-completion bash)\".",
        ),
    ],
    help="""The attention language models, from the Transformer to Llama, on one attention core.

\b
Examples:
  regard models                        every published size
  regard prepare my-texts/ --out data  text to tokens
  regard train gpt data --out my-gpt --size small --minutes 10
  regard generate my-gpt "Once upon"   let it continue a text
  regard finetune my-bert --task classify --data reviews.jsonl --out reviewer
  regard evaluate reviewer test.jsonl  how good is it?
  regard predict reviewer "a moving film"
  regard info ./my-gpt                 what a model directory holds
  regard compare book.txt --budget 5m --out lineage   every family on your text
  regard draw attention "to be or not to be"
""",
)  # fmt: skip
program = click.version_option(VERSION, message="regard %(version)s", help="Print it.")(program)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit code: 0 done, 2 refused, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows only ASCII gets "?"
    warnings.showwarning = note
    try:
        words = sys.argv[1:] if arguments is None else [str(word) for word in arguments]
        code = program.main(words, "regard", "_REGARD_COMPLETE", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.NoSuchOption as error:
        names = [name for p in error.ctx.command.params for name in p.opts] if error.ctx else []
        meant = "" if ours(error.option_name, names) else KEYS.get(plain(error.option_name), "")
        unknown = UnknownName("option", error.option_name, names, meant=meant)
        return complain(with_help(str(unknown), error))
    except click.UsageError as error:
        return complain(with_help(error.format_message().rstrip("."), error))
    except RegardError as error:
        return complain(str(error))
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return complain(f"{where}{error.strerror or error}")


def note(message: Warning | str, *_: object, **__: object) -> None:
    """A warning without the place in the code that gave it."""
    print(f"regard: note: {message}", file=sys.stderr)


def complain(message: str) -> int:
    print(f"regard: {message}", file=sys.stderr)
    return 2


def with_help(message: str, error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "regard"
    return f"{message}\ntry '{path} --help'"
