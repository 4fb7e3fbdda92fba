"""Charts and pictures, made from plain numbers: the one toolkit of all pages."""
