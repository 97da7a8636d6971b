"""What detectors ask of a series: how far it departed, since when, and what the reward did."""
