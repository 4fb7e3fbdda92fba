"""Work on models that have learned: fine-tuning, making them small, asking what they know."""
