"""The parts of claims, and the code that runs and judges them."""
