"""Turns a table, as TOML and JSON hold it, into a checked dataclass: the package has no other way.

The annotations of a dataclass say what its fields may hold. A field that may stay unset is `… |
None`, a field with a few words to choose from is a `Literal`, and a field that is a dataclass
itself is a table inside the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from reprlib import Repr
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.core.errors import ConfigError, UnknownName

T = TypeVar("T")
Table = dict[str, Any]
BRIEF = Repr()
BRIEF.maxlevel, BRIEF.maxstring, BRIEF.maxother = 3, 80, 80
BRIEF.maxlist = BRIEF.maxtuple = BRIEF.maxdict = 12


def from_table(
    kind: type[T],
    table: Mapping[str, Any],
    *,
    path: str = "",  # the prefix of a key in messages, such as "batch."
    what: str = "key",  # the word for a key in messages
    advice: str = "",
    base: T | None = None,  # the values that the table changes; None: the defaults
) -> T:
    """Builds a dataclass from the values of a table. Names and types are checked: an error names
    the key of a wrong value, or for an unknown key the nearest known one."""
    kinds: Table = fields_of(kind)  # type: ignore[arg-type]
    values: Table = {}
    for key, value in table.items():
        if key not in kinds:
            known = [f"{path}{name}" for name in kinds]
            raise UnknownName(what, f"{path}{key}", known, advice)
        current = getattr(base, key) if base is not None else None
        values[key] = checked(f"{path}{key}", value, kinds[key], current, what)
    if base is not None:
        return dataclasses.replace(base, **values)  # type: ignore[type-var]
    missing = [name for name in required(kind) if name not in values]
    if missing:
        raise ConfigError(f"{path}{missing[0]} is missing; it must be {words(kinds[missing[0]])}")
    return kind(**values)


@cache
def fields_of(kind: type) -> dict[str, Any]:
    """Returns the annotation of each field."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def required(kind: Any) -> list[str]:
    """Returns the names of the fields without a default."""
    none = dataclasses.MISSING
    return [
        field.name
        for field in dataclasses.fields(kind)
        if field.init and field.default is none and field.default_factory is none
    ]


def checked(where: str, value: Any, kind: Any, current: Any, what: str) -> Any:
    """Returns the value in the type of its annotation. A table changes the current value."""
    options = get_args(kind) if is_union(kind) else (kind,)
    for option in options:
        if dataclasses.is_dataclass(option):
            if not isinstance(value, Mapping):
                names = ", ".join(fields_of(option))  # type: ignore[arg-type]
                raise ConfigError(f"{where} is {brief(value)}; it is a table of {names}")
            return from_table(option, value, path=f"{where}.", what=what, base=current)  # type: ignore[arg-type]
        if is_mapping(option) and not isinstance(value, Mapping):
            raise ConfigError(f"{where} is {brief(value)}; it is a table, such as {where}.name = …")
    if not fits(value, kind):
        choices = [word for option in options for word in choices_of(option)]
        if choices:
            raise UnknownName(where, str(value), choices)
        raise ConfigError(f"{where} is {brief(value)}; it must be {words(kind)}")
    return converted(value, options, current)


def converted(value: Any, options: Sequence[Any], current: Any) -> Any:
    """Converts integers to floats and lists to tuples, and merges a table into the current one."""
    if isinstance(value, Mapping):
        return {**(current or {}), **value}
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and float in options and int not in options:
        return float(value)
    if isinstance(value, list) and any(get_origin(option) is tuple for option in options):
        return tuple(value)
    return value


def fits(value: Any, kind: Any) -> bool:
    """Returns whether the value has the type that an annotation asks for."""
    if kind is Any:
        return True
    if is_union(kind):
        return any(fits(value, option) for option in get_args(kind))
    origin = get_origin(kind)
    if origin is Literal:
        return value in get_args(kind)
    if is_mapping(kind):
        inside = (get_args(kind) or (Any, Any))[1]
        return isinstance(value, Mapping) and all(fits(item, inside) for item in value.values())
    if origin is tuple or (origin is not None and issubclass(origin, Sequence)):
        inner = get_args(kind)[0]
        return isinstance(value, tuple | list) and all(fits(item, inner) for item in value)
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and value == value  # not NaN
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def brief(value: object) -> str:
    """Returns a value as text for a message, however long or deep it is."""
    return BRIEF.repr(value)


def is_union(kind: Any) -> bool:
    return isinstance(kind, UnionType) or get_origin(kind) is Union


def is_mapping(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Mapping)


def choices_of(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def words(kind: Any) -> str:
    """Returns an annotation as text for a message."""
    if is_union(kind):
        return " or ".join(words(option) for option in get_args(kind) if option is not NoneType)
    if get_origin(kind) is not None:
        return str(kind).replace("typing.", "").replace("collections.abc.", "")
    return getattr(kind, "__name__", str(kind))


def without_none(table: Mapping[str, Any]) -> Table:
    """Returns the table as TOML can hold it: without None, and with plain values before tables."""
    present = {key: value for key, value in table.items() if value is not None}
    plain = {key: value for key, value in present.items() if not isinstance(value, dict)}
    inner = {key: without_none(value) for key, value in present.items() if isinstance(value, dict)}
    return plain | inner
