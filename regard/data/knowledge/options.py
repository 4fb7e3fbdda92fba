"""The recipe's table `objective.knowledge`, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from regard.core.errors import ConfigError
from regard.core.options import Option
from regard.core.tables import from_table
from regard.data.knowledge.graph import MOST

FILE = "knowledge.tsv"  # the graph in the directory of a model that was trained with it
KINDS = ("word", "number", "punctuation", "mark")  # the classes of tokens, by number
OF_GRAPH = ("entity", "related", "relation")  # rules that need a graph
OF_MODE = {  # the settings that only one mode uses
    "tree": ("branches", "depth", "predicate", "matrix"),
    "bias": ("rules", "guidance"),
}


@dataclass(frozen=True)
class KnowledgeOptions:
    """The table `objective.knowledge` of a recipe."""

    graph: Annotated[
        str,
        Option("A tsv file of triples (subject, predicate, object) that an encoder reads beside "
               "its text. RUN keeps a copy.", "--knowledge", "GRAPH"),
    ] = ""  # rules may do without a graph  # fmt: skip
    mode: Annotated[
        Literal["tree", "bias"],
        Option("tree adds the triples of a word to the text as branches (K-BERT); bias guides "
               "attention to related words.", "--knowledge-mode", "MODE"),
    ] = "tree"  # fmt: skip
    branches: Annotated[
        int, Option("The most branches of one word.", "--knowledge-branches", "N")
    ] = 2
    depth: int = 1  # tree: the levels of branches on branches
    predicate: bool = True  # tree: a branch is predicate and object; False: the object alone
    matrix: bool = True  # tree: the visible matrix; False: all tokens see the branches
    skip: bool = False  # whether malformed lines are left out
    most: int = MOST  # the most triples of one entity
    rules: Annotated[
        list[str],
        Option("A rule that guides attention: entity, related, relation:NAME, same-token, "
               "same-sentence, near:N, gaussian:WIDTH, kinds:number,word; may be repeated.",
               "--knowledge-rule", "RULE", "entity, related"),
    ] = field(default_factory=lambda: ["entity", "related"])  # fmt: skip
    guidance: dict[str, Any] = field(default_factory=dict)  # bias: options of the extension
    file: str = ""  # set by resolve: the graph's file beside the saved model
    digest: str = ""  # set by resolve: the hash of the graph

    @classmethod
    def of(cls, table: dict[str, Any]) -> KnowledgeOptions:
        options = from_table(cls, table, path="objective.knowledge.", what="recipe key")
        if options.file not in ("", FILE):  # no other file is read from a model's directory
            raise ConfigError(
                f"objective.knowledge.file is {options.file!r}; it can only be {FILE}"
            )
        if not options.rules:
            raise ConfigError("objective.knowledge.rules is []; it must name at least one rule")
        other = "tree" if options.mode == "bias" else "bias"
        for name in OF_MODE[other]:  # a resolved recipe holds them, too, but unchanged
            value = getattr(options, name)
            if value != getattr(cls(), name):
                raise ConfigError(
                    f"objective.knowledge.{name} is {value!r}, which only mode {other} uses, but "
                    f"the mode is {options.mode}; leave it out, or choose mode {other}"
                )
        has_graph = bool(options.graph or options.file)
        if options.mode == "tree":
            if not has_graph:
                raise ConfigError("a sentence tree needs a graph; give --knowledge GRAPH.tsv")
            return options
        needing = [name for name in options.rules if name.partition(":")[0] in OF_GRAPH]
        if needing and not has_graph:
            raise ConfigError(f"the rule {needing[0]!r} needs a graph; give --knowledge GRAPH.tsv")
        if options.guidance.get("rules", options.rules) != options.rules:
            raise ConfigError(
                f"objective.knowledge.guidance.rules is {options.guidance['rules']!r}; put rules "
                f"into objective.knowledge.rules, which is {options.rules!r}"
            )
        return options


def asked(
    graph: str, branches: int | None, mode: str | None, names: Sequence[str]
) -> dict[str, Any]:
    """Returns the table that the options of the command line describe; {} if there are none."""
    if not (graph or names) and (branches is not None or mode):
        raise ConfigError("--knowledge is missing; give a file of triples")
    if not graph and not names:
        return {}
    if names and mode == "tree":
        raise ConfigError("--knowledge-rule needs mode bias; leave it out, or choose mode bias")
    if branches is not None and (names or mode == "bias"):
        raise ConfigError("--knowledge-branches needs mode tree; leave it out, or choose mode tree")
    table: dict[str, Any] = {"graph": graph, "mode": mode or ("bias" if names else "tree")}
    if branches is not None:
        table["branches"] = branches
    if names:
        table["rules"] = list(names)
    KnowledgeOptions.of(table)
    return table


def merged(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the table with its changes by KEY=VALUE, which are removed from `changes`: of two
    tables with the same name, a recipe would take only the second."""
    objective = changes.get("objective")
    more = objective.pop("knowledge", {}) if isinstance(objective, dict) else {}
    if not isinstance(more, dict):
        raise ConfigError(f"objective.knowledge is {more!r}; give a table, such as .depth=2")
    return table | more
