"""prime-rl of August 2026: TOML tables for its processes, no reference model, one update for a batch of rollouts."""

from __future__ import annotations

from stabilizer.trainers.spelling import Key, Spelling

_TOML = "its processes read their TOML files at the start"
_NO_REFERENCE = "it has no reference model; trainer.loss.kl_tau weighs the distance to the inference engine"
_ONE_UPDATE = "it makes one update of a batch"
_NO_ENTROPY = "its loss has no entropy bonus"
_SAMPLING = "orchestrator.train.sampling"

PRIME_RL = Spelling(
    title="prime-rl",
    why_restart=_TOML,
    form="{key} = {value}",
    keys={
        "control/lr_scale": Key("trainer.optim.lr = {value}", _TOML, scales="trainer.optim.lr"),
        "control/epsilon_low": Key("trainer.loss.dppo_mask_low = {value}", _TOML),
        "control/epsilon_high": Key("trainer.loss.dppo_mask_high = {value}", _TOML),
        "control/temperature": Key(f"{_SAMPLING}.temperature = {{value}}", _TOML),
        "control/max_grad_norm": Key("trainer.optim.max_norm = {value}", _TOML),
        "control/prompts": Key("orchestrator.batch_size = {value} x orchestrator.group_size", _TOML),
        "control/group_size": Key("orchestrator.group_size = {value} (it must divide batch_size)", _TOML),
        "control/max_completion": Key(f"{_SAMPLING}.max_completion_tokens = {{value}}", _TOML),
        "control/filter_groups": Key("orchestrator.train.filter_zero_advantages = true", _TOML),
        "control/validate_every": Key("orchestrator.eval.interval = {value}", _TOML),
    },
    procedures={
        "roll-back": "resume.step = <the newest checkpoint step below {onset}>",
        "grow-batch": "[2 x orchestrator.batch_size]",
        "grow-group": "[2 x orchestrator.group_size] and [2 x orchestrator.batch_size]",
        "filter-groups": "orchestrator.train.filter_zero_advantages = true (its default), or a curriculum gate of type"
        " advantage_range, which draws others instead",
        "longer-answers": f"[2 x {_SAMPLING}.max_completion_tokens] within seq_len",
        "overlong-penalty": 'orchestrator.algo.length_penalty.type = "linear"',
        "unpay-length": 'orchestrator.algo.length_penalty.type = "linear" (its loss counts tokens, not answers)',
        "correct-mismatch": "[0.5 x trainer.loss.dppo_mask_low] and [0.5 x trainer.loss.dppo_mask_high]: its loss"
        " leaves out tokens on which engine and trainer disagree; for old answers"
        " [0.5 x orchestrator.max_off_policy_steps, whole]",
        "narrow-clip": "trainer.loss.dppo_mask_low = 0.2 and trainer.loss.dppo_mask_high = 0.2",
        "steadier-reward": "[2 x orchestrator.batch_size], with [2 x orchestrator.group_size] where answers scatter",
        "reset-optimizer": "resume.step = <a checkpoint step>: that brings the optimizer's state, weights alone don't",
        "more-bits": 'trainer.model.optimization_dtype = "float32" and trainer.model.reduce_dtype = "float32"',
    },
    lacks={
        "control/beta": _NO_REFERENCE, "raise-beta": _NO_REFERENCE, "lower-beta": _NO_REFERENCE,
        "reset-reference": _NO_REFERENCE, "other-kl-estimator": _NO_REFERENCE,
        "fewer-epochs": _ONE_UPDATE, "mend-critic": "it has no critic",
        "raise-entropy": _NO_ENTROPY, "target-entropy": _NO_ENTROPY, "lower-entropy-bonus": _NO_ENTROPY,
    },
)  # fmt: skip
