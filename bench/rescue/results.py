"""The kept figures of `bench rescue`: a file in the package, with the command that makes them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("kept.json")


def keep(result: dict[str, Any]) -> Path:
    """Keep these figures in place of the last ones; returns where."""
    KEPT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return KEPT


def kept() -> dict[str, Any] | None:
    """The kept figures, or None where nothing was ever kept."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else None
