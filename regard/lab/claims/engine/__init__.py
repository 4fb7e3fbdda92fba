"""What claims are made of, and what runs and judges them."""
