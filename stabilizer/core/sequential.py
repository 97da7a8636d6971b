"""Whether a mean has moved, asked after every row without paying for the asking: a confidence sequence.

The ordinary interval is right when it is looked at once. A trial looks after every step and ends when it has seen
enough, so its interval must hold at all times together: the normal mixture of Robbins (1970), as in Howard et al. 2021
(arXiv 1810.08240), for a mean of values whose standard deviation is known.
"""

from __future__ import annotations

import math

ALPHA = 0.1
"""Probability that the interval ever misses the true mean, at both ends together."""


def half_width(noise: float, rows: int, expected: int, alpha: float = ALPHA) -> float:
    """Half of the interval around the mean of `rows` values; it is narrowest about when `expected` of them are in."""
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
