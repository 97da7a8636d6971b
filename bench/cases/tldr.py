"""The length reward of TRL's TLDR example, in this trainer, in TRL, and in the published curve.

TRL's script at one process learns from eight answers a step. It is run in TRL with its own generation, and kept as
`sample_runs/length-in-trl`, as TRL logged it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.cases import in_trl, shared
from bench.cases.shared import SAMPLES, Sign, Tell, Twin
from stabilizer.trainers.reading import load

NAME, TASK = "length-vs-published", "length"
LOGGED = SAMPLES / "length-in-trl"
TRL = {
    "max_steps": 300, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_generation": 1,
    "num_generations": 8, "num_iterations": 1, "max_completion_length": 40, "temperature": 1.0, "beta": 0.04,
    "loss_type": "bnpo", "scale_rewards": "group", "epsilon": 0.2, "learning_rate": 1e-4, "max_grad_norm": 1.0,
    "warmup_steps": 0, "adam_beta2": 0.99,
}  # fmt: skip
"""GRPOConfig of the runs in TRL: beta and loss as TRL had them at the time, the rate for a tiny model."""
KEPT = (
    "step", "loss", "grad_norm", "learning_rate", "reward", "reward_std", "frac_reward_zero_std", "num_tokens", "kl",
    "entropy", "completions/mean_length", "completions/max_length", "completions/clipped_ratio",
    "clip_ratio/region_mean",
)  # fmt: skip
"""Keys of TRL's log that the repository keeps."""
DIGITS = 5
SMOOTH, NOISY = 21, 0.1
"""Rows of the moving average, and the share of the rise from which noise around it is seen in a plot."""
WHAT = "the reward is never above 0, and varies around its moving average by more than a tenth of its rise"


def measure(seeds: Sequence[int], tell: Tell, *, record: bool = True) -> None:
    """TRL's runs beside the recorded one and the published curve."""
    ours = load(SAMPLES / NAME).history.view().series("reward/mean").finite().values
    published = json.loads((SAMPLES / NAME / "reference.json").read_text())
    curves = {
        "this trainer": np.asarray(ours), "TRL": _in_trl(seeds[0], tell, record=record),
        "published curve": np.array([value for _, value in published["points"]]),
    }  # fmt: skip
    arms = [(Twin(name, ()), seeds[:1], [sign(curve)]) for name, curve in curves.items()]
    note = f"Moving average over {SMOOTH} rows; best step: where it is highest."
    shared.write(NAME, symptom=shared.shown(arms, WHAT, "The same reward in three places", note))


def _in_trl(seed: int, tell: Tell, *, record: bool) -> np.ndarray:
    """The rewards of a run in TRL."""
    folder, rows = in_trl.logged(NAME, TASK, "TRL", TRL, seed=seed, spread_only=False, tell=tell)
    if record:
        _keep(folder)
    return rows["reward"][np.isfinite(rows["reward"])]


def _keep(folder: Path) -> None:
    """TRL's own log and settings, cut to what the repository can hold."""
    LOGGED.mkdir(exist_ok=True)
    state = json.loads((folder / "trainer_state.json").read_text())
    rows = [row for row in state["log_history"] if "reward" in row]
    kept = [
        {
            key: float(f"{row[key]:.{DIGITS}g}") if isinstance(row[key], float) else row[key]
            for key in KEPT
            if key in row
        }
        for row in rows
    ]
    held = {"global_step": state["global_step"], "max_steps": state["max_steps"], "log_history": kept}
    text = json.dumps(held, separators=(",", ":")).replace('{"step"', '\n{"step"')  # a row a line
    (LOGGED / "trainer_state.json").write_text(text + "\n")
    (LOGGED / "grpo_config.json").write_text(json.dumps(TRL, indent=1) + "\n")


def sign(reward: np.ndarray) -> Sign:
    """Whether the curve is what the user got: never above 0, and noisy."""
    smooth = np.convolve(reward, np.ones(SMOOTH) / SMOOTH, mode="valid")
    middle = reward[SMOOTH // 2 : len(reward) - SMOOTH // 2]
    rise = float(smooth.max() - smooth[0])
    noise = float(np.std(middle - smooth)) / rise if rise > 0 else float("inf")
    numbers = {
        "lowest": float(reward.min()), "highest": float(reward.max()), "rows": float(len(reward)),
        "best row": float(smooth.argmax() + SMOOTH // 2 + 1), "noise / rise": noise,
    }  # fmt: skip
    return Sign(bool(reward.max() <= 0 and noise > NOISY), numbers)
