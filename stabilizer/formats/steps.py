"""Turns records of numbers from any training loop into rows by step: finds the column of steps, or counts records.

Used for formats that any program may write (tables, JSON, trackers). A record without a step belongs to the record
before it. A log may be filled forward: each value is repeated until the next one was measured. Rows that repeat every
number of the row before are then not measurements and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stabilizer.formats.rows import Row, check_names, number, step_number

STEP_KEYS = (
    "step", "global_step", "train/global_step", "training/global_step", "trainer/global_step", "_step", "steps",
    "iteration", "iter", "update", "time/total_timesteps", "total_timesteps", "total timesteps", "timesteps",
    "total_steps", "progress/step", "time/iterations", "episode", "epoch",
)  # fmt: skip
"""Names under which logs keep their step, the most telling first."""

CLOCKS = (frozenset(STEP_KEYS) - {"epoch"}) | {
    "timestamp", "time", "_timestamp", "_runtime", "wall_time", "date", "progress/epoch", "progress/done_frac",
}  # fmt: skip
"""Columns that say when, not how well."""

MAX_DEPTH = 8


def rows_of(records: Iterable[Mapping[str, Any]], where: object) -> tuple[list[Row], int, list[str]]:
    """Rows of a log's records, the number of records that were skipped, and notes for the user."""
    flat: list[dict[str, float]] = []
    skipped = 0
    names: set[str] = set()
    for record in records:
        values = dict(_numbers(record, "", 0)) if isinstance(record, Mapping) else {}
        if not values:
            skipped += 1
            continue
        names.update(values)
        check_names(len(names), where)
        flat.append(values)
    step = step_key(flat, names)
    notes = []
    if step is None and flat:
        notes.append("no column of steps in the log: steps are counted in records, from 1")
    rows: list[Row] = []
    now = 0
    for place, values in enumerate(flat):
        if step is None:
            now = place + 1
        elif values.get(step) != values.get(step):
            skipped += 1
            continue
        elif (found := step_number(values.get(step))) is not None:
            now = found
        measured = {key: value for key, value in values.items() if key != step and key.lower() not in CLOCKS}
        if measured:
            rows.append((now, measured))
    kept = _without_repeats(rows)
    if len(kept) < len(rows):
        notes.append(
            f"{len(rows) - len(kept)} rows left out that repeat the one before in every number: filled forward"
        )
    if skipped:
        notes.append(f"{skipped} records left out: no numbers in them, or cut off")
    return kept, skipped, notes


def step_key(records: list[dict[str, float]], names: Iterable[str]) -> str | None:
    """The name under which these records keep their step."""
    lower = {name.strip().lower(): name for name in names}
    for word in STEP_KEYS:
        name = lower.get(word)
        if name is None:
            continue
        found = [values[name] for values in records if name in values and not math.isnan(values[name])]
        whole = [value for value in found if step_number(value) is not None]
        if len(whole) < len(found):
            continue
        distinct = len(set(whole))
        theirs = "/" in word and word != "progress/step"  # a trainer's own name, perhaps in few rows
        often = len(found) * 5 >= len(records) and distinct * (1 if word == "epoch" else 8) >= len(whole)
        if often or (theirs and distinct > 1):
            return name
    return None


def _numbers(record: Mapping[str, Any], above: str, depth: int) -> Iterable[tuple[str, float]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            if depth < MAX_DEPTH:
                yield from _numbers(value, f"{above}{key}/", depth + 1)
        elif isinstance(value, str) and str(key).startswith("global_step/"):  # ms-swift: "12/400"
            if (found := number(value.partition("/")[0])) is not None:
                yield "global_step", found
        elif (found := number(value)) is not None:
            yield f"{above}{key}", found
        elif isinstance(value, list):
            yield from _of_answers(above, key, value)
        elif value and not above and str(key).strip().lower() in STEP_KEYS:
            yield key, math.nan  # the step is not a number, so the place of this record is not known


def _of_answers(above: str, key: str, values: list[Any]) -> Iterator[tuple[str, float]]:
    """The statistics of a list of the rewards of single answers; of no other list."""
    known = [value for value in map(number, values) if value is not None] if key == "rewards" else []
    if len(known) > 1:
        yield from statistics(f"{above}{key}", known)


def statistics(name: str, values: Sequence[float]) -> Iterator[tuple[str, float]]:
    """The mean of the rewards of a step under their name, and their deviation."""
    middle = math.fsum(values) / len(values)
    yield name, middle
    yield f"{name}_std", math.sqrt(math.fsum((value - middle) ** 2 for value in values) / len(values))


def _without_repeats(rows: list[Row]) -> list[Row]:
    kept = [row for place, row in enumerate(rows) if place == 0 or row[1] != rows[place - 1][1]]
    repeated = len(rows) - len(kept)
    wide = all(len(values) > 1 for _, values in rows)
    return kept if wide and len(kept) >= 10 and repeated * 2 >= len(rows) else rows
