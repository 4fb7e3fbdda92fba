"""The same weights with memories of other lengths: what does a model gain by remembering?

    python benchmarks/memory.py RUN [--data DIR] [--rows 0,64,128,256] [--json]

RUN is a Transformer-XL or an XLNet that `regard train` made with a memory; its validation is
repeated over the whole valid split, with nothing changed but the number of rows remembered.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROWS = (0, 64, 128, 256)


def measured(run: Path, rows: int, data: str = "") -> dict[str, Any]:
    """The figures of a run's validation with so many rows remembered."""
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
            f"{run} has learned {recipe.objective['name']!r} with {recipe.model}; give a run of "
            "transformer-xl or xlnet that has a memory, and text to validate with"
        )
    device = torch.device("cpu")
    with settings(device), configured(model, {"mem_len": rows}):
        learner = TrainModule(model, objective)
        figures, _ = validate(learner, objective, ProcessGroup(), device, recipe.engine.precision)
    return {"memory": rows, **figures}


def own(run: Path) -> int:
    """How many rows a run itself remembers."""
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    return int(facts["model"]["config"]["mem_len"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", default="", help="prepared text, unless it is where it was")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)), help="numbers, with commas")
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
