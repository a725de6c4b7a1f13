"""Random faults of every kind under a mixed load, then an account of every message. `python -m tests.faults`."""
