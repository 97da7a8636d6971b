"""Changes of knobs, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Change = dict[str, tuple[float | None, float | None]]
"""Knob -> its value before and after."""
Course = dict[str, list[float]]
"""Knob -> its values at the steps of a trial."""
NOBODY: Mapping[str, int] = MappingProxyType({})
"""No remedy changes a knob gradually."""
