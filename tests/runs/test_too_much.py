"""Run directories with too much of something are read in bounded time and memory, and what is left out is said."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from stabilizer.cli import main
from stabilizer.runs import reader as runs_reader
from stabilizer.runs.history import History
from stabilizer.runs.loaded import load_own
from stabilizer.runs.reader import MAX_ATTEMPTS, MAX_NAMES, RunReader
from tests.bounded import stabilizer

ROWS = [{"reward/mean": 0.5 + step % 7 / 100, "kl/mean": 0.01} for step in range(1, 101)]


def run(path: Path, rows: list[dict[str, float]] = ROWS, attempts: Any = None, events: Any = ()) -> Path:
    (path / "metrics").mkdir(parents=True)
    first = [{"attempt": 0, "from_step": 0, "parent": None, "reason": "start"}]
    about = {"schema": 1, "run": "r", "trainer": "stabilizer", "attempts": attempts or first}
    (path / "run.json").write_text(json.dumps(about))
    (path / "status.json").write_text(json.dumps({"state": "finished", "step": len(rows)}))
    lines = (json.dumps({"n": n, "step": n + 1, "t": 0.0, "m": values}) + "\n" for n, values in enumerate(rows))
    (path / "metrics" / "r0-a0.jsonl").write_text("".join(lines))
    (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


@pytest.mark.parametrize("kind", ["note", "schedule"])
def test_twenty_thousand_events_are_read_in_seconds(tmp_path, kind):
    events = [{"step": n % 100, "kind": kind, "text": f"event {n}"} for n in range(20_000)]
    path = run(tmp_path / "run", events=events)
    assert stabilizer("diagnose", path, cpu_s=15).code in (0, 1)
    assert len(load_own(path).history.events) == 20_000


def test_an_event_that_is_written_twice_is_placed_once(tmp_path):
    path = run(tmp_path / "run", events=[{"step": 3, "kind": "note", "text": "x"}] * 2)
    followed = RunReader(path)
    with (path / "events.jsonl").open("a") as file:
        file.write(json.dumps({"step": 3, "kind": "note", "text": "x"}) + "\n")
        file.write(json.dumps({"step": 4, "kind": "note", "text": "x"}) + "\n")
    followed.refresh()
    assert [event.step for event in followed.history.events] == [3, 4]


def test_a_hundred_thousand_attempts_are_bounded_and_reported(tmp_path):
    attempts = [{"attempt": n, "from_step": n % 90, "parent": n - 1 if n else None} for n in range(100_000)]
    path = run(tmp_path / "run", attempts=attempts)
    done = stabilizer("diagnose", path)
    assert done.code in (0, 1) and done.peak < 2**30 and f"{100_000 - MAX_ATTEMPTS:,} attempts left out" in done.out


def test_a_million_names_are_bounded_and_reported(tmp_path):
    rows = [{"reward/mean": 0.5} | {f"m/{step}-{n}": 1.0 for n in range(20_000)} for step in range(50)]
    path = run(tmp_path / "run", rows=rows)
    done = stabilizer("diagnose", path, cpu_s=40)
    assert done.code in (0, 1) and done.peak < 2**30 and f"first {MAX_NAMES:,} names" in done.out
    assert len(load_own(path).history.view().series("reward/mean").values) == 50


def test_known_names_are_still_read_beyond_the_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(runs_reader, "MAX_NAMES", 3)
    loaded = load_own(run(tmp_path / "run", rows=[{"a": 1.0, "b": 2.0}, {"b": 3.0, "c": 4.0, "d": 5.0}, {"a": 6.0}]))
    assert loaded.history.names() == ["a", "b", "c"] and loaded.history.view().latest("a") == 6.0
    assert any("1 values left out" in note for note in loaded.source.notes)


@pytest.mark.parametrize("name", ["reward/mean", "kl/mean"])
@pytest.mark.parametrize("huge", [1e308, -1e308, 1e200])
@pytest.mark.parametrize("every", [1, 2, 30])
def test_a_number_near_the_largest_float_does_not_stop_a_diagnosis(tmp_path, name, huge, every):
    rows = [values | ({name: huge} if step % every == 0 else {}) for step, values in enumerate(ROWS)]
    assert main(["diagnose", str(run(tmp_path / "run", rows=rows))]) in (0, 1)


def test_numbers_far_beyond_32_bit_floats_read_as_infinities():
    history = History()
    history.append(1, {"a": 1e308, "b": -1e61, "c": 3.4e38})
    view = history.view()
    assert (view.latest("a"), view.latest("b"), view.latest("c")) == (math.inf, -math.inf, 3.4e38)
    assert len(view.series("a").finite()) == 0
