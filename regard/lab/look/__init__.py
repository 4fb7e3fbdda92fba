"""`regard look`: one page that shows the attention of a model on a text.

recorded = look(regard.load("my-run"), "the cat sat on the mat")
recorded.sides[0].stacks[0].layers[2].weights(0)   # [rows, columns] of one head
recorded.save("cat.html")                          # a page that needs no other file
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.lab.look.recorded import Recorded, look

__all__ = ["Recorded", "look"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'regard.lab.look' has no attribute {name!r}")
    value = getattr(import_module("regard.lab.look.recorded"), name)
    globals()[name] = value
    return value
