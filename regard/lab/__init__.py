"""Tools that put models side by side: comparisons, claims, the look page, drawings."""
