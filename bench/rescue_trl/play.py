"""One TRL training of the bench: a case under one arm. Runs in the environment with TRL, jobs as JSON lines on stdin.

    echo '{"kind": "lr-jump", "strength": 15, "seed": 0, "onset": 45, "arm": "auto-full"}' |
        python -m bench.rescue_trl.play

trains one and prints how it went. With `runs` in the job, its run directory is kept there.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

import stabilizer
from bench.rescue_trl import faults, host
from stabilizer.core.records import Finding
from stabilizer.guests.attach import attach
from stabilizer.guests.own_loop import GuestRun
from stabilizer.guests.trl_knobs import TrlKnobs
from stabilizer.guests.trl_reference import Reference
from stabilizer.runs.reader import RunReader

EVERY = 20
"""Steps between two measurements of what the policy earns."""
LAST = (20, 15, 10, 5, 0)
"""Steps before the end at which it is measured for the score, which is the mean."""
SETTINGS = ("control/", "optim/lr", "policy/beta", "time/", "system/", "progress/")
"""What a log of the metrics alone does not hold."""
CHECKPOINTS = 10
"""Steps between two checkpoints of ours."""


def play(job: dict[str, Any], starts: Path) -> dict[str, Any]:
    """Train a case under an arm."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as out:
        trainer = host.trainer(int(job["seed"]), starts, Path(out) / "out", **job.get("settings", {}))
        curve: dict[int, float] = {}

        class Measures(TrainerCallback):
            """Measures the policy as it is after the fixes of a step."""

            def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                step = state.global_step
                if step % EVERY == 0 or host.STEPS - step in LAST:
                    curve[step] = host.earned(trainer.model)

        if job["kind"] in faults.BY_KIND:
            turn = _turns(trainer, Path(out))
            trainer.add_callback(faults.inject(trainer, job["kind"], job["strength"], job["onset"], turn))
        runs = Path(job.get("runs") or Path(out) / "runs")
        with contextlib.redirect_stdout(io.StringIO()):
            guest = attach(trainer, runs=runs, remedy=job["arm"], checkpoint_every=CHECKPOINTS, sinks=())
        trainer.add_callback(Measures())
        ended = ""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                trainer.train()
        except Exception as error:  # training that died is an outcome like any other
            ended = f"{type(error).__name__}: {error}"
        outcome = _outcome(job, guest, trainer, curve, ended) | {"cpu_s": round(time.process_time() - began, 2)}
        return outcome | {"alone": _from_metrics(guest.path, Path(out) / "log.jsonl")}


def _turns(trainer: Any, folder: Path) -> faults.Turn:
    """Turns settings in TRL's own objects; whatever waits for a generation does."""

    def refuse(what: str, error: Exception) -> None:
        raise RuntimeError(f"{what}: {error}")

    knobs = {offer.name: offer for offer in TrlKnobs(trainer, Reference(trainer, folder), refuse).offers()}

    def turn(name: str, value: float) -> None:
        knob = knobs[name]
        knob.set(knob.get() * value if name == "lr" else value)

    return turn


def _outcome(
    job: dict[str, Any], guest: GuestRun, trainer: Any, curve: dict[int, float], ended: str
) -> dict[str, Any]:  # fmt: skip
    now = host.earned(trainer.model)
    reader = RunReader(guest.path)
    loud = _loud(reader.findings)
    return {
        **job, "ended": ended, "steps": trainer.state.global_step, "curve": sorted(curve.items()),
        "final": sum(curve.get(host.STEPS - back, now) for back in LAST) / len(LAST),
        "findings": sorted({(f.onset_step, f.id, f.causes[0].id if f.causes else "") for f in loud}),
        "actions": [(a.step, a.entry, a.remedy, a.text, {k: list(v) for k, v in a.change.items()})
                    for a in reader.actions if a.entry in ("applied", "verified", "reverted", "failed", "rejected")],
    }  # fmt: skip


def _from_metrics(run: Path, log: Path) -> list[tuple[int, str, str]]:
    """What `diagnose` says of a log that holds none of the settings: (detected at, finding, first cause)."""
    history = RunReader(run).history
    view = history.view()
    names = [name for name in view.names() if not name.startswith(SETTINGS)]
    steps = view.series("reward/mean").finite().steps
    columns = {name: dict(zip(*view.series(name).finite(), strict=True)) for name in names}
    with log.open("w", encoding="utf-8") as file:
        for step in steps:
            row = {name: float(column[step]) for name, column in columns.items() if step in column}
            file.write(json.dumps({"step": int(step), **row}) + "\n")
    found = [finding for incident in stabilizer.diagnose(log).incidents for finding in incident.findings]
    return sorted((f.detected_step, f.id, f.causes[0].id if f.causes else "") for f in _loud(found))


def _loud(findings: Sequence[Finding]) -> list[Finding]:
    return [f for f in findings if f.severity != "info" and f.state != "suspected"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for line in sys.stdin:
            wanted = json.loads(line)
            print(json.dumps(play(wanted, Path(wanted.get("starts") or temporary))), flush=True)
