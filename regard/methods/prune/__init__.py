"""Pruning: removes the least important parts of a model."""
