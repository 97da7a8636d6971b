"""What the case studies share: a run until its diagnosis, and changes tried from there on the same prompts and seeds.

Used by the `run.py` of each case, from the repository's root; everything made on the way goes under `build/`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

from stabilizer.core.knobs import Checkpoint, in_words
from stabilizer.core.records import Finding
from stabilizer.live.session import Session
from stabilizer.runs.requests import ask
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer

BUILD = Path("build")
HERE = Path(__file__).parent
RECORDS = (
    "run.json", "status.json", "summary.json", "metrics", "samples", "events.jsonl", "findings.jsonl", "actions.jsonl",
)  # fmt: skip


class Change(NamedTuple):
    """An arm: its name, and the knobs it sets."""

    name: str
    knobs: Mapping[str, float]


def record(
    name: str, task: str, overrides: Sequence[str], *, steps: int, seed: int, mode: str,
    turns: Mapping[int, str] | None = None,
) -> None:  # fmt: skip
    """The recorded run of a case; `turns` are knobs turned by hand, as `stabilizer fix RUN set` does, after a step."""
    build = BUILD / name / "run"
    shutil.rmtree(build, ignore_errors=True)
    for tick in Session.start(load_config(task, overrides, steps=steps, seed=seed), build, mode).run():
        if turns and tick.step in turns:
            ask(build, "set", turns[tick.step])
    for part in RECORDS:
        kept = HERE / name / part
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink(missing_ok=True)
        if (build / part).exists():
            shutil.move(build / part, kept)
    for file in (HERE / name / "metrics").iterdir():
        _thin(file)


def _thin(file: Path) -> None:
    """To what the repository can hold: numbers to seven digits, and knobs in the rows in which they change."""
    known: dict[str, float] = {}
    lines = []
    for line in file.read_text().splitlines():
        row = json.loads(line, parse_float=lambda digits: float(f"{float(digits):.7g}"))
        t = json.loads(line)["t"]
        numbers = {k: v for k, v in row["m"].items() if not k.startswith("control/") or known.get(k) != v}
        known |= {k: v for k, v in numbers.items() if k.startswith("control/")}
        lines.append(json.dumps(row | {"t": round(t, 2), "m": numbers}, separators=(",", ":")))
    file.write_text("\n".join(lines) + "\n")


def until(
    name: str, task: str, overrides: Sequence[str], *, seed: int, steps: int, wanted: Callable[[Finding], bool],
    least: int = 0,
) -> tuple[Trainer, Checkpoint, int | None]:  # fmt: skip
    """Train with nobody acting until a finding is told that is `wanted`; the snapshot, and the step it was told at."""
    path = BUILD / name / f"seed-{seed}"
    shutil.rmtree(path, ignore_errors=True)
    session = Session.start(load_config(task, overrides, steps=steps, seed=seed), path, "off")
    told = None
    for tick in session.run():
        if told is None and any(wanted(finding) for finding in tick.findings):
            told = tick.step
        if told is not None and tick.step >= least:
            break
    return session.trainer, session.trainer.save_checkpoint(), told


def tried(trainer: Trainer, snapshot: Checkpoint, change: Change, *, steps: int, every: int = 10) -> dict[str, Any]:
    """One arm of one seed: back to the snapshot, the change, so many steps, validated every `every` of them."""
    trainer.load_checkpoint(snapshot, vary_data=False)
    every_as_set = trainer.controls.set("control/validate_every", 0)  # validated here, outside of what a step costs
    before = {knob: trainer.controls.set(knob, value) for knob, value in change.knobs.items()}
    rows: dict[str, list[float]] = {key: [] for key in ("steps", "completions", "values", "reward", "step_s")}
    completions = 0.0
    for step in range(1, steps + 1):
        began = process_time()
        metrics = trainer.train_step().metrics
        rows["step_s"].append(process_time() - began)
        completions += metrics["batch/prompts_drawn"] * metrics["batch/group_size"]
        rows["reward"].append(metrics["reward/mean"])
        if step % every == 0:
            rows["steps"].append(step)
            rows["completions"].append(completions)
            rows["values"].append(round(trainer.validate()["accuracy/val"], 4))
    for knob, (value, _) in {**before, "control/validate_every": every_as_set}.items():
        trainer.controls.set(knob, value)
    turned = [f"{knob[8:]} {in_words(knob, old)} → {in_words(knob, new)}" for knob, (old, new) in before.items()]
    return rows | {"change": ", ".join(turned)}


def together(name: str, seeds: Sequence[int], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The same arm of several seeds, as `arms.json` holds it."""
    first = results[0]
    return {
        "name": name, "change": first["change"], "seeds": list(seeds), "steps": first["steps"],
        "completions": first["completions"], "values": [result["values"] for result in results],
        "step_s": round(median(s for result in results for s in result["step_s"]), 4),
    }  # fmt: skip


def write(name: str, trials: Sequence[Mapping[str, Any]], measured: Mapping[str, str]) -> None:
    """The numbers of a case, where its report looks for them."""
    text = json.dumps({"trials": list(trials), "measured": dict(measured)}, indent=1)
    (HERE / name / "arms.json").write_text(text + "\n")
