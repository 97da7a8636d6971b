"""The learning rate as a function of the step alone, so that a resumed run continues the same schedule."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

FLOOR = 0.1
"""Share of the peak at which linear and cosine schedules end."""
KINDS = ("constant", "linear", "cosine")
"""Allowed values of `optim.schedule`."""


class RateSettings(Protocol):
    """Settings that determine the learning rate; `optim` of a configuration has them."""

    @property
    def lr(self) -> float: ...
    @property
    def warmup_steps(self) -> int: ...
    @property
    def schedule(self) -> str: ...


def learning_rate(config: RateSettings, step: int, steps: int) -> float:
    """The rate of `step` (counted from 1) of `steps`, before `control/lr_scale`."""
    warmup = min(1.0, step / (config.warmup_steps + 1))
    done = min(1.0, max(0.0, (step - config.warmup_steps) / max(1, steps - config.warmup_steps)))
    left = {"constant": 1.0, "linear": 1.0 - done, "cosine": 0.5 * (1.0 + math.cos(math.pi * done))}[config.schedule]
    return config.lr * warmup * (left if config.schedule == "constant" else FLOOR + (1.0 - FLOOR) * left)


def shares_of_peak(kind: str, warmup_steps: int, steps: np.ndarray, planned: int) -> np.ndarray:
    """`learning_rate` at many steps at once, as shares of the peak."""
    warmup = np.minimum(1.0, steps / (warmup_steps + 1))
    done = np.clip((steps - warmup_steps) / max(1, planned - warmup_steps), 0.0, 1.0)
    if kind == "constant":
        return warmup
    return warmup * (FLOOR + (1.0 - FLOOR) * (1.0 - done if kind == "linear" else 0.5 * (1.0 + np.cos(np.pi * done))))
