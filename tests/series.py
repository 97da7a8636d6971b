"""Time series in a line of text, so that a test case can be read at a glance.

    "0.2x20"            20 rows of 0.2
    "0.2+0.01x20"       rising by 0.01 a row
    "0.2*1.1x20"        growing by 10 % a row
    "0.2~0.05x20"       with normal noise of standard deviation 0.05 (seeded by the metric's name)
    "1.0%0.3x20"        with log-normal noise of 0.3, as norms and lengths have it
    "_x3" "nanx1" "infx2"   not measured; not a number; infinite

Parts are joined by spaces; `+`, `*` and one noise may be combined: "0.2+0.01~0.05x20".
"""

from __future__ import annotations

import re
import zlib

import numpy as np

from stabilizer.core.records import Event
from stabilizer.runs.history import History

_PART = re.compile(r"(?P<start>_|nan|-?inf|-?[\d.e-]+?)(?:\+(?P<add>-?[\d.e-]+?))?(?:\*(?P<times>[\d.]+))?"
                   r"(?:(?P<kind>[~%])(?P<noise>[\d.]+))?x(?P<rows>\d+)$")  # fmt: skip


def parse(text: str, seed: int = 0) -> list[float | None]:
    """The values of a series; None where nothing was measured."""
    rng = np.random.default_rng(seed)
    values: list[float | None] = []
    for part in text.split():
        match = _PART.match(part)
        if not match:
            raise ValueError(f"not a series part: {part!r}")
        rows = int(match["rows"])
        if match["start"] == "_":
            values += [None] * rows
            continue
        start, noise = float(match["start"]), float(match["noise"] or 0)
        for row in range(rows):
            value = start * float(match["times"] or 1) ** row + float(match["add"] or 0) * row
            if match["kind"] == "~":
                value += noise * rng.normal()
            elif match["kind"] == "%":
                value *= float(np.exp(noise * rng.normal()))
            values.append(value)
    return values


def history(series: dict[str, str], *, every: int = 1, first: int = 1, seed: int = 0, about=None, events=()) -> History:
    """A run made of series: row i is step `first + i * every`. `events` are (row, kind) or (row, kind, data)."""
    columns = {name: parse(text, seed + zlib.crc32(name.encode()) % 1000) for name, text in series.items()}
    run = History(about or {})
    for row in range(max(map(len, columns.values()), default=0)):
        step = first + row * every
        run.append(step, {n: v[row] for n, v in columns.items() if row < len(v) and v[row] is not None})
    for row, kind, *data in events:
        run.events.append(Event(step=first + row * every, kind=kind, text=kind, data=data[0] if data else {}))
    return run
