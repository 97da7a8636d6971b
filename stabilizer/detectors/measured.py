"""The stored figures of `bench detect`, in a file of the package so that `stabilizer detectors` can show them
offline."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("measured.json")

DETAILS = ("faults", "worst look-alikes")
"""Long tables of a method."""
WHOLE = ("stabilizer", "stabilizer, as other trainers log it")
"""Methods whose tables are kept."""


def keep(result: dict[str, Any]) -> Path:
    """Replace the stored figures, and return their path. Of methods other than ours only the headline is kept."""
    methods = {
        name: figures if name in WHOLE else {k: v for k, v in figures.items() if k not in DETAILS}
        for name, figures in result["methods"].items()
    }
    KEPT.write_text(json.dumps(result | {"methods": methods}, indent=1) + "\n", encoding="utf-8")
    kept.cache_clear()
    return KEPT


@cache
def kept() -> dict[str, Any] | None:
    """The stored figures, or None when there are none."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else None


def quality(id: str) -> dict[str, Any] | None:
    """Measurements of one detector: `n` faults, `recall`, `interval`, `false rate`; None when it was not measured."""
    return ((kept() or {}).get("detectors") or {}).get(id)


def in_words(id: str) -> str:
    """The same in a few words for a table, "not measured" where it was not."""
    row = quality(id)
    if row is None:
        return "not measured"
    low, high = row["interval"]
    seen = f"{row['recall']:.0%} ({100 * low:.0f}-{100 * high:.0f}) of {row['n']}" if row["n"] else "no simulated fault"
    return f"{seen}; {row['false rate']:.2g} false"
