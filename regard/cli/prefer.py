"""`regard prefer`: a model learns which replies people prefer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.check import chosen
from regard.cli.finetune import said
from regard.cli.reading import Download, Field, Format, Header, Skip
from regard.cli.resuming import check_resume
from regard.core.errors import ConfigError


def register(app: typer.Typer) -> None:
    app.command(short_help="Tune a model by what people prefer.")(prefer)


def prefer(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A run or a model directory; with --resume the run to go on with."
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE…", help="Changes of the recipe.", show_default=False),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="dpo, ipo, reward or grpo.", show_default="dpo"),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Records with prompt, chosen and rejected: jsonl, csv, tsv, or hub:NAME; for grpo "
            "prompts alone will do.",
        ),
    ] = None,
    valid: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Pairs to validate with; else a tenth of the data."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The directory of the run.")
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|RULE",
            help="grpo: a reward model's run, or contains:WORD, share:WORD, length, length:N, "
            "distinct.",
        ),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(help="How firmly the start holds: dpo and ipo 0.1, grpo 0.04 unless given."),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(help="grpo: KL a token beyond which the leash pulls harder."),
    ] = None,
    group: Annotated[int | None, typer.Option(help="grpo: replies to each prompt (8).")] = None,
    tokens: Annotated[int | None, typer.Option(help="grpo: of a reply, at most (32).")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps, instead of passes.")] = None,
    rate: Annotated[float | None, typer.Option(help="The highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides every random choice.")] = None,
    skip: Skip = None,
    field: Field = None,
    form: Format = None,
    header: Header = None,
    download: Download = False,
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
    """Tune a model that writes (gpt, transformer-xl, lstm, longformer-characters) by what people
    prefer; --method reward makes a model that scores replies instead (gpt).

    A prompt is a text, or a list of turns; what learned dialogues reads a text as a turn. RUN is a
    model like any other, for 'regard generate' and 'regard chat'. grpo writes replies and follows
    their reward: look at 'kl', which says how far it has gone from the start, and at what it
    writes, for a reward that can be cheated will be.

    \b
    Examples:
      regard check pairs.jsonl --task prefer --model talker
      regard prefer talker --data pairs.jsonl --out polite
      regard prefer talker --data pairs.jsonl --method ipo --beta 0.2 --out polite
      regard prefer talker --data pairs.jsonl --out polite objective.smoothing=0.1
      regard prefer talker --data pairs.jsonl --method reward --out judge
      regard prefer talker --data prompts.txt --method grpo --reward judge --out better
      regard prefer talker --data prompts.txt --method grpo --reward contains:thanks --out thankful
      regard prefer --resume better
    """
    from regard.training import recipe as recipes

    asked = {"beta": beta, "reward": reward, "limit": limit, "group": group, "tokens": tokens}
    changes = recipes.overrides(settings or [])
    if resume:
        given = asked | {
            "method": method, "data": data, "valid": valid, "out": out, "epochs": epochs,
            "rate": rate, "seed": seed, "skip": skip, "field": field, "format": form,
            "header": header is not None, "download": download,
        }  # fmt: skip
        check_resume(given, changes)
    method = method or "dpo"
    check_options(method, asked)
    options = said({
        "examples": said({
            "valid": valid, "skip": skip, "fields": chosen(field or []), "form": form,
            "header": None if header is None else ("no", "yes")[header],
            "download": download or None,
        }),
        "objective": said(asked),
        "budget": said({"epochs": epochs, "steps": steps}),
        "optimizer": said({"rate": rate}),
    })  # fmt: skip
    named = said({"seed": seed, "data": data, "model": None if resume else model})
    from regard.methods.preference.run import prefer as run
    from regard.methods.preference.run import recipe_for

    if resume:
        made, place = recipes.make(options, changes), Path(model)
    else:
        made, place = recipe_for(method, options, changes, named), checked(data, out)
    if dry:
        show_plan(made, resume, as_json)
        return
    found = run(made, place, resume=resume, display="silent" if quiet else "auto")
    if as_json and found["first"]:
        print(json.dumps(found, indent=2, default=str))
    if found["outcome"] == "interrupted":
        raise typer.Exit(130)


def check_options(method: str, asked: dict[str, Any]) -> None:
    """Refuses what the method has no use for, rather than to leave it aside."""
    for name, value in asked.items():
        known = method in ("dpo", "ipo", "grpo") if name == "beta" else method == "grpo"
        if value is not None and not known:
            raise ConfigError(f"--{name} is {value}, which --method {method} does not use")


def checked(data: str | None, out: Path | None) -> Path:
    """The run's directory, once it is clear what is asked for."""
    if not data:
        raise ConfigError("--data is missing; give a file with prompt, chosen and rejected")
    if out is None:
        raise ConfigError("--out is missing; give the directory that the run shall write")
    return out


def show_plan(made: Any, resume: bool, as_json: bool) -> None:
    from regard.cli.train import show_plan as show
    from regard.methods.preference.run import check

    if resume:
        raise ConfigError("--dry-run is for a new run; recipe.toml shows that of this one")
    check(made)
    show(made, as_json)
