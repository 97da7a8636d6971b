"""slime 0.3. Its flags have hyphens; a configuration that W&B kept has the same words with underscores."""

from __future__ import annotations

from stabilizer.trainers.spelling import SAMPLING, Key, Spelling

_ARGUMENTS = "the Ray actors take their arguments when they are built"
_ENGINES = "SGLang's engines and the data source take their arguments when they are built"

SLIME = Spelling(
    title="slime",
    why_restart=_ARGUMENTS,
    form="--{key} {value}",
    keys={
        "control/beta": Key(
            "--kl-loss-coef {value} with --use-kl-loss and --ref-load", _ARGUMENTS, at=("kl-loss-coef", "kl-coef")
        ),
        "control/lr_scale": Key("--lr {value}", _ARGUMENTS, scales="lr"),
        "control/epsilon_low": Key("--eps-clip {value}", _ARGUMENTS),
        "control/epsilon_high": Key("--eps-clip-high {value}", _ARGUMENTS, at=("eps-clip-high", "eps-clip")),
        "control/temperature": Key("--rollout-temperature {value}", SAMPLING),
        "control/max_grad_norm": Key("--clip-grad {value}", _ARGUMENTS),
        "control/entropy_coef": Key("--entropy-coef {value}", _ARGUMENTS),
        "control/max_completion": Key("--rollout-max-response-len {value}", _ENGINES),
        "control/validate_every": Key("--eval-interval {value}", _ARGUMENTS),
        "control/prompts": Key("--rollout-batch-size {value}", _ENGINES),
        "control/group_size": Key("--n-samples-per-prompt {value}", _ENGINES),
        "control/minibatches": Key("--num-steps-per-rollout {value}", _ARGUMENTS),
        "control/filter_groups": Key(
            "--dynamic-sampling-filter-path slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std",
            _ENGINES,
        ),
    },
    procedures={
        "roll-back": "--ckpt-step <the newest save before step {onset}> with --load unchanged",
        "raise-beta": "--kl-loss-coef 0.001 with --use-kl-loss and --ref-load, or [2 x kl-loss-coef] where it is above"
        " 0",
        "reset-reference": "--ref-load <the newest save>; or --ref-update-interval <rollouts>",
        "grow-batch": "[2 x rollout-batch-size] and [2 x global-batch-size]",
        "grow-group": "[2 x n-samples-per-prompt] and [2 x global-batch-size]",
        "filter-groups": "--dynamic-sampling-filter-path"
        " slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std with --over-sampling-batch-size"
        " above --rollout-batch-size",
        "unpay-length": "--calculate-per-token-loss",
        "correct-mismatch": "--use-tis --tis-clip 2.0 and --rollout-top-p 1.0",
        "other-normaliser": "--disable-grpo-std-normalization",
        "other-kl-estimator": "--kl-loss-type low_var_kl",
        "fewer-epochs": "--num-steps-per-rollout 1",
        "narrow-clip": "--eps-clip 0.2 --eps-clip-high 0.28",
        "steadier-reward": "[2 x n-samples-per-prompt] or [2 x rollout-batch-size], and [2 x global-batch-size]",
        "reset-optimizer": "--load <the save> --no-load-optim",
        "declare-data": "--rollout-shuffle unless the order is meant",
    },
    lacks={
        "target-entropy": "its entropy bonus is a fixed coefficient",
        "mask-truncated": "--rollout-sample-filter-path names a function of yours that leaves them out",
        "overlong-penalty": "its reward comes from --rm-type or --custom-rm-path: subtract it there",
    },
)  # fmt: skip
