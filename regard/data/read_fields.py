"""Finds which field of a record plays which role of a task, by common names or as chosen.

A `Schema` describes the records of a task; `Fields` finds its roles in one file; a `FieldRecord` is
a record from which a task builds an example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.core.errors import UnknownName
from regard.data.problems import FileLine, Problems

if TYPE_CHECKING:
    from regard.data.examples import Example
    from regard.data.readers import ReaderOptions

ID = "id idx guid uid pairid pair_id key example_id"
NUMBERED = ("choice", "ending", "option", "alternative", "answer")  # choice1, ending0, …


class BadRecord(Exception):
    """A record that cannot become an example."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class Schema:
    """The description of a task's records, and how one of them becomes an example."""

    name: ClassVar[str]
    # The common field names of each role, in order of preference; a field plays one role. Upper
    # and lower case are the same, and so are blanks and underscores.
    roles: ClassVar[Mapping[str, str]]
    needed: ClassVar[tuple[str, ...]]  # roles that every record must have
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {}  # roles by width, if there is no header
    listed: ClassVar[str] = ""  # the role that may come as choice1, choice2, …
    in_columns: ClassVar[bool] = False  # whether it may come as CoNLL, a word per line
    in_two_files: ClassVar[bool] = False  # whether it may come as two parallel files
    in_squad: ClassVar[bool] = False  # whether a json file may have SQuAD's layout
    in_tables: ClassVar[bool] = True
    unique_ids: ClassVar[bool] = False  # whether an id that occurs twice is an error

    def parse(self, record: FieldRecord) -> Example:
        """Builds the example of a record; raises `BadRecord` if something is wrong."""
        raise NotImplementedError

    def unpacked(self, values: dict[str, Any], chosen: Mapping[str, str]) -> dict[str, Any]:
        """Returns the record's fields; some records hold them inside another field."""
        return values


class Fields:
    """The roles of one file's fields, decided by its header or its first good record."""

    def __init__(self, schema: Schema, chosen: Mapping[str, str]) -> None:
        for role in chosen:
            if role not in schema.roles:
                raise UnknownName(f"role of a field for {schema.name}", role, schema.roles)
        self.schema, self.chosen = schema, dict(chosen)
        self.names: dict[str, str] = {}  # the field of each role that has one
        self.seen: tuple[str, ...] = ()  # the fields of the previous record
        self.first: dict[str, Any] = {}  # what a task remembers from the first record

    def settle(self, present: Sequence[str], table: bool = False) -> dict[str, str]:
        """Finds a field for each role; roles that already have a field keep it."""
        plain = {name.casefold().replace(" ", "_"): name for name in reversed(present)}
        names = dict(self.names)
        for role, name in self.chosen.items():
            if role in names:
                continue
            if name in present:
                names[role] = name
            elif table and name.isdecimal() and 1 <= int(name) <= len(present):
                names[role] = present[int(name) - 1]
        for role, known in self.schema.roles.items():
            if role in names or role in self.chosen:
                continue
            free = (plain[name] for name in known.split() if name in plain)
            name = next((name for name in free if name not in names.values()), "")
            if name:
                names[role] = name
            elif role == self.schema.listed and (several := numbered_fields(present)):
                names[role] = ", ".join(several)
        return names

    def complaint(self, names: Mapping[str, str], present: Iterable[str]) -> str:
        """Says which field is missing, which fields there are, and how to name it; empty if all is
        there."""
        for role in dict.fromkeys((*self.schema.needed, *self.chosen)):
            if role not in names:
                what = f"no field {self.chosen[role]!r}" if role in self.chosen else "no field"
                return (
                    f"{what} for the {role} that {self.schema.name} needs; there are: "
                    f"{listed(present)}; name the right one with --field {role}=NAME"
                )
        return ""

    def is_header(self, line: list[str]) -> bool:
        """Tells whether this line is a header: it is if it names what the task needs.

        A lone "a" may as well be a text; it counts as a name only beside "b".
        """
        named = {role: name for role, name in self.chosen.items() if not name.isdecimal()}
        alone = Fields(self.schema, named)
        names = alone.settle(line)
        letters = {name.casefold() for name in names.values()} & {"a", "b"}
        return not alone.complaint(names, line) and len(letters) != 1

    def take_header(self, line: list[str]) -> str:
        """Reads the names of a header; returns what is missing in it."""
        self.names, self.seen = self.settle(line, table=True), tuple(line)
        return self.complaint(self.names, line)

    def take_numbers(self, line: list[str]) -> str:
        """Names the columns of a table without a header by number; returns why it cannot."""
        width = len(line)
        self.seen = tuple(str(number) for number in range(1, width + 1))
        if self.chosen:
            self.names = {role: name for role, name in self.chosen.items() if name in self.seen}
            return self.complaint(self.names, line)
        if width in self.schema.columns:
            self.names = dict(zip(self.schema.columns[width], self.seen, strict=False))
            return ""
        shown = ", ".join(repr(cell[:30]) for cell in line)
        role = self.schema.needed[0]
        return (
            f"{width} columns without a header that {self.schema.name} knows ({shown}); name them "
            f"with --field {role}=NAME and so on, or by number with --field {role}=1"
        )

    def take(self, values: Mapping[str, Any]) -> None:
        """Finds fields for the roles that are still open among the fields of another record."""
        present = tuple(values)
        if present == self.seen:
            return
        names = self.settle(present)
        complaint = self.complaint(names, present)
        if complaint and not self.names:
            raise BadRecord("missing-field", complaint)
        self.names, self.seen = names, present


def numbered_fields(names: Iterable[str]) -> list[str]:
    """Returns fields such as choice1, choice2 or ending0, ending1 in the order of their numbers."""
    for stem in NUMBERED:
        by_number = {}
        for name in names:
            number = name.casefold().removeprefix(stem).lstrip("_ ")
            if name.casefold().startswith(stem) and number.isdecimal():
                by_number[int(number)] = name
        if len(by_number) > 1:
            return [by_number[number] for number in sorted(by_number)]
    return []


@dataclass(frozen=True)
class FieldRecord:
    """A record that is about to become an example."""

    values: Mapping[str, Any]
    place: FileLine
    fields: Fields
    problems: Problems
    options: ReaderOptions

    @property
    def id(self) -> str:
        name = self.get("id")
        return str(self.place) if name is None or name == "" else str(name)

    def get(self, role: str) -> Any:
        """Returns the value of a role, or None if there is none; raises if the task needs it."""
        names = self.fields.names
        name = names.get(role)
        if name is not None and name in self.values:
            return self.values[name]
        if role in self.fields.schema.needed and (name is not None or not names):
            wanted = f"no field for the {role}" if name is None else f"no field {name!r}"
            raise BadRecord("missing-field", f"{wanted}; there are: {listed(self.values)}")
        return None

    def text(self, role: str) -> str:
        """Returns the text of a role, which must hold a visible character."""
        value = self.get(role)
        if value is not None and not isinstance(value, str):
            kind = type(value).__name__
            raise BadRecord("wrong-type", f"the {role} ({self.field(role)!r}) is {kind}, not text")
        if value is None or not value.strip():
            raise BadRecord("empty-text", f"the {role} ({self.field(role)!r}) is empty")
        return value

    def has(self, role: str) -> bool:
        """Tells whether the file has a field for this role."""
        return role in self.fields.names

    def field(self, role: str) -> str:
        """Returns the name of the role's field in this file."""
        return self.fields.names[role]

    def warn(self, kind: str, message: str) -> None:
        self.problems.add(self.place, kind, message, "warning")


def parsed(
    place: FileLine,
    values: dict[str, Any],
    fields: Fields,
    problems: Problems,
    options: ReaderOptions,
) -> Example | None:
    """Returns the example of a record, or adds a problem and returns None."""
    try:
        values = fields.schema.unpacked(values, fields.chosen)
        fields.take(values)
        return fields.schema.parse(FieldRecord(values, place, fields, problems, options))
    except BadRecord as bad:
        problems.add(place, bad.kind, bad.message)
        return None


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def short(text: str, most: int = 40) -> str:
    return repr(text if len(text) <= most else f"{text[: most - 1]}…")


def as_words(value: Any, role: str) -> tuple[str, ...]:
    """Returns the words of a list, or of a text with spaces between the words."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list | tuple) and all(isinstance(each, str | int) for each in value):
        return tuple(str(each) for each in value)
    raise BadRecord("wrong-type", f"the {role} are {type(value).__name__}, not a list of texts")
