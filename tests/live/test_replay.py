"""A run made again with its interventions agrees to the last bit, or says where it first does not."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from stabilizer.analysis.watching import advice
from stabilizer.cli import main
from stabilizer.core.records import Action, Cause, Finding, encode
from stabilizer.detectors.base import Detector
from stabilizer.incidents.watch import Watch
from stabilizer.live.replay import Difference, _compare, replay
from stabilizer.live.session import Session
from stabilizer.remedies.reset_optimizer import ResetOptimizer
from stabilizer.runs.chain import chain_hash
from stabilizer.runs.history import RunView
from stabilizer.runs.reader import RunError, RunReader
from stabilizer.runs.requests import ask
from stabilizer.training.config import load_config

SMALL = [
    "rollout.prompts=4",
    "rollout.group_size=4",
    "validation.problems=8",
    "validation.every=5",
    "checkpoint.every=5",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Stopped, resumed, returned to an earlier state, and turned by hand."""
    path = tmp_path_factory.mktemp("replay") / "run"
    session = Session.start(load_config("addition", SMALL, steps=18), path)
    asked: set[int] = set()
    wishes = {2: ("set", "prompts=6"), 4: ("do", "reset-optimizer"), 6: ("do", "skip-update"), 9: ("do", "restore:5")}
    for tick in session.run():
        if tick.step in wishes and tick.step not in asked:
            asked.add(tick.step)
            ask(path, *wishes[tick.step])
        if tick.step == 11:
            session.stop_reason = "SIGTERM"
    for tick in (session := Session.resume(path)).run():
        if tick.step == 13:
            ask(path, "do", "reset-reference")
            ask(path, "revert", "h1")
    return path


def test_a_run_with_every_kind_of_intervention_is_the_same_again(run, tmp_path, capsys) -> None:
    assert main(["replay", str(run), "--check", "--json", "-o", str(tmp_path / "again")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["agrees"] and told["rows"] == 23 and told["interventions"] == 6 and told["first_difference"] is None
    again = RunReader(tmp_path / "again")
    assert again.about["attempts"][1]["from_step"] == 6 and len(again.about["attempts"]) == 3
    assert list(run.parent.iterdir()) == [run], "nothing is written beside the run when -o says where"


def test_only_the_first_steps_are_trained_when_asked(run, tmp_path) -> None:
    done = replay(run, tmp_path / "again", steps=4)
    assert done.rows == 4 and done.first is None and RunReader(tmp_path / "again").history.step == 4


def test_an_intervention_that_the_journal_lacks_shows_where_it_was_made(run, tmp_path, capsys) -> None:
    kept, previous = [], ""
    for entry in RunReader(run).actions:
        if entry.action == "h1":
            continue
        entry = replace(entry, n=len(kept), prev=previous, hash="")
        kept.append(replace(entry, hash=chain_hash(entry)))
        previous = kept[-1].hash
    forged = tmp_path / "forged"
    copy(run, forged, b"".join(encode(entry) for entry in kept))
    assert main(["replay", str(forged), "--check"]) == 1
    told = capsys.readouterr().out
    assert "step 4: control/prompts was 6 in the run and is 4 here; the journal has no entry for this change" in told


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (0.327305756939373, 0.3273057569393729, True),
        (0.3273, 0.3274, False),
        (0.3, None, False),
        (0.3, math.nan, False),
    ],
)
def test_a_difference_of_rounding_is_called_that_and_no_other(was, now, said) -> None:
    words = Difference(0, 15, "rollout/prompt_dependence", was, now).words()
    assert words.startswith("step 15: rollout/prompt_dependence was") and ("OMP_NUM_THREADS" in words) == said


def copy(run: Path, to: Path, journal: bytes) -> None:
    import shutil

    shutil.copytree(run, to, ignore=shutil.ignore_patterns("checkpoints", "requests"))
    (to / "actions.jsonl").write_bytes(journal)


def test_a_broken_journal_is_not_replayed(run, tmp_path) -> None:
    copy(run, tmp_path / "cut", b"".join((run / "actions.jsonl").read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(RunError, match="the journal was changed: line 1"):
        replay(tmp_path / "cut", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_run_of_remedies_is_the_same_again(tmp_path) -> None:
    config = load_config(
        "addition", [*SMALL, "optim.lr=0.005", "optim.warmup_steps=20", "rollout.prompts=16"], steps=60
    )
    session = Session.start(config, tmp_path / "run", "auto-full")
    list(session.run())
    assert any(entry.entry == "applied" for entry in RunReader(tmp_path / "run").actions), "it is meant to need a fix"
    done = replay(tmp_path / "run", tmp_path / "again")
    assert done.first is None, done.first.words()
    assert isinstance(RunReader(tmp_path / "again").actions[0], Action)


@pytest.mark.parametrize(
    "key,value", [("config", None), ("config", [1]), ("attempts", [{"attempt": 0}]), ("attempts", 1)]
)
def test_a_damaged_run_is_refused_in_words(run, tmp_path, key, value) -> None:
    shutil.copytree(run, tmp_path / "run")
    about = json.loads((tmp_path / "run/run.json").read_text())
    (tmp_path / "run/run.json").write_text(json.dumps({**about, key: value}))
    with pytest.raises(RunError, match="run.json or actions.jsonl is damaged"):
        replay(tmp_path / "run", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_run_without_rows_agrees_with_nothing(run, tmp_path) -> None:
    shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/metrics")
    with pytest.raises(RunError, match="nothing to compare"):
        replay(tmp_path / "run", tmp_path / "again")


class Averages(Detector):
    """Sees wrong averages of the optimizer from step 4 on, whatever is done."""

    id = "optim/optimizer-state"
    needs = ()
    confirm = 1

    def check(self, view: RunView) -> Finding | None:
        if view.step < 4:
            return None
        return Finding(self.id, "critical", "the averages do not match", 4, view.step, view.step)


@pytest.mark.parametrize("ring", [0, 2])
@pytest.mark.parametrize("every", [1, 50])
@pytest.mark.parametrize("killed", [False, True])
def test_an_undone_reset_of_the_optimizer_is_undone_and_replays(tmp_path, monkeypatch, killed, every, ring) -> None:
    monkeypatch.setattr(ResetOptimizer, "horizon", 4)
    monkeypatch.setattr(
        "stabilizer.live.monitor.new_watch",
        lambda outcomes=None: Watch(
            lambda *_: (Cause("optimizer-state", 0.9, "said so"),), advice, (Averages(),), outcomes
        ),
    )
    more = [f"checkpoint.every={every}", f"checkpoint.ring={ring}", "validation.every=0"]
    session = Session.start(load_config("addition", [*SMALL, *more], steps=24), tmp_path / "run", "auto-full")
    for tick in session.run():
        trial = session.arbiter.trial
        if killed and trial and trial.remedy.id == ResetOptimizer.id and tick.step == trial.began + 1:
            break
    if killed:
        session.writer.close()
        for newer in (tmp_path / "run" / "checkpoints").iterdir():  # as a kill at this point would have left it
            if int(newer.name.split("-")[1]) > trial.snapshot.step:
                shutil.rmtree(newer)
        list(Session.resume(tmp_path / "run", "auto-full").run())
    entries = [entry.entry for entry in RunReader(tmp_path / "run").actions if entry.remedy == "reset-optimizer"]
    assert "applied" in entries and "reverted" in entries
    made = replay(tmp_path / "run", tmp_path / "again")
    assert made.first is None, made.first.words()


def test_numbers_of_the_machine_are_not_compared() -> None:
    """They are sampled by the clock, so on a slow machine at other steps."""
    mine, theirs = (
        SimpleNamespace(rows={0: {1: {"reward/mean": 0.5} | more}}) for more in ({"system/cpu_frac": 1.0}, {})
    )
    assert _compare(mine, theirs, 9) == (None, 1, 1)
    assert _compare(mine, SimpleNamespace(rows={0: {1: {"reward/mean": 0.4}}}), 9)[0] is not None
