"""Quantization: a model with weights of 8 or 16 bits."""
