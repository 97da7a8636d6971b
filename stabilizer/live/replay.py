"""Training a run again from its configuration, with every intervention of its journal at its step.

The replay decides nothing: remedies are off, and knobs follow the journal. Attempts follow each other as `run.json`
lists them: a resume continues from the state after its step; a rollback does too, with other prompts. On the same
machine the replay therefore agrees with the run, bit for bit, if and only if the journal is complete. They first differ
where something was not recorded, or where the machine computes differently.
"""

from __future__ import annotations

import math
import platform
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Action, Event, Metrics
from stabilizer.live.session import Session
from stabilizer.remedies import REMEDIES
from stabilizer.runs import journal, story
from stabilizer.runs.reader import RunError, RunReader, read_records
from stabilizer.runs.secrets import HIDDEN, hidden_keys
from stabilizer.training.checkpoint import scan
from stabilizer.training.config import config_from_dict
from stabilizer.training.knobs import starting_knobs
from stabilizer.training.settings import TrainConfig

NOT_COMPARED = ("time/", "rank/", "system/")
"""Metrics of the machine, not of the training."""
OBEYED = ("skip-update", "reset-optimizer", "reset-reference")
"""Orders that change what is learned; other orders begin an attempt or end the run."""
KEEP_ALL = 1_000_000
"""Number of checkpoints to keep: more than any run has."""


@dataclass(frozen=True)
class Difference:
    """Where replay and run first differ."""

    attempt: int
    step: int
    metric: str
    run: float | None
    replay: float | None

    def words(self) -> str:
        """The difference as a sentence, with all digits."""
        where = f"step {self.step}" + (f" of attempt {self.attempt}" if self.attempt else "")
        why = "; the journal has no entry for this change" if self.metric.startswith("control/") else ""
        if not why and self.rounding():
            why = "; this is rounding, e.g. from another number of threads: set OMP_NUM_THREADS as for the run"
        return f"{where}: {self.metric} was {_number(self.run)} in the run and is {_number(self.replay)} here{why}"

    def rounding(self) -> bool:
        """Whether the difference is as small as that of sums in another order."""
        return self.run is not None and self.replay is not None and math.isclose(self.run, self.replay, rel_tol=1e-6)


@dataclass(frozen=True)
class Replayed:
    """The result of a replay."""

    path: Path
    rows: int
    """Rows that were trained again and compared, including those of abandoned branches."""
    values: int
    interventions: int
    first: Difference | None
    notes: tuple[str, ...]


class Plan:
    """What happened when, according to the journal and `run.json`."""

    def __init__(self, reader: RunReader):
        self.actions = reader.actions
        self.attempts: list[dict[str, Any]] = reader.about["attempts"]
        self.rows: dict[int, dict[int, Mapping[str, float]]] = {}
        for entry in self.attempts:
            number = entry["attempt"]
            records = read_records(reader.path / "metrics" / f"r0-a{number}.jsonl", Metrics).records
            rows = self.rows[number] = {}
            for record in records:
                rows[record.step] = {**rows.get(record.step, {}), **record.values}
        self.entries: dict[tuple[int, int], list[Action]] = defaultdict(list)
        first = {entry["attempt"]: entry["from_step"] - 1 for entry in self.attempts}
        for action in self.actions:
            step = action.data.get("after_step", action.step)
            self.entries[action.attempt, max(step, first.get(action.attempt, 0), 0)].append(action)

    def begins(self, attempt: Mapping[str, Any]) -> int:
        """The step after which an attempt begins."""
        return max(int(attempt["from_step"]) - 1, 0)

    def ends(self, attempt: Mapping[str, Any]) -> int:
        """The last step with a row in an attempt."""
        return max((step for step in self.rows[attempt["attempt"]]), default=self.begins(attempt))

    def knobs(self, initial: Mapping[str, float]) -> dict[tuple[int, int], dict[str, float]]:
        """The knobs during each step, according to the journal: (attempt, step) -> knobs."""
        knobs_now = Knobs(initial)
        during = {}
        for attempt in self.attempts:
            number = attempt["attempt"]
            for step in range(self.begins(attempt), self.ends(attempt) + 1):
                knobs_now.pass_boundary(step, self.entries.get((number, step), ()))
                during[number, step + 1] = dict(knobs_now.values)
        return during


class Knobs:
    """The knobs as the journal moves them, boundary by boundary.

    A remedy may move a knob to its new value over several steps; `course` in the applied entry lists the values. The
    course continues while its trial does, and as long as nothing else changes the knob.
    """

    def __init__(self, initial: Mapping[str, float]):
        self.values = dict(initial)
        self._begun: set[str] = set()
        self._courses: dict[str, tuple[int, Mapping[str, Sequence[float]]]] = {}

    def pass_boundary(self, step: int, entries: Sequence[Action]) -> None:
        """Apply what was journaled after `step`, and the next value of each course."""
        for entry in entries:
            self._take(step, entry)
        for began, course in self._courses.values():
            ticks = step - began
            for knob, values in course.items():
                if 0 < ticks < len(values) and self.values.get(knob) == values[ticks - 1]:
                    self.values[knob] = values[ticks]

    def _take(self, step: int, entry: Action) -> None:
        """Move the knobs as one entry says."""
        if entry.entry in ("approved", "applied"):
            self._begun.add(entry.action)
        if entry.entry != "failed" or entry.action in self._begun:
            self.values |= journal.turned(entry)
        if entry.entry in ("verified", "reverted", "failed"):
            self._courses.pop(entry.action, None)
        if entry.entry == "applied":
            self._begin_course(step, entry)

    def _begin_course(self, step: int, entry: Action) -> None:
        """Let the knobs of an applied change follow its course, if it has one."""
        if entry.remedy != journal.BY_HAND:
            self._courses.clear()  # one trial at a time: a stronger change ends the one it was put upon
        course = entry.data.get("course")
        if isinstance(course, dict) and course and all(course.values()):
            self._courses[entry.action] = (step, course)
            self.values |= {knob: values[0] for knob, values in course.items()}


def replay(
    run: Path, out: Path, *, steps: int | None = None, progress: Callable[[int, int], None] = lambda step, of: None
) -> Replayed:
    """Train `run` again into the new run directory `out`, at most `steps` steps, and compare row by row.

    Raises RunError when the run can't be replayed. `progress` is called after every step with the steps done and in
    total.
    """
    reader = RunReader(run)
    config, plan = _replayable(reader)
    wanted = replace(config, checkpoint=replace(config.checkpoint, every=0, keep=KEEP_ALL, best=False))
    again = _Again(plan, Session.start(wanted, out, "off"), reader.events)
    total = sum(len([s for s in rows if s > 0]) for rows in again.plan.rows.values())
    limit = total if steps is None else min(steps, total)
    again.follow(limit, progress)
    first, rows, values = _compare(again.plan, Plan(RunReader(out)), limit)
    made = len(story.interventions(RunReader(out).actions))
    return Replayed(out, rows, values, made, first, tuple(_notes(reader)))


def _replayable(reader: RunReader) -> tuple[TrainConfig, Plan]:
    """The configuration and the plan of a run; RunError when it can't be replayed."""
    run = reader.path
    if reader.about.get("trainer") != "stabilizer":
        raise RunError(
            f"{run}: only runs of `stabilizer train` can be replayed, not those of {reader.about.get('trainer')}"
        )
    try:
        config = config_from_dict(reader.about["config"])
        plan = Plan(reader)
        hidden = hidden_keys(reader.about["config"])
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"
        raise RunError(f"{run}: run.json or actions.jsonl is damaged ({why})") from None
    if not any(step > 0 for rows in plan.rows.values() for step in rows):
        raise RunError(f"{run / 'metrics'}: no step was recorded, so there is nothing to compare")
    if hidden:
        raise RunError(f"{run / 'run.json'}: {hidden[0]} was not stored; first replace {HIDDEN!r} there by its value")
    chain = journal.verify(run / "actions.jsonl")
    if chain.broken:
        raise RunError(f"{run / 'actions.jsonl'}: the journal was changed: {chain.broken}")
    return config, plan


class _Again:
    """A session that follows a plan."""

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

    def follow(self, limit: int, progress: Callable[[int, int], None]) -> None:
        done = 0
        if not self._boundary(0) or not limit:
            self.session.writer.close()
            return
        for tick in self.session.run():
            done += 1
            progress(done, limit)
            if done >= limit or not self._boundary(tick.step):
                self.session.stop_reason = "SIGINT"  # the plan ends here

    def _boundary(self, step: int) -> bool:
        """Repeat what was done after a step; False at the end of the plan."""
        self._act(step)
        while step >= self.plan.ends(self._attempt):
            if self._place + 1 >= len(self.plan.attempts):
                return False
            self._place += 1
            step = self._branch()
            self._act(step)
        return True

    def _act(self, step: int) -> None:
        """Apply the knobs, orders and events that follow this step."""
        number, session = self._attempt["attempt"], self.session
        controls = session.trainer.controls
        for event in self._events:
            if event.attempt == number and event.step == step + 1:
                session.host.declare(event.step, event.kind, event.text, **{**event.data, "replayed": True})
        entries = self.plan.entries.get((number, step), ())
        for entry in entries:
            if entry.entry == "applied":
                self._orders[entry.action] = (step, *self._ordered(entry))
            elif entry.entry in ("verified", "reverted", "failed"):
                self._orders.pop(entry.action, None)
            session.host.journal(entry)
        self._knobs.pass_boundary(step, entries)
        controls.set_all({knob: value for knob, value in self._knobs.values.items() if knob in controls})
        remedies = {entry.action for entry in entries if entry.entry == "applied" and entry.remedy != journal.BY_HAND}
        self._give_orders(step, [action for action in self._orders if action not in remedies])
        if step in self._needed:  # a remedy's snapshot comes before its orders, a user's after them
            session.host.save_checkpoint()
        self._give_orders(step, [action for action in self._orders if action in remedies])

    def _give_orders(self, step: int, actions: Sequence[str]) -> None:
        for action in actions:
            began, repeats, orders = self._orders[action]
            for order in orders:
                self.session.trainer.controls.obey(order)
            if step + 1 - began >= repeats:  # the last time; a later attempt may pass this step again
                del self._orders[action]

    def _ordered(self, entry: Action) -> tuple[int, list[str]]:
        """For how many steps orders were given, and which: a user's in the entry, a remedy's in its hypothesis."""
        if entry.remedy == journal.BY_HAND:
            return 1, _obeyed([str(entry.data.get("order", ""))])
        life = [other for other in self.plan.actions if other.action == entry.action]
        hypotheses = (other.data.get("hypothesis") for other in life)
        hypothesis = next((found for found in hypotheses if isinstance(found, dict)), {})
        orders, repeats = hypothesis.get("orders"), hypothesis.get("repeats")
        repeats = repeats if isinstance(repeats, int) else _usual_repeats(entry.remedy)
        return repeats, _obeyed(orders if isinstance(orders, list) else [])

    def _branch(self) -> int:
        """Load the state the next attempt began with; returns its step."""
        attempt, session = self._attempt, self.session
        self._orders.clear()
        state = self._state(self.plan.begins(attempt), attempt.get("parent"))
        if attempt["reason"] == "rollback":
            session.host.roll_back(state, f"as in the run: returned to step {state.step}", replayed=True)
            return state.step
        session.trainer.load_checkpoint(state, vary_data=False)
        session.trainer.attempt = attempt["attempt"]
        session.monitor.begin_attempt(state.step + 1, "resume", parent=attempt.get("parent"))
        session.host.declare(state.step + 1, "resume", f"as in the run: resumed from step {state.step}", replayed=True)
        for entry in self.plan.entries.get((attempt.get("parent", -1), state.step), ()):
            if entry.entry == "applied" and entry.data.get("order") == "skip-update":
                session.trainer.controls.obey("skip-update")  # the step it was meant for was made again
        return state.step

    def _state(self, step: int, parent: int | None) -> Checkpoint:
        """The state after a step, of the attempt that was branched off or of one that led to it."""
        line, known = [], {entry["attempt"]: entry.get("parent") for entry in self.plan.attempts}
        while parent is not None:
            line.append(parent)
            parent = known.get(parent)
        there = scan(self.session.writer.path / "checkpoints")
        found = [state for state in there if state.step == step and state.attempt in line]
        if not found:
            raise RunError(
                f"attempt {self._attempt['attempt']} began after step {step}, but the run has no row of that step"
            )
        return found[-1]


def _usual_repeats(remedy: str) -> int:
    """For how many steps a remedy gives its orders, where the journal does not say."""
    return next((getattr(known, "repeats", 1) for known in REMEDIES if known.id == remedy), 1)


def _obeyed(orders: Sequence[str]) -> list[str]:
    return [order for order in orders if order in OBEYED]


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
    """Reasons why numbers may differ although the journal is complete."""
    notes = []
    versions, hardware = (reader.about.get(name) for name in ("versions", "hardware"))
    versions, hardware = (value if isinstance(value, dict) else {} for value in (versions, hardware))
    if versions.get("torch") not in (None, torch.__version__):
        notes.append(f"the run used torch {versions['torch']}; the replay uses {torch.__version__}")
    machine = hardware.get("machine")
    if machine not in (None, platform.machine()):
        notes.append(f"the run was trained on {machine}; the replay ran on {platform.machine()}")
    if config_from_dict(reader.about["config"]).device != "cpu" and torch.cuda.is_available():
        notes.append("on a GPU the order of sums varies, so the last digits may differ")
    return notes


def _number(value: float | None) -> str:
    return "not logged" if value is None else repr(value)
