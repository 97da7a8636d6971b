"""veRL 0.9."""

from __future__ import annotations

from stabilizer.trainers.spelling import BUILT_ONCE, DRIVER, SAMPLING, WORKERS, Key, Spelling

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
FIXED = "its entropy bonus is a fixed coefficient"

KEYS = {
    "control/beta": Key(
        f"{ACTOR}.use_kl_loss=true {ACTOR}.kl_loss_coef={{value}}"
        " (where the KL is in the reward: algorithm.kl_ctrl.kl_coef={value})",
        WORKERS,
    ),
    "control/lr_scale": Key(f"{ACTOR}.optim.lr={{value}}", WORKERS, scales=f"{ACTOR}.optim.lr"),
    "control/epsilon_low": Key(f"{ACTOR}.clip_ratio_low={{value}}", WORKERS),
    "control/epsilon_high": Key(
        f"{ACTOR}.clip_ratio_high={{value}}", WORKERS, at=(f"{ACTOR}.clip_ratio_high", f"{ACTOR}.clip_ratio")
    ),
    "control/temperature": Key(f"{ROLLOUT}.temperature={{value}}", SAMPLING),
    "control/max_grad_norm": Key(f"{ACTOR}.grad_clip={{value}}", WORKERS),
    "control/entropy_coef": Key(f"{ACTOR}.entropy_coeff={{value}}", WORKERS),
    "control/prompts": Key(
        f"data.train_batch_size={{value}} ({ACTOR}.ppo_mini_batch_size must divide it)", BUILT_ONCE
    ),
    "control/group_size": Key(f"{ROLLOUT}.n={{value}}", WORKERS),
    "control/inner_epochs": Key(f"{ACTOR}.ppo_epochs={{value}}", WORKERS),
    "control/minibatches": Key(f"{ACTOR}.ppo_mini_batch_size = data.train_batch_size / {{value}}", WORKERS),
    "control/max_completion": Key("data.max_response_length={value}", SAMPLING),
    "control/filter_groups": Key("algorithm.filter_groups.enable=true algorithm.filter_groups.metric=acc", DRIVER),
    "control/validate_every": Key("trainer.test_freq={value}", DRIVER),
}  # fmt: skip
PROCEDURES = {
    "raise-beta": f"{ACTOR}.use_kl_loss=true {ACTOR}.kl_loss_coef=0.001, or [2 x {ACTOR}.kl_loss_coef] where it is"
    " used already",
    "lower-beta": f"[0.5 x {ACTOR}.kl_loss_coef], or where the KL is in the reward [0.5 x algorithm.kl_ctrl.kl_coef]",
    "grow-batch": f"[2 x data.train_batch_size] and [2 x {ACTOR}.ppo_mini_batch_size]",
    "other-kl-estimator": f"{ACTOR}.kl_loss_type=mse (k2)",
    "validate-more": "[0.5 x trainer.test_freq, whole] (10 where it is -1, never)",
}  # fmt: skip

VERL = Spelling(
    title="veRL",
    why_restart=WORKERS,
    keys=KEYS,
    procedures={
        **PROCEDURES,
        "roll-back": "trainer.resume_mode=resume_path trainer.resume_from_path=<newest global_step_N, N below {onset}>",
        "reset-reference": "actor_rollout_ref.model.path=<the newest checkpoint, merged>, whose weights become the"
        " reference, with trainer.resume_mode=disable",
        "overlong-penalty": "the overlong_buffer of the DAPO reward manager",
        "unpay-length": f"{ACTOR}.loss_agg_mode=token-mean",
        "correct-mismatch": f"{ROLLOUT}.calculate_log_probs=true"
        " algorithm.rollout_correction.rollout_is=token algorithm.rollout_correction.rollout_is_threshold=2.0"
        f" {ROLLOUT}.top_p=1.0",
        "other-normaliser": "algorithm.norm_adv_by_std_in_grpo=false",
        "narrow-clip": f"{ACTOR}.clip_ratio_low=0.2 {ACTOR}.clip_ratio_high=0.28",
        "steadier-reward": f"[2 x {ROLLOUT}.n], or [2 x data.train_batch_size] and"
        f" [2 x {ACTOR}.ppo_mini_batch_size]",
        "mend-critic": "trainer.critic_warmup=20, [1/3 x critic.optim.lr], critic.cliprange_value=0.5, or"
        " algorithm.adv_estimator=grpo",
        "reset-optimizer": f"{ACTOR}.checkpoint.load_contents=['model','optimizer','extra']",
        "more-bits": f"{ACTOR}.fsdp_config.model_dtype=fp32",
        "declare-data": "data.shuffle=true unless the order is meant",
    },
    lacks={"target-entropy": FIXED},
)  # fmt: skip
