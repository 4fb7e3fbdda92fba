"""Measures the gain from a memory: the same weights are validated with memories of other lengths.

    python benchmarks/memory.py RUN [--data DIR] [--rows 0,64,128,256] [--json]

RUN is a Transformer-XL or an XLNet that `regard train` trained with a memory; its validation is
repeated over the whole valid split, and only the length of the memory changes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROWS = (0, 64, 128, 256)


def measured(run: Path, rows: int, data: str = "") -> dict[str, Any]:
    """Returns the figures of a run's validation with a memory of `rows` tokens."""
    import torch

    from regard.api import load
    from regard.objectives.recurrent import configured
    from regard.training import recipe as recipes
    from regard.training.data import TextData
    from regard.training.parallel import ProcessGroup
    from regard.training.run import RECIPE, settings
    from regard.training.train_module import TrainModule, validate

    recipe = recipes.read_resolved(run / RECIPE)
    recipe = recipes.replaced(recipe, data=data or recipe.data)
    objective = TextData().validation(recipe)
    model = load(run).model
    if objective is None or not objective.recurrent or not hasattr(model, "limits"):
        raise SystemExit(
            f"{run} was trained with {recipe.objective['name']!r} and {recipe.model}; give a run "
            "of transformer-xl or xlnet that has a memory and validation text"
        )
    device = torch.device("cpu")
    with settings(device), configured(model, {"mem_len": rows}):
        learner = TrainModule(model, objective)
        figures, _ = validate(learner, objective, ProcessGroup(), device, recipe.engine.precision)
    return {"memory": rows, **figures}


def own(run: Path) -> int:
    """Returns the memory length of a run."""
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    return int(facts["model"]["config"]["mem_len"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", default="", help="prepared text, if it is no longer in its place")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)), help="lengths, with commas")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (options.run / "run.json").is_file():
        parser.error(f"{options.run} has no run.json; give the directory of a finished run")
    rows = [measured(options.run, int(n), options.data) for n in options.rows.split(",")]
    if options.cell:
        options.cell.write_text(json.dumps(rows[0]), encoding="utf-8")
    elif options.json:
        print(json.dumps(rows, indent=1))
    else:
        print(f"{options.run} remembers {own(options.run)} rows", file=sys.stderr)
        for row in rows:
            print(", ".join(f"{name} {value:.6g}" for name, value in row.items()))


if __name__ == "__main__":
    main()
