"""TRL up to 0.11: what its PPOTrainer meant by `ppo/...`, `objective/...`, `env/...` and `tokens/...`.

`log_stats` hands these to W&B or TensorBoard, so there is no file of this format; readers of trackers and tables use
these names. The trainer that replaced it (0.12-1.12) logs as GRPO's does and is read by `trl_state`. Traps:

- A step is one call of `step()`, a batch of rollouts, with `ppo_epochs` x mini-batches updates in it.
- `objective/kl` is a sum over a sequence, k1 and signed unless `kl_penalty` says otherwise. Divided by the mean length
  logged beside it, it is the KL per token that detectors and other trainers use.
- `ppo/policy/approxkl` is k2 against the policy that sampled; `objective/entropy` is a sum of -log p, not the entropy.
- Neither a gradient norm nor a truncation is logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stabilizer.trainers.naming import Naming

TRAINER = "trl-old-ppo"

NAMES = {
    # TRL up to 0.11                   ours
    "ppo/mean_scores":                "reward/mean",
    "ppo/std_scores":                 "reward/std",
    "ppo/loss/policy":                "policy/loss",
    "ppo/loss/value":                 "value/loss",
    "ppo/policy/approxkl":            "policy/kl_old",
    "ppo/policy/clipfrac":            "policy/clip_frac",
    "ppo/policy/entropy":             "policy/entropy",
    "ppo/val/clipfrac":               "value/clip_frac",
    "ppo/val/mean":                   "value/mean",
    "ppo/val/var_explained":          "value/explained_variance",
    "ppo/learning_rate":              "optim/lr",
    "objective/kl_coef":              "control/beta",
    "objective/kl / tokens":          "policy/kl_ref",  # computed here
    "tokens/responses_len_mean":      "rollout/length_mean",
    "time/ppo/total":                 "time/step_s",
    "time/ppo/optimize_step":         "time/update_s",
}  # fmt: skip

INSTEAD = {
    # where the first is missing       ours
    "env/reward_mean":                "reward/mean",
    "env/reward_std":                 "reward/std",
}  # fmt: skip

_BATCH = {"aggregation": "one value a step"}
DIFFERS: dict[str, dict[str, str]] = {
    "ppo/mean_scores": {"estimator": "mean of the scores given to step(), before any KL penalty", **_BATCH},
    "ppo/std_scores": {"estimator": "standard deviation of the scores of the batch", **_BATCH},
    "ppo/policy/approxkl": {"estimator": "k2 estimate: half the mean squared log-ratio, mean over completion tokens"},
    "ppo/policy/clipfrac": {"estimator": "tokens whose clipped loss exceeds the unclipped one"},
    "objective/kl_coef": {"estimator": "coefficient of the KL penalty on the reward, adapted to a target by default",
                          **_BATCH},
    "objective/kl / tokens": {
        "estimator": "k1 estimate, signed, of KL(policy, reference): objective/kl, a sum over a sequence, divided by "
        "the mean completion length",
        **_BATCH,
    },
    "tokens/responses_len_mean": _BATCH,
    "time/ppo/total": {"estimator": "wall time of step(), generation and scoring not included", **_BATCH},
    "time/ppo/optimize_step": {"estimator": "wall time of all updates of the step", **_BATCH},
}  # fmt: skip


def wrote(keys: Iterable[str]) -> bool:
    """Whether the old PPOTrainer gave these names."""
    seen = set(keys)
    return "ppo/mean_scores" in seen or {"ppo/loss/policy", "objective/kl"} <= seen


def _per_token(values: dict[str, float], config: Mapping[str, Any]) -> dict[str, float]:
    """A row with the KL per token, where both numbers it takes are there."""
    kl, length = values.get("objective/kl"), values.get("tokens/responses_len_mean")
    if kl is None or length is None or length <= 0:
        return values
    return {**values, "objective/kl / tokens": kl / length}


NAMING = Naming(
    trainer=TRAINER, prefix="trl", names=NAMES, instead=INSTEAD, differs=DIFFERS, derived=_per_token,
    aggregation="mean over the step's updates",
)  # fmt: skip


def with_beta(config: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's own configuration, taken out of what trackers keep around it, with `beta`, our word for its KL's
    weight at the start."""
    inner = config.get("trl_ppo_trainer_config")
    settings = dict(inner) if isinstance(inner, Mapping) else dict(config)
    weight = settings.get("init_kl_coef")
    return {**settings, "beta": weight} if isinstance(weight, (int, float)) and "beta" not in settings else settings
