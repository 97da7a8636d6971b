"""A disk that hangs stops nobody, keeps the order of what is written, and is reported."""

from __future__ import annotations

import os
import threading
import time

import pytest

from stabilizer.core.records import Finding
from stabilizer.runs import disk as disks
from stabilizer.runs.disk import Disk
from stabilizer.runs.reader import RunReader
from stabilizer.runs.writer import RunWriter


@pytest.fixture
def hang(monkeypatch):
    """Makes an operation of the system wait until the event is set; returns the event."""
    goes_on = threading.Event()
    real = os.write

    def stuck(*args):
        goes_on.wait(60)
        return real(*args)

    monkeypatch.setattr(os, "write", stuck)
    return goes_on


def caught_up(disk: Disk) -> bool:
    """Whether all work is done, within 30 s."""
    until = time.monotonic() + 30
    while disk.waiting and time.monotonic() < until:
        time.sleep(0.01)
    return not disk.waiting


def test_work_on_a_disk_that_answers_is_done_when_it_returns():
    disk, done = Disk(), []
    assert [disk.do(lambda n=n: done.append(n) or n) for n in range(9)] == list(range(9)) == done
    assert not disk.behind and disk.close()


def test_a_failure_reaches_the_caller_who_waits_for_it():
    disk = Disk()
    with pytest.raises(ZeroDivisionError):
        disk.do(lambda: 1 / 0)
    assert disk.do(lambda: 5) == 5 and disk.close()


def test_a_slow_disk_is_waited_for_and_one_that_hangs_is_not():
    disk, goes_on = Disk(), threading.Event()
    disk.do(lambda: goes_on.wait(60), patience_s=0)
    assert not disk.answers() and not disk.answers(0.05)
    threading.Timer(0.1, goes_on.set).start()
    assert disk.answers(30) and caught_up(disk) and disk.answers()
    assert disk.close()


def test_only_the_first_call_waits_for_a_disk_that_hangs(tmp_path, hang):
    goes_on = hang
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    began = time.monotonic()
    assert not any([writer.metrics(step, {"a": 1.0}) for step in range(1, 200)])
    writer.finding(Finding("a/b", "warn", "s", 1, 1, 1))
    writer.event(1, "note", "x")
    assert time.monotonic() - began < 20 * disks.PATIENCE_S, "waiting for each of them would take 40 s"
    assert writer.disk.behind and any("wait for the disk" in problem for problem in writer.problems())
    goes_on.set()
    assert caught_up(writer.disk) and writer.metrics(200, {"a": 1.0}) and not writer.problems()
    writer.close()
    reader = RunReader(tmp_path / "run")
    assert [step for _, step in reader.ticks] == list(range(1, 201)), "all rows, in order"
    assert len(reader.findings) == len(reader.events) == 1


def test_a_new_attempt_amid_a_hang_gets_its_own_rows(tmp_path, hang, monkeypatch):
    goes_on = hang
    monkeypatch.setattr("stabilizer.runs.writer.JOURNAL_S", 0.1)
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    writer.metrics(1, {"a": 1.0})
    writer.metrics(2, {"a": 2.0})
    writer.begin_attempt(2, "rollback")
    writer.metrics(2, {"a": 20.0})
    goes_on.set()
    writer.close()
    assert RunReader(tmp_path / "run").history.view().series("a").values.tolist() == [1.0, 20.0]


def test_rows_beyond_the_room_are_dropped_and_counted_and_findings_are_not(tmp_path, hang, monkeypatch):
    goes_on = hang
    monkeypatch.setattr(disks.Disk.do, "__kwdefaults__", {"patience_s": 0.01, "room": 20})
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    for step in range(1, 31):
        writer.metrics(step, {"a": 1.0})
        writer.finding(Finding("a/b", "warn", "s", step, step, step))
    goes_on.set()
    assert caught_up(writer.disk) and writer.disk.lost == 20
    assert any("20 lines were lost" in problem for problem in writer.problems())
    writer.close()
    reader = RunReader(tmp_path / "run")
    assert [step for _, step in reader.ticks] == list(range(1, 11)) and len(reader.findings) == 30


def test_the_last_state_is_written_when_the_disk_answers_again(tmp_path, hang):
    goes_on = hang
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    writer.metrics(1, {"a": 1.0})
    writer.status("running", 1)
    writer.status("finished", 2)
    threading.Timer(0.3, goes_on.set).start()
    writer.close()
    assert RunReader(tmp_path / "run").status["state"] == "finished"


def test_a_disk_that_never_answers_does_not_keep_the_run_from_ending(tmp_path, hang, monkeypatch):
    goes_on = hang
    monkeypatch.setattr(disks, "CLOSE_S", 0.2)
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    writer.metrics(1, {"a": 1.0})
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < 5
    goes_on.set()


def test_a_writer_that_nobody_holds_ends_its_thread(tmp_path):
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    writer.metrics(1, {"a": 1.0})
    thread = writer.disk._thread
    assert thread is not None and thread.is_alive()
    del writer
    thread.join(30)
    assert not thread.is_alive()
