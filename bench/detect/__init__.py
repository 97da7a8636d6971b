"""StabilityBench: how often the detectors are right about runs whose truth is known, and how often they cry wolf."""
