"""NeMo-RL: the console, where a step is `========== Step 12/100 ==========` and lists of `• Name: number` below it.

Written by `grpo_train` in the driver's process; its loggers (TensorBoard, W&B) have far more, under the names used
here: what the console calls `Avg Reward` is their `train/reward`. Traps:

- There is no clip fraction and, in the console, neither gradient norm nor learning rate.
- The loss is a sum over the step's updates; the gradient norm (loggers only) is that of the last one.
- Validation is in a list of its own, at the step after which it ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stabilizer.formats.console import ConsoleParser, Line
from stabilizer.trainers.naming import Naming, held_out

NAME = "nemo_rl_console"
WHAT = "the console output of NeMo-RL, with '===== Step 12/100 =====' and lists of '• Loss: 0.01'"

NAMES = {
    # NeMo-RL                          ours
    "train/loss":                     "policy/loss",
    "train/grad_norm":                "optim/grad_norm",
    "train/lr":                       "optim/lr",
    "train/kl_penalty":               "policy/kl_ref",
    "train/approx_entropy":           "policy/entropy",
    "train/gen_kl_error":             "policy/mismatch_kl",
    "train/reward":                   "reward/mean",
    "train/mean_gen_tokens_per_sample": "rollout/length_mean",
    "train/max_gen_tokens_per_sample": "rollout/length_max",
    "train/truncation_rate":          "rollout/truncated_frac",
    "validation/accuracy":            "accuracy/val",
    "critic/loss":                    "value/loss",
    "critic/grad_norm":               "value/grad_norm",
    "critic/explained_var":           "value/explained_variance",
    "critic/vf_clipfrac":             "value/clip_frac",
    "timing/train/total_step_time":   "time/step_s",
    "timing/train/generation":        "time/rollout_s",
}  # fmt: skip

LABELS = {
    # console                          loggers
    "Loss":                           "train/loss",
    "Generation KL Error":            "train/gen_kl_error",
    "Avg Reward":                     "train/reward",
    "Mean Generation Length":         "train/mean_gen_tokens_per_sample",
    "Accuracy":                       "validation/accuracy",
    "Total step time":                "timing/train/total_step_time",
    "generation":                     "timing/train/generation",
}  # fmt: skip

_BATCH = {"aggregation": "one value a step"}

DIFFERS = {
    "train/loss": {"estimator": "clipped policy loss + KL penalty", "aggregation": "sum over the step's updates"},
    "train/grad_norm": {"aggregation": "last update of the step"},
    "train/kl_penalty": {"estimator": "KL(policy, reference) by reference_policy_kl_type (k3 by default), unscaled"},
    "train/approx_entropy": {"estimator": "importance-weighted mean of -log p, an estimate"},
    "train/gen_kl_error": {"estimator": "estimate of KL(generation engine, policy), mean over tokens"},
    "train/reward": {"estimator": "mean over completions", **_BATCH},
    "validation/accuracy": {"estimator": "held-out problems, sampled answers", **_BATCH},
    "timing/train/generation": {"estimator": "wall time of generation alone", **_BATCH},
}

_TEST = re.compile(r"validation-.+/accuracy\Z")
"""One of several validation sets, each under a prefix of its own."""
CUT = "lines of metrics"
SIGNS = (re.compile(rb"Step \d+/\d+\s*={5,}"), re.compile("• ".encode()))
_STEP = re.compile(r"={5}\s*Step (\d{1,15})/(\d{1,15})\s*={5}")
_ITEM = re.compile(r"^\s*(?:•|-)\s*([^:]{1,80}): ([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf))(s?)(?: |$|,)")
_SECTIONS = (
    ("Validation", "validation"), ("Timing", "timing/train"), ("Performance", "performance"),
    ("Training Results", "train"),
)  # fmt: skip


def wrote(keys: Iterable[str]) -> bool:
    """Whether these are names of NeMo-RL's loggers, even of validations alone."""
    seen = set(keys)
    if {"validation/accuracy", "validation/avg_length"} <= seen:
        return True
    return "train/token_mult_prob_error" in seen or {"train/gen_kl_error", "train/reward"} <= seen


def naming(keys: Iterable[str]) -> Naming:
    """The names of one log: of several validation sets none is the accuracy until a mapping says which."""
    seen = set(keys)
    tests = [] if "validation/accuracy" in seen else sorted(key for key in seen if _TEST.match(key))
    one, asks = held_out("nemo_rl", tests)
    return Naming(
        trainer="nemo_rl", prefix="nemo_rl", aggregation="mean over the step's updates",
        names={**NAMES, **one}, asks=asks,
        differs={**DIFFERS, **{test: DIFFERS["validation/accuracy"] for test in tests}},
    )  # fmt: skip


class Parser(ConsoleParser):
    def __init__(self) -> None:
        super().__init__()
        self._step: int | None = None
        self._section = "train"

    def see(self, line: Line) -> None:
        if match := _STEP.search(line.text):
            self._step, self.planned, self._section = int(match[1]), int(match[2]), "train"
        elif self._step is not None and (match := _ITEM.match(line.text)) and line.whole:
            label = match[1].strip()
            key = LABELS.get(label, f"{self._section}/{label.lower().replace(' ', '_')}")
            if self._section == "validation" and not key.startswith("validation/"):
                key = f"validation/{label.lower().replace(' ', '_')}"
            self._row(self._step, {key: float(match[2])})
        elif not self._other(line):
            self._section = next((name for sign, name in _SECTIONS if sign in line.text), self._section)
