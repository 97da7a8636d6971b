"""Whether the numbers of a log were rounded when they were printed, so that 0 may only mean "small"."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stabilizer.runs.history import RunView


def rounded(view: RunView, names: Iterable[str], decimals: int, least: int = 1) -> bool:
    """Whether the newest values have at most so many decimals, if there are `least` of them besides zeros."""
    shown = np.concatenate([np.empty(0), *(view.series(name).last(5).finite().values for name in names)])
    shown = shown[shown != 0] * 10**decimals
    return bool(len(shown) >= least and np.allclose(shown, np.round(shown), rtol=1e-12, atol=1e-9))
