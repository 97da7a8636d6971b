"""One run of RescueBench: what lasts survives going back, what is thrown away counts, doing nothing repeats itself."""

from __future__ import annotations

import copy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.rescue import arms, faults, play
from bench.rescue.arms import ARMS, Arm
from bench.rescue.plan import Case
from stabilizer.core.records import Finding
from stabilizer.live.session import Session
from stabilizer.training.tasks import TASKS

SMALL = Case(
    half="develop", kind="lr-jump", task="addition", algorithm="grpo", seed=3, steps=40, start=None,
    settings=("device=cpu", "rollout.prompts=2", "rollout.group_size=2", "validation.every=0", "checkpoint.every=5",
              "optim.warmup_steps=0", "optim.schedule=constant", "samples.every=0"),
    severity="severe", strength=30.0, onset=12,
)  # fmt: skip
ALARM = Finding("optim/grad-spike", "warn", "made up", onset_step=12, detected_step=15, last_step=15, state="open",
                incident=1)  # fmt: skip


@pytest.fixture(autouse=True)
def few_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(play.PROBLEMS, "addition", 16)


@pytest.fixture
def alarmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding at iteration 15, whatever the detectors say."""
    heard = arms.Arm.after
    count = {"ticks": 0}

    class Ticked:
        def __init__(self, findings: list[Finding]):
            self.findings = findings

    def around(arm: Arm, session: Session, tick: object, memory: object) -> str:
        count["ticks"] += 1
        return heard(arm, session, Ticked([ALARM] if count["ticks"] == 15 else []), memory)

    monkeypatch.setattr(arms.Arm, "after", around)


def what(outcome: play.Outcome) -> dict[str, object]:
    """An outcome without what depends on the machine's mood."""
    return {name: value for name, value in outcome.items() if name not in ("seconds", "arm")}


def test_doing_nothing_comes_out_the_same_every_time(tmp_path: Path) -> None:
    first, second = (play.play(SMALL, "no action", tmp_path / name, tmp_path) for name in "ab")
    assert what(first) == what(second)
    assert (first["trained"], first["at_step"], first["ended"]) == (40, 40, "")


def test_an_arm_that_did_nothing_ends_as_the_run_without_any_action(tmp_path: Path) -> None:
    """So that such arms need not be trained."""
    calm = replace(SMALL.twin, settings=(*SMALL.settings, "optim.lr=1e-4"))
    off, full = (play.play(calm, arm, tmp_path / arm, tmp_path) for arm in ("no action", "auto-full"))
    done = [row for row in full.pop("actions") if row["entry"] != "proposed"]
    assert not done and what(full) == {k: v for k, v in what(off).items() if k != "actions"}


def test_iterations_that_a_rollback_throws_away_count(tmp_path: Path, alarmed: None) -> None:
    outcome = play.play(SMALL, "rollback only", tmp_path / "run", tmp_path)
    assert [row["text"] for row in outcome["actions"]] == ["returned from step 15 to 10"]
    assert (outcome["trained"], outcome["at_step"]) == (40, 35)
    assert [at for at, _ in outcome["curve"]] == [0, 10, 20, 30, 40]


def test_the_learning_rate_is_halved_where_the_detectors_spoke(tmp_path: Path, alarmed: None) -> None:
    outcome = play.play(SMALL, "always halve lr", tmp_path / "run", tmp_path)
    assert [(row["at"], row["text"]) for row in outcome["actions"]] == [(15, "lr_scale 1 → 0.5")]


def test_a_random_action_is_the_same_for_the_same_seed(tmp_path: Path, alarmed: None) -> None:
    outcome = play.play(SMALL, "random action", tmp_path / "run", tmp_path)
    assert len(outcome["actions"]) == 1 and outcome["trained"] == 40


def test_the_fault_begins_at_its_onset_and_the_twin_has_none(tmp_path: Path) -> None:
    rates = {}
    for case in (SMALL, SMALL.twin):
        session, ticks, step = begin(case, tmp_path / case.kind.replace("/", "-"))
        rates[case.kind] = {tick.step: tick.metrics["optim/lr"] for tick in step(20)}
        ticks.close()
    ill, well = rates["lr-jump"], rates["healthy/twin"]
    assert all(ill[step] == well[step] for step in range(1, 12))
    assert all(ill[step] == pytest.approx(30 * well[step]) for step in range(12, 21))


def begin(case: Case, path: Path) -> tuple[Session, Iterator, object]:
    """A session, its ticks, and a function that trains so many iterations and breaks the run where it is to break."""
    session = play._session(case, ARMS["no action"], path, path)
    ticks, seen = session.run(), []

    def step(count: int) -> list:
        for _ in range(count):
            seen.append(next(ticks))
            if len(seen) + 1 == case.onset:
                play._happen(case, session, lambda: len(seen))
        return seen[-count:]

    return session, ticks, step


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list, list]]:
    """The run without a fault, twenty iterations, then back to the tenth and twelve more: its ticks after going back,
    and its weights at iteration 20, then at each after going back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(play.PROBLEMS, "addition", 16)
        session, ticks, step = begin(SMALL.twin, tmp_path_factory.mktemp("twin"))
        step(20)
        weights = [copy.deepcopy(session.trainer.learner.parameters)]
        back_to_ten(session)
        told = []
        for _ in range(12):
            told += step(1)
            weights.append(copy.deepcopy(session.trainer.learner.parameters))
        ticks.close()
    yield told, weights


def same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def back_to_ten(session: Session) -> None:
    session.host.roll_back(next(c for c in session.trainer.checkpoints() if c.step == 10), "back")


@pytest.mark.parametrize("kind", ["lr-jump", "lr-ramp", "kl-pinned", "stale-weights", "corrupt-batches"])
def test_what_lasts_survives_going_back_and_does_not_begin_anew(kind: str, tmp_path: Path, twin: tuple) -> None:
    fault = faults.BY_KIND[kind]
    case = replace(SMALL, kind=kind, strength=float(fault.develop[2]), onset=12)
    session, ticks, step = begin(case, tmp_path / "run")
    step(20)
    back_to_ten(session)
    ill, well = step(12), twin[0]
    assert [tick.step for tick in ill] == [*range(11, 23)]
    first, clean = ill[0].metrics, well[0].metrics
    if kind == "lr-jump":
        assert first["optim/lr"] == pytest.approx(case.strength * clean["optim/lr"])
    elif kind == "lr-ramp":  # 9 iterations of it had passed, and the 10th comes next
        assert first["optim/lr"] == pytest.approx(case.strength ** (10 / faults.RAMP) * clean["optim/lr"])
    elif kind == "kl-pinned":
        assert first["control/beta"] == 1.0
    elif kind == "stale-weights":  # what was held is from the onset, and the learner's weights are from before it
        assert ill[-1].metrics["policy/mismatch_kl"] > 10 * abs(well[-1].metrics["policy/mismatch_kl"])
    else:  # iterations 12, 22, 32 are hit: the second after going back, whatever the step is called
        assert ill[1].metrics["policy/loss"] != well[1].metrics["policy/loss"]
    ticks.close()


@pytest.mark.parametrize("kind", ["nan-weight", "weights-hit", "second-moment-lost", "resume-amnesia"])
def test_what_happened_once_is_undone_by_going_back(kind: str, tmp_path: Path, twin: tuple) -> None:
    case = replace(SMALL, kind=kind, strength=1.0 if kind != "second-moment-lost" else 1e-8, onset=12)
    session, ticks, step = begin(case, tmp_path / "run")
    well, weights = twin
    step(20)
    assert not same(session.trainer.learner.parameters, weights[0])
    back_to_ten(session)
    ill = step(5)
    assert same(session.trainer.learner.parameters, weights[5])
    assert ill[-1].metrics["reward/mean"] == well[4].metrics["reward/mean"]
    ticks.close()


def test_a_burst_that_is_over_does_not_come_back(tmp_path: Path) -> None:
    case = replace(SMALL, kind="lr-burst", strength=25.0, onset=2)
    session, ticks, step = begin(case, tmp_path / "run")
    rates = [tick.metrics["optim/lr"] for tick in step(24)]
    assert rates[1] == pytest.approx(25 * rates[0]) and rates[20] == rates[1] and rates[21] == rates[0]
    session.host.roll_back(session.trainer.checkpoints()[0], "back")
    assert [tick.metrics["optim/lr"] for tick in step(3)] == [rates[0]] * 3
    ticks.close()


def test_the_yardstick_is_not_what_was_broken(tmp_path: Path) -> None:
    session, ticks, step = begin(SMALL.twin, tmp_path / "run")
    step(1)
    before = play.accuracy(SMALL, session.trainer)
    for kind in ("stale-weights", "verifier-burst"):
        faults.BY_KIND[kind].act(session.trainer, 1.0, lambda: 1)
    session.trainer.controls.set("control/max_completion", 1)
    wrapped = session.trainer.engine.generate
    assert play.accuracy(SMALL, session.trainer) == before > 0
    assert session.trainer.engine.generate is wrapped  # and training goes on with what was broken
    ticks.close()


def test_what_is_asked_for_the_score_is_never_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(play.PROBLEMS, "addition", 3000)
    session, ticks, step = begin(SMALL.twin, tmp_path / "run")
    task = session.trainer.task
    asked = {problem.index for problem in task.held_out(3000)}
    assert len(asked) == 3000 and task.held_out(512) == TASKS["addition"].held_out(512)  # validation stays what it is
    assert len(TASKS["addition"].held_out(3000)) == 512  # and so do other runs
    trained = {problem.index for problem in task.training(4000, seed=SMALL.seed, salt=0, cursor=0)}
    assert len(trained) > 2000 and not asked & trained
    session._close("stopped")  # nothing ran: closing `ticks` alone would leave the watchdog's thread behind


def test_training_that_dies_is_scored_where_it_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(trainer: object, strength: float, clock: object) -> None:
        def fail(*about: object, **more: object) -> None:
            raise RuntimeError("no memory left")

        trainer.learner.update = fail

    monkeypatch.setitem(faults.BY_KIND, "lr-jump", replace(faults.BY_KIND["lr-jump"], act=act))
    outcome = play.play(SMALL, "no action", tmp_path / "run", tmp_path)
    assert (outcome["trained"], outcome["ended"]) == (11, "failed: RuntimeError: no memory left")
    assert outcome["curve"][-1][0] == 40


@pytest.mark.slow
def test_a_process_that_was_stopped_for_longer_than_patience_lasts_does_not_stand_still() -> None:
    script = """
import time
from bench.rescue.play import _patience
with _patience(6.0):
    print("began", flush=True)
    until = time.process_time() + 1.0
    while time.process_time() < until:
        pass
print("went on")
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(7)  # the very thing under test: real time goes by and the process stands
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=60)[0] == "went on\n" and process.returncode == 0


def test_a_run_that_stands_still_is_scored_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(trainer: object, strength: float, clock: object) -> None:
        def stand(*about: object, **more: object) -> None:
            raise play.StandsStill

        trainer.learner.update = stand

    monkeypatch.setitem(faults.BY_KIND, "lr-jump", replace(faults.BY_KIND["lr-jump"], act=act))
    outcome = play.play(SMALL, "no action", tmp_path / "run", tmp_path)
    assert (outcome["trained"], outcome["ended"]) == (11, "stood still")


def test_patience_ends_what_waits_for_nobody() -> None:
    with pytest.raises(play.StandsStill), play._patience(0.05):
        while True:
            pass
