"""Reward hacking: the reward rises, and what it stands for does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stabilizer.core.metrics import means_right
from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import mean, step_noise, trend
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.progress import progress
from stabilizer.detectors.reward.scale_shift import components
from stabilizer.runs.history import RunView, Series


class _Split(NamedTuple):
    """What a witness metric did since its best, while the reward rose by `gain`."""

    severity: Severity
    step: int
    before: float
    after: float
    gain: float
    witness: str
    """The metric that did not rise with the reward."""
    did: str
    """What it did, in words."""


@dataclass(frozen=True, kw_only=True)
class Hacking(Detector):
    """The training reward rises while held-out accuracy, or the share of correct answers, falls.

    Signature
        The witness is `accuracy/val`, or `accuracy/train` where the reward is not the same number. Its newest values
        lie below its best ones by `fall` or more and beyond sqrt(2 ln(n^2 / `alpha`)) of their standard errors, a
        boundary that stays valid when checked after each of its n values. The reward rose from one to the other by 4
        standard errors. Critical when a quarter of the accuracy is gone.

        Generalisation gap: over 8 validations the training accuracy gained `gap`, while held-out accuracy, by now
        behind it by half of `gap`, clearly gained less than a quarter of that.

        Never correct: a reward without logged components has grown by `grew` of its level and 4 standard errors, while
        at most `floor` of the answers have been correct, from first to last and by the interval of their trend: `info`
        for `patience` steps, then `warn`.

        Hints: `info` where the fall exceeds 3 standard errors and the rise 2, short of the above, or where among a
        handful of validations the newest two are lower than the best two by `dive` of them. Where the components of the
        reward are logged: those for form have grown by `grew` of their level and 4 standard errors, while the one whose
        name says that it pays for correct answers shows no gain over the run and clearly gained less: `info`, and
        `warn` where it falls.

    Why it matters
        The policy is rewarded for something unintended: length, a format, a hole in the verifier, or memorised training
        problems. Every further step makes it better at that.

    Look-alikes
        Training answers are sampled and held-out ones greedy: that is a constant difference, and only changes count
        here. Honest generalisation gains less than training does, but it gains. The noise of a small validation set is
        in the standard error. A format that is learned first raises the reward while accuracy is flat; it does not
        lower accuracy, and accuracy follows. Where components are logged, `reward/component-dominance` judges them.

    False alarms
        Held-out problems of another kind, which lose what training no longer needs. Partial credit on problems so hard
        that the first correct answer takes longer than `patience`.

    Remedies
        `roll-back` to the best held-out accuracy; `check-reward` (read the samples with the highest reward);
        `raise-beta` holds the policy near what it was. Manually: stop early; use more or fresh problems when they were
        memorised.

    References
        Gao et al. 2022 (arXiv 2210.10760) on proxy and gold reward; Howard et al. 2021 (arXiv 1810.08240) on boundaries
        valid at any time.
    """

    id = "reward/hacking"
    needs = ("reward/mean|accuracy/train", "accuracy/val|accuracy/train")

    alpha: float = 0.01
    """Probability of a false fall over a whole run with honest noise."""
    handful: tuple[int, int] = (4, 12)
    """Fewest and most validations for which an apparent fall is reported ..."""
    dive: float = 0.25
    """... by this share of the best."""
    fall: float = 0.05
    """Fall of an accuracy that matters."""
    floor: float = 0.03
    """Share of correct answers that counts as almost none."""
    grew: float = 0.3
    """Share of its level by which the reward must have grown meanwhile."""
    patience: int = 100
    """Steps that correct answers get to follow a shaped reward."""
    pieces: int = 15
    """Rows of the reward's components from which one can be called learned in place of another."""
    slight: float = 0.05
    """Share of the others' gain that counts as none."""
    gap: float = 0.2
    """Gain of training accuracy of which held-out accuracy should show some."""

    def check(self, view: RunView) -> Finding | None:
        reward = progress(view)
        if reward is None or reward.dropped or reward.rows < self.pieces:
            return None
        paid, found = view.series(reward.metric), None
        if reward.rows >= 2 * self.pieces:
            found = self._held_out(view, paid) or self._own_accuracy(view, paid) or self._never_right(view, paid)
        found = found or self._form_alone(view)
        if found is None:
            return None
        return self.finding(
            view, found.severity, found.step,
            f"{reward.metric} has risen by {found.gain:.2g} since step {found.step} while {found.witness} {found.did}"
            f" {found.before:.3g} to {found.after:.3g}",
            metric=found.witness, baseline=found.before, now=found.after, reward_gain=found.gain,
        )  # fmt: skip

    def _held_out(self, view: RunView, paid: Series) -> _Split | None:
        held_out = view.series("accuracy/val").between(view.baseline_start(), view.step).last(200).finite()
        if len(held_out) < 5:
            return self._few(held_out, paid)
        noise = max(step_noise(held_out.values), 0.015)
        split = self._fallen(held_out, paid, noise, 1, "accuracy/val") or self._few(held_out, paid)
        if split or len(held_out) < 8 or "accuracy/train" not in view:
            return split
        early, late = held_out.values[:3], held_out.values[-3:]
        gained = float(late.mean() - early.mean()) + 2 * noise * math.sqrt(2 / 3)
        train = view.series("accuracy/train")
        since = int(held_out.steps[1])
        at, now = (part.last(60).finite().values[-20:] for part in (train.between(0, since), train))
        gain = float(now.mean() - at.mean()) if len(at) >= 5 else 0.0
        if gain < self.gap or gained > gain / 4 or now.mean() - late.mean() < self.gap / 2:
            return None
        return _Split("warn", since, float(early.mean()), float(late.mean()), gain, "accuracy/val", "lagged behind:")

    def _few(self, held_out: Series, paid: Series) -> _Split | None:
        """Among a handful of validations, the newest are far below the best two neighbours while the reward is
        above: too few for a test, too obvious to leave out."""
        values = held_out.values
        if not self.handful[0] <= len(values) <= self.handful[1]:
            return None
        pairs = (values[1:] + values[:-1]) / 2
        top = int(np.argmax(pairs[:-2])) + 1  # the later of the two
        after, before = values[top + 1 :], float(pairs[top - 1])
        now = mean(after[-2:])
        if len(after) < 2 or before - now < max(2 * self.fall, self.dive * before) or max(after[-2:]) > before:
            return None
        then, newest = (part.last(20).finite().values for part in (paid.between(0, int(held_out.steps[top])), paid))
        if min(len(then), len(newest)) < 5:
            return None
        gain = mean(newest) - mean(then)
        if gain <= 3 * max(step_noise(then), step_noise(newest)) * math.sqrt(2 / len(then)):
            return None
        return _Split("info", int(held_out.steps[top]), before, now, gain, "accuracy/val", "fell from")

    def _own_accuracy(self, view: RunView, paid: Series) -> _Split | None:
        """The reward is more than accuracy, and the two diverge."""
        if "reward/mean" not in view or "accuracy/train" not in view:
            return None
        paid, solved = paid.last(400), view.series("accuracy/train").last(400)
        if len(paid) != len(solved) or len(paid) < 40 or np.array_equal(paid.values[-5:], solved.values[-5:]):
            return None
        first = int(paid.steps.searchsorted(view.baseline_start()))
        width = min(30, (len(paid) - first) // 8)
        blocks = (len(paid) - first) // width if width >= 5 else 0
        rows = solved.values[len(solved) - blocks * width :]
        if not blocks or not np.isfinite(rows).all():
            return None
        means = Series(
            solved.steps[-blocks * width :].reshape(blocks, width)[:, -1], rows.reshape(blocks, width).mean(1)
        )
        if means.values.max() - means.values[-1] < self.fall:
            return None
        noise = max(step_noise(rows) / math.sqrt(width), step_noise(means.values))
        return self._fallen(means, paid, noise, width, "accuracy/train")

    def _never_right(self, view: RunView, paid: Series) -> _Split | None:
        """A reward without components was learned, and almost no answer was correct from the first row to the last."""
        if "reward/mean" not in view or len(components(view)) > 1:
            return None  # logged components are judged by `reward/component-dominance`
        start = view.baseline_start()
        for name, least in (("accuracy/val", 8), ("accuracy/train", 60)):
            right = view.series(name).between(start, view.step).last(400).finite()
            if len(right) < least or not right.values.max() < 2 * self.fall or right.steps[-1] < view.step - 100:
                continue
            third = len(right) // 3
            whole, head, tail = trend(right.values), mean(right.values[:third]), mean(right.values[-third:])
            if max(head, tail, whole.high) > self.floor:
                continue
            since = paid.between(int(right.steps[0]), view.step).finite().values
            rows = min(20, len(since) // 3)
            if rows < 5:
                return None
            was, now = mean(since[:rows]), mean(since[-rows:])
            noise = max(step_noise(since[:rows]), step_noise(since[-rows:])) * math.sqrt(2 / rows)
            if now - was <= max(4 * noise, self.grew * abs(now)):
                return None
            young = view.step - max(start, int(paid.steps[0])) < self.patience
            return _Split(
                "info" if young else "warn", int(right.steps[0]), head, tail, now - was, name, "never left its floor:"
            )
        return None

    def _form_alone(self, view: RunView) -> _Split | None:
        """The components for form were learned, and the one for correct answers shows no gain."""
        names = components(view)
        right = next((name for name in names if means_right(name)), None)
        if right is None or len(names) < 2 or len(view.series(right)) < self.pieces:
            return None
        start = view.baseline_start()
        series = view.series(right).between(start, view.step).last(500).finite()
        head, tail = max(5, len(series) // 8), max(5, len(series) // 4)
        if len(series) < self.pieces:
            return None
        change = trend(series.values)
        error = (change.high - change.change) / 1.96
        gained, doubt, now = 0.0, 0.0, 0.0
        for name in names:
            values = view.series(name).between(start, view.step).last(500).finite().values
            if name == right or means_right(name) or len(values) != len(series):
                continue
            first, last = values[:head], values[-tail:]
            gained += mean(last) - mean(first)
            now += abs(mean(last))
            noise = max(step_noise(first), step_noise(last))
            doubt += noise * noise * (1 / head + 1 / tail)
        if gained <= max(4 * math.sqrt(doubt), self.grew * now) or change.high > gained:
            return None
        if change.change > max(error / 2, self.slight * gained):
            return None
        early = view.step - int(series.steps[0]) < self.patience
        was, level = mean(series.values[:head]), mean(series.values[-tail:])
        severity: Severity = "warn" if change.falling and not early else "info"
        return _Split(severity, int(series.steps[0]), was, level, gained, right, "gained nothing:")

    def _fallen(self, witness: Series, paid: Series, noise: float, width: int, name: str) -> _Split | None:
        """A fall of the witness from its best, beyond its boundary, since which the reward rose."""
        values, count = witness.values, len(witness)
        if float(values.max() - values[-5:].mean()) < self.fall:
            return None
        span = max(3, count // 8)
        smooth = np.convolve(values, np.ones(span) / span, "valid")
        top = int(np.argmax(smooth)) + span // 2
        after = values[max(top + span // 2 + 1, count - max(5, 2 * span)) :]
        before = float(smooth.max())
        if len(after) < 2 or before - float(after.mean()) < self.fall:
            return None
        error = noise * math.sqrt(1 / span + 1 / len(after))
        now, boundary = float(after.mean()), math.sqrt(2 * math.log(count * count / self.alpha))
        if before - now < 3 * error:
            return None
        sure = before - now >= boundary * error
        rows = max(20, width)
        before_top = paid.between(0, int(witness.steps[top]))
        then, newest = (part.last(3 * rows).finite().last(rows) for part in (before_top, paid))
        if min(len(then), len(newest)) < 5:
            return None
        gain = float(newest.values.mean() - then.values.mean())
        doubt = max(step_noise(then.values), step_noise(newest.values)) * math.sqrt(2 / len(then))
        if gain <= 2 * doubt:
            return None
        sure = sure and gain > 4 * doubt
        severity: Severity = "info" if not sure else "critical" if before - now > before / 4 else "warn"
        return _Split(severity, int(witness.steps[top]), before, now, gain, name, "fell from")
