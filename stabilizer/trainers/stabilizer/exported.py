"""A run of this project that was exported, or sent on to a tracker: its names are ours already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import assemble, definition
from stabilizer.runs.loaded import LoadedRun

TRAINER = "stabilizer-export"
"""Not our trainer's own id, because such a log does not hold who turned a knob, nor that it was declared."""
_OURS = frozenset({"control/lr_scale", "batch/updates", "reward/zero_std_frac"})
"""Names that a run of this project has whatever it trained, and nobody else's."""


def named(log: NumberLog, mapping: Mapping[str, str], config: Mapping[str, Any] | None) -> LoadedRun | None:
    """The run in rows under our names."""
    seen = log.names()
    if not seen >= _OURS:
        return None
    names = _as_they_are(seen, mapping)
    return assemble(
        log.name,
        format=log.format,
        trainer=TRAINER,
        files=log.files,
        rows=((step, {names[key]: value for key, value in values.items()}) for step, values in log.rows),
        about={
            "clock": "rollout_batch",
            "steps": None,
            "config": log.configured(config),
            "versions": {},
            "metrics": {ours: definition(ours, theirs) for theirs, ours in names.items()},
        },
        skipped=log.skipped,
        notes=log.notes,
    )


def _as_they_are(seen: Iterable[str], mapping: Mapping[str, str]) -> dict[str, str]:
    """Names that are ours already, but for what the user says of them."""
    told = {theirs: ours for ours, theirs in mapping.items()}
    return {key: told.get(key, f"unknown/{key}" if key in mapping else key) for key in seen}
