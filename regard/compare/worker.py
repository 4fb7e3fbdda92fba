"""Measures one cell of a comparison in a process of its own: python -m regard.compare.worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from regard.compare.comparison import DATA, RUNS, again
from regard.compare.measures import Extent, measure


def main() -> None:
    out, name = Path(sys.argv[1]), sys.argv[2]
    plan = again(out)
    extent = Extent(blanks=plan.blanks, pairs=plan.pairs, prompts=plan.prompts)
    found = measure(out / RUNS / name, out / DATA, extent)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
