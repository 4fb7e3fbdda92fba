"""Measures one cell of a comparison in its own process: python -m regard.lab.compare.worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from regard.lab.compare.comparison import DATA, RUNS, again
from regard.lab.compare.measures import Extent, measure


def main() -> None:
    out, name = Path(sys.argv[1]), sys.argv[2]
    plan = again(out)
    extent = Extent(blanks=plan.blanks, pairs=plan.pairs, prompts=plan.prompts)
    found = measure(out / RUNS / name, out / DATA, extent)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
