"""The command line parameters of ms-swift 4.6, whose GRPO flags are TRL's."""

from __future__ import annotations

from stabilizer.trainers.spelling import BUILT_ONCE, SAMPLING, Key, Spelling

_ARGUMENTS = "the arguments are read at the start"
_BATCH = (
    "gradient_accumulation_steps so that per_device_train_batch_size x processes x gradient_accumulation_steps"
    " / num_generations = {value}"
)
_GROWN = "(and [2 x steps_per_generation] or [2 x generation_batch_size], where one is set)"

MS_SWIFT = Spelling(
    title="ms-swift",
    why_restart=_ARGUMENTS,
    form="--{key} {value}",
    keys={
        "control/beta": Key("--beta {value}", _ARGUMENTS),
        "control/lr_scale": Key("--learning_rate {value}", _ARGUMENTS, scales="learning_rate"),
        "control/epsilon_low": Key("--epsilon {value}", _ARGUMENTS),
        "control/epsilon_high": Key("--epsilon_high {value}", _ARGUMENTS, at=("epsilon_high", "epsilon")),
        "control/temperature": Key("--temperature {value}", SAMPLING),
        "control/max_grad_norm": Key("--max_grad_norm {value}", _ARGUMENTS),
        "control/prompts": Key(f"--{_BATCH}", BUILT_ONCE),
        "control/group_size": Key("--num_generations {value} (it must divide the generation batch size)", BUILT_ONCE),
        "control/inner_epochs": Key("--num_iterations {value}", BUILT_ONCE),
        "control/minibatches": Key("--steps_per_generation = {value} x gradient_accumulation_steps", BUILT_ONCE),
        "control/max_completion": Key("--max_completion_length {value}", SAMPLING),
        "control/filter_groups": Key("--dynamic_sample true", _ARGUMENTS),
        "control/mask_truncated": Key("--overlong_filter true", _ARGUMENTS),
        "control/validate_every": Key("--eval_steps {value}", _ARGUMENTS),
    },
    procedures={
        "roll-back": "--model <the newest checkpoint-N with N below {onset}> (--adapters for LoRA)",
        "raise-beta": "--beta 0.001, or [2 x beta] where it is above 0",
        "reset-reference": "--model <the newest checkpoint>, then also the reference; or --sync_ref_model true",
        "grow-batch": f"[2 x gradient_accumulation_steps] {_GROWN}",
        "grow-group": "[2 x num_generations] (it must divide the generation batch size)",
        "longer-answers": "[2 x max_completion_length], or --overlong_filter true",
        "overlong-penalty": "soft_overlong in --reward_funcs, --soft_cache_length <a fifth of the longest answer>",
        "unpay-length": "--loss_type dapo",
        "correct-mismatch": "--rollout_importance_sampling_mode token_truncate --top_p 1.0",
        "other-normaliser": "--scale_rewards batch",
        "narrow-clip": "--epsilon 0.2 --epsilon_high 0.28",
        "steadier-reward": f"[2 x num_generations] and [2 x gradient_accumulation_steps] {_GROWN}",
        "reset-optimizer": "--resume_from_checkpoint <a checkpoint-N>, without --resume_only_model",
        "more-bits": "--torch_dtype bfloat16",
        "declare-data": "--dataset_shuffle true unless the order is meant",
    },
    lacks={"mend-critic": "GRPO has no critic"},
)  # fmt: skip
