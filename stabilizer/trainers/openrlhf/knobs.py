"""OpenRLHF 0.11. Its flags are dotted since April 2026; older runs have the plain ones."""

from __future__ import annotations

from stabilizer.trainers.spelling import BUILT_ONCE, SAMPLING, Key, Spelling

_ACTORS = "the Ray actors take their arguments when they are built"

OPENRLHF = Spelling(
    title="OpenRLHF",
    why_restart=_ACTORS,
    form="--{key} {value}",
    keys={
        "control/beta": Key("--algo.kl.init_coef {value} (before April 2026 --init_kl_coef)", _ACTORS),
        "control/lr_scale": Key(
            "--actor.adam.lr {value} (before April 2026 --actor_learning_rate)", _ACTORS, scales="actor.adam.lr"
        ),
        "control/epsilon_low": Key("--actor.eps_clip_low_high {value} <high>", _ACTORS),
        "control/epsilon_high": Key("--actor.eps_clip_low_high <low> {value}", _ACTORS),
        "control/temperature": Key("--rollout.temperature {value} (before April 2026 --temperature)", SAMPLING),
        "control/max_grad_norm": Key("--actor.max_norm {value} (before April 2026 --max_norm)", _ACTORS),
        "control/entropy_coef": Key("--actor.entropy_coef {value}", _ACTORS),
        "control/max_completion": Key(
            "--rollout.max_new_tokens {value} (before April 2026 --generate_max_len)", SAMPLING
        ),
        "control/validate_every": Key("--eval.steps {value} (before April 2026 --eval_steps)", _ACTORS),
        "control/prompts": Key("--rollout.batch_size {value} (before April 2026 --rollout_batch_size)", BUILT_ONCE),
        "control/group_size": Key(
            "--rollout.n_samples_per_prompt {value} (before April 2026 --n_samples_per_prompt)", BUILT_ONCE
        ),
        "control/inner_epochs": Key("--train.max_epochs {value} (before April 2026 --max_epochs)", _ACTORS),
        "control/minibatches": Key(
            "--train.batch_size = --rollout.batch_size x --rollout.n_samples_per_prompt / {value}", _ACTORS
        ),
        "control/filter_groups": Key(
            "--algo.dynamic_filtering_enable (needs a reward function by URL or agent)",
            "the driver reads it at the start",
        ),
    },
    procedures={
        "roll-back": "--ckpt.load_enable with no checkpoint newer than step {onset} left in --ckpt.path",
        "raise-beta": "--algo.kl.init_coef 0.001, or [2 x algo.kl.init_coef] where it is above 0",
        "reset-reference": "--actor.model_name_or_path <the newest checkpoint>, whose weights become the reference",
        "grow-batch": "[2 x rollout.batch_size] and [2 x train.batch_size]",
        "grow-group": "[2 x rollout.n_samples_per_prompt] and [2 x train.batch_size]",
        "longer-answers": "[2 x rollout.max_new_tokens], or --reward.overlong_buffer_len for a soft penalty near it",
        "overlong-penalty": "--reward.overlong_buffer_len <a fifth of rollout.max_new_tokens>",
        "unpay-length": "--actor.loss_agg_mode token-mean",
        "correct-mismatch": "--algo.advantage.is_correction_level token with --algo.advantage.is_correction_mode and"
        " --algo.advantage.is_correction_threshold, and --rollout.top_p 1.0",
        "other-normaliser": "--algo.advantage.no_std_norm",
        "other-kl-estimator": "--algo.kl.estimator k2",
        "fewer-epochs": "--train.max_epochs 1",
        "narrow-clip": "--actor.eps_clip_low_high 0.2 0.28",
        "widen-clip": "--actor.eps_clip_low_high 0.2 0.28",
        "steadier-reward": "[2 x rollout.n_samples_per_prompt] or [2 x rollout.batch_size], and [2 x train.batch_size]",
        "mend-critic": "[1/3 x critic.adam.lr], --critic.value_clip 0.5",
        "reset-optimizer": "--ckpt.load_enable with --ckpt.path <the checkpoint>, and without --ds.use_universal_ckpt",
        "more-bits": "--ds.param_dtype bf16",
    },
    lacks={
        "target-entropy": "its entropy bonus is a fixed coefficient",
        "mask-truncated": "--reward.overlong_buffer_len charges them instead",
    },
)  # fmt: skip
