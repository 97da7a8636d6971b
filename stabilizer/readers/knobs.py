"""How each trainer spells our knobs, and when a change takes effect: what turns advice into a line to paste.

Keyed by trainer, not by log format: the same trainer leaves several kinds of log. Our own trainer is not among them:
its remedies say themselves how they are done (`remedies.advise`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stabilizer.records import RemedyAdvice


@dataclass(frozen=True, slots=True)
class Key:
    """A trainer's own setting for one of our knobs. `template` is filled with `value`."""

    template: str
    why_restart: str
    scales: str = ""
    """Config key whose value the knob multiplies, where the knob is a factor."""


LARGEST = 1e18
"""A setting beyond it is damage: Python's integers have no end, and floats have."""
_HELD = 20
"""Rows of the same learning rate that make it the configured one."""
_BUILT_ONCE = "the data loader is built once, at the start"
_SAMPLING = "sampling parameters are copied when the trainer is built"
_WORKERS = "the workers take their copy of the configuration when they are built"
_CONFIG = "the trainer reads its PPOConfig when it is built"
_ACTORS = "the Ray actors take their arguments when they are built"
_LOSS = "the loss function takes its configuration when it is built"
_TOML = "its processes read their TOML files at the start"
_ARGUMENTS = "the arguments are read at the start"


def _verl(prompts: str) -> dict[str, Key]:
    """veRL's keys; Search-R1, an old fork, shares them but for the few it overrides."""
    actor = "actor_rollout_ref.actor"
    return {
        "control/beta": Key(f"{actor}.use_kl_loss=true {actor}.kl_loss_coef={{value}}", _WORKERS),
        "control/lr_scale": Key(f"{actor}.optim.lr={{value}}", _WORKERS, scales=f"{actor}.optim.lr"),
        "control/epsilon_low": Key(f"{actor}.clip_ratio_low={{value}}", _WORKERS),
        "control/epsilon_high": Key(f"{actor}.clip_ratio_high={{value}}", _WORKERS),
        "control/temperature": Key("actor_rollout_ref.rollout.temperature={value}", _SAMPLING),
        "control/max_grad_norm": Key(f"{actor}.grad_clip={{value}}", _WORKERS),
        "control/entropy_coef": Key(f"{actor}.entropy_coeff={{value}}", _WORKERS),
        "control/prompts": Key(f"{prompts}={{value}} ({actor}.ppo_mini_batch_size must divide it)", _BUILT_ONCE),
        "control/group_size": Key("actor_rollout_ref.rollout.n={value}", _WORKERS),
        "control/inner_epochs": Key(f"{actor}.ppo_epochs={{value}}", _WORKERS),
        "control/minibatches": Key(f"{actor}.ppo_mini_batch_size = {prompts} / {{value}}", _WORKERS),
        "control/max_completion": Key("data.max_response_length={value}", _SAMPLING),
        "control/filter_groups": Key(
            "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=acc",
            "the driver reads it when it is built",
        ),
        "control/validate_every": Key("trainer.test_freq={value}", "the driver reads it when it is built"),
    }


_NOT_IN_SEARCH_R1 = frozenset({"control/epsilon_high", "control/filter_groups"})

KNOB_KEYS: dict[str, dict[str, Key]] = {
    "trl": {
        "control/beta": Key(
            "beta={value} in GRPOConfig", "a trainer built with beta = 0 has loaded no reference model to compare with"
        ),
        "control/lr_scale": Key(
            "learning_rate={value} in GRPOConfig",
            "the schedule is built at the start; resume_from_checkpoint would bring the old rate back, so start "
            "from the checkpoint's weights",
            scales="learning_rate",
        ),
        "control/epsilon_low": Key("epsilon={value} in GRPOConfig", "the log's trainer has no live control"),
        "control/epsilon_high": Key("epsilon_high={value} in GRPOConfig", "the log's trainer has no live control"),
        "control/temperature": Key("temperature={value} in GRPOConfig", _SAMPLING),
        "control/max_grad_norm": Key("max_grad_norm={value} in GRPOConfig", "the log's trainer has no live control"),
        "control/entropy_coef": Key(
            "entropy_coef={value} in GRPOConfig (TRL 1.9 or later)", "the entropy bonus is switched on at the start"
        ),
        "control/prompts": Key(
            "gradient_accumulation_steps so that per_device_train_batch_size x processes x gradient_accumulation_steps "
            "/ num_generations = {value}",
            _BUILT_ONCE,
        ),
        "control/group_size": Key(
            "num_generations={value} in GRPOConfig (it must divide the generation batch size)", _BUILT_ONCE
        ),
        "control/inner_epochs": Key("num_iterations={value} in GRPOConfig", _BUILT_ONCE),
        "control/minibatches": Key(
            "steps_per_generation={value} x gradient_accumulation_steps in GRPOConfig", _BUILT_ONCE
        ),
        "control/max_completion": Key("max_completion_length={value} in GRPOConfig", _SAMPLING),
        "control/mask_truncated": Key(
            "mask_truncated_completions=True in GRPOConfig", "the log's trainer has no live control"
        ),
        "control/validate_every": Key("eval_steps={value} in GRPOConfig", "the log's trainer has no live control"),
    },
    "trl-ppo": {
        "control/beta": Key("kl_coef={value} in PPOConfig", "the log's trainer has no live control"),
        "control/lr_scale": Key(
            "learning_rate={value} in PPOConfig", "the schedule is built at the start", scales="learning_rate"
        ),
        "control/epsilon_low": Key("cliprange={value} in PPOConfig (it clips both sides)", _CONFIG),
        "control/temperature": Key("temperature={value} in PPOConfig", _SAMPLING),
        "control/prompts": Key(
            "gradient_accumulation_steps so that per_device_train_batch_size x processes x gradient_accumulation_steps "
            "= {value} (TRL 0.12 to 0.16: x num_mini_batches)",
            _BUILT_ONCE,
        ),
        "control/inner_epochs": Key("num_ppo_epochs={value} in PPOConfig", _CONFIG),
        "control/minibatches": Key("num_mini_batches={value} in PPOConfig", _CONFIG),
        "control/max_completion": Key("response_length={value} in PPOConfig", _SAMPLING),
    },
    "trl-old-ppo": {
        "control/beta": Key("init_kl_coef={value} in PPOConfig", "the KL controller is built at the start"),
        "control/lr_scale": Key(
            "learning_rate={value} in PPOConfig", "the optimizer is built at the start", scales="learning_rate"
        ),
        "control/epsilon_low": Key("cliprange={value} in PPOConfig (it clips both sides)", _CONFIG),
        "control/max_grad_norm": Key("max_grad_norm={value} in PPOConfig", _CONFIG),
        "control/prompts": Key("batch_size={value} in PPOConfig (mini_batch_size must divide it)", _BUILT_ONCE),
        "control/inner_epochs": Key("ppo_epochs={value} in PPOConfig", _CONFIG),
        "control/minibatches": Key("mini_batch_size = batch_size / {value} in PPOConfig", _CONFIG),
    },
    "verl": _verl("data.train_batch_size"),
    "search_r1": {
        **{knob: key for knob, key in _verl("data.train_batch_size").items() if knob not in _NOT_IN_SEARCH_R1},
        "control/epsilon_low": Key("actor_rollout_ref.actor.clip_ratio={value} (it clips both sides)", _WORKERS),
        "control/group_size": Key("actor_rollout_ref.rollout.n_agent={value}", _WORKERS),
    },
    "easyr1": {
        "control/beta": Key("algorithm.kl_coef={value} algorithm.use_kl_loss=true", _WORKERS),
        "control/lr_scale": Key("worker.actor.optim.lr={value}", _WORKERS, scales="worker.actor.optim.lr"),
        "control/epsilon_low": Key("worker.actor.clip_ratio_low={value}", _WORKERS),
        "control/epsilon_high": Key("worker.actor.clip_ratio_high={value}", _WORKERS),
        "control/temperature": Key("worker.rollout.temperature={value}", _SAMPLING),
        "control/max_grad_norm": Key("worker.actor.max_grad_norm={value}", _WORKERS),
        "control/prompts": Key(
            "data.rollout_batch_size={value} (worker.actor.global_batch_size must divide it)", _BUILT_ONCE
        ),
        "control/group_size": Key("worker.rollout.n={value}", _WORKERS),
        "control/inner_epochs": Key("worker.actor.ppo_epochs={value}", _WORKERS),
        "control/minibatches": Key("worker.actor.global_batch_size = data.rollout_batch_size / {value}", _WORKERS),
        "control/max_completion": Key("data.max_response_length={value}", _SAMPLING),
        "control/filter_groups": Key(
            "algorithm.online_filtering=true algorithm.filter_key=accuracy", "the driver reads it when it is built"
        ),
        "control/validate_every": Key("trainer.val_freq={value}", "the driver reads it when it is built"),
    },
    "openrlhf": {
        "control/beta": Key("--algo.kl.init_coef {value} (before April 2026 --init_kl_coef)", _ACTORS),
        "control/lr_scale": Key(
            "--actor.adam.lr {value} (before April 2026 --actor_learning_rate)", _ACTORS, scales="actor.adam.lr"
        ),
        "control/epsilon_low": Key("--actor.eps_clip_low_high {value} <high>", _ACTORS),
        "control/epsilon_high": Key("--actor.eps_clip_low_high <low> {value}", _ACTORS),
        "control/temperature": Key("--rollout.temperature {value} (before April 2026 --temperature)", _SAMPLING),
        "control/max_grad_norm": Key("--actor.max_norm {value} (before April 2026 --max_norm)", _ACTORS),
        "control/entropy_coef": Key("--actor.entropy_coef {value}", _ACTORS),
        "control/max_completion": Key(
            "--rollout.max_new_tokens {value} (before April 2026 --generate_max_len)", _SAMPLING
        ),
        "control/validate_every": Key("--eval.steps {value} (before April 2026 --eval_steps)", _ACTORS),
        "control/prompts": Key("--rollout.batch_size {value} (before April 2026 --rollout_batch_size)", _BUILT_ONCE),
        "control/group_size": Key(
            "--rollout.n_samples_per_prompt {value} (before April 2026 --n_samples_per_prompt)", _BUILT_ONCE
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
    "skyrl": {
        "control/beta": Key(
            "trainer.algorithm.use_kl_loss=true trainer.algorithm.kl_loss_coef={value}"
            " trainer.algorithm.use_kl_in_reward=false",
            _WORKERS,
        ),
        "control/lr_scale": Key(
            "trainer.policy.optimizer_config.lr={value}", _WORKERS, scales="trainer.policy.optimizer_config.lr"
        ),
        "control/epsilon_low": Key("trainer.algorithm.eps_clip_low={value}", _WORKERS),
        "control/epsilon_high": Key("trainer.algorithm.eps_clip_high={value}", _WORKERS),
        "control/temperature": Key("generator.sampling_params.temperature={value}", _SAMPLING),
        "control/max_grad_norm": Key("trainer.policy.optimizer_config.max_grad_norm={value}", _WORKERS),
        "control/entropy_coef": Key(
            "trainer.algorithm.use_entropy_loss=true trainer.algorithm.entropy_loss_coef={value}", _WORKERS
        ),
        "control/prompts": Key(
            "trainer.train_batch_size={value} (trainer.policy_mini_batch_size must divide it)", _BUILT_ONCE
        ),
        "control/group_size": Key("generator.n_samples_per_prompt={value}", _WORKERS),
        "control/inner_epochs": Key("trainer.update_epochs_per_batch={value}", _WORKERS),
        "control/minibatches": Key("trainer.policy_mini_batch_size = trainer.train_batch_size / {value}", _WORKERS),
        "control/max_completion": Key("generator.sampling_params.max_generate_length={value}", _SAMPLING),
        "control/filter_groups": Key("trainer.algorithm.dynamic_sampling.type=filter", _BUILT_ONCE),
        "control/validate_every": Key("trainer.eval_interval={value}", "the driver reads it when it is built"),
    },
    "nemo_rl": {
        "control/beta": Key("loss_fn.reference_policy_kl_penalty={value}", _LOSS),
        "control/lr_scale": Key(
            "policy.optimizer.kwargs.lr={value} (with Megatron policy.megatron_cfg.optimizer.lr)",
            _WORKERS, scales="policy.optimizer.kwargs.lr",
        ),
        "control/epsilon_low": Key("loss_fn.ratio_clip_min={value}", _LOSS),
        "control/epsilon_high": Key("loss_fn.ratio_clip_max={value}", _LOSS),
        "control/temperature": Key("policy.generation.temperature={value}", _SAMPLING),
        "control/max_grad_norm": Key("policy.max_grad_norm={value}", _WORKERS),
        "control/prompts": Key(
            "grpo.num_prompts_per_step={value} (policy.train_global_batch_size must divide it times"
            " grpo.num_generations_per_prompt)",
            _BUILT_ONCE,
        ),
        "control/group_size": Key("grpo.num_generations_per_prompt={value}", _BUILT_ONCE),
        "control/minibatches": Key(
            "policy.train_global_batch_size = grpo.num_prompts_per_step x grpo.num_generations_per_prompt / {value}",
            _WORKERS,
        ),
        "control/max_completion": Key("policy.generation.max_new_tokens={value}", _SAMPLING),
        "control/filter_groups": Key("grpo.use_dynamic_sampling=true", "the driver reads it when it is built"),
        "control/validate_every": Key("grpo.val_period={value}", "the driver reads it when it is built"),
    },
    "prime_rl": {
        "control/lr_scale": Key("trainer.optim.lr = {value}", _TOML, scales="trainer.optim.lr"),
        "control/epsilon_low": Key("trainer.loss.dppo_mask_low = {value}", _TOML),
        "control/epsilon_high": Key("trainer.loss.dppo_mask_high = {value}", _TOML),
        "control/temperature": Key("orchestrator.train.sampling.temperature = {value}", _TOML),
        "control/max_grad_norm": Key("trainer.optim.max_norm = {value}", _TOML),
        "control/prompts": Key("orchestrator.batch_size = {value} x orchestrator.group_size", _TOML),
        "control/group_size": Key("orchestrator.group_size = {value} (it must divide batch_size)", _TOML),
        "control/max_completion": Key("orchestrator.train.sampling.max_completion_tokens = {value}", _TOML),
    },
    "ms-swift": {
        "control/beta": Key("--beta {value}", _ARGUMENTS),
        "control/lr_scale": Key("--learning_rate {value}", _ARGUMENTS, scales="learning_rate"),
        "control/epsilon_low": Key("--epsilon {value}", _ARGUMENTS),
        "control/epsilon_high": Key("--epsilon_high {value}", _ARGUMENTS),
        "control/temperature": Key("--temperature {value}", _SAMPLING),
        "control/max_grad_norm": Key("--max_grad_norm {value}", _ARGUMENTS),
        "control/prompts": Key(
            "--gradient_accumulation_steps so that per_device_train_batch_size x processes x"
            " gradient_accumulation_steps / num_generations = {value}",
            _BUILT_ONCE,
        ),
        "control/group_size": Key(
            "--num_generations {value} (it must divide the generation batch size)", _BUILT_ONCE
        ),
        "control/inner_epochs": Key("--num_iterations {value}", _BUILT_ONCE),
        "control/minibatches": Key("--steps_per_generation = {value} x gradient_accumulation_steps", _BUILT_ONCE),
        "control/max_completion": Key("--max_completion_length {value}", _SAMPLING),
        "control/filter_groups": Key("--dynamic_sample true", _ARGUMENTS),
        "control/mask_truncated": Key("--overlong_filter true", _ARGUMENTS),
        "control/validate_every": Key("--eval_steps {value}", _ARGUMENTS),
    },
}  # fmt: skip
"""By trainer, then by knob."""


PROCEDURES: dict[str, dict[str, str]] = {
    "trl": {
        "roll-back": "start from the weights of the newest checkpoint-N with N below {onset}",
        "longer-answers": "double max_completion_length=, or mask_truncated_completions=True (TRL 0.17 or later)",
        "unpay-length": "loss_type='dapo' or 'dr_grpo'",
        "correct-mismatch": "vllm_importance_sampling_correction=True (TRL 0.23.1 or later) top_p=1.0",
        "other-normaliser": "scale_rewards='batch' or 'none' (TRL before 0.22: False)",
        "fewer-epochs": "num_iterations=1",
        "narrow-clip": "epsilon=0.2 epsilon_high=0.28",
        "steadier-reward": "double num_generations= and gradient_accumulation_steps=",
        "reset-optimizer": "resume_from_checkpoint=<a checkpoint-N with optimizer.pt in it>, not its weights as model",
        "more-bits": "bf16=True fp16=False, and cast_lm_head_to_fp32=True (TRL 0.25.1 or later)",
        "declare-data": "shuffle_dataset=True unless the order is meant",
    },
    "trl-ppo": {
        "longer-answers": "double response_length=, with a missing_eos_penalty=",
        "other-kl-estimator": "kl_estimator='k3' (TRL 0.17 or later)",
        "fewer-epochs": "num_ppo_epochs=1",
        "mend-critic": "a third of learning_rate=, cliprange_value=0.2, vf_coef=0.1",
    },
    "trl-old-ppo": {
        "fewer-epochs": "ppo_epochs=1",
        "mend-critic": "a third of learning_rate=, cliprange_value=0.2, vf_coef=0.1",
    },
    "verl": {
        "roll-back": "trainer.resume_mode=resume_path trainer.resume_from_path=<newest global_step_N, N below {onset}>",
        "longer-answers": "double data.max_response_length=",
        "unpay-length": "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        "correct-mismatch": "actor_rollout_ref.rollout.calculate_log_probs=true"
        " algorithm.rollout_correction.rollout_is=token algorithm.rollout_correction.rollout_is_threshold=2.0"
        " actor_rollout_ref.rollout.top_p=1.0",
        "other-normaliser": "algorithm.norm_adv_by_std_in_grpo=false",
        "other-kl-estimator": "actor_rollout_ref.actor.kl_loss_type=mse (k2)",
        "fewer-epochs": "actor_rollout_ref.actor.ppo_epochs=1",
        "narrow-clip": "actor_rollout_ref.actor.clip_ratio_low=0.2 actor_rollout_ref.actor.clip_ratio_high=0.28",
        "steadier-reward": "double actor_rollout_ref.rollout.n= or data.train_batch_size=",
        "mend-critic": "trainer.critic_warmup=20, a third of critic.optim.lr=, critic.cliprange_value=0.5, or"
        " algorithm.adv_estimator=grpo",
        "reset-optimizer": "actor_rollout_ref.actor.checkpoint.load_contents=['model','optimizer','extra']",
        "declare-data": "data.shuffle=true unless the order is meant",
    },
    "search_r1": {
        "roll-back": "actor_rollout_ref.model.path=<actor/global_step_N, N below {onset}>; it has no resume of its own",
        "longer-answers": "double data.max_response_length=",
        "other-kl-estimator": "actor_rollout_ref.actor.kl_loss_type=mse (k2)",
        "fewer-epochs": "actor_rollout_ref.actor.ppo_epochs=1",
        "mend-critic": "trainer.critic_warmup=20, a third of critic.optim.lr=, critic.cliprange_value=0.5",
        "mend-tool": "actor_rollout_ref.actor.state_masking=true keeps what the tool returns out of the loss",
    },
    "easyr1": {
        "roll-back": "trainer.load_checkpoint_path=<the newest global_step_N with N below {onset}>",
        "longer-answers": "double data.max_response_length=",
        "unpay-length": "worker.actor.loss_avg_mode=token",
        "other-kl-estimator": "algorithm.kl_penalty=mse (k2)",
        "fewer-epochs": "worker.actor.ppo_epochs=1",
        "narrow-clip": "worker.actor.clip_ratio_low=0.2 worker.actor.clip_ratio_high=0.28",
        "steadier-reward": "double worker.rollout.n= or data.rollout_batch_size=",
        "mend-critic": "trainer.critic_warmup=20, a third of worker.critic.optim.lr=, or algorithm.adv_estimator=grpo",
        "declare-data": "data.shuffle=true unless the order is meant",
    },
    "openrlhf": {
        "roll-back": "--ckpt.load_enable with no checkpoint newer than step {onset} left in --ckpt.path",
        "longer-answers": "double --rollout.max_new_tokens, or --reward.overlong_buffer_len for a soft penalty near it",
        "correct-mismatch": "--algo.advantage.is_correction_mode with --algo.advantage.is_correction_threshold, and"
        " --rollout.top_p 1.0",
        "other-normaliser": "--algo.advantage.no_std_norm",
        "other-kl-estimator": "--algo.kl.estimator k2",
        "fewer-epochs": "--train.max_epochs 1",
        "narrow-clip": "--actor.eps_clip_low_high 0.2 0.28",
        "steadier-reward": "double --rollout.n_samples_per_prompt or --rollout.batch_size",
        "mend-critic": "a third of --critic.adam.lr, --critic.value_clip 0.5",
    },
    "skyrl": {
        "longer-answers": "double generator.sampling_params.max_generate_length=",
        "unpay-length": "trainer.algorithm.loss_reduction=token_mean",
        "other-normaliser": "trainer.algorithm.grpo_norm_by_std=false",
        "fewer-epochs": "trainer.update_epochs_per_batch=1",
        "narrow-clip": "trainer.algorithm.eps_clip_low=0.2 trainer.algorithm.eps_clip_high=0.28",
        "steadier-reward": "double generator.n_samples_per_prompt= or trainer.train_batch_size=",
    },
}
"""What a remedy means in a trainer beyond the knobs it turns, by remedy id; where a person must do it, its keys."""


def how(
    trainer: str,
    advice: RemedyAdvice,
    config: Mapping[str, Any],
    *,
    onset: int,
    highest: float | None = None,
    rate: float | None = None,
) -> str:
    """The change as the trainer's user would type it, or "" when we know no key of this trainer for it.

    Where the configuration is not known, `rate` is the learning rate that must have been set, if the log tells
    (`configured_rate`), and `highest` the highest that was logged.
    """
    keys = KNOB_KEYS.get(trainer, {})
    procedure = PROCEDURES.get(trainer, {}).get(advice.id)
    parts = [procedure.format(onset=onset)] if procedure else []
    reasons: list[str] = []
    for knob, (before, after) in advice.change.items():
        key = keys.get(knob)
        if key is None or after is None:
            continue
        parts.append(key.template.format(value=_value(key, before, after, config, highest, rate)))
        if key.why_restart not in reasons:
            reasons.append(key.why_restart)
    if not parts:
        return ""
    if reasons:
        return f"{'; '.join(parts)}; needs a restart because {' and '.join(reasons)}"
    return "; ".join(parts)


def configured_rate(logged: Sequence[float]) -> float | None:
    """The learning rate that was set, where the log shows it: the largest, where it stayed so for at least half of the
    rows, up to the last. One that decays doesn't show it."""
    highest = max(logged, default=0.0)
    level = len(logged) - next((place for place, value in enumerate(logged) if value == highest), 0)
    held = all(value == highest for value in logged[-level:]) if level else False
    return highest if held and highest > 0 and level >= max(_HELD, len(logged) / 2) else None


def _value(
    key: Key,
    before: float | None,
    after: float,
    config: Mapping[str, Any],
    highest: float | None,
    rate: float | None,
) -> str:
    if not key.scales:
        return f"{after:g}"
    factor = after / before if before else after
    configured = _at(config, key.scales) or rate
    if configured:
        return f"{configured * factor:g}"
    seen = f" ({highest:.3g} is the highest logged)" if highest else ""
    return f"<{factor:g} x what it was set to{seen}>"


def _at(config: Mapping[str, Any], key: str) -> float | None:
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    if isinstance(node, str):  # YAML reads 1e-6 as text
        try:
            node = float(node)
        except ValueError:
            return None
    if not isinstance(node, (int, float)) or isinstance(node, bool):
        return None
    return float(node) if abs(node) < LARGEST else None
