"""A run made again from its configuration, with every intervention of its journal at the step it was made at.

Nothing is decided anew: remedies are off, and knobs go where the journal puts them. Attempts follow each other as
`run.json` lists them: a resume takes up the state after its step, a return to a checkpoint does too and draws other
prompts from there. So the replay agrees with the run, bit for bit on one machine, exactly when the journal is complete;
where they first differ is where something was not written down, or the machine computes differently.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Action, Event, Metrics
from stabilizer.live.session import Session
from stabilizer.remedies import REMEDIES
from stabilizer.runs import journal
from stabilizer.runs.directory import HIDDEN, hidden_keys
from stabilizer.runs.reader import RunError, RunReader, read_records
from stabilizer.training.checkpoint import scan
from stabilizer.training.config import config_from_dict
from stabilizer.training.knobs import starting_knobs

NOT_COMPARED = ("time/", "rank/")
"""Metrics that say something of the machine and not of the training."""
OBEYED = ("skip-update", "reset-optimizer", "reset-reference")
"""Orders that change what is learned; the others are attempts of their own, or end the run."""
KEEP_ALL = 1_000_000


@dataclass(frozen=True)
class Difference:
    """Where replay and run first part."""

    attempt: int
    step: int
    metric: str
    run: float | None
    replay: float | None

    def words(self) -> str:
        """In a sentence, to all digits."""
        where = f"step {self.step}" + (f" of attempt {self.attempt}" if self.attempt else "")
        why = "; the journal does not say why this knob moved" if self.metric.startswith("control/") else ""
        if not why and self.rounding():
            why = "; a difference of rounding, as another number of threads makes: set OMP_NUM_THREADS as for the run"
        return f"{where}: {self.metric} was {_number(self.run)} in the run and is {_number(self.replay)} here{why}"

    def rounding(self) -> bool:
        """Whether the numbers are as near as sums in another order leave them."""
        return self.run is not None and self.replay is not None and math.isclose(self.run, self.replay, rel_tol=1e-6)


@dataclass(frozen=True)
class Replayed:
    """What came of a replay."""

    path: Path
    rows: int
    """Rows that were trained again and compared, those of abandoned branches included."""
    values: int
    interventions: int
    first: Difference | None
    notes: tuple[str, ...]


class Plan:
    """What happened when, as the journal and `run.json` tell it."""

    def __init__(self, reader: RunReader):
        self.actions = reader.actions
        self.attempts: list[dict[str, Any]] = reader.about["attempts"]
        self.rows: dict[int, dict[int, Mapping[str, float]]] = {}
        for entry in self.attempts:
            number = entry["attempt"]
            records = read_records(reader.path / "metrics" / f"r0-a{number}.jsonl", Metrics).records
            merged: dict[int, dict[str, float]] = {}
            for record in records:
                merged.setdefault(record.step, {}).update(record.values)
            self.rows[number] = merged
        self.entries: dict[tuple[int, int], list[Action]] = defaultdict(list)
        first = {entry["attempt"]: entry["from_step"] - 1 for entry in self.attempts}
        for action in self.actions:
            step = action.data.get("after_step", action.step)
            self.entries[action.attempt, max(step, first.get(action.attempt, 0), 0)].append(action)

    def begins(self, attempt: Mapping[str, Any]) -> int:
        """The step after which an attempt begins."""
        return max(attempt["from_step"] - 1, 0)

    def ends(self, attempt: Mapping[str, Any]) -> int:
        """The last step an attempt has a row of."""
        return max((step for step in self.rows[attempt["attempt"]]), default=self.begins(attempt))

    def knobs(self, initial: Mapping[str, float]) -> dict[tuple[int, int], dict[str, float]]:
        """Where the journal has every knob during each step: (attempt, step) -> knobs."""
        stands = Knobs(initial)
        during = {}
        for attempt in self.attempts:
            number = attempt["attempt"]
            for step in range(self.begins(attempt), self.ends(attempt) + 1):
                stands.pass_boundary(step, self.entries.get((number, step), ()))
                during[number, step + 1] = dict(stands.values)
        return during


class Knobs:
    """The knobs as the journal moves them, boundary by boundary.

    A remedy may take a knob to its new value over some steps: `course`, beside the change it applied, has the value for
    each of them. It goes on while the trial does, and as long as nobody else turned the knob.
    """

    def __init__(self, initial: Mapping[str, float]):
        self.values = dict(initial)
        self._begun: set[str] = set()
        self._courses: dict[str, tuple[int, Mapping[str, Sequence[float]]]] = {}

    def pass_boundary(self, step: int, entries: Sequence[Action]) -> None:
        """What was journaled after `step`, and the next value of what is under way."""
        for entry in entries:
            if entry.entry in ("approved", "applied"):
                self._begun.add(entry.action)
            if entry.entry != "failed" or entry.action in self._begun:
                self.values |= journal.turned(entry)
            if entry.entry in ("verified", "reverted", "failed"):
                self._courses.pop(entry.action, None)
            course = entry.data.get("course")
            if entry.entry == "applied" and entry.remedy != journal.BY_HAND:
                self._courses.clear()  # one trial at a time: one that a stronger change was put upon is at its end
            if entry.entry == "applied" and isinstance(course, dict) and course and all(course.values()):
                self._courses[entry.action] = (step, course)
                self.values |= {knob: values[0] for knob, values in course.items()}
        for began, course in self._courses.values():
            ticks = step - began
            for knob, values in course.items():
                if 0 < ticks < len(values) and self.values.get(knob) == values[ticks - 1]:
                    self.values[knob] = values[ticks]


def replay(
    run: Path, out: Path, *, steps: int | None = None, told: Callable[[int, int], None] = lambda step, of: None
) -> Replayed:
    """Train `run` again into the new run directory `out`, at most `steps` steps, and compare row by row.

    Raises RunError when the run can't be replayed. `told` hears of every step: how many are done, of how many.
    """
    reader = RunReader(run)
    if reader.about.get("trainer") != "stabilizer":
        raise RunError(f"{run}: only runs of this trainer can be replayed, not {reader.about.get('trainer')}'s")
    try:
        config = config_from_dict(reader.about["config"])
        plan = Plan(reader)
        hidden = hidden_keys(reader.about["config"])
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"
        raise RunError(f"{run}: run.json or actions.jsonl is not as this trainer writes it ({why})") from None
    if not any(step > 0 for rows in plan.rows.values() for step in rows):
        raise RunError(f"{run / 'metrics'}: no step was recorded, so there is nothing to compare")
    if hidden:
        raise RunError(f"{run / 'run.json'}: {hidden[0]} was not stored; put its value in place of {HIDDEN!r} first")
    chain = journal.verify(run / "actions.jsonl")
    if chain.broken:
        raise RunError(f"{run / 'actions.jsonl'}: the journal can't be trusted: {chain.broken}")
    wanted = replace(config, checkpoint=replace(config.checkpoint, every=0, keep=KEEP_ALL, best=False))
    again = _Again(plan, Session.start(wanted, out, "off"), reader.events)
    total = sum(len([s for s in rows if s > 0]) for rows in again.plan.rows.values())
    limit = total if steps is None else min(steps, total)
    again.follow(limit, told)
    first, rows, values = _compare(again.plan, Plan(RunReader(out)), limit)
    made = len(journal.interventions(RunReader(out).actions))
    return Replayed(out, rows, values, made, first, tuple(_notes(reader)))


class _Again:
    """A session that is led along a plan."""

    def __init__(self, plan: Plan, session: Session, events: Sequence[Event]):
        self.plan, self.session = plan, session
        self._events = [event for event in events if event.kind in ("intervention", "schedule", "data-stage")]
        self._knobs = Knobs(starting_knobs(session.trainer.config))
        self._orders: dict[str, tuple[int, int, list[str]]] = {}
        """Action -> the step its orders were first given after, for how many steps, and which."""
        self._needed = {plan.begins(attempt) for attempt in plan.attempts[1:]}
        self._place = 0  # which attempt

    @property
    def _attempt(self) -> Mapping[str, Any]:
        return self.plan.attempts[self._place]

    def follow(self, limit: int, told: Callable[[int, int], None]) -> None:
        done = 0
        if not self._boundary(0) or not limit:
            self.session.writer.close()
            return
        for tick in self.session.run():
            done += 1
            told(done, limit)
            if done >= limit or not self._boundary(tick.step):
                self.session.stop_reason = "SIGINT"  # no more is known

    def _boundary(self, step: int) -> bool:
        """Do what was done after a step; False when the story ends here."""
        self._act(step)
        while step >= self.plan.ends(self._attempt):
            if self._place + 1 >= len(self.plan.attempts):
                return False
            self._place += 1
            step = self._branch()
            self._act(step)
        return True

    def _act(self, step: int) -> None:
        """Knobs and orders of this boundary, and the events that tell detectors of them."""
        number, session = self._attempt["attempt"], self.session
        controls = session.trainer.controls
        for event in self._events:
            if event.attempt == number and event.step == step + 1:
                session.declare(event.step, event.kind, event.text, **{**event.data, "replayed": True})
        entries = self.plan.entries.get((number, step), ())
        for entry in entries:
            if entry.entry == "applied":
                self._orders[entry.action] = (step, *self._ordered(entry))
            elif entry.entry in ("verified", "reverted", "failed"):
                self._orders.pop(entry.action, None)
            session.journal(entry)
        self._knobs.pass_boundary(step, entries)
        controls.set_all({knob: value for knob, value in self._knobs.values.items() if knob in controls})
        for action, (began, repeats, orders) in list(self._orders.items()):
            for order in orders:
                controls.obey(order)
            if step + 1 - began >= repeats:  # given for the last time: a later attempt may pass this step again
                del self._orders[action]
        if step in self._needed:
            session.save_checkpoint()

    def _ordered(self, entry: Action) -> tuple[int, list[str]]:
        """For how many steps orders were given, and which: a person's in the entry, a remedy's in its hypothesis."""
        if entry.remedy == journal.BY_HAND:
            given, repeats = [str(entry.data.get("order", ""))], 1
        else:
            life = [other for other in self.plan.actions if other.action == entry.action]
            told = (other.data.get("hypothesis") for other in life)
            said = next((hypothesis for hypothesis in told if isinstance(hypothesis, dict)), {})
            orders, told_repeats = said.get("orders"), said.get("repeats")
            given = orders if isinstance(orders, list) else []
            known = {remedy.id: remedy for remedy in REMEDIES}
            usual = getattr(known.get(entry.remedy), "repeats", 1)
            repeats = told_repeats if isinstance(told_repeats, int) else usual
        return repeats, [order for order in given if order in OBEYED]

    def _branch(self) -> int:
        """Take up the state the next attempt began with; returns its step."""
        attempt, session = self._attempt, self.session
        self._orders.clear()
        state = self._state(self.plan.begins(attempt), attempt.get("parent"))
        if attempt["reason"] == "rollback":
            session.roll_back(state, f"as in the run: back to step {state.step}", replayed=True)
            return state.step
        session.trainer.load_checkpoint(state, vary_data=False)
        session.trainer.attempt = attempt["attempt"]
        history = session.history.fork(state.step + 1, attempt["attempt"])
        session.writer.begin_attempt(state.step + 1, "resume", parent=attempt.get("parent"), history=history)
        session.history = history
        session.declare(state.step + 1, "resume", f"as in the run: resumed from step {state.step}", replayed=True)
        for entry in self.plan.entries.get((attempt.get("parent"), state.step), ()):
            if entry.entry == "applied" and entry.data.get("order") == "skip-update":
                session.trainer.controls.obey("skip-update")  # the step it was meant for was made anew
        return state.step

    def _state(self, step: int, parent: int | None) -> Checkpoint:
        """The state after a step, as the attempt it branched off, or one that led there, left it."""
        line, known = [], {entry["attempt"]: entry.get("parent") for entry in self.plan.attempts}
        while parent is not None:
            line.append(parent)
            parent = known.get(parent)
        there = scan(self.session.writer.path / "checkpoints")
        found = [state for state in there if state.step == step and state.attempt in line]
        if not found:
            raise RunError(f"attempt {self._attempt['attempt']} began after step {step}, which the run has no row of")
        return found[-1]


def _compare(plan: Plan, again: Plan, limit: int) -> tuple[Difference | None, int, int]:
    """First difference in the order of the run, rows and values compared."""
    rows = values = 0
    for attempt, mine in plan.rows.items():
        for step, known in mine.items():
            if step > 0 and rows >= limit:
                return None, rows, values
            theirs = again.rows.get(attempt, {}).get(step, {})
            rows += step > 0
            names = sorted(set(known) | set(theirs), key=lambda name: (not name.startswith("control/"), name))
            for name in names:
                if name.startswith(NOT_COMPARED):
                    continue
                values += 1
                if not _same(known.get(name), theirs.get(name)):
                    return Difference(attempt, step, name, known.get(name), theirs.get(name)), rows, values
    return None, rows, values


def _same(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))


def _notes(reader: RunReader) -> list[str]:
    """What may make honest numbers differ."""
    import platform

    import torch

    notes = []
    versions, hardware = (reader.about.get(name) for name in ("versions", "hardware"))
    versions, hardware = (value if isinstance(value, dict) else {} for value in (versions, hardware))
    if versions.get("torch") not in (None, torch.__version__):
        notes.append(f"the run used torch {versions['torch']}, and this is {torch.__version__}")
    machine = hardware.get("machine")
    if machine not in (None, platform.machine()):
        notes.append(f"the run was made on {machine}, and this is {platform.machine()}")
    if config_from_dict(reader.about["config"]).device != "cpu" and torch.cuda.is_available():
        notes.append("on a GPU sums are not taken in the same order every time, so the last digits may differ")
    return notes


def _number(value: float | None) -> str:
    return "not logged" if value is None else repr(value)
