"""The shape of a rule's finding, and helpers that rules share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stabilizer.configs.config import Unresolved
from stabilizer.trainers.quantities import Quantity, View

Severity = Literal["info", "warn", "critical"]
Sure = Literal["certain", "likely", "folklore"]
"""certain: read in the trainer's source, or arithmetic; likely: reported and measured by many; folklore: often
repeated, rarely measured."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing about a configuration that somebody should know before the first step."""

    id: str = ""
    """The `ID` of its rule, filled in by `check`."""
    severity: Severity
    key: str
    file: str
    line: int | None
    value: Any
    summary: str
    """One sentence with the numbers."""
    why: str
    how: str
    """What to set instead, in words; empty where nothing need be set."""
    change: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Key -> (old, new), for `--fix`; empty where a person must choose."""
    alternatives: tuple[str, ...] = ()
    """Other settings that would do, nearest first."""
    sure: Sure
    source: str


def found(
    view: View,
    severity: Severity,
    at: Quantity | str,
    summary: str,
    *,
    why: str,
    how: str = "",
    change: Mapping[str, Any] | None = None,
    alternatives: tuple[str, ...] = (),
    sure: Sure,
    source: str,
) -> Finding:
    """A finding at the place of a quantity's key, or of a key."""
    key = at if isinstance(at, str) else at.key
    setting = view.config.settings.get(key)
    unresolved = setting is not None and isinstance(setting.value, Unresolved)
    value = setting.value.text if setting and unresolved else view.ask.raw(key)
    summary, why, how = (_spelled(view, text) for text in (summary, why, how))
    return Finding(
        severity=severity,
        key=setting.written.lstrip("-") if setting else key,
        file=setting.file if setting else str(view.config.parsed.path),
        line=setting.line if setting else None,
        value=value,
        summary=summary,
        why=why,
        how=how,
        sure=sure,
        source=source,
        alternatives=tuple(_spelled(view, text) for text in alternatives),
        change={k: (view.ask.raw(k), new) for k, new in (change or {}).items() if view.ask.raw(k) != new},
    )


def _spelled(view: View, text: str) -> str:
    """A text with the trainer's keys as this configuration spells them, where it has the older names."""
    for new, old in _older(view).items():
        if new in text:
            text = re.sub(rf"(?<![\w.]){re.escape(new)}(?!\.?\w)", old, text)
    return text


def _older(view: View) -> dict[str, str]:
    """Key -> the older name: of those that are written so, and of all dotted ones where one of them is."""
    aliases = view.config.trainer.aliases
    written = {setting.written.lstrip("-") for setting in view.config.settings.values()}
    plain = any("." in aliases[old] for old in written & set(aliases))
    return {new: old for old, new in aliases.items() if old in written or (plain and "." in new and new not in written)}


def number(view: View, name: str) -> float:
    """A quantity as a number; NaN when it is not known, so that no comparison with it holds."""
    value = view.number(name)
    return math.nan if value is None else value


def grown(view: View, name: str, target: float) -> dict[str, int]:
    """New values of the keys behind a batch quantity so that it is at least `target`, divisibility kept."""
    quantity = view[name]
    now = view.number(name)
    if not now or not quantity.scale or now >= target:
        return {}
    factor = -(-target // now)
    change: dict[str, int] = {}
    for key in quantity.scale:
        old = view.ask.num(key)
        if not old:
            return {}
        change[key] = int(old * factor)
    within = quantity.within
    if within and (outer := view.ask.num(within)):
        inner = change[quantity.scale[0]]
        fitted = -(-outer * quantity.within_times // inner) * inner / quantity.within_times
        if fitted != int(fitted):
            return {}
        if fitted != outer:
            change[within] = int(fitted)
    return change


def size_of(view: View) -> float | None:
    """Billions of parameters: as given, else read from the model's name."""
    if view.config.model_size:
        return view.config.model_size
    match = re.search(r"(?<![\d.])(\d{1,3}(?:\.\d+)?)\s*b(?![a-z0-9])", str(view.value("model") or "").lower())
    return float(match.group(1)) if match else None
