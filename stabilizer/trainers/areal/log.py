"""AReaL: the console, a table of names and numbers behind each `Epoch 1/10 Step 3/29 Train step 3/290 done.`

The names are those that W&B, SwanLab, trackio and TensorBoard get. Traps:

- `ppo_actor/seq_len` counts prompt and answer; the length of answers is worked out as `seq_len - prompt_len`.
- `ppo_actor/no_eos_ratios` is the share of sequences as long as the longest of the batch: at least one always is.
- `ppo_actor/update/approx_kl` is log p(policy) - log p(proximal policy), whose sign is that of a gain, not of a KL.
- `ppo_actor/kl_rewards` is what the penalty takes from the reward, -kl_ctl x KL, and not the KL.
- Numbers are printed with five digits. A rank without updates prints `grad_norm` as `nan`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from stabilizer.formats.console import ConsoleParser, Line
from stabilizer.formats.rows import number
from stabilizer.trainers.naming import Naming

NAME = "areal_console"
WHAT = "the console output of AReaL, with tables behind lines like Train step 3/290 done."

NAMES = {
    # AReaL                                                    ours
    "ppo_actor/update/actor_loss/avg":                        "policy/loss",
    "ppo_actor/update/grad_norm":                             "optim/grad_norm",
    "ppo_actor/update/lr":                                    "optim/lr",
    "ppo_actor/update/clip_ratio/avg":                        "policy/clip_frac",
    "ppo_actor/update/dual_clip_ratio/avg":                   "policy/dual_clip_frac",
    "ppo_actor/update/entropy/avg":                           "policy/entropy",
    "ppo_actor/update/importance_weight/max":                 "policy/ratio_max",
    "ppo_actor/update/importance_weight/min":                 "policy/ratio_min",
    "ppo_actor/update/version_stats/sample_staleness_theta_avg": "rollout/staleness",
    "ppo_actor/update/compute_logp/kl_div_dual/avg":          "policy/kl_old",
    "ppo_actor/task_reward/avg":                              "reward/mean",
    "ppo_actor/no_eos_ratios/avg":                            "rollout/truncated_frac",
    "ppo_actor/seq_len - prompt_len":                         "rollout/length_mean",
    "ppo_critic/update/critic_loss/avg":                      "value/loss",
    "ppo_critic/update/grad_norm":                            "value/grad_norm",
    "ppo_critic/update/clip_ratio/avg":                       "value/clip_frac",
    "timeperf/train_step":                                    "time/update_s",
    "timeperf/rollout":                                       "time/rollout_s",
}  # fmt: skip

INSTEAD = {
    # where the first is missing       ours
    "rollout/reward":                 "reward/mean",
}  # fmt: skip

_BATCH = {"aggregation": "one value a step"}
DIFFERS = {
    "ppo_actor/update/actor_loss/avg": {"estimator": "clipped policy loss per token, without a KL term"},
    "ppo_actor/update/compute_logp/kl_div_dual/avg": {
        "estimator": "k3 estimate of KL(policy that generated, policy), staleness included"
    },
    "ppo_actor/update/importance_weight/max": {"aggregation": "maximum over the step's updates"},
    "ppo_actor/update/importance_weight/min": {"aggregation": "minimum over the step's updates"},
    "ppo_actor/task_reward/avg": {"estimator": "mean reward before scaling, bias and clipping", **_BATCH},
    "rollout/reward": {"estimator": "mean reward of the episodes that ended during the step", **_BATCH},
    "ppo_actor/no_eos_ratios/avg": {
        "estimator": "sequences as long as the longest of the batch, so one at least counts always", **_BATCH
    },
    "ppo_actor/seq_len - prompt_len": {"estimator": "mean sequence length less mean prompt length", **_BATCH},
    "timeperf/rollout": {"estimator": "wall time that training waited for its batch", **_BATCH},
}  # fmt: skip

_LENGTHS = ("ppo_actor/seq_len/avg", "ppo_actor/prompt_len/avg")
_STEP = re.compile(r"Train step (\d{1,15})/(\d{1,15}) done")
CUT = "tables of metrics"
SIGNS = (re.compile(rb"Train step \d{1,15}/\d{1,15} done[^\x00]{0,4000}?\xe2\x94\x82\s*[\w-]+/[\w/-]+\s*\xe2\x94\x82"),)
_BAR, _END = "│", "╘"


def wrote(keys: Iterable[str]) -> bool:
    """Whether AReaL gave these names, on its console or in a tracker."""
    seen = set(keys)
    return "ppo_actor/update/grad_norm" in seen or {"ppo_actor/task_reward/avg", "ppo_actor/seq_len/avg"} <= seen


def naming(keys: Iterable[str]) -> Naming:
    """The names of one log, the same in all."""
    return Naming(
        trainer="areal", prefix="areal", names=NAMES, instead=INSTEAD, differs=DIFFERS, derived=_derived,
        aggregation="mean over the step's updates",
    )  # fmt: skip


def _derived(values: dict[str, float], config: Mapping[str, Any]) -> dict[str, float]:
    """The numbers with the mean length of answers."""
    whole, prompt = (values.get(key) for key in _LENGTHS)
    return values if whole is None or prompt is None else {**values, "ppo_actor/seq_len - prompt_len": whole - prompt}


class Parser(ConsoleParser):
    def __init__(self) -> None:
        super().__init__()
        self._step: int | None = None
        self._values: dict[str, float] = {}
        """The cells of a table that is begun and not ended."""

    def see(self, line: Line) -> None:
        text = line.text
        if match := _STEP.search(text):
            self.torn += self.inside()
            self._step, self.planned, self._values = int(match[1]), int(match[2]), {}
        elif self._step is not None and text.startswith(_BAR):
            self._values.update(_cells(text))
        elif self._step is not None and text.startswith(_END) and self._values:
            self._row(self._step, self._values)
            self._values = {}
        else:
            self._other(line)

    def inside(self) -> bool:
        """Whether a table is begun and not ended."""
        return bool(self._values)


def _cells(text: str) -> dict[str, float]:
    """The names and numbers in one line of the table, in turns."""
    cells = [cell.strip() for cell in text.split(_BAR)[1:-1]]
    pairs = zip(cells[::2], cells[1::2], strict=False)
    return {key: found for key, value in pairs if key and (found := number(value)) is not None}
