"""Work in the background: a slow or failing disk holds up no step and is reported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
import threading
from functools import partial

from stabilizer.runs import syncer as background
from stabilizer.runs.syncer import Syncer
from stabilizer.runs.writer import RunWriter


def test_asking_does_not_wait_for_a_slow_disk():
    disk, done = threading.Event(), []
    syncer = Syncer()
    syncer.do("a", lambda: done.append(disk.wait(60)))
    assert not done, "it came back while the disk was busy"
    disk.set()
    syncer.close()
    assert done == [True], "and nothing is left undone"


def test_a_slow_disk_does_work_of_one_key_once_for_many_requests():
    disk, begun, done = threading.Event(), threading.Event(), []
    syncer = Syncer()
    syncer.do("slow", lambda: (begun.set(), disk.wait(60)))
    assert begun.wait(60)
    for n in range(9):
        syncer.do("a", partial(done.append, n))
    disk.set()
    syncer.close()
    assert done == [8], "only the newest of the work that waited"


def test_a_background_failure_is_reported_and_stops_nothing_after_it(tmp_path):
    def fails():
        raise MemoryError("no room")

    syncer, done = Syncer(), threading.Event()
    syncer.do("a", fails)
    syncer.do("b", done.set)
    assert done.wait(60) and list(syncer.failed) == ["a"]
    syncer.do("a", lambda: None)
    syncer.close()
    assert not syncer.failed


def test_without_a_thread_the_work_is_done_at_once(monkeypatch):
    def none_left(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    syncer, done = Syncer(), []
    syncer.do("a", lambda: done.append(1))
    assert done == [1]
    syncer.close()


def test_a_script_that_ends_amid_a_run_ends(tmp_path):
    """Whatever is closed while the interpreter goes must not wait for a thread that the interpreter has stopped."""
    script = f"""
    from pathlib import Path
    from stabilizer.runs.writer import RunWriter
    def run():
        writer = RunWriter.create(Path({str(tmp_path / "run")!r}), config={{}}, argv=[])
        try:
            for step in range(9):
                writer.status("running", step)
                writer._status_t = 0.0
                yield step
        finally:
            writer.summary(verdict="healthy", worst=None)
            writer.close()
    ticks = run()
    for _ in range(HOW_MANY):
        next(ticks)
    """
    for many in ("1", "3"):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        code = textwrap.dedent(script).replace("HOW_MANY", many)
        assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_at_the_interpreters_end_a_held_lock_is_not_waited_for(monkeypatch):
    syncer, done = Syncer(), []
    syncer._due["a"] = lambda: done.append(1)
    syncer._counting.acquire()  # as by a thread that was stopped amid its work
    monkeypatch.setattr(background.sys, "is_finalizing", lambda: True)
    syncer.close()
    assert done == [1] and syncer._counting.locked()


def test_a_run_closed_at_the_interpreters_end_does_not_wait_either(tmp_path, monkeypatch):
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    writer.status("running", 1)
    writer._syncer.close()
    writer._small._locks["status.json"].acquire()  # as by a thread that was stopped amid a heartbeat
    monkeypatch.setattr(background.sys, "is_finalizing", lambda: True)
    writer.status("stopped", 2)
    writer.close()
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "stopped"
