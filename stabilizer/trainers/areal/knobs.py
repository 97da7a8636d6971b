"""AReaL 1.0. Its engines are built from the configuration, so that a change needs a restart."""

from __future__ import annotations

from stabilizer.trainers.spelling import Key, Spelling

_ENGINES = "engines and rollout workers are built from the configuration"

AREAL = Spelling(
    title="AReaL",
    why_restart=_ENGINES,
    form="{key}={value}",
    keys={
        "control/beta": Key("actor.kl_ctl={value} (it needs a ref: section)", _ENGINES),
        "control/lr_scale": Key("actor.optimizer.lr={value}", _ENGINES, scales="actor.optimizer.lr"),
        "control/epsilon_low": Key("actor.eps_clip={value}", _ENGINES),
        "control/epsilon_high": Key(
            "actor.eps_clip_higher={value}", _ENGINES, at=("actor.eps_clip_higher", "actor.eps_clip")
        ),
        "control/temperature": Key("gconfig.temperature={value}", _ENGINES),
        "control/max_grad_norm": Key("actor.optimizer.gradient_clipping={value}", _ENGINES),
        "control/max_completion": Key("gconfig.max_new_tokens={value}", _ENGINES),
        "control/validate_every": Key("evaluator.freq_steps={value}", _ENGINES),
        "control/prompts": Key("train_dataset.batch_size={value}", _ENGINES),
        "control/group_size": Key("gconfig.n_samples={value}", _ENGINES),
        "control/minibatches": Key("actor.ppo_n_minibatches={value}", _ENGINES),
        "control/mask_truncated": Key("actor.mask_no_eos_with_zero=true", _ENGINES),
        "control/filter_groups": Key(
            "a should_accept_fn that refuses groups of one reward, given to the trainer", _ENGINES
        ),
    },
    procedures={
        "roll-back": "actor.path=<the newest save before step {onset}> with recover.mode=disabled",
        "raise-beta": "actor.kl_ctl=0.001 and a ref: section, or [2 x actor.kl_ctl] where it is above 0",
        "reset-reference": "ref.path=<the newest save>",
        "grow-group": "[2 x gconfig.n_samples], and the group_size of the norms with it",
        "longer-answers": "[2 x gconfig.max_new_tokens], or actor.mask_no_eos_with_zero=true",
        "overlong-penalty": "actor.overlong_reward_penalty=true actor.overlong_tokens=<a fifth of max_new_tokens>"
        " actor.overlong_penalty_factor=1.0",
        "correct-mismatch": "actor.use_decoupled_loss=true actor.rejection_sampling.metric=ratio"
        " actor.rejection_sampling.upper=5.0, and gconfig.top_p=1.0",
        "other-normaliser": "actor.reward_norm.std_level=null",
        "other-kl-estimator": "actor.kl_estimator=k3",
        "fewer-epochs": "actor.ppo_n_minibatches=1",
        "narrow-clip": "actor.eps_clip=0.2 actor.eps_clip_higher=0.28",
        "steadier-reward": "[2 x gconfig.n_samples] or [2 x train_dataset.batch_size]",
        "mend-critic": "[1/3 x critic.optimizer.lr]",
        "validate-more": "evaluator.freq_steps=10",
        "more-bits": "actor.dtype=bfloat16 actor.grad_reduce_dtype=float32",
        "declare-data": "train_dataset.shuffle=true unless the order is meant",
    },
    lacks={
        "control/entropy_coef": "its loss has no entropy term", "raise-entropy": "its loss has no entropy term",
        "lower-entropy-bonus": "its loss has no entropy term", "target-entropy": "its loss has no entropy term",
        "unpay-length": "its loss weighs all tokens of a batch alike",
    },
)  # fmt: skip
