"""`regard finetune`: a model learns a task from labelled examples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.check import chosen
from regard.cli.reading import Download, Field, Format, Header, Skip
from regard.cli.resuming import check_resume
from regard.core.errors import ConfigError


def register(app: typer.Typer) -> None:
    app.command(short_help="Teach a model a task from labelled examples.")(finetune)


def finetune(
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
    task: Annotated[
        str | None,
        typer.Option(
            help="classify, entail, similar, tag, answer, choose, translate, summarise, converse."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Examples: jsonl, csv, tsv, parquet, CoNLL, SQuAD, or hub:NAME; two texts whose "
            "lines belong together are written a.en,a.zh.",
        ),
    ] = None,
    valid: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Examples to validate with; else a tenth of the data."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The directory of the run.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A recipe in TOML, or the name of one that comes along."),
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the examples.")] = None,
    rate: Annotated[float | None, typer.Option(help="The highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides every random choice.")] = None,
    augment: Annotated[
        str,
        typer.Option(
            metavar="METHODS",
            help="Read half of the examples as variants, other ones in every epoch: some of "
            "synonyms,insert,swap,delete (regard augment).",
            show_default=False,
        ),
    ] = "",
    thesaurus: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="For --augment: a word and its synonyms in each line; else WordNet.",
            show_default=False,
        ),
    ] = None,
    skip: Skip = None,
    field: Field = None,
    form: Format = None,
    header: Header = None,
    download: Download = False,
    folds: Annotated[
        int,
        typer.Option(
            metavar="K",
            help="Cross-validation: K runs RUN/fold-1, …, each validated with another part of the "
            "data; RUN/folds.json has mean and deviation.",
            show_default=False,
        ),
    ] = 0,
    adapt: Annotated[
        str,
        typer.Option(
            metavar="AMOUNT",
            help="First go on with pre-training on the text of the examples (RUN/adapted), for so "
            "many epochs, or for so many steps: '500 steps'.",
            show_default=False,
        ),
    ] = "",
    unlabelled: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Examples without labels. A first model (RUN/first) labels those of which it is "
            "sure (RUN/pseudo.jsonl), and RUN learns from both. With --adapt they are text.",
            show_default=False,
        ),
    ] = "",
    confidence: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="How sure is sure (0.9); with --adapt it asks for labels at all.",
            show_default=False,
        ),
    ] = None,
    knowledge: Annotated[
        str,
        typer.Option(
            metavar="GRAPH",
            help="Triples that an encoder reads beside its text: a tsv file of subject, predicate, "
            "object. RUN keeps them.",
            show_default=False,
        ),
    ] = "",
    knowledge_mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="tree: what the graph says of a word hangs on it as branches (K-BERT); bias: "
            "attention is guided to related words.",
            show_default=False,
        ),
    ] = None,
    knowledge_branches: Annotated[
        int | None,
        typer.Option(metavar="N", help="Branches of one word, at most (2).", show_default=False),
    ] = None,
    knowledge_rule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="What guides attention: entity, related, relation:NAME, same-token, "
            "same-sentence, near:N, gaussian:WIDTH, kinds:number,word. May be given several times.",
            show_default=False,
        ),
    ] = None,
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
    """Teach a model a task from labelled examples, with its paper's input format and rates.

    RUN is the model that has learned it, whatever came before; with --folds RUN/fold-1, … are, and
    as each keeps its best validation their mean is a little too good.

    \b
    Examples:
      regard finetune my-bert --task classify --data reviews.jsonl --out reviewer
      regard finetune my-bert --task tag --data train.conll --valid dev.conll --out tagger
      regard finetune my-bert --recipe bert-ner --data train.conll --out tagger
      regard finetune my-bert --task classify --data news.csv --field text=body --out sorter
      regard finetune my-t5 --task translate --data train.en,train.zh --out translator
      regard finetune my-xlnet --task answer --data squad.json --out reader --epochs 2
      regard finetune my-bert --task classify --data few.csv --out crossed --folds 5
      regard finetune my-bert --task classify --data few.csv --unlabelled many.txt --out reviewer
      regard finetune my-bert --task classify --data few.csv --augment synonyms,delete --out kind
      regard finetune my-bert --task tag --data train.conll --adapt 3 --out tagger
      regard finetune my-bert --task tag --data train.conll --out tagger optimizer.frozen=6
      regard finetune my-bert --task tag --data train.conll --knowledge facts.tsv --out tagger
      regard finetune --resume reviewer
    """
    from regard.data.knowledge.options import asked, merged
    from regard.training import recipe as recipes

    changes = recipes.overrides(settings or [])
    if resume:
        check_resume(
            {"task": task, "data": data, "valid": valid, "out": out, "recipe": recipe,
             "epochs": epochs, "rate": rate, "seed": seed, "skip": skip, "field": field,
             "format": form, "header": header is not None, "download": download,
             "folds": folds or None, "adapt": adapt, "unlabelled": unlabelled,
             "confidence": confidence, "augment": augment, "thesaurus": thesaurus,
             "knowledge": knowledge, "knowledge-mode": knowledge_mode,
             "knowledge-branches": knowledge_branches, "knowledge-rule": knowledge_rule},
            changes,
        )  # fmt: skip
    told = asked(knowledge, knowledge_branches, knowledge_mode, knowledge_rule or [])
    options = said({
        "examples": said({
            "task": task, "valid": valid, "skip": skip, "fields": chosen(field or []),
            "form": form, "header": None if header is None else ("no", "yes")[header],
            "download": download or None,
        }),
        "budget": said({"epochs": epochs}),
        "optimizer": said({"rate": rate}),
        "augment": said({"methods": [name.strip() for name in augment.split(",") if name.strip()],
                         "thesaurus": thesaurus}),
        "objective": said({"knowledge": merged(told, changes)}),
    })  # fmt: skip
    named = said({"seed": seed, "data": data, "model": None if resume else model})
    base = recipes.read(recipes.find(recipe)) if recipe else {}
    if "budget" in options or "budget" in changes:
        base.pop("budget", None)  # steps in place of its epochs, not beside them
    made = recipes.make(base, options, changes, named)
    place = check(made, model, out, resume)
    check_augment(made)
    check_knowledge(made, resume)
    from regard.methods.finetune import multi_stage as staged

    stages = staged.asked(folds, adapt, unlabelled, confidence)
    if dry and resume:
        raise ConfigError(f"--dry-run is for a new run; {place}/recipe.toml shows that of this one")
    if dry:
        show_plan(made, place, stages, as_json)
        return
    from regard.methods.finetune.run import finetune as run

    display = "silent" if quiet else "auto"
    found = run(made, place, stages=stages, resume=resume, display=display)
    if found["first"]:
        show(found, as_json)
    if found["outcome"] == "interrupted":
        raise typer.Exit(130)


def said(table: dict[str, Any]) -> dict[str, Any]:
    """What was asked for at all."""
    return {key: value for key, value in table.items() if value not in (None, [], {})}


def show(found: dict[str, Any], as_json: bool) -> None:
    """A plain run has said by itself how it ended."""
    if as_json:
        import json

        print(json.dumps(found, indent=2, default=str))
    elif "figures" in found:
        from regard.methods.finetune.folds import table

        out = found["out"]
        print(table(found))
        told = f"the figures are in {out}/folds.json, the models in {out}/fold-1 and so on"
        print(told, file=sys.stderr)


def show_plan(made: Any, out: Path, stages: Any, as_json: bool) -> None:
    """The resolved recipe of the run, without what comes before it; nothing is written."""
    from regard.cli.train import show_plan as show_one
    from regard.methods.finetune.multi_stage import check_stages
    from regard.methods.finetune.run import as_text
    from regard.methods.finetune.run import check as check_model
    from regard.training.recipe import replaced

    check_model(made)
    check_stages(made, stages)
    if as_text(made):
        raise ConfigError(
            f"{made.model} learns {made.examples.task} as text, which has to be written before "
            "it can be planned; leave --dry-run out"
        )
    show_one(replaced(made, examples={"folds": stages.folds or None}), as_json)
    if as_json:
        return
    for line in stages.in_words(out):
        print(f"# {line}")


def check_augment(made: Any) -> None:
    """Refuses variants that cannot be made on the fly, and what is said of none."""
    if made.augment != type(made.augment)():
        from regard.methods.augment.learning import check as check_variants

        check_variants(made)


def check_knowledge(made: Any, resume: bool) -> None:
    """Refuses what is learned as text, where there are no rows to put knowledge into."""
    if resume or not made.objective.get("knowledge"):
        return
    from regard.methods.finetune.run import check as check_model
    from regard.tasks.knowledge import check_use
    from regard.training.build import family

    check_model(made)
    check_use(family(made), made.examples.task)


def check(made: Any, model: str, out: Path | None, resume: bool) -> Path:
    """The run's directory, once it is clear what is asked for."""
    if resume:
        return Path(model)
    if not made.examples.task:
        raise ConfigError("--task is missing; say what is to be learned, such as --task classify")
    if not made.data:
        raise ConfigError("--data is missing; give a file of labelled examples")
    if out is None:
        raise ConfigError("--out is missing; give the directory that the run shall write")
    return out
