"""LLaMA-Factory's PPO stage, which has TRL 0.8 to 0.9 inside."""

from __future__ import annotations

from stabilizer.trainers.spelling import NO_GROUPS, Key, Spelling

_YAML = "the arguments are read at the start, and its PPO stage can't resume"
_NOT_EXPOSED = "it leaves this to TRL's default"

LLAMA_FACTORY = Spelling(
    title="LLaMA-Factory",
    why_restart=_YAML,
    form="{key}: {value}",
    keys={
        "control/lr_scale": Key("learning_rate: {value}", _YAML, scales="learning_rate"),
        "control/temperature": Key("temperature: {value}", _YAML),
        "control/max_grad_norm": Key("max_grad_norm: {value}", _YAML),
        "control/prompts": Key(
            "gradient_accumulation_steps so that per_device_train_batch_size x gradient_accumulation_steps"
            " x ppo_buffer_size x processes = {value}",
            _YAML,
        ),
        "control/inner_epochs": Key("ppo_epochs: {value}", _YAML),
        "control/minibatches": Key("ppo_buffer_size: {value}", _YAML),
        "control/max_completion": Key("max_new_tokens: {value}", _YAML),
    },
    procedures={
        "roll-back": "model_name_or_path: <the newest checkpoint-N with N below {onset}> (LoRA: adapter_name_or_path)",
        "raise-beta": "[0.5 x ppo_target]: its KL coefficient adapts to a target and can't be set itself",
        "lower-beta": "[2 x ppo_target]: its KL coefficient adapts to a target and can't be set itself",
        "reset-reference": "model_name_or_path: <the newest checkpoint>, whose weights become the reference",
        "grow-batch": "[2 x gradient_accumulation_steps]",
        "steadier-reward": "[2 x gradient_accumulation_steps], and ppo_score_norm: true",
        "mend-critic": "[1/3 x learning_rate], and ppo_score_norm: true",
        "more-bits": "bf16: true",
    },
    lacks={
        "narrow-clip": _NOT_EXPOSED, "widen-clip": _NOT_EXPOSED, "other-kl-estimator": _NOT_EXPOSED,
        **NO_GROUPS,
        "validate-more": "its PPO stage takes no evaluation data",
    },
)  # fmt: skip
