"""Settings that follow a measurement. Frozen rules; the state is plain floats, to be stored in a checkpoint.

Each has `step(state, measured) -> (state, value)`: `value` is what to use, `state` what to hand back next time. A
measurement that is not finite changes nothing.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AdaptiveKL:
    """Weight of the KL that keeps the KL near a target: a proportional controller whose error is clipped.

        error = clip(kl / target - 1, -0.2, 0.2)
        beta <- beta * (1 + error / horizon)                             Ziegler et al. 2019, arXiv:1909.08593

    The state is beta. It moves by factors, so one that is 0 stays 0: with `low` above 0 it can come back.
    """

    target: float
    """Nats per token, by the estimator that is measured."""
    horizon: float = 10.0
    """Steps over which an error of 1 would double beta. The clipped error moves it by at most 0.2 / horizon a step."""
    low: float = 0.0
    """Smallest beta."""
    high: float = 1.0
    """Largest beta."""

    def step(self, beta: float, kl: float) -> tuple[float, float]:
        if math.isfinite(kl):
            error = _clip(kl / self.target - 1, -0.2, 0.2)
            beta = _clip(beta * (1 + error / self.horizon), self.low, self.high)
        return beta, beta


@dataclass(frozen=True, kw_only=True)
class TargetEntropy:
    """Weight of the entropy bonus that keeps the entropy from falling under a target.

        c <- c + delta below the target, c - delta above it, within [low, high]
        bonus c while the entropy is at or below the target, `low` above it     Skywork-OR1, arXiv:2505.22312

    The state is c. The bonus ends at once when the target is reached, so that c, which moves slowly, doesn't overshoot.
    """

    target: float
    """Nats per token."""
    delta: float = 0.005
    """How far the coefficient moves in a step."""
    low: float = 0.0
    """Smallest coefficient."""
    high: float = 0.1
    """Largest coefficient."""

    def step(self, coefficient: float, entropy: float) -> tuple[float, float]:
        if not math.isfinite(entropy):
            return coefficient, coefficient
        direction = (entropy < self.target) - (entropy > self.target)
        coefficient = _clip(coefficient + direction * self.delta, self.low, self.high)
        return coefficient, coefficient if entropy <= self.target else self.low


@dataclass(frozen=True, kw_only=True)
class AdaptiveClip:
    """Where to clip the gradient: at `factor` times the median norm of the last updates, never above the ceiling.

    After AutoClip (Seetharaman et al. 2020, arXiv:2007.14469), with a median, which spikes can't move until they are
    half of the window. The norm being judged is not among those it is judged by. The state is the last `window` norms
    before clipping, oldest first; until there are `warmup` of them the ceiling alone holds.
    """

    factor: float = 2.0
    """Times the median; a step may be this much larger than usual."""
    window: int = 50
    """Updates that are remembered."""
    warmup: int = 10
    """Updates before the first median is trusted."""

    def step(self, norms: tuple[float, ...], norm: float, ceiling: float) -> tuple[tuple[float, ...], float]:
        """`norm` is this update's, before clipping; returns the new state and the bound for this update."""
        bound = ceiling
        if len(norms) >= self.warmup:
            bound = min(ceiling, self.factor * statistics.median(norms))
        if math.isfinite(norm):
            norms = (*norms, norm)[-self.window :]
        return tuple(norms), bound


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
