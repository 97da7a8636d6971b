"""TRL 1.16 (and Open-R1 and Unsloth, which take its GRPOConfig), and its PPO trainers, 0.12 to 1.12 and 0.11."""

from __future__ import annotations

from stabilizer.trainers.spelling import BUILT_ONCE, NO_GROUPS, SAMPLING, Key, Spelling

_NO_LIVE = "the log's trainer has no live control"
_CONFIG = "the trainer reads its PPOConfig when it is built"
_BATCH = (
    "gradient_accumulation_steps so that per_device_train_batch_size x processes x gradient_accumulation_steps"
    " / num_generations = {value}"
)
_GROWN = "(and [2 x steps_per_generation] or [2 x generation_batch_size], where one is set)"
_NO_ENGINE = "it writes its answers itself, with the policy that learns"

TRL = Spelling(
    title="TRL",
    why_restart="the configuration is read when the trainer is built",
    keys={
        "control/beta": Key(
            "beta={value} in GRPOConfig", "a trainer built with beta = 0 has loaded no reference model to compare with"
        ),
        "control/lr_scale": Key(
            "learning_rate={value} in GRPOConfig",
            "the schedule is built at the start; resume_from_checkpoint would bring the old rate back, so start "
            "from the checkpoint's weights",
            scales="learning_rate",
        ),
        "control/epsilon_low": Key("epsilon={value} in GRPOConfig", _NO_LIVE),
        "control/epsilon_high": Key("epsilon_high={value} in GRPOConfig", _NO_LIVE, at=("epsilon_high", "epsilon")),
        "control/temperature": Key("temperature={value} in GRPOConfig", SAMPLING),
        "control/max_grad_norm": Key("max_grad_norm={value} in GRPOConfig", _NO_LIVE),
        "control/entropy_coef": Key(
            "entropy_coef={value} in GRPOConfig (TRL 1.9 or later)", "the entropy bonus is switched on at the start"
        ),
        "control/prompts": Key(_BATCH, BUILT_ONCE),
        "control/group_size": Key(
            "num_generations={value} in GRPOConfig (it must divide the generation batch size)", BUILT_ONCE
        ),
        "control/inner_epochs": Key("num_iterations={value} in GRPOConfig", BUILT_ONCE),
        "control/minibatches": Key(
            "steps_per_generation={value} x gradient_accumulation_steps in GRPOConfig", BUILT_ONCE
        ),
        "control/max_completion": Key("max_completion_length={value} in GRPOConfig", SAMPLING),
        "control/mask_truncated": Key("mask_truncated_completions=True in GRPOConfig", _NO_LIVE),
        "control/validate_every": Key("eval_steps={value} in GRPOConfig", _NO_LIVE),
    },
    procedures={
        "roll-back": "model=<the weights of the newest checkpoint-N with N below {onset}>",
        "raise-beta": "beta=0.001 in GRPOConfig, or [2 x beta] where it is above 0",
        "reset-reference": "model=<the newest checkpoint>, whose weights become the reference; or sync_ref_model=True",
        "grow-batch": f"[2 x gradient_accumulation_steps] {_GROWN}",
        "grow-group": "[2 x num_generations] (it must divide the generation batch size)",
        "longer-answers": "[2 x max_completion_length], or mask_truncated_completions=True (TRL 0.17 or later)",
        "mask-truncated": "mask_truncated_completions=True (TRL 0.17 or later)",
        "overlong-penalty": "reward_funcs=[..., get_soft_overlong_punishment(...)] of trl.rewards",
        "unpay-length": "loss_type='dapo' or 'dr_grpo'",
        "correct-mismatch": "vllm_importance_sampling_correction=True (TRL 0.23.1 or later) top_p=1.0",
        "other-normaliser": "scale_rewards='batch' or 'none' (TRL before 0.22: False)",
        "fewer-epochs": "num_iterations=1",
        "narrow-clip": "epsilon=0.2 epsilon_high=0.28",
        "widen-clip": "epsilon_high=0.28",
        "raise-entropy": "entropy_coef=0.001 (TRL 1.9 or later)",
        "target-entropy": "use_adaptive_entropy=True entropy_target=0.2 (TRL 1.9 or later)",
        "lower-entropy-bonus": "entropy_coef=0.0",
        "steadier-reward": f"[2 x num_generations] and [2 x gradient_accumulation_steps] {_GROWN}",
        "validate-more": "eval_strategy='steps' and [0.5 x eval_steps, whole]",
        "reset-optimizer": "resume_from_checkpoint=<a checkpoint-N with optimizer.pt in it>, not its weights as model",
        "more-bits": "bf16=True fp16=False, and cast_lm_head_to_fp32=True (TRL 0.25.1 or later)",
        "declare-data": "shuffle_dataset=True unless the order is meant",
    },
    lacks={
        "filter-groups": "leave such prompts out of the data set",
        "other-kl-estimator": "its loss has the k3 estimate; clip log-ratios in a trainer of your own",
        "mend-critic": "GRPO has no critic",
    },
)  # fmt: skip

PPO = Spelling(
    title="TRL's PPO",
    why_restart=_CONFIG,
    keys={
        "control/beta": Key("kl_coef={value} in PPOConfig", _NO_LIVE),
        "control/lr_scale": Key(
            "learning_rate={value} in PPOConfig", "the schedule is built at the start", scales="learning_rate"
        ),
        "control/epsilon_low": Key("cliprange={value} in PPOConfig (it clips both sides)", _CONFIG),
        "control/temperature": Key("temperature={value} in PPOConfig", SAMPLING),
        "control/prompts": Key(
            "gradient_accumulation_steps so that per_device_train_batch_size x processes x gradient_accumulation_steps "
            "= {value} (TRL 0.12 to 0.16: x num_mini_batches)",
            BUILT_ONCE,
        ),
        "control/inner_epochs": Key("num_ppo_epochs={value} in PPOConfig", _CONFIG),
        "control/minibatches": Key("num_mini_batches={value} in PPOConfig", _CONFIG),
        "control/max_completion": Key("response_length={value} in PPOConfig", SAMPLING),
    },
    procedures={
        "roll-back": "model_name_or_path=<the newest checkpoint-N with N below {onset}>",
        "raise-beta": "[2 x kl_coef]",
        "reset-reference": "sft_model_path=<the newest checkpoint>, whose weights become policy and reference",
        "grow-batch": "[2 x gradient_accumulation_steps]",
        "longer-answers": "[2 x response_length], with a missing_eos_penalty=",
        "overlong-penalty": "missing_eos_penalty=1.0 charges answers that do not end",
        "other-kl-estimator": "kl_estimator='k3' (TRL 0.17 or later)",
        "fewer-epochs": "num_ppo_epochs=1",
        "narrow-clip": "cliprange=0.2 (it clips both sides)",
        "widen-clip": "cliprange=0.28 (it clips both sides)",
        "steadier-reward": "[2 x gradient_accumulation_steps]",
        "mend-critic": "[1/3 x learning_rate], cliprange_value=0.2, vf_coef=0.1",
        "more-bits": "bf16=True fp16=False",
    },
    lacks={
        "clip-updates": "its own loop clips no gradient and ignores max_grad_norm",
        **NO_GROUPS,
        "correct-mismatch": _NO_ENGINE,
    },
)  # fmt: skip

OLD_PPO = Spelling(
    title="TRL's old PPO",
    why_restart=_CONFIG,
    keys={
        "control/beta": Key("init_kl_coef={value} in PPOConfig", "the KL controller is built at the start"),
        "control/lr_scale": Key(
            "learning_rate={value} in PPOConfig", "the optimizer is built at the start", scales="learning_rate"
        ),
        "control/epsilon_low": Key("cliprange={value} in PPOConfig (it clips both sides)", _CONFIG),
        "control/max_grad_norm": Key("max_grad_norm={value} in PPOConfig", _CONFIG),
        "control/prompts": Key("batch_size={value} in PPOConfig (mini_batch_size must divide it)", BUILT_ONCE),
        "control/inner_epochs": Key("ppo_epochs={value} in PPOConfig", _CONFIG),
        "control/minibatches": Key("mini_batch_size = batch_size / {value} in PPOConfig", _CONFIG),
    },
    procedures={
        "roll-back": "model_name=<weights that you saved before step {onset}>; it saves none by itself",
        "raise-beta": "[2 x init_kl_coef]",
        "clip-updates": "max_grad_norm=1.0 (it clips no gradient by itself), or [0.5 x max_grad_norm] where it is set",
        "grow-batch": "[2 x batch_size] and [2 x mini_batch_size]",
        "fewer-epochs": "ppo_epochs=1",
        "narrow-clip": "cliprange=0.2 (it clips both sides)",
        "widen-clip": "cliprange=0.28 (it clips both sides)",
        "steadier-reward": "[2 x batch_size] and [2 x mini_batch_size]",
        "mend-critic": "[1/3 x learning_rate], cliprange_value=0.2, vf_coef=0.1",
        "other-kl-estimator": "kl_penalty='mse' (k2)",
    },
    lacks={
        "longer-answers": "max_new_tokens is an argument of the generate call in your script",
        "raise-temperature": "temperature is an argument of the generate call in your script",
        **NO_GROUPS,
        "correct-mismatch": _NO_ENGINE,
    },
)  # fmt: skip
