"""Whole runs with the watch beside them: nobody acts, the automatic modes do, a person does, or an article is followed.

A person acts through the same request that the dashboard's buttons and `stabilizer fix` leave. A run in which nothing
was changed is the same in every mode, bit for bit (`tests/live` holds the trainer to that), so it is trained once and
stands for them.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from statistics import fmean
from time import process_time
from typing import Any, NamedTuple

from bench.cases import shared
from bench.cases.shared import BUILD, QUIET, Tell
from stabilizer.control.engine import Mode
from stabilizer.core.records import Finding
from stabilizer.live.session import Session
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
    metric: str = "accuracy/val"
    look: int = 0
    """The step at which a person looks, whatever is reported; 0 for the step at which the symptom is reported."""
    planned: int = 0


class Told(NamedTuple):
    """When a symptom was told, by severity, and the first cause then."""

    steps: Mapping[str, int]
    causes: Mapping[str, str]


def measured(plan: Plan, ways: Sequence[Way], seeds: Sequence[int], tell: Tell) -> tuple[dict[str, Any], list[Told]]:
    """Every way for every seed, as `arms.json` holds a trial, and when the symptom was told where nobody acted."""
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
    arms = [_arm(way, seeds, rows[way.name]) for way in ways]
    return {"metric": plan.metric, "arms": arms}, told


def keep(plan: Plan, ways: Sequence[Way], seeds: Sequence[int], tell: Tell) -> None:
    """Measure, and put it where the case's page looks for it."""
    trial, told = measured(plan, ways, seeds, tell)
    trial |= {"title": "Live, from the first step", "note": note(plan, seeds)}
    names = " or ".join(plan.symptom)
    said = {
        f"Reported live as {words} ({names}), where nobody acts": in_words(told, severity)
        for severity, words in (("info", "information"), ("warn", "a warning"))
    }
    shared.write(plan.name, [trial], said)


def note(plan: Plan, seeds: Sequence[int]) -> str:
    """How the runs were made."""
    return (
        f"{plan.steps} steps, {plan.metric} every {plan.every} of them, seeds {seeds[0]} to {seeds[-1]}, the same"
        " prompts for every way of a seed. A person acts through the request of the dashboard's button."
    )


def _arm(way: Way, seeds: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    acted = [row["acts"] for row in rows if row["acts"]]
    if way.turns:
        change = way.change
    elif not acted:
        change = "nothing to do" if way.mode != "off" else ""
    else:
        first = sorted({f"{acts[0][1]} at step {acts[0][0]}" for acts in acted})
        change = f"{len(acted)} of {len(rows)} seeds acted: {'; '.join(first)}"
    return shared.together(way.name, seeds, rows) | {"change": change}


def _run(plan: Plan, way: Way, seed: int) -> dict[str, Any]:
    return shared.kept_or(lambda: _trained(plan, way, seed), plan.name, ["live", *map(str, plan), *map(str, way), seed])


def _trained(plan: Plan, way: Way, seed: int) -> dict[str, Any]:
    """One run: values, what was done (step and words), and when the symptom was told."""
    path = BUILD / plan.name / f"live-{seed}-{way.name.replace(' ', '-')}"
    shutil.rmtree(path, ignore_errors=True)
    held_out = plan.metric == "accuracy/val"
    settings = [*plan.overrides, *QUIET[1:], f"validation.every={plan.every if held_out else 0}"]
    config = load_config(plan.task, settings, steps=plan.planned or plan.steps, seed=seed)
    watching = way.mode if way.mode != "off" else "suggest"  # the watch sees and says the same, and nobody answers it
    notes = _Notes(plan)
    asked = False
    for tick in Session.start(config, path, watching).run():
        notes.add(tick.step, tick.metrics)
        notes.hear(tick.step, tick.findings)
        notes.journaled += [(action.step, action.entry, action.remedy, action.text) for action in tick.actions]
        notes.acts += [(tick.step, action.remedy) for action in tick.actions if action.entry == "applied"]
        if way.approves:
            for action in (action for action in tick.actions if action.entry == "proposed"):
                ask(path, "approve", action.action, by="dashboard", proposal=action.hash)
        if way.turns and not asked and (tick.step == plan.look if plan.look else notes.told):
            asked = True
            for turn in way.turns.split():
                ask(path, "set", turn, by="dashboard")
        if tick.step >= plan.steps:
            break
    shutil.rmtree(path, ignore_errors=True)
    return notes.as_row()


class _Notes:
    """What is kept of a run."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._since: list[float] = []
        self._ends: dict[int, tuple[float, float]] = {}
        """Step -> completions and value. A run that returned to a checkpoint makes some steps again."""
        self._spent, self._began = 0.0, process_time()
        self._step_s: list[float] = []
        self.journaled: list[tuple[int, str, str, str]] = []
        self.acts: list[tuple[int, str]] = []
        self.told: dict[str, int] = {}
        self.causes: dict[str, str] = {}

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step's numbers; a value is the mean of the metric since the value before."""
        self._step_s.append(process_time() - self._began)
        self._began = process_time()
        self._spent += metrics["batch/prompts_drawn"] * metrics["batch/group_size"]
        if self._plan.metric in metrics:
            self._since.append(metrics[self._plan.metric])
        if step % self._plan.every == 0:
            self._ends[step] = (self._spent, round(fmean(self._since), 4) if self._since else math.nan)
            self._since.clear()

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
            "steps": steps, "completions": list(spent), "values": list(values), "step_s": self._step_s,
            "change": "", "acts": self.acts, "journaled": self.journaled, "told": self.told, "causes": self.causes,
        }  # fmt: skip


def in_words(told: Sequence[Told], severity: str) -> str:
    """In how many seeds it was told so, at which steps, and with which first cause."""
    seen = [(one.steps[severity], one.causes[severity]) for one in told if severity in one.steps]
    steps = ", ".join(str(step) for step, _ in seen)
    causes = ", ".join(sorted({cause for _, cause in seen if cause}))
    return f"{len(seen)} of {len(told)} seeds" + (f", at step {steps}; first cause {causes or 'none'}" if seen else "")
