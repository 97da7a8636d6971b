"""KL estimator: the logged KL reflects its estimator more than the policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import median, median_scale
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.since import outcome
from stabilizer.runs.history import RunView, Series


@dataclass(frozen=True, kw_only=True)
class KlEstimator(Detector):
    """The estimate of KL to the reference is negative, which a KL cannot be, or dominated by a few tokens.

    Signature
        Negative: the mean of the newest `window` rows is below zero by more than 5 standard errors and by `negative`
        nats (`info`) or `impossible` nats (`warn`). Spikes: at least `spikes` single rows of the newest 50 are `tall`
        times their median and `material` nats, or two of them `huge` times it, between rows that are as usual, while
        entropy is calm (`info`). Spikes are `warn` when the gradient spikes in the same rows and the reward has not
        risen since the first of them.

    Why it matters
        A KL cannot be negative. A single row of k1 may be, by chance. When the average is, the tokens were not sampled
        from the policy they are scored under, and the penalty rewards what it should punish. For a token that lost ten
        nats, k3 = exp(d) - 1 - d is 20,000: one token then carries the whole gradient of the penalty.

    Look-alikes
        True drift raises every row, not one in ten: `policy/kl-runaway`. k1 around zero in a young run is noise. One
        outlier is an odd token. With beta = 0 the number is only measured and controls nothing: `info` at most.

    False alarms
        A sampling temperature other than 1 that the log-probabilities leave out shifts k1 by a constant.

    Remedies
        `lower-beta` while spikes drive the gradient. Manually: compute both log-probabilities at the sampling
        temperature, clamp the log-ratio (verl: 20), use k1 in the reward or k2 in the loss instead of k3.

    References
        Schulman 2020, "Approximating KL divergence"; arXiv 2512.21852 on estimators and their gradients.
    """

    id = "policy/kl-estimator"
    needs = ("policy/kl_ref",)

    window: int = 30
    """Rows whose mean must not be negative."""
    negative: float = 0.005
    """Nats per token below zero that are reported."""
    impossible: float = 0.05
    """Nats per token below zero that no rounding explains."""
    spikes: int = 3
    """Tall rows among 50 that are a pattern."""
    tall: float = 10.0
    """Multiple of the median row."""
    huge: float = 100.0
    """Multiple of the median row that no odd batch explains, so that two are a pattern."""
    material: float = 0.2
    """Nats per token that a tall row must have."""

    def check(self, view: RunView) -> Finding | None:
        series = view.series("policy/kl_ref").last(50).finite()
        if len(series) < self.window:
            return None
        return self._below_zero(view, series.last(self.window)) or self._spiky(view, series)

    def _below_zero(self, view: RunView, series: Series) -> Finding | None:
        mean = float(series.values.mean())
        if mean > -self.negative:
            return None
        error = max(median_scale(series.values)[1], 1e-6) / np.sqrt(len(series))
        if mean > -5 * error or median(series.values) > -self.negative:
            return None
        severity: Severity = "warn" if mean <= -self.impossible and self._steers(view) else "info"
        return self.finding(
            view, severity, int(series.steps[0]),
            f"KL to the reference averages {mean:.3g} nats/token over {len(series)} rows ({mean / error:.0f} standard"
            f" errors). A KL cannot be negative, so the tokens were not sampled from the policy that is measured",
            metric="policy/kl_ref", baseline=0.0, now=mean,
        )  # fmt: skip

    def _spiky(self, view: RunView, series: Series) -> Finding | None:
        usual = median(series.values)
        tall = series.values > max(self.tall * usual, usual + self.material)
        count = int(tall.sum())
        enough = count >= self.spikes or count == 2 and float(series.values[tall].min()) >= self.huge * usual
        if not enough or count > len(series) // 4 or (tall[1:] & tall[:-1]).sum() > max(1, count // 3):
            return None
        if self._tall_too(view, "policy/entropy", series, tall, 1.5):
            return None
        first = int(series.steps[tall][0])
        since = outcome(view, first)
        pulled = self._steers(view) and self._tall_too(view, "optim/grad_norm", series, tall, 3.0)
        severity: Severity = "warn" if pulled and since is not None and not since.paid else "info"
        highest = float(series.values.max())
        return self.finding(
            view, severity, first,
            f"{count} of {len(series)} rows have a KL of up to {highest:.3g} nats/token between rows of"
            f" {usual:.3g}: a few tokens dominate the"
            f" estimate{', and the gradient spikes with them' if pulled else ''}",
            metric="policy/kl_ref", baseline=usual, now=highest,
        )  # fmt: skip

    @staticmethod
    def _steers(view: RunView) -> bool:
        """Whether the penalty has any weight, as far as the run states."""
        return (view.latest("control/beta") or 0) > 0 or bool(view.config("beta", view.config("policy.beta")))

    @staticmethod
    def _tall_too(view: RunView, name: str, series: Series, tall: np.ndarray, times: float) -> bool:
        """Another metric stands out in most of the same rows."""
        other = view.series(name).last(60).finite()
        if len(other) < 20:
            return False
        high = np.isin(series.steps[tall], other.steps[other.values > times * median(other.values)])
        return bool(high.mean() > 0.6)
