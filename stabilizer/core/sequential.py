"""Whether a mean has moved, tested after every row: a confidence sequence.

An ordinary interval is valid for one look. A trial looks after every step and ends when it has seen enough, so its
interval must hold at all times together. It is the normal mixture of Robbins (1970), as in Howard et al. 2021 (arXiv
1810.08240), for a mean of values whose standard deviation is known.
"""

from __future__ import annotations

import math

ALPHA = 0.1
"""Probability that the interval ever misses the true mean, on either side."""


def half_width(noise: float, rows: int, expected: int, alpha: float = ALPHA) -> float:
    """Half of the interval around the mean of `rows` values; it is narrowest near `expected` rows."""
    if rows < 1:
        return math.inf
    share = 2 * math.log(1 / alpha)
    tuned = max(1, expected) / (share + math.log(1 + share))
    return noise * math.sqrt((rows + tuned) * math.log((rows + tuned) / (tuned * alpha * alpha))) / rows


def rows_needed(noise: float, width: float, least: int, most: int) -> int:
    """Rows after which the half width is at most `width`, within bounds."""
    for rows in range(least, most):
        if half_width(noise, rows, rows) <= width:
            return rows
    return most
