"""Whatever a path holds: an answer or a RunError that says what, where and what to do, never anything else."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import READERS, load
from tests.trainers.trl_logs import record, state, write

GOOD = json.dumps(state("0.20", rows=5))
ROWS = {
    "a log_history that is no list": {"log_history": {"a": 1}, "global_step": 1},
    "an empty log_history": {"log_history": [], "global_step": 1},
    "no log_history": {"global_step": 1},
    "rows that are no objects": {"log_history": [1, None, "x", []]},
    "rows without a step": {"log_history": [{"reward": 1.0}]},
    "steps that are no steps": {
        "log_history": [{"step": s, "reward": 1.0} for s in ("1", None, True, 1.5, -1, 1e30, [])]
    },
    "values that are no numbers": {"log_history": [{"step": 1, "reward": {}, "kl": [], "loss": "high"}]},
}
FILES = {
    "empty": b"", "blank": b" \n\n", "a brace": b"{", "binary": bytes(range(256)) * 20, "zeros": b"\0" * 5000,
    "nested": b'{"log_history":' + b"[" * 100_000, "list": b"[1, 2]", "null": b"null",
    "text": b"a note about step 1\n", "two objects": GOOD.encode() * 2,
    "not utf-8": GOOD.replace("reward", "\xe9").encode("latin-1"),
    "closed nesting": b'{"log_history": [' + b"[" * 50_000 + b"]" * 50_000 + b"]}",
    "long integer": b'{"log_history": [{"step": 1' + b"0" * 9000 + b', "reward": 1}]}',
}  # fmt: skip


@pytest.mark.parametrize("name", ["trainer_state.json", "log.txt"])
@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_not_a_log_gives_a_message(tmp_path, what, name):
    path = tmp_path / name
    path.write_bytes(FILES[what])
    with pytest.raises(RunError, match=name) as caught:
        load(path)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("what", ROWS)
def test_a_state_without_numbers_gives_a_message(tmp_path, what):
    with pytest.raises(RunError, match="trainer_state.json"):
        load(write(tmp_path, ROWS[what]))


def test_every_truncation_of_a_state_gives_a_message(tmp_path):
    path = tmp_path / "trainer_state.json"
    for length in range(0, len(GOOD), 3):
        path.write_text(GOOD[:length])
        with pytest.raises(RunError, match="trainer_state.json"):
            load(path)


def test_good_rows_are_read_and_bad_ones_counted(tmp_path):
    rows = [record("0.20", 1), None, {"step": "x"}, record("0.20", 2, kl={"a": 1}, reward="0.5", note="text"), 7]
    run = load(write(tmp_path, state("0.20", log_history=rows)))
    assert run.source.steps == 2 and run.source.skipped_lines == 3
    assert run.history.view().latest("reward/mean") == 0.5
    assert any("no numbers" in note for note in run.source.notes)


def test_a_state_saved_by_a_windows_shell_is_read(tmp_path):
    path = tmp_path / "trainer_state.json"
    for encoding in ("utf-16", "utf-8-sig"):
        path.write_bytes(GOOD.encode(encoding))
        assert load(path).source.steps == 5


def test_integers_beyond_a_float_are_infinite(tmp_path):
    rows = [record("0.20", 1, reward=10**400), record("0.20", 2, reward=-(10**400))]
    run = load(write(tmp_path, state("0.20", log_history=rows)))
    assert run.history.view().series("reward/mean").values.tolist() == [float("inf"), float("-inf")]


def test_a_folder_of_one_run_is_that_run_and_a_note_says_so(tmp_path):
    sample = Path(__file__).parents[2] / "sample_runs" / "addition-unstable"
    shutil.copytree(sample, tmp_path / "runs" / "night")
    write(tmp_path / "runs", "step,reward\n1,0.5\n", "other.csv")
    run = load(tmp_path / "runs")
    assert run.source.steps == load(sample).source.steps
    assert any("a folder of one run" in note and "was not read" in note for note in run.source.notes)


def test_paths_that_are_no_logs(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in "ab":
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
    (tmp_path / "checkpoint-5").mkdir()
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path / "other", "hello", "notes.txt")
    for path, said in (
        ("missing/deeper", "no such file"), ("empty", "empty folder"), ("runs", "folder of runs"), ("pipe", "neither"),
        ("checkpoint-5", "empty folder"), ("bad\0name", "NUL"), ("other", "no known log"),
    ):  # fmt: skip
        with pytest.raises(RunError, match=said):
            load(tmp_path / path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_gives_a_message(tmp_path):
    path = write(tmp_path, state("0.20"))
    path.chmod(0)
    with pytest.raises(RunError, match="rights"):
        load(path)


def test_a_folder_instead_of_a_file_and_a_link_to_itself_are_refused(tmp_path):
    (tmp_path / "a/trainer_state.json").mkdir(parents=True)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "a", tmp_path / "a/trainer_state.json", tmp_path / "loop"):
        with pytest.raises(RunError):
            load(path)


def test_an_unknown_format_suggests_the_nearest(tmp_path):
    with pytest.raises(RunError, match="did you mean 'trl_trainer_state'"):
        load(tmp_path, format="trl_state")
    with pytest.raises(RunError, match="no such format; there are stabilizer"):
        load(tmp_path, format="xyz")


def test_an_empty_folder_is_not_answered_with_formats(tmp_path):
    with pytest.raises(RunError, match="an empty folder; give the file or folder that the trainer wrote$"):
        load(tmp_path)


def test_a_format_given_by_the_user_is_not_guessed(tmp_path):
    assert load(write(tmp_path, state("0.20"), "x.bin"), format="trl_trainer_state").source.steps == 40
    with pytest.raises(RunError, match="not a run directory"):
        load(write(tmp_path, state("0.20")), format="stabilizer")


def test_an_own_run_says_when_there_is_nothing_in_it_yet_and_takes_no_map(tmp_path):
    (tmp_path / "run.json").write_text('{"run": "x"}')
    with pytest.raises(RunError, match="no metrics yet"):
        load(tmp_path)
    with pytest.raises(RunError, match="--map"):
        load(tmp_path, mapping={"a": "b"})


SAMPLES = Path(__file__).parent / "tool_samples"
OTHERS = {
    "events.out.tfevents.1": (SAMPLES / "events.out.tfevents.1700000000.small").read_bytes(),
    "run.wandb": (SAMPLES / "run-small.wandb").read_bytes(),
    "log.csv": b"step,reward,kl\n" + b"".join(b"%d,0.5,0.25\n" % step for step in range(20)),
    "log.jsonl": b"".join(b'{"step": %d, "reward": 0.5}\n' % step for step in range(20)),
    "log.json": json.dumps([{"step": step, "reward": 0.5} for step in range(20)]).encode(),
    "7.jsonl": b"".join(
        b'{"input": "p%d", "output": "a b a b", "gts": "7", "score": %d.0, "step": 7, "acc": true}\n' % (n // 2, n % 2)
        for n in range(6)
    ),
    "completions_00001.parquet": (SAMPLES / "trl-1.16" / "completions" / "completions_00001.parquet").read_bytes(),
    "nb.ipynb": json.dumps({"cells": [{"outputs": [{"text": "{'loss': 0.1, 'reward': 0.5, 'epoch': 0.1}"}]}]}).encode(),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("what", FILES)
def test_a_file_with_a_tools_name_and_other_content_gives_a_message(tmp_path, what, name):
    path = tmp_path / name
    path.write_bytes(FILES[what])
    readable = {"not utf-8", "two objects"}  # JSON of another trainer, whatever the file is called
    try:
        load(path)
    except RunError as error:
        assert name in str(error) and len(str(error)) < 900
    else:
        assert what in readable


@pytest.mark.parametrize("name", OTHERS)
def test_a_mutated_log_is_read_or_refused(tmp_path, name):
    rng = random.Random(name)
    path = tmp_path / name
    path.write_bytes(OTHERS[name])
    assert load(path).source.steps > 0
    for _ in range(150):
        data = bytearray(OTHERS[name])
        for _ in range(rng.randrange(1, 5)):
            place = rng.randrange(len(data))
            data[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
        path.write_bytes(bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data))
        try:
            load(path)
        except RunError as error:
            assert name in str(error)


def test_every_reader_has_its_four_parts():
    assert [
        reader for reader in READERS if not (reader.name and reader.what and reader.recognises and reader.read)
    ] == []
    assert len({reader.name for reader in READERS}) == len(READERS)


json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    ["step", "reward", "kl", "loss", "grad_norm", "rewards/a", "rewards/", "reward_std", "train_runtime"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(
    rows=st.lists(json_value | st.dictionaries(keys | st.text(max_size=5), json_value, max_size=6), max_size=6),
    rest=st.dictionaries(st.sampled_from(["max_steps", "global_step", "logging_steps"]), json_value),
)
def test_any_json_instead_of_a_log_is_read_or_refused(tmp_path, rows, rest):
    path = write(tmp_path, {**rest, "log_history": rows})
    try:
        run = load(path)
    except RunError:
        return
    assert run.source.steps == len(set(run.ticks)) > 0


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_the_message_names_utf_16(order: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes("\ufeff{'loss': 0.1, 'reward': 0.5}\r\n".encode(order))
    with pytest.raises(RunError, match=r"train.log: text in UTF-16.*iconv -f UTF-16 -t UTF-8"):
        load(path)


@pytest.fixture
def shut(monkeypatch):
    """Files that this user may not read, whoever runs the tests."""
    names: set[str] = set()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, how: Path(path).name not in names and allowed(path, how))
    return names


def lines(count: int) -> str:
    return "".join(json.dumps({"step": step, "reward": 0.1, "kl": 0.01}) + "\n" for step in range(1, count + 1))


def test_a_note_names_an_unreadable_file_of_a_folder(tmp_path, shut):
    (tmp_path / "log.jsonl").write_text(lines(30))
    (tmp_path / "other.log").write_text("")
    assert not any("rights" in note for note in load(tmp_path).source.notes)
    shut.add("other.log")
    assert "not read for want of rights: other.log" in load(tmp_path).source.notes
    shut.add("log.jsonl")
    (tmp_path / "log.jsonl").write_text("")
    with pytest.raises(RunError, match=r"no log in it that can be read; .*: log.jsonl and 1 more"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["events.out.tfevents.1.host", "run-abc.wandb", "trainer_state.json"])
def test_an_unreadable_log_is_not_replaced_by_others(tmp_path, shut, name):
    (tmp_path / "log.jsonl").write_text(lines(30))
    (tmp_path / name).write_text("")
    load(tmp_path)
    shut.add(name)
    with pytest.raises(RunError, match=f"{name}: Permission denied; check its rights"):
        load(tmp_path)


def test_a_run_directory_whose_record_may_not_be_read_is_not_called_damaged(tmp_path, shut):
    (tmp_path / "metrics").mkdir()
    (tmp_path / "run.json").write_text("")
    shut.add("run.json")
    with pytest.raises(RunError, match=r"run.json: Permission denied; check the path and its rights"):
        load(tmp_path, format="stabilizer")
