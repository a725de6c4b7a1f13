"""A load for many minutes, with consumers begun and ended all the time: does memory grow? `python -m tests.soak`."""
