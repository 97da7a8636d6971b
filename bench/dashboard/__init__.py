"""What a viewer waits for, part by part: each file of this package measures one and returns rows for one table.

Times are of this machine, with files in the cache of the operating system, as they are after the first look; medians
over repetitions stand beside the slowest one, and beside the processor's time, which other programs on a busy machine
change less. `metric files opened` counts files of metrics that were opened meanwhile.
"""

from __future__ import annotations

from typing import Any

from bench.dashboard import listing, page

PARTS = (listing, page)
"""Modules with a `measure` of their own."""


def measure(*, seed: int = 0, quick: bool = False) -> list[dict[str, Any]]:
    """All parts, as rows of one table."""
    return [row for part in PARTS for row in part.measure(seed=seed, quick=quick)]
