"""What a recipe says of knowledge: the table `objective.knowledge`, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from regard.core.errors import ConfigError
from regard.core.options import Option
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

    graph: Annotated[
        str,
        Option("Triples that an encoder reads beside its text: a tsv file of subject, predicate, "
               "object. RUN keeps them.", "--knowledge", "GRAPH"),
    ] = ""  # rules alone can do without  # fmt: skip
    mode: Annotated[
        Literal["tree", "bias"],
        Option("tree: what the graph says of a word hangs on it as branches (K-BERT); bias: "
               "attention is guided to related words.", "--knowledge-mode", "MODE"),
    ] = "tree"  # fmt: skip
    branches: Annotated[
        int, Option("Branches of one word, at most.", "--knowledge-branches", "N")
    ] = 2
    depth: int = 1  # tree: branches upon branches
    predicate: bool = True  # tree: a branch is predicate and object; False: the object alone
    matrix: bool = True  # tree: False: branches are text like any other, seen by all
    skip: bool = False  # leave malformed lines out
    most: int = MOST  # triples kept of one entity
    rules: Annotated[
        list[str],
        Option("What guides attention: entity, related, relation:NAME, same-token, same-sentence, "
               "near:N, gaussian:WIDTH, kinds:number,word; may be repeated.", "--knowledge-rule",
               "RULE", "entity, related"),
    ] = field(default_factory=lambda: ["entity", "related"])  # fmt: skip
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
        other = "tree" if options.mode == "bias" else "bias"
        for name in OF_MODE[other]:  # a settled recipe holds them, too, but unchanged
            value = getattr(options, name)
            if value != getattr(cls(), name):
                raise ConfigError(
                    f"objective.knowledge.{name} is {value!r}, which only mode {other} heeds, and "
                    f"the mode is {options.mode}; leave it out, or choose mode {other}"
                )
        has_graph = bool(options.graph or options.file)
        if options.mode == "tree":
            if not has_graph:
                raise ConfigError("a sentence tree needs a graph: --knowledge GRAPH.tsv")
            return options
        needing = [name for name in options.rules if name.partition(":")[0] in OF_GRAPH]
        if needing and not has_graph:
            raise ConfigError(f"the rule {needing[0]!r} needs a graph: --knowledge GRAPH.tsv")
        if options.guidance.get("rules", options.rules) != options.rules:
            raise ConfigError(
                f"objective.knowledge.guidance.rules is {options.guidance['rules']!r}; rules stand "
                f"in objective.knowledge.rules, which is {options.rules!r}"
            )
        return options


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
