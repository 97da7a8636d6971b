"""Following a log that is rotated or cut: it is said, what was judged stands, and nothing is lost or told twice."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from stabilizer.analysis.analyse import analyse
from stabilizer.analysis.watching import new_watch
from stabilizer.cli import main
from stabilizer.live.follow import SETTLED, News, follow
from stabilizer.trainers.reading import load
from tests.analysis.test_log_end import Clock, train
from tests.live.test_watch_verb import collapsing

LINES = collapsing(160)


@pytest.fixture(autouse=True)
def every_look_reads(monkeypatch) -> None:
    monkeypatch.setattr("stabilizer.live.follow.DUTY", 1.0)


class Looker:
    """Somebody who follows a log, and what they were told."""

    def __init__(self, path: Path):
        self.followed, self.watch, self.steps = follow(path, load), new_watch(), []
        self.told: list[str] = []

    def look(self, times: int = 1) -> News:
        for _ in range(times):
            news = self.followed.look()
            if news.anew:
                self.watch = new_watch()
            self.told += ["anew"] * news.anew + ["cut"] * news.cut + ["trouble"] * bool(news.trouble)
            self.steps += [view.step for view in news.views]
            for view in news.views:
                self.watch.tick(view)
        return news

    @property
    def found(self) -> list[tuple[str, int, int]]:
        return [(f.id, f.onset_step, f.detected_step) for f in self.watch.findings()]


def truncate(path: Path) -> None:
    path.write_text("")


def copy_and_truncate(path: Path) -> None:
    shutil.copy(path, path.with_name(f"{path.name}.1"))
    path.write_text("")


def rename(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.1"))


@pytest.mark.parametrize("rotate", [truncate, copy_and_truncate, rename])
@pytest.mark.parametrize("seen_empty", [True, False])
@pytest.mark.parametrize("folder", [False, True])
def test_a_log_that_was_rotated_is_gone_on_with_as_if_it_had_not_been(
    tmp_path, rotate, seen_empty: bool, folder: bool
) -> None:
    path = tmp_path / "logs" / "log.jsonl"
    path.parent.mkdir()
    path.write_text("".join(LINES[:90]))
    looker = Looker(path.parent if folder else path)
    looker.look()
    if rotate is not truncate:  # who keeps the old part loses nothing that came since the last look
        path.open("a").write("".join(LINES[90:95]))
    rotate(path)
    if seen_empty:
        looker.look(SETTLED + 1)
    rest = LINES[90 if rotate is truncate else 95 :]
    for start in range(0, len(rest), 9):
        path.open("a").write("".join(rest[start : start + 9]))
        looker.look()
    looker.look(SETTLED)
    assert looker.steps == list(range(1, 161)) and looker.told.count("cut") == 1 and "anew" not in looker.told
    (tmp_path / "whole.jsonl").write_text("".join(LINES))
    afterwards = analyse(load(tmp_path / "whole.jsonl")).findings
    assert looker.found == [(f.id, f.onset_step, f.detected_step) for f in afterwards]
    assert looker.followed.newest.step == 160 and len(looker.followed.newest.series("reward/mean")) == 160


def test_a_log_that_is_rotated_again_and_again_is_said_to_be_each_time(tmp_path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(LINES[:50]))
    looker = Looker(path)
    looker.look()
    for start in (50, 80, 110):
        path.write_text("".join(LINES[start : start + 15]))
        looker.look()
        path.open("a").write("".join(LINES[start + 15 : start + 30]))
        looker.look(SETTLED + 1)
    assert looker.steps == list(range(1, 141)) and looker.told == ["cut"] * 3


def test_a_log_that_lost_its_end_goes_on_from_where_it_was_judged(tmp_path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(LINES[:60]))
    looker = Looker(path)
    looker.look(SETTLED + 1)
    path.write_text("".join(LINES[:40]))
    looker.look(SETTLED)
    assert looker.told == ["cut"]
    path.open("a").write("".join(LINES[60:80]))
    looker.look(SETTLED + 1)
    assert looker.steps == list(range(1, 81)) and looker.told == ["cut"]


def test_a_restart_that_cut_the_log_back_to_its_checkpoint_is_an_attempt_and_nothing_is_judged_again(tmp_path) -> None:
    path, other = tmp_path / "log.jsonl", collapsing(80, seed=1)
    path.write_text("".join(LINES[:60]))
    looker = Looker(path)
    looker.look(SETTLED + 1)
    path.write_text("".join(LINES[:40] + other[40:50]))
    looker.look(SETTLED + 1)
    assert looker.steps == [*range(1, 61), *range(41, 51)] and looker.told == ["cut"]
    view = looker.followed.newest
    assert view.attempt == 1 and [event.kind for event in view.events()] == ["resume"]
    assert list(view.series("reward/mean").steps) == list(range(1, 51))


@pytest.mark.parametrize("back_to", [61, 71])
def test_a_restart_within_a_log_that_was_cut_is_judged_once_however_often_it_is_looked_at(tmp_path, back_to) -> None:
    path, other = tmp_path / "log.jsonl", collapsing(120, seed=1)
    path.write_text("".join(LINES[:60]))
    looker = Looker(path)
    looker.look(SETTLED + 1)
    path.write_text("".join(LINES[60:90]))
    looker.look(SETTLED + 1)
    rest = other[back_to - 1 :]
    for start in range(0, len(rest), 5):
        path.open("a").write("".join(rest[start : start + 5]))
        looker.look(SETTLED + 1)
    assert looker.steps == [*range(1, 91), *range(back_to, 121)] and looker.told == ["cut"]
    assert looker.followed.newest.attempt == 1


def test_a_log_that_is_written_over_is_not_said_to_be_cut(tmp_path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(LINES[:60]))
    looker = Looker(path)
    looker.look()
    for half in ("", "".join(LINES[:30])):
        path.write_text(half)
        looker.look()
        path.write_text("".join(LINES[:70]))
        looker.look()
    looker.look(SETTLED)
    assert looker.steps == list(range(1, 71)) and looker.told == []


@pytest.mark.parametrize("first_rows", [0, 2])
def test_a_log_that_begins_anew_with_other_numbers_is_another_training(tmp_path, first_rows: int) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(LINES[:60]))
    looker = Looker(path)
    looker.look()
    path.write_text("".join(LINES[:first_rows] + collapsing(30, seed=1)[first_rows:]))
    looker.look()
    assert looker.told == ["anew"] and looker.steps[-29:] == list(range(1, 30))


def test_a_log_that_can_no_longer_be_read_is_said_so_once_and_is_followed_on(tmp_path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(LINES[:40]))
    looker = Looker(path)
    looker.look(SETTLED + 1)
    path.rename(tmp_path / "elsewhere")
    looker.look(5)
    assert looker.told == ["trouble"]
    path.write_text("".join(LINES[:50]))
    looker.look(SETTLED + 1)
    assert looker.told == ["trouble"] and looker.steps == list(range(1, 51))


def test_a_folder_rests_when_its_log_does_whatever_else_grows_in_it(tmp_path) -> None:
    (tmp_path / "log.jsonl").write_text("".join(LINES[:40]))
    looker = Looker(tmp_path)
    grew = []
    for n in range(SETTLED + 3):
        (tmp_path / "nvidia-smi.csv").open("a").write(f"gpu busy, {n}\n" * 10)
        grew.append(looker.look().grew)
    assert grew == [True] + [False] * (SETTLED + 2) and looker.steps == list(range(1, 41))
    (tmp_path / "log.jsonl").open("a").write(LINES[40])
    assert looker.look().grew


def test_a_file_that_the_log_is_read_from_is_looked_at_in_a_folder_of_thousands(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("stabilizer.live.follow.MOST_FILES", 20)
    for n in range(30):
        (tmp_path / f"a{n}.safetensors").write_bytes(b"")
    path = tmp_path / "log.jsonl"
    path.write_text("".join(LINES[:40]))
    looker = Looker(tmp_path)
    looker.look()
    path.open("a").write("".join(LINES[40:50]))
    looker.look(SETTLED + 1)
    assert looker.steps == list(range(1, 51))


def test_a_data_base_whose_new_rows_are_in_its_write_ahead_log_is_followed(tmp_path) -> None:
    base = sqlite3.connect(tmp_path / "p.db")
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)")

    def log(steps: range) -> None:
        rows = [(step, json.dumps({"train/reward": 0.1 + step / 500, "train/kl": 0.01})) for step in steps]
        base.executemany("INSERT INTO metrics (run_name, step, metrics) VALUES ('r', ?, ?)", rows)
        base.commit()

    log(range(1, 31))
    looker = Looker(tmp_path / "p.db")
    looker.look(SETTLED + 1)
    log(range(31, 41))
    looker.look(SETTLED + 1)
    base.close()
    assert looker.steps == list(range(1, 41))


def test_watch_of_a_folder_ends_after_its_grace_though_another_file_grows(tmp_path, monkeypatch, capsys) -> None:
    beat = {f"s{n}": lambda: (tmp_path / "heartbeat.txt").open("a").write("still here\n") for n in range(1, 400)}
    clock = Clock(monkeypatch, **beat)
    train(tmp_path / "train.log", 1, 40, "crash")
    assert main(["watch", str(tmp_path), "--grace", "20"]) == 1
    assert 20 <= clock.now < 25


def test_watch_says_in_a_line_and_an_object_that_its_log_was_cut(tmp_path, monkeypatch, capsys) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(LINES[:40]))
    Clock(monkeypatch, s3=lambda: path.write_text(""), s8=lambda: path.write_text("".join(LINES[40:60])))
    assert main(["watch", str(path), "--idle", "30", "--json"]) == 0
    told = capsys.readouterr()
    rows = [json.loads(line) for line in told.out.splitlines()]
    assert [row for row in rows if row["kind"] == "log-cut"] == [{"kind": "log-cut", "judged": 40}]
    assert [row["step"] for row in rows if row["kind"] == "step"] == list(range(1, 61))
    assert told.err.count("was rotated or cut") == 1


def test_watch_says_in_an_object_that_its_log_is_another_training(tmp_path, monkeypatch, capsys) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(LINES[:40]))
    Clock(monkeypatch, s3=lambda: path.write_text("".join(collapsing(30, seed=1))))
    assert main(["watch", str(path), "--idle", "30", "--json"]) == 0
    kinds = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert kinds.count("log-replaced") == 1 and kinds.count("step") == 70
