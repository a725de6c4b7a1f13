"""Mutated messages through the whole path, then an account of each of them. `python -m tests.fuzz`."""
