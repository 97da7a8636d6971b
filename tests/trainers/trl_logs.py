"""Small made-up trainer_state.json files as different TRL versions write them. Keys are TRL's, all numbers invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

OLD = {"completion_length": 180.0, "kl": 0.0005, "rewards/right": 0.4, "rewards/form": 0.9}
NEW = {
    "num_tokens": 9000.0, "completions/mean_length": 181.5, "completions/max_length": 256.0,
    "completions/min_length": 20.0, "completions/clipped_ratio": 0.05, "completions/mean_terminated_length": 170.0,
    "rewards/right/mean": 0.4, "rewards/right/std": 0.45, "kl": 0.0006, "clip_ratio/low_mean": 0.001,
    "clip_ratio/low_min": 0.0, "clip_ratio/high_mean": 0.002, "clip_ratio/high_max": 0.01,
    "clip_ratio/region_mean": 0.003,
}  # fmt: skip
EXTRA: dict[str, dict[str, float]] = {
    "0.14": OLD,
    "0.16": {**OLD, "num_tokens": 9000.0, "clip_ratio": 0.004},
    "0.17": NEW,
    "0.20": {**NEW, "frac_reward_zero_std": 0.25, "entropy": 0.7},
    "1.16": {
        **{key: value for key, value in NEW.items() if key != "kl"}, "frac_reward_zero_std": 0.25, "entropy": 0.7,
        "step_time": 12.5, "sampling/sampling_logp_difference/mean": 0.012,
        "sampling/importance_sampling_ratio/mean": 0.98,
    },
    "ppo": {
        "objective/kl": 4.0, "objective/entropy": 60.0, "objective/scores": 0.5, "objective/rlhf_reward": 0.3, "eps": 3,
        "policy/approxkl_avg": 0.002, "policy/clipfrac_avg": 0.03, "policy/entropy_avg": 1.1, "loss/policy_avg": -0.01,
        "loss/value_avg": 0.2, "val/ratio": 1.0, "val/clipfrac_avg": 0.04, "lr": 3e-6, "episode": 512,
    },
    "sft": {"mean_token_accuracy": 0.8, "num_tokens": 9000.0, "entropy": 0.9},
    "dpo": {"rewards/chosen": 0.1, "rewards/rejected": -0.2, "rewards/accuracies": 0.7, "logps/chosen": -80.0},
    "kto": {"kl": 0.2, "rewards/chosen": 0.1, "logps/chosen": -80.0},
}  # fmt: skip
SUMMARY = {"train_runtime": 99.0, "train_loss": 0.01, "train_steps_per_second": 0.2, "total_flos": 0.0, "epoch": 1.0}


def record(version: str, step: int, **changes: Any) -> dict[str, Any]:
    """One entry of log_history."""
    common: dict[str, Any] = {"epoch": step / 100, "step": step}
    if version != "ppo":
        common |= {"loss": 0.001 * (step % 3), "grad_norm": 0.5 + 0.01 * (step % 7), "learning_rate": 1e-6}
    if version not in ("ppo", "sft", "dpo", "kto"):
        common |= {"reward": 0.4 + 0.001 * step, "reward_std": 0.3}
    return {**common, **EXTRA[version], **changes}


def state(version: str, rows: int = 40, every: int = 1, **changes: Any) -> dict[str, Any]:
    """A whole trainer_state.json."""
    history = [record(version, step) for step in range(every, rows * every + 1, every)]
    return {
        "best_metric": None, "epoch": 1.0, "global_step": rows * every, "is_local_process_zero": True,
        "log_history": [*history, {**SUMMARY, "step": rows * every}], "logging_steps": every,
        "max_steps": 500, **changes,
    }  # fmt: skip


def write(folder: Path, value: Any, name: str = "trainer_state.json") -> Path:
    """The file a trainer would have written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=2))
    return path
