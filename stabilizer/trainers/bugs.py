"""Bugs of a trainer's releases that a configuration meets, with the release that mends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from stabilizer.trainers.quantities import Ask


@dataclass(frozen=True, kw_only=True)
class Bug:
    """One bug: it is in the versions from `since` up to, and without, `mended`."""

    since: str
    mended: str
    key: str
    """The setting that meets it."""
    met: Callable[[Ask], bool]
    """Whether a configuration meets it."""
    what: str
    """What goes wrong, as a clause."""
    until: str
    """What to do with a version that has it, in words."""
    source: str
    severity: Literal["info", "warn"] = "warn"
