"""The command line `regard`. Each command is imported when it is called."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from regard.cli.output import say
from regard.core import VERSION
from regard.core.errors import RegardError, UnknownName
from regard.core.foreign import NOW

# The module of each group, and the help of its commands.
GROUPS: dict[str, tuple[str, dict[str, str]]] = {
    "Data": ("data", {
        "prepare": "Turn text into training data.",
        "check": "Report what labeled data hold and what is wrong.",
        "augment": "Make variants of labeled examples.",
    }),
    "Learning": ("learn", {
        "train": "Train a model on prepared text.",
        "finetune": "Fine-tune a model for a task, with labeled examples.",
        "distill": "Train a small model on the outputs of a large one.",
        "align": "Tune a model with preferences: dpo, ipo, reward, grpo.",
        "plan": "Plan a training over many devices: memory, communication, time.",
    }),
    "Using a model": ("use", {
        "generate": "Continue a text.",
        "fill": "Fill the blanks of a text.",
        "chat": "Chat with a model.",
        "predict": "Classify, tag, answer, choose, translate, … by the task of the model.",
        "embed": "Compute text embeddings.",
    }),
    "Serving": ("serve", {
        "serve": "Serve models over HTTP, for clients of OpenAI and for curl.",
    }),
    "Measuring": ("measure", {
        "evaluate": "Measure a model on test data.",
        "probe": "Measure what the layers and heads of a model encode.",
        "compare": "Compare models on your text under one budget.",
        "claims": "Test the claims of papers: list, run, show.",
    }),
    "Shrinking": ("shrink", {
        "quantize": "Quantize the weights of a model to 8 bits.",
        "prune": "Remove the least important heads, units or weights.",
    }),
    "Exporting": ("export", {
        "export": "Write a model for another runtime, proven to compute the same.",
    }),
    "Looking": ("picture", {
        "look": "Write a page that shows a model's attention on a text.",
        "draw": "Draw attention, positions, schedules, masks, ….",
    }),
    "Models and recipes": ("catalog", {
        "models": "List every published size.",
        "info": "Show what a model directory holds.",
        "convert": "Convert pickled weights to safetensors.",
        "recipes": "List the built-in recipes, or show one.",
        "push": "Send a model to the Hugging Face Hub.",
        "doctor": "Show what is installed here, and what is missing.",
    }),
}  # fmt: skip
SHELLS = ("bash", "zsh", "fish")


class CommandGroup(click.Group):
    """A command that only groups others. An unknown name is refused with the nearest known one."""

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
    """All commands by group. Each is imported when it is needed."""

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
    """Returns a click command. A tuple (function, commands by name) becomes a group."""
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
    """Prints the help of a group that is called without a command."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def show_completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    """Prints the completion script of a shell."""
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
            help="Print the completion script of bash, zsh or fish: eval \"$(regard "
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
program = click.version_option(
    VERSION, message="regard %(version)s", help="Print the version and exit."
)(program)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit code: 0 done, 2 refused, 130 interrupted."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed before the program began
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal shows "?"
    warnings.showwarning = note
    try:
        words = sys.argv[1:] if arguments is None else [str(word) for word in arguments]
        code = program.main(words, "regard", "_REGARD_COMPLETE", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.NoSuchOption as error:  # of a group; a command answers by itself
        names = [name for p in error.ctx.command.params for name in p.opts] if error.ctx else []
        return complain(with_help(str(UnknownName("option", error.option_name, names)), error))
    except click.UsageError as error:
        return complain(with_help(error.format_message().rstrip("."), error))
    except RegardError as error:
        return complain(str(error))
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:  # the reader of our output has stopped, as `head` does
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return complain(f"{where}{error.strerror or error}")


def note(message: Warning | str, *_: object, **__: object) -> None:
    """Prints a warning without its line of code."""
    say(f"regard: note: {message}")


def complain(message: str) -> int:
    say(f"regard: {message}")
    return 2


def with_help(message: str, error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "regard"
    return f"{message}\ntry '{path} --help'"
