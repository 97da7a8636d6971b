"""The heartbeat of a run: `status.json` while the disk is slow."""

from __future__ import annotations

import os
import threading

from stabilizer.runs.reader import read_json
from stabilizer.runs.writer import RunWriter


def test_a_heartbeat_does_not_wait_for_the_disk_and_a_new_state_does(tmp_path, monkeypatch) -> None:
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    writer.status("running", 1)
    after_first = len(synced)
    writer._status_t = 0.0
    writer.status("running", 2)
    writer._syncer.close()
    assert read_json(tmp_path / "run" / "status.json")["step"] == 2 and len(synced) == after_first == 1
    writer.status("paused", 2)
    assert len(synced) == 2
    writer.close()


def test_a_slow_heartbeat_delays_nothing_and_never_overwrites_a_newer_state(tmp_path, monkeypatch) -> None:
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    busy, inside, put = threading.Event(), threading.Event(), os.replace

    def slow(here, there) -> None:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            busy.wait(60)
        put(here, there)

    writer.status("running", 1)
    monkeypatch.setattr(os, "replace", slow)
    for step in (2, 3, 4):
        writer._status_t = 0.0
        writer.status("running", step)
        assert inside.wait(60)
        assert read_json(tmp_path / "run" / "status.json")["step"] == 1, "status returned while the disk was busy"
    busy.set()
    writer.status("paused", 5)
    assert read_json(tmp_path / "run" / "status.json")["step"] == 5
    writer.close()
    assert read_json(tmp_path / "run" / "status.json")["step"] == 5
