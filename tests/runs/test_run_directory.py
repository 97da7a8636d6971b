"""The run directory: every prefix of every file is readable, and what was acknowledged is never lost."""

from __future__ import annotations

import gc
import math
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import orjson
import pytest

from stabilizer.core.records import Action, Event, Finding, Metrics, Sample, encode, encode_metrics
from stabilizer.runs import atomic
from stabilizer.runs.append import MAX_LATE
from stabilizer.runs.chain import chain_hash
from stabilizer.runs.identity import description
from stabilizer.runs.listing import list_runs, run_state
from stabilizer.runs.loaded import load_own
from stabilizer.runs.reader import MAX_LINE, RunError, RunReader, Tail, read_json, read_records
from stabilizer.runs.requests import MAX_BYTES, MAX_TAKEN, ask, look, settle
from stabilizer.runs.secrets import redacted
from stabilizer.runs.writer import RunWriter

RECORDS = [
    Metrics(step=1, values={"a/b": 1.5, "trl/ü": math.nan}, t=10.0, n=0),
    Metrics(step=2, values={"a/b": -math.inf, "c": 2**53 + 1}, t=11.0, n=1),
    Metrics(step=3, values={}, t=12.0, n=2),
    Metrics(step=3, values={"a/b": 0.1, 'quote"\\\n': 5.0}, t=13.0, n=3),
]
FINDINGS = [
    Finding("x/y", "warn", f"about {step}", step, step, step, evidence={"now": math.inf}, incident=1)
    for step in (4, 5, 6)
]
ACTIONS = [
    Action("t", "applied", "lower-lr", step, change={"control/lr_scale": (1.0, 0.5)}, n=step) for step in (0, 1, 2)
]
EVENTS = [Event(step, "note", "ein Wörtchen ✓", data={"a": [1, None]}) for step in (1, 2)]

FILES = [
    (Metrics, [encode_metrics(record) for record in RECORDS]),
    (Finding, [encode(record) for record in FINDINGS]),
    (Action, [encode(record) for record in ACTIONS]),
    (Event, [encode(record) for record in EVENTS]),
]


def start(path: Path, **config: object) -> RunWriter:
    return RunWriter.create(path, config=config, task="t", argv=[])


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.parametrize("kind,lines", FILES, ids=lambda x: getattr(x, "__name__", ""))
def test_every_prefix_reads_as_exactly_its_complete_records(tmp_path, kind, lines):
    whole = b"".join(lines)
    path = tmp_path / "f.jsonl"
    path.write_bytes(whole)
    everything = [repr(record) for record in read_records(path, kind).records]
    assert len(everything) == len(lines)
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        read = read_records(path, kind)
        complete = whole[:length].count(b"\n")
        assert [repr(record) for record in read.records] == everything[:complete], length
        assert read.skipped == 0


@pytest.mark.parametrize("kind,lines", FILES, ids=lambda x: getattr(x, "__name__", ""))
def test_a_follower_sees_every_record_once_however_the_bytes_arrive(tmp_path, kind, lines):
    whole = b"".join(lines)
    path = tmp_path / "f.jsonl"
    tail, seen = Tail(path), []
    for length in range(1, len(whole) + 1):
        with path.open("ab") as file:
            file.write(whole[length - 1 : length])
        seen += tail.lines()
    assert [line + b"\n" for line in seen] == lines


@pytest.mark.parametrize("cut", range(1, len(encode_metrics(RECORDS[0])) - 1, 7))
def test_a_line_torn_by_a_crash_is_isolated_and_counted(tmp_path, cut):
    writer = start(tmp_path / "run")
    writer.metrics(1, {"a": 1.0})
    writer.close()
    with (tmp_path / "run/metrics/r0-a0.jsonl").open("ab") as file:
        file.write(encode_metrics(RECORDS[0])[:cut])
    again = RunWriter.reopen(tmp_path / "run")
    again.metrics(2, {"a": 2.0})
    again.close()
    reader = RunReader(tmp_path / "run")
    assert reader.history.view().series("a").values.tolist() == [1.0, 2.0]
    assert reader.skipped == 1


def test_a_line_of_garbage_is_counted_and_skipped(tmp_path):
    writer = start(tmp_path / "run")
    writer.metrics(1, {"a": 1.0})
    with (tmp_path / "run/metrics/r0-a0.jsonl").open("ab") as file:
        file.write(b"\x00\x01\xff\n[1]\n\n   \n{}\n")
    writer.metrics(2, {"a": 2.0})
    writer.close()
    run = load_own(tmp_path / "run")
    assert run.source.skipped_lines == 3 and run.source.steps == 2


def test_a_line_without_end_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "f.jsonl"
    with path.open("wb") as file:
        for _ in range(3):
            file.write(b"x" * (MAX_LINE + 1))
        file.write(b"\n" + encode_metrics(RECORDS[0]))
    read = read_records(path, Metrics)
    assert len(read.records) == 1 and read.skipped == 1


def test_a_rollback_starts_a_branch_and_keeps_the_old_one(tmp_path):
    writer = start(tmp_path / "run")
    for step in range(1, 11):
        writer.metrics(step, {"a": float(step), "old": 1.0})
    writer.event(10, "rollback", "to 5")
    assert writer.begin_attempt(6, "rollback") == 1
    for step in range(6, 9):
        writer.metrics(step, {"a": 100.0 + step})
    writer.close()
    run = load_own(tmp_path / "run")
    view = run.history.view()
    assert view.series("a").steps.tolist() == list(range(1, 9))
    assert view.series("a").values.tolist() == [1, 2, 3, 4, 5, 106, 107, 108]
    assert view.series("old").steps.tolist() == [1, 2, 3, 4, 5]
    assert run.histories[0].view().series("a").values.tolist() == list(range(1, 11))
    assert run.ticks == [(0, step) for step in range(1, 11)] + [(1, 6), (1, 7), (1, 8)]


def test_a_rollback_of_a_rollback_keeps_the_right_past(tmp_path):
    writer = start(tmp_path / "run")
    for step in range(1, 6):
        writer.metrics(step, {"a": float(step)})
    writer.begin_attempt(4, "rollback")
    writer.metrics(4, {"a": 40.0})
    writer.begin_attempt(3, "rollback")
    writer.metrics(3, {"a": 300.0})
    writer.close()
    assert load_own(tmp_path / "run").history.view().series("a").values.tolist() == [1, 2, 300]


def test_a_reader_follows_a_run_as_it_grows(tmp_path):
    writer = start(tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    for step in range(1, 6):
        writer.metrics(step, {"a": float(step)})
        assert [row for block in reader.refresh() for row in block.steps] == [step]
    assert reader.refresh() == []
    writer.begin_attempt(3, "rollback")
    writer.event(3, "rollback", "to 2")
    writer.metrics(3, {"a": 30.0})
    reader.refresh()
    fresh = RunReader(tmp_path / "run")
    assert reader.ticks == fresh.ticks and reader.events == fresh.events
    assert reader.history.view().series("a").values.tolist() == [1, 2, 30]
    assert [event.text for event in reader.history.events] == [event.text for event in fresh.history.events] == ["to 2"]
    writer.close()


@pytest.mark.parametrize("how", ["replaced", "shrunk"])
def test_a_file_replaced_or_shrunk_under_a_reader_is_read_again(tmp_path, how):
    writer = start(tmp_path / "run")
    for step in range(1, 5):
        writer.metrics(step, {"a": float(step)})
    writer.close()
    reader = RunReader(tmp_path / "run")
    path = tmp_path / "run/metrics/r0-a0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if how == "replaced":
        other = tmp_path / "other"
        other.write_bytes(b"".join(lines) + encode_metrics(Metrics(9, {"a": 9.0})))
        os.replace(other, path)
    else:
        path.write_bytes(b"".join(lines[:2]))
    reader.refresh()
    expected = [1, 2, 3, 4, 9] if how == "replaced" else [1, 2]
    assert reader.history.view().series("a").steps.tolist() == expected
    assert len(reader.ticks) == len(expected)


def test_reading_creates_and_changes_nothing(tmp_path):
    writer = start(tmp_path / "run")
    writer.metrics(1, {"a": 1.0})
    writer.status("running", 1, force=True)
    writer.close()
    before = snapshot(tmp_path)
    reader = RunReader(tmp_path / "run")
    reader.refresh()
    list_runs(tmp_path)
    assert snapshot(tmp_path) == before


def journal(path: Path) -> bool:
    """Whether the chain of the journal holds."""
    previous = ""
    for action in read_records(path, Action).records:
        if action.prev != previous or chain_hash(action) != action.hash:
            return False
        previous = action.hash
    return True


def write_journal(folder: Path) -> Path:
    writer = start(folder)
    for step in range(3):
        writer.action(Action("t1", "applied", "lower-lr", step, data={"because": math.nan, "n": [1, 2.5]}))
    writer.close()
    again = RunWriter.reopen(folder)
    again.action(Action("t1", "verified", "lower-lr", 9, change={"control/lr_scale": (1.0, None)}))
    again.close()
    return folder / "actions.jsonl"


def test_the_journal_goes_on_in_one_chain_after_a_restart(tmp_path):
    path = write_journal(tmp_path / "run")
    assert journal(path)
    assert [action.n for action in read_records(path, Action).records] == [0, 1, 2, 3]


@pytest.mark.parametrize("line", range(4))
def test_an_edited_line_of_the_journal_shows(tmp_path, line):
    path = write_journal(tmp_path / "run")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"lower-lr"', b'"raise-lr"')
    path.write_bytes(b"".join(lines))
    assert not journal(path)


@pytest.mark.parametrize("line", range(3))
def test_a_line_taken_out_of_the_journal_shows(tmp_path, line):
    path = write_journal(tmp_path / "run")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:line] + lines[line + 1 :]))
    assert not journal(path)


def test_secrets_do_not_reach_the_disk(tmp_path):
    secrets = {
        "api_key": "k1",
        "APIKEY": "k2",
        "wandb": {"hf_token": "k3", "list": [{"password": "k4"}]},
        "my_secret": "k5",
    }
    writer = RunWriter.create(
        tmp_path / "run", config={**secrets, "max_tokens": 7}, argv=["--hf-token", "k6", "--set", "api_key=k7", "--x=1"]
    )
    writer.close()
    text = (tmp_path / "run/run.json").read_text()
    assert [f"k{n}" for n in range(1, 8) if f'k{n}"' in text] == []
    about = orjson.loads(text)
    assert about["config"]["max_tokens"] == 7 and "--x=1" in about["argv"]
    assert redacted({"token": ""}) == {"token": ""}


def test_long_text_of_samples_keeps_head_and_tail(tmp_path):
    writer = start(tmp_path / "run")
    sample = Sample(3, 0, "p" * 200_000, "a" + "b" * 200_000 + "c", 1.0, math.nan)
    writer.samples(3, [sample, sample])
    writer.close()
    (first, _) = read_records(tmp_path / "run/samples/000003-r0.jsonl", Sample).records
    assert first.completion.startswith("ab") and first.completion.endswith("bc") and len(first.completion) < 70_000
    assert math.isnan(first.advantage)


def test_a_number_too_large_for_a_float_does_not_stop_training(tmp_path):
    writer = start(tmp_path / "run")
    assert writer.metrics(1, {"a": 10**400})
    writer.summary(verdict="healthy", worst=None, force=True)
    writer.close()
    assert load_own(tmp_path / "run").history.view().series("a").values.tolist() == [math.inf]


def test_a_name_that_utf8_cannot_hold_does_not_stop_training(tmp_path):
    writer = start(tmp_path / "run", prompt="half a \ud83d")
    assert writer.metrics(1, {"bad\ud800": 1.0, "good": 2.0})
    writer.summary(verdict="healthy", worst=None, force=True)
    writer.close()
    assert load_own(tmp_path / "run").history.names() == ["bad?", "good"]


def test_a_second_run_of_the_same_name_is_refused(tmp_path):
    start(tmp_path / "run").close()
    with pytest.raises(FileExistsError, match="another name"):
        start(tmp_path / "run")


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_a_damaged_run_json_is_reported(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunError, match="run.json"):
        RunReader(tmp_path)


@pytest.mark.parametrize(
    "attempts", [5, [], [None], [{"attempt": "x"}], [{"attempt": 0, "from_step": None, "parent": 7}], [{}]]
)
def test_odd_attempts_in_run_json_do_not_stop_a_reader(tmp_path, attempts):
    (tmp_path / "run.json").write_bytes(orjson.dumps({"attempts": attempts}))
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics/r0-a0.jsonl").write_bytes(encode_metrics(RECORDS[0]))
    assert RunReader(tmp_path).history.view().series("a/b").values.tolist() == [1.5]


def test_a_run_without_heartbeat_is_stalled():
    status = {"state": "running", "t": 100.0}
    assert run_state(status, 120.0) == "running" and run_state(status, 161.0) == "stalled"
    assert run_state({"state": "paused", "t": 100.0}, 161.0) == "stalled"
    assert run_state({"state": "finished", "t": 1.0}, 1e9) == "finished"
    assert run_state({"state": "running", "t": "yesterday"}, 161.0) == "running"


# --- what must not stop training -----------------------------------------------------------------------------------


def test_a_file_in_place_of_the_samples_folder_does_not_stop_training(tmp_path):
    writer = start(tmp_path / "run")
    in_the_way = tmp_path / "run/samples"
    in_the_way.touch()
    sample = Sample(1, 0, "p", "c", 1.0, 0.0)
    for step in range(MAX_LATE + 3):
        writer.samples(step, [sample, sample])
    assert any("samples" in problem for problem in writer.problems())
    in_the_way.unlink()
    writer.metrics(1, {"a": 1.0})
    writer.close()
    kept = sorted(int(path.name[:6]) for path in in_the_way.iterdir())
    assert kept == list(range(3, MAX_LATE + 3)), "the newest waited for the disk"
    assert [problem for problem in writer.problems() if "6 lines were lost" in problem]


def test_an_attempt_whose_file_cannot_be_opened_keeps_its_lines(tmp_path):
    writer = start(tmp_path / "run")
    writer.metrics(1, {"a": 1.0})
    in_the_way = tmp_path / "run/metrics/r0-a1.jsonl"
    in_the_way.mkdir()
    assert writer.begin_attempt(2, "rollback") == 1
    assert not writer.metrics(2, {"a": 2.0})
    assert any("r0-a1" in problem for problem in writer.problems())
    in_the_way.rmdir()
    assert writer.metrics(3, {"a": 3.0}) and writer.problems() == []
    writer.close()
    assert RunReader(tmp_path / "run").history.view().series("a").values.tolist() == [1, 2, 3]


def test_a_run_directory_that_cannot_be_written_is_refused_before_training(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics").touch()
    with pytest.raises(OSError):
        start(tmp_path / "run")


@pytest.mark.parametrize("later", ["status", "metrics"])
def test_a_new_attempt_the_disk_refused_to_name_is_named_later(tmp_path, monkeypatch, later):
    def full(path, value, **how):
        raise OSError(28, "No space left on device")

    writer = start(tmp_path / "run")
    writer.metrics(1, {"a": 1.0})
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "replace_json", full)
        writer.begin_attempt(1, "rollback")
        assert any("run.json" in problem for problem in writer.problems())
    writer.status("running", 1) if later == "status" else writer.metrics(1, {"a": 10.0})
    assert writer.problems() == []
    assert RunReader(tmp_path / "run").history.attempt == 1
    writer.close()


def test_lines_of_an_old_branch_that_come_late_reach_a_reader_that_forked_it(tmp_path):
    writer = start(tmp_path / "run")
    writer.metrics(1, {"a": 1.0})
    writer.begin_attempt(3, "rollback")
    reader = RunReader(tmp_path / "run")
    with (tmp_path / "run/metrics/r0-a0.jsonl").open("ab") as file:
        file.write(encode_metrics(Metrics(2, {"a": 2.0}, n=1)))
    writer.metrics(3, {"a": 3.0})
    writer.close()
    reader.refresh()
    assert reader.history.view().series("a").values.tolist() == [1, 2, 3]
    assert reader.ticks == RunReader(tmp_path / "run").ticks


def test_an_attempt_branches_off_its_parent(tmp_path):
    writer = start(tmp_path / "run")
    for step in range(1, 6):
        writer.metrics(step, {"a": float(step)})
    writer.begin_attempt(4, "rollback")
    writer.metrics(4, {"a": 40.0})
    writer.begin_attempt(5, "resume", parent=0)
    writer.metrics(5, {"a": 500.0})
    writer.close()
    assert RunReader(tmp_path / "run").history.view().series("a").values.tolist() == [1, 2, 3, 4, 500]


def test_the_summary_covers_the_lineage_and_not_the_process(tmp_path):
    writer = start(tmp_path / "run")
    for step, value in ((1, math.nan), (2, 2.0), (3, -math.inf), (4, 900.0)):
        writer.metrics(step, {"a": value, "never": math.nan})
    writer.metrics(4, {"late": 1.0})
    writer.close()
    again = RunWriter.reopen(tmp_path / "run")
    history = RunReader(tmp_path / "run").history.fork(4, 1)
    again.begin_attempt(4, "resume", history=history)
    again.summary(verdict="healthy", worst=None, force=True)
    rows = read_json(tmp_path / "run/summary.json")["metrics"]
    assert set(rows) == {"a", "never"}
    assert (rows["a"]["step"], rows["a"]["max"]) == (3, 2.0)
    again.metrics(4, {"a": 5.0, "never": 7.0})
    again.summary(verdict="healthy", worst=None, force=True)
    rows = read_json(tmp_path / "run/summary.json")["metrics"]
    assert (rows["a"]["last"], rows["a"]["step"], rows["a"]["max"]) == (5.0, 4, 5.0)
    assert (rows["never"]["min"], rows["never"]["max"]) == (7.0, 7.0)
    again.close()


def test_a_change_of_state_is_written_at_once_and_a_heartbeat_once_a_second(tmp_path):
    writer = start(tmp_path / "run")

    def written(*said: object, **options: str) -> tuple[object, ...]:
        writer.status(*said, **options)
        status = read_json(tmp_path / "run/status.json")
        return status["state"], status["step"], status.get("remedy")

    assert written("running", 1) == ("running", 1, None)
    assert written("running", 2) == ("running", 1, None), "too soon"
    assert written("paused", 2, remedy="approve") == ("paused", 2, "approve")
    assert written("running", 3) == ("running", 3, "approve")
    writer.close()


def test_dropping_a_writer_unlocks_the_run(tmp_path):
    writer = start(tmp_path / "run")
    writer.status("running", 1)
    writer._status_t = 0.0
    writer.status("running", 2)
    done = threading.Event()
    writer._syncer.do("last", done.set)
    assert done.wait(60)
    del writer
    gc.collect()
    RunWriter.reopen(tmp_path / "run").close()


def test_metrics_are_never_seen_without_the_event_written_before_them(tmp_path, monkeypatch):
    """The writer goes on between any two files a reader opens; the reader must not see step 2 without its event."""
    writer = start(tmp_path / "run")
    writer.metrics(1, {"a": 1.0})
    reader = RunReader(tmp_path / "run")
    lines, opened = Tail.lines, []

    def meanwhile(tail):
        opened.append(tail.path.name)
        got = list(lines(tail))
        if len(opened) == 1:
            writer.event(2, "intervention", "halved")
            writer.metrics(2, {"a": 2.0})
        return iter(got)

    monkeypatch.setattr(Tail, "lines", meanwhile)
    reader.refresh()
    view = reader.history.view()
    assert view.step < 2 or view.events()
    reader.refresh()
    assert reader.history.view().step == 2 and len(reader.history.events) == 1
    writer.close()


def test_a_branch_keeps_the_events_of_its_past_when_read_in_one_go(tmp_path):
    writer = start(tmp_path / "run")
    for step in range(1, 5):
        writer.event(step, "note", f"before {step}")
        writer.metrics(step, {"a": float(step)})
    writer.begin_attempt(3, "rollback")
    writer.event(3, "rollback", "to 2")
    writer.metrics(3, {"a": 30.0})
    writer.close()
    texts = [event.text for event in RunReader(tmp_path / "run").history.events]
    assert texts == ["before 1", "before 2", "to 2"]


# --- requests ------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_a_request_is_skipped_and_reported(tmp_path):
    (tmp_path / "requests/folder.json").mkdir(parents=True)
    os.mkfifo(tmp_path / "requests/pipe.json")
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text('{"kind": "approve", "action": "a1", "by": "cli", "t": 1}')
    (tmp_path / "requests/link.json").symlink_to(elsewhere)
    for name, text in (("a", "{"), ("b", '{"kind": "explode", "t": 1}'), ("c", '{"kind": [], "t": {}}'), ("d", "[]")):
        (tmp_path / f"requests/{name}.json").write_text(text)
    (tmp_path / "requests/huge.json").write_text('{"kind": "pause", "t": 1, "by": "' + "x" * MAX_BYTES + '"}')
    asked = ask(tmp_path, "pause")
    seen = look(tmp_path)
    assert seen.requests == [asked]
    assert seen.refused["link.json"] == "a symbolic link" and "larger than" in seen.refused["huge.json"]
    assert set(seen.refused) == {f"{name}.json" for name in ("folder", "pipe", "link", "a", "b", "c", "d", "huge")}
    assert look(tmp_path, seen.refused).refused == {}, "each is said once by whoever remembers"


def test_a_request_of_another_user_is_refused(tmp_path, monkeypatch):
    mine = os.geteuid()
    ask(tmp_path, "pause")
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert look(tmp_path).requests, "the owner of the run may ask whoever trains it"
    (tmp_path / "other").mkdir()
    asked = ask(tmp_path / "other", "pause")
    stranger = 65534
    if mine != 0:
        pytest.skip("only root can make files of somebody else")
    os.chown(tmp_path / "other/requests" / f"{asked.id}.json", stranger, stranger)
    seen = look(tmp_path / "other")
    assert not seen.requests and "belongs to user 65534" in next(iter(seen.refused.values()))


def test_a_request_stays_until_it_is_settled(tmp_path):
    asked = ask(tmp_path, "approve", "a1")
    assert look(tmp_path).requests == look(tmp_path).requests == [asked]
    settle(tmp_path, asked)
    assert look(tmp_path).requests == []
    settle(tmp_path, asked)


def test_the_same_request_twice_is_one(tmp_path):
    for _ in range(2):
        ask(tmp_path, "approve", "a1", id="0" * 32)
    assert len(look(tmp_path).requests) == 1
    with pytest.raises(ValueError, match="32 hexadecimal"):
        ask(tmp_path, "approve", "a1", id="../../run")


def test_a_file_in_place_of_the_requests_folder_does_not_stop_training(tmp_path):
    (tmp_path / "requests").touch()
    assert look(tmp_path).requests == []


def test_a_requests_folder_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    ask(tmp_path / "elsewhere", "pause")
    (tmp_path / "run/requests").symlink_to(tmp_path / "elsewhere/requests")
    assert look(tmp_path / "run").requests == []


def test_thousands_of_requests_are_taken_in_turns_oldest_first(tmp_path):
    asked = [ask(tmp_path, "approve", f"a{n}") for n in range(MAX_TAKEN + 30)]
    for age, request in enumerate(asked):
        os.utime(tmp_path / f"requests/{request.id}.json", (age, age))
    assert look(tmp_path).requests == asked[:MAX_TAKEN]
    assert look(tmp_path, {f"{request.id}.json" for request in asked[:MAX_TAKEN]}).requests == asked[MAX_TAKEN:]


WRITER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from stabilizer.runs.writer import RunWriter
    path = Path(sys.argv[1])
    if (path / "run.json").exists():
        writer = RunWriter.reopen(path)
        writer.begin_attempt(int(sys.argv[2]), "resume")
    else:
        writer = RunWriter.create(path, config={})
    step = int(sys.argv[2])
    while True:
        if writer.metrics(step, {f"m/{i}": step + i / 7 for i in range(40)}):
            sys.stdout.write(f"{step}\\n")
            sys.stdout.flush()
        step += 1
    """
)


def killed_after(path: Path, first: int, acknowledged: int) -> list[int]:
    """Let a real writer run, kill it without warning after so many acknowledgements; returns all it gave."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(first)], stdout=subprocess.PIPE) as writer:
        lines = [writer.stdout.readline() for _ in range(acknowledged)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
    return [int(line) for line in lines if line.endswith(b"\n")]


def check_kills(path: Path, times: int, seed: int) -> None:
    dice = random.Random(seed)
    first = 1
    for attempt in range(times):
        said = killed_after(path, first, dice.randrange(1, 300))
        reader = RunReader(path)
        written = read_records(path / f"metrics/r0-a{attempt}.jsonl", Metrics).records
        assert [record.step for record in written][: len(said)] == said
        assert [record.n for record in written] == list(range(len(written)))
        assert reader.history.view().series("m/3").steps.tolist() == list(range(1, written[-1].step + 1))
        first = written[-1].step + 1


def test_kill_9_loses_no_acknowledged_record(tmp_path):
    check_kills(tmp_path / "run", 20, seed=1)


@pytest.mark.slow
def test_kill_9_a_thousand_times_loses_no_acknowledged_record(tmp_path):
    for block in range(50):
        check_kills(tmp_path / f"run{block}", 20, seed=block)


def test_a_folder_in_place_of_a_log_reads_as_empty_and_leaks_no_descriptor(tmp_path):
    (tmp_path / "findings.jsonl").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert list(Tail(tmp_path / "findings.jsonl").lines()) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_summary_covers_every_row_however_often_it_is_written(tmp_path):
    rows = [{"a": 2.0}, {"a": math.nan, "b": math.nan}, {"b": math.inf, "a": -1.0}, {"a": 5}, {"b": math.nan}, {}]
    for at_once in (1, 2, 99):
        writer = RunWriter.create(tmp_path / f"run{at_once}", config={})
        for step, row in enumerate(rows, 1):
            writer.metrics(step, row)
            if step % at_once == 0:
                writer.summary(verdict="healthy", worst=None, force=True)
        writer.summary(verdict="healthy", worst=None, force=True)
        writer.close()
        summary = read_json(tmp_path / f"run{at_once}/summary.json")["metrics"]
        assert summary["a"] == {"last": 5.0, "step": 4, "min": -1.0, "max": 5.0}
        assert summary["b"]["step"] == 5 and summary["b"]["last"] is None, "a number that is none is the last one too"


def test_an_imported_log_has_neither_the_machine_nor_the_command_of_the_import(tmp_path: Path) -> None:
    here = description(tmp_path, config={})
    there = description(tmp_path, config={}, imported={"format": "csv"}, versions={"trl": "0.17"})
    assert {"hardware", "argv"} <= here.keys() and "python" in here["versions"]
    assert not {"hardware", "argv", "git"} & there.keys() and "python" not in there["versions"]
    assert there["versions"]["trl"] == "0.17"
