"""Applying remedies to a live run: which fix, its trial, its judgement, and the limits on all of it."""
