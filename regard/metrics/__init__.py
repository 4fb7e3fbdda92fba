"""Metrics by the field's libraries, their confidence intervals, and tests of differences."""
