"""The whole lineage on one text under one budget."""
