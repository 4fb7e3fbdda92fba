"""A model without its least important parts."""
