"""Entropy collapse: the policy becomes near-deterministic before it has learned the task."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import step_noise
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, scaled
from stabilizer.detectors.evidence.progress import LEVEL, LEVEL_SHARE, level, progress
from stabilizer.detectors.evidence.since import YOUNG, began, gained_nothing, outcome, slowed, stalled, steady
from stabilizer.detectors.evidence.stagnation import stagnation
from stabilizer.detectors.evidence.worth import GUARDS, unheard_of
from stabilizer.detectors.reward.component_dominance import unearned
from stabilizer.runs.history import RunView, Series


@dataclass(frozen=True, kw_only=True)
class EntropyCollapse(Detector):
    """Token entropy has fallen far below its early level or its recent trend, and the reward gained nothing by it.

    Signature
        The median of the last 5 entropies is under `fraction` of normal. Normal is the median of the run's first
        `baseline` rows (frozen, because a moving baseline would follow the decline), or, where higher, what the rows
        before a sudden fall predict (`departure`). The task is not solved. The reward has not risen since the fall
        began, up to `recent` rows ago, or is known to be flat (`stagnation`): `warn`.

        Less is enough with other evidence. A fall to a `third` of its trend is enough if the reward gained nothing in
        `answer` rows; it is `info` while a gain cannot be told from chance (two standard errors). A fall to `half` is
        enough if the reward has fallen, or has lost the pace at which it rose before the fall (`since.slowed`).
        `critical` when the reward lost what it had gained.

        A fall under `little` of normal, or of the first 5 rows, is `info` when only this is known: the newer half of
        the run shows no gain (`Progress.idle`), or a young run shows none since the fall (`since.stalled`). In a log of
        15 to 100 rows, a steady fall to half is `info` while the reward has gained nothing, or only
        through one component while another stays at its floor; it is `warn` where the reward falls too. In a log
        without any reward, a fall to `fraction` is `info`.

    Why it matters
        Without variety, every answer to a prompt is the same, groups have no spread, and group-relative advantages
        vanish. The policy can no longer find anything better than what it does.

    Look-alikes
        Entropy that falls while the reward rises, however slowly, is convergence. A solved task is near-deterministic
        and should be. Tasks with one correct wording (code, tool calls) have low entropy from the first step: only the
        fall counts, and it must be at least `material` nats. A reward that pauses on its way up is not stuck.

    False alarms
        A plateau at a ceiling below 1 that nobody declared looks the same from here.

    Remedies
        `raise-entropy`. Manually: a wider upper clip range, a higher sampling temperature. After a fall of the reward:
        `roll-back`.

    References
        Cui et al. 2025 (arXiv 2505.22617) on reward bought with entropy; DAPO (arXiv 2503.14476) for clip-higher.
    """

    id = "policy/entropy-collapse"
    needs = ("policy/entropy", "reward/mean|accuracy/train")

    baseline: int = 20
    """First rows that define this run's normal entropy (a third of the rows while the run is young)."""
    fraction: float = 0.25
    """Share of the normal entropy under which it has collapsed."""
    half: float = 0.5
    """Share under which it has collapsed if the reward fell with it."""
    little: float = 0.35
    """Share under which it is reported as information while the newer half of the run shows no gain."""
    material: float = 0.03
    """Nats per token of fall below which nothing is reported."""
    clear: float = 4.0
    """Standard deviations of a level, in the logarithm, by which it must have fallen."""
    third: float = 0.33
    """Share of its trend under which it has collapsed, where a sudden fall brought the reward nothing ..."""
    answer: int = 10
    """... in this many rows."""
    before: int = 60
    """Rows before a fall that is younger in which few rows may have been as low, as in `unheard_of`."""
    recent: int = 150
    """Rows over which a fall is compared with the reward; later, only a reward that is known to be flat counts."""

    def check(self, view: RunView) -> Finding | None:
        return self.confirmed(self._collapsed(view), view, self._collapsed) or self._falling(view)

    def _collapsed(self, view: RunView) -> Finding | None:
        series = view.series("policy/entropy")
        if len(series) < 10:
            return None
        first = int(series.steps.searchsorted(view.baseline_start()))
        end = first + min(self.baseline, max(6, (len(series) - first) // 3))
        normal = level(series.part(first, end).finite(), self.baseline)
        now = level(series.last(50).finite())
        moved = departure(view, "policy/entropy", up=False)
        began_at = max(normal, level(series.part(first, first + LEVEL).finite()))  # it may fall from the first row
        highest = max(began_at, 1.5 * moved.expected) if moved else began_at
        if not now <= min(self.half * highest, highest - self.material):
            return None
        noise = LEVEL_SHARE * step_noise(scaled(series.part(first, end).finite().values, "positive"))
        if now > 0 and math.log(highest / now) < self.clear * noise:
            return None  # as when a step has few answers, and its entropy is anything
        reward = progress(view)
        if reward is None:
            return self._unjudged(view, series, began_at, now)
        if reward.solved or (reward.rising and reward.rows > YOUNG):
            return None
        long_ago = (
            len(series) > self.recent + 10 and series.values[-self.recent - 5 : -self.recent].max() < now / self.half
        )
        if long_ago and not reward.dropped and not reward.idle and stagnation(view) is None:
            return None  # the fall is old, and there is no evidence of harm
        onset = began(series, "positive")
        if moved:
            normal = max(normal, level(series.between(0, onset).last(20).finite(), 20))
        began_at = max(began_at, normal)
        if not 0 < began_at >= max(now / self.half, now + self.material):
            return None
        rows = len(series) - int(series.steps.searchsorted(onset))
        if rows < self.before and not unheard_of(series.last(rows + self.before), onset, began_at, now):
            return None  # rows of a few answers are as low now and then
        late = stalled(view, onset) if now <= self.little * began_at else None
        if reward.rising and late is None:
            return None
        known = min(10, max(LEVEL, (len(series) - first) // 3))  # rows that the later ones are compared with
        since = outcome(view, max(onset, int(series.steps[min(first + known, len(series) - 1)])))
        recent = since if since is not None and since.rows <= self.recent else None
        expected = moved.expected if moved else -math.inf
        answered = recent if recent and recent.rows >= self.answer and now <= self.third * expected else None
        lost = reward.dropped and (since is None or not since.paid)
        if now <= self.fraction * normal:
            stands = lost or bool(recent and not recent.paid) or stagnation(view) is not None
        elif now > self.half * normal:
            stands = False
        elif answered:
            stands = not answered.paid
        else:
            stands = bool(recent and recent.fell)
            stands = stands or bool(recent and slowed(view, onset))
        hardly = answered if answered and answered.now - answered.before <= 2 * answered.error else None
        stands = stands and not reward.rising
        if not stands:
            if not hardly and not late and not (reward.idle and now <= self.little * began_at):
                return None
            normal = expected if hardly else began_at
        normal = normal or began_at  # no row before the onset
        severity: Severity = "critical" if lost else "warn" if stands else "info"
        fate = f"has fallen to {reward.now:.3g}" if lost else f"is not rising ({reward.now:.3g})"
        if not stands and hardly:
            severity, fate = "info", f"has hardly changed so far ({hardly.before:.3g} to {hardly.now:.3g})"
        elif not stands and late:
            fate = f"has gained nothing since ({late.before:.3g} to {late.now:.3g})"
        elif not stands:
            fate = f"shows no gain over the newer half of the run ({reward.now:.3g})"
        return self.finding(
            view, severity, onset,
            f"token entropy is {now:.3g} nats, {now / normal:.0%} of its normal {normal:.3g}, and {reward.metric}"
            f" {fate}",
            metric="policy/entropy", baseline=normal, now=now,
        )  # fmt: skip

    def _unjudged(self, view: RunView, series: Series, normal: float, now: float) -> Finding | None:
        """Entropy has fallen in a log without any reward, so its benefit cannot be judged."""
        if any(name in view for name in GUARDS) or len(series) < self.baseline or now > self.fraction * normal:
            return None
        return self.finding(
            view, "info", began(series, "positive"),
            f"token entropy is {now:.3g} nats, {now / normal:.0%} of its normal {normal:.3g}; no reward is logged"
            " to judge whether that helped",
            metric="policy/entropy", baseline=normal, now=now,
        )  # fmt: skip

    def _falling(self, view: RunView) -> Finding | None:
        """A log of a few dozen rows in which entropy only falls: a hint, or more where the reward falls too."""
        found, reward = steady(view, "policy/entropy", up=False, material=self.material), progress(view)
        if found is None or reward is None or reward.solved:
            return None
        if alone := view.once(unearned):
            falls, fate = False, f"the whole gain of the reward ({reward.now:.3g}) comes from {alone.top}"
        elif (useless := gained_nothing(view)) is not None:
            falls, fate = useless
        else:
            return None
        return self.finding(
            view, "warn" if falls else "info", found.step,
            f"token entropy has fallen steadily from {found.was:.3g} to {found.now:.3g} nats in {found.rows} rows, and"
            f" {fate}",
            metric="policy/entropy", baseline=found.was, now=found.now,
        )  # fmt: skip
