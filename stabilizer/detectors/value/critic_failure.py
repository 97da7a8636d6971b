"""Critic failure: the value function no longer predicts the rewards of answers."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import median
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import Departure, departure
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.worth import levels, unheard_of, worth
from stabilizer.runs.history import RunView

EXPLAINED, LOSS, PULL = "value/explained_variance", "value/loss", "value/grad_norm"
FAR = 500
"""Most rows looked back on."""


@dataclass(frozen=True, kw_only=True)
class CriticFailure(Detector):
    """The critic is no better than a constant after its time to learn, has unlearned, or its loss exploded.

    Signature
        Explained variance, as a median: at most 0 over `window` rows after `patience` rows, and no longer rising (never
        learned), or at most 0 over the `gone` newest rows after it had held `knew` over `window` (unlearned). Where
        only the loss is logged, or before the variance shows it: value loss at least `exploded` times what its trend
        predicts, and more than the spread of rewards explains. `warn` when accuracy (the reward where accuracy is not
        logged) gained nothing meanwhile, `critical` when it has fallen, `info` while it gains.

    Why it matters
        Below zero the critic adds noise to every advantage instead of removing it, with the same sign for all tokens of
        a kind. Answers grow or shrink for no reason, and the critic's errors move the policy.

    Look-alikes
        A low explained variance in the first `patience` rows, or one that still rises: the critic learns, slowly where
        few rewards are above 0. A solved task, where returns hardly vary and there is nothing to explain. A reward that
        became active or was rescaled raises the loss by the square of its spread. One bad batch does not move a median
        of `gone` rows.

    False alarms
        A task whose outcome no critic can predict (one token decides) stays near zero permanently and may be trained
        without a critic.

    Remedies
        `roll-back` when the reward fell, `lower-lr` when the critic's gradient grew too. Manually: train the critic
        alone for some steps, give it its own learning rate, value clipping, lambda 1 for its returns; or use GRPO,
        which has no critic.

    References
        VC-PPO (arXiv 2503.01491) on value pretraining; Andrychowicz et al. 2020 (arXiv 2006.05990) on value losses.
    """

    id = "value/critic-failure"
    needs = (f"{EXPLAINED}|{LOSS}|{PULL}",)
    confirm = 3

    window: int = 15
    """Rows in the level of explained variance that it had ..."""
    gone: int = 9
    """... and in the newest level, which shows that it is lost."""
    patience: int = 100
    """Rows the critic gets to become better than a constant."""
    learns: float = 0.2
    """Explained variance below 0 that, if it is halved within `patience` rows, shows that the critic still learns."""
    knew: float = 0.3
    """Explained variance, held for `window` rows, from which a fall to 0 is a loss."""
    exploded: float = 4.0
    """Factor over the expected value loss."""

    def check(self, view: RunView) -> Finding | None:
        loss = next((name for name in (LOSS, PULL) if name in view), None)
        jump = departure(view, loss, up=True) if loss else None
        seen = self._blind(view) or (self._exploded(view, loss, jump) if loss and jump else None)
        if seen is None:
            return None
        name, before, now, onset, words = seen
        verdict, reward = worth(view, onset), progress(view)
        fate = verdict.verdict if verdict else "unsure"
        if (reward is not None and reward.solved) or self._nothing_to_explain(view):
            return None
        severity: Severity = "critical" if fate == "lost" else "warn" if fate == "flat" else "info"
        return self.finding(
            view, severity, onset, words + (f"; {verdict.words}" if verdict else ""),
            metric=name, baseline=before, now=now,
        )  # fmt: skip

    def _blind(self, view: RunView) -> tuple[str, float, float, int, str] | None:
        """(metric, before, now, onset, words) when explained variance is lost or was never reached."""
        series = view.series(EXPLAINED)
        recent = series.last(self.gone).finite()
        if len(series) < self.window or len(recent) < self.gone or recent.values[-1] > 0.1:
            return None
        now = median(recent.values)
        if now > 0:
            return None
        past = series.last(FAR).finite()
        if len(past) < self.window:
            return None
        smooth = levels(past, self.window)
        if float(smooth.max()) >= self.knew:
            best = float(smooth.max())
            good = (levels(past) > best / 2).nonzero()[0]
            onset = int(past.steps[min(int(good[-1]) + 3, len(past) - 1)]) if len(good) else int(past.steps[0])
            return EXPLAINED, best, now, onset, f"explained variance fell to {now:.2g} from {best:.2g} at step {onset}"
        first = int(series.steps.searchsorted(view.baseline_start()))
        if len(series) - first < self.patience or smooth[-1] > 0:
            return None
        lately = smooth[-(self.patience - self.window) :]
        if float(lately.max()) > 0.05 or min(2 * smooth[-1], -self.learns) > lately[0]:
            return None
        onset = int(series.steps[first])
        words = (
            f"explained variance is {now:.2g} after {len(series) - first} rows: the critic is no better than a constant"
        )
        return EXPLAINED, 0.0, now, onset, words

    def _exploded(self, view: RunView, name: str, jump: Departure) -> tuple[str, float, float, int, str] | None:
        new = unheard_of(view.series(name), jump.onset_step, jump.expected, jump.now)
        if jump.rows < 5 or not new or jump.ratio < self.exploded * self._by_reward(view, jump.onset_step):
            return None
        words = (
            f"{name} is {jump.now:.3g}, {jump.ratio:.1f} times what its trend before step {jump.onset_step} predicts"
        )
        return name, jump.expected, jump.now, jump.onset_step, words

    @staticmethod
    def _by_reward(view: RunView, onset: int) -> float:
        """Growth of the square of the reward's spread: an error in reward squared grows with it."""
        for name in ("reward/std", "reward/std_group"):
            spread = view.series(name)
            was, now = level(spread.between(0, onset - 1).last(20).finite(), 20), level(spread.last(10).finite(), 10)
            if was > 0 and now > was:
                return (now / was) ** 2
        return 1.0

    @staticmethod
    def _nothing_to_explain(view: RunView) -> bool:
        """Whether rewards are almost equal, so that returns do not vary: a ratio of two zeros means nothing."""
        groups = view.series("reward/zero_std_frac").last(10).finite()
        if view.latest("batch/group_size") != 1 and len(groups) and level(groups, 10) >= 0.9:
            return True  # an answer alone never differs from its group
        for name in ("reward/std", "reward/std_group"):
            spread = view.series(name).last(200).finite()
            if len(spread) >= 10:
                return level(spread, 10) < 0.1 * float(spread.values.max())
        return False
