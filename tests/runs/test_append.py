"""Appending: a crash loses at most the line being written, a full disk loses nothing and stops nobody."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading

import pytest

from stabilizer.runs import append
from stabilizer.runs import syncer as background
from stabilizer.runs.append import QUEUE_LINES, AppendFile
from stabilizer.runs.syncer import Syncer
from stabilizer.runs.writer import RunWriter

LINES = [b'{"n":%d,"text":"%s"}\n' % (n, b"x" * (7 * n % 23)) for n in range(9)]


class StubbornOs:
    """An `os` whose write number `fails_at` stores `stored` bytes and then runs out of space."""

    def __init__(self, fails_at: int, stored: int, *, truncate_fails: bool = False):
        self.calls = 0
        self.fails_at = fails_at
        self.stored = stored
        self.truncate_fails = truncate_fails

    def __getattr__(self, name):
        return getattr(os, name)

    def write(self, descriptor: int, data: bytes) -> int:
        self.calls += 1
        if self.calls == self.fails_at and self.stored:
            return os.write(descriptor, data[: self.stored])  # a short write, as the kernel makes before it fails
        if self.calls == self.fails_at + bool(self.stored):
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(descriptor, data)

    def ftruncate(self, descriptor: int, size: int) -> None:
        if self.truncate_fails:
            self.truncate_fails = False
            raise OSError(errno.EIO, "Input/output error")
        os.ftruncate(descriptor, size)


@pytest.mark.parametrize("truncate_fails", [False, True])
@pytest.mark.parametrize("stored", [0, 1, 9])
@pytest.mark.parametrize("fails_at", range(1, len(LINES) + 1))
def test_one_refused_write_loses_nothing_and_tears_nothing(tmp_path, monkeypatch, fails_at, stored, truncate_fails):
    monkeypatch.setattr(append, "os", StubbornOs(fails_at, stored, truncate_fails=truncate_fails))
    file = AppendFile(tmp_path / "a.jsonl")
    done = [file.append(line) for line in LINES]
    file.flush()
    file.close()
    assert done.count(False) == 1 and file.lost == 0
    assert (tmp_path / "a.jsonl").read_bytes() == b"".join(LINES)


@pytest.mark.parametrize("length", range(1, 12))
def test_short_writes_of_the_kernel_are_completed(tmp_path, monkeypatch, length):
    class Slow:
        def __getattr__(self, name):
            return getattr(os, name)

        def write(self, descriptor, data):
            return os.write(descriptor, data[:length])

    monkeypatch.setattr(append, "os", Slow())
    file = AppendFile(tmp_path / "a.jsonl")
    assert all(file.append(line) for line in LINES)
    assert (tmp_path / "a.jsonl").read_bytes() == b"".join(LINES)
    file.close()


@pytest.mark.parametrize("cut", range(1, len(LINES[0])))
def test_the_next_writer_isolates_a_torn_line(tmp_path, cut):
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES[1] + LINES[0][:cut])
    file = AppendFile(path)
    file.append(LINES[2])
    file.close()
    lines = path.read_bytes().splitlines(keepends=True)
    assert lines == [LINES[1], LINES[0][:cut] + b"\n", LINES[2]]


def test_a_disk_that_stays_full_drops_the_oldest_lines_and_counts_them(tmp_path, monkeypatch):
    class Full:
        def __getattr__(self, name):
            return getattr(os, name)

        def write(self, descriptor, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    file = AppendFile(tmp_path / "a.jsonl")
    monkeypatch.setattr(append, "os", Full())
    for n in range(QUEUE_LINES + 5):
        assert not file.append(b"%d\n" % n)
    assert file.lost == 5 and file.error is not None
    monkeypatch.setattr(append, "os", os)
    assert file.flush() and file.error is None
    assert (tmp_path / "a.jsonl").read_bytes().splitlines()[0] == b"5"
    file.close()


def test_a_file_that_cannot_be_opened_keeps_its_lines_until_it_can(tmp_path):
    in_the_way = tmp_path / "folder"
    in_the_way.touch()
    file = AppendFile(in_the_way / "a.jsonl")
    assert [file.append(line) for line in LINES] == [False] * len(LINES)
    assert file.error is not None and file.waiting == len(LINES)
    in_the_way.unlink()
    assert file.flush() and file.error is None
    file.close()
    assert (in_the_way / "a.jsonl").read_bytes() == b"".join(LINES)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_FSIZE and its signal as on Linux")
@pytest.mark.parametrize("room", [1, 700, 4096, 10_001])
def test_a_real_full_disk_never_reaches_training_and_loses_nothing(tmp_path, room):
    """The limit on file size stands for the disk: write after write fails in the kernel until space is back."""
    program = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from stabilizer.core.records import Finding
        from stabilizer.runs.writer import RunWriter
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        writer = RunWriter.create(Path(sys.argv[1]), config={})
        room = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        answers = []
        for step in range(1, 201):
            answers.append(writer.metrics(step, {"reward/mean": step / 7, "optim/grad_norm": float(step)}))
            writer.event(step, "note", "x" * 40)
            writer.status("running", step, force=True)
            writer.summary(verdict="healthy", worst=None, force=True)
            writer.finding(Finding("a/b", "warn", "s", step, step, step))
        assert not all(answers), "the limit did nothing"
        assert writer.problems()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert writer.metrics(201, {"reward/mean": 1.0})
        writer.close()
        """
    )
    run = tmp_path / "run"
    subprocess.run([sys.executable, "-c", program, str(run), str(room)], check=True, timeout=60)
    from stabilizer.runs.reader import RunReader

    reader = RunReader(run)
    assert reader.skipped == 0
    assert reader.history.view().series("reward/mean").steps.tolist() == list(range(1, 202))
    assert len(reader.events) == len(reader.findings) == 200


def test_lines_added_together_are_synced_once(tmp_path, monkeypatch):
    synced = []
    file = AppendFile(tmp_path / "log", sync=True)
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((tmp_path / "log").read_bytes()))
    assert file.append(b"a\n", b"b\n") and synced == [b"a\nb\n"]
    assert file.append(b"c\n", sync=False) and len(synced) == 1
    assert file.append(b"d\n") and synced[1:] == [b"a\nb\nc\nd\n"]
    file.append(b"e\n", sync=False)
    file.close()
    assert synced[-1].endswith(b"e\n"), "a file that is let go of is whole on the disk"


def test_a_background_sync_does_not_wait_for_the_disk(tmp_path, monkeypatch):
    slow, synced = threading.Event(), []

    def sync(handle):
        slow.wait(60)
        synced.append((tmp_path / "log").read_bytes())

    monkeypatch.setattr(os, "fsync", sync)
    file, syncer = AppendFile(tmp_path / "log", sync=True), Syncer()
    file.append(b"a\n", sync=False)
    syncer.soon(file)
    assert not synced, "it came back while the disk was busy"
    slow.set()
    syncer.close()
    assert synced == [b"a\n"], "and nothing is left undone"


def test_a_failed_background_sync_is_reported(tmp_path, monkeypatch):
    file, syncer = AppendFile(tmp_path / "log", sync=True), Syncer()
    file.append(b"a\n", sync=False)
    monkeypatch.setattr(os, "fsync", lambda handle: os.close(-1))
    syncer.soon(file)
    syncer.close()
    assert isinstance(file.error, OSError)


def test_a_slow_disk_syncs_a_file_once_for_many_requests(tmp_path, monkeypatch):
    slow, synced = threading.Event(), []

    def sync(handle):
        slow.wait(60)
        synced.append((tmp_path / "log").read_bytes())

    monkeypatch.setattr(os, "fsync", sync)
    file, syncer = AppendFile(tmp_path / "log", sync=True), Syncer()
    for line in LINES:
        file.append(line, sync=False)
        syncer.soon(file)
    slow.set()
    syncer.close()
    assert len(synced) <= 2 and synced[-1] == b"".join(LINES), "and the last of them has all that was written"


def test_a_file_that_could_not_be_opened_does_not_stop_other_syncs(tmp_path, monkeypatch):
    (tmp_path / "folder").touch()
    shut, file, syncer = AppendFile(tmp_path / "folder" / "log"), AppendFile(tmp_path / "log"), Syncer()
    why, synced = shut.error, []
    file.append(LINES[0], sync=False)
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(handle) if handle >= 0 else os.close(handle))
    syncer.soon(shut, file)
    syncer.close()
    assert len(synced) == 1 and why is not None and shut.error is why


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
