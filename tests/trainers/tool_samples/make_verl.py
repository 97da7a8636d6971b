"""How the samples of veRL, Search-R1 and EasyR1 were written: by their own logger classes, with numbers made up here.

python make_verl.py verl FOLDER OUT      a wheel unpacked with pip install --no-deps --target FOLDER verl==VERSION,
                                         or a checkout of Search-R1; needs numpy, orjson, and torch
python make_verl.py easyr1 FOLDER OUT    a checkout of hiyouga/EasyR1; needs also codetiming

Only the packages' loggers and reductions are imported, not the trainers, which need Ray and a GPU.
"""

import contextlib
import inspect
import os
import sys
import types
from pathlib import Path

import numpy as np


def bare(folder: str) -> None:
    """Make `verl.utils` importable without what its packages' __init__ would bring along."""
    for name in ("verl", "verl.utils"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")))]
        sys.modules[name] = package


def step_metrics(step: int) -> dict[str, object]:
    """One step as the trainer gathers it: lists of the updates' values, to be reduced; NaN as the loss of step 3."""
    rng = np.random.default_rng(step)
    wobble = [float(value) for value in rng.normal(1, 0.05, 4)]
    return {
        "actor/entropy": [0.41 * value for value in wobble],
        "actor/pg_loss": [float("nan") if step == 3 else -0.0031 * value for value in wobble],
        "actor/kl_loss": [0.00031 * value for value in wobble],
        "actor/kl_coef": [0.001] * 4,
        "actor/pg_clipfrac": [0.0021 * value for value in wobble],
        "actor/ppo_kl": [0.0002 * value for value in wobble],
        "actor/grad_norm": [0.187 * value for value in wobble],
        "actor/lr": [1e-6] * 4,
    }


def batch_metrics(step: int) -> dict[str, object]:
    """What is computed once a step: numpy's and Python's own numbers side by side, as the trainers have them."""
    return {
        "critic/score/mean": np.float32(0.4 + step / 64).item(), "critic/score/max": 1.0, "critic/score/min": 0.0,
        "critic/rewards/mean": np.float32(0.4 + step / 64).item(), "critic/advantages/mean": 0.0,
        "response_length/mean": 231.5, "response_length/max": 512.0, "response_length/clip_ratio": 0.0625,
        "timing_s/step": 71.25 + step, "timing_s/gen": 40.5, "perf/total_num_tokens": 81234 + step,
    }  # fmt: skip


def verl(folder: str, out: Path) -> None:
    bare(folder)
    from verl.utils.tracking import Tracking

    try:
        from verl.utils.metric import reduce_metrics
    except ImportError:  # old versions have it in a module that imports the trainer

        def reduce_metrics(metrics: dict[str, list[float]]) -> dict[str, float]:
            return {key: np.mean(values) for key, values in metrics.items()}

    os.environ["VERL_FILE_LOGGER_ROOT"] = str(out)
    backends = ["console"] + (["file"] if "file" in Tracking.supported_backend else [])
    with (out / "console.log").open("w") as console, contextlib.redirect_stdout(console):
        tracking = Tracking("project", "run", default_backend=backends, config={})
        for step in range(1, 5):
            tracking.log(data={**reduce_metrics(step_metrics(step)), **batch_metrics(step)}, step=step)


def easyr1(folder: str, out: Path) -> None:
    bare(folder)
    from verl.utils.logger.logger import Tracker

    config = {
        "data": {"rollout_batch_size": 32}, "algorithm": {"adv_estimator": "grpo", "kl_coef": 0.001},
        "worker": {"actor": {"global_batch_size": 8, "optim": {"lr": 1e-6}}, "rollout": {"n": 8}},
        "trainer": {
            "save_checkpoint_path": str(out), "project_name": "project", "experiment_name": "run", "max_steps": 100,
        },
    }  # fmt: skip
    names = {"actor/entropy": "actor/entropy_loss", "actor/pg_clipfrac": "actor/pg_clipfrac_higher"}
    with (out / "console.log").open("w") as console, contextlib.redirect_stdout(console):
        tracker = Tracker(["console", "file"], config)
        for step in range(1, 5):
            updates = {names.get(key, key): np.mean(values) for key, values in step_metrics(step).items()}
            updates |= {"reward/overall": 0.4 + step / 64, "reward/accuracy": 0.375, "reward/format": 0.875}
            tracker.log(data={**updates, **batch_metrics(step)}, step=step)


if __name__ == "__main__":
    os.makedirs(sys.argv[3], exist_ok=True)
    {name: made for name, made in globals().items() if inspect.isfunction(made)}[sys.argv[1]](
        sys.argv[2], Path(sys.argv[3])
    )
