"""Variants of labelled examples, whose labels stay.

| file | what |
| --- | --- |
| words.py | a text as its words and what stands between them |
| eda.py | synonyms, insertion, swap, deletion (Wei & Zou 2019) |
| thesaurus.py | WordNet's own files, or a list of synonyms |
| masked.py | words that a masked model would put in their place |
| back.py | into another language and back again |
| examples.py | which texts of an example may change |
| kept.py | answers and tags, where the words around them change |
| clean.py | texts reduced to small letters, as in the code of Wei & Zou |
| processes.py | many examples, by one process or by several |
| files.py | what `regard augment` reads and writes |
| learning.py | variants made anew in every epoch of a fine-tuning |

>>> augmenter = Settings(("swap", "delete"), share=0.1, copies=4, seed=1).build()
>>> augmenter.variants([Labelled("a very moving film", label="good")])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.augment.examples import Augmenter, Settings
    from regard.augment.processes import augmented
    from regard.augment.thesaurus import Thesaurus, open_thesaurus

__all__ = ["Augmenter", "Settings", "Thesaurus", "augmented", "open_thesaurus"]

HOMES = {
    "Augmenter": "examples",
    "Settings": "examples",
    "augmented": "processes",
    "Thesaurus": "thesaurus",
    "open_thesaurus": "thesaurus",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'regard.augment' has no attribute {name!r}")
    return getattr(import_module(f"regard.augment.{HOMES[name]}"), name)
