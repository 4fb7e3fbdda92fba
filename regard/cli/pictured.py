"""What `look` and `draw` give in Python: their data, with the object that these are the data of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.lab.look import Recorded
    from regard.report.drawings import Picture


class PictureData(dict[str, Any]):
    """The data of a picture, with its lines for a terminal. In Python it shows, plots and saves
    itself as its `picture` does."""

    def __init__(self, numbers: Table, picture: Picture, lines: list[str]) -> None:
        super().__init__(numbers)
        self.picture, self.lines = picture, lines

    def plot(self, lang: str = "en") -> Figure:
        return self.picture.plot(lang)

    def save(self, out: Path | str, lang: str = "en") -> Path:
        return self.picture.save(out, lang)

    def _repr_html_(self) -> str:
        return self.picture._repr_html_()


class LookData(dict[str, Any]):
    """The facts of a page, with the `recorded` attention that it shows."""

    def __init__(self, facts: Table, recorded: Recorded) -> None:
        super().__init__(facts)
        self.recorded = recorded

    def _repr_html_(self) -> str:
        return self.recorded._repr_html_()
