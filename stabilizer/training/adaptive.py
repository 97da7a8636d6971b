"""Settings that follow a measurement. The rules are frozen; their state is plain floats that a checkpoint stores.

Each rule has `step(state, measured) -> (state, value)`: `value` is used now, `state` is passed to the next call. A
measurement that is not finite changes nothing.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AdaptiveKL:
    """KL coefficient that keeps the KL near a target: a proportional controller with a clipped error.

        error = clip(kl / target - 1, -0.2, 0.2)
        beta <- beta * (1 + error / horizon)                             Ziegler et al. 2019, arXiv:1909.08593

    The state is beta. It changes by factors, so a beta of 0 remains 0; with `low` above 0 it can recover.
    """

    target: float
    """Nats per token, by the estimator in use."""
    horizon: float = 10.0
    """Steps over which an error of 1 would double beta. The clipped error changes it by at most 0.2 / horizon per
    step."""
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
    """Entropy coefficient that keeps the entropy from falling below a target.

        c <- c + delta below the target, c - delta above it, within [low, high]
        bonus c while the entropy is at or below the target, `low` above it     Skywork-OR1, arXiv:2505.22312

    The state is c. The bonus ends as soon as the target is reached, so that the slowly changing c does not overshoot.
    """

    target: float
    """Nats per token."""
    delta: float = 0.005
    """Change of the coefficient per step."""
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
    """Gradient clipping limit: `factor` times the median norm of the last updates, never above the ceiling.

    After AutoClip (Seetharaman et al. 2020, arXiv:2007.14469), with a median, which spikes cannot move until they fill
    half of the window. The norm being clipped is not part of the window. The state is the last `window` norms before
    clipping, oldest first; until it holds `warmup` norms only the ceiling applies.
    """

    factor: float = 2.0
    """Multiple of the median; a step may be this much larger than usual."""
    window: int = 50
    """Updates in the window."""
    warmup: int = 10
    """Updates before the median is used."""

    def step(self, norms: tuple[float, ...], norm: float, ceiling: float) -> tuple[tuple[float, ...], float]:
        """`norm` is the norm of this update before clipping; returns the new state and the limit for this update."""
        bound = ceiling
        if len(norms) >= self.warmup:
            bound = min(ceiling, self.factor * statistics.median(norms))
        if math.isfinite(norm):
            norms = (*norms, norm)[-self.window :]
        return tuple(norms), bound


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
