"""Variants of labeled examples, whose labels stay, made by changing words.

| file | what |
| --- | --- |
| words.py | a text as its words and what stands between them |
| eda.py | synonyms, insertion, swap, deletion (Wei & Zou 2019) |
| thesaurus.py | WordNet's own files, or a list of synonyms |
| examples.py | which texts of an example may change |
| realign.py | answers and tags, where the words around them change |
| clean.py | texts reduced to small letters, as in the code of Wei & Zou |

>>> augmenter = Augmenter(Settings(("swap", "delete"), share=0.1, copies=4, seed=1))
>>> augmenter.variants([Labeled("a very moving film", label="good")])
"""
