"""Measurements of a run that remedies use before a change."""

from __future__ import annotations

import numpy as np

from stabilizer.core.stats import median, middle
from stabilizer.detectors.evidence.step_size import STEP_KL, STEP_RATIO
from stabilizer.runs.history import RunView

ROWS = 20
"""Rows whose median is the current value."""
STEP_SIZES = {"policy/kl_old": (STEP_KL, 2), "optim/update_ratio": (STEP_RATIO, 1)}
"""Metrics of the step size: a level that is large in any run, and the power of the learning rate they grow with."""
USUAL = 1.5
"""A step up to this multiple of the earlier median counts as usual."""
SETTLED = 0.1
"""A step below this share of the largest step since counts as usual if it is not large."""
BEFORE, LEAST, NOW = 40, 10, 3
"""Rows before an onset that define the usual size, the fewest that suffice, and the rows that show the current size."""
EARLY = 20
"""First rows of a run, which show how much the rewards of a group differ."""
LEAP = 3
"""Most rows of large steps that count as one leap; more mean that steps are too large."""
HOPELESS = 0.98
"""Share of groups without spread above which more prompts do not help: with four times a dozen groups, fewer than one
would have spread."""
BEYOND = 0.3
"""Share of all-fail groups from which generating other prompts is worth its cost."""
SILENT = 0.9
"""Share of groups without spread above which steps are small because there is too little to learn from."""


def recent(view: RunView, name: str, rows: int = ROWS) -> float | None:
    """The current level of a metric; None with fewer than five rows."""
    values = view.series(name).last(rows).finite().values
    return median(values) if len(values) >= 5 else None


def silent_groups(view: RunView) -> float | None:
    """The current share of groups without spread; None with fewer than five rows.

    It is a mean: if one group in twenty has spread, the median over small batches would be 1.
    """
    values = view.series("reward/zero_std_frac").last(LEAST).finite().values
    return float(values.mean()) if len(values) >= 5 else None


def nothing_to_compare(view: RunView) -> str:
    """Why more prompts or answers of the same kind would give no gradient; empty if they would."""
    silent = silent_groups(view)
    if silent is not None and silent > HOPELESS:
        return f"{silent:.0%} of groups are silent: more of the same would be silent too"
    return ""


def beyond_reach(view: RunView) -> bool:
    """Whether groups are silent because no answer solves their prompts.

    Groups in which every answer is right are silent too, and replacing them would leave only hard prompts.
    """
    silent, passed = silent_groups(view), view.series("reward/all_pass_frac").last(LEAST).finite().values
    solved = float(passed.mean()) if len(passed) else 0.0
    return silent is None or silent - solved >= BEYOND


def taught(view: RunView, onset: int) -> tuple[float, float] | None:
    """Shares of groups with a gradient, before an onset and now; None if not measured.

    A group counts in proportion to its spread, relative to the spread at the start.
    """
    before = view.series("reward/zero_std_frac").between(0, onset - 1).finite().last(EARLY).values
    silent = silent_groups(view)
    if silent is None or not len(before):
        return None
    alive = 1 - middle(before)
    return alive, min(1 - silent, alive * (1 - faint(view)))


def faint(view: RunView) -> float:
    """The share by which the spread within groups has shrunk since the start."""
    early, now = view.series("reward/std_group").finite().values[:EARLY], recent(view, "reward/std_group", LEAST)
    return 1 - now / middle(early) if now is not None and len(early) and middle(early) > 0 else 0.0


def steps_usual(view: RunView, onset: int, *, rows: int = NOW, rate: float = 1.0) -> bool:
    """Whether the newest steps are as large as before an onset, so that overshooting is over.

    With `rate`, whether they would be at that multiple of the learning rate.
    """
    large = _large_steps(view, onset, rate)
    return large is not None and len(large) >= rows and not large[-rows:].any()


def leapt(view: RunView, onset: int) -> bool:
    """Whether a few steps at an onset were too large and the later ones are usual, while groups have spread."""
    large, silent = _large_steps(view, onset), recent(view, "reward/zero_std_frac", LEAST)
    alive = silent is None or silent < SILENT
    return large is not None and alive and 0 < large.sum() <= LEAP and not large[-NOW:].any()


def settling(view: RunView, onset: int) -> bool:
    """Whether steps leapt at a constant learning rate and shrink by themselves.

    An optimizer that lost its averages does that until it has new ones; with a rate that is too high, steps stay large.
    """
    rates = view.series("optim/lr").between(onset - LEAP - 1, view.step).finite().values
    if not leapt_far(view, onset) or not len(rates) or rates.max() > 1.1 * rates.min():
        return False
    values = view.series("optim/update_ratio").between(onset - LEAP, view.step).finite().values
    top = int(np.argmax(values))
    since = values[top + 1 :]
    return len(since) >= NOW and float(since[-NOW:].max()) < values[top] / 2


def leapt_far(view: RunView, onset: int) -> bool:
    """Whether the largest step around an onset or since is more than twice as large as any usual one before."""
    steps = view.series("optim/update_ratio")
    before = steps.between(0, onset - LEAP - 1).finite().last(BEFORE).values
    since = steps.between(onset - LEAP, view.step).finite().values
    if len(before) < LEAST or not len(since):
        return False
    return float(since.max()) > 2 * max(middle(before), float(np.quantile(before, 0.95)))


def _large_steps(view: RunView, onset: int, rate: float = 1.0) -> np.ndarray | None:
    """For every row since an onset, whether its step was larger than usual; None if unknown."""
    found = []
    first = onset - LEAP  # an onset is an estimate
    for name, (most, power) in STEP_SIZES.items():
        before = view.series(name).between(0, first - 1).finite().last(BEFORE).values
        since = view.series(name).between(first, view.step).values
        if len(before) >= LEAST and len(since) >= LEAP + NOW:
            limit = min(most, max(USUAL * middle(before), float(np.quantile(before, 0.95))))
            peak = float(np.max(since[np.isfinite(since)], initial=0.0))
            if peak > most:  # a policy that learns again takes larger steps than a trained one
                limit = max(limit, min(most, SETTLED * peak))
            found.append(~(since * rate**power <= limit))
    rows = min((len(row) for row in found), default=0)
    return np.any([row[-rows:] for row in found], axis=0) if rows else None
