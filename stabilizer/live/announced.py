"""What a supervised process and its supervisor tell each other: the run, restarts and why, and changed arguments."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stabilizer.runs.reader import read_json

SUPERVISED = "STABILIZER_SUPERVISED"
"""The file to which a supervised process adds the folder of its run."""
ATTEMPT = "STABILIZER_ATTEMPT"
"""The number of this attempt of a supervised command, from 1: a script can resume when it is above 1."""
WHY = "STABILIZER_RESTARTED"
"""Why the attempt before ended; empty for the first one."""
LEFT = "STABILIZER_RESTARTS_LEFT"
"""How many more restarts the supervisor allows."""
ARGUMENTS = "STABILIZER_ARGUMENTS"
"""Arguments that restarts changed so far, as a JSON object."""
PLAN = "restart.json"
"""The restart plan in a run directory."""


class RestartPlan(NamedTuple):
    """A change that needs a restart: go on from a checkpoint with other arguments."""

    step: int
    arguments: Mapping[str, Any]
    checkpoint: str
    """Where the trainer saves its state, in its own form."""

    @property
    def words(self) -> str:
        """What changes."""
        return ", ".join(f"{name}={value}" for name, value in self.arguments.items())


def write_plan(run: Path, plan: RestartPlan) -> None:
    """Leave a plan for the supervisor, which carries it out when the process has ended well."""
    fresh = run / f".{PLAN}"
    fresh.write_text(json.dumps(plan._asdict()), encoding="utf-8")
    fresh.replace(run / PLAN)


def read_plan(run: Path | None) -> RestartPlan | None:
    """The plan that a run left, if any."""
    found = read_json(run / PLAN) if run else {}
    step, arguments = found.get("step"), found.get("arguments")
    if not isinstance(step, int) or not isinstance(arguments, dict) or not arguments:
        return None
    return RestartPlan(step, arguments, str(found.get("checkpoint", "")))


def restarts_left() -> int:
    """How many restarts the supervisor of this process still allows; 0 without one."""
    left = os.environ.get(LEFT, "")
    return int(left) if left.isdecimal() else 0


def changed_arguments() -> dict[str, Any]:
    """Arguments that restarts changed, for the script to use: `GRPOConfig(**settings | changed_arguments())`."""
    with contextlib.suppress(ValueError):
        found = json.loads(os.environ.get(ARGUMENTS) or "{}")
        return dict(found) if isinstance(found, dict) else {}
    return {}


def attempt() -> int:
    """The number of this attempt, 1 where nobody supervises."""
    number = os.environ.get(ATTEMPT, "")
    return int(number) if number.isdecimal() else 1


def announce_to_supervisor(run: Path, note: Callable[[str], object]) -> None:
    """Name the run to the supervisor, if there is one, and put a restart on record."""
    file = os.environ.get(SUPERVISED)
    if not file:
        return
    with contextlib.suppress(OSError), open(file, "a", encoding="utf-8") as known:
        known.write(f"{run.resolve()}\n")
    if why := os.environ.get(WHY):
        note(f"restarted by `stabilizer supervise`, attempt {os.environ.get(ATTEMPT, '')}: {why}")
