"""OpenRLHF: the console, one line a step: `✨ Global step 12: {'policy_loss': -0.003, 'reward': 0.43, ...}`.

Its TensorBoard and W&B have the same names with `train/` before them, and `eval/` before those of evaluations.

Written by the PPO trainer's process through Python's logging (the asynchronous trainer without the star). Traps:

- `policy_loss` is the clipped loss alone. `kl` is the penalty on the reward, k1 unless `algo.kl.estimator` says
  otherwise, or with `algo.kl.use_loss` the loss's; with `algo.kl.init_coef` 0 it is printed as 0 and not measured.
- `entropy_loss` exists with `actor.entropy_coef` only, `actor_grad_norm` since March 2026, and is DeepSpeed's of the
  last micro-batch; `dynamic_filtering_pass_rate` is a percentage.
- Evaluations are lines of their own, `Evaluation completed in ..., global_step 12, eval_metrics: {...}`.
- The short names of the progress bar (`act_loss`, `gen_len`) repeat the same numbers and are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stabilizer.formats.console import ConsoleParser, Line, python_dict
from stabilizer.formats.rows import number
from stabilizer.trainers.naming import Naming, held_out

NAME = "openrlhf_console"
WHAT = "the console output of OpenRLHF, with lines like Global step 12: {'policy_loss': ...}"

NAMES = {
    # OpenRLHF                         ours
    "policy_loss":                    "policy/loss",
    "actor_grad_norm":                "optim/grad_norm",
    "actor_lr":                       "optim/lr",
    "ppo_clip_ratio":                 "policy/clip_frac",
    "ppo_kl":                         "policy/kl_old",
    "kl":                             "policy/kl_ref",
    "entropy_loss":                   "policy/entropy",
    "vllm_kl":                        "policy/mismatch_k1",
    "reward":                         "reward/mean",
    "rollout/reward_std":             "reward/std",
    "group_reward_std":               "reward/std_group",
    "response_length":                "rollout/length_mean",
    "truncated":                      "rollout/truncated_frac",
    "critic_loss":                    "value/loss",
    "critic_grad_norm":               "value/grad_norm",
    "values":                         "value/mean",
    "timing/step_total":              "time/step_s",
    "timing/generation":              "time/rollout_s",
    "timing/ppo_train":               "time/update_s",
}  # fmt: skip

INSTEAD = {
    # where the first is missing       ours
    "rollout/reward_mean":            "reward/mean",
    "rollout/response_length_mean":   "rollout/length_mean",
    "rollout/truncated_rate":         "rollout/truncated_frac",
}  # fmt: skip

_BATCH = {"aggregation": "one value a step"}

DIFFERS = {
    "policy_loss": {"estimator": "clipped policy loss without KL and entropy terms"},
    "actor_grad_norm": {"aggregation": "last micro-batch of the step, as DeepSpeed reports it"},
    "ppo_clip_ratio": {"estimator": "tokens whose clipped objective is the smaller one"},
    "ppo_kl": {"estimator": "k1 estimate, signed, of KL(old policy, policy): mean of old - new log-probability"},
    "kl": {"estimator": "KL(policy, reference) by algo.kl.estimator (k1 by default, signed), mean over tokens"},
    "vllm_kl": _BATCH,
    "reward": {"estimator": "mean over the samples trained on", **_BATCH},
    "truncated": {"estimator": "completions that reached the length limit", **_BATCH},
    "timing/generation": {"estimator": "wall time of generation alone", **_BATCH},
}

_TRACKED = "train/"
"""What trackers have before the names of a step."""
CUT = "lines of metrics"
SIGNS = (re.compile(rb"Global step \d+: \{'[\w/@.-]+': "),)
_STEP = re.compile(r"Global step (\d{1,15}): (\{'.*)$")
_EVAL = re.compile(r"global_step (\d{1,15}), eval_metrics: (\{'.*)$")
_PASS1 = re.compile(r"(?:eval/)?eval_.+_pass1\Z")
_TRACKED_EVAL = re.compile(r"eval/eval_.+_pass\d+\Z")


def wrote(keys: Iterable[str]) -> bool:
    """Whether these are names of OpenRLHF, on its console or in a tracker, even of evaluations alone."""
    seen = set(keys)
    if any(_TRACKED_EVAL.match(key) for key in seen):
        return True
    return any({f"{before}ppo_clip_ratio", f"{before}actor_lr"} <= seen for before in ("", _TRACKED))


def naming(keys: Iterable[str]) -> Naming:
    """The names of one log. With several data sets none is the held-out accuracy until a mapping chooses one."""
    seen = set(keys)
    before = _TRACKED if f"{_TRACKED}actor_lr" in seen else ""
    names, instead = ({before + key: ours for key, ours in table.items()} for table in (NAMES, INSTEAD))
    differs = {before + key: said for key, said in DIFFERS.items()}
    tests = sorted(key for key in seen if _PASS1.match(key))
    one, asks = held_out("openrlhf", tests)
    return Naming(
        trainer="openrlhf", prefix="openrlhf", instead=instead, aggregation="mean over the step's updates",
        names={**names, **one}, asks=asks,
        differs={**differs, **{test: {"estimator": "held-out problems, sampled answers", **_BATCH} for test in tests}},
        unmeasured={f"{before}kl": "kl is 0 throughout, so it was not measured: algo.kl.init_coef is 0"},
    )  # fmt: skip


class Parser(ConsoleParser):
    def see(self, line: Line) -> None:
        match = (_STEP.search(line.text) or _EVAL.search(line.text)) if "lobal" in line.text else None
        if not match:
            self._other(line)
        elif "}" not in match[2]:
            self.torn += 1
        else:
            found = ((key, number(value)) for key, value in python_dict(match[2]).items())
            self._row(int(match[1]), {key: value for key, value in found if value is not None})
