"""The types of options that click does not have."""

from __future__ import annotations

from typing import Any

import click

from regard.core.errors import InputError, UnknownName


class NearestChoice(click.Choice[str]):
    """A choice among a few words. A wrong word is refused with the nearest right one."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value not in self.choices:
            name = param.opts[0] if param is not None else "choice"
            raise UnknownName(f"choice for {name}", str(value), self.choices)
        return value


class NamedValue(click.ParamType):
    """A value of the form NAME=VALUE."""

    name = "name=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        name, equals, text = str(value).partition("=")
        if not (name and equals and text):
            like = {"ROLE=NAME": "text=review", "LABEL=WORD": "pos=great"}.get(param.metavar, "a=b")
            raise InputError(f"{param.opts[0]} {value} is not {param.metavar}, such as {like}")
        return name, text


class CommaSeparated(click.ParamType):
    """Values that are separated by commas."""

    name = "list"

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        words = [word.strip() for word in value.split(",") if word.strip()]
        try:
            return [self.kind(word) for word in words]
        except ValueError:
            raise InputError(
                f"{param.opts[0]} is {value!r}; it must be numbers with commas, such as 0,3,-1"
            ) from None
