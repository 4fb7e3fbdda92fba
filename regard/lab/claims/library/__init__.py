"""The claims, one pair of files each: NAME.toml declares a claim, and NAME.py holds what its
experiment computes.

The declaration says everything about a claim and gives the rule by which it is judged. Many claims
need no code: their experiment is a table of recipes, too. Heavy imports stand inside functions, so
that the list of claims needs no torch.
"""
