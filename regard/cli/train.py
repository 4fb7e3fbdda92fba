"""`regard train`: from prepared text to a model, by a recipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.resuming import check_resume
from regard.core.errors import ConfigError

PATIENCE = 20.0  # seconds of a step that a dry run still measures


def register(app: typer.Typer) -> None:
    app.command(short_help="Train a model on prepared text.")(train)


def train(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A family (gpt), a published size (gpt2), or a model directory to go on with; "
            "with --resume the run.",
        ),
    ],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="What 'regard prepare' made.", show_default=False)
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE…", help="Changes of the recipe.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The directory of the run.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A recipe in TOML, or the name of one (regard recipes)."),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="tiny, small or medium instead of the published shape.")
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="Another objective than that of the model's paper.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in steps.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Budget in tokens.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Budget in minutes (10).")] = None,
    epochs: Annotated[float | None, typer.Option(help="Budget in passes over the text.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides every random choice.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="MODEL is a run: go on as if it had never stopped.")
    ] = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved recipe and what it would cost.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing on the way.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end.")
    ] = False,
) -> None:
    """Train a model on prepared text, with its paper's own objective.

    Everything that decides a run is its recipe: a TOML file, or KEY=VALUE after the data. Ctrl-C
    saves and ends; --resume goes on, bit for bit.

    \b
    Examples:
      regard prepare builtin:python-docs --out docs
      regard train gpt docs --out my-gpt --size small --minutes 10
      regard train bert docs --out my-bert --size tiny batch.length=128 optimizer.rate=5e-4
      regard train my-gpt other-text --out my-gpt-2 --epochs 3
      regard train --resume my-gpt
      torchrun --nproc-per-node 2 -m regard train gpt docs --out my-gpt engine.parallel=fsdp
    """
    from regard.training import recipe as recipes

    words = list(settings or [])
    if data and "=" in data and not Path(data).exists():
        words, data = [data, *words], ""
    given = recipes.overrides(words)
    if resume:
        check_resume(
            {"out": out, "recipe": recipe, "size": size, "objective": objective, "tokens": tokens,
             "minutes": minutes, "epochs": epochs, "seed": seed},
            given | ({"data": data} if data else {}),
        )  # fmt: skip
    budget = {"steps": steps, "tokens": tokens, "minutes": minutes, "epochs": epochs}
    for key, value in budget.items():
        if value is not None:
            given.setdefault("budget", {})[key] = value
    named: dict[str, Any] = {"size": size, "seed": seed}
    given |= {key: value for key, value in named.items() if value is not None}
    if objective is not None:
        given.setdefault("objective", {})["name"] = objective
    if not resume:
        given |= {"model": model} | ({"data": data} if data else {})
    base = recipes.read(recipes.find(recipe)) if recipe else {}
    if "budget" in given:
        base.pop("budget", None)  # steps in place of its epochs, not beside them
    made = recipes.make(base, given)
    place = check(made, model, out, resume)
    if dry and resume:
        raise ConfigError(f"--dry-run is for a new run; {place}/recipe.toml shows that of this one")
    if dry:
        show_plan(made, as_json)
        return
    from regard.methods.runs import run

    found = run(made, place, resume=resume, display="silent" if quiet else "auto")
    if as_json and found["first"]:
        import json

        print(json.dumps(found, indent=2, default=str))
    if found["outcome"] == "interrupted":
        raise typer.Exit(130)


def check(made: Any, model: str, out: Path | None, resume: bool) -> Path:
    """The run's directory, once it is clear what is asked for."""
    if resume:
        return Path(model)
    if not made.data:
        raise ConfigError("DATA is missing; give what 'regard prepare' made, after MODEL")
    if out is None:
        raise ConfigError("--out is missing; give the directory that the run shall write")
    return out


def show_plan(made: Any, as_json: bool) -> None:
    """The resolved recipe and the estimates; nothing is written."""
    import json

    from regard.methods.runs import data_for
    from regard.training.parallel import Group
    from regard.training.plan import prepare
    from regard.training.recipe import dump
    from regard.training.run import pick_device, settings

    device = pick_device(made.engine.device)
    with settings(device):
        plan = prepare(made, Group(), device, say, data=data_for(made), patience=PATIENCE)
    plan.batches.close()
    if as_json:
        print(json.dumps({"recipe": plan.recipe.table(), **plan.facts}, indent=2, default=str))
    else:
        print(dump(plan.recipe))
        print(f"# {plan.facts['model']['parameters']:,} parameters")
        print(f"# about {plan.facts['memory_needed'] / 1e9:.2f} GB of memory")


def say(text: str) -> None:
    print(text, file=sys.stderr)
