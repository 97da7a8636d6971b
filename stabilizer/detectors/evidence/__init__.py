"""What detectors ask about a series: how far it departed, since when, and how the reward responded."""
