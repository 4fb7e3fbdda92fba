"""What Python can be asked the command line can, and the other way round."""

from __future__ import annotations

import inspect
from importlib import import_module

import click
import pytest

import regard
from regard.cli.main import program
from regard.tasks import TASKS
from tests.cli.test_options import EVERY

COMMANDS = program.list_commands(click.Context(program))
VERBS = {
    name
    for name, value in vars(regard.LoadedModel).items()
    if inspect.isfunction(value) and not name.startswith("_")
}
# Commands that are no verb of the package, by what is asked of an opened model, or its other name.
IN_PYTHON = {"models": "sizes"} | {
    name: name for name in ("generate", "fill", "chat", "predict", "embed")
}
# A command that is a process of its own; its name is that of a package, which has the function.
PROCESSES = {"serve": "regard.serve.server"}
# What Python calls otherwise. "": it gives objects for further code, and shows nothing.
ON_THE_COMMAND_LINE = {
    **dict.fromkeys(("classify", "entail", "similar", "tag", "answer", "choose", "reward",
                     "translate", "summarize", "converse"), "predict"),
    "stream": "generate", "logits": "", "LoadedModel": "", "__version__": "",
    "load": "info", "save": "convert", "create": "train", "count_parameters": "models",
    "sizes": "models", **dict.fromkeys(("record", "lens", "ablate", "patch", "attribute"), "look"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_what_the_command_line_can_python_can(name: str) -> None:
    if name in PROCESSES:
        assert callable(getattr(import_module(PROCESSES[name]), name))
        return
    here = IN_PYTHON.get(name)
    assert here in VERBS or here in regard.__all__ if here else name in regard.VERBS


@pytest.mark.parametrize("name", sorted({*VERBS, *regard.__all__}))
def test_what_python_can_the_command_line_can(name: str) -> None:
    command = ON_THE_COMMAND_LINE.get(name, name)
    assert not command or command in COMMANDS


def test_nothing_stands_in_the_tables_that_is_gone() -> None:
    assert ON_THE_COMMAND_LINE.keys() <= {*VERBS, *regard.__all__}
    assert IN_PYTHON.keys() <= set(COMMANDS)


@pytest.mark.parametrize("name", [name for name in EVERY if name.split()[0] in regard.VERBS])
def test_a_verb_takes_the_words_of_its_command(name: str) -> None:
    function = regard
    for word in name.split():
        function = getattr(function, word)
    shown = set(inspect.signature(function).parameters)  # type: ignore[arg-type]
    assert shown == {one.name for one in EVERY[name].params} - {"as_json"}


@pytest.mark.parametrize("task", TASKS)
def test_each_task_has_a_verb(task: str) -> None:
    others = {"prefer": "reward", "multilabel": "predict", "link": "predict", "rerank": "predict"}
    assert others.get(task, task) in VERBS
