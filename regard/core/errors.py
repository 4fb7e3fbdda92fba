"""What can go wrong, by kind. A message says what was given, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RegardError(Exception):
    """The base of all errors that a user can cause and mend."""


class ConfigError(RegardError):
    """A field of a configuration is unknown, missing, or contradicts another."""


class InputError(RegardError):
    """A batch that the model cannot take: unknown tokens, too long, wrong shape."""


class FormatError(RegardError):
    """A model directory that cannot be read: missing, damaged or of another shape."""


class StorageError(RegardError):
    """A run that cannot be written or read back: no room, no access, damaged, or in use."""


class UnknownName(RegardError):
    """A name that is not known. The message gives the known one that is nearest, or the one that
    means the same: `foreign.py` knows the words of other libraries.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        advice: str = "",
        meant: str = "",
        hint: str = "",
    ) -> None:
        from regard.core.foreign import ours, renamed  # tables that only a wrong name needs

        names = sorted(known)
        self.name = name
        near = [meant or ours(name, names)] if meant or ours(name, names) else []
        near = near or difflib.get_close_matches(name, names, 1, 0.6)
        few = f"known: {', '.join(names)}" if len(names) <= 20 else f"none of {len(names)} is near"
        if now := renamed(name, names):
            hint = f"it is called {now!r} now"
        hint = hint or (f"did you mean {near[0]!r}?" if near else few)
        super().__init__(f"unknown {kind} {name!r}; {hint}" + (f" {advice}" if advice else ""))
