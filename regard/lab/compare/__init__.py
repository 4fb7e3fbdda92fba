"""Compares all families on one text under one budget."""
