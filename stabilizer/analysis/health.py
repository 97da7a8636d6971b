"""Healthy aspects of a run, and logged metrics that cannot be judged.

An aspect is called healthy only if its numbers were logged and no open finding contradicts them. Each claim includes
these numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.text import spoken
from stabilizer.runs.history import RunView, Series


class Healthy(NamedTuple):
    """A healthy aspect of a run, and the numbers that show it."""

    what: str
    why: str


MIN_ROWS = 20
"""Finite values a metric needs before it is judged."""


class _Ends(NamedTuple):
    """Medians of the first and the last fifth of a metric, their steps, and the noise of such a median."""

    start: float
    now: float
    start_steps: tuple[int, int]
    now_steps: tuple[int, int]
    noise: float


def _ends(series: Series) -> _Ends | None:
    series = series.finite()
    rows = len(series)
    if rows < MIN_ROWS:
        return None
    part = max(5, rows // 5)
    first, last = series.values[:part], series.values[-part:]
    steps = series.steps
    noise = 1.25 * 1.4826 * float(np.median(np.abs(np.diff(series.values)))) / np.sqrt(2 * part)
    return _Ends(
        float(np.median(first)),
        float(np.median(last)),
        (int(steps[0]), int(steps[part - 1])),
        (int(steps[-part]), int(steps[-1])),
        noise,
    )


def healthy(view: RunView, findings: Iterable[Finding]) -> list[Healthy]:
    """Every claim that its numbers support and no open finding contradicts.

    A remark contradicts it too, but for the reward, which may rise and be near its ceiling.
    """
    still = tuple(f for f in findings if f.state != "resolved")
    said = []
    for check, against in _CHECKS:
        count = [f for f in still if f.severity != "info" or check not in (_reward, _accuracy)]
        if not any(f.id.startswith(against) for f in count) and (claim := check(view)):
            said.append(claim)
    return said


def _at(steps: tuple[int, int]) -> str:
    return f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]}-{steps[1]}"


def _finite(view: RunView) -> Healthy | None:
    columns = [view.series(name).values for name in view.names()]
    if not columns or not all(np.isfinite(values).all() for values in columns):
        return None
    count = sum(len(values) for values in columns)
    return Healthy("every number is finite", f"no NaN or Inf among {count:,} values of {len(columns)} metrics")


def _reward(view: RunView) -> Healthy | None:
    return _rises(view, "reward/mean", "the reward rises")


def _accuracy(view: RunView) -> Healthy | None:
    if _held_out(view) is not None:  # a rise in training does not show the desired progress
        return None
    name = "accuracy/val" if len(view.series("accuracy/val").finite()) >= MIN_ROWS else "accuracy/train"
    return _rises(view, name, "held-out accuracy rises" if name == "accuracy/val" else "training accuracy rises")


def _rises(view: RunView, name: str, what: str) -> Healthy | None:
    ends = _ends(view.series(name))
    if ends is None or not ends.now - ends.start > max(4 * ends.noise, 1e-9):
        return None
    values = view.series(name).finite().values
    part = max(5, len(values) // 5)
    if max(np.median(values[i : i + part]) for i in range(0, len(values) - part + 1, part)) - ends.now > 4 * ends.noise:
        return None  # it rose, and has fallen since
    return Healthy(what, f"{name} {ends.start:.3g} ({_at(ends.start_steps)}) to {ends.now:.3g} ({_at(ends.now_steps)})")


def _grad_norm(view: RunView) -> Healthy | None:
    series = view.series("optim/grad_norm").finite()
    ends = _ends(series)
    if ends is None or ends.start <= 0 or ends.now <= 0:
        return None
    median, largest = float(np.median(series.values)), float(np.max(series.values))
    if not (0.4 < ends.now / ends.start < 2.0 and largest < 5 * median):
        return None
    return Healthy(
        "the gradient norm is steady",
        f"{ends.start:.3g} at the start, {ends.now:.3g} now, largest {largest:.3g} (before clipping)",
    )


def _entropy(view: RunView) -> Healthy | None:
    ends = _ends(view.series("policy/entropy"))
    if ends is None or ends.start <= 0 or not 0.4 < ends.now / ends.start < 2.0:
        return None
    return Healthy(
        "the policy still explores",
        f"entropy {ends.start:.3g} nats/token at the start, {ends.now:.3g} now ({ends.now / ends.start:.0%})",
    )


def _clip(view: RunView) -> Healthy | None:
    series = view.series("policy/clip_frac").finite()
    if len(series) < MIN_ROWS:
        return None
    if not series.values.any():
        return Healthy(
            "no token is clipped",
            "policy/clip_frac is 0 throughout, as expected when each batch is used for one update",
        )
    high = float(np.quantile(series.values, 0.95))
    return Healthy("few tokens are clipped", f"95 % of rows below {high:.2g} of tokens") if high < 0.1 else None


def _kl(view: RunView) -> Healthy | None:
    series = view.series("policy/kl_ref").finite()
    ends = _ends(series)
    if ends is None or not series.values.any() or (high := float(np.quantile(series.values, 0.99))) > 0.1:
        return None  # a KL of exactly 0 in every row is not measured, or nothing is trained
    return Healthy(
        "the policy stays near its reference",
        f"KL {ends.now:.2g} nats/token ({_at(ends.now_steps)}), 99 % of rows below {high:.2g}",
    )


def _signal(view: RunView) -> Healthy | None:
    ends = _ends(view.series("reward/zero_std_frac"))
    if ends is None or ends.now > 0.4:
        return None
    return Healthy("most groups carry a signal", f"{ends.now:.0%} of groups have equal rewards ({_at(ends.now_steps)})")


def _truncation(view: RunView) -> Healthy | None:
    ends = _ends(view.series("rollout/truncated_frac"))
    if ends is None or ends.now > 0.1:
        return None
    return Healthy("answers are finished", f"{ends.now:.1%} cut by the length limit ({_at(ends.now_steps)})")


def _length(view: RunView) -> Healthy | None:
    ends = _ends(view.series("rollout/length_mean"))
    if ends is None or ends.start <= 0 or not 0.67 < ends.now / ends.start < 1.5:
        return None
    return Healthy("answers keep their length", f"{ends.start:.3g} tokens at the start, {ends.now:.3g} now")


def _critic(view: RunView) -> Healthy | None:
    ends = _ends(view.series("value/explained_variance"))
    if ends is None or ends.now < 0.2:
        return None
    return Healthy("the critic predicts", f"explained variance {ends.now:.2g} ({_at(ends.now_steps)}); 1 is perfect")


def _on_policy(view: RunView) -> Healthy | None:
    series = view.series("policy/ratio_first_error").finite()
    if len(series) < MIN_ROWS or float(np.max(series.values)) > 1e-3:
        return None
    return Healthy(
        "sampler and learner are the same policy",
        f"ratio on the first update off by at most {np.max(series.values):.1g} over {len(series)} steps",
    )


def _time(view: RunView) -> Healthy | None:
    ends = _ends(view.series("time/step_s"))
    if ends is None or ends.start <= 0 or not 0.5 < ends.now / ends.start < 1.3:
        return None
    return Healthy("steps keep their pace", f"{spoken(ends.start)} at the start, {spoken(ends.now)} now")


_CHECKS: tuple[tuple[Callable[[RunView], Healthy | None], tuple[str, ...]], ...] = (
    (_reward, ("reward/",)),
    (_accuracy, ("reward/collapse", "reward/hacking")),
    (_finite, ("numerics/",)),
    (_grad_norm, ("optim/grad",)),
    (_entropy, ("policy/entropy",)),
    (_kl, ("policy/kl",)),
    (_clip, ("policy/overstepping",)),
    (_signal, ("reward/no-signal", "reward/std-blowup")),
    (_truncation, ("rollout/trunc", "rollout/length")),
    (_length, ("rollout/length",)),
    (_critic, ("value/",)),
    (_on_policy, ("system/invariant", "policy/stale-rollouts", "policy/mismatch")),
    (_time, ("system/slowdown", "system/stalled")),
)
"""Each claim with the findings (by prefix) that contradict it."""


# --- hints in the numbers without proof -------------------------------------------------------------------------------

FALL = 0.08
"""Fall of held-out accuracy that is reported, if it is also more than `SHARE` of the earlier value."""
SHARE = 0.4
SAID = ("reward/hacking", "reward/collapse", "system/data-shift")
"""Findings that already report it."""


class _HeldOut(NamedTuple):
    """A fall of held-out accuracy while training accuracy is far above it."""

    val: Series
    before: float
    now: float
    part: int
    """Number of values at either end."""
    train: float


def unproven_fall(view: RunView, findings: Iterable[Finding]) -> str:
    """A message if held-out accuracy fell while the training problems are solved, and no detector is certain of it.

    A run that memorised its training problems looks healthy by all other numbers. A few values, from a few problems,
    prove neither that nor the opposite: the message says so, and how to decide it.
    """
    found = _held_out(view)
    if found is None or any(f.id in SAID and f.state != "resolved" and f.severity != "info" for f in findings):
        return ""
    steps, part = found.val.steps.tolist(), found.part
    count = _problems(found.val.values)
    few = f"{len(steps)} values" + (f" in steps of 1/{count}, as for {count} problems," if count else "")
    at, now = _at((steps[0], steps[part - 1])), _at((steps[-part], steps[-1]))
    return (
        f"accuracy/val went from {found.before:.2g} ({at}) to {found.now:.2g} ({now}) while training solves"
        f" {found.train:.0%}. This may be memorisation or chance. {few} cannot show which: validate on at least 100"
        " problems, at least ten times per run"
    )


def _held_out(view: RunView) -> _HeldOut | None:
    val, train = view.series("accuracy/val").finite(), view.series("accuracy/train").finite()
    if len(val) < 2 or len(train) < MIN_ROWS:
        return None
    part = max(1, min(3, len(val) // 3))
    before, now = float(val.values[:part].mean()), float(val.values[-part:].mean())
    solved = float(np.median(train.values[-MIN_ROWS // 2 :]))
    rose = solved - float(np.median(train.values[: MIN_ROWS // 2]))
    if before - now < max(FALL, SHARE * before) or solved - now < 2 * FALL or rose < FALL:
        return None
    return _HeldOut(val, before, now, part, solved)


def _problems(values: np.ndarray) -> int:
    """The number of problems that makes steps as coarse as those of these shares; 0 if they are finer than 1/30."""
    for count in range(1, 31):
        if np.allclose(values * count, np.round(values * count), atol=1e-4 * count):
            return count
    return 0
