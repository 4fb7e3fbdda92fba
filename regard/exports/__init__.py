"""Exports: a model in the format of another runtime, kept only if that runtime computes the same.

A target is one file: what it can hold, how a model is converted, and how the result is opened with
the real runtime. `run.py` converts into a hidden directory, lets the runtime read texts of several
lengths, compares with our own model, and moves the directory to its place only if they agree.
"""
