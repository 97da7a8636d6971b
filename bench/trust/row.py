"""One row of the table: a promise, how it is attacked, what was measured, and whether it held."""

from __future__ import annotations

import math
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

USED_UP = "the time budget was used up"
Outcome = Literal["held", "BROKEN", "not run"]


@dataclass(frozen=True)
class Effort:
    """How hard to attack."""

    quick: bool
    seed: int
    folder: Path
    """An empty folder for what the attacks write."""
    share: float = 1.0
    """Of the full counts and times: below 1 where the time budget is short."""
    until: float = math.inf
    """The end of the time budget, on the monotonic clock."""

    def times(self, quick: int, full: int) -> int:
        """A count of repetitions."""
        return quick if self.quick else max(quick, int(full * self.share))


@dataclass(frozen=True)
class Measured:
    """What an attack found. `passed` is None where it could not be run here, with the reason in `what`."""

    passed: bool | None
    what: str


@dataclass(frozen=True)
class Attack:
    """A promise and the attack on it."""

    group: str
    promise: str
    how: str
    run: Callable[[Effort], Measured]
    quick: bool = True
    """Whether the quick tier runs it."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    group: str
    promise: str
    how: str
    measured: str
    outcome: Outcome
    seconds: float


def attacked(attack: Attack, effort: Effort) -> Row:
    """Run an attack; one that fails by itself is a broken promise, not the end of the table."""
    began = time.perf_counter()
    try:
        found = attack.run(effort)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        found = Measured(False, f"the attack failed: {type(error).__name__}: {error} ({where.name})"[:300])
    outcome: Outcome = "not run" if found.passed is None else "held" if found.passed else "BROKEN"
    return Row(attack.group, attack.promise, attack.how, found.what, outcome, round(time.perf_counter() - began, 1))


def counts(printed: str) -> tuple[int, int]:
    """Tests that pass, and that do not, as pytest tells them."""
    found = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", printed)}
    return found.get("passed", 0), found.get("failed", 0) + found.get("error", 0)
