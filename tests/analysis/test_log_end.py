"""A log that ended: it is said why, it is waited for a while, and a restart that writes on is followed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stabilizer.analysis.log_end import GRACE_S, LONGER, PACE, SLOWEST_S, LogEnd, Rest, log_end, pace
from stabilizer.cli import main
from stabilizer.runs.history import History
from stabilizer.trainers.reading import load

CRASH = LogEnd("out of memory", crashed=True, sure=True)

TRAINER = """
import sys
first, last, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
print("loading the model", flush=True)
for step in range(first, last + 1):
    numbers = {"loss": 0.01, "grad_norm": 0.4, "learning_rate": 1e-6, "reward": 0.3 + step / 500, "epoch": step / 100}
    print(f"{step}/90 [00:10<00:20, 2.0s/it]", file=sys.stderr)
    print(numbers, flush=True)
if how == "crash":
    raise ValueError("the reward server is gone")
if how == "stopped":
    raise KeyboardInterrupt
if how == "done":
    print({"train_runtime": 61.2, "train_steps_per_second": 1.5, "train_loss": 0.01, "epoch": 0.9})
"""


def train(log: Path, first: int, last: int, how: str) -> None:
    """A real process that writes a console log and ends as it is told."""
    with log.open("a") as out:
        words = [sys.executable, "-c", TRAINER, str(first), str(last), how]
        subprocess.run(words, stdout=out, stderr=subprocess.STDOUT, check=False)


class Clock:
    """Time that passes only when somebody sleeps; at some moments something is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **at: Callable[[], object]):
        self.now = 0.0
        self._at = {float(moment.removeprefix("s")): done for moment, done in at.items()}
        monkeypatch.setattr("stabilizer.commands.watch.time", self)
        monkeypatch.setattr("stabilizer.live.follow.DUTY", 1.0)  # every look reads

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 10_000, "it waits for ever"
        for moment in [moment for moment in self._at if moment <= self.now]:
            self._at.pop(moment)()


def test_a_log_that_a_process_left_in_an_error_ends_the_watch_with_1(tmp_path, monkeypatch, capsys) -> None:
    log, clock = tmp_path / "train.log", Clock(monkeypatch)
    train(log, 1, 40, "crash")
    assert main(["watch", str(log)]) == 1
    told = capsys.readouterr()
    line = next(n for n, text in enumerate(log.read_text().splitlines(), 1) if text.startswith("ValueError"))
    assert "ended with an error: ValueError: the reward server is gone" in told.err and f"line {line})" in told.err
    assert f"{GRACE_S:g} s" in told.err and "--grace" in told.err
    assert "verdict: crashed" in told.out and "system/crashed" in told.out
    assert GRACE_S <= clock.now < GRACE_S + 5


def test_a_restart_that_writes_on_is_followed_to_its_own_end(tmp_path, monkeypatch, capsys) -> None:
    log = tmp_path / "train.log"
    clock = Clock(monkeypatch, s50=lambda: train(log, 41, 90, "done"))
    train(log, 1, 40, "crash")
    assert main(["watch", str(log), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ends = [(row["crashed"], row["waits_s"]) for row in rows if row["kind"] == "log-end"]
    assert ends == [(True, GRACE_S), (False, GRACE_S)]
    assert [row["step"] for row in rows if row["kind"] == "step"] == list(range(1, 91))
    assert rows[-1]["exit"] == 0 and clock.now < 50 + GRACE_S + 5


def test_what_is_written_after_the_error_is_waited_for_longer(tmp_path, monkeypatch, capsys) -> None:
    log = tmp_path / "train.log"
    loading = "restarting in a moment\n"
    clock = Clock(monkeypatch, s50=lambda: log.open("a").write(loading), s500=lambda: train(log, 41, 90, "done"))
    train(log, 1, 40, "crash")
    assert main(["watch", str(log)]) == 0
    assert "something was written after it" in capsys.readouterr().err and clock.now > 500


def test_a_pause_before_a_restart_is_no_step_that_makes_the_next_wait_longer(tmp_path, monkeypatch) -> None:
    log = tmp_path / "train.log"
    loading = "loading the model\n"
    clock = Clock(
        monkeypatch, s45=lambda: log.open("a").write(loading), s50=lambda: train(log, 41, 60, "crash")
    )  # fmt: skip
    train(log, 1, 40, "crash")
    assert main(["watch", str(log)]) == 1
    assert 50 + GRACE_S <= clock.now < 50 + GRACE_S + 5


def test_a_log_with_its_trainers_last_line_ends_the_watch_with_0(tmp_path, monkeypatch, capsys) -> None:
    log, clock = tmp_path / "train.log", Clock(monkeypatch)
    train(log, 1, 90, "done")
    assert main(["watch", str(log)]) == 0
    assert "train_runtime" in capsys.readouterr().err and clock.now < GRACE_S + 5


def test_a_log_whose_training_somebody_stopped_is_over_and_no_crash(tmp_path) -> None:
    train(tmp_path / "train.log", 1, 40, "stopped")
    end = log_end(load(tmp_path / "train.log").history.view())
    assert end is not None and not end.crashed and end.what.startswith("it was stopped from outside")


def test_all_planned_steps_without_a_last_line_are_waited_for_longer(tmp_path, monkeypatch, capsys) -> None:
    log, clock = tmp_path / "train.log", Clock(monkeypatch)
    train(log, 1, 90, "silence")
    assert main(["watch", str(log)]) == 0
    assert "all 90 planned steps are done" in capsys.readouterr().err and clock.now >= LONGER * GRACE_S


def test_a_crash_before_the_first_step_is_an_answer_and_a_restart_is_followed(tmp_path, monkeypatch, capsys) -> None:
    log = tmp_path / "train.log"
    train(log, 1, 0, "crash")
    clock = Clock(monkeypatch)
    assert main(["watch", str(log), "--wait", "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["kind"] for row in rows] == ["log-end", "finding", "end"] and rows[-1]["verdict"] == "crashed"
    assert clock.now < GRACE_S + 5
    Clock(monkeypatch, s20=lambda: train(log, 1, 90, "done"))
    assert main(["watch", str(log)]) == 0


def test_a_log_that_stops_without_a_word_is_followed_until_somebody_ends_it(tmp_path, monkeypatch) -> None:
    log = tmp_path / "train.log"

    def give_up() -> None:
        raise KeyboardInterrupt

    clock = Clock(monkeypatch, s5000=give_up)
    train(log, 1, 40, "silence")
    assert main(["watch", str(log)]) == 0 and clock.now >= 5000


@pytest.mark.parametrize(
    ("options", "code", "least", "most"),
    [
        (["--grace", "5"], 1, 5, 7),
        (["--grace", "5", "--fail-on", "never"], 0, 5, 7),
        (["--grace", "5", "--fail-on", "warn"], 1, 5, 7),
        (["--idle", "300"], 1, 300, 302),
        (["--idle", "300", "--grace", "5"], 1, 5, 7),
        (["--idle", "2"], 1, 2, 3),
        (["--grace", "inf", "--idle", "900"], 1, 900, 902),
    ],
)
def test_how_long_is_waited_and_what_the_answer_is_can_be_said(
    tmp_path, monkeypatch, options, code, least, most
) -> None:
    log, clock = tmp_path / "train.log", Clock(monkeypatch)
    train(log, 1, 40, "crash")
    assert main(["watch", str(log), *options]) == code
    assert least <= clock.now < most


@pytest.mark.parametrize("words", [["--grace", "-1"], ["--grace", "soon"], ["--idle", "nan"]])
def test_a_time_that_is_none_is_refused(tmp_path, words) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["watch", str(tmp_path), *words])
    assert refused.value.code == 2


def test_an_error_is_not_spoken_of_while_it_is_being_written() -> None:
    rest = Rest(None, 0.0)
    assert [rest.look(CRASH, grew=True, now=now, step_s=0.0) for now in (1.0, 8.0, 15.0)] == [None] * 3
    assert rest.look(CRASH, grew=False, now=24.0, step_s=0.0) is None
    wait = rest.look(CRASH, grew=False, now=25.0, step_s=0.0)
    assert wait is not None and wait.new and not wait.over and not wait.wrote_on


def test_a_log_of_long_steps_that_may_have_survived_an_error_is_waited_for_longer() -> None:
    rest = Rest(None, 0.0)
    slow = rest.look(CRASH, grew=False, now=700.0, step_s=300.0)
    assert slow is not None and slow.seconds == 900.0 and not slow.over
    asked = Rest(60.0, 0.0).look(CRASH, grew=False, now=700.0, step_s=300.0)
    assert asked is not None and asked.over, "what the user asks for counts"


def test_another_error_after_a_restart_is_told_of_again() -> None:
    rest = Rest(None, 0.0)
    assert rest.look(CRASH, grew=False, now=20.0, step_s=0.0).new
    assert not rest.look(CRASH, grew=False, now=21.0, step_s=0.0).new
    rest.look(None, grew=True, now=30.0, step_s=0.0)
    assert rest.look(None, grew=False, now=31.0, step_s=0.0) is None
    again = rest.look(CRASH, grew=False, now=50.0, step_s=0.0)
    assert again.new and again.seconds == GRACE_S


def test_a_run_that_goes_on_has_no_end_and_says_its_pace() -> None:
    samples = Path(__file__).parents[1] / "trainers" / "samples"
    view = load(samples / "nemo-rl.log").history.view()
    assert log_end(view) is None
    assert pace(view) == pytest.approx(float(view.series("time/step_s").values.mean()))
    assert pace(load(samples / "verl-file.jsonl").history.view()) == 0


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ([1.7e9 + 40 * n for n in range(30)], 40.0),
        ([1.7e12 + 40_000 * n for n in range(30)], SLOWEST_S),  # milliseconds
        ([1e300 * (n + 1) for n in range(30)], SLOWEST_S),
        ([1.7e9 - 40 * n for n in range(30)], 0.0),  # a clock that runs backwards
        ([1.7e9 + 40 * n - 1e9 * (n > 25) for n in range(30)], 40.0),  # set back once
        ([1.7e9] * 30, 0.0),
    ],
)
def test_a_pace_is_one_that_a_step_can_have_whatever_the_clock_of_the_log_says(times, seconds) -> None:
    history = History()
    for step, t in enumerate(times, 1):
        history.append(step, {"reward/mean": 0.1}, t)
    assert pace(history.view()) == pytest.approx(seconds)


def test_steps_of_an_absurd_length_are_not_waited_for() -> None:
    wait = Rest(None, 0.0).look(CRASH, grew=False, now=20.0, step_s=1e300)
    assert wait is not None and wait.seconds == PACE * SLOWEST_S
