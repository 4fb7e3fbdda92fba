"""One file a claim: NAME.toml declares it, and NAME.py holds what its experiment computes.

The declaration says everything about a claim and gives the rule by which it is judged. Many claims
need no code: their experiment is a table of recipes, too. What is computed is imported inside of
functions, so that a list of claims needs no torch.
"""
