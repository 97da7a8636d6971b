"""Gradient explosion: the gradient norm rises above its level and stays there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import LAG, MINIMUM, finite, median
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import FIRST, HOLD, NEWEST, change_step, creep, departure
from stabilizer.detectors.evidence.progress import LEVEL, Progress, level, progress
from stabilizer.detectors.evidence.since import outcome, since_first
from stabilizer.runs.history import RunView, Series

ZERO = 1e-9
"""Gradient norm that counts as zero: growth after a start without any reward is no explosion."""
EARLY = 40
"""First rows of a run, in which there is no lagged reference yet."""
WARM = 10
"""Rows the CUSUM may need to see what the first rows already show."""


@dataclass(frozen=True, kw_only=True)
class GradExplosion(Detector):
    """The pre-clip gradient norm is above the level that its own past predicts, and stays there.

    Signature
        The gradient norm has risen above its trend (`departure`: a CUSUM on the logarithm against a lagged window of
        its own past). The medians of the last 5 rows and of up to 10 rows since the onset are at least `material` times
        the expected value. While the run is too young for that window, the first rows are the reference and the rise
        must be at least `young` times. A rise to `orders` times the first 5 rows within the first 40 rows counts for
        200 rows, because every later window contains only the explosion.

        Severity follows the damage. `info`: everything else is calm. `critical`: the reward has fallen. `warn` in any
        of these cases: the swings grow and the clip fraction has left its usual range; the norm is `driven` times its
        trend while the clip fraction, the KL of a step or the learning rate rose too and the reward does not rise
        (`grown` times is enough when the reward is no higher than before); the norm rose to `stepped` times its trend
        within two rows and stays there while the spread of rewards is unchanged; or the first rows grew by `orders` and
        the reward is no better than before.

        A climb that is too slow to leave its own trend is `info` once a run of `slow` rows is at `material` times the
        level of its first 80 rows.

    Why it matters
        Clipping limits the size of the gradient but not its direction. Updates dominated by a few extreme tokens can
        wreck a policy within tens of steps, and the weights are damaged before the reward shows it.

    Look-alikes
        A slow creep over thousands of steps with a rising reward is common and harmless (TRL issue 2980): `info`, and
        no action is taken. Shorter answers raise the norm (a mean over fewer tokens), and so does a KL term that is
        switched on. A run that starts without any spread of rewards has almost no gradient until it finds some; growth
        from there is learning. One outlier does not move a median of 5. The logged norm is the one before clipping, so
        a value far above `max_grad_norm` does not mean that clipping is broken.

    False alarms
        Undeclared changes of data or batch size shift the level. Declared events start a new reference, and a shift
        that lasts 200 rows becomes the new normal.

    Remedies
        `lower-lr`; `roll-back` once the reward has fallen; `raise-beta` when nothing holds the policy. Manually: a
        narrower clip range or fewer passes over a batch.

    References
        The lagged, autocorrelation-aware CUSUM is described in `departure.py`; verl's FAQ on rising gradients and
        rollout mismatch; ZClip (arXiv 2504.02507) for spikes.
    """

    id = "optim/grad-explosion"
    needs = ("optim/grad_norm",)

    material: float = 2.0
    """Factor over the predicted norm below which a shift is not reported."""
    young: float = 5.0
    """Factor over the first rows that is required while there is no lagged reference."""
    driven: float = 4.0
    """Factor over the predicted norm that is a warning where the steps have grown too ..."""
    grown: float = 2.5
    """... and where, in addition, the reward is no higher than it was."""
    stepped: float = 4.0
    """Factor over the predicted norm that is a warning where it was reached between two rows."""
    orders: float = 30.0
    """Factor over the first 5 rows that no healthy start reaches."""
    sinks: float = 0.9
    """Share of the level of the rows before, under which a norm falls and does not climb."""
    slow: int = 300
    """Rows below which a climb is called growth of a young run."""

    def check(self, view: RunView) -> Finding | None:
        series = view.series("optim/grad_norm")
        early = self._at_once(view, series)
        left = early or self._departed(view, series)
        if left is None:
            return self._crept(view, series)
        onset, baseline, now = left
        reward, scaled = progress(view), False
        harm = bool(reward and reward.dropped and not reward.rising and reward.drop_step >= onset - 20)
        since = since_first(view, onset) if early and reward and not (reward.rising or reward.solved) else None
        severity: Severity
        if reward and harm:
            severity = "critical"
            judgement = f"and {reward.metric} has fallen from {reward.best:.3g} to {reward.now:.3g}"
        elif since and not since.paid:
            severity = "critical" if since.fell else "warn"
            judgement = f"and {since.metric} went from {since.before:.3g} to {since.now:.3g}"
        elif self._restless(view, series):
            severity, judgement = "warn", "with growing swings and a clip fraction above its usual range; no harm yet"
        elif now >= self.grown * baseline and (
            steps := self._steps_grow(view, reward, onset, now < self.driven * baseline)
        ):
            severity, judgement = "warn", f"and {steps} as well; no harm yet"
        elif now >= self.stepped * baseline and self._rescaled(view, onset, baseline):
            severity, judgement = "warn", "within two rows, while the spread of rewards is unchanged"
            scaled = True
        elif reward and reward.dropped:
            return None  # the policy is already ruined: other detectors report what matters
        else:
            severity, judgement = "info", "while everything else is calm; harmless by itself"
        return self.finding(
            view, severity, onset,
            f"gradient norm (before clipping) is {now:.3g}, {now / baseline:.1f} times its level before step {onset}"
            f" ({baseline:.3g}), {judgement}",
            metric="optim/grad_norm", baseline=baseline, now=now, **({"rescaled": True} if scaled else {}),
        )  # fmt: skip

    def _at_once(self, view: RunView, series: Series) -> tuple[int, float, float] | None:
        """(onset, level before, level now) when the first rows grew by orders of magnitude and had a signal to learn
        from."""
        first = int(series.steps.searchsorted(view.baseline_start()))
        if not MINIMUM // 2 <= len(series) - first <= HOLD or not series.values[-1] > ZERO:
            return None
        fresh = series.last(len(series) - first).finite()
        if len(fresh) < MINIMUM // 2:
            return None
        baseline, now = median(fresh.values[:LEVEL]), level(fresh)
        if not now >= self.orders * baseline > ZERO:
            return None
        silent = view.series("reward/zero_std_frac").between(int(fresh.steps[0]), view.step).values[:LEVEL]
        spread = view.series("reward/std_group").between(int(fresh.steps[0]), view.step).values[:LEVEL]
        if not (len(silent) or len(spread)) or (silent >= 0.9).any() or (spread <= ZERO).any():
            return None
        row = int(np.argmax(fresh.values >= np.sqrt(baseline * now)))
        return (int(fresh.steps[row]), baseline, now) if row < EARLY else None

    def _departed(self, view: RunView, series: Series) -> tuple[int, float, float] | None:
        """(onset, level before, level now) of a material rise, from the first rows on."""
        left = departure(view, "optim/grad_norm", up=True)
        if left is not None:
            now = level(series.last(min(left.rows, 2 * LEVEL)).finite(), 2 * LEVEL)
            known = left.expected > ZERO and min(now, left.now) >= self.material * left.expected
            return (left.onset_step, left.expected, left.now) if known else None
        first = int(series.steps.searchsorted(view.baseline_start()))
        if not 8 <= len(series) - first < MINIMUM + LAG + WARM:
            return None
        fresh = series.last(len(series) - first).finite()
        if len(fresh) < 8:
            return None
        baseline, now = median(fresh.values[: max(5, min(20, len(fresh) - 3))]), level(fresh)
        return (int(fresh.steps[-3]), baseline, now) if now >= self.young * baseline > 0 else None

    def _crept(self, view: RunView, series: Series) -> Finding | None:
        """A slow climb since the first rows, in a run whose reward is not lower for it."""
        moved = creep(view, "optim/grad_norm") if len(series) >= self.slow else None
        if moved is None or not moved.clear or not moved.now >= self.material * moved.start > ZERO:
            return None
        before = finite(series.values[-2 * NEWEST : -NEWEST])
        if not len(before) or moved.now < self.sinks * median(before):
            return None  # it comes down from a peak
        first = series.between(view.baseline_start(), view.step).values[:FIRST]
        silent = view.series("reward/zero_std_frac").values[:FIRST]
        reward = progress(view)
        if len(first) < FIRST or (len(silent) and median(silent) >= 0.9) or (reward and reward.dropped):
            return None
        was, now = (float(np.subtract(*np.nanpercentile(rows, (95, 5)))) for rows in (first, series.values[-NEWEST:]))
        return self.finding(
            view, "info", change_step(series, "positive"),
            f"gradient norm (before clipping) has crept from {moved.start:.3g} in the first rows to {moved.now:.3g},"
            f" its swings from {was:.2g} to {now:.2g}, and nothing is harmed by it",
            metric="optim/grad_norm", baseline=moved.start, now=moved.now, crept=True,
        )  # fmt: skip

    @staticmethod
    def _steps_grow(view: RunView, reward: Progress | None, onset: int, doubtful: bool) -> str:
        """The measure of step size that rose as well, in words, in a run whose reward does not rise; else empty."""
        since = outcome(view, onset)
        if reward is None or reward.rising or reward.solved or since is None or since.paid:
            return ""
        if doubtful and since.now > since.before:
            return ""
        for name, least in (("policy/clip_frac", 0.01), ("policy/kl_old", 0.001), ("optim/lr", 0.0)):
            moved = departure(view, name, up=True) if name in view else None
            if moved and moved.now >= max(1.6 * moved.expected, moved.expected + least):
                return f"{name} grew from {moved.expected:.2g} to {moved.now:.2g}"
        return ""

    @staticmethod
    def _rescaled(view: RunView, onset: int, baseline: float) -> bool:
        """Whether the norm rose within two rows and is steady since, while the spread of rewards and the number of
        prompts are unchanged. Advantages or the loss are then on another scale."""
        series = view.series("optim/grad_norm").last(HOLD).finite()
        at = int(series.steps.searchsorted(onset))
        then, new = series.values[max(0, at - 20) : at], series.values[at + 1 :]
        if len(then) < LEVEL or len(new) < 2 * LEVEL or then.max() > new.min() or new.min() < 2 * baseline:
            return False
        first, last = median(new[:LEVEL]), median(new[-LEVEL:])
        if max(first, last) > 2 * min(first, last):
            return False
        seen = 0
        for name, most in (("reward/std_group", 1.5), ("reward/std", 1.5), ("batch/prompts", 1.0)):
            rows = view.series(name)
            before, since = rows.between(0, onset - 1).last(20).finite(), rows.between(onset, view.step).finite()
            if len(before) >= LEVEL and len(since) >= LEVEL:
                seen += name != "batch/prompts"
                was, now = median(before.values), median(since.values)
                if now > most * was or now * most < was:
                    return False
        return seen > 0

    @staticmethod
    def _restless(view: RunView, series: Series) -> bool:
        """Whether the swings of the logarithm grew by half and more than twice as many tokens are clipped as before."""
        logs = np.log(np.maximum(series.last(120).finite().values, 1e-12))
        clip = view.series("policy/clip_frac").last(120).finite().values
        if len(logs) < 60 or len(clip) < 60:
            return False
        swings = np.std(np.diff(logs[-20:])) > 1.5 * np.std(np.diff(logs[:-20]))
        was, now = median(clip[-100:-20]), median(clip[-20:])
        return bool(swings and now > max(2 * was, was + 0.05))
