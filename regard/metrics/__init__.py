"""Figures by the field's libraries, their intervals, and tests of differences."""
