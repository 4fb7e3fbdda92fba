"""The training loop, and everything around it."""
