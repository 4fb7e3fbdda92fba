"""Work on models that have learned: making them small, sturdy, and asking what they know."""
