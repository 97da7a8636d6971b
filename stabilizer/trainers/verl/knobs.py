"""veRL 0.9 and the trainers that grew out of it: Search-R1, an old fork with its keys, and EasyR1, with its own."""

from __future__ import annotations

from stabilizer.trainers.spelling import BUILT_ONCE, DRIVER, SAMPLING, WORKERS, Key, Spelling

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_FIXED, _NO_ENTROPY = "its entropy bonus is a fixed coefficient", "its loss has no entropy bonus"

_KEYS = {
    "control/beta": Key(
        f"{_ACTOR}.use_kl_loss=true {_ACTOR}.kl_loss_coef={{value}}"
        " (where the KL is in the reward: algorithm.kl_ctrl.kl_coef={value})",
        WORKERS,
    ),
    "control/lr_scale": Key(f"{_ACTOR}.optim.lr={{value}}", WORKERS, scales=f"{_ACTOR}.optim.lr"),
    "control/epsilon_low": Key(f"{_ACTOR}.clip_ratio_low={{value}}", WORKERS),
    "control/epsilon_high": Key(f"{_ACTOR}.clip_ratio_high={{value}}", WORKERS),
    "control/temperature": Key(f"{_ROLLOUT}.temperature={{value}}", SAMPLING),
    "control/max_grad_norm": Key(f"{_ACTOR}.grad_clip={{value}}", WORKERS),
    "control/entropy_coef": Key(f"{_ACTOR}.entropy_coeff={{value}}", WORKERS),
    "control/prompts": Key(
        f"data.train_batch_size={{value}} ({_ACTOR}.ppo_mini_batch_size must divide it)", BUILT_ONCE
    ),
    "control/group_size": Key(f"{_ROLLOUT}.n={{value}}", WORKERS),
    "control/inner_epochs": Key(f"{_ACTOR}.ppo_epochs={{value}}", WORKERS),
    "control/minibatches": Key(f"{_ACTOR}.ppo_mini_batch_size = data.train_batch_size / {{value}}", WORKERS),
    "control/max_completion": Key("data.max_response_length={value}", SAMPLING),
    "control/filter_groups": Key("algorithm.filter_groups.enable=true algorithm.filter_groups.metric=acc", DRIVER),
    "control/validate_every": Key("trainer.test_freq={value}", DRIVER),
}  # fmt: skip
_PROCEDURES = {
    "raise-beta": f"{_ACTOR}.use_kl_loss=true {_ACTOR}.kl_loss_coef=0.001, or [2 x {_ACTOR}.kl_loss_coef] where it is"
    " used already",
    "lower-beta": f"[0.5 x {_ACTOR}.kl_loss_coef], or where the KL is in the reward [0.5 x algorithm.kl_ctrl.kl_coef]",
    "clip-updates": f"[0.5 x {_ACTOR}.grad_clip]",
    "grow-batch": f"[2 x data.train_batch_size] and [2 x {_ACTOR}.ppo_mini_batch_size]",
    "longer-answers": "[2 x data.max_response_length]",
    "other-kl-estimator": f"{_ACTOR}.kl_loss_type=mse (k2)",
    "fewer-epochs": f"{_ACTOR}.ppo_epochs=1",
    "raise-temperature": f"[1.1 x {_ROLLOUT}.temperature]",
    "raise-entropy": f"{_ACTOR}.entropy_coeff=0.001",
    "lower-entropy-bonus": f"{_ACTOR}.entropy_coeff=0",
    "validate-more": "[0.5 x trainer.test_freq, whole] (10 where it is -1, never)",
}  # fmt: skip

VERL = Spelling(
    title="veRL",
    why_restart=WORKERS,
    keys=_KEYS,
    procedures={
        **_PROCEDURES,
        "roll-back": "trainer.resume_mode=resume_path trainer.resume_from_path=<newest global_step_N, N below {onset}>",
        "reset-reference": "actor_rollout_ref.model.path=<the newest checkpoint, merged>, whose weights become the"
        " reference, with trainer.resume_mode=disable",
        "grow-group": f"[2 x {_ROLLOUT}.n]",
        "filter-groups": "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=acc",
        "overlong-penalty": "the overlong_buffer of the DAPO reward manager",
        "unpay-length": f"{_ACTOR}.loss_agg_mode=token-mean",
        "correct-mismatch": f"{_ROLLOUT}.calculate_log_probs=true"
        " algorithm.rollout_correction.rollout_is=token algorithm.rollout_correction.rollout_is_threshold=2.0"
        f" {_ROLLOUT}.top_p=1.0",
        "other-normaliser": "algorithm.norm_adv_by_std_in_grpo=false",
        "narrow-clip": f"{_ACTOR}.clip_ratio_low=0.2 {_ACTOR}.clip_ratio_high=0.28",
        "widen-clip": f"{_ACTOR}.clip_ratio_high=0.28",
        "steadier-reward": f"[2 x {_ROLLOUT}.n], or [2 x data.train_batch_size] and"
        f" [2 x {_ACTOR}.ppo_mini_batch_size]",
        "mend-critic": "trainer.critic_warmup=20, [1/3 x critic.optim.lr], critic.cliprange_value=0.5, or"
        " algorithm.adv_estimator=grpo",
        "reset-optimizer": f"{_ACTOR}.checkpoint.load_contents=['model','optimizer','extra']",
        "more-bits": f"{_ACTOR}.fsdp_config.model_dtype=fp32",
        "declare-data": "data.shuffle=true unless the order is meant",
    },
    lacks={"target-entropy": _FIXED},
)  # fmt: skip

SEARCH_R1 = Spelling(
    title="Search-R1",
    why_restart=WORKERS,
    keys={
        **{knob: _KEYS[knob] for knob in _KEYS if knob not in ("control/epsilon_high", "control/filter_groups")},
        "control/epsilon_low": Key(f"{_ACTOR}.clip_ratio={{value}} (it clips both sides)", WORKERS),
        "control/group_size": Key(f"{_ROLLOUT}.n_agent={{value}}", WORKERS),
    },
    procedures={
        **_PROCEDURES,
        "roll-back": "actor_rollout_ref.model.path=<actor/global_step_N, N below {onset}>; it has no resume of its own",
        "reset-reference": "actor_rollout_ref.model.path=<the newest actor/global_step_N>, whose weights become the"
        " reference",
        "grow-group": f"[2 x {_ROLLOUT}.n_agent]",
        "narrow-clip": f"{_ACTOR}.clip_ratio=0.2 (it clips both sides)",
        "widen-clip": f"{_ACTOR}.clip_ratio=0.28 (it clips both sides)",
        "steadier-reward": f"[2 x {_ROLLOUT}.n_agent], or [2 x data.train_batch_size] and"
        f" [2 x {_ACTOR}.ppo_mini_batch_size]",
        "mend-critic": "trainer.critic_warmup=20, [1/3 x critic.optim.lr], critic.cliprange_value=0.5",
        "mend-tool": f"{_ACTOR}.state_masking=true keeps what the tool returns out of the loss",
        "declare-data": "data.shuffle_train_dataloader=true unless the order is meant",
    },
    lacks={"target-entropy": _FIXED, "unpay-length": "its loss is averaged over tokens already",
           "reset-optimizer": "its checkpoints hold weights alone"},
)  # fmt: skip

EASYR1 = Spelling(
    title="EasyR1",
    why_restart=WORKERS,
    keys={
        "control/beta": Key(
            "algorithm.kl_coef={value} algorithm.use_kl_loss=true (early 2025: worker.actor.kl_loss_coef={value}"
            " worker.actor.use_kl_loss=true)",
            WORKERS,
        ),
        "control/lr_scale": Key("worker.actor.optim.lr={value}", WORKERS, scales="worker.actor.optim.lr"),
        "control/epsilon_low": Key("worker.actor.clip_ratio_low={value}", WORKERS),
        "control/epsilon_high": Key("worker.actor.clip_ratio_high={value}", WORKERS),
        "control/temperature": Key("worker.rollout.temperature={value}", SAMPLING),
        "control/max_grad_norm": Key("worker.actor.max_grad_norm={value}", WORKERS),
        "control/prompts": Key(
            "data.rollout_batch_size={value} (worker.actor.global_batch_size must divide it)", BUILT_ONCE
        ),
        "control/group_size": Key("worker.rollout.n={value}", WORKERS),
        "control/inner_epochs": Key("worker.actor.ppo_epochs={value}", WORKERS),
        "control/minibatches": Key("worker.actor.global_batch_size = data.rollout_batch_size / {value}", WORKERS),
        "control/max_completion": Key("data.max_response_length={value}", SAMPLING),
        "control/filter_groups": Key("algorithm.online_filtering=true algorithm.filter_key=accuracy", DRIVER),
        "control/validate_every": Key("trainer.val_freq={value}", DRIVER),
    },
    procedures={
        "roll-back": "trainer.load_checkpoint_path=<the newest global_step_N with N below {onset}>",
        "raise-beta": "algorithm.use_kl_loss=true algorithm.disable_kl=false, and algorithm.kl_coef=0.001 or"
        " [2 x algorithm.kl_coef] where it is used already",
        "lower-beta": "[0.5 x algorithm.kl_coef] (early 2025: [0.5 x worker.actor.kl_loss_coef])",
        "reset-reference": "worker.actor.model.model_path=<the newest checkpoint, merged>, whose weights become the"
        " reference, with trainer.find_last_checkpoint=false",
        "clip-updates": "[0.5 x worker.actor.max_grad_norm]",
        "grow-batch": "[2 x data.rollout_batch_size] and [2 x worker.actor.global_batch_size]",
        "grow-group": "[2 x worker.rollout.n]",
        "filter-groups": "algorithm.online_filtering=true algorithm.filter_key=accuracy",
        "longer-answers": "[2 x data.max_response_length]",
        "unpay-length": "worker.actor.loss_avg_mode=token",
        "other-kl-estimator": "algorithm.kl_penalty=mse (k2)",
        "fewer-epochs": "worker.actor.ppo_epochs=1",
        "narrow-clip": "worker.actor.clip_ratio_low=0.2 worker.actor.clip_ratio_high=0.28",
        "widen-clip": "worker.actor.clip_ratio_high=0.28 where it is lower (0.3 is its default)",
        "raise-temperature": "[1.1 x worker.rollout.temperature]",
        "steadier-reward": "[2 x worker.rollout.n], or [2 x data.rollout_batch_size] and"
        " [2 x worker.actor.global_batch_size]",
        "reset-optimizer": "trainer.load_checkpoint_path=<a global_step_N>, saved with trainer.save_model_only=false",
        "mend-critic": "trainer.critic_warmup=20, [1/3 x worker.critic.optim.lr], or algorithm.adv_estimator=grpo",
        "validate-more": "[0.5 x trainer.val_freq, whole] (5 where it is -1, never)",
        "more-bits": "worker.actor.fsdp.mp_param_dtype=bf16 worker.actor.fsdp.mp_reduce_dtype=fp32",
        "declare-data": "data.shuffle=true unless the order is meant",
    },
    lacks={
        "raise-entropy": _NO_ENTROPY, "lower-entropy-bonus": _NO_ENTROPY, "target-entropy": _NO_ENTROPY,
        "overlong-penalty": "charge it in the reward function (examples/reward_function/dapo.py does)",
    },
)  # fmt: skip
