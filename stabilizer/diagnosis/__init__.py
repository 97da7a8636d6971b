"""Which cause: from what moved first, the configuration and what can be excluded. May answer "undetermined".

Every rule looks at the findings of one incident and the run up to now and gives its cause a score with the reasons.
The root cause is the earliest signal that moved, not the loudest, so onsets are compared before sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stabilizer.detectors.progress import Progress, progress
from stabilizer.records import Cause, Finding
from stabilizer.runs.history import RunView

ENOUGH = 0.4
"""Confidence under which we say that the cause is undetermined."""

Verdict = tuple[float, list[str]]
Rule = Callable[[Sequence[Finding], RunView], Verdict]

STEP_KL = 0.02
"""Nats per token by which one step's updates may move the policy before that is called large (healthy: under 0.01)."""
STEP_RATIO = 0.01
"""Relative change of the weights in one step that is called large (healthy fine-tuning: 1e-5 to 1e-3)."""


def causes(findings: Sequence[Finding], view: RunView) -> tuple[Cause, ...]:
    """Possible causes of an incident, most likely first; `undetermined` leads when nothing reaches `ENOUGH`."""
    found = []
    for name, rule in RULES:
        score, reasons = rule(findings, view)
        if score > 0:
            found.append(Cause(name, round(min(score, 0.95), 2), "; ".join(reasons)))
    found.sort(key=lambda cause: -cause.confidence)
    if not found or found[0].confidence < ENOUGH:
        found.insert(
            0, Cause("undetermined", round(1 - sum(c.confidence for c in found[:1]), 2), "no rule is sure enough")
        )
    return tuple(found[:3])


def _step_too_large(findings: Sequence[Finding], view: RunView) -> Verdict:
    """Signs of updates that overshoot, weighed against the signs this run could have shown."""
    reward = progress(view)
    if not _diverged(findings, reward):
        return 0.0, []
    met = possible = 0.0
    reasons = []
    onset = min(finding.onset_step for finding in findings)
    for metric, limit, weight, words in (
        ("policy/kl_old", STEP_KL, 0.4, "one step moves the policy by {:.2g} nats/token"),
        ("optim/update_ratio", STEP_RATIO, 0.2, "one step changes the weights by {:.2g} of their size"),
        ("policy/clip_frac", 0.15, 0.15, "{:.0%} of tokens leave the clip range"),
    ):
        near = view.series(metric).between(onset - 15, onset + 30).finite().values
        if len(near) < 3 or not near.any():  # not logged, or switched off: no evidence either way
            continue
        possible += weight
        if (peak := _sustained_peak(near)) > limit:
            met += weight
            reasons.append(f"{words.format(peak)} around step {onset} (limit {limit:g})")
    moved = [f.onset_step for f in findings if f.id in ("policy/kl-runaway", "optim/grad-explosion")]
    if moved and reward and reward.dropped:
        possible += 0.3
        if min(moved) <= reward.drop_step:
            met += 0.3
            reasons.append(f"the policy moved (step {min(moved)}) before the reward fell (step {reward.drop_step})")
    rate = view.series("optim/lr").between(0, onset + 5).last(1)
    if reasons and len(rate):
        reasons.append(f"learning rate {rate.values[0]:.2g} at step {rate.steps[0]}")
    return (0.85 * met / possible if possible else 0.0), reasons


def _sustained_peak(values: np.ndarray) -> float:
    """The largest value that held for three rows: one odd row is no step size."""
    return float(np.median(np.lib.stride_tricks.sliding_window_view(values, 3), axis=1).max())


def _no_anchor(findings: Sequence[Finding], view: RunView) -> Verdict:
    beta = _beta(view)
    if beta != 0 or not any(f.id in ("policy/kl-runaway", "optim/grad-explosion") for f in findings):
        return 0.0, []
    onset = min(finding.onset_step for finding in findings)
    late = onset > 100
    return (0.5 if late else 0.3), [
        f"beta = 0: nothing holds the policy to its reference, and drift began at step {onset}"
    ]


def _reward_fault(findings: Sequence[Finding], view: RunView) -> Verdict:
    """A reward that fails, or fell off an edge while the policy stood still: the price changed, not what was made."""
    outage = next((f for f in findings if f.id == "reward/outage"), None)
    if outage is not None:
        return 0.9, [outage.summary]
    reward = progress(view)
    if reward is None or not reward.dropped:
        return 0.0, []
    edge = reward.drop_step
    rewards = view.series(reward.metric)
    before, after = (rewards.between(*span).finite().values for span in ((edge - 8, edge - 2), (edge + 2, edge + 6)))
    if len(before) < 3 or len(after) < 3 or np.median(before) - np.median(after) < 0.6 * (reward.best - reward.now):
        return 0.0, []
    still = []
    for metric in ("policy/entropy", "policy/kl_ref", "policy/kl_old", "optim/update_ratio"):
        series = view.series(metric)
        usual = series.between(edge - 40, edge - 10).finite().values
        then = series.between(edge - 4, edge + 4).finite().values
        if len(usual) < 5 or len(then) < 3:
            continue
        if abs(np.median(then) - np.median(usual)) > max(3 * np.std(usual), 0.3 * abs(np.median(usual))):
            return 0.0, []
        still.append(metric)
    if not still:
        return 0.0, []
    return 0.45 + 0.1 * len(still), [
        f"the reward fell within a few steps at {edge} while {', '.join(still)} did not move"
    ]


def _too_hard(findings: Sequence[Finding], view: RunView) -> Verdict:
    reward = progress(view)
    if not any(f.id == "reward/no-signal" for f in findings) or reward is None or reward.dropped:
        return 0.0, []
    return 0.6, ["most groups fail as a whole, and the reward never was much higher"]


def _exploration(findings: Sequence[Finding], view: RunView) -> Verdict:
    reward = progress(view)
    if reward and reward.dropped:
        return 0.0, []
    if any(f.id == "policy/entropy-collapse" for f in findings):
        return 0.6, ["entropy collapsed while the reward stood still"]
    entropy = view.series("policy/entropy")
    first, now = entropy.values[:20], _recent(view, "policy/entropy")
    if _plateau(findings) and len(entropy) > 40 and now is not None and now < 0.3 * np.nanmedian(first):
        return 0.5, [f"entropy is {now:.2g}, under 30 % of its start"]
    return 0.0, []


def _dead_groups(findings: Sequence[Finding], view: RunView) -> Verdict:
    share = _recent(view, "reward/zero_std_frac")
    if not _plateau(findings) or share is None or share < 0.6:
        return 0.0, []
    return 0.55, [f"{share:.0%} of groups have no spread of reward"]


def _pinned(findings: Sequence[Finding], view: RunView) -> Verdict:
    beta, drift = _beta(view), _recent(view, "policy/kl_ref")
    if not _plateau(findings) or not beta or beta < 0.1 or drift is None or drift > 0.05:
        return 0.0, []
    return 0.55, [f"beta = {beta:g} holds KL to the reference at {drift:.2g} nats/token"]


def _step_too_small(findings: Sequence[Finding], view: RunView) -> Verdict:
    moved = _recent(view, "policy/kl_old")
    drift = _recent(view, "policy/kl_ref")
    if not _plateau(findings) or moved is None or moved > 1e-5 or (drift is not None and drift > 0.01):
        return 0.0, []
    return 0.5, [f"one step moves the policy by only {moved:.1g} nats/token"]


def _small_batch(findings: Sequence[Finding], view: RunView) -> Verdict:
    prompts, updates = _recent(view, "batch/prompts"), _recent(view, "batch/updates")
    if not _plateau(findings) or prompts is None or prompts / max(updates or 1, 1) >= 16:
        return 0.0, []
    return 0.45, [f"{prompts / max(updates or 1, 1):.0f} prompts an update leave the gradient to noise"]


def _overflow(findings: Sequence[Finding], view: RunView) -> Verdict:
    if not any(f.id == "numerics/non-finite" for f in findings):
        return 0.0, []
    return 0.6, ["loss or gradient stopped being a number: overflow, a division by zero, or a reward that is NaN"]


RULES: tuple[tuple[str, Rule], ...] = (
    ("lr-too-high", _step_too_large),
    ("no-kl-anchor", _no_anchor),
    ("reward-fault", _reward_fault),
    ("prompts-too-hard", _too_hard),
    ("exploration-exhausted", _exploration),
    ("dead-groups", _dead_groups),
    ("pinned-by-kl", _pinned),
    ("lr-too-low", _step_too_small),
    ("batch-too-small", _small_batch),
    ("numeric-overflow", _overflow),
)


def _diverged(findings: Sequence[Finding], reward: Progress | None) -> bool:
    return bool(reward and reward.dropped) or any(
        f.id in ("policy/kl-runaway", "optim/grad-explosion") and f.severity != "info" for f in findings
    )


def _plateau(findings: Sequence[Finding]) -> bool:
    return any(finding.id == "reward/plateau" for finding in findings)


def _recent(view: RunView, metric: str) -> float | None:
    values = view.series(metric).last(20).finite().values
    return float(np.median(values)) if len(values) else None


def _beta(view: RunView) -> float | None:
    live = view.latest("control/beta")
    configured = view.config("policy.beta", view.config("beta"))
    return live if live is not None else configured if isinstance(configured, (int, float)) else None
