"""A length of time as people read it."""

from __future__ import annotations

_UNITS = ((86_400, "days"), (3600, "h"), (60, "min"))


def spoken(seconds: float) -> str:
    """In the largest unit of which there are two or more: `20 ms`, `1.5 s`, `90 s`, `5 min`, `2.5 h`, `3 days`."""
    size = abs(seconds)
    for unit_s, unit in _UNITS:
        if size >= 2 * unit_s:
            return f"{seconds / unit_s:,.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.3g} s" if size >= 0.1 or not size else f"{1000 * seconds:.3g} ms"
