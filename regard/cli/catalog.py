"""The commands `regard models`, `info`, `convert` and `recipes`, which list what there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from regard.cli import doctor
from regard.cli.options import Command
from regard.cli.output import columns, fitted
from regard.core.errors import InputError, StorageError, UnknownName
from regard.core.options import DOWNLOAD, Argument, Option
from regard.core.tables import Table

RECIPES = Path(__file__).parent.parent / "recipes"


def models(
    *,
    family: Annotated[
        str | None, Option("List only this family, such as gpt.", metavar="NAME")
    ] = None,
    exports: Annotated[
        bool, Option("Show which models 'regard export' can write for which runtimes.")
    ] = False,
) -> Table:
    """List every published size: paper, year, exact number of parameters, context.

    --exports shows instead what the exports of small models of every kind came to, as measured.

    \b
    Examples:
      regard models
      regard models --family t5
      regard models --exports
      regard models --json
    """
    if exports:
        from regard.exports.matrix import measured

        if family is not None:
            raise InputError("--exports shows all models; leave out --family")
        return {"exports": measured()}
    from regard.models import FAMILIES

    if family is not None and family not in FAMILIES:
        raise UnknownName("family", family, FAMILIES)
    return {"models": catalogue([family] if family else list(FAMILIES))}


def catalogue(families: list[str]) -> list[Table]:
    """Returns a row for each published size of these families."""
    from regard.models import FAMILIES, count_parameters

    return [
        {
            "name": name,
            "family": family,
            "paper": FAMILIES[family].source(name)[0],
            "year": FAMILIES[family].source(name)[1],
            "parameters": count_parameters(name),
            "context": getattr(config, "context", None),
        }
        for family in families
        for name, config in FAMILIES[family].sizes.items()
    ]


def model_lines(result: Table) -> Iterator[str]:
    """Yields one line per size, or the matrix of exports."""
    if "exports" in result:
        yield from matrix_lines(result["exports"])
        return
    rows = [("name", "parameters", "context", "year", "paper")]
    for row in result["models"]:
        context = f"{row['context']:,}" if row["context"] else "any"
        numbers = (f"{row['parameters']:,}", context, str(row["year"]))
        rows.append((row["name"], *numbers, row["paper"]))
    yield from map(fitted, columns(rows, "<>><<"))


def matrix_lines(matrix: Table) -> Iterator[str]:
    """Yields a line for each model: the precisions that each target holds, or a dash."""
    cells = matrix["cells"]
    targets = list(dict.fromkeys(cell["to"] for cell in cells))
    rows = [("model", *targets)]
    for model in dict.fromkeys(cell["model"] for cell in cells):
        equal = [cell for cell in cells if cell["model"] == model and cell["equal"]]
        holds = (", ".join(c["precision"] for c in equal if c["to"] == name) for name in targets)
        rows.append((model, *(names or "–" for names in holds)))
    yield from columns(rows, "<" * len(rows[0]))


def info(
    path: Annotated[str, Argument("PATH", "A model, a run, or prepared text.")],
    *,
    verify: Annotated[
        bool, Option("Read every file, and name those that differ, are missing or are extra.")
    ] = False,
    download: Annotated[bool, DOWNLOAD] = False,
) -> Table:
    """Show what a directory holds, and of a model whether transformers opens it.

    --verify compares a run with its manifest, its checkpoints with their markers, and prepared text
    with its checksums.

    \b
    Examples:
      regard info ./my-model
      regard info ./my-run --verify
      regard info --json ./my-model
      regard info --download google-bert/bert-base-uncased
    """
    checked = {"verified": verified(Path(path))} if verify else {}
    if not Path(path, "config.json").is_file() and Path(path, "data.json").is_file():
        from regard.data.corpus import read_marker

        facts = read_marker(Path(path))
        splits = {
            name: {key: value for key, value in split.items() if key != "checksums"}
            for name, split in facts["splits"].items()
        }
        return {"path": path, **facts, "splits": splits, **checked}
    from regard.formats.directory import describe

    return describe(path, download=download) | checked


def verified(directory: Path) -> Table:
    """What was compared; files that differ or are missing are refused by name."""
    from regard.core.atomic_dir import compare_with_manifest
    from regard.data.corpus import MARKER, damaged_files
    from regard.training.checkpoint import Checkpoints, SavedCheckpoint

    wrong: list[str] = []
    compared: Table = {}
    if (names := compare_with_manifest(directory)) is not None:
        compared["manifest"] = f"{names['files']:,} files"
        compared["extra"] = names["extra"]
        wrong += [f"{name} differs" for name in names["differs"]]
        wrong += [f"{name} is missing" for name in names["missing"]]
    if (directory / MARKER).is_file():
        damaged = damaged_files(directory)
        compared["checksums"] = "none" if damaged is None else "compared"
        wrong += [f"{name} differs" for name in damaged or ()]
    for entry in Checkpoints(directory / "checkpoints").entries():
        try:
            SavedCheckpoint.open(entry)
            compared.setdefault("checkpoints", []).append(entry.name)
        except (StorageError, OSError) as error:
            wrong.append(str(error))
    if wrong:
        extra = [f"{name} is extra" for name in compared.get("extra", ())]
        raise StorageError(f"{directory} is damaged: {'; '.join([*wrong, *extra])}")
    if not compared:
        raise StorageError(
            f"{directory} has no manifest, no checkpoints and no checksums to compare it with; "
            "runs that have ended, and prepared text, have them"
        )
    return compared


def info_lines(facts: Table) -> Iterator[str]:
    """Yields the facts as lines, with readable sizes, and why transformers does not open it."""
    reason = facts.get("because")
    opens = f"no, because {reason}" if reason else facts.get("opens_in_transformers")
    files = {name: in_bytes(size) for name, size in facts.get("files", {}).items()}
    shown = {key: value for key, value in facts.items() if key != "because"}
    yield from in_words(shown | {"files": files, "opens_in_transformers": opens})


def in_bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, "TB"
    return f"{size:.3g} {unit}"


def in_words(facts: Table, indent: str = "") -> Iterator[str]:
    """Yields a dictionary as lines, one per entry. A nested dictionary is indented."""
    margin = max(map(len, facts), default=0) + 2
    for key, value in facts.items():
        name = key.replace("_", " ") if key.isidentifier() else key  # file names stay as they are
        if isinstance(value, dict) and value:
            yield f"{indent}{name}"
            yield from in_words(value, indent + "  ")
        elif isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
            yield f"{indent}{name}"
            for item in value:
                cells = item.values() if isinstance(item, dict) else [item]
                yield f"{indent}  {'  '.join(in_word(cell) for cell in cells)}"
        else:
            yield f"{indent}{name:<{margin}}{in_word(value)}"


def in_word(value: Any) -> str:
    match value:
        case None | [] | () | {}:
            return "none"
        case True:
            return "yes"
        case False:
            return "no"
        case int():
            return f"{value:,}"
        case list() | tuple():
            return ", ".join(in_word(item) for item in value)
        case _:
            return str(value)


def convert(
    path: Annotated[Path, Argument("PATH", "A model directory, or one of peft with --merge.")],
    *,
    merge: Annotated[
        bool, Option("Add the LoRA adapters to the weights, and write the plain model to --out.")
    ] = False,
    out: Annotated[Path | None, Option("The directory of the merged model.", metavar="DIR")] = None,
    base: Annotated[
        str | None,
        Option("The model that the adapters of peft belong to.", metavar="MODEL",
               default="the one that they name"),
    ] = None,
) -> Table:  # fmt: skip
    """Convert a directory's pickled weights (pytorch_model.bin) to safetensors, or, with --merge, a
    model with LoRA adapters to a plain one.

    Only weights are read, nothing in a file is executed, and what is converted stays.

    \b
    Examples:
      regard convert ./old-model
      regard convert reviewer --merge --out reviewer-merged
    """
    if merge != (out is not None) or (base is not None and not merge):
        raise InputError("--merge and --out DIR belong together, and --base is for them; the "
                         "conversion of pickled weights needs none of them")  # fmt: skip
    if out is not None:
        from regard.formats.adapter import merge_directory

        return {"written": str(merge_directory(path, out, base))}
    from regard.formats import legacy

    return {"written": str(legacy.convert(path))}


def recipes(
    name: Annotated[
        str | None,
        Argument("[NAME]", "Show this recipe; with --keys only keys whose line holds this word."),
    ] = None,
    *,
    keys: Annotated[bool, Option("List the keys that KEY=VALUE and a recipe file set.")] = False,
) -> Table:
    """List the built-in recipes, each with its paper, or show one; with --keys list the keys.

    A recipe is a starting point: options on the command line override its values.

    \b
    Examples:
      regard recipes
      regard recipes --keys
      regard recipes --keys dropout
      regard recipes bert-ner > mine.toml
      regard finetune my-bert --config bert-ner --data train.conll --out tagger
      regard finetune my-bert --config mine.toml --data train.conll --out tagger --batch-size 8
    """
    if keys:
        from regard.training.keys import matching

        rows = matching(name or "")
        if not rows:
            raise InputError(
                f"no key of a recipe holds {name!r}; 'regard recipes --keys' lists all"
            )
        return {"keys": rows}
    from regard.training.recipe import find

    if name is not None:
        return {"name": name, "recipe": find(name).read_text(encoding="utf-8")}
    texts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(RECIPES.glob("*.toml"))}
    first = {stem: text.partition("\n")[0].removeprefix("# ") for stem, text in texts.items()}
    return {"recipes": [{"name": stem, "about": about} for stem, about in first.items()]}


def recipe_lines(result: Table) -> Iterator[str]:
    if "keys" in result:
        for row in result["keys"]:
            default = f"[{row['default']}]" if row["default"] else ""
            option = f"({row['option']})" if row["option"] else ""
            yield " ".join(filter(None, (f"{row['key']:<28}", row["about"], default, option)))
    elif "recipe" in result:
        yield result["recipe"].removesuffix("\n")
    else:
        rows = [(row["name"], row["about"]) for row in result["recipes"]]
        yield from map(fitted, columns(rows, "<<"))


def push(
    run: Annotated[Path, Argument("RUN", "A run or a model directory.")],
    name: Annotated[str, Argument("NAME", "The name on the hub, such as me/my-gpt.")],
    *,
    dry_run: Annotated[bool, Option("Show what would be sent; send nothing.")] = False,
    public: Annotated[
        bool, Option("Let everyone see a model that is new on the hub; else it is private.")
    ] = False,
    include: Annotated[
        Sequence[str],
        Option("Send these files of RUN, too, such as 'checkpoints/**'; may be repeated.",
               metavar="PATTERN"),
    ] = (),
    revision: Annotated[
        str | None, Option("The branch to send to.", metavar="NAME", default="main")
    ] = None,
    message: Annotated[str, Option("The message of the commit.", metavar="TEXT")] = "",
) -> Table:  # fmt: skip
    """Send a model to the Hugging Face Hub: its weights, configuration, tokenizer and card.

    Nothing else of RUN is sent unless --include names it, and no other command sends anything.

    \b
    Examples:
      regard push my-gpt me/my-gpt --dry-run
      regard push my-gpt me/my-gpt
      regard push my-gpt me/my-gpt --include 'checkpoints/**' --revision with-checkpoints
    """
    from regard.formats.hub import push as send

    return send(
        run, name, dry_run=dry_run, public=public, include=include, revision=revision,
        message=message,
    )  # fmt: skip


def push_lines(result: Table) -> Iterator[str]:
    rows = [(row["file"], f"{row['bytes']:,}") for row in result["files"]]
    yield from columns([("file", "bytes"), *rows, ("all", f"{result['bytes']:,}")], "<>")
    yield from (f"note: {note}" for note in result["notes"])
    if result["dry_run"]:
        yield f"nothing was sent; without --dry-run it goes to {result['name']}"
    else:
        yield f"sent to {result['url']}"


COMMANDS = {
    "models": Command(models, model_lines),
    "info": Command(info, info_lines),
    "convert": Command(convert, lambda result: iter([result["written"]]), opens=True),
    "recipes": Command(recipes, recipe_lines),
    "push": Command(push, push_lines),
    "doctor": doctor.COMMAND,
}
