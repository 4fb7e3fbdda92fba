"""What a look page shows besides attention: lens, ablation, patching and attribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.formats.directory import Checkpoint
from regard.lab.deeper.ablate import Ablation, AblationTable, ablate
from regard.lab.deeper.attribute import Attribution, attribute
from regard.lab.deeper.lens import Lens, lens
from regard.lab.deeper.patch import Patching, patch
from regard.lab.deeper.question import Text
from regard.lab.look.reading import LookOptions


@dataclass(frozen=True)
class DeeperOptions:
    """Which of them are computed, and for which token at which position."""

    lens: bool = False
    ablate: str | Sequence[str] = ()  # "all", or heads ("3.2", "cross.3.2") and layers ("3")
    method: str = "zero"
    patch: Text | None = None  # the corrupted text
    attribute: bool = False
    token: int | str | None = None
    position: int | None = None

    @property
    def anything(self) -> bool:
        return bool(self.lens or self.ablate or self.attribute or self.patch is not None)


@dataclass(frozen=True)
class DeeperLook:
    """The results of one side of a page; None was not computed."""

    lens: Lens | None = None
    ablate: Ablation | AblationTable | None = None
    patch: Patching | None = None
    attribute: Attribution | None = None

    def facts(self) -> dict[str, Any]:
        return {name: result.facts() for name, result in vars(self).items() if result is not None}


def look_deeper(
    loaded: Checkpoint, text: Text, look: LookOptions, options: DeeperOptions
) -> DeeperLook:
    if not options.anything:
        return DeeperLook()
    read = vars(look)
    row: dict[str, Any] = {"token": options.token, "position": options.position}
    ablated: Ablation | AblationTable | None = None
    if options.ablate == "all":
        ablated = ablate(loaded, text, heads="all", method=options.method, **row, **read)
    elif options.ablate:
        chosen = options.ablate
        places = chosen.split(",") if isinstance(chosen, str) else list(chosen)
        heads = [place for place in places if numbers(place) > 1]
        layers = [place for place in places if numbers(place) <= 1]
        ablated = ablate(
            loaded, text, heads=heads, layers=layers, method=options.method, **row, **read
        )
    return DeeperLook(
        lens(loaded, text, **read) if options.lens else None,
        ablated,
        None if options.patch is None else patch(loaded, text, options.patch, **row, **read),
        attribute(loaded, text, **row, **read) if options.attribute else None,
    )


def numbers(place: str) -> int:
    """Returns how many numbers a place has: "cross.3.2" has two, a layer has one."""
    return sum(part.isdecimal() for part in place.split("."))
