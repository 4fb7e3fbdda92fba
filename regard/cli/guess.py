"""What is answered to people who guess: options of other libraries, words in another order."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from glob import has_magic
from importlib import import_module
from pathlib import Path

from regard.core.errors import InputError, UnknownName
from regard.core.foreign import instead, key_for, ours, plain
from regard.core.foreign_options import ARGUMENTS, INSTEAD

NEAR = 0.75  # of an option's letters: a word that is less like it means something else


def unknown_option(
    word: str, known: Collection[str], words: Collection[str], command: str = ""
) -> UnknownName:
    """What an option that a command does not have is called here, or what to do instead.

    `known` are the options of the command, `words` what its usage line calls the words that stand
    without one.
    """
    bare = plain(word)
    hint = INSTEAD.get(f"{command.partition(' ')[0]}:{bare}", "")
    if not hint and ours(word, known):
        return UnknownName("option", word, known)
    key, remark = key_for(word) if any("KEY=VALUE" in name for name in words) else ("", "")
    places = [name for name in ARGUMENTS.get(bare, "").split()
              if any(name == one.strip("[]…") for one in words)]  # fmt: skip
    if places and not hint:
        usage = " ".join(["regard", command, *words])
        hint = f"give it as {places[0]}, without an option: {usage}"
    elif key and not hint:
        return UnknownName("option", word, (), remark, meant=key)
    others = commands_with(f"--{word.lstrip('-').replace('_', '-')}")
    near = difflib.get_close_matches(word, known, 1, NEAR)
    hint = hint or instead(word) or ("" if not near else f"did you mean {near[0]!r}?")
    if others and not hint:
        hint = f"it is an option of {', '.join(others[:4])}"
    return UnknownName("option", word, (), hint=hint or f"none of {len(known)} is near")


def commands_with(option: str) -> list[str]:
    """The commands that have an option of this name."""
    from regard.cli.main import GROUPS

    names = []
    for module, commands in GROUPS.values():
        for name in commands:
            command = import_module(f"regard.cli.{module}").COMMANDS[name]
            if not isinstance(command, tuple) and option in command.option_names:
                names.append(f"'regard {name}'")
    return names


# -- words in another order, or of another kind


def is_data(word: str) -> bool:
    """A file, or what 'regard prepare' made."""
    return Path(word).is_file() or Path(word, "data.json").is_file()


def check_order(command: str, model: str, data: str = "", option: str = "") -> None:
    """Refuses data in the place of a model; `option` is how this command takes data."""
    if not model or not is_data(model) or Path(model, "config.json").is_file():
        return
    what = "a file" if Path(model).is_file() else "prepared data"
    message = f"MODEL is {model}, which is {what}"
    if option:
        raise InputError(f"{message}; write: regard {command} MODEL {option} {model}")
    other = data if data and not is_data(data) else "MODEL"
    raise InputError(f"{message}; the model comes first: regard {command} {other} {model}")


def check_there(what: str, *names: str | Path) -> None:
    """Refuses files that are missing, before anything heavy is imported. Parallel files are
    written with a comma between them."""
    for name in map(str, names):
        if ":" in name or name == "-" or has_magic(name) or Path(name).exists():
            continue
        missing = [part for part in name.split(",") if not Path(part).exists()]
        if missing:
            raise InputError(
                f"{what} is {name}, and there is no file or directory {missing[0]}; "
                "give one that exists"
            )


def check_asked(command: str, model: str, texts: Sequence[str], file: Path | None) -> None:
    """Refuses data in the place of a model, and the name of a file where a text is read."""
    check_order(command, model, option="--file")
    if not texts:
        check_there("--file", *filter(None, [file]))
    for text in texts:
        if text != "-" and len(text) < 256 and "\n" not in text and Path(text).is_file():
            raise InputError(
                f"{text} is a file, and {command} reads the words of the command line as texts; "
                f"write --file {text} to read it, or put a space before it if the name is the text"
            )
