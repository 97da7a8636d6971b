"""ROLL 0.3. Its workers are Ray actors that are built from the configuration."""

from __future__ import annotations

from stabilizer.trainers.spelling import WORKERS, Key, Spelling

ROLL = Spelling(
    title="ROLL",
    why_restart=WORKERS,
    form="{key}: {value}",
    keys={
        "control/beta": Key(
            "kl_loss_coef: {value} with use_kl_loss: true", WORKERS, at=("kl_loss_coef", "init_kl_coef")
        ),
        "control/lr_scale": Key(
            "actor_train.training_args.learning_rate: {value}", WORKERS,
            scales="actor_train.training_args.learning_rate",
        ),
        "control/epsilon_low": Key("pg_clip_low: {value} with use_pg_clip_range: true", WORKERS,
                                   at=("pg_clip_low", "pg_clip")),
        "control/epsilon_high": Key("pg_clip_high: {value} with use_pg_clip_range: true", WORKERS,
                                    at=("pg_clip_high", "pg_clip")),
        "control/temperature": Key("actor_infer.generating_args.temperature: {value}", WORKERS),
        "control/max_grad_norm": Key("max_grad_norm: {value}", WORKERS),
        "control/entropy_coef": Key("entropy_loss_coef: {value}", WORKERS),
        "control/max_completion": Key("response_length: {value}", WORKERS),
        "control/validate_every": Key("eval_steps: {value}", WORKERS),
        "control/prompts": Key("rollout_batch_size: {value}", WORKERS),
        "control/group_size": Key("num_return_sequences_in_group: {value}", WORKERS),
        "control/inner_epochs": Key("ppo_epochs: {value}", WORKERS),
        "control/minibatches": Key(
            "actor_train.training_args.gradient_accumulation_steps so that rollout_batch_size x"
            " num_return_sequences_in_group / ranks / per_device_train_batch_size / it = {value}", WORKERS,
        ),
        "control/mask_truncated": Key("max_len_mask: true", WORKERS),
        "control/filter_groups": Key("std_filter in rewards.<domain>.query_filter_config", WORKERS),
    },
    procedures={
        "roll-back": "resume_from_checkpoint: <the newest checkpoint before step {onset}>",
        "raise-beta": "use_kl_loss: true and kl_loss_coef: 0.001, or [2 x kl_loss_coef] where it is above 0",
        "reset-reference": "pretrain: <the newest checkpoint>, whose weights become the reference",
        "grow-batch": "[2 x rollout_batch_size] and [2 x actor_train.training_args.gradient_accumulation_steps]",
        "grow-group": "[2 x num_return_sequences_in_group] and"
        " [2 x actor_train.training_args.gradient_accumulation_steps]",
        "filter-groups": "std_filter in rewards.<domain>.query_filter_config, with is_use_additional_prompts: true",
        "longer-answers": "[2 x response_length], or max_len_mask: true",
        "overlong-penalty": "response_length_penalty_coef 0.1 in rewards.<domain>",
        "unpay-length": "loss_agg_mode: token-mean",
        "correct-mismatch": "enabled true and upper_bound 1.2 in train_infer_correction.is_weight, and top_p 1.0 in"
        " actor_infer.generating_args",
        "other-normaliser": "norm_std_type: batch",
        "narrow-clip": "use_pg_clip_range: true, pg_clip_low: 0.2 and pg_clip_high: 0.28",
        "widen-clip": "use_pg_clip_range: true and pg_clip_high: 0.28",
        "steadier-reward": "[2 x num_return_sequences_in_group] or [2 x rollout_batch_size], and"
        " [2 x actor_train.training_args.gradient_accumulation_steps]",
        "mend-critic": "[1/3 x critic.training_args.learning_rate], and value_clip: 0.5",
        "more-bits": "bf16 as actor_train.model_args.dtype",
    },
    lacks={
        "target-entropy": "its entropy bonus is a fixed coefficient",
        "other-kl-estimator": "its loss has the k3 estimate",
    },
)  # fmt: skip
