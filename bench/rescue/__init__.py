"""RescueBench: whether remedies save runs that really train, and what they cost those that need none."""
