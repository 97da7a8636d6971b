"""One run of RescueBench: a case under one arm, from its start to its last iteration.

    python -m bench.rescue.play HALF NAME ARM [--seed N] [--runs DIR]

trains one again and keeps its run directory, for `stabilizer dashboard` and `stabilizer report` to show.

Iterations are counted as they are trained: those that a rollback throws away count, and what it costs to ask whether
to go back, so that every arm has equally many. What the policy can do is measured on held-out problems of its own, the
same for all arms, by the greedy answer of a sound engine under the configured length limit: a broken sampler or a knob
may spoil training, not the yardstick.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from bench.detect import live_lookalikes
from bench.detect.live import start
from bench.detect.reach import wrap
from bench.environment import CACHE as CACHES
from bench.rescue import faults
from bench.rescue.arms import ARMS, Arm, Memory, loud
from bench.rescue.plan import OTHER_PROMPTS, Case, plan, quick
from stabilizer.control.probe import COST
from stabilizer.live.session import Session
from stabilizer.live.tick import Tick
from stabilizer.training.config import load_config
from stabilizer.training.loop import StepResult, Trainer
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.tasks import HELD_OUT, Task

CACHE = CACHES / "bench" / "rescue"
EVERY = 20
"""Iterations between two measurements of what the policy can do."""
LAST = (40, 30, 20, 10, 0)
"""Iterations before the end at which it is measured for the score, which is the mean."""
PROBLEMS = {"addition": 2048, "sorting": 2048, "search": 256}
"""Held-out problems asked for the score, 512 where nothing is said: what is left over of their draw is noise, and
episodes with a tool take longer."""
PATIENCE_S = 120
"""Seconds without an iteration after which a run that stands still, for a remedy paused it, is scored as it stands."""
PARTS = 12
"""In how many parts those seconds are counted."""
TIMES_S = 0.01
"""What every time of a step is logged as: findings may not depend on what else this machine is doing."""

Outcome = dict[str, Any]
"""How one run went, as JSON's own types."""


class StandsStill(BaseException):
    """No iteration for too long. No Exception, for the session takes those for its monitor's."""


def play(case: Case, arm: str, path: Path, folder: Path = CACHE) -> Outcome:
    """Train a case under an arm of `ARMS` into `path`."""
    began = time.monotonic()
    treatment = ARMS[arm]
    session = _session(case, treatment, path, folder)
    trained, curve, ended = 0, {0: accuracy(case, session.trainer)}, ""
    memory, seen = Memory(case.seed), _Seen()

    def clock() -> int:
        return trained

    if case.onset == 1:
        _happen(case, session, clock)
    ticks = session.run()
    try:
        with _patience(PATIENCE_S) as wait_again:
            for tick in ticks:
                wait_again()
                seen.heed(trained + 1, tick, treatment.after(session, tick, memory))
                for _ in range(1 + _asked(tick)):
                    trained += 1
                    if trained in marks(case.steps):
                        curve[trained] = accuracy(case, session.trainer, case.steps - trained in LAST)
                    if trained == case.steps:
                        break
                    if trained + 1 == case.onset:
                        _happen(case, session, clock)
                if trained == case.steps:
                    break
    except StandsStill:
        ended = "stood still"
    except Exception as error:  # training that died is an outcome like any other
        ended = f"failed: {type(error).__name__}: {error}"
    finally:
        ticks.close()
    if trained < case.steps:
        ended = ended or session.stop_reason or session.trainer.finished or "ended early"
        now = accuracy(case, session.trainer, scores=True)
        curve |= {mark: now for mark in marks(case.steps) if mark not in curve}
    return {
        "case": case.name, "kind": case.kind, "arm": arm, "onset": case.onset, "steps": case.steps, "trained": trained,
        "at_step": session.trainer.step, "ended": ended, "curve": sorted([at, value] for at, value in curve.items()),
        "final": sum(curve[case.steps - back] for back in LAST) / len(LAST),
        "findings": list(seen.findings.values()), "actions": seen.actions,
        "seconds": round(time.monotonic() - began, 2),
    }  # fmt: skip


def marks(steps: int) -> set[int]:
    """Iterations after which the policy is measured."""
    return {*range(EVERY, steps + 1, EVERY), *(steps - back for back in LAST)}


def accuracy(case: Case, trainer: Trainer, scores: bool = False) -> float:
    """Share of held-out problems that the policy as it is solves, whatever was done to the engine around it: of all of
    them where it is for the score, else of the first."""
    count = PROBLEMS.get(case.task, HELD_OUT)
    problems = trainer.task.held_out(count if scores else min(count, HELD_OUT))
    with _sound(trainer), torch.no_grad():
        limit = trainer.config.rollout.max_completion
        solved = float(trainer.collector.solved(problems, Sampling(1, 0.0, limit)).nanmean())
    return 0.0 if math.isnan(solved) else solved


@contextmanager
def _sound(trainer: Trainer) -> Iterator[None]:
    """A while in which engine and verifier are what they were made as: `reach.wrap` puts its own on the object."""
    wrapped = [(owner, name) for owner, name in ((trainer.engine, "generate"), (trainer.task, "score_all"))]
    aside = [(owner, name, vars(owner).pop(name)) for owner, name in wrapped if name in vars(owner)]
    try:
        yield
    finally:
        for owner, name, value in aside:
            setattr(owner, name, value)


def _session(case: Case, arm: Arm, path: Path, folder: Path) -> Session:
    settings = list(case.settings)
    if case.start is not None:
        settings.append(f"model={start(case.task, case.start, folder)}")
    algorithm = [] if any(key.startswith("algorithm=") for key in settings) else [f"algorithm={case.algorithm}"]
    config = load_config(case.task, [*settings, *algorithm], steps=case.steps, seed=case.seed)
    session = Session.start(config, path, arm.mode)
    trainer = session.trainer
    trainer.task = trainer.collector._task = _own_task(case, trainer.task)
    wrap(trainer, "train_step", _timeless)
    return session


def _own_task(case: Case, task: Task) -> Task:
    """The task as this run's own, for a fault may not reach the next run's, with all that is asked for set aside."""
    own = copy.copy(task)
    own.held_out_count = max(HELD_OUT, PROBLEMS.get(case.task, 0))
    for known in ("held_out_indices", "_held_out"):
        vars(own).pop(known, None)
    return own


def _timeless(inner: Callable[[], StepResult]) -> StepResult:
    result = inner()
    times = {name: TIMES_S for name in result.metrics if name.startswith("time/")}
    return replace(result, metrics=result.metrics | times)


def _happen(case: Case, session: Session, clock: faults.Clock) -> None:
    """Before the next iteration: the fault, what happens to a healthy run, or other prompts."""
    if case.kind == OTHER_PROMPTS:
        controls = session.trainer.controls
        controls.restore(controls.snapshot(), vary_data=True)
    elif case.severity:
        faults.BY_KIND[case.kind].act(session.trainer, case.strength, clock)
    elif look := live_lookalikes.BY_KIND.get(case.kind):
        look.act(session.trainer)
        if look.declares:
            session.host.declare(session.trainer.step + 1, look.declares, look.kind.removeprefix("healthy/"))


def _asked(tick: Tick) -> int:
    """Iterations that went into asking what would be won by going back: they teach nothing, and count."""
    return COST * sum("probe" in action.data for action in tick.actions)


class _Seen:
    """What detectors said and what was done, by the iteration at which it was."""

    def __init__(self) -> None:
        self.findings: dict[tuple[int, str], dict[str, Any]] = {}
        self.actions: list[dict[str, Any]] = []

    def heed(self, trained: int, tick: Tick, done: str) -> None:
        for finding in loud(tick.findings):
            row = self.findings.setdefault(
                (finding.incident, finding.id),
                {"at": trained, "id": finding.id, "incident": finding.incident, "onset": finding.onset_step},
            )
            row |= {"severity": finding.severity, "causes": [cause.id for cause in finding.causes],
                    "summary": finding.summary}  # fmt: skip
        for action in tick.actions:
            self.actions.append({
                "at": trained, "entry": action.entry, "remedy": action.remedy, "safety": action.safety,
                "incident": action.incident, "change": {k: list(v) for k, v in action.change.items()},
                "text": action.text,
            })  # fmt: skip
        if done:
            self.actions.append({"at": trained, "entry": "applied", "remedy": "baseline", "safety": "soft",
                                 "incident": 0, "change": {}, "text": done})  # fmt: skip


@contextmanager
def _patience(seconds: float) -> Iterator[Callable[[], object]]:
    """Raise `StandsStill` after so many seconds, counted anew whenever what this yields is called.

    They are counted in parts: however long a process is stopped, as by a machine that sleeps, one part at most passes.
    """
    passed = 0

    def wait_again() -> None:
        nonlocal passed
        passed = 0

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal passed
        passed += 1
        if passed >= PARTS:
            raise StandsStill

    before = signal.signal(signal.SIGALRM, count)
    signal.setitimer(signal.ITIMER_REAL, seconds / PARTS, seconds / PARTS)
    try:
        yield wait_again
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    """Train one case again, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("half", choices=("develop", "report"))
    parser.add_argument("name", help="as `stabilizer bench rescue --show` gives it")
    parser.add_argument("arm", choices=[*ARMS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    args = parser.parse_args()
    cases = {c.name: c for c in [*quick(args.seed), *plan(args.half, args.seed, args.rounds)]}
    cases |= {twin.name: twin for case in cases.values() for twin in (case.twin, case.other_prompts)}
    if args.name not in cases:
        parser.error(f"no case {args.name!r} in the {args.half} half of seed {args.seed}, {args.rounds} round(s)")
    path = args.runs / f"{args.name}-{args.arm.replace(' ', '-')}"
    if path.exists():
        shutil.rmtree(path)
    print(json.dumps(play(cases[args.name], args.arm, path), indent=1))
    print(os.path.relpath(path))


if __name__ == "__main__":
    main()
