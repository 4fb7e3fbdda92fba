"""Distillation: a student learns from its teacher."""
