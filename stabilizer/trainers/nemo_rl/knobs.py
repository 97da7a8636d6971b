"""NeMo-RL of August 2026; where its PPO has a section of its own, `grpo.` is `ppo.` there."""

from __future__ import annotations

from stabilizer.trainers.spelling import BUILT_ONCE, DRIVER, SAMPLING, WORKERS, Key, Spelling

_LOSS = "the loss function takes its configuration when it is built"
_KL, _LR = "loss_fn.reference_policy_kl_penalty", "policy.optimizer.kwargs.lr"
_NO_ENTROPY = "its loss has no entropy bonus"

NEMO_RL = Spelling(
    title="NeMo-RL",
    why_restart=DRIVER,
    keys={
        "control/beta": Key(f"{_KL}={{value}}", _LOSS),
        "control/lr_scale": Key(
            f"{_LR}={{value}} (with Megatron policy.megatron_cfg.optimizer.lr)", WORKERS, scales=_LR
        ),
        "control/epsilon_low": Key("loss_fn.ratio_clip_min={value}", _LOSS),
        "control/epsilon_high": Key("loss_fn.ratio_clip_max={value}", _LOSS),
        "control/temperature": Key("policy.generation.temperature={value}", SAMPLING),
        "control/max_grad_norm": Key("policy.max_grad_norm={value}", WORKERS),
        "control/prompts": Key(
            "grpo.num_prompts_per_step={value} (policy.train_global_batch_size must divide it times"
            " grpo.num_generations_per_prompt)",
            BUILT_ONCE,
        ),
        "control/group_size": Key("grpo.num_generations_per_prompt={value}", BUILT_ONCE),
        "control/inner_epochs": Key("ppo.ppo_epochs={value} (GRPO has no such setting)", WORKERS),
        "control/minibatches": Key(
            "policy.train_global_batch_size = grpo.num_prompts_per_step x grpo.num_generations_per_prompt / {value}",
            WORKERS,
        ),
        "control/max_completion": Key("policy.generation.max_new_tokens={value}", SAMPLING),
        "control/filter_groups": Key("grpo.use_dynamic_sampling=true", DRIVER),
        "control/mask_truncated": Key("grpo.overlong_filtering=true", DRIVER),
        "control/validate_every": Key("grpo.val_period={value}", DRIVER),
    },
    procedures={
        "roll-back": "leave no step_N with N from {onset} on in checkpointing.checkpoint_dir=<the run's>: it goes on"
        " from the newest",
        "raise-beta": f"{_KL}=0.001, or [2 x {_KL}] where it is above 0,"
        " with grpo.skip_reference_policy_logprobs_calculation=false",
        "reset-reference": "policy.model_name=<the newest checkpoint, converted>, whose weights become the reference",
        "grow-batch": "[2 x grpo.num_prompts_per_step] and [2 x policy.train_global_batch_size]",
        "grow-group": "[2 x grpo.num_generations_per_prompt] and [2 x policy.train_global_batch_size]",
        "longer-answers": "[2 x policy.generation.max_new_tokens] within policy.max_total_sequence_length",
        "overlong-penalty": "grpo.reward_shaping.enabled=true"
        " grpo.reward_shaping.overlong_buffer_length=<a fifth of the longest answer>",
        "unpay-length": "loss_fn.token_level_loss=true",
        "correct-mismatch": "loss_fn.use_importance_sampling_correction=true"
        " loss_fn.truncated_importance_sampling_type=tis loss_fn.truncated_importance_sampling_ratio=2.0"
        " policy.generation.top_p=1.0",
        "other-normaliser": "grpo.normalize_rewards=false",
        "other-kl-estimator": "loss_fn.reference_policy_kl_type=k2",
        "fewer-epochs": "ppo.ppo_epochs=1; in GRPO make policy.train_global_batch_size the whole batch",
        "narrow-clip": "loss_fn.ratio_clip_min=0.2 loss_fn.ratio_clip_max=0.28",
        "steadier-reward": "[2 x grpo.num_generations_per_prompt] or [2 x grpo.num_prompts_per_step], and"
        " [2 x policy.train_global_batch_size]",
        "mend-critic": "ppo.policy_training_start_step=20 (critic alone), [1/3 x value.optimizer.kwargs.lr],"
        " value_loss_fn.cliprange=0.2",
        "reset-optimizer": "checkpointing.save_optimizer=true, and go on from a checkpoint that has it",
        "more-bits": "policy.precision=bfloat16",
        "declare-data": "data.shuffle=true unless the order is meant",
    },
    lacks={"raise-entropy": _NO_ENTROPY, "target-entropy": _NO_ENTROPY, "lower-entropy-bonus": _NO_ENTROPY},
)  # fmt: skip
