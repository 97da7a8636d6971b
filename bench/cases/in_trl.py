"""The TRL cases inside real TRL: jobs for `trl_side`, run by the Python of an environment that holds TRL.

A job's folder under `build/` holds the run of `attach`, TRL's `trainer_state.json` and what was printed. A finished job
is not run again; delete its folder to measure again.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases.shared import BUILD, Tell
from bench.train.sides import TRL_CACHE, environment, trl_python
from stabilizer.core.records import Finding
from stabilizer.runs.reader import RunReader
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer

SIDE = Path(__file__).with_name("trl_side.py")
STARTED = 10
"""Steps of this project's trainer behind the model that a job begins with, on the built-in settings."""
LONGEST_S = 7200
"""Seconds after which a job is given up; on a busy machine it takes ten times as long as on a quiet one."""


def model(case: str, task: str) -> Path:
    """The folder of the model that every job of a task begins with."""
    folder = BUILD / case / f"model-{task}"
    if not folder.exists():
        config = load_config(task, ["optim.schedule=constant"], steps=STARTED, seed=0)
        trainer = Trainer(config, checkpoints=BUILD / case)
        for _ in range(STARTED):
            trainer.train_step()
        trainer.save_pretrained(folder)
    return folder


def folder_of(case: str, name: str, seed: int) -> Path:
    """Where a job's results are."""
    return BUILD / case / "trl" / f"{name.replace(' ', '-')}-{seed}"


def logged(
    case: str, task: str, name: str, settings: Mapping[str, Any], *, seed: int, spread_only: bool, tell: Tell
) -> tuple[Path, dict[str, np.ndarray]]:
    """A job's folder, and what TRL logged, key by key, NaN where a row lacks one."""
    folder = folder_of(case, name, seed)
    if not (folder / "done.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        job = {
            "task": task, "model": str(model(case, task).resolve()), "seed": seed, "settings": settings,
            "spread_only": spread_only,
        }  # fmt: skip
        (folder / "job.json").write_text(json.dumps(job))
        _run(folder, tell)
    rows = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    rows = [row for row in rows if "grad_norm" in row]
    keys = {key for row in rows for key in row}
    return folder, {key: np.array([row.get(key, np.nan) for row in rows], dtype=float) for key in keys}


def _run(folder: Path, tell: Tell) -> None:
    python = trl_python(Path(os.environ.get("STABILIZER_TRL", TRL_CACHE)), tell)
    with open(folder / "printed.log", "w", encoding="utf-8") as printed:
        done = subprocess.run(  # noqa: S603
            [python, SIDE, folder / "job.json"], stdout=printed, stderr=subprocess.STDOUT, env=environment(1),
            timeout=LONGEST_S,
        )  # fmt: skip
    if done.returncode:
        raise ValueError(f"{folder}: the job failed; see printed.log there")


def told(folder: Path, wanted: str) -> Finding | None:
    """How `attach` told a finding first while TRL trained."""
    found = RunReader(next((folder / "runs").iterdir())).findings
    return next((finding for finding in found if finding.id == wanted), None)


def in_words(findings: Sequence[Finding | None]) -> str:
    """In how many seeds, how loud, at which steps, and with which first causes."""
    seen = [finding for finding in findings if finding is not None]
    causes = [finding.causes[0].id if finding.causes else "none" for finding in seen]
    each = [f"{f.severity} at step {f.detected_step:,} ({cause})" for f, cause in zip(seen, causes, strict=True)]
    return f"{len(seen)} of {len(findings)} seeds: {', '.join(each)}" if seen else f"0 of {len(findings)} seeds"
