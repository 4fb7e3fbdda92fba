"""Turns a function into a command: its parameters and dataclass fields become click options.

    def train(model: Annotated[str, Argument("MODEL", "…")], *,
              changes: Annotated[Table, Given(Recipe)], run: RunOptions) -> dict

Here `model` is an argument, `changes` is a table of the recipe keys that the user set, and `run`
is a dataclass with its own options. An option that is not set is left out, so that defaults stand
only in the dataclasses. Python calls the same function: `train("gpt", lr=1e-3)`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import click

from regard.cli.values import CommaSeparated, NamedValue, NearestChoice
from regard.core.errors import InputError, UnknownName
from regard.core.files import NAN_ALLOWED
from regard.core.options import ALLOW_NAN, Argument, Option, PartialOptions

YES_NO = ("yes", "no")
ASKED = "asked for"
OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
UNGROUPED = ("plan", "options", "run", "changes")  # parameters whose options need no heading
AskedFor = NewType("AskedFor", list[str])  # a parameter: the names of the options that are set


@dataclass(frozen=True)
class OptionSpec:
    """One option or one argument: its name, its type, and the field that its value goes to."""

    name: str  # the name of the value, such as "max_new_tokens"
    path: tuple[str, ...]  # the path to the field in the dataclass; () is the parameter itself
    kind: Any  # the annotation, without None
    default: Any
    about: Option | Argument
    group: str = "Options"  # its section in the help

    @property
    def is_flag(self) -> bool:
        return self.kind is bool or get_args(self.kind) == YES_NO

    @property
    def is_list(self) -> bool:
        origin = get_origin(self.kind)
        return inspect.isclass(origin) and issubclass(origin, Sequence | Mapping)

    def parameter(self) -> click.Parameter:
        if isinstance(self.about, Argument):
            optional = self.default is not MISSING
            return click.Argument(
                [self.name],
                type=self.click_type(),
                nargs=-1 if self.is_list else 1,
                required=not optional,
                metavar=self.about.metavar,
            )
        option = self.about
        main = option.name or as_option(self.name)
        needed = self.default is MISSING
        shared: dict[str, Any] = {"help": self.told()} | ({} if needed else {"default": None})
        if self.is_flag:
            unset = self.default is None or self.default is True
            off = option.off or f"--no-{main.removeprefix('--')}"
            names = f"{main}/{off}" if unset else main
            return click.Option([self.name, names], is_flag=True, **shared)
        return click.Option(
            [self.name, main, *(["-o"] if main == "--out" else [])],
            type=self.click_type(),
            multiple=self.is_list and not option.commas,
            metavar=option.metavar or None,
            required=needed,
            **shared,
        )

    def told(self) -> str:
        """Returns the help, with the default if it is informative."""
        assert isinstance(self.about, Option)
        shown = self.about.default
        if not shown and self.default not in (None, MISSING, "", False, [], (), {}, 0):
            shown = str("yes" if self.default is True else self.default)
        return f"{self.about.help}  [default: {shown}]" if shown else self.about.help

    def click_type(self) -> click.ParamType:
        kind = self.kind
        if get_origin(kind) is Literal:
            return NearestChoice(get_args(kind))
        if self.is_list:
            origin, inner = get_origin(kind), get_args(kind)[0]
            if issubclass(origin, Mapping):
                return NamedValue()
            if isinstance(self.about, Option) and self.about.commas:
                return CommaSeparated(inner)
            kind = inner
        types: dict[Any, click.ParamType] = {
            int: click.INT, float: click.FLOAT, str: click.STRING, Path: click.Path(path_type=Path),
        }  # fmt: skip
        return types[kind]

    def value(self, value: Any) -> Any:
        """Converts a value of click or Python to the value of the dataclass field."""
        if get_args(self.kind) == YES_NO and isinstance(value, bool):
            return "yes" if value else "no"
        if not self.is_list:
            return Path(value) if self.kind is Path else value
        if issubclass(get_origin(self.kind), Mapping):
            return value if isinstance(value, Mapping) else self.mapping(value)
        values = [value] if isinstance(value, str) else value
        return tuple(values) if get_origin(self.kind) is not list else list(values)

    def mapping(self, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
        table: dict[str, str] = {}
        for name, value in pairs:
            if name in table:
                raise InputError(
                    f"{as_option(self.name)} names the {name} twice: {table[name]} and {value}"
                )
            table[name] = value
        return table


# -- from a function to its options


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function, with the options from which its value is built."""

    name: str
    leaves: list[OptionSpec]
    build: Callable[[dict[str, Any]], Any]  # builds it from the values that are set, by name


@cache
def parameters(function: Callable[..., Any]) -> list[Parameter]:
    hints = get_type_hints(function, include_extras=True)
    known = []
    for name, parameter in inspect.signature(function).parameters.items():
        known.append(as_parameter(name, hints[name], parameter.default))
    return known


def as_parameter(name: str, hint: Any, default: Any) -> Parameter:
    default = MISSING if default is inspect.Parameter.empty else default
    kind, about = described(hint)
    if kind is AskedFor:
        return Parameter(name, [], lambda values: list(values[ASKED]))
    if isinstance(about, Option | Argument):
        leaf = OptionSpec(name_of(name, about), (), kind, default, about)

        def plain(values: dict[str, Any]) -> Any:
            return leaf.value(values[leaf.name]) if leaf.name in values else default

        return Parameter(name, [leaf], plain)
    if isinstance(about, PartialOptions):
        chosen = about
        leaves = [
            dataclasses.replace(
                leaf,
                group=group_of(name, leaf),
                default=None if leaf.default is MISSING else leaf.default,  # it may be left out
                about=with_default(leaf.about, chosen.defaults.get(leaf.name, "")),
            )
            for leaf in leaves_of(about.kind)
            if chosen.takes(".".join(leaf.path))
        ]
        return Parameter(name, leaves, lambda values: as_table(leaves, values))
    leaves = [dataclasses.replace(leaf, group=group_of(name, leaf)) for leaf in leaves_of(kind)]
    return Parameter(name, leaves, lambda values: built(kind, as_table(leaves, values)))


def with_default(about: Option | Argument, default: str) -> Option | Argument:
    """An option whose help says another default."""
    if not default or isinstance(about, Argument):
        return about
    return dataclasses.replace(about, default=default)


def group_of(parameter: str, leaf: OptionSpec) -> str:
    """Returns the help section of an option: the recipe's table, or the parameter's name."""
    if len(leaf.path) > 1:
        return leaf.path[0].title()
    return "Options" if parameter in UNGROUPED else parameter.title()


def described(hint: Any) -> tuple[Any, Any]:
    """Returns the type of an annotation without None, and its Option or Argument."""
    about = None
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        about = next(
            (one for one in extras if isinstance(one, Option | Argument | PartialOptions)), None
        )
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        hint = kinds[0] if len(kinds) == 1 else hint
    return hint, about


def name_of(field_name: str, about: Option | Argument) -> str:
    """Returns the name of an option's value, such as max_new_tokens."""
    option = about.name if isinstance(about, Option) else ""
    return option.removeprefix("--").replace("-", "_") or field_name


def as_option(name: str) -> str:
    """Returns the name as an option, such as --max-new-tokens."""
    return f"--{name.replace('_', '-')}"


def leaves_of(kind: type, path: tuple[str, ...] = ()) -> Iterator[OptionSpec]:
    """Yields the fields of a dataclass that are options, including those of nested dataclasses."""
    hints = get_type_hints(kind, include_extras=True)
    for each in dataclasses.fields(kind):
        inner, about = described(hints[each.name])
        place = (*path, each.name)
        if isinstance(about, Option):
            default = each.default
            if each.default_factory is not MISSING:
                default = each.default_factory()
            yield OptionSpec(name_of(each.name, about), place, inner, default, about)
        elif dataclasses.is_dataclass(inner):
            yield from leaves_of(inner, place)  # type: ignore[arg-type]


def as_table(leaves: list[OptionSpec], values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values that are set, by the names of the fields."""
    table: dict[str, Any] = {}
    for leaf in leaves:
        if leaf.name in values:
            inner = table
            for name in leaf.path[:-1]:
                inner = inner.setdefault(name, {})
            inner[leaf.path[-1]] = leaf.value(values[leaf.name])
    return table


def built(kind: Any, table: dict[str, Any]) -> Any:
    """Builds a dataclass, and its nested dataclasses, from a table."""
    hints = get_type_hints(kind)
    values = {
        name: built(hints[name], value) if dataclasses.is_dataclass(hints[name]) else value
        for name, value in table.items()
    }
    return kind(**values)


# -- commands


Lines = Callable[[dict[str, Any]], Iterator[str]]


def shown_result(result: dict[str, Any]) -> Any:
    """A table that shows itself in a notebook."""
    from regard.report.notebook import ShownTable

    return ShownTable(result)


@dataclass(frozen=True)
class Command:
    """A function that does the work, and how its result is shown."""

    function: Callable[..., Any]
    lines: Lines | None = None  # formats the result for people; None: the function prints it
    code: Callable[[dict[str, Any]], int] = field(default=lambda result: 0)
    after: Callable[[dict[str, Any]], str] = field(default=lambda result: "")  # the last line
    json: bool = True  # does it have the option --json?
    result: Callable[[dict[str, Any]], Any] = field(default=shown_result)  # what Python gets
    opens: bool = False  # does it open a model directory? Then it has the option --allow-nan.

    @property
    def name(self) -> str:
        return self.function.__name__.replace("_", "-")

    @property
    def leaves(self) -> dict[str, OptionSpec]:
        """The options by name. An option that several dataclasses share stands once."""
        leaves: dict[str, OptionSpec] = {}
        for parameter in parameters(self.function):
            for leaf in parameter.leaves:
                leaves.setdefault(leaf.name, leaf)
        if self.opens:
            leaves["allow_nan"] = OptionSpec("allow_nan", (), bool, False, ALLOW_NAN)
        return leaves

    @property
    def words(self) -> list[str]:
        """What the usage line calls the words that stand without an option."""
        abouts = [leaf.about for leaf in self.leaves.values()]
        return [about.metavar for about in abouts if isinstance(about, Argument)]

    @property
    def option_names(self) -> list[str]:
        leaves = self.leaves.items()
        return [as_option(name) for name, leaf in leaves if isinstance(leaf.about, Option)]

    def __call__(self, *words: Any, **options: Any) -> Any:
        """Runs the command from Python: arguments by position, options by name with underscores."""
        leaves = self.leaves
        order = [name for name, leaf in leaves.items() if isinstance(leaf.about, Argument)]
        if len(words) > len(order):
            raise InputError(
                f"{self.name} takes {', '.join(order)}; {len(words)} arguments were given"
            )
        values = dict(zip(order, words, strict=False)) | options
        unknown = [name for name in values if name not in leaves]
        if unknown:
            from regard.cli.guess import unknown_option

            names, usage = list(leaves), self.words
            raise UnknownName.first_of(
                [unknown_option(name, names, usage, self.name) for name in unknown]
            )
        missing = [name for name, leaf in leaves.items()
                   if leaf.default is MISSING and name not in values]  # fmt: skip
        if missing:
            raise InputError(f"{self.name} needs {missing[0]}; give {missing[0]}=…")
        values = {name: value for name, value in values.items() if value is not None}
        result = self.run(values, "--json")
        return self.result(result) if type(result) is dict else result

    def run(self, values: dict[str, Any], *more: str) -> Any:
        """Calls the function with the values; `more` are options that all commands have."""
        leaves = self.leaves
        allowed = NAN_ALLOWED.set(bool(values.get("allow_nan")))
        values = {name: value for name, value in values.items() if name != "allow_nan"}
        typed = [as_option(n) for n in values if isinstance(leaves[n].about, Option)] + [*more]
        values |= {ASKED: typed}
        try:
            return self.function(**{p.name: p.build(values) for p in parameters(self.function)})
        finally:
            NAN_ALLOWED.reset(allowed)

    def as_function(self) -> Callable[..., Any]:
        """Returns a Python function with the options of the command line as its signature."""

        def verb(*words: Any, **options: Any) -> Any:
            return self(*words, **options)

        shown = []
        for name, leaf in self.leaves.items():
            word = isinstance(leaf.about, Argument)
            kind = (
                inspect.Parameter.POSITIONAL_OR_KEYWORD if word else inspect.Parameter.KEYWORD_ONLY
            )
            default = inspect.Parameter.empty if leaf.default is MISSING else leaf.default
            shown.append(inspect.Parameter(name, kind, default=default))
        verb.__name__, verb.__doc__ = self.function.__name__, self.function.__doc__
        verb.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return verb

    def as_click(self) -> click.Command:
        from regard.cli.output import show

        def run(**arguments: Any) -> int:
            as_json = arguments.pop("as_json", False)
            values = {name: value for name, value in arguments.items() if value not in (None, ())}
            result = self.run(values, *(["--json"] if as_json else []))
            return show(self, result, as_json, quiet=bool(values.get("quiet"))) if result else 0

        leaves = list(self.leaves.values())
        shown = [leaf.parameter() for leaf in leaves]
        if self.json:
            help_text = "Print one JSON object on standard output."
            shown.append(click.Option(["as_json", "--json"], is_flag=True, help=help_text))
        command = DocumentedCommand(
            self.name, callback=run, params=shown, help=inspect.getdoc(self.function)
        )
        command.leaves = leaves
        return command


class DocumentedCommand(click.Command):
    """A command whose help describes its arguments, and groups recipe options by table."""

    leaves: list[OptionSpec]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Underscores in the name of an option are dashes; unknown ones are told all at once."""
        known = {
            name: parameter
            for parameter in self.get_params(ctx)
            for name in (*parameter.opts, *parameter.secondary_opts)
            if name.startswith("-")
        }
        words: list[str] = []
        unknown: list[str] = []
        rest = iter(args)
        for word in rest:
            name, equals, value = word.partition("=")
            name = name if name in known else name.replace("_", "-")
            if word == "--" or not OPTION.fullmatch(name) or name[:2] in known:
                words += [word, *(rest if word == "--" else ())]
            elif name not in known:
                unknown.append(word.partition("=")[0])
            else:
                words.append(name + equals + value)
                option = known[name]
                if not equals and isinstance(option, click.Option) and not option.is_flag:
                    words += [value for value in [next(rest, None)] if value is not None]
        if unknown and not ctx.resilient_parsing:
            from regard.cli.guess import unknown_option

            usage = [str(one.metavar) for one in self.params if isinstance(one, click.Argument)]
            command = ctx.command_path.partition(" ")[2]
            answers = [unknown_option(name, list(known), usage, command) for name in unknown]
            raise click.UsageError(str(UnknownName.first_of(answers)), ctx)
        return super().parse_args(ctx, words)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        words = [leaf.about for leaf in self.leaves if isinstance(leaf.about, Argument)]
        if words:
            with formatter.section("Arguments"):
                formatter.write_dl([(word.metavar, word.help) for word in words])
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        titles = {leaf.name: leaf.group for leaf in self.leaves}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = titles.get(parameter.name or "", "Options")
                groups.setdefault(title, []).append(record)
        for title in [*(name for name in groups if name != "Options"), "Options"]:
            with formatter.section(title):
                formatter.write_dl(groups[title])
