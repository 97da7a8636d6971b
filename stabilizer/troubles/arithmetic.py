"""Numbers for the fixes: the nearest values that divide."""

from __future__ import annotations

from collections.abc import Mapping


def whole(text: str) -> int:
    """A count out of a log, with or without thousands separators."""
    return int(float(text.replace(",", "")))


def nearest_multiples(value: int, unit: int) -> list[int]:
    """The multiples of `unit` just below and above a value."""
    if unit < 1:
        raise ValueError("a unit below 1")
    below = value // unit * unit
    return [near for near in (below, below + unit) if near > 0 and near != value]


def not_whole(values: Mapping[str, str], size: int = 0) -> dict[str, object]:
    """A `size` that is no multiple of `unit`: the nearest multiples, and the nearest divisors instead of the unit."""
    size, unit = size or whole(values["size"]), whole(values["unit"])
    if size % unit == 0:
        raise ValueError("it divides")
    near = listed(nearest_multiples(size, unit))
    return {"near": near, "divisors": listed(by_nearness(unit, divisors(size))[:3])}


def divisors(value: int, least: int = 1) -> list[int]:
    """All divisors of a value from `least` on."""
    if not 0 < value <= 10_000_000:
        raise ValueError("not a batch")
    small = [n for n in range(1, int(value**0.5) + 1) if value % n == 0]
    return sorted({d for n in small for d in (n, value // n) if d >= least})


def listed(values: list[int], most: int = 4) -> str:
    """`4, 8 or 16`."""
    words = [f"{value:,}" if value >= 10_000 else str(value) for value in values[:most]]
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def by_nearness(value: int, others: list[int]) -> list[int]:
    """Other values, the nearest first."""
    return sorted((other for other in others if other != value), key=lambda other: (abs(other - value), other))
