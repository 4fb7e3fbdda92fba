"""Drawings of what models are made of, and of what they attend to."""
