"""Building blocks of every trainer's checks: violations, settings with defaults, and arithmetic on divisors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stabilizer.configs.config import Version


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One thing that the trainer refuses, or that makes it fail when training starts."""

    rule: str
    """`trainer/what`, e.g. `trl/generations-divide-batch`."""
    key: str
    """The key most at fault, as that trainer spells it."""
    message: str
    """The trainer's own objection in essence, with the numbers."""
    expected: str
    """What would be accepted instead, nearest first."""
    source: str
    """Version, file and function where the trainer checks it."""
    choose: bool = False
    """Whether a person has to choose: the nearest value that is accepted would be of no use."""


@dataclass(frozen=True)
class Refusals:
    """Makes the violations of one trainer's rules."""

    trainer: str
    usual: str
    """The source of most of its rules."""

    def __call__(self, rule: str, key: str, message: str, expected: str, source: str = "") -> Violation:
        return Violation(
            rule=f"{self.trainer}/{rule}", key=key, message=message, expected=expected, source=source or self.usual
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A flat configuration with one version's defaults behind it, and the machines it is to run on.

    A key that is absent takes the default; a value that can't be read as what a rule needs (`auto`, an unresolved
    `${...}`) is unknown, and a rule that needs it is skipped.
    """

    config: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    version: Version = (0, 0, 0)
    processes: int | None = None
    gpus: int | None = None

    def get(self, key: str) -> Any:
        """The value of a key, or its default, or None."""
        return self.config[key] if key in self.config else self.defaults.get(key)

    def number(self, key: str) -> int | None:
        """The value as a whole number; None when it is unset or not one."""
        value = self.get(key)
        if type(value) is int or value is None:
            return value
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return int(value) if math.isfinite(value) and value == int(value) else None

    def first(self, *keys: str) -> int | None:
        """The whole number of the first key that has one."""
        return next((value for key in keys if (value := self.number(key)) is not None), None)

    def product(self, *keys: str) -> int:
        """The product of whole numbers; one that is unset counts as 1."""
        return math.prod(self.number(key) or 1 for key in keys)

    def placed(self, said: int | None, keys: Mapping[str, int]) -> int:
        """GPUs by keys that multiply to them, each with its default; those `said` to be there where none is written."""
        if said and not any(key in self.config for key in keys):
            return said
        return math.prod(self.number(key) or usual for key, usual in keys.items())

    def real(self, key: str) -> float | None:
        """The value as a finite number; None when it is unset or not one."""
        try:
            value = float(self.get(key))
        except (TypeError, ValueError):
            return None
        return value if math.isfinite(value) else None

    def flag(self, key: str) -> bool:
        """The value as yes or no, however a file or a command line spells it."""
        value = self.get(key)
        return value.strip().lower() in ("true", "1", "yes", "on") if isinstance(value, str) else bool(value)

    def text(self, key: str) -> str:
        """The value in lower case; `none` for nothing."""
        value = self.get(key)
        return "none" if value is None else str(value).strip().lower()


def positive(settings: Settings, prefix: str, source: str, *keys: str) -> Iterator[Violation]:
    """Sizes that divide others must be at least 1."""
    for key in keys:
        value = settings.number(key)
        if value is not None and value < 1:
            yield Violation(
                rule=f"{prefix}/positive",
                key=key,
                message=f"{key} is {value}; it must be at least 1",
                expected=f"{key} 1 or more",
                source=source,
            )


def divisors(number: int, least: int = 1) -> list[int]:
    """All divisors from `least` on, in order; of absurdly large numbers only the small ones and their partners."""
    small = [n for n in range(1, math.isqrt(min(max(number, 0), 10**8)) + 1) if number % n == 0]
    return sorted(n for n in {*small, *(number // n for n in small)} if n >= least)


def near_multiple(wanted: int, of: int) -> int:
    """The multiple (at least one times) nearest to what is wanted; the larger one on a tie."""
    below = wanted // of * of
    return max(of, below if wanted - below < below + of - wanted else below + of)


def nearest(wanted: int, choices: Iterable[int], limit: int = 6) -> str:
    """Choices as text, nearest to the wanted value first."""
    ranked = sorted(choices, key=lambda choice: (abs(choice - wanted), choice))
    return ", ".join(map(str, ranked[:limit])) + (", …" if len(ranked) > limit else "") if ranked else "none"
