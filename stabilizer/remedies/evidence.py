"""What remedies read from a run before anything is changed."""

from __future__ import annotations

import numpy as np

from stabilizer.core.stats import median, middle
from stabilizer.detectors.evidence.step_size import STEP_KL, STEP_RATIO
from stabilizer.runs.history import RunView

ROWS = 20
"""Rows whose median is the present value."""
STEP_SIZES = {"policy/kl_old": (STEP_KL, 2), "optim/update_ratio": (STEP_RATIO, 1)}
"""Metrics of the size of a step: the level that is large in any run, and how they grow with the rate (its power)."""
USUAL = 1.5
"""Factor of the median before within which a step counts as usual."""
SETTLED = 0.1
"""Share of the largest step since, below which a step that is not large counts as usual."""
BEFORE, LEAST, NOW = 40, 10, 3
"""Rows before an onset that show what is usual, the fewest that do, and the rows that show the present."""
EARLY = 20
"""First rows, which show how far the rewards of a group differ in this run."""
LEAP = 3
"""Most rows of large steps that are one leap; more mean that steps are too large."""
HOPELESS = 0.98
"""Share of groups without spread above which more prompts do not help: of a dozen, made four times as many, less than
one would have any spread."""
BEYOND = 0.3
"""Share of groups that fail as a whole from which it is worth generating other prompts."""
SILENT = 0.9
"""Share of groups without spread above which steps are small for want of anything to learn from."""


def recent(view: RunView, name: str, rows: int = ROWS) -> float | None:
    """The present level of a metric; None with fewer than five rows."""
    values = view.series(name).last(rows).finite().values
    return median(values) if len(values) >= 5 else None


def silent_groups(view: RunView) -> float | None:
    """The present share of groups without spread; None with fewer than five rows.

    It is a mean: where one group in twenty has spread, the median over small batches would be 1.
    """
    values = view.series("reward/zero_std_frac").last(LEAST).finite().values
    return float(values.mean()) if len(values) >= 5 else None


def nothing_to_compare(view: RunView) -> str:
    """Why more prompts or answers of the same kind would teach nothing; empty if they would."""
    silent = silent_groups(view)
    if silent is not None and silent > HOPELESS:
        return f"{silent:.0%} of groups are silent: more of the same would be too"
    return ""


def beyond_reach(view: RunView) -> bool:
    """Whether groups are silent because no answer solves their prompts.

    Groups in which every answer is right are silent too, and replacing those would leave hard prompts alone.
    """
    silent, passed = silent_groups(view), view.series("reward/all_pass_frac").last(LEAST).finite().values
    solved = float(passed.mean()) if len(passed) else 0.0
    return silent is None or silent - solved >= BEYOND


def taught(view: RunView, onset: int) -> tuple[float, float] | None:
    """Shares of groups that could teach, before an onset and now; None if that was not measured.

    A group counts by its spread, in proportion to how wide it was at first.
    """
    before = view.series("reward/zero_std_frac").between(0, onset - 1).finite().last(EARLY).values
    silent = silent_groups(view)
    if silent is None or not len(before):
        return None
    alive = 1 - middle(before)
    return alive, min(1 - silent, alive * (1 - faint(view)))


def faint(view: RunView) -> float:
    """The share by which the rewards of a group differ less than at first."""
    early, now = view.series("reward/std_group").finite().values[:EARLY], recent(view, "reward/std_group", LEAST)
    return 1 - now / middle(early) if now is not None and len(early) and middle(early) > 0 else 0.0


def steps_usual(view: RunView, onset: int, *, rows: int = NOW, rate: float = 1.0) -> bool:
    """Whether the newest steps have the size that steps had before an onset, so that overshooting is over.

    With `rate`, whether they would have at that multiple of the learning rate.
    """
    large = _large_steps(view, onset, rate)
    return large is not None and len(large) >= rows and not large[-rows:].any()


def leapt(view: RunView, onset: int) -> bool:
    """Whether a few steps at an onset were too large and those since are as usual, while groups have spread."""
    large, silent = _large_steps(view, onset), recent(view, "reward/zero_std_frac", LEAST)
    alive = silent is None or silent < SILENT
    return large is not None and alive and 0 < large.sum() <= LEAP and not large[-NOW:].any()


def settling(view: RunView, onset: int) -> bool:
    """Whether steps leapt at a constant learning rate and shrink by themselves.

    An optimizer that lost its averages does that until it has new ones; a rate that is too high stays so.
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
    """For every row since an onset, whether its step was larger than usual; None if that is not known."""
    found = []
    first = onset - LEAP  # an onset is an estimate
    for name, (most, power) in STEP_SIZES.items():
        before = view.series(name).between(0, first - 1).finite().last(BEFORE).values
        since = view.series(name).between(first, view.step).values
        if len(before) >= LEAST and len(since) >= LEAP + NOW:
            limit = min(most, max(USUAL * middle(before), float(np.quantile(before, 0.95))))
            peak = float(np.max(since[np.isfinite(since)], initial=0.0))
            if peak > most:  # what learns again takes larger steps than what has learned
                limit = max(limit, min(most, SETTLED * peak))
            found.append(~(since * rate**power <= limit))
    rows = min((len(row) for row in found), default=0)
    return np.any([row[-rows:] for row in found], axis=0) if rows else None
