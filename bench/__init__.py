"""Benchmarks in the open: each prints a table, with the command that repeats it and how the figures were taken."""
