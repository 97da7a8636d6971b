"""Stable-Baselines3's PPO, and a trainer that nobody recognised."""

from __future__ import annotations

from stabilizer.trainers.spelling import NO_GROUPS, Key, Spelling

_BUILT = "the arguments are read when PPO(...) is built"
_NO_LANGUAGE = "it samples actions from a distribution, not text from a language model"

SB3 = Spelling(
    title="Stable-Baselines3",
    why_restart=_BUILT,
    keys={
        "control/lr_scale": Key("learning_rate={value} in PPO(...)", _BUILT, scales="learning_rate"),
        "control/epsilon_low": Key("clip_range={value} in PPO(...) (it clips both sides)", _BUILT),
        "control/max_grad_norm": Key("max_grad_norm={value} in PPO(...)", _BUILT),
        "control/entropy_coef": Key("ent_coef={value} in PPO(...)", _BUILT),
        "control/inner_epochs": Key("n_epochs={value} in PPO(...)", _BUILT),
        "control/minibatches": Key("batch_size = n_steps x environments / {value} in PPO(...)", _BUILT),
    },
    procedures={
        "roll-back": "PPO.load(path=<a checkpoint from before step {onset}>, env=env)",
        "grow-batch": "[2 x n_steps] and [2 x batch_size]",
        "fewer-epochs": "n_epochs=1, or target_kl=0.02 to leave off early",
        "narrow-clip": "clip_range=0.2 (it clips both sides)",
        "widen-clip": "clip_range=0.28 (it clips both sides)",
        "raise-entropy": "ent_coef=0.001",
        "lower-entropy-bonus": "ent_coef=0.0",
        "steadier-reward": "[2 x n_steps] and [2 x batch_size]",
        "mend-critic": "[1/3 x learning_rate], clip_range_vf=0.2, vf_coef=0.5",
        "validate-more": "[0.5 x eval_freq, whole] of EvalCallback",
    },
    lacks={
        "control/beta": "it has no reference policy", "raise-beta": "it has no reference policy",
        "lower-beta": "it has no reference policy", "reset-reference": "it has no reference policy",
        "raise-temperature": _NO_LANGUAGE, "longer-answers": _NO_LANGUAGE, "mask-truncated": _NO_LANGUAGE,
        **NO_GROUPS,
    },
)  # fmt: skip

UNKNOWN = Spelling(
    title="this trainer",
    why_restart="trainers read their settings when they start",
    keys={
        "control/lr_scale": Key(
            "learning_rate={value} (or what it calls its learning rate)",
            "trainers build their schedule at the start",
            scales="learning_rate",
        )
    },
    procedures={"roll-back": "start from the newest checkpoint from before step {onset}"},
)
"""For a log of an unknown trainer: plain words and no key."""
