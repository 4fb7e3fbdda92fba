"""A model in small numbers."""
