"""The reward that the weights of a policy get now, on the next prompts and on held-out problems."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

BATCHES = 4
"""Batches of prompts that both policies answer: one batch alone estimates a mean reward of 0-1 within a tenth."""


@dataclass(frozen=True)
class Paid:
    """The measured reward of some weights."""

    rewards: np.ndarray
    """Mean reward of each of the next prompts; NaN where no completion could be judged."""
    held_out: float = math.nan
    """Share of the held-out problems that are solved; NaN where there are none."""
    problems: int = 0
