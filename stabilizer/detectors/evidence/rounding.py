"""Whether the numbers of a log were rounded when they were printed, so that 0 may only mean "small"."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stabilizer.runs.history import RunView

RATE_DECIMALS = 5
"""Decimals of a log in which a usual learning rate, 1e-6, is printed as 0."""
FULL = ("optim/grad_norm", "policy/entropy", "policy/kl_ref")
"""Metrics that have more digits unless they are rounded."""


def rounded(view: RunView, names: Iterable[str], decimals: int, least: int = 1) -> bool:
    """Whether the newest values have at most so many decimals, if there are `least` of them besides zeros."""
    shown = np.concatenate([np.empty(0), *(view.series(name).last(5).finite().values for name in names)])
    shown = shown[shown != 0] * 10**decimals
    return bool(len(shown) >= least and np.allclose(shown, np.round(shown), rtol=1e-12, atol=1e-9))


def rate_unseen(view: RunView) -> bool:
    """Whether a learning rate that is 0 in every row may be one that was rounded when it was printed."""
    return not view.series("optim/lr").values.any() and any(
        rounded(view, (name,), RATE_DECIMALS, least=3) for name in FULL
    )
