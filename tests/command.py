"""The program in this process: its output, its exit code, and what it refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
from click.testing import CliRunner

from regard.cli.main import program
from regard.core.errors import RegardError


@dataclass(frozen=True)
class Result:
    exit_code: int
    stdout: str
    stderr: str
    output: str
    exception: BaseException | None


def run(*words: object, input: str | bytes | None = None) -> Result:
    """`regard WORDS`; what is neither ours nor a misuse is raised."""
    done: Any = CliRunner().invoke(
        program, [str(word) for word in words], input=input, standalone_mode=False
    )
    error = done.exception
    if error is not None and not isinstance(error, RegardError | click.UsageError | OSError):
        raise error
    code = 2 if error is not None else done.return_value or 0
    text = done.output if error is None else f"{done.output}{error}"
    return Result(code, done.stdout, done.stderr, text, error)
