"""A made-up run with everything a page must show: incidents, a fix, a rollback, NaN, and steps that keep coming.

`python tests/dashboards/synthetic_run.py FOLDER [--live]` writes one to look at by hand.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np

from stabilizer.core.records import Action, Cause, Finding, RemedyAdvice
from stabilizer.runs.writer import RunWriter


def values(step: int, trouble: float = 0.0, rng: np.random.Generator | None = None) -> dict[str, float]:
    """Plausible numbers of a step; `trouble` from 0 to 1 makes the policy run away."""
    noise = (rng or np.random.default_rng(step)).normal(0, 1, 12)
    learned = 1 / (1 + math.exp(-(step - 120) / 45))
    accuracy = min(1.0, max(0.0, 0.05 + 0.85 * learned * (1 - 0.8 * trouble) + 0.025 * noise[0]))
    out = {
        "reward/mean": 1.1 * accuracy - 0.05 + 0.02 * noise[1],
        "reward/std_group": abs(0.34 - 0.2 * learned + 0.02 * noise[2]),
        "reward/zero_std_frac": min(1, max(0, 0.15 + 0.4 * learned + 0.04 * noise[3])),
        "reward/all_fail_frac": min(1, max(0, 0.5 * (1 - learned) + 0.5 * trouble + 0.03 * noise[4])),
        "reward/all_pass_frac": min(1, max(0, 0.45 * learned * (1 - trouble) + 0.03 * noise[5])),
        "accuracy/train": accuracy,
        "optim/grad_norm": 0.42 * math.exp(0.18 * noise[6] + 4.4 * trouble),
        "optim/lr": 3e-5 * min(1, step / 20),
        "policy/kl_ref": 0.0004 * step * math.exp(0.1 * noise[7] + 2.6 * trouble),
        "policy/kl_old": 0.002 * math.exp(0.25 * noise[8] + 2.5 * trouble),
        "policy/entropy": max(0.02, 1.25 - 0.6 * learned - 0.45 * trouble + 0.02 * noise[9]),
        "policy/clip_frac": min(1, max(0, 0.03 + 0.35 * trouble + 0.006 * noise[10])),
        "policy/ratio_max": 1.4 * math.exp(0.1 * noise[11] + 1.5 * trouble),
        "rollout/length_mean": 9.5 + 6 * learned + 22 * trouble + 0.3 * noise[0],
        "rollout/truncated_frac": min(1, max(0, 0.01 + 0.6 * trouble + 0.004 * noise[1])),
        "rollout/repetition": min(1, max(0, 0.04 + 0.3 * trouble + 0.01 * noise[2])),
        "control/lr_scale": 1.0 if step < 300 else 0.5,
        "control/beta": 0.001 if step < 300 else 0.01,
        "time/step_s": 1.4 + 0.08 * abs(noise[3]),
        "time/rollout_s": 0.9 + 0.05 * abs(noise[4]),
        "time/update_s": 0.4 + 0.03 * abs(noise[5]),
        "tokens/total": 5200 * step,
    }
    if step % 10 == 0:
        out["accuracy/val"] = min(1.0, max(0.0, accuracy - 0.03 + 0.02 * noise[6]))
    return out


SPIKE = Finding(
    "optim/grad-spike",
    "warn",
    "the gradient norm jumped to 3.8, 9 times its level of 0.42, for 4 steps and came back",
    90,
    92,
    96,
    evidence={"metric": "optim/grad_norm", "baseline": 0.42, "now": 3.8, "ratio": 9.05},
    incident=1,
)
EXPLOSION = Finding(
    "optim/grad-explosion",
    "critical",
    "the gradient norm rose to 31 from 0.43 since step 268 while accuracy fell from 0.86 to 0.31",
    268,
    281,
    300,
    evidence={"metric": "optim/grad_norm", "baseline": 0.43, "now": 31.2, "accuracy/train": 0.31},
    incident=2,
    causes=(
        Cause("no-kl-anchor", 0.72, "policy/kl_ref left its band 9 steps before the gradient did; beta is 0.001"),
        Cause("lr-too-high", 0.21, "update ratio is normal before the onset"),
    ),
    remedies=(
        RemedyAdvice("rewind", "hard", {}, "the weights are damaged", "restart from the checkpoint of step 250"),
        RemedyAdvice(
            "raise-beta",
            "soft",
            {"control/beta": (0.001, 0.01)},
            "a stronger anchor holds the policy",
            "beta=0.01 in GRPOConfig",
        ),
    ),
)
RUNAWAY = Finding(
    "policy/kl-runaway",
    "critical",
    "KL to the reference is 1.31 nats/token, 11 times what steps 200-260 had",
    262,
    279,
    300,
    evidence={"metric": "policy/kl_ref", "baseline": 0.11, "now": 1.31},
    incident=2,
)
PLATEAU = Finding(
    "reward/plateau",
    "info",
    "the reward has moved by less than its noise since step 372",
    372,
    392,
    392,
    evidence={"metric": "reward/mean", "slope per 100 steps": 0.0004, "noise": 0.021},
    incident=3,
)


def record(finding: Finding, state: str, last_step: int, attempt: int = 0) -> Finding:
    """The same finding at a later moment of its life."""
    from dataclasses import replace

    return replace(finding, state=state, last_step=last_step, attempt=attempt, t=time.time())


def healthy(path: Path, steps: int = 30, **about: object) -> RunWriter:
    """A short, calm run that is still going."""
    writer = RunWriter.create(path, config={"optim": {"lr": 3e-5}}, task="addition", steps=400, argv=[], **about)
    for step in range(1, steps + 1):
        writer.metrics(step, values(step))
    writer.status("running", steps, force=True)
    writer.summary(verdict="healthy", worst=None, force=True)
    return writer


def eventful(path: Path, upto: int = 400) -> RunWriter:
    """A run that went wrong at 268, was rolled back to 250 at step 300, fixed, and went on to `upto`."""
    config = {"lr": 3e-5, "beta": 0.001, "group_size": 8, "prompts": 16}
    writer = RunWriter.create(path, config=config, task="sorting", steps=500, argv=[])
    for step in range(1, 301):
        row = values(step, trouble=max(0.0, min(1.0, (step - 262) / 38)))
        if 90 <= step <= 96:
            row["optim/grad_norm"] *= 7
        if step in (93, 94):
            row["policy/ratio_max"] = math.nan if step == 93 else math.inf
        writer.metrics(step, row)
        if step == 92:
            writer.finding(record(SPIKE, "open", 92))
        if step == 110:
            writer.finding(record(SPIKE, "resolved", 96))
        if step == 281:
            writer.finding(record(RUNAWAY, "open", 281))
            writer.finding(record(EXPLOSION, "open", 281))
    change = {"control/beta": (0.001, 0.01), "control/lr_scale": (1.0, 0.5)}
    why = "a stronger anchor and half the step size will keep KL below 0.2 for 40 steps without costing reward"
    trial = Action("trial-1", "proposed", "rewind-and-anchor", 290, incident=2, safety="hard", change=change, text=why)
    writer.action(trial)
    writer.action(Action("trial-1", "approved", "rewind-and-anchor", 298, incident=2, safety="hard", text="by hand"))
    writer.begin_attempt(250, "rollback")
    writer.event(250, "rollback", "back to the checkpoint of step 249, before the incident")
    writer.action(Action("trial-1", "applied", "rewind-and-anchor", 250, incident=2, safety="hard", change=change))
    for finding in (RUNAWAY, EXPLOSION):
        writer.finding(record(finding, "mitigating", 300))
    for step in range(250, upto + 1):
        writer.metrics(step, values(step))
        if step == 290:
            writer.action(
                Action(
                    "trial-1",
                    "verified",
                    "rewind-and-anchor",
                    290,
                    incident=2,
                    safety="hard",
                    text="KL 0.11 (was 1.31), accuracy 0.88 (was 0.31): kept",
                    data={"policy/kl_ref": 0.11, "accuracy/train": 0.88},
                )
            )
            for finding in (RUNAWAY, EXPLOSION):
                writer.finding(record(finding, "resolved", 300))
        if step == 330:
            writer.event(330, "data-stage", "longer lists")
        if step == 392:
            writer.finding(record(PLATEAU, "open", 392, attempt=1))
    writer.status("running", upto, force=True)
    writer.summary(verdict="healthy", worst="critical", force=True)
    return writer


HOSTILE_NAME = '<img src=x onerror=window.pwned=1> a,b%2C & "q"'


def many(folder: Path, recipes: int = 6, seeds: int = 4, steps: int = 40) -> None:
    """A folder of runs in all states: configurations with several seeds, a hostile name, a broken run, foreign logs."""
    for recipe in range(recipes):
        for seed in range(seeds):
            number = recipe * seeds + seed
            config = {
                "seed": seed,
                "model": f"model-{recipe % 3}",
                "optim": {"lr": (1e-6, 1e-5, 3e-5)[recipe % 3], "warmup": 10},
                "policy": {"beta": 0.001 * (recipe % 2)},
            }
            path = folder / f"202601{number + 1:02}-090000-{('sorting', 'addition')[recipe % 2]}-r{recipe}s{seed}"
            task = ("sorting", "addition")[recipe % 2]
            writer = RunWriter.create(path, config=config, task=task, steps=steps * 2 if seed else steps, argv=[])
            rng = np.random.default_rng(number)
            for step in range(1, steps + 1 - number % 3):
                row = values(step * 8, trouble=step / steps if number % 7 == 3 else 0.0, rng=rng)
                writer.metrics(step, row if number != 5 or step < steps else {**row, "optim/grad_norm": math.nan})
            state = ("finished", "running", "running", "failed", "preempted", "paused")[(number + recipe) % 6]
            writer.status(state, step, force=True)
            verdict = "critical" if number % 7 == 3 else ("healthy", "healthy", "warn", "info")[number % 4]
            writer.summary(verdict=verdict, worst=verdict if verdict != "healthy" else None, force=True)
            writer.close()
            if number % 5 == 2:
                silence(path, 7200.0)
    healthy(folder / HOSTILE_NAME, 5).close()
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{")
    logs(folder)


def silence(path: Path, seconds: float) -> None:
    """Make a run's last sign of life so old."""
    status = json.loads((path / "status.json").read_text())
    (path / "status.json").write_text(json.dumps({**status, "t": status["t"] - seconds}))


def logs(folder: Path, steps: int = 60) -> None:
    """Logs of other trainers: a state file in its folder, a CSV, and one that only looks like a log."""
    (folder / "their-run" / "checkpoint-60").mkdir(parents=True)
    rows = [
        {
            "step": step,
            "epoch": step / 100,
            "loss": 0.01,
            "reward": row["reward/mean"],
            "grad_norm": 0.4 + step / 900,
            "kl": row["policy/kl_ref"],
            "entropy": row["policy/entropy"],
            "learning_rate": 1e-6,
        }
        for step in range(1, steps + 1)
        for row in [values(step * 4)]
    ]
    state = {"global_step": steps, "max_steps": 100, "epoch": 0.6, "log_history": rows}
    (folder / "their-run" / "checkpoint-60" / "trainer_state.json").write_text(json.dumps(state))
    lines = [f"{row['step']},{row['reward']},{row['grad_norm']},{row['kl']}" for row in rows]
    (folder / "theirs.csv").write_text("\n".join(["step,reward/mean,optim/grad_norm,policy/kl_ref", *lines, ""]))
    (folder / "addresses.csv").write_text("name,street\nA,B\n")


def live(writer: RunWriter, step: int, pause: float) -> None:
    """Append steps until interrupted."""
    while True:
        step += 1
        writer.metrics(step, values(step))
        writer.status("running", step)
        writer.summary(verdict="healthy", worst="critical")
        time.sleep(pause)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--many", action="store_true", help="thirty runs in all states, and logs of other trainers")
    parser.add_argument("--live", action="store_true", help="go on writing a step a second")
    args = parser.parse_args()
    if args.many:
        many(args.folder)
    healthy(args.folder / "20260101-080000-addition-0aa1", 400).status("finished", 400, force=True)
    running = eventful(args.folder / "20260102-093000-sorting-7c2e")
    if args.live:
        live(running, 400, 1.0)
