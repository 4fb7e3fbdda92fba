"""Knowledge beside a text: a graph, the sentence tree it grows on a text, and how a model sees it.

    graph = Graph.read("facts.tsv")                    # subject TAB predicate TAB object
    tree = Tree.of("Tim Cook is visiting Beijing now".split(), graph)
    flat = tree.flatten()                              # .tokens .soft .line .word .owner
    model(tokens, known=Knowledge.of_trees([flat]))    # K-BERT: any encoder of ours

`regard finetune … --knowledge facts.tsv` does all of this for a task.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.knowledge.graph import Graph, Triple
    from regard.knowledge.guide import Guide, Tokens
    from regard.knowledge.known import Knowledge
    from regard.knowledge.pattern import Visible
    from regard.knowledge.tree import Flat, Tree

__all__ = ["Flat", "Graph", "Guide", "Knowledge", "Tokens", "Tree", "Triple", "Visible"]

HOMES = {
    "Flat": "tree", "Graph": "graph", "Guide": "guide", "Knowledge": "known", "Tokens": "guide",
    "Tree": "tree", "Triple": "graph", "Visible": "pattern",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'regard.knowledge' has no attribute {name!r}")
    value = getattr(import_module(f"regard.knowledge.{HOMES[name]}"), name)
    globals()[name] = value
    return value
