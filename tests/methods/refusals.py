"""Refusals by the class of the error and by what it names, not by the words of its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refuses(error: type[BaseException], *names: object) -> Iterator[None]:
    """What is done inside raises this error, whose message has every one of these names."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert [name for name in names if str(name) not in message] == [], message
