"""Knowledge beside a text: a graph, and the sentence tree that it adds to a text.

    graph = Graph.read("facts.tsv")                    # graph.py: subject TAB predicate TAB object
    tree = KnowledgeTree.of("Tim Cook is visiting Beijing now".split(), graph)  # tree.py
    flat = tree.flatten()                              # .tokens .soft .line .word .owner

`regard.models.extensions.tree_knowledge` says how a model sees a tree; `regard finetune …
--knowledge facts.tsv` does all of this for a task.
"""
