"""Numbers that veRL, or a trainer that grew out of it, gave to a tracker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stabilizer.formats.number_log import NumberLog
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.naming import named_log
from stabilizer.trainers.verl import names


def named(log: NumberLog, mapping: Mapping[str, str], config: Mapping[str, Any] | None) -> LoadedRun | None:
    """The run in rows under the names of the family."""
    seen = log.names()
    if not (any(key.startswith("critic/score/") for key in seen) and any(key.startswith("actor/") for key in seen)):
        return None
    notes = list(log.notes)
    settings = names.with_beta(log.configured(config))
    naming = names.naming(names.trainer_of(seen), log.rows, settings, notes)
    return named_log(replace(log, notes=notes), naming, mapping, settings)
