"""Knowledge beside a text: a graph, and the sentence tree that it grows on a text.

    graph = Graph.read("facts.tsv")                    # graph.py: subject TAB predicate TAB object
    tree = Tree.of("Tim Cook is visiting Beijing now".split(), graph)  # tree.py
    flat = tree.flatten()                              # .tokens .soft .line .word .owner

How a model sees a tree is in `regard.models.extensions.tree_knowledge`; `regard finetune …
--knowledge facts.tsv` does all of this for a task.
"""
