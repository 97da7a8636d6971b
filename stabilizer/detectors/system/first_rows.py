"""First rows: what the first rows of a log prove already, before there is a trend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stabilizer.core.records import SEVERITIES, Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.runs.history import RunView
from stabilizer.trainers.all import find

FEW = 25
"""Rows from which the other detectors judge a run."""
NEARLY_ALL = 0.95
"""Share of answers cut, or of groups without a signal, that counts as all of them."""
FAR = 5.0
"""KL to the reference, in nats/token, that no useful policy has: at 5 nats the reference gives its tokens a probability
of 1 in 150."""
SOME_ROWS = 5
"""Rows from which one of several rewards that is always 0 is said."""
SPENT, LOST = 0.05, 0.2
"""Entropy in nats/token below which nearly every token is certain, and the share of its first value that is left."""


class Fact(NamedTuple):
    """Something that the rows prove."""

    name: str
    severity: Severity
    what: str
    cause: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class FirstRows(Detector):
    """The few rows of this log prove that nothing can be learned as it is, or that something is broken already.

    Signature
        In a log of fewer than 25 rows, one of these holds in every row: each answer is cut at the limit, the answers of
        each group earn the same, the gradient is exactly 0, no answer earns anything, one of several reward functions
        always gives 0 (`info`), the learning rate is 0 after the first row. Or one row has a KL to the reference of 5
        nats/token or more. Or the entropy fell to nothing while nearly all answers are cut.

    Why it matters
        These facts need no trend. A run that begins like this wastes every further hour.

    Look-alikes
        A reward that is 0 in some rows, or groups alike in most of them, is an ordinary hard task. A learning rate of 0
        in the first row is a warm-up.

    False alarms
        A sparse reward that nobody earns in the first rows and somebody does later: the fact is still true of the rows.

    Remedies
        The change that the finding names, as `longer-answers` or `easier-prompts`; after a KL of 5 nats, `roll-back`.

    References
        huggingface/trl and verl-project/verl threads in which the first rows held the answer.
    """

    id = "system/first-rows"
    needs = ()
    confirm = 1
    at_end = True

    def check(self, view: RunView) -> Finding | None:
        rows = max((len(view.series(name).finite()) for name in view.names()), default=0)
        if not 0 < rows < FEW:
            return None
        facts = [fact for ask in FACTS if (fact := ask(view))]
        if not facts:
            return None
        gravest = max((fact.severity for fact in facts), key=SEVERITIES.index)
        first = facts[0]
        others = "".join(f"; {fact.what}" for fact in facts[1:])
        return self.finding(
            view, gravest, view.step,
            f"in each of the {rows} row{'s' * (rows > 1)}: {first.what}{others}",
            cause=first.cause, what=first.what + others, next=first.fix, confidence=0.9,
            facts=[fact.name for fact in facts],
        )  # fmt: skip


def _all(view: RunView, name: str, least: int = 1) -> np.ndarray | None:
    """The finite values of a metric, if there are enough."""
    values = view.series(name).finite().values
    return values if len(values) >= least else None


def all_cut(view: RunView) -> Fact | None:
    """Every answer ends at the length limit."""
    cut, high = _all(view, "rollout/truncated_frac"), _all(view, "rollout/length_max")
    if not (_piled_up(view) or (cut is not None and cut.min() >= NEARLY_ALL)):
        return None
    limit = high if high is not None else _all(view, "rollout/length_mean")
    at = f" at {limit[-1]:,.0f} tokens" if limit is not None else ""
    trainer = find(str(view.about("trainer", "")))
    key = next(iter(trainer.keys_of("max_completion")), "") if trainer else ""
    named = f" ({key})" if key else ""
    return Fact(
        "all-cut", "warn", f"nearly every answer is cut{at} by the length limit before it ends", "capped-length",
        f"raise the length limit{named} until most answers end by themselves, or ask for shorter ones in the prompt: an"
        " answer that is cut before its result earns nothing",
    )  # fmt: skip


def _piled_up(view: RunView) -> bool:
    """Whether all answers of all rows have one length, so that a limit cut them."""
    low, high = _all(view, "rollout/length_min", 2), _all(view, "rollout/length_max", 2)
    return low is not None and high is not None and len({*low, *high}) == 1


def same_rewards(view: RunView) -> Fact | None:
    """All answers of a group earn the same."""
    share, spread = _all(view, "reward/zero_std_frac"), _all(view, "reward/std_group")
    if not ((share is not None and share.min() >= NEARLY_ALL) or (spread is not None and not spread.any())):
        return None
    mean = _all(view, "reward/mean")
    if mean is not None and len(mean) > 1 and not mean.any():
        return None  # reported by `nothing_earned`
    return Fact(
        "same-rewards", "warn", "the answers of every group earn the same, so no advantage and no gradient is left",
        "dead-groups",
        "check the reward function on a right and a wrong answer of one prompt, make it finer than pass or fail,"
        " sample at temperature 1, take more answers a group, or prompts that are solved sometimes",
    )  # fmt: skip


def nothing_earned(view: RunView) -> Fact | None:
    """No answer earned anything."""
    mean = _all(view, "reward/mean", 2)
    if mean is None or mean.any():
        return None
    return Fact(
        "no-reward", "warn", "the reward is 0 for every answer", "prompts-too-hard",
        "print one completion and call the reward function on it yourself: a verifier that raises or times out"
        " (math_verify outside the main thread, a missing package) scores everything 0, and so do a format that the"
        " model does not write, answers cut before their result, and prompts that are too hard",
    )  # fmt: skip


def part_earns_nothing(view: RunView) -> Fact | None:
    """One of several reward functions never pays."""
    mean = _all(view, "reward/mean", SOME_ROWS)
    if mean is None or not mean.any():
        return None
    parts = [name for name in view.names() if name.startswith("reward/") and name.endswith("/mean")]
    silent = [name for name in parts if (values := _all(view, name, SOME_ROWS)) is not None and not values.any()]
    if not silent:
        return None
    named = ", ".join(name.split("/")[1] for name in silent[:3])
    return Fact(
        "part-earns-nothing", "info", f"the reward function {named} gives 0 to every answer", "prompts-too-hard",
        "call it yourself on a completion that should earn something: its pattern may not fit what the model writes, an"
        " answer may be cut before it, or an exception may be swallowed; `stabilizer preflight --rewards` tries it",
    )  # fmt: skip


def no_gradient(view: RunView) -> Fact | None:
    """The gradient is exactly 0."""
    norm = _all(view, "optim/grad_norm")
    if norm is None or norm.any():
        return None
    return Fact(
        "no-gradient", "critical", "the gradient norm is exactly 0, so no weight changes", "dead-groups",
        "give the groups different rewards first (see the other facts of these rows); if they differ, look for"
        " parameters without gradient: frozen weights, adapters under reentrant gradient checkpointing",
    )  # fmt: skip


def no_rate(view: RunView) -> Fact | None:
    """The learning rate is 0 after the first row."""
    rate = _all(view, "optim/lr", 3)
    if rate is None or rate[1:].any():
        return None
    return Fact(
        "no-rate", "warn", "the learning rate is 0 after the first row", "still-warming-up",
        "check the schedule: a warm-up counted in more steps than the run has, or a total of steps that is too small",
    )  # fmt: skip


def far_from_reference(view: RunView) -> Fact | None:
    """The policy has little to do with its reference."""
    kl = _all(view, "policy/kl_ref")
    if kl is None or kl.max() < FAR:
        return None
    at = f"{kl.max():.3g} nats/token"
    return Fact(
        "far", "critical", f"the KL to the reference has reached {at}", "lr-too-high",
        "start from the last checkpoint before it rose, with a lower learning rate. If it is that high in the first"
        " row, the reference is another model or template than the policy, or the two compute different"
        " log-probabilities",
    )  # fmt: skip


def entropy_gone(view: RunView) -> Fact | None:
    """The policy became certain of every token while its answers are cut."""
    entropy, cut = _all(view, "policy/entropy", 3), _all(view, "rollout/truncated_frac", 3)
    if entropy is None or cut is None or entropy[0] <= 0:
        return None
    if entropy[-1] > min(SPENT, LOST * entropy[0]) or cut[-1] < NEARLY_ALL - 0.1:
        return None
    return Fact(
        "entropy-gone", "critical",
        f"the entropy fell from {entropy[0]:.3g} to {entropy[-1]:.2g} nats/token while {cut[-1]:.0%} of answers are"
        " cut: the policy repeats itself", "exploration-exhausted",
        "return to the start with a lower learning rate and a KL term or entropy bonus; the present weights are not"
        " worth continuing",
    )  # fmt: skip


FACTS: tuple[Callable[[RunView], Fact | None], ...] = (
    entropy_gone, far_from_reference, all_cut, nothing_earned, part_earns_nothing, same_rewards, no_rate, no_gradient,
)  # fmt: skip
"""What is asked, causes before their consequences."""
