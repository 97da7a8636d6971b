"""EasyR1, which grew out of veRL and has keys of its own."""

from __future__ import annotations

from stabilizer.trainers.spelling import BUILT_ONCE, DRIVER, SAMPLING, WORKERS, Key, Spelling

_NO_ENTROPY = "its loss has no entropy bonus"

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
        "grow-batch": "[2 x data.rollout_batch_size] and [2 x worker.actor.global_batch_size]",
        "unpay-length": "worker.actor.loss_avg_mode=token",
        "other-kl-estimator": "algorithm.kl_penalty=mse (k2)",
        "narrow-clip": "worker.actor.clip_ratio_low=0.2 worker.actor.clip_ratio_high=0.28",
        "widen-clip": "worker.actor.clip_ratio_high=0.28 where it is lower (0.3 is its default)",
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
