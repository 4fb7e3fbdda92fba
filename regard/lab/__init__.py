"""Putting models side by side: comparisons, claims, the look page, drawings."""
