"""Checks options before a model predicts anything, so that an hour of predictions is not lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from regard.core.errors import ConfigError, InputError, StorageError
from regard.core.options import option_of
from regard.metrics.answers import tongue
from regard.metrics.base import TaskMetric

OF = {
    "strict": "for entities",
    "language": "for answers that are written",
    "length": "for language models",
    "split": "for prepared text",
    **dict.fromkeys(("max_new_tokens", "num_beams"), "for answers that are written"),
    **dict.fromkeys(("score", "neutral", "blank"), "for answers to choose from"),
}
LANGUAGES = frozenset(  # the codes of ISO 639-1
    """aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy
    da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy
    hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li
    ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa
    pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th
    ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu""".split()
)


def check_language(language: str) -> None:
    """Refuses an unknown code: with it, Chinese would silently be measured as English."""
    if language and tongue(language) not in LANGUAGES:
        raise ConfigError(
            f"the language is {language!r}, which is not a code of ISO 639-1; give one such as en, "
            "de or zh, or leave it out: then the letters of the texts decide"
        )


def check_used(plan: Any, used: dict[str, bool], what: str) -> None:
    """Refuses an option that would be ignored: it must have its default value."""
    for name, matters in used.items():
        if not matters and getattr(plan, name) != getattr(type(plan), name):
            option = option_of(type(plan), name)
            raise ConfigError(
                f"{option} has no effect in a test of {what}; it is {OF[name]}: leave it out"
            )


def check_measures(metric: type[TaskMetric], what: str, language: str = "") -> None:
    """Checks that the libraries of the metric are installed. They are not imported here: that takes
    a second, in which the model can run (`meanwhile`)."""
    for library in metric.libraries:
        name = library.partition(".")[0]
        if find_spec(name) is None:
            raise InputError(
                f"answers to {what} are measured by the library {name!r}, which is not installed; "
                "install it with: pip install 'regard[tasks]'"
            )
    metric.check_language(language)


@contextmanager
def meanwhile(metric: type[TaskMetric]) -> Iterator[None]:
    """Imports the libraries of the metric in a thread while the model runs. A failed import is
    reported later, by the code that needs the library."""

    def bring() -> None:
        for library in metric.libraries:
            with suppress(ImportError):
                import_module(library)

    worker = Thread(target=bring, name="regard-import", daemon=True)
    worker.start()
    try:
        yield
    finally:
        worker.join()


def check_place(out: Path) -> None:
    """Refuses a directory that cannot be written. It creates nothing."""
    whole = out.absolute()
    there = next(place for place in (whole, *whole.parents) if os.path.lexists(place))
    if not there.is_dir():
        raise StorageError(f"{there} is a file; give --out a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StorageError(f"{there} cannot be written to; give --out another place")
