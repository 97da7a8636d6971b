"""Invariant: something that must hold exactly does not, so the computation does not match the algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import median
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.settings import not_in_force, undeclared
from stabilizer.runs.history import RunView
from stabilizer.trainers.all import TRAINERS

EXACT = (
    "reward/advantage_center_error",
    "policy/ratio_first_error",
    "rollout/sync_error",
    "rollout/weight_version",
    "system/ranks_apart",
)
GROUPS = tuple(trainer.groups for trainer in TRAINERS if trainer.groups)
"""Where trainers configure the size of a group, and the algorithms that compare within it."""
_LOOKED_AT = (
    "reward/advantage_center_error", "policy/ratio_first_error", "policy/mismatch_kl", "rollout/sync_error",
    "batch/group_size", "system/ranks_apart",
)  # fmt: skip
RELATIVE = ("group_std", "group_mean", "batch_std", "leave_one_out", "per_reward")
"""Values of our `policy.advantage` that compare within a group."""

SAME = 1e-6
"""Error below which both sides had the same arithmetic: a few units in the last place of float32."""


class Broken(NamedTuple):
    """One rule that does not hold."""

    severity: Severity
    metric: str
    limit: float
    now: float
    words: str
    onset: int | None = None
    """Step since when, where the rule itself knows."""
    setting: str = ""
    """The metric of a setting that is not what it should be."""


@dataclass(frozen=True, kw_only=True)
class Invariant(Detector):
    """A rule that holds in every correct run does not hold here.

    Signature
        One row is proof for these: a group's mean advantage that is not 0 (`reward/advantage_center_error`, logged only
        where the algorithm centres per group: PPO and whitening over the batch do not); a ratio that is not 1 before
        any weight moved, where the builtin engine generates in float32; a log-probability of the probe that differs
        between engine and learner after a weight transfer, or a transfer that had to be repeated; groups of one answer
        under an algorithm that compares within groups; processes of one training whose knobs differ after a step; an
        engine whose version of the weights (`rollout/weight_version`) goes back.

        In lower or unknown precision, a ratio far from 1 must last for 5 rows, and so must a ratio or probe error that
        is `apart` times the worst of the first 20 rows since the last declared event: precision does not change
        mid-run. Where the group size is not logged: 30 rows since the first in which rewards differ between prompts and
        never within one (`warn`).

        Settings are checked as well (`warn`). In our trainer: a knob that was constant and changed by a quarter or more
        without a declared event (more prompts, answers or tokens are no mistake), for 300 rows or until it is back; or,
        in 3 rows, a rate above the configured peak, fewer prompts, shorter answers, or another weight of KL or entropy
        than the knobs ask for. A foreign log declares nothing, so there a changed knob, or a rate that jumps by half
        after being constant, counts once the reward has fallen or lost its pace. In a foreign trainer that `attach`
        watches, a knob at three times its value, or a third, counts at once, and so does a change from or to 0; knobs
        changed at one step count together.

    Why it matters
        These are bugs and no instabilities: mixed-up group ids, an off-by-one in a mask, stale weights in the engine.
        The reward may still rise for a hundred steps, and then everything since is wasted; no learning rate helps.

    Look-alikes
        Rounding: the limits are 100 times above what correct float32 runs show. bfloat16, mixed precision and vLLM
        round visibly, so their ratio has a loose limit here, and `policy/mismatch` judges their disagreement. Groups
        without spread late in a run mean a converged policy, and early with equal rewards a task that is too hard.
        Neither is proof, so the first rows must have shown it with rewards that differ. Weights that do not move at all
        are `optim/no-update`. PPO with one answer per prompt is correct: it compares with its critic. A schedule that
        moves at every row, an adaptive weight, or a batch that varies with filtering was never constant; a declared
        change is somebody's decision.

    False alarms
        None known for the exact rules. Sampling at temperature 0 on purpose looks like groups of one answer; there is
        nothing to learn from it either.

    Remedies
        `restore-setting` restores a knob that was changed without a declaration; declare the change if it was intended.
        `roll-back` to a checkpoint from before the onset once the bug is fixed; it is no fix by itself. Manually: stop
        and check what the finding names. For advantages: the order in which completions and group ids are joined. For
        the ratio: the shift between tokens and log-probabilities, padding and temperature. For the engine: its log of
        the last weight update. For groups of one: the group size (2 or more, usually 8).

    References
        Search-R1's v0.1 to v0.2 logs (wrong group ids: GRPO degraded, then exploded near step 160); verl issue 2996
        (micro-batches of different size alone move the ratio off 1); DeepSeekMath (arXiv 2402.03300) for the advantage.
    """

    id = "system/invariant"
    needs = ("|".join((*EXACT, "batch/group_size", "reward/std_group", "control/lr_scale", "optim/lr")),)
    confirm = 1

    centre: float = 1e-6
    """Largest mean advantage of a group, in units of the reward's size where that is above 1."""
    ratio: float = 0.01
    """Largest |ratio - 1| before any update, in float32 by the builtin engine (correct runs: 1e-4)."""
    kl: float = 1e-5
    """Largest KL between that engine and the learner with the same weights, nats per token (correct runs: 1e-11)."""
    loose_ratio: float = 1.0
    """Median over 5 rows of |ratio - 1| of the worst token, in any precision."""
    probe: float = 1e-3
    """Nats per token by which the probe may differ in float32; `rollout.vllm.tolerance` takes precedence."""
    loose_probe: float = 0.2
    """The same where engine or learner is not in float32."""
    apart: float = 30.0
    """Multiple of the rounding error in the first rows of the run, never less than the exact limits."""
    silent_rows: int = 30
    """First rows without any spread within groups, while there is one between them, that indicate groups of one."""

    def check(self, view: RunView) -> Finding | None:
        broken = list(self._broken(view))
        if not broken:
            return None
        worst = next((rule for rule in broken if rule.severity == "critical"), broken[0])
        onset = _onset(view, worst) if worst.onset is None else worst.onset
        settings = [rule.setting for rule in broken if rule.setting]
        also = "".join(f"; also: {rule.words}" for rule in broken if rule is not worst)
        return self.finding(
            view, worst.severity, onset, f"{worst.words}, since step {onset}{also}",
            metric=worst.metric, baseline=worst.limit, now=worst.now, rules=len(broken),
            metrics=sorted({rule.metric for rule in broken}),
            **({"settings": settings} if settings else {}),
        )  # fmt: skip

    def _broken(self, view: RunView) -> Iterator[Broken]:
        error, ratio, kl, handed, group, apart = (view.latest(name) for name in _LOOKED_AT)
        if error is not None and error > self.centre:  # NaN is left to another detector
            size = max(1.0, abs(view.latest("reward/mean") or 0.0), view.latest("reward/std_group") or 0.0)
            if error > self.centre * size:
                yield Broken(
                    "critical", "reward/advantage_center_error", self.centre * size, error,
                    f"the advantages of a group average {error:.2g} instead of 0: answers and groups are mixed up",
                )  # fmt: skip
        if ratio is not None and (ratio > self.ratio or kl is not None and kl > self.kl):
            yield from self._ratio(view)
        if handed is not None:
            yield from self._hand_over(view)
        yield from self._version(view)
        if apart:
            yield Broken(
                "critical", "system/ranks_apart", 0.0, apart,
                f"{apart:.0f} {'process has' if apart == 1 else 'processes have'} other settings than the first one",
            )  # fmt: skip
        if group == 1.0 or _alone_by_config(view) or _never_any_spread(view, self.silent_rows):
            yield from self._groups(view)
        for change in undeclared(view):
            yield Broken(
                "warn", change.metric, change.was, change.now,
                f"{change.metric} was changed from {change.was:.4g} to {change.now:.4g} without a declaration",
                change.step, change.metric,
            )  # fmt: skip
        for change in view.once(not_in_force):
            yield Broken(
                "warn", change.metric, change.was, change.now,
                f"{change.metric} is {change.now:.4g} where the settings ask for {change.was:.4g}",
                change.step, change.metric,
            )  # fmt: skip

    def _ratio(self, view: RunView) -> Iterator[Broken]:
        error = view.latest("policy/ratio_first_error")
        if error is None:
            return
        if view.config("precision") == "float32" and view.config("rollout.engine") == "builtin":
            if error > self.ratio:
                yield Broken(
                    "critical", "policy/ratio_first_error", self.ratio, error,
                    f"a token's ratio differs from 1 by {error:.2g} before any weight moved: sampler and learner"
                    " compute different probabilities for the same text",
                )  # fmt: skip
            kl = view.latest("policy/mismatch_kl")
            if kl is not None and kl > self.kl and not view.latest("rollout/staleness"):
                yield Broken(
                    "critical", "policy/mismatch_kl", self.kl, kl,
                    f"sampler and learner differ by a KL of {kl:.2g} nats/token on the same weights in float32",
                )  # fmt: skip
        elif error > self.ratio:
            limit = min(self.loose_ratio, self._rounding(view, "policy/ratio_first_error", self.ratio))
            recent = view.series("policy/ratio_first_error").last(5).values
            if len(recent) == 5 and (typical := median(recent)) > limit:
                yield Broken(
                    "critical", "policy/ratio_first_error", limit, typical,
                    f"a token's ratio differs from 1 by {typical:.2g} before any weight moved, which no precision"
                    " explains",
                )  # fmt: skip

    def _hand_over(self, view: RunView) -> Iterator[Broken]:
        error = view.latest("rollout/sync_error")
        if error is None:
            return
        exact = view.config("precision") == "float32" and view.config("rollout.vllm.dtype", "float32") == "float32"
        told = view.config("rollout.vllm.tolerance")
        limit = told if isinstance(told, (int, float)) else self.probe if exact else self.loose_probe
        if self.probe < error <= limit and not isinstance(told, (int, float)):
            limit = min(limit, self._rounding(view, "rollout/sync_error", self.probe))
            error = median(view.series("rollout/sync_error").last(5).values)
        if error > limit:
            yield Broken(
                "critical", "rollout/sync_error", limit, error,
                f"after the weight transfer the engine's log-probabilities differ by {error:.2g} nats/token"
                f" (limit {limit:g}): it generates with other weights than those being trained",
            )  # fmt: skip
        if retries := view.latest("rollout/sync_retries"):
            yield Broken("warn", "rollout/sync_retries", 0.0, retries, "the weights had to be sent to the engine twice")

    def _version(self, view: RunView) -> Iterator[Broken]:
        """An engine whose weights are older than those it had, as after a restart without a transfer."""
        versions = view.series("rollout/weight_version").between(view.baseline_start(), view.step).finite()
        if len(versions) < 2:
            return
        best, now = versions.values.max(), versions.values[-1]
        if now < best:
            back = int(np.flatnonzero(versions.values == best)[-1]) + 1
            yield Broken(
                "critical", "rollout/weight_version", float(best), float(now),
                f"the engine generates with weights of version {now:.0f} after it had version {best:.0f}: it was"
                " restarted with older weights, or a transfer was lost",
                int(versions.steps[back]),
            )  # fmt: skip

    def _rounding(self, view: RunView, name: str, least: float) -> float:
        """The limit for an error by the first rows that measured one; infinite when there are too few of them.

        An error of 0 comes from one pass that serves both sides, and says nothing about rounding. In low precision so
        does one below `SAME`.
        """
        series = view.series(name)
        values = series.values[int(series.steps.searchsorted(view.baseline_start())) :]
        coarse = view.config("precision") in ("bfloat16", "mixed")
        measured = values[values > (SAME if coarse else 0.0)]
        head = measured[:20]
        enough = len(measured) >= 25 and bool(np.isfinite(head).all())
        return max(least, self.apart * float(head.max())) if enough else np.inf

    def _groups(self, view: RunView) -> Iterator[Broken]:
        if view.latest("batch/group_size") == 1.0 and view.config("policy.advantage") in RELATIVE:
            key = "batch/group_size"
        else:
            key = _alone_by_config(view)
        if key:
            yield Broken(
                "critical", "batch/group_size", 2.0, 1.0,
                f"{key} is 1: an answer has no other in its group to compare with, so advantages are meaningless",
            )  # fmt: skip
        elif _never_any_spread(view, self.silent_rows):
            yield Broken(
                "warn", "reward/std_group", 0.0, 0.0,
                "the answers to one prompt have always had equal rewards while prompts differ: groups of one answer,"
                " or sampling at temperature 0",
            )  # fmt: skip


def _alone_by_config(view: RunView) -> str:
    """The setting that makes groups of one answer where the algorithm compares within groups; empty when none does."""
    return next((key for key, algorithm, names in GROUPS if _alone(view, key, algorithm, names)), "")


def _alone(view: RunView, key: str, algorithm: str, names: tuple[str, ...]) -> bool:
    size = view.config(key)
    return str(size) == "1" and (not algorithm or view.config(algorithm) in names)


def _never_any_spread(view: RunView, rows: int) -> bool:
    """Whether no group of any row has had a spread since the first row, although the batch's rewards differ."""
    within, between = view.series("reward/std_group"), view.series("reward/std")
    if not len(within) or within.values[-1] != 0 or len(within) < rows or len(between) < rows:
        return False
    return bool(np.all(within.values[:rows] == 0) and np.all(between.values[:rows] > 0) and between.values[-1] > 0)


def _onset(view: RunView, rule: Broken) -> int:
    """First row of the stretch, up to 200 rows back, in which the rule has been broken; the very first for groups."""
    if rule.metric in ("batch/group_size", "reward/std_group"):
        return min((int(view.series(name).steps[0]) for name in view.names()), default=view.step)
    recent = view.series(rule.metric).last(200)
    kept = (~(recent.values > rule.limit)).nonzero()[0]
    return int(recent.steps[min(int(kept[-1]) + 1, len(recent) - 1) if len(kept) else 0])
