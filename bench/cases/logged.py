"""A recorded run as another trainer would have logged it: its names, its file format, its configuration beside it.

`diagnose` has to say of the log what it says of the run, and to name the fix in that trainer's keys. Only metrics that
the trainer logs are written; the console rounds to three decimals as it does.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pprint import pformat
from typing import Any

from bench.cases.shared import SAMPLES, write
from stabilizer.analysis.analyse import analyse
from stabilizer.core.records import Finding
from stabilizer.runs.reader import RunReader
from stabilizer.trainers.reading import load
from stabilizer.trainers.trl import state
from stabilizer.trainers.verl import names

EASYR1 = {
    "data": {"rollout_batch_size": 4}, "algorithm": {"adv_estimator": "grpo", "kl_coef": 0.0},
    "worker": {
        "actor": {"global_batch_size": 1, "optim": {"lr": 5e-4, "lr_warmup_ratio": 0.0}},
        "rollout": {"n": 8, "temperature": 1.0},
    },
    "trainer": {"val_freq": 100, "save_freq": -1},
}  # fmt: skip
TRL = {
    "per_device_train_batch_size": 128, "gradient_accumulation_steps": 1, "num_generations": 8, "num_iterations": 4,
    "beta": 0.0, "learning_rate": 1e-4, "lr_scheduler_type": "constant", "scale_rewards": "group", "logging_steps": 1,
}  # fmt: skip
SEARCH_R1 = {
    "data": {"train_batch_size": 12}, "algorithm": {"adv_estimator": "gae"},
    "actor_rollout_ref": {
        "actor": {"ppo_mini_batch_size": 6, "optim": {"lr": 1.5e-3, "lr_warmup_steps_ratio": 0.285}},
        "rollout": {"n_agent": 1, "temperature": 1},
    },
    "trainer": {"total_training_steps": 1005, "test_freq": 20},
}  # fmt: skip
"""What the small runs are in the keys of each trainer."""


def _rows(run: Path, table: Mapping[str, str]) -> Iterator[tuple[int, dict[str, float]]]:
    """The steps of a run, with the metrics that have a name in the table."""
    view = RunReader(run).history.view()
    series = {theirs: view.series(ours) for theirs, ours in table.items() if ours in view}
    steps = sorted({int(step) for rows in series.values() for step in rows.steps})
    values = {name: dict(zip(rows.steps.tolist(), rows.values.tolist(), strict=True)) for name, rows in series.items()}
    for step in steps:
        yield step, {name: rows[step] for name, rows in values.items() if step in rows}


def _easyr1(run: Path, folder: Path) -> Path:
    table = {key: ours for key, ours in names.NAMES.items() if not key.startswith(("critic/v", "rollout_corr"))}
    table |= {"actor/pg_clipfrac_higher": "policy/clip_frac_high", "val/accuracy_reward": "accuracy/val"}
    lines = []
    for step, values in _rows(run, table):
        nested: dict[str, Any] = {"step": step}
        for key, value in values.items():
            family, *path = key.split("/")
            here = nested.setdefault(family, {})
            for part in path[:-1]:
                here = here.setdefault(part, {})
            here[path[-1]] = value
        lines.append(json.dumps(nested))
    (folder / "experiment_config.json").write_text(json.dumps(EASYR1))
    log = folder / "experiment_log.jsonl"
    log.write_text("\n".join(lines) + "\n")
    return log


def _trl(run: Path, folder: Path) -> Path:
    rows = [{"step": step, "epoch": step / 1000, **values} for step, values in _rows(run, state.NAMES) if step]
    log = folder / "trainer_state.json"
    log.write_text(json.dumps({"global_step": rows[-1]["step"], "max_steps": 500, "log_history": rows}))
    (folder / "grpo_config.json").write_text(json.dumps(TRL))
    return log


def _search_r1(run: Path, folder: Path) -> Path:
    table = names.NAMES | names.SEARCH_R1_NAMES | {"val/test_score/search": "accuracy/val"}
    lines = [
        " - ".join([f"step:{step}", *(f"{key}:{value:.3f}" for key, value in values.items())])
        for step, values in _rows(run, table)
    ]
    log = folder / "train.log"  # it begins with the configuration
    log.write_text("\n".join([pformat(SEARCH_R1), *lines]) + "\n")
    return log


WRITERS: Mapping[str, Callable[[Path, Path], Path]] = {
    "case-easyr1": _easyr1, "case-trl-beta0": _trl, "case-search-r1": _search_r1,
}  # fmt: skip
"""Case -> how its trainer logs."""
SYMPTOMS: Mapping[str, tuple[str, str]] = {
    "case-easyr1": ("reward/plateau", "batch-too-small"),
    "case-trl-beta0": ("optim/grad-explosion", "divided-by-spread"),
    "case-search-r1": ("reward/noise-floor", "batch-too-small"),
}
"""Case -> what must be found in its trainer's log, and the cause that its arms prove."""


def told(name: str) -> list[Finding]:
    """What `diagnose` finds of the symptom in the recorded run of a case, written as its trainer logs."""
    with tempfile.TemporaryDirectory() as folder:
        log = WRITERS[name](SAMPLES / name, Path(folder))
        return [finding for finding in analyse(load(log)).findings if finding.id == SYMPTOMS[name][0]]


def keep(name: str) -> None:
    """Put it where the page of the case looks for it."""
    seen = "; ".join(
        f"{finding.id}, {finding.severity} at step {finding.detected_step}, first cause"
        f" {finding.causes[0].id if finding.causes else 'none'}"
        for finding in told(name)
    )
    write(name, measured={"The recorded run written as this trainer's own log, diagnosed": seen or "not seen"})
