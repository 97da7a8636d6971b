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

import numpy as np

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
AROUND, ROWS = 5, 20
"""Validations, and rows of the reward, that are averaged before the fault and after it."""
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
    ends = {entry.action: entry.entry for entry in reader.actions}
    view = reader.history.view()
    validated, paid = view.series("accuracy/val"), view.series("reward/mean")
    before = validated.between(0, hit).last(AROUND).values
    return {
        "steps": reader.history.step,
        "hit": hit,
        "found": found[:1],
        "before": sum(entry.step <= hit for entry in applied),
        "after": [(entry.step, entry.remedy, ends[entry.action]) for entry in applied if entry.step > hit],
        "back": _back(paid.between(0, hit).last(ROWS).values, paid.between(hit + 1, view.step).values),
        "accuracy": [float(before.mean()), float(validated.last(AROUND).values.mean())],
    }


def _back(before: np.ndarray, since: np.ndarray) -> int | None:
    """Rows after the fault until the reward, over some rows, was back; None where it never was."""
    levels = np.lib.stride_tricks.sliding_window_view(since, ROWS).mean(1)
    there = (levels >= KEPT_SHARE * before.mean()).nonzero()[0]
    return int(there[0]) + ROWS if len(there) else None


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
    fixes = ", ".join(f"{remedy} {end}" for _, remedy, end in result["after"][:3]) or "nothing done"
    back = f"reward back after {result['back']}" if result["back"] else "reward never back"
    words = (
        f"{result['steps']:,} steps, weights hit after {result['hit']:,}: {found} steps; {fixes}; {back}; accuracy"
        f" {was:.0%} before, {now:.0%} at the end; {result['before']} fixes before the fault"
    )
    kept = any(end == "verified" for *_, end in result["after"])
    return Measured(bool(result["found"] and kept and now >= KEPT_SHARE * was), words)


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
