"""The state of a reward: what noise explains in a run of any length."""

from __future__ import annotations

import pytest

from stabilizer.detectors.evidence.progress import progress
from tests.series import history


@pytest.mark.parametrize(("rows", "fell"), [(150, True), (6000, False)])
def test_extremes_that_thousands_of_noisy_rows_reach_by_chance_are_no_fall(rows: int, fell: bool) -> None:
    reward = progress(history({"reward/mean": f"0~1x60 2.2~0.3x5 0~1x{rows} -1.5~0.3x5"}).view())
    assert reward is not None and reward.dropped is fell
    assert reward.best - reward.now > 3.4, "five rows at their best and five at their worst, 3.4 deviations apart"
