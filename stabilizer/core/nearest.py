"""Suggestions for a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

OTHER_NAMES = {
    "learning_rate": "optim.lr",
    "lr_scheduler_type": "optim.schedule",
    "lr_scheduler": "optim.schedule",
    "warmup": "optim.warmup_steps",
    "adam_betas": "optim.betas",
    "grad_clip": "optim.max_grad_norm",
    "gradient_clip": "optim.max_grad_norm",
    "kl_coef": "policy.beta",
    "kl_loss_coef": "policy.beta",
    "kl_beta": "policy.beta",
    "init_kl_coef": "policy.beta",
    "epsilon": "policy.epsilon_low",
    "cliprange": "policy.epsilon_low",
    "clip_range": "policy.epsilon_low",
    "clip_ratio": "policy.epsilon_low",
    "clip_ratio_low": "policy.epsilon_low",
    "clip_ratio_high": "policy.epsilon_high",
    "num_iterations": "policy.inner_epochs",
    "ppo_epochs": "policy.inner_epochs",
    "num_mini_batches": "policy.minibatches",
    "ent_coef": "policy.entropy_coef",
    "entropy_coeff": "policy.entropy_coef",
    "scale_rewards": "policy.advantage",
    "num_generations": "rollout.group_size",
    "n_samples_per_prompt": "rollout.group_size",
    "rollout_n": "rollout.group_size",
    "batch_size": "rollout.prompts",
    "train_batch_size": "rollout.prompts",
    "rollout_batch_size": "rollout.prompts",
    "max_completion_length": "rollout.max_completion",
    "max_new_tokens": "rollout.max_completion",
    "max_tokens": "rollout.max_completion",
    "max_response_length": "rollout.max_completion",
    "max_prompt_length": "data.max_prompt_tokens",
    "train_files": "data.path",
    "dataset": "data.path",
    "dataset_name": "data.path",
    "train_file": "data.path",
    "dataset_config": "data.subset",
    "dataset_split": "data.split",
    "prompt_key": "data.prompt_column",
    "answer_key": "data.answer_column",
    "prompt_template": "data.template",
    "chat_template": "data.chat",
    "val_files": "data.held_out_path",
    "reward_funcs": "reward.functions",
    "reward_function": "reward.functions",
    "reward_weights": "reward.functions",
    "max_steps": "steps",
    "total_steps": "steps",
    "model_name": "model",
    "model_name_or_path": "model",
    "model_path": "model",
    "eval_steps": "validation.every",
    "test_freq": "validation.every",
    "save_steps": "checkpoint.every",
    "save_freq": "checkpoint.every",
}
"""Names that other trainers use for a key of ours."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to `name`, or None when none is similar enough."""
    known = list(known)
    ratio = {k: difflib.SequenceMatcher(None, name.casefold(), k.casefold()).ratio() for k in known}
    best = max(known, key=lambda k: ratio[k], default=None)
    return best if best is not None and ratio[best] >= 0.4 else None


def nearest_key(key: str, known: Iterable[str]) -> str:
    """The configuration key that was probably meant: by a foreign name, by group, by last part, or as a whole."""
    known = list(known)
    group, _, last = key.rpartition(".")
    if (meant := OTHER_NAMES.get(last)) in known:
        return meant
    if inside := [k for k in known if k.startswith(f"{key}.")]:
        return inside[0]
    return max(known, key=lambda k: _likeness(group, last, k))


def _likeness(group: str, last: str, key: str) -> float:
    """The last part says most: the same word in another group is nearer than another word in the same group."""
    known_group, _, known_last = key.rpartition(".")
    words, known_words = set(last.split("_")), set(known_last.split("_"))
    shared = len(words & known_words) / len(words | known_words)
    alike = difflib.SequenceMatcher(None, last, known_last).ratio()
    groups = difflib.SequenceMatcher(None, group, known_group).ratio()
    return (last == known_last) + alike + 0.5 * shared + 0.4 * groups
