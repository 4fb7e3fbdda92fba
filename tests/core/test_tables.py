"""A table becomes a checked dataclass, and what is refused is named by its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from regard.core.errors import ConfigError, RegardError, UnknownName
from regard.core.tables import from_table, without_none


@dataclass(frozen=True)
class Inner:
    size: int = 8
    kind: Literal["small", "large"] = "small"


@dataclass(frozen=True)
class Outer:
    name: str
    rate: float = 0.5
    limit: int | None = None
    shape: tuple[int, ...] = ()
    words: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)


def test_a_table_sets_what_it_names() -> None:
    table = {"name": "a", "rate": 1, "limit": 3, "shape": [1, 2], "words": ["x"]}
    outer = from_table(Outer, table | {"labels": {"a": "b"}, "inner": {"size": 2}})
    assert outer == Outer("a", 1.0, 3, (1, 2), ["x"], {"a": "b"}, Inner(2))
    assert isinstance(outer.rate, float)


def test_a_table_changes_what_there_is() -> None:
    base = Outer("a", labels={"a": "b"}, inner=Inner(2))
    changes = {"limit": 1, "labels": {"c": "d"}, "inner": {"kind": "large"}}
    expected = Outer("a", limit=1, labels={"a": "b", "c": "d"}, inner=Inner(2, "large"))
    assert from_table(Outer, changes, base=base) == expected
    assert base.limit is None and base.inner == Inner(2)


@pytest.mark.parametrize(
    ("table", "error", "named"),
    [
        ({}, ConfigError, "x.name is missing"),
        ({"nam": "a"}, UnknownName, "'x.nam'; did you mean 'x.name'"),
        ({"name": 1}, ConfigError, "x.name is 1; it must be str"),
        ({"name": "a", "rate": "fast"}, ConfigError, "x.rate is 'fast'; it must be float"),
        ({"name": "a", "rate": True}, ConfigError, "x.rate"),
        ({"name": "a", "limit": 1.5}, ConfigError, "x.limit is 1.5; it must be int"),
        ({"name": "a", "limit": True}, ConfigError, "x.limit"),
        ({"name": "a", "shape": [1, "2"]}, ConfigError, "x.shape"),
        ({"name": "a", "words": "x"}, ConfigError, "x.words"),
        ({"name": "a", "labels": "x"}, ConfigError, "x.labels is 'x'; it is a table"),
        ({"name": "a", "inner": 3}, ConfigError, "x.inner is 3; it is a table of size, kind"),
        ({"name": "a", "inner": {"sise": 3}}, UnknownName, "did you mean 'x.inner.size'"),
        ({"name": "a", "inner": {"kind": "larg"}}, UnknownName, "x.inner.kind .*'large'"),
    ],
)
def test_what_is_refused_is_named(
    table: dict[str, Any], error: type[RegardError], named: str
) -> None:
    with pytest.raises(error, match=named):
        from_table(Outer, table, path="x.")


def test_toml_has_no_none() -> None:
    table = {"b": {"c": None, "d": 1}, "a": None, "e": 2}
    assert list(without_none(table).items()) == [("e", 2), ("b", {"d": 1})]
