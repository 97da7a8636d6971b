"""Durations are shown in the unit that people use for them."""

from __future__ import annotations

import pytest

from stabilizer.core.text import spoken


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"), (0.0123, "12.3 ms"), (0.4, "0.4 s"), (2.46, "2.46 s"), (60, "60 s"), (119, "119 s"),
        (120, "2 min"), (300, "5 min"), (1234, "20.6 min"), (9000, "2.5 h"), (86_400, "24 h"), (432_000, "5 days"),
        (1e10, "115,740.7 days"),
    ],
)  # fmt: skip
def test_a_duration_is_shown_in_the_largest_unit_that_fits_twice(seconds: float, said: str) -> None:
    assert spoken(seconds) == said
