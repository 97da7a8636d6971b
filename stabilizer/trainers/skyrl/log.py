"""SkyRL: the console, where a step is a line ending in `Step 12: ` and a dictionary over the lines below.

Trackers have the same names, and the numbers whole.

Written by the `console` backend of its tracking (`trainer.logger`). Traps:

- Numbers are text with four decimals, `'0.0031'`: a learning rate of 1e-6 is `'0.0000'`, and so is a small KL.
- Losses are sums over micro-batches that were scaled beforehand. An update whose gradient is not finite is skipped.
- `policy/final_loss` is the whole loss, `policy/policy_loss` the clipped part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stabilizer.formats.console import ConsoleParser, Line, python_dict
from stabilizer.formats.rows import number
from stabilizer.trainers.naming import Naming

NAME = "skyrl_console"
WHAT = "the console output of SkyRL, with 'Step 12:' and a dictionary {'policy/final_loss': '0.0031', ...}"

NAMES = {
    # SkyRL                            ours
    "policy/final_loss":              "policy/loss",
    "policy/grad_norm":               "optim/grad_norm",
    "policy/policy_lr":               "optim/lr",
    "policy/policy_kl":               "policy/kl_ref",
    "policy/policy_entropy":          "policy/entropy",
    "policy/loss_metrics/clip_ratio": "policy/clip_frac",
    "loss/kl_loss_coef":              "control/beta",
    "reward/avg_raw_reward":          "reward/mean",
    "generate/avg_num_tokens":        "rollout/length_mean",
    "generate/max_num_tokens":        "rollout/length_max",
    "critic/critic_loss":             "value/loss",
    "critic/grad_norm":               "value/grad_norm",
    "critic/values_mean":             "value/mean",
    "critic/values_clipfrac":         "value/clip_frac",
    "eval/all/pass_at_1":             "accuracy/val",
    "timing/step":                    "time/step_s",
    "timing/generate":                "time/rollout_s",
}  # fmt: skip

INSTEAD = {
    # where the first is missing       ours
    "policy/policy_loss":             "policy/loss",
    "loss/avg_kl":                    "policy/kl_ref",
}  # fmt: skip

_BATCH = {"aggregation": "one value a step"}
_SUM = {"aggregation": "sum over micro-batches scaled to the mini-batch, then mean over the step's updates"}

DIFFERS = {
    "policy/final_loss": {"estimator": "policy loss + KL loss - entropy bonus", **_SUM},
    "policy/policy_loss": {"estimator": "clipped policy loss without KL and entropy terms", **_SUM},
    "policy/policy_kl": {"estimator": "KL(policy, reference) by kl_estimator_type (k3 by default)"},
    "loss/avg_kl": {"estimator": "KL(policy, reference) by kl_estimator_type: the penalty on the reward", **_BATCH},
    "loss/kl_loss_coef": _BATCH,
    "policy/loss_metrics/clip_ratio": {"estimator": "tokens for which the clipped objective was chosen"},
    "critic/critic_loss": _SUM,
    "reward/avg_raw_reward": {"estimator": "mean over completions, before any KL penalty", **_BATCH},
    "eval/all/pass_at_1": {"estimator": "held-out problems, over all evaluation sets", **_BATCH},
    "timing/generate": {"estimator": "wall time of generation alone", **_BATCH},
}

ROUNDED_AWAY = frozenset(
    {"policy/policy_lr", "critic/critic_lr", "policy/policy_kl", "loss/avg_kl", "loss/kl_loss_coef"}
)
"""Small numbers, printed with four decimals, whose 0.0000 is only rounding."""

NAMING = Naming(
    trainer="skyrl", prefix="skyrl", names=NAMES, instead=INSTEAD, differs=DIFFERS,
    aggregation="mean over the step's updates",
)  # fmt: skip

CUT = "steps"
SIGNS = (
    re.compile(rb"'(?:policy/final_loss|policy/policy_loss|reward/avg_raw_reward|trainer/global_step)': '[-+\dni]"),
)
_STEP = re.compile(r"(?:^|\s)Step (\d{1,15}):\s*(\{'.*)?$")
_LINES = 2_000


def wrote(keys: Iterable[str]) -> bool:
    """Whether SkyRL gave these names, on its console or in a tracker, be it of evaluations alone."""
    seen = set(keys)
    if "eval/all/avg_score" in seen and any(key.startswith("eval/all/pass_at_") for key in seen):
        return True
    return "reward/avg_raw_reward" in seen and not {"policy/final_loss", "policy/policy_loss"}.isdisjoint(seen)


def naming(keys: Iterable[str]) -> Naming:
    """The names of one log, the same in all."""
    return NAMING


class Parser(ConsoleParser):
    def __init__(self) -> None:
        super().__init__()
        self.rounded = False
        self._step: int | None = None
        self._gathered: list[str] = []

    def inside(self) -> bool:
        """Whether a step's dictionary is begun and not ended."""
        return self._step is not None and bool(self._gathered)

    def remarks(self) -> list[str]:
        """That small numbers are rounded away."""
        note = "numbers are printed with four decimals: a learning rate or KL of 0.0000 is taken as not logged"
        return [note] if self.rounded else []

    def see(self, line: Line) -> None:
        text = line.text
        if match := _STEP.search(text):
            self.torn += self.inside()
            self._step, self._gathered, text = int(match[1]), [], match[2] or ""
        elif self._step is None or not text.lstrip().startswith(("{'", "'")):
            self.torn += self.inside()
            self._step = None
            self._other(line)
            return
        if text:
            self._gathered.append(text.strip())
        if text.endswith("}") or len(self._gathered) > _LINES:
            self._row(self._step, self._values())
            self._step, self._gathered = None, []

    def _values(self) -> dict[str, float]:
        printed = python_dict(" ".join(self._gathered)).items()
        values = {key: found for key, value in printed if (found := number(value)) is not None}
        for key in ROUNDED_AWAY & values.keys():
            if values[key] == 0:
                self.rounded = True
                del values[key]
        return values
