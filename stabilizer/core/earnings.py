"""What the weights of a policy earn on the prompts that come next and on held-out problems."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

BATCHES = 4
"""Batches of prompts that both answer: what one of them says of a reward of 0 or 1 is off by a tenth."""


@dataclass(frozen=True)
class Paid:
    """What weights get now."""

    rewards: np.ndarray
    """Mean reward of each of the prompts that come next; NaN where nobody could judge."""
    held_out: float = math.nan
    """Share of the held-out problems that is solved; NaN where there are none."""
    problems: int = 0
