"""Logs that are too much of something: refused at once, with path, line and what to do, and in bounded memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest

from stabilizer.core import json_text
from stabilizer.formats import files
from stabilizer.formats.rows import MAX_NAMES
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load
from tests.bounded import stabilizer

GOOD = "".join(json.dumps({"step": step, "reward": 0.5, "kl": 0.01}) + "\n" for step in range(1, 30))


def sparse(path, start: bytes, size: int):
    """A file of one endless line that takes no room on the disk."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size)
    return path


@pytest.mark.parametrize("name,start", [
    ("log.jsonl", b'{"step": 1, "reward": 0.5, "x": "'), ("run.log", b"step:1 - critic/rewards/mean:0.5 - "),
    ("second.log", b"step:1 - critic/rewards/mean:0.5 - a/b:1\nstep:2 - a/b:"), ("log.csv", b"step,reward\n1,"),
    ("trainer_state.json", b'{"log_history": [{"step": 1, "x": "'), ("nb.ipynb", b'{"cells": [{"outputs": ["'),
])  # fmt: skip
def test_a_line_of_ten_gigabytes_is_refused_in_bounded_memory(tmp_path, name, start):
    path = sparse(tmp_path / name, start, 10 * 2**30)
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))  # noqa: E731
    words = ["watch", str(path), "--idle", "1"] if name == "run.log" else ["diagnose", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "stabilizer", *words], capture_output=True, text=True, timeout=300,
        preexec_fn=limit, env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert str(path) in done.stderr and ("GiB" in done.stderr or "line" in done.stderr)


def test_the_line_that_is_too_long_is_named_with_what_to_keep(tmp_path):
    path = sparse(tmp_path / "run.log", b"step:1 - critic/rewards/mean:0.5\nstep:2 - a/b:", 2**30)
    with pytest.raises(RunError, match=r"run.log: line 2 has more than .* `head -n 1`"):
        load(path)


@pytest.mark.parametrize("kind", ["state", "jsonl", "verl", "csv"])
def test_too_many_names_are_refused(tmp_path, kind):
    rows = [{f"a/m{place}_{part}": 1.0 for part in range(1000)} for place in range(MAX_NAMES // 1000 + 1)]
    steps = list(enumerate(rows, 1))
    text = {
        "state": json.dumps({"global_step": 9, "log_history": [{"step": s, "reward": 1, **row} for s, row in steps]}),
        "jsonl": "".join(json.dumps({"step": s, **row}) + "\n" for s, row in steps),
        "verl": "".join(f"step:{s} - " + " - ".join(f"{k}:{v}" for k, v in row.items()) + "\n" for s, row in steps),
        "csv": "step,"
        + ",".join(key for row in rows for key in row)
        + "\n"
        + "".join(f"{step}" + ",1" * len(rows) * 1000 + "\n" for step in (1, 2)),
    }[kind]
    path = tmp_path / {"state": "trainer_state.json", "verl": "run.log"}.get(kind, f"log.{kind}")
    path.write_text(text)
    with pytest.raises(RunError, match=f"{path.name}.*names"):
        load(path)


def test_a_damaged_first_line_does_not_hide_a_log(tmp_path):
    for place, first in enumerate(
        (b'{"a": ' + b"[" * 100_000 + b"\n", b"{\xff\xfe}\n", b'{"step": 0, "rew\xe4rd": 1}\n')
    ):
        path = tmp_path / f"{place}.jsonl"
        path.write_bytes(first + GOOD.encode())
        assert load(path).source.steps >= 29


def test_an_encoding_that_is_not_utf8_is_named_with_its_line_and_the_way_out(tmp_path):
    path = tmp_path / "log.json"
    path.write_bytes('[\n{"step": 1,\n "rewärd": 1}]'.encode("latin-1"))
    with pytest.raises(RunError, match=r"log.json: not UTF-8 text \(byte 0xe4 in line 3\).*iconv"):
        load(path)


def test_folders_that_lead_into_themselves_and_links_that_lead_nowhere(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/self").symlink_to(tmp_path / "deep")
    (tmp_path / "deep/log.jsonl").write_text(GOOD)
    assert load(tmp_path / "deep").source.steps == 29
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(RunError, match="leads nowhere"):
        load(tmp_path / "loop")
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes/log.jsonl")
    with pytest.raises(RunError, match="no known log"):
        load(tmp_path / "pipes")


def test_lines_that_are_all_names_are_said_to_be_that_and_not_bad_json(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [{"step": step, **{f"metric_{step}_{place}": 1.0 for place in range(50_000)}} for step in (1, 2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert path.read_bytes().find(b"\n") > 1_000_000
    with pytest.raises(RunError, match="more than 50,000 different names"):
        load(path)


SMALL = pytest.param("[]", 16_000_000)
SLOW = (pytest.param(item, n, marks=pytest.mark.slow) for item, n in (('{"":[{}]}', 4_000_000), ("0", 20_000_000)))


@pytest.mark.parametrize("item,count", [SMALL, *SLOW])
def test_fifty_megabytes_of_nothing_in_json_are_refused_within_a_gigabyte(tmp_path, item, count):
    path = tmp_path / "trainer_state.json"
    path.write_text('{"global_step": 1, "log_history": [' + f"{item}," * count + f"{item}]}}")
    done = stabilizer("diagnose", path, cpu_s=60)
    assert done.code == 2 and f"more than {json_text.MAX_VALUES:,} values" in done.err and done.peak < 400 * 2**20


@pytest.mark.parametrize("name", ["log.jsonl", "log.txt"])
def test_a_line_of_fifty_megabytes_of_nothing_is_refused_before_it_is_read(tmp_path, name):
    path = tmp_path / name
    path.write_text('{"step": 1, "x": [' + "[]," * 16_000_000 + "[]]}\n")
    done = stabilizer("diagnose", path, cpu_s=60)
    assert done.code == 2 and done.peak < 400 * 2**20


def test_marks_inside_texts_are_not_values(tmp_path, monkeypatch):
    monkeypatch.setattr(json_text, "MAX_VALUES", 100)
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"text": "a, b, [c], {d} \\" * 100, "other": ","}))
    assert files.json_value(path)["other"] == ","
    path.write_text(json.dumps(["x"] * 101))
    with pytest.raises(RunError, match="more than 100 values"):
        files.json_value(path)


def test_lines_that_are_no_records_take_no_memory(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(GOOD + "{}\n" * 1_500_000)
    done = stabilizer("diagnose", path, cpu_s=60)
    assert done.code in (0, 1) and "1,500,000 unreadable entries skipped" in done.out and done.peak < 400 * 2**20
