"""The set-up of a generated run, and how its parameters are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Draws:
    """Random parameters, such that those of the two halves never coincide: every range is cut into six parts, of which
    `develop` uses the first, third and fifth, and `report` the others."""

    def __init__(self, rng: np.random.Generator, half: str):
        self.rng = rng
        self.half = half

    def span(self, low: float, high: float) -> float:
        """Between low and high, in the parts of this half."""
        part = 2 * int(self.rng.integers(3)) + (self.half == "report")
        return low + (high - low) * (part + float(self.rng.random())) / 6

    def ratio(self, low: float, high: float) -> float:
        """Between low and high, evenly in the logarithm."""
        return float(np.exp(self.span(np.log(low), np.log(high))))

    def whole(self, low: int, high: int) -> int:
        """A whole number, as `span` draws."""
        return int(round(self.span(low, high)))

    def pick(self, options: Sequence[T]) -> T:
        """One of some options, the same ones for both halves."""
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        """True in this share of cases."""
        return bool(self.rng.random() < share)


@dataclass(frozen=True, kw_only=True)
class Host:
    """The set-up of a run, and how it would go if nothing happened."""

    task: str
    algorithm: str = "grpo"
    trainer: str = "own"
    """Whose metrics are logged: `own`, `trl` or `verl`."""
    log_every: int = 1
    steps: int = 700
    prompts: int = 32
    group: int = 8
    p_start: float = 0.2
    """Share of answers that are right at the start ..."""
    p_end: float = 0.8
    """... and where learning leads."""
    tau: float = 0.4
    """Time constant of learning, in lengths of the run."""
    delay: float = 0.0
    """Part of the run before learning sets in."""
    spread: float = 1.5
    """Standard deviation of the prompts' difficulty, in logits."""
    rewards: str = "0-1"
    """`0-1`, `-1..1`, or `0-5` of two components."""
    components: tuple[str, str] = ("correct", "format")
    """What the two are called."""
    entropy: float = 1.0
    entropy_fall: float = 0.6
    """Logarithm by which entropy falls while the task is learned."""
    length: float = 200.0
    length_growth: float = 0.1
    """Logarithm by which answers grow while the task is learned."""
    length_spread: float = 0.45
    cap: float = 5.0
    """Length limit in mean lengths of the start."""
    grad: float = 0.5
    grad_noise: float = 0.2
    grad_creep: float = 0.0
    """Logarithm by which the gradient norm grows over the run."""
    lr: float = 1e-6
    schedule: str = "constant"
    """`constant`, `linear`, `cosine`, or `warming` (the whole run is warm-up)."""
    beta: float = 1e-3
    kl: float = 0.05
    """KL to the reference at the end, nats per token."""
    kl_logged: str = "yes"
    """`yes`, `zero` (logged as 0.0) or `absent`."""
    kl_old: float = 1e-3
    clip: float = 0.01
    mismatch: float = 5e-4
    staleness: int = 0
    on_policy: bool = False
    """One update a step: no ratio differs from 1, nothing is clipped."""
    phi: float = 0.3
    """Autocorrelation of all noise."""
    heavy: bool = False
    """Norms with Student's t noise of 3 degrees of freedom."""
    tool: bool = False
    val_every: int = 20
    val_offset: int = 0
    val_size: int = 200
    gap: float = 0.0
    """How much lower held-out accuracy is from the start."""
    step_s: float = 20.0
    planned: bool = True
    """Whether the run says how many steps it is to have."""
