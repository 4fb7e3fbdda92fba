"""Makes variants of labeled examples by changing words; their labels stay right.

| file | what |
| --- | --- |
| words.py | a text as its words and the gaps between them |
| eda.py | synonyms, insertion, swap, deletion (Wei & Zou 2019) |
| thesaurus.py | WordNet's own files, or a list of synonyms |
| examples.py | which texts of an example may change |
| realign.py | moves answers and tags when the words around them change |
| clean.py | texts reduced to lowercase letters, as in the code of Wei & Zou |

>>> augmenter = Augmenter(AugmentSettings(("swap", "delete"), word_fraction=0.1, seed=1))
>>> augmenter.variants([LabeledExample("a very moving film", label="good")])
"""
