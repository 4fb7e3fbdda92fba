"""What a recipe says of knowledge: the table `objective.knowledge`, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.core.errors import ConfigError
from regard.core.tables import from_table
from regard.data.knowledge.graph import MOST

FILE = "knowledge.tsv"  # beside a model that has learned with it
KINDS = ("word", "number", "punctuation", "mark")  # classes of tokens, by number
OF_GRAPH = ("entity", "related", "relation")  # rules that a graph is needed for
OF_MODE = {  # what one of the two alone heeds
    "tree": ("branches", "depth", "predicate", "matrix"),
    "bias": ("rules", "guidance"),
}


@dataclass(frozen=True)
class KnowledgeOptions:
    """The table `objective.knowledge` of a recipe."""

    graph: str = ""  # a file of triples; rules alone can do without
    mode: Literal["tree", "bias"] = "tree"
    branches: int = 2  # tree: of one entity
    depth: int = 1  # tree: branches upon branches
    predicate: bool = True  # tree: a branch is predicate and object; False: the object alone
    matrix: bool = True  # tree: False: branches are text like any other, seen by all
    skip: bool = False  # leave malformed lines out
    most: int = MOST  # triples kept of one entity
    rules: list[str] = field(default_factory=lambda: ["entity", "related"])  # bias
    guidance: dict[str, Any] = field(default_factory=dict)  # bias: options of the extension
    file: str = ""  # settled: beside the model, once it is saved
    digest: str = ""  # settled: of the graph

    @classmethod
    def of(cls, table: dict[str, Any]) -> KnowledgeOptions:
        options = from_table(cls, table, path="objective.knowledge.", what="recipe key")
        if options.file not in ("", FILE):  # nothing else is read from a model's directory
            raise ConfigError(
                f"objective.knowledge.file is {options.file!r}; it can only be {FILE}"
            )
        if not options.rules:
            raise ConfigError("objective.knowledge.rules is []; it must be a list of names")
        options.check_mode()
        if options.mode == "bias":
            options.check_rules()
        elif not (options.graph or options.file):
            raise ConfigError("a sentence tree needs a graph: --knowledge GRAPH.tsv")
        return options

    def check_mode(self) -> None:
        """Refuses what the other mode alone heeds; settled recipes hold it, too, but unchanged."""
        usual = type(self)()
        other = "tree" if self.mode == "bias" else "bias"
        for name in OF_MODE[other]:
            value = getattr(self, name)
            if value != getattr(usual, name):
                raise ConfigError(
                    f"objective.knowledge.{name} is {value!r}, which only mode {other} heeds, and "
                    f"the mode is {self.mode}; leave it out, or choose mode {other}"
                )

    def check_rules(self) -> None:
        asking = [name for name in self.rules if name.partition(":")[0] in OF_GRAPH]
        if asking and not (self.graph or self.file):
            raise ConfigError(f"the rule {asking[0]!r} needs a graph: --knowledge GRAPH.tsv")
        if self.guidance.get("rules", self.rules) != self.rules:
            raise ConfigError(
                f"objective.knowledge.guidance.rules is {self.guidance['rules']!r}; rules stand in "
                f"objective.knowledge.rules, which is {self.rules!r}"
            )


def asked(
    graph: str, branches: int | None, mode: str | None, names: Sequence[str]
) -> dict[str, Any]:
    """The table of a command line; {} where it asks for none."""
    if not (graph or names) and (branches is not None or mode):
        raise ConfigError("--knowledge is missing; give a file of triples")
    if not graph and not names:
        return {}
    if names and mode == "tree":
        raise ConfigError("--knowledge-rule guides attention; leave it out, or choose mode bias")
    if branches is not None and (names or mode == "bias"):
        raise ConfigError("--knowledge-branches grow on a tree; leave it out, or choose mode tree")
    table: dict[str, Any] = {"graph": graph, "mode": mode or ("bias" if names else "tree")}
    if branches is not None:
        table["branches"] = branches
    if names:
        table["rules"] = list(names)
    KnowledgeOptions.of(table)
    return table


def merged(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The table with what KEY=VALUE changes of it, which are taken out of `changes`: of two tables
    with the same name a recipe would take the second alone.
    """
    objective = changes.get("objective")
    more = objective.pop("knowledge", {}) if isinstance(objective, dict) else {}
    if not isinstance(more, dict):
        raise ConfigError(f"objective.knowledge is {more!r}; it is a table, such as .depth=2")
    return table | more
