"""The error classes. A message says what was given, what was expected, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class RegardError(Exception):
    """The base class of all errors that a user can cause and fix."""


class ConfigError(RegardError):
    """A field of a configuration is unknown, missing, or contradicts another."""


class InputError(RegardError):
    """The model cannot read a batch: an id is unknown, a text is too long, or a shape is wrong."""


class FormatError(RegardError):
    """A model directory cannot be read: it is missing, damaged, or has an unexpected layout."""


class StorageError(RegardError):
    """A run cannot be written or read back: no disk space, no access, damaged files, or in use."""


class Diverged(RegardError):
    """The loss of a run is no longer a number, or it has exploded."""


class UnknownName(RegardError):
    """A name is not known. The message suggests the nearest known name, or the known name with the
    same meaning: `foreign.py` holds the words of other libraries."""

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        advice: str = "",
        meant: str = "",
        hint: str = "",
    ) -> None:
        from regard.core.foreign import ours, renamed  # only a wrong name needs these tables

        names = sorted(known)
        self.name = name
        near = [meant or ours(name, names)] if meant or ours(name, names) else []
        near = near or difflib.get_close_matches(name, names, 1, 0.6)
        few = f"known: {', '.join(names)}" if len(names) <= 20 else f"none of {len(names)} is near"
        if now := renamed(name, names):
            hint = f"it is called {now!r} now"
        hint = hint or (f"did you mean {near[0]!r}?" if near else few)
        super().__init__(f"unknown {kind} {name!r}; {hint}" + (f" {advice}" if advice else ""))

    @classmethod
    def first_of(cls, errors: Sequence[UnknownName]) -> UnknownName:
        """The first error with the messages of all, a line each."""
        errors[0].args = ("\n".join(map(str, errors)),)
        return errors[0]


def counted(number: int, what: str) -> str:
    """Writes a count in words, as messages need it: 1 step, 2 steps, 1,000 queries."""
    if number == 1:
        return f"1 {what}"
    ending = f"{what[:-1]}ies" if what.endswith("y") and what[-2] not in "aeiou" else f"{what}s"
    return f"{number:,} {ending}"


class RequestError(RegardError):
    """A server refuses a request, or cannot finish it. `status` is that of HTTP; `code` and `param`
    are the fields of OpenAI's errors; `retry_after` is the number of seconds to wait."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.retry_after = status, code, param, retry_after
