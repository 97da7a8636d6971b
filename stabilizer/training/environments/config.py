"""The settings of an environment of the user's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig:
    """An environment of your own, which answers the policy after each of its turns."""

    use: str = ""
    """`FILE.py:CLASS`, or the name of an entry point in the group `stabilizer.environments`; empty for none."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the class."""
    max_turns: int = 8
    """Turns of the policy per episode."""
    timeout_s: float = 30.0
    """Seconds that one turn of all episodes of a step may take."""
    import_timeout_s: float = 120.0
    """Seconds that importing the file may take."""
