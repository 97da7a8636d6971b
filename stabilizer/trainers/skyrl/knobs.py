"""SkyRL 0.3."""

from __future__ import annotations

from stabilizer.trainers.spelling import BUILT_ONCE, DRIVER, SAMPLING, WORKERS, Key, Spelling

_ALGORITHM, _OPTIM = "trainer.algorithm", "trainer.policy.optimizer_config"

SKYRL = Spelling(
    title="SkyRL",
    why_restart=WORKERS,
    keys={
        "control/beta": Key(
            f"{_ALGORITHM}.use_kl_loss=true {_ALGORITHM}.kl_loss_coef={{value}} {_ALGORITHM}.use_kl_in_reward=false",
            WORKERS,
        ),
        "control/lr_scale": Key(f"{_OPTIM}.lr={{value}}", WORKERS, scales=f"{_OPTIM}.lr"),
        "control/epsilon_low": Key(f"{_ALGORITHM}.eps_clip_low={{value}}", WORKERS),
        "control/epsilon_high": Key(f"{_ALGORITHM}.eps_clip_high={{value}}", WORKERS),
        "control/temperature": Key("generator.sampling_params.temperature={value}", SAMPLING),
        "control/max_grad_norm": Key(f"{_OPTIM}.max_grad_norm={{value}}", WORKERS),
        "control/entropy_coef": Key(
            f"{_ALGORITHM}.use_entropy_loss=true {_ALGORITHM}.entropy_loss_coef={{value}}", WORKERS
        ),
        "control/prompts": Key(
            "trainer.train_batch_size={value} (trainer.policy_mini_batch_size must divide it)", BUILT_ONCE
        ),
        "control/group_size": Key("generator.n_samples_per_prompt={value}", WORKERS),
        "control/inner_epochs": Key("trainer.update_epochs_per_batch={value}", WORKERS),
        "control/minibatches": Key("trainer.policy_mini_batch_size = trainer.train_batch_size / {value}", WORKERS),
        "control/max_completion": Key("generator.sampling_params.max_generate_length={value}", SAMPLING),
        "control/filter_groups": Key(f"{_ALGORITHM}.dynamic_sampling.type=filter", BUILT_ONCE),
        "control/mask_truncated": Key("generator.apply_overlong_filtering=true", DRIVER),
        "control/validate_every": Key("trainer.eval_interval={value}", DRIVER),
    },
    procedures={
        "roll-back": "trainer.resume_mode=from_path trainer.resume_path=<newest global_step_N, N below {onset}>",
        "raise-beta": f"{_ALGORITHM}.use_kl_loss=true {_ALGORITHM}.use_kl_in_reward=false, and"
        f" {_ALGORITHM}.kl_loss_coef=0.001 or [2 x {_ALGORITHM}.kl_loss_coef] where it is used already",
        "reset-reference": "trainer.update_ref_every_epoch=true, or trainer.policy.model.path=<the newest export> and"
        " trainer.ref.model.path=<the same>",
        "grow-batch": "[2 x trainer.train_batch_size] and [2 x trainer.policy_mini_batch_size]",
        "filter-groups": f"{_ALGORITHM}.zero_variance_filter=true",
        "unpay-length": f"{_ALGORITHM}.loss_reduction=token_mean",
        "correct-mismatch": f"{_ALGORITHM}.off_policy_correction.tis_ratio_type=token"
        f" {_ALGORITHM}.off_policy_correction.token_tis_ratio_clip_high=2.0 generator.sampling_params.top_p=1.0",
        "other-normaliser": f"{_ALGORITHM}.grpo_norm_by_std=false",
        "other-kl-estimator": f"{_ALGORITHM}.kl_estimator_type=k2",
        "narrow-clip": f"{_ALGORITHM}.eps_clip_low=0.2 {_ALGORITHM}.eps_clip_high=0.28",
        "lower-entropy-bonus": f"{_ALGORITHM}.use_entropy_loss=false",
        "steadier-reward": "[2 x generator.n_samples_per_prompt], or [2 x trainer.train_batch_size] and"
        " [2 x trainer.policy_mini_batch_size]",
        "mend-critic": f"[1/3 x trainer.critic.optimizer_config.lr], {_ALGORITHM}.value_clip=0.2, or"
        f" {_ALGORITHM}.advantage_estimator=grpo",
        "reset-optimizer": "trainer.resume_mode=from_path trainer.resume_path=<the checkpoint>, not weights as model",
        "more-bits": "trainer.bf16=true",
    },
    lacks={
        "target-entropy": "its entropy bonus is a fixed coefficient",
        "overlong-penalty": "charge it in the environment's reward",
    },
)  # fmt: skip
