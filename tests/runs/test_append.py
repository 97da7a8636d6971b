"""Appending: a crash loses at most the line being written, a full disk loses nothing and stops nobody."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap

import pytest

from stabilizer.runs import append
from stabilizer.runs.append import QUEUE_LINES, AppendFile

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
        writer.metrics(201, {"reward/mean": 1.0})
        assert writer.disk.answers(30.0), writer.problems()
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
