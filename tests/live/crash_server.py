"""A process that has everything imported, and forks a training run for every order it reads: kill one after another.

The child counts its durable operations (what the kernel is asked to keep: writes to descriptors, syncs, renames,
removals, new folders) from its first finished step on, and kills itself with SIGKILL before the n-th of them. A real
detector would take long to see anything, so one stands in that sees what a scenario wants; everything behind it is what
runs for users: watch, policy, trial, journal, checkpoints, requests.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import stabilizer.live.monitor
from stabilizer.analysis.watching import advice
from stabilizer.core.records import Action, Cause, Finding
from stabilizer.detectors.base import Detector
from stabilizer.incidents.watch import Watch
from stabilizer.live.resuming import RunComplete
from stabilizer.live.session import Session
from stabilizer.remedies import REMEDIES
from stabilizer.runs.history import RunView
from stabilizer.runs.requests import ask
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer

SMALL = [
    "rollout.prompts=2", "rollout.group_size=2", "validation.problems=4", "validation.every=0", "checkpoint.every=5",
    "checkpoint.keep=3", "samples.every=0",
]  # fmt: skip
STEPS = 22
HORIZON = 6
"""Steps to the verdict on a trial: it is the protocol that is tested here, not the verdict."""
OPERATIONS = ("fsync", "replace", "rename", "write", "unlink", "rmdir", "mkdir")


class Stand(Detector):
    """Sees a runaway KL from step 4 on, for as long as the learning rate was not lowered."""

    id = "policy/kl-runaway"
    needs = ()
    confirm = 1
    at_end = False
    severity = "warn"

    def check(self, view: RunView) -> Finding | None:
        if view.step < 4 or (view.latest("control/lr_scale") or 1.0) <= 0.5:
            return None
        return Finding(self.id, self.severity, "KL runs away", 4, view.step, view.step)


class Grave(Stand):
    """The same, with damage done."""

    severity = "critical"


class Durable:
    """Counts durable operations, and dies before the one it was told to."""

    def __init__(self, die_before: int | None):
        self.done: list[str] = []
        self.armed = False
        self._die_before = die_before
        for name in OPERATIONS:
            setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, real: Callable) -> Callable:
        def operation(*args, **kwargs):
            if self.armed:
                if len(self.done) == self._die_before:
                    os.kill(os.getpid(), signal.SIGKILL)
                what = args[0] if isinstance(args[0], (str, os.PathLike)) else _opened(args[0])
                self.done.append(f"{name} {os.path.basename(what)}")
            return real(*args, **kwargs)

        return operation


def _hasten(kind: type) -> None:
    """Let a remedy be judged after `HORIZON` steps, and what it does over many steps be done before."""
    kind.horizon = min(kind.horizon, HORIZON)
    if (course := getattr(kind, "course", None)) is not None:
        kind.course = lambda *args: {knob: values[-(HORIZON - 1) :] for knob, values in course(*args).items()}


def _opened(handle: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return "?"


def hands(run: Path, step: int) -> None:
    """People turn knobs, give orders and take them back, and answer what is proposed."""
    asked = {
        3: [("set", "prompts=3"), ("set", "beta=0.05")],
        5: [("do", "reset-optimizer")],
        7: [("do", "restore:5"), ("set", "group_size=3")],
        9: [("revert", "h1"), ("do", "skip-update")],
        11: [("do", "reset-reference"), ("set", "prompts=999999")],
    }
    said = run.parent / f"{run.name}.asked"
    already = said.read_text().split("\n") if said.exists() else []
    for number, (kind, what) in enumerate(asked.get(step, [])):
        if f"{step}.{number}" not in already:
            request = ask(run, kind, what)
            with said.open("a") as file:
                file.write(f"{step}.{number}\n{request.id}\n")


def approvals(run: Path, step: int) -> None:
    """A person approves whatever is proposed, twice, and undoes what was kept."""
    from stabilizer.runs.journal import newest
    from stabilizer.runs.reader import read_records

    for name, entry in newest(read_records(run / "actions.jsonl", Action).records).items():
        if entry.entry == "proposed" and step % 2:
            ask(run, "approve", name, proposal=entry.hash)
        elif entry.entry == "verified":
            ask(run, "revert", name)


SCENARIOS = {
    "kept": (Stand, "auto-full", None),
    "back": (Grave, "auto-full", None),
    "hands": (None, "suggest", hands),
    "approve": (Grave, "approve", approvals),
}


def always_too_high(found: Sequence[Finding], view: RunView) -> tuple[Cause, ...]:
    return (Cause("lr-too-high", 0.9, "said so"),)


def train(path: Path, scenario: str, steps: int, die_before: int | None) -> None:
    """One life of a run: from its start, or from where the last one ended."""
    detector, mode, people = SCENARIOS[scenario]
    seen = (detector(),) if detector else ()
    for kind in {type(remedy) for remedy in REMEDIES}:
        _hasten(kind)
    stabilizer.live.monitor.new_watch = lambda outcomes=None: Watch(always_too_high, advice, seen, outcomes)
    durable = Durable(die_before)
    resumed = (path / "run.json").exists()
    durable.armed = resumed
    if resumed:
        try:
            session = Session.resume(path, mode)
        except RunComplete:
            return
    else:
        session = Session.start(load_config("addition", SMALL, steps=steps), path, mode)
    journal, written = session.writer.action, os.open(f"{path}.acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def acknowledged(action: Action, **how: bool) -> Action:
        record = journal(action, **how)
        durable.armed, before = False, durable.armed
        os.write(written, f"{record.hash}\n".encode())
        durable.armed = before
        return record

    session.writer.action = acknowledged
    for tick in session.run():
        durable.armed = False
        if people:
            people(path, tick.step)
        durable.armed = True
    durable.armed = False
    Path(f"{path}.operations").write_text("\n".join(durable.done))


def main() -> None:
    Trainer(load_config("addition", SMALL, steps=1), checkpoints=Path(os.devnull))  # children need not load it again
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            try:
                train(Path(order["path"]), order["scenario"], order["steps"], order.get("die_before"))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(json.dumps({"killed": os.WIFSIGNALED(status), "code": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
