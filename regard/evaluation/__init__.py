"""Evaluates models: predictions, tests, prompts, embeddings, and the n-gram baseline."""
