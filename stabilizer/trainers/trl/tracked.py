"""Numbers that TRL's trainers, or transformers' own, gave to a tracker.

transformers' integrations write `train/reward` and `eval/reward` for what its log calls `reward` and `eval_reward`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import step_number
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.naming import named_log
from stabilizer.trainers.trl import old_ppo, state

_SIGNS = ("completions/", "frac_reward_zero_std", "objective/scores", "clip_ratio/region_mean")
_ALWAYS = frozenset({"loss", "learning_rate", "epoch"})


def named(log: NumberLog, mapping: Mapping[str, str], config: Mapping[str, Any] | None) -> LoadedRun | None:
    """The run in rows under the names of TRL or transformers."""
    seen = log.names()
    flat = _unprefixed(seen)
    if _transformers(set(flat.values())):
        run = state.run_of(
            [{**{flat[key]: value for key, value in values.items()}, "step": step} for step, values in log.rows],
            log.files[0],
            format=log.format,
            mapping={ours: flat[theirs] for ours, theirs in mapping.items()},
            config=config,
            settings=log.settings,
            planned=step_number(log.settings.get("max_steps")) or None,
            skipped=log.skipped,
            notes=list(log.notes),
            name=log.name,
        )
        return replace(run, source=replace(run.source, files=tuple(str(file) for file in log.files)))
    if old_ppo.wrote(seen):
        settings = old_ppo.with_beta(log.configured(config))
        return named_log(log, old_ppo.NAMING, mapping, settings)
    return None


def _unprefixed(seen: Iterable[str]) -> dict[str, str]:
    """The names in transformers' own log: `train/x` is `x`, `eval/x` is `eval_x`.

    A name of the user's that would then equal one of the trainer's gets the prefix `own/`."""
    keys = set(seen)
    flat = {key: key.removeprefix("train/") for key in keys if key.startswith("train/")}
    flat |= {key: "eval_" + key.removeprefix("eval/") for key in keys if key.startswith("eval/")}
    taken = set(flat.values()) | (set(state.NAMES) if any(key.startswith("train/") for key in keys) else set())
    apart = tuple(["rewards/"] if any(key.startswith("train/rewards/") for key in keys) else [])
    return flat | {key: f"own/{key}" if key in taken or key.startswith(apart) else key for key in keys - set(flat)}


def _transformers(keys: set[str]) -> bool:
    """Whether a trainer of TRL, or transformers' own, wrote these."""
    if any(key.startswith(_SIGNS) for key in keys) or {"reward_std", "completion_length"} <= keys:
        return True
    paid = [key for key in keys if "reward" in key and not key.startswith(("rewards/chosen", "rewards/rejected"))]
    return _ALWAYS <= keys and not paid
