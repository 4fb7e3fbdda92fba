"""A refusal, or a warning, is known by its class and by the names that its message gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

Refusal = tuple[Any, ...]  # an error class, and what its message mentions


@contextmanager
def refuses(
    error: type[BaseException] | tuple[type[BaseException], ...], *parts: object
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Whatever is done inside raises `error`, whose message mentions every part."""
    with pytest.raises(error) as caught:
        yield caught
    mentions(str(caught.value), parts)


@contextmanager
def warns(category: type[Warning], *parts: object) -> Iterator[pytest.WarningsRecorder]:
    """Whatever is done inside warns by `category`, and its messages mention every part."""
    with pytest.warns(category) as caught:
        yield caught
    mentions("\n".join(str(one.message) for one in caught), parts)


def mentions(message: str, parts: Iterable[object]) -> None:
    assert [part for part in parts if str(part) not in message] == [], message
