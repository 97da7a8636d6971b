"""What the case studies share: a recorded run, the same run with one thing changed, and changes tried from a snapshot.

Everything made on the way goes under `build/`. A measured run is kept there and not made twice; delete the folder to
measure again.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from stabilizer.control.engine import Mode
from stabilizer.core.knobs import Checkpoint, in_words
from stabilizer.core.records import Finding
from stabilizer.live.session import Session
from stabilizer.output.report import write_text
from stabilizer.output.report.case_study import SYMPTOMS
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer

BUILD = Path("build")
SAMPLES = Path(__file__).parents[2] / "sample_runs"
RECORDS = (
    "run.json", "status.json", "summary.json", "metrics", "samples", "events.jsonl", "findings.jsonl", "actions.jsonl",
)  # fmt: skip


QUIET = ("checkpoint.every=0", "checkpoint.best=false", "samples.every=0")
"""Settings of runs of which only numbers are kept."""
Tell = Callable[[str], None]


class Change(NamedTuple):
    """An arm that begins at a snapshot: its name, and the knobs it sets."""

    name: str
    knobs: Mapping[str, float]


class Twin(NamedTuple):
    """An arm that begins at the first step: its name, the settings in which it differs, and of how many seeds it is."""

    name: str
    settings: Sequence[str]
    seeds: int = 5


class Sign(NamedTuple):
    """Whether a run shows what the user saw, and the numbers that decide it."""

    present: bool
    numbers: Mapping[str, float]


def record(
    name: str, task: str, overrides: Sequence[str], *, steps: int, seed: int, mode: Mode, planned: int = 0
) -> None:
    """The recorded run of a case; `planned` is the length that schedules know."""
    build = BUILD / name / "run"
    shutil.rmtree(build, ignore_errors=True)
    config = load_config(task, [*overrides, *QUIET[1:]], steps=planned or steps, seed=seed)
    for tick in Session.start(config, build, mode).run():
        if tick.step >= steps:
            break
    for part in RECORDS:
        kept = SAMPLES / name / part
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink(missing_ok=True)
        if (build / part).exists():
            shutil.move(build / part, kept)
    for file in (SAMPLES / name / "metrics").iterdir():
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
    planned: int = 0,
) -> tuple[Trainer, Checkpoint, int | None]:  # fmt: skip
    """Train with nobody acting; the snapshot, and the step at which the first `wanted` finding was told."""
    path = BUILD / name / f"seed-{seed}"
    shutil.rmtree(path, ignore_errors=True)
    session = Session.start(load_config(task, [*overrides, *QUIET], steps=planned or steps, seed=seed), path, "off")
    told = None
    for tick in session.run():
        if told is None and any(wanted(finding) for finding in tick.findings):
            told = tick.step
        if tick.step >= steps:
            break
    return session.trainer, session.trainer.save_checkpoint(), told


def tried(
    trainer: Trainer, snapshot: Checkpoint, change: Change, *, steps: int, every: int = 10, metric: str = "accuracy/val"
) -> dict[str, Any]:
    """One arm of one seed: back to the snapshot, the change, so many steps. Every `every` of them the model is
    validated, or the median of another metric since then is taken."""
    trainer.load_checkpoint(snapshot, vary_data=False)
    every_as_set = trainer.controls.set("control/validate_every", 0)  # validated here, outside of what a step costs
    before = {knob: trainer.controls.set(knob, value) for knob, value in change.knobs.items()}
    rows: dict[str, list[float]] = {key: [] for key in ("steps", "completions", "values", "reward", "step_s")}
    completions, since = 0.0, []
    for step in range(1, steps + 1):
        began = process_time()
        metrics = trainer.train_step().metrics
        rows["step_s"].append(process_time() - began)
        completions += metrics["batch/prompts_drawn"] * metrics["batch/group_size"]
        rows["reward"].append(metrics["reward/mean"])
        since.append(metrics.get(metric, math.nan))
        if step % every == 0:
            rows["steps"].append(step)
            rows["completions"].append(completions)
            value = trainer.validate()[metric] if metric == "accuracy/val" else float(np.nanmedian(since))
            rows["values"].append(round(value, 4))
            since.clear()
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


def grown(
    name: str, task: str, overrides: Sequence[str], *, steps: int, seed: int, metrics: Sequence[str], planned: int = 0
) -> dict[str, np.ndarray]:
    """Some metrics of a run from its first step, nobody watching; `planned` is the length that schedules know."""
    config = load_config(task, [*overrides, *QUIET], steps=planned or steps, seed=seed)

    def made() -> dict[str, list[float]]:
        trainer = Trainer(config, checkpoints=BUILD / name / "grown")
        rows = [trainer.train_step().metrics for _ in range(steps)]
        return {metric: [row.get(metric, math.nan) for row in rows] for metric in metrics}

    kept = kept_or(made, name, [task, list(overrides), steps, planned, seed, list(metrics)])
    return {metric: np.array(values) for metric, values in kept.items()}


def kept_or(make: Callable[[], Any], name: str, key: Any) -> Any:
    """What was measured before under this key, or else what `make` measures."""
    digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=8).hexdigest()
    path = BUILD / name / "kept" / f"{digest}.json"
    if not path.exists():
        value = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(value))
    return json.loads(path.read_text())


def shown(
    arms: Sequence[tuple[Twin, Sequence[int], Sequence[Sign]]], what: str, title: str, note: str
) -> dict[str, Any]:
    """In which arms the symptom appeared, as `arms.json` holds it."""
    return {
        "title": title, "what": what, "note": note,
        "arms": [
            {
                "name": twin.name, "settings": list(twin.settings), "seeds": list(seeds),
                "present": [sign.present for sign in signs],
                "numbers": {
                    key: [round(float(sign.numbers[key]), 4) for sign in signs] for key in signs[0].numbers
                },
            }
            for twin, seeds, signs in arms
        ],
    }  # fmt: skip


def write(
    name: str,
    trials: Sequence[Mapping[str, Any]] = (),
    measured: Mapping[str, str] | None = None,
    symptom: Mapping[str, Any] | None = None,
    elsewhere: Mapping[str, Any] | None = None,
) -> None:
    """Put numbers of a case where its report and its page look for them; what was not measured again stays."""
    path = SAMPLES / name / "arms.json"
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    fresh = {trial["title"]: trial for trial in trials}
    kept = [fresh.pop(trial["title"], trial) for trial in held.get("trials", ())]
    fresh_symptoms = dict(zip(SYMPTOMS, (symptom, elsewhere), strict=True))
    joined = {key: _joined(held.get(key), found) for key, found in fresh_symptoms.items()}
    numbers: dict[str, Any] = {key: found for key, found in joined.items() if found}
    numbers |= {"trials": [*kept, *fresh.values()], "measured": held.get("measured", {}) | dict(measured or {})}
    text = json.dumps(numbers, separators=(",", ":"), ensure_ascii=False)
    text = text.replace('{"name"', '\n{"name"')  # an arm a line
    path.write_text(text + "\n", encoding="utf-8")


def _joined(held: Mapping[str, Any] | None, fresh: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A symptom with the arms that were measured again in place of the old ones of the same name."""
    if not held or not fresh or held["what"] != fresh["what"]:
        return fresh or held
    arms = {arm["name"]: arm for arm in fresh["arms"]}
    return {**fresh, "arms": [*(arms.pop(arm["name"], arm) for arm in held["arms"]), *arms.values()]}
