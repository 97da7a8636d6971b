"""What veRL and the trainers that grew out of it (Search-R1, EasyR1) mean by their names.

One step is one batch of rollouts; actor and critic metrics are means over its mini-batch updates. Traps:

- The loss's KL (`actor/kl_loss`, k3 unless `kl_loss_type` says otherwise) and the reward's (`actor/reward_kl_penalty`,
  up to 0.3 `critic/kl`; k1, signed) are two numbers; where both are logged the loss's is `policy/kl_ref`.
- `actor/entropy` is the true entropy; up to 0.3 the same number was `actor/entropy_loss`. EasyR1's `actor/entropy_loss`
  is the mean of -log p, an estimate.
- `actor/pg_clipfrac` counts both sides, `actor/pg_clipfrac_lower` the dual clip. EasyR1 splits by side.
- `critic/score` is the reward function's value, `critic/rewards` the same after a KL penalty.
- An update whose gradient is not finite is skipped (not in Search-R1), but its norm still counts in the step's mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stabilizer.core.settings import setting_at
from stabilizer.formats.rows import Row
from stabilizer.trainers.naming import Naming

KL_SWITCH = "with actor_rollout_ref.actor.use_kl_loss=true"
"""What makes it measure the KL to the reference."""

NAMES = {
    # veRL, Search-R1, EasyR1          ours
    "actor/pg_loss":                  "policy/loss",
    "actor/grad_norm":                "optim/grad_norm",
    "actor/lr":                       "optim/lr",
    "actor/kl_loss":                  "policy/kl_ref",
    "actor/kl_coef":                  "control/beta",
    "actor/ppo_kl":                   "policy/kl_old",
    "actor/pg_clipfrac":              "policy/clip_frac",
    "actor/pg_clipfrac_lower":        "policy/dual_clip_frac",
    "actor/entropy":                  "policy/entropy",
    "rollout_corr/k3_kl":             "policy/mismatch_kl",
    "rollout_corr/kl":                "policy/mismatch_k1",
    "critic/score/mean":              "reward/mean",
    "critic/vf_loss":                 "value/loss",
    "critic/vf_clipfrac":             "value/clip_frac",
    "critic/vf_explained_var":        "value/explained_variance",
    "critic/vpred_mean":              "value/mean",
    "critic/grad_norm":               "value/grad_norm",
    "response_length/mean":           "rollout/length_mean",
    "response_length/max":            "rollout/length_max",
    "response_length/clip_ratio":     "rollout/truncated_frac",
    "timing_s/step":                  "time/step_s",
    "timing_s/gen":                   "time/rollout_s",
    "timing_s/update_actor":          "time/update_s",
}  # fmt: skip

INSTEAD = {
    # up to 0.3, or KL in the reward   ours
    "actor/entropy_loss":             "policy/entropy",
    "actor/reward_kl_penalty":        "policy/kl_ref",
    "actor/reward_kl_penalty_coeff":  "control/beta",
    "critic/kl":                      "policy/kl_ref",
    "critic/kl_coeff":                "control/beta",
    "mismatch/mismatch_k3_kl":        "policy/mismatch_kl",
    "mismatch/mismatch_kl":           "policy/mismatch_k1",
    "critic/values/mean":             "value/mean",
    "critic/rewards/mean":            "reward/mean",
}  # fmt: skip

SEARCH_R1_NAMES = {
    # Search-R1, beside those of veRL  ours
    "env/number_of_actions/mean":     "rollout/turns_mean",
    "env/number_of_valid_search":     "rollout/searches_mean",
}  # fmt: skip

EASYR1_NAMES = {
    # EasyR1, beside those of veRL     ours
    "actor/pg_clipfrac_higher":       "policy/clip_frac_high",
    "actor/pg_clipfrac_lower":        "policy/dual_clip_frac",
    "actor/kl_penalty":               "policy/kl_ref",
    "val/accuracy_reward":            "accuracy/val",
    "reward/overall":                 "reward/mean",
}  # fmt: skip
"""Where a log also has `critic/score/mean` or `actor/kl_loss`, those are used and these keep their own names."""

_K1 = {"estimator": "k1 estimate, signed, mean over completion tokens"}
_K3 = {"estimator": "k3 estimate of KL(policy, reference) (kl_loss_type low_var_kl), averaged as loss_agg_mode says"}
_BATCH = {"aggregation": "one value a step"}
_REWARD_KL = {"estimator": "k1 estimate, signed, of KL(policy, reference): the penalty on the reward", **_BATCH}

DIFFERS: dict[str, dict[str, str]] = {
    "actor/pg_loss": {"estimator": "clipped policy loss without KL and entropy terms"},
    "actor/kl_loss": _K3,
    "actor/ppo_kl": {"estimator": "k1 estimate, signed, of KL(old policy, policy): mean of old - new log-probability"},
    "actor/reward_kl_penalty": _REWARD_KL,
    "critic/kl": _REWARD_KL,
    "actor/kl_penalty": _REWARD_KL,
    "actor/kl_coef": {"estimator": "coefficient of the KL loss"},
    "actor/reward_kl_penalty_coeff": {"estimator": "coefficient of the KL penalty on the reward", **_BATCH},
    "critic/kl_coeff": {"estimator": "coefficient of the KL penalty on the reward", **_BATCH},
    "actor/pg_clipfrac": {"estimator": "tokens for which the clipped objective was chosen, either side"},
    "actor/pg_clipfrac_lower": {"estimator": "tokens bounded by the dual clip (clip_ratio_c)"},
    "actor/pg_clipfrac_higher": {"estimator": "tokens whose clipped loss exceeds the unclipped one"},
    "actor/entropy": {"estimator": "softmax entropy over completion tokens, averaged as loss_agg_mode says", **_BATCH},
    "actor/lr": {"aggregation": "after the step's updates"},
    "critic/score/mean": {"estimator": "sum of the reward function's token scores, mean over completions", **_BATCH},
    "critic/values/mean": _BATCH,
    "reward/overall": {"estimator": "`overall` of the reward function, mean over completions", **_BATCH},
    "response_length/clip_ratio": {"estimator": "completions exactly as long as max_response_length", **_BATCH},
    "rollout_corr/kl": {**_K1, **_BATCH},
    "mismatch/mismatch_kl": {**_K1, **_BATCH},
    "val/accuracy_reward": {"estimator": "mean `accuracy` of the reward function on held-out problems", **_BATCH},
    "timing_s/update_actor": {"estimator": "wall time of the actor's updates, the critic's excluded", **_BATCH},
}  # fmt: skip

_MEAN = "mean over the step's mini-batch updates"

ROUNDED_AWAY = frozenset({
    "actor/lr", "critic/lr", "actor/kl_loss", "actor/ppo_kl", "actor/kl_coef", "actor/reward_kl_penalty",
    "actor/reward_kl_penalty_coeff", "critic/kl", "critic/kl_coeff", "rollout_corr/kl", "rollout_corr/k3_kl",
})  # fmt: skip
"""Small numbers, printed with three decimals, whose 0.000 is only rounding."""


UNMEASURED = {
    "actor/ppo_kl": "ppo_kl is 0 throughout: one update a batch compares the policy with itself, so it is not measured",
}


def trainer_of(seen: Iterable[str]) -> str:
    """Which of the family wrote these keys."""
    keys = set(seen)
    if keys & {"actor/pg_clipfrac_higher", "val/reward_score", "reward/overall"}:
        return "easyr1"
    if any(key.startswith(("env/number_of_", "env/finish_ratio", "state_tokens/")) for key in keys):
        return "search_r1"
    return "verl"


def naming(trainer: str, rows: Iterable[Row], config: Mapping[str, Any], notes: list[str]) -> Naming:
    """The names of one log of the family; `notes` lists what is unclear."""
    keys = {key for _, values in rows for key in values}
    names, instead, differs = dict(NAMES), dict(INSTEAD), {key: dict(value) for key, value in DIFFERS.items()}
    if trainer == "search_r1":
        names |= SEARCH_R1_NAMES
    if trainer == "easyr1":
        instead |= EASYR1_NAMES
        differs["actor/entropy_loss"] = {"estimator": "mean of -log p over completion tokens, an estimate"}
        differs["actor/kl_loss"] = {**_K3, "aggregation": "last micro-batch of each update"}
    elif "actor/entropy" not in keys:
        differs["actor/entropy_loss"] = {"estimator": "softmax entropy of the policy over completion tokens"}
    kind = setting_at(config, "algorithm.kl_penalty" if trainer == "easyr1" else "actor_rollout_ref.actor.kl_loss_type")
    if isinstance(kind, str) and kind not in ("low_var_kl", "k3"):
        differs["actor/kl_loss"] |= {"estimator": f"KL(policy, reference), kl_loss_type {kind}"}
    asks: dict[str, str] = {}
    names |= _validation(trainer, keys, differs, asks)
    return Naming(
        trainer=trainer, prefix=trainer, names=names, instead=instead, differs=differs, aggregation=_MEAN,
        unmeasured=UNMEASURED, asks=asks,
        family=_component if trainer == "easyr1" else lambda key: None,
    )  # fmt: skip


def _component(key: str) -> str | None:
    """EasyR1: whatever the reward function returns, one key each."""
    family, _, name = key.partition("/")
    return f"reward/{name}/mean" if family == "reward" and name and "/" not in name and name != "overall" else None


def _validation(
    trainer: str, keys: set[str], differs: dict[str, dict[str, str]], asks: dict[str, str]
) -> dict[str, str]:
    """The key of the held-out accuracy. With several data sets there is none, and a score need not be an accuracy."""
    if trainer == "easyr1":
        return {}
    scores = sorted(key for key in keys if key.startswith(("val-core/", "val/test_score/", "test_score/")))
    sure = [key for key in scores if "/acc/mean@" in key or (trainer == "search_r1" and "test_score/" in key)]
    if len(sure) == 1:
        answers = sure[0].rpartition("@")[2] if "@" in sure[0] else "1"
        differs[sure[0]] = {"estimator": f"held-out problems, mean of {answers} answers each", **_BATCH}
        return {sure[0]: "accuracy/val"}
    if scores:
        why = f"{len(sure)} data sets" if sure else "a score need not be an accuracy"
        asks["accuracy/val"] = (
            f"validation stays under {trainer}/ ({why}); say which it is with --map 'accuracy/val={scores[0]}'"
        )
    return {}


def with_beta(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with `beta`, our word for the weight of the KL term, wherever veRL's keys put it."""
    if "beta" in config or not config:
        return dict(config)
    actor = setting_at(config, "actor_rollout_ref.actor")
    if isinstance(actor, Mapping):
        reward = setting_at(config, "algorithm.use_kl_in_reward")
        loss = actor.get("use_kl_loss")
        if loss is None and reward is None:
            return dict(config)
        in_loss = actor.get("kl_loss_coef") if loss else 0.0
        in_reward = setting_at(config, "algorithm.kl_ctrl.kl_coef") if reward or (reward is None and not loss) else 0.0
    elif setting_at(config, "worker.actor") is not None and isinstance(
        algorithm := setting_at(config, "algorithm"), Mapping
    ):
        in_loss = setting_at(config, "worker.actor.kl_loss_coef") or 0.0
        in_reward = 0.0 if algorithm.get("disable_kl") else algorithm.get("kl_coef")
    else:
        return dict(config)
    weights = [weight for weight in (in_loss, in_reward) if isinstance(weight, (int, float))]
    return {**config, "beta": max(weights)} if weights else dict(config)
