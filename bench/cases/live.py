"""Whole runs with the watch beside them: nobody acts, the automatic modes do, a person does, or an article is followed.

A person acts through the same request that the dashboard's buttons and `stabilizer fix` leave. A run in which nothing
was changed is the same in every mode, bit for bit (`tests/live` holds the trainer to that), so it is trained once and
stands for them. A person's ways go on from a copy of it, taken when the symptom was reported.
"""

from __future__ import annotations

import math
import pickle
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from bench.cases import shared
from bench.cases.shared import BUILD, QUIET, Tell
from stabilizer.control.engine import Mode
from stabilizer.core.records import Finding
from stabilizer.live.session import Session
from stabilizer.live.tick import Tick
from stabilizer.runs.requests import ask
from stabilizer.training.config import load_config


class Way(NamedTuple):
    """One way of dealing with a run. `turns`: knobs a person sets when the symptom is reported (or at `Plan.look`)."""

    name: str
    mode: Mode = "off"
    approves: bool = False
    """Whether a person approves every proposal as it comes."""
    turns: str = ""
    change: str = ""
    """The change in words, where a person makes it."""


def swing(values: Sequence[float]) -> float:
    """From the 5th to the 95th percentile."""
    low, high = np.nanpercentile(values, (5, 95))
    return float(high - low)


NOTES = "notes.pickle"
"""What was noted of a run up to its copy."""
READ = {"mean": fmean, "median": median, "swing": swing}
"""What is taken of the rows between two values."""
IN_WORDS = {"mean": "the mean", "median": "the median", "swing": "5th to 95th percentile"}


class Reading(NamedTuple):
    """What a table compares: a metric, and what is taken of its rows between two values."""

    metric: str
    how: str = "mean"
    title: str = "Live, from the first step"


class Plan(NamedTuple):
    """The runs of a case."""

    name: str
    task: str
    overrides: Sequence[str]
    steps: int
    every: int
    """Steps between two values."""
    symptom: tuple[str, ...]
    """The findings that tell the symptom."""
    readings: tuple[Reading, ...] = (Reading("accuracy/val"),)
    """What is compared, a table each."""
    look: int = 0
    """The step at which a person looks, whatever is reported; 0 for the step at which the symptom is reported."""
    planned: int = 0


class Told(NamedTuple):
    """When a symptom was told, by severity, and the first cause then."""

    steps: Mapping[str, int]
    causes: Mapping[str, str]


def measured(
    plan: Plan, ways: Sequence[Way], seeds: Sequence[int], tell: Tell
) -> tuple[list[dict[str, Any]], list[Told]]:
    """Every way for every seed, as `arms.json` holds trials, and when the symptom was told where nobody acted."""
    rows: dict[str, list[dict[str, Any]]] = {way.name: [] for way in ways}
    told = []
    for seed in seeds:
        quiet: dict[str, Any] | None = None
        for way in sorted(ways, key=lambda way: way.mode != "auto-full"):
            row = quiet if quiet is not None and not way.turns else _run(plan, way, seed)
            if way.mode == "auto-full" and not row["journaled"]:
                quiet = row
            rows[way.name].append(row)
            tell(f"seed {seed}, {way.name}: {row['values']} {row['acts']} {row['told']}")
        told.append(Told(rows[ways[0].name][-1]["told"], rows[ways[0].name][-1]["causes"]))
    trials = [
        {
            "title": reading.title, "metric": reading.metric, "note": note(plan, reading, seeds),
            "arms": [_arm(way, seeds, rows[way.name], place) for way in ways],
        }
        for place, reading in enumerate(plan.readings)
    ]  # fmt: skip
    return trials, told


def keep(plan: Plan, ways: Sequence[Way], seeds: Sequence[int], tell: Tell) -> None:
    """Measure, and put it where the case's page looks for it."""
    trials, told = measured(plan, ways, seeds, tell)
    names = " or ".join(plan.symptom)
    said = {
        f"Reported live as {words} ({names}), where nobody acts": in_words(told, severity)
        for severity, words in (("info", "information"), ("warn", "a warning"))
    }
    shared.write(plan.name, trials, said)


def note(plan: Plan, reading: Reading, seeds: Sequence[int]) -> str:
    """How the runs were made."""
    what = f"{reading.metric} every {plan.every} of them"
    if not _held_out(plan):
        what = f"{IN_WORDS[reading.how]} of {reading.metric} over each {plan.every} of them"
    return (
        f"{plan.steps} steps, {what}, seeds {seeds[0]} to {seeds[-1]}, the same"
        " prompts for every way of a seed. A person acts through the request of the dashboard's button."
    )


def _held_out(plan: Plan) -> bool:
    return any(reading.metric == "accuracy/val" for reading in plan.readings)


def _arm(way: Way, seeds: Sequence[int], rows: Sequence[Mapping[str, Any]], place: int) -> dict[str, Any]:
    acted = [row["acts"] for row in rows if row["acts"]]
    if way.turns:
        change = way.change
    elif not acted:
        change = "nothing to do" if way.mode != "off" else ""
    else:
        first = sorted({f"{acts[0][1]} at step {acts[0][0]}" for acts in acted})
        change = f"{len(acted)} of {len(rows)} seeds acted: {'; '.join(first)}"
    read = [{**row, "values": row["values"][place]} for row in rows]
    return shared.together(way.name, seeds, read) | {"change": change}


def _run(plan: Plan, way: Way, seed: int) -> dict[str, Any]:
    return shared.kept_or(lambda: _trained(plan, way, seed), plan.name, ["live", *map(str, plan), *map(str, way), seed])


def _trained(plan: Plan, way: Way, seed: int) -> dict[str, Any]:
    """One run: values, what was done (step and words), and when the symptom was told."""
    path = BUILD / plan.name / f"live-{seed}-{way.name.replace(' ', '-')}"
    copied = path.with_name(f"live-{seed}-reported")
    if way.mode == "auto-full":
        shutil.rmtree(copied, ignore_errors=True)
    session, notes = _begun(plan, way, seed, path, copied)
    for tick in session.run():
        notes.take(tick)
        if way.approves:
            for action in (action for action in tick.actions if action.entry == "proposed"):
                ask(path, "approve", action.action, by="dashboard", proposal=action.hash)
        if way.turns and not notes.reported and notes.due(tick.step):
            notes.reported = True
            _turn(path, way)
        if way.mode == "auto-full" and not notes.reported and not notes.journaled and notes.due(tick.step):
            notes.reported = True
            session.host.save_checkpoint()
            shutil.copytree(path, copied)
            (copied / NOTES).write_bytes(pickle.dumps(notes))
        if tick.step >= plan.steps:
            break
    shutil.rmtree(path, ignore_errors=True)
    return notes.as_row()


def _begun(plan: Plan, way: Way, seed: int, path: Path, copied: Path) -> tuple[Session, _Notes]:
    """A new run; or the copy of one that nothing was done to, for a person who acts where it ends."""
    shutil.rmtree(path, ignore_errors=True)
    watching = way.mode if way.mode != "off" else "suggest"  # the watch sees and says the same, and nobody answers it
    if way.turns and copied.exists():
        shutil.copytree(copied, path)
        _turn(path, way)
        return Session.resume(path, watching), pickle.loads((path / NOTES).read_bytes())  # noqa: S301
    settings = [*plan.overrides, *QUIET[1:], f"validation.every={plan.every if _held_out(plan) else 0}"]
    config = load_config(plan.task, settings, steps=plan.planned or plan.steps, seed=seed)
    return Session.start(config, path, watching), _Notes(plan)


def _turn(path: Path, way: Way) -> None:
    for turn in way.turns.split():
        ask(path, "set", turn, by="dashboard")


class _Notes:
    """What is kept of a run."""

    reported = False
    """Whether the symptom was reported, or the step of the look reached."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._since: list[list[float]] = [[] for _ in plan.readings]
        self._ends: dict[int, tuple[float, list[float]]] = {}
        """Step -> completions and values. A run that returned to a checkpoint makes some steps again."""
        self._spent, self._began = 0.0, process_time()
        self._step_s: list[float] = []
        self.journaled: list[tuple[int, str, str, str]] = []
        self.acts: list[tuple[int, str]] = []
        self.told: dict[str, int] = {}
        self.causes: dict[str, str] = {}

    def take(self, tick: Tick) -> None:
        """All that a step brought."""
        self.add(tick.step, tick.metrics)
        self.hear(tick.step, tick.findings)
        self.journaled += [(action.step, action.entry, action.remedy, action.text) for action in tick.actions]
        self.acts += [(tick.step, action.remedy) for action in tick.actions if action.entry == "applied"]

    def due(self, step: int) -> bool:
        """Whether a person who waits for the report, or for the step of the look, acts now."""
        return step == self._plan.look if self._plan.look else bool(self.told)

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step's numbers; a value is taken of the metric's rows since the value before."""
        self._step_s.append(process_time() - self._began)
        self._began = process_time()
        self._spent += metrics["batch/prompts_drawn"] * metrics["batch/group_size"]
        for reading, since in zip(self._plan.readings, self._since, strict=True):
            since += [metrics[reading.metric]] if reading.metric in metrics else []
        if step % self._plan.every == 0:
            read = zip(self._plan.readings, self._since, strict=True)
            values = [round(READ[reading.how](since), 4) if since else math.nan for reading, since in read]
            self._ends[step] = (self._spent, values)
            self._since = [[] for _ in self._plan.readings]

    def hear(self, step: int, findings: Sequence[Finding]) -> None:
        """Note when the symptom is first reported, by severity."""
        for finding in findings:
            if finding.id in self._plan.symptom and finding.severity not in self.told:
                self.told[finding.severity] = step
                self.causes[finding.severity] = finding.causes[0].id if finding.causes else ""

    def as_row(self) -> dict[str, Any]:
        """All of it, as kept."""
        steps = sorted(self._ends)
        spent, values = zip(*(self._ends[step] for step in steps), strict=True)
        return {
            "steps": steps, "completions": list(spent), "values": [list(each) for each in zip(*values, strict=True)],
            "step_s": self._step_s,
            "change": "", "acts": self.acts, "journaled": self.journaled, "told": self.told, "causes": self.causes,
        }  # fmt: skip


def in_words(told: Sequence[Told], severity: str) -> str:
    """In how many seeds it was told so, at which steps, and with which first cause."""
    seen = [(one.steps[severity], one.causes[severity]) for one in told if severity in one.steps]
    steps = ", ".join(str(step) for step, _ in seen)
    causes = ", ".join(sorted({cause for _, cause in seen if cause}))
    return f"{len(seen)} of {len(told)} seeds" + (f", at step {steps}; first cause {causes or 'none'}" if seen else "")
