"""Records, metric names, statistics of a series, knobs: what every other part is built from."""
