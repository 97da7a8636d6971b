"""The best checkpoint is chosen by a loss that says nothing.

What it checks
    A best model that is kept, or an early stop, by the loss in training with rewards.
Why it matters
    The loss of GRPO stays near 0 or follows the KL while the policy improves, so the lowest loss is mostly an early
    checkpoint, and an early stop by it ends a run that still learns.
Exceptions
    None with rewards; in fine-tuning and preference training the loss is the measure.
Fix
    The reward on held-out prompts, larger being better. TRL before 1.5 does not offer it and stops with KeyError.
References
    modelscope/ms-swift#9730; huggingface/trl#3384 and #5811; transformers, TrainingArguments.metric_for_best_model.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.configs.config import parse_version
from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "watching/best-by-loss"
METRIC = "metric_for_best_model"
KEEPS = ("load_best_model_at_end", "early_stop_interval")
"""Keys that make transformers' Trainer, or ms-swift, use that metric."""
LOSSES = ("loss", "eval_loss")
OFFERED = {"trl": (1, 5, 0), "open-r1": (1, 5, 0)}
"""First version of a trainer in which the reward of the evaluation can be asked for; others always offer it."""


def check(view: View) -> Iterator[Finding]:
    """One finding, where something depends on the metric."""
    uses = next((key for key in KEEPS if view.ask.raw(key)), None)
    metric = view.ask.raw(METRIC) or LOSSES[0]
    if uses is None or metric not in LOSSES or not view.value("groups"):
        return
    since = OFFERED.get(view.config.trainer.name, (0, 0, 0))
    offered = parse_version(view.config.version_used) >= since
    yield found(
        view,
        "warn",
        METRIC if METRIC in view.config.settings else uses,
        f"{uses} judges checkpoints by {METRIC} = {metric}",
        why="The loss of training with rewards is near 0 or follows the KL, so its lowest value is no best checkpoint.",
        how="the reward of the evaluation, larger being better"
        if offered
        else f"{view.config.trainer.title} {since[0]}.{since[1]} or later with {METRIC} reward (before, it stops with"
        " KeyError: 'eval_reward'); or keep several checkpoints and choose by the logged eval_reward",
        change={METRIC: "reward", "greater_is_better": True} if offered else None,
        sure="certain",
        source="modelscope/ms-swift#9730, huggingface/trl#3384, transformers training_args.py",
    )
