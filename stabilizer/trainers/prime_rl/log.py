"""prime-rl: `metrics.jsonl`, several records a step: `{"step": 12, "time": ..., "loss/mean": 0.001, ...}`.

Its trainer and its orchestrator are two processes, each with such a file in its own folder: losses and gradients in
one, rewards and lengths in the other. Given the folder above, both are read as one run. Traps:

- Non-finite numbers are dropped: a NaN shows as a key that is missing beside its siblings, and is read as NaN.
- A resumed run appends, from an earlier step on.
- There is no reference model: its KL compares trainer and inference engine. Masked tokens take the place of clipping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stabilizer.formats.console import head
from stabilizer.formats.files import json_lines
from stabilizer.formats.rows import Row, number, step_number
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.naming import Naming, held_out, named_run

NAME = "prime_rl"
WHAT = "metrics.jsonl of prime-rl's trainer or orchestrator, or the folder that holds both"

LOG = "metrics.jsonl"

NAMES = {
    # prime-rl's trainer               ours
    "loss/mean":                      "policy/loss",
    "optim/grad_norm":                "optim/grad_norm",
    "optim/lr":                       "optim/lr",
    "entropy/all/mean":               "policy/entropy",
    "mismatch_kl/all/mean":           "policy/mismatch_kl",
    "is_masked/mean":                 "policy/clip_frac",
    "is_masked_low/mean":             "policy/clip_frac_low",
    "is_masked_high/mean":            "policy/clip_frac_high",
    "off_policy/mean":                "rollout/staleness",
}  # fmt: skip

AGENT_NAMES = {
    # prime-rl's orchestrator, below train/agg/<subset>/<agent>/   ours
    "effective/reward/mean":          "reward/mean",
    "effective/num_output_tokens/mean": "rollout/length_mean",
    "effective/num_output_tokens/max": "rollout/length_max",
    "effective/is_truncated/mean":    "rollout/truncated_frac",
    "all/solved_none":                "reward/all_fail_frac",
    "all/solved_all":                 "reward/all_pass_frac",
}  # fmt: skip

_BATCH = {"aggregation": "one value a step"}
_MASK = "tokens outside the trust region of probabilities, left out of the loss"

DIFFERS = {
    "loss/mean": {"estimator": "masked policy loss + kl_tau x squared log-ratio trainer/engine, mean over tokens"},
    "mismatch_kl/all/mean": {"estimator": "k3 estimate of KL(engine, trainer), mean over tokens", **_BATCH},
    "is_masked/mean": {"estimator": _MASK},
    "is_masked_low/mean": {"estimator": f"{_MASK}: the trainer's probability fell too far"},
    "is_masked_high/mean": {"estimator": f"{_MASK}: the trainer's probability rose too far"},
    "off_policy/mean": {"estimator": "policy updates between generation and training, mean over rollouts", **_BATCH},
}

SIBLINGS = {
    "loss/mean": "loss/",
    "entropy/all/mean": "entropy/",
    "optim/grad_norm": "optim/",
    "mismatch_kl/all/mean": "mismatch_kl/",
}
"""Keys that are never absent from a record with others of their family, unless they were not finite."""

_SIGN = re.compile(rb'"(?:mismatch_kl/|entropy/all/|is_masked|train/agg/|progress/)')
_AGENT = re.compile(r"train/(?P<env>[^/]+)/(?P<subset>all|effective)/(?P<agent>[^/]+)/(?P<what>.+)\Z")
_EVAL = re.compile(r"eval/[^/]+/effective/[^/]+/avg@\d+\Z")


def recognises(path: Path) -> bool:
    """By names only prime-rl has, near the start of JSON lines with a step."""
    if path.is_dir():
        return bool(_files(path))
    start = head(path)[:200_000]
    return start.lstrip().startswith(b'{"step"') and b'"time"' in start[:400] and bool(_SIGN.search(start))


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in one file, or in those of both processes."""
    files = _files(path) if path.is_dir() else [path]
    if not files:
        raise RunError(f"{path}: no {LOG} of prime-rl in it or one folder below; give prime-rl's output_dir")
    notes: list[str] = []
    parts, skipped = [], 0
    for file in files:
        rows, bad = _rows(file, notes)
        parts.append(rows)
        skipped += bad
    if skipped:
        notes.append(f"{skipped} lines left out: not a record of a step, or cut off")
    if len(files) == 1:
        rows = parts[0]
    else:
        merged: dict[int, dict[str, float]] = {}
        for step, values in (row for part in parts for row in part):
            merged.setdefault(step, {}).update(values)
        rows = sorted(merged.items())
        notes.append(f"{len(files)} files of one training read together: " + ", ".join(str(file) for file in files))
    seen = {key for _, values in rows for key in values}
    return named_run(
        (path if path.is_dir() else path.parent).resolve().name or "run", naming(seen), rows, format=NAME,
        files=files, mapping=mapping, config=config, skipped=skipped, notes=notes,
    )  # fmt: skip


def _files(folder: Path) -> list[Path]:
    try:
        beside = [folder / LOG, *sorted(child / LOG for child in folder.iterdir() if child.is_dir())[:64]]
        return [file for file in beside if file.is_file() and recognises(file)]
    except OSError:
        return []


def _rows(file: Path, notes: list[str]) -> tuple[list[Row], int]:
    rows: list[Row] = []
    skipped, gone = 0, 0
    known: set[str] = set()
    for record in json_lines(file):
        step = step_number(record.get("step")) if isinstance(record, dict) else None
        if step is None:
            skipped += 1
            continue
        values = _numbers(record)
        known |= values.keys()
        for key, family in SIBLINGS.items():
            if key in known and key not in values and any(other.startswith(family) for other in values):
                values[key] = np.nan
                gone += 1
        rows.append((step, values))
    if gone:
        notes.append(f"{gone} numbers missing beside their siblings are read as NaN: prime-rl drops what is not finite")
    return rows, skipped


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    found = ((key, number(value)) for key, value in record.items() if key not in ("step", "time"))
    return {key: value for key, value in found if value is not None}


def wrote(keys: Iterable[str]) -> bool:
    """Whether prime-rl's trainer or orchestrator gave these names, in its own file or in a tracker."""
    return any(
        key in ("mismatch_kl/all/mean", "is_masked/mean") or _AGENT.match(key) or _EVAL.match(key) for key in keys
    )


def naming(keys: Iterable[str]) -> Naming:
    """The names of one log: the aggregate over environments and the only agent. Of several agents none is chosen."""
    keys = set(keys)
    matches = [match for key in keys if (match := _AGENT.match(key))]
    envs = {match["env"] for match in matches}
    env = "agg" if "agg" in envs else next(iter(envs)) if len(envs) == 1 else ""
    agents = sorted({match["agent"] for match in matches if match["env"] == env})
    names, differs = dict(NAMES), {key: dict(value) for key, value in DIFFERS.items()}
    asks: dict[str, str] = {}
    if len(agents) == 1:
        for short, ours in AGENT_NAMES.items():
            subset, _, what = short.partition("/")
            key = f"train/{env}/{subset}/{agents[0]}/{what}"
            names[key] = ours
            differs[key] = {"estimator": f"over {subset} rollouts, as the orchestrator reports it", **_BATCH}
    elif rewards := sorted(match[0] for match in matches if match["what"] == "reward/mean"):
        several = f"{len(agents)} agents" if agents else f"{len(envs)} environments"
        asks["reward/mean"] = f"rewards stay under prime_rl/ ({several}); say which: --map 'reward/mean={rewards[0]}'"
    tests = sorted(key for key in keys if _EVAL.match(key))
    one, choice = held_out("prime_rl", tests)
    differs |= dict.fromkeys(one, {"estimator": "held-out problems, mean reward of sampled answers", **_BATCH})
    return Naming(
        trainer="prime_rl", prefix="prime_rl", names={**names, **one}, differs=differs, asks={**asks, **choice},
        clock="optimizer_step", aggregation="over the step's tokens",
    )  # fmt: skip
