"""ROLL: the console, `metrics_tag: {"step": 5, "metrics": {...}}` of `track_with: stdout`, or the bare JSON of a step.

The bare JSON is printed every `logging_steps`, whatever the tracker is, and has its step as `system/global_step`.
Trackers get the same names; an `@tag` behind a name says how ROLL reduces it, and only the bare JSON prints it. Traps:

- `critic/` holds the numbers of the batch (scores, rewards, advantages, entropy), with or without a critic.
- Each domain of `rewards` repeats all names behind its own: `math_rule/critic/score/mean`.
- `critic/score` is the reward as the reward worker gave it, `critic/rewards` what is left after clipping and KL.
- `token/total_response_length/clip` counts answers at the limit, it is no share.
- `actor/approxkl` is the squared log-ratio / 2, `actor/policykl` the signed k1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from stabilizer.formats.console import ConsoleParser, Line
from stabilizer.formats.rows import number, step_number
from stabilizer.trainers.naming import Naming

NAME = "roll_console"
WHAT = 'the console output of ROLL, with lines like metrics_tag: {"step": 5, "metrics": {...}}'

NAMES = {
    # ROLL                                   ours
    "actor/pg_loss":                        "policy/loss",
    "actor_train/grad_norm":                "optim/grad_norm",
    "actor/lr":                             "optim/lr",
    "actor/clipfrac":                       "policy/clip_frac",
    "actor/ratio_max":                      "policy/ratio_max",
    "actor/ratio_min":                      "policy/ratio_min",
    "actor/approxkl":                       "policy/kl_old",
    "actor/kl_loss":                        "policy/kl_ref",
    "critic/entropy/mean":                  "policy/entropy",
    "critic/score/mean":                    "reward/mean",
    "critic/correct/mean":                  "accuracy/train",
    "val_correct/all/mean":                 "accuracy/val",
    "group/all_correct_groups_ratio":       "reward/all_pass_frac",
    "group/all_incorrect_groups_ratio":     "reward/all_fail_frac",
    "token/response_length/mean":           "rollout/length_mean",
    "token/response_length/max":            "rollout/length_max",
    "critic/loss":                          "value/loss",
    "critic/values/mean":                   "value/mean",
    "critic/grad_norm":                     "value/grad_norm",
    "critic/clipfrac":                      "value/clip_frac",
    "time/step_total":                      "time/step_s",
    "time/step_generate":                   "time/rollout_s",
    "time/step_train":                      "time/update_s",
}  # fmt: skip

INSTEAD = {
    # where the first is missing             ours
    "actor/total_loss":                     "policy/loss",
    "critic/kl":                            "policy/kl_ref",
    "critic/rewards/mean":                  "reward/mean",
    "student_train/grad_norm":              "optim/grad_norm",
    "val/score/mean":                       "accuracy/val",
    "tokens/response_length/mean":          "rollout/length_mean",
    "tokens/response_length/max":           "rollout/length_max",
}  # fmt: skip

_BATCH = {"aggregation": "one value a step"}
DIFFERS = {
    "actor/pg_loss": {"estimator": "clipped policy loss without KL and entropy terms"},
    "actor/approxkl": {"estimator": "k2 estimate of KL(old policy, policy): half the squared log-ratio"},
    "actor/kl_loss": {"estimator": "k3 estimate of KL(policy, reference), aggregated as loss_agg_mode says"},
    "critic/kl": {"estimator": "KL(policy, reference) of the reward's penalty, by kl_penalty", **_BATCH},
    "critic/score/mean": {"estimator": "mean reward over completions, before clipping and penalties", **_BATCH},
    "critic/rewards/mean": {"estimator": "mean over completions after clipping, normalisation and penalties", **_BATCH},
    "critic/correct/mean": {"estimator": "completions whose score is exactly 1", **_BATCH},
    "val_correct/all/mean": {"estimator": "held-out problems, sampled answers whose score is 1", **_BATCH},
    "val/score/mean": {"estimator": "mean score of held-out episodes", **_BATCH},
    "time/step_generate": {"estimator": "wall time of generation alone", **_BATCH},
}

NAMING = Naming(
    trainer="roll", prefix="roll", names=NAMES, instead=INSTEAD, differs=DIFFERS,
    aggregation="mean over the step's updates",
    unmeasured={"actor/kl_loss": "actor/kl_loss is 0 throughout, so there was no reference to measure it from"},
)  # fmt: skip

_TAG = "metrics_tag: {"
_COUNT = "system/global_step"
_SCORED = '"critic/score/mean": '
_PIPELINE = re.compile(r"pipeline step (\d{1,15})")
CUT = "lines of metrics"
SIGNS = (re.compile(rb'metrics_tag: \{"step": (?:\d|null)|\] \{[^\n]{0,200000}?"critic/score/mean": -?\d'),)
_LARGEST = 1_000_000
"""Characters of a step's JSON; a step has some hundreds of names."""


def wrote(keys: Iterable[str]) -> bool:
    """Whether ROLL gave these names, on its console or in a tracker."""
    seen = set(keys)
    return {"critic/score/mean", "system/global_step"} <= seen or {"actor/policykl", "actor_train/grad_norm"} <= seen


def naming(keys: Iterable[str]) -> Naming:
    """The names of one log, the same in all."""
    return NAMING


class Parser(ConsoleParser):
    def __init__(self) -> None:
        super().__init__()
        self._step: int | None = None
        """The step that the pipeline began last."""

    def see(self, line: Line) -> None:
        text = line.text
        if match := _PIPELINE.search(text) if "pipeline step" in text else None:
            self._step = int(match[1])
        place = text.find(_TAG) + len(_TAG) - 1 if _TAG in text else text.find('{"') if _SCORED in text else -1
        if place < 0:
            self._other(line)
            return
        step, numbers = self._found(_json(text[place : place + _LARGEST]))
        if step is None or not numbers:
            self.torn += 1
        else:
            self._row(step, numbers)

    def _found(self, said: dict[str, Any]) -> tuple[int | None, dict[str, float]]:
        """The step and the numbers in a step's JSON, in either form."""
        values = said["metrics"] if isinstance(said.get("metrics"), dict) else said
        steps = (step_number(values.get(_COUNT)), step_number(said.get("step")), self._step)
        numbers = {
            key.partition("@")[0]: found for key, value in values.items() if (found := number(value)) is not None
        }
        return next((step for step in steps if step is not None), None), {
            key: value for key, value in numbers.items() if key not in (_COUNT, "step")
        }


def _json(text: str) -> dict[str, Any]:
    """The object at the start of a text; empty where there is none."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
