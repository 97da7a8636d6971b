"""What a container of numbers holds, before anybody asks which trainer wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stabilizer.core.records import Event
from stabilizer.formats.rows import Row


@dataclass(frozen=True, kw_only=True)
class NumberLog:
    """Rows of numbers under the writer's own names."""

    name: str
    """The run's name as the container gives it."""
    format: str
    files: Sequence[Path]
    rows: list[Row]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The configuration that the container itself holds."""
    skipped: int = 0
    """Lines or values that could not be read."""
    events: Sequence[Event] = ()
    """Failures among the rows; `data["after_step"]` is the step before each."""
    notes: Sequence[str] = ()
    """What the user should know about the reading."""

    def names(self) -> set[str]:
        """The names of all numbers."""
        return {key for _, values in self.rows for key in values}

    def configured(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """The configuration: the one the user gave, else the container's own."""
        return dict(self.settings if given is None else given)
