"""A real run of many thousand steps whose weights are hit late: is that found, and is it mended?

    python -m bench.trust.endurance RUNS [--steps N] [--keep]

trains it and leaves its run directory there; `--keep` renews its row of the table. The policy is small, everything else
is as in any run: rows, samples, states, detectors, the diagnosis and the automatic remedies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any

from bench.rescue.faults import weights_hit
from bench.trust.row import Attack, Effort, Measured
from stabilizer.core.records import SEVERITIES
from stabilizer.live.session import Session
from stabilizer.runs.reader import RunReader
from stabilizer.training.config import load_config

STEPS = 20_000
FAULT_AT = 0.6
"""Share of the steps after which the weights are hit."""
STRENGTH = 0.7
"""Noise that is added to every tensor, in its own deviations: the severe one of RescueBench."""
SOON = 100
"""Steps within which it must be found."""
KEPT_SHARE = 0.95
"""Of the accuracy before, at the end."""
AROUND = 5
"""Validations that are averaged before the fault, and at the end."""
SETTINGS = (
    "rollout.prompts=4", "rollout.group_size=4", "validation.problems=128", "validation.every=200",
    "checkpoint.every=200", "samples.every=1000",
)  # fmt: skip
LONGEST_S = 5400.0


def trained(path: Path, steps: int, *, task: str = "addition", seed: int = 0) -> dict[str, Any]:
    """Train the run, hit its weights on the way, and judge what the records of it say."""
    session = Session.start(load_config(task, list(SETTINGS), steps=steps, seed=seed), path, "auto-full")
    at, hit, spent = int(steps * FAULT_AT), 0, []
    began = time.monotonic()
    for tick in session.run():
        spent.append(session.monitor.seconds)
        if not hit and tick.step >= at:
            hit = tick.step
            weights_hit(session.trainer, STRENGTH)
    return judged(path, hit) | {"seconds": time.monotonic() - began, "monitor_s": mean(spent[-1000:])}


def judged(path: Path, hit: int) -> dict[str, Any]:
    """What the records say: whether it was found, what was done, and what the policy could do before and after."""
    reader = RunReader(path)
    found = sorted(
        (finding.detected_step, finding.id)
        for finding in reader.findings
        if finding.severity in SEVERITIES[1:] and hit < finding.detected_step <= hit + SOON
    )
    applied = [entry for entry in reader.actions if entry.entry == "applied"]
    validated = reader.history.view().series("accuracy/val")
    before = validated.between(0, hit).last(AROUND).values
    return {
        "steps": reader.history.step,
        "hit": hit,
        "found": found[:1],
        "before": sum(entry.step <= hit for entry in applied),
        "after": [(entry.step, entry.remedy) for entry in applied if entry.step > hit],
        "verified": sum(entry.entry == "verified" and entry.step > hit for entry in reader.actions),
        "accuracy": [float(before.mean()), float(validated.last(AROUND).values.mean())],
    }


def real_run(effort: Effort) -> Measured:
    command = [sys.executable, "-m", "bench.trust.endurance", str(effort.folder), "--steps"]
    command += [str(effort.times(500, STEPS)), "--seed", str(effort.seed)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=LONGEST_S)
    if done.returncode:
        return Measured(False, (done.stderr.strip().splitlines() or ["nothing said"])[-1][:150])
    return told(json.loads(done.stdout))


def keep(result: dict[str, Any], seed: int) -> None:
    """Renew the row of the table by a run that was trained here."""
    from bench import trust

    row = trust.attacked(replace(ATTACKS[0], run=lambda _: told(result)), Effort(False, seed, Path()))
    row = replace(row, seconds=round(result["seconds"], 1))
    trust.keep({"tier": "full", "seed": seed, "date": time.strftime("%Y-%m-%d"), "rows": [asdict(row)]})


def told(result: dict[str, Any]) -> Measured:
    """The row of the table."""
    was, now = result["accuracy"]
    found = f"{result['found'][0][1]} after {result['found'][0][0] - result['hit']}" if result["found"] else "not found"
    fixes = ", ".join(remedy for _, remedy in result["after"][:3]) or "nothing done"
    words = (
        f"{result['steps']:,} steps, weights hit after {result['hit']:,}: {found} steps; {fixes}; accuracy {was:.0%}"
        f" before, {now:.0%} at the end; {result['before']} fixes before the fault"
    )
    good = result["found"] and result["verified"] and now >= KEPT_SHARE * was
    return Measured(bool(good), words)


ATTACKS = (
    Attack("long runs", "A late fault of a long real run is found and mended",
           f"noise on all weights of a run of {STEPS:,} steps", real_run, quick=False),
)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    outcome = trained(given.runs / "endurance", given.steps, seed=given.seed)
    print(json.dumps(outcome))
    if given.keep:
        keep(outcome, given.seed)
