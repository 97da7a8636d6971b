"""slime: the console, lines `step 12: {...}` of updates and `perf 3:`, `rollout 3:`, `eval 3: {...}` of rollouts.

The dictionaries have the names that W&B and TensorBoard get: `train/` of an update, the rest of a rollout. Traps:

- `step` counts optimizer updates from 0, the other lines count rollouts from 0. With several updates a rollout the two
  run apart, so updates are put into the rollout whose `rollout N:` line came before them, and averaged.
- `train/ppo_kl` is k1, signed. `train/kl_loss` exists with `--use-kl-loss` only, by `--kl-loss-type` (k1 by default).
- `train/entropy_loss` is the entropy itself, not its negative.
- `rollout/zero_std/count_R` counts the groups in which every answer got the reward R.
- A group of `critic-` names belongs to the critic of PPO, whose lines begin with `critic-step`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stabilizer.core.settings import setting_at
from stabilizer.formats.console import ConsoleParser, Line, python_dict
from stabilizer.formats.rows import number
from stabilizer.trainers.naming import Naming, held_out

NAME = "slime_console"
WHAT = "the console output of slime, with lines like step 12: {'train/loss': ...} and perf 3: {...}"

NAMES = {
    # slime                            ours
    "train/pg_loss":                  "policy/loss",
    "train/grad_norm":                "optim/grad_norm",
    "train/lr-pg_0":                  "optim/lr",
    "train/pg_clipfrac":              "policy/clip_frac",
    "train/ppo_kl":                   "policy/kl_old",
    "train/kl_loss":                  "policy/kl_ref",
    "train/entropy_loss":             "policy/entropy",
    "train/critic-value_loss":        "value/loss",
    "train/critic-grad_norm":         "value/grad_norm",
    "train/critic-value_clipfrac":    "value/clip_frac",
    "rollout/raw_reward":             "reward/mean",
    "rollout/response_len/mean":      "rollout/length_mean",
    "rollout/response_len/max":       "rollout/length_max",
    "rollout/truncated_ratio":        "rollout/truncated_frac",
    "rollout/zero_std/frac":          "reward/zero_std_frac",
    "passrate/pass@1":                "accuracy/train",
    "perf/step_time":                 "time/step_s",
    "perf/rollout_time":              "time/rollout_s",
    "perf/actor_train_time":          "time/update_s",
}  # fmt: skip

INSTEAD = {
    # where the first is missing       ours
    "train/loss":                     "policy/loss",
    "rollout/rewards":                "reward/mean",
    "rollout/response_lengths":       "rollout/length_mean",
    "rollout/truncated":              "rollout/truncated_frac",
    "rollout/entropy":                "policy/entropy",
}  # fmt: skip

_BATCH = {"aggregation": "one value a rollout"}
DIFFERS = {
    "train/pg_loss": {"estimator": "clipped policy loss without KL and entropy terms"},
    "train/loss": {"estimator": "policy loss - entropy bonus + KL loss"},
    "train/lr-pg_0": {"aggregation": "last update of the rollout"},
    "train/ppo_kl": {"estimator": "k1 estimate, signed, of KL(old policy, policy): mean of old - new log-probability"},
    "train/kl_loss": {"estimator": "KL(policy, reference) by --kl-loss-type (k1 by default, signed)"},
    "rollout/raw_reward": {"estimator": "mean reward over the samples trained on, before normalisation", **_BATCH},
    "rollout/rewards": {"estimator": "mean reward over the samples trained on, after normalisation", **_BATCH},
    "rollout/response_len/mean": _BATCH,
    "rollout/truncated_ratio": _BATCH,
    "rollout/zero_std/frac": {"estimator": "sum of rollout/zero_std/count_* / --rollout-batch-size", **_BATCH},
    "passrate/pass@1": {"estimator": "share of answers whose raw reward is 1", **_BATCH},
    "perf/rollout_time": {"estimator": "wall time of generation alone", **_BATCH},
}

_ZERO_STD = re.compile(r"rollout/zero_std/count_(-?[\d.]{1,20})\Z")
_TEST = re.compile(r"eval/[^/]+(?<!-truncated_ratio)\Z")
_PASS = re.compile(r"eval/.+-pass@\d+\Z")
_LINE = re.compile(r"(?:critic-)?(step|perf|rollout|eval|passrate|multi_turn) (\d{1,15}): (\{'.*)$")
CUT = "lines of metrics"
SIGNS = (re.compile(rb"(?:^|- |\s)(?:step \d+: \{'train/|perf \d+: \{'(?:perf|rollout)/|rollout \d+: \{'rollout/)"),)
_GROUPS = ("rollout-batch-size", "rollout_batch_size")
_LAST = ("train/lr-pg_",)
"""Beginnings of the names of which the last update counts."""


def wrote(keys: Iterable[str]) -> bool:
    """Whether slime gave these names, on its console or in a tracker, be it of evaluations alone."""
    seen = set(keys)
    return {"train/pg_clipfrac", "train/lr-pg_0"} <= seen or {"rollout/raw_reward", "rollout/log_probs"} <= seen


def naming(keys: Iterable[str]) -> Naming:
    """The names of one log. With several data sets none is the held-out accuracy until a mapping chooses one."""
    tests = sorted(key for key in set(keys) if _TEST.match(key) and not _PASS.match(key) and key != "eval/step")
    one, asks = held_out("slime", tests)
    said = {"estimator": "mean reward over sampled answers to held-out problems", **_BATCH}
    return Naming(
        trainer="slime", prefix="slime", names={**NAMES, **one}, instead=INSTEAD, asks=asks, derived=_derived,
        differs={**DIFFERS, **dict.fromkeys(tests, said)}, aggregation="mean over the step's updates",
    )  # fmt: skip


def _derived(values: dict[str, float], settings: Mapping[str, Any]) -> dict[str, float]:
    """The numbers with the share of groups without a spread, where the configuration says how many groups there are."""
    counts = [value for key, value in values.items() if _ZERO_STD.match(key)]
    groups = next((found for key in _GROUPS if (found := number(setting_at(settings, key)))), None)
    if not groups or not ("rollout/truncated_ratio" in values or counts):
        return values
    return {**values, "rollout/zero_std/frac": min(sum(counts) / groups, 1.0)}


class Parser(ConsoleParser):
    def __init__(self) -> None:
        super().__init__()
        self.per_rollout = 1
        self._rollout: int | None = None
        """The rollout whose updates follow."""
        self._updates: list[dict[str, float]] = []

    def remarks(self) -> list[str]:
        """That numbers are means over the updates of a rollout."""
        several = f"{self.per_rollout} updates a rollout: the numbers of updates are means over a rollout's updates,"
        return [f"{several} and steps are rollouts"] if self.per_rollout > 1 else []

    def see(self, line: Line) -> None:
        match = _LINE.search(line.text) if ": {'" in line.text else None
        if not match:
            self._other(line)
            return
        kind, count, text = match.groups()
        if "}" not in text:
            self.torn += 1
            return
        values = dict(_numbers(text))
        if kind == "step":
            self._update(int(count), values)
            return
        if kind == "rollout":
            self._rollout, self._updates = int(count), []
        self._row(int(count), values)

    def _update(self, count: int, values: dict[str, float]) -> None:
        """An update: of the last rollout, or a step of its own where the log has no rollout yet."""
        if self._rollout is None:
            self._row(count, values)
            return
        self._updates.append(values)
        self.per_rollout = max(self.per_rollout, len(self._updates))
        self._row(self._rollout, _averaged(self._updates))


def _numbers(text: str) -> Iterator[tuple[str, float]]:
    for key, value in python_dict(text).items():
        if (found := number(value)) is not None and key not in ("train/step", "rollout/step", "eval/step"):
            yield key, found


def _averaged(updates: list[dict[str, float]]) -> dict[str, float]:
    """The mean of the updates so far, of the learning rate the last; row by row the newest replaces the one before."""
    newest = updates[-1]
    means = {key: [update[key] for update in updates if key in update] for key in newest}
    return {key: newest[key] if key.startswith(_LAST) else sum(all_) / len(all_) for key, all_ in means.items()}
