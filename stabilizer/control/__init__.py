"""Applies remedies to a live run: the choice of a fix, its trial, its judgement and their limits."""
