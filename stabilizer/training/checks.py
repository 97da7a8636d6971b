"""What types cannot say of a configuration, in one place, and which of its settings are knobs."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from stabilizer.core.algorithms import ALGORITHMS
from stabilizer.core.knobs import GROUPED, KNOBS
from stabilizer.training.rewards.config import read_specs
from stabilizer.training.tasks import DATA, HELD_OUT, TASKS

if TYPE_CHECKING:
    from stabilizer.training.settings import PolicyConfig, TrainConfig


def check(config: TrainConfig) -> None:
    """Everything that types cannot say, in one place; raises ValueError with key, value and what is allowed."""
    _check_choices(config)
    c = config
    rules = (
        ("task", c.task, c.task in (*TASKS, DATA), f"one of {', '.join((*TASKS, DATA))}"),
        ("data.path", c.data.path, bool(c.data.path) == (c.task == DATA),
         f"a file or a data set with task: {DATA}, and empty with a built-in task"),
        ("data.held_out", c.data.held_out, c.data.held_out >= 0, "0 (none), a share below 1, or a count"),
        ("data.max_prompt_tokens", c.data.max_prompt_tokens, c.data.max_prompt_tokens >= 0, "0 (no limit) or more"),
        ("model", c.model, c.task != DATA or c.model != "builtin",
         "a folder or a name on the hub with a data set of your own; to try things out, builtin:addition is tiny"),
        ("reward.functions", c.reward.functions, c.task != DATA or bool(c.reward.functions),
         "at least one with a data set, for example [numeric] or [reward.py:mine]"),
        ("reward.timeout_s", c.reward.timeout_s, 0 < c.reward.timeout_s <= 86400, "above 0 and at most a day"),
        ("reward.import_timeout_s", c.reward.import_timeout_s, 0 < c.reward.import_timeout_s <= 86400,
         "above 0 and at most a day"),
        ("reward.memory_gb", c.reward.memory_gb, c.reward.memory_gb == 0 or c.reward.memory_gb >= 0.25,
         "0 (no limit) or at least 0.25"),
        ("algorithm", c.algorithm, c.algorithm in ALGORITHMS, f"one of {', '.join(ALGORITHMS)}"),
        ("steps", c.steps, c.steps >= 1, "at least 1"),
        ("seed", c.seed, c.seed >= 0, "0 or more"),
        ("threads", c.threads, 1 <= c.threads <= 1024, "between 1 and 1024"),
        ("optim.lr", c.optim.lr, 0 < c.optim.lr <= 1, "above 0 and at most 1"),
        ("optim.warmup_steps", c.optim.warmup_steps, c.optim.warmup_steps >= 0, "0 or more"),
        ("optim.weight_decay", c.optim.weight_decay, 0 <= c.optim.weight_decay <= 1, "between 0 and 1"),
        ("optim.betas", c.optim.betas, all(0 <= beta < 1 for beta in c.optim.betas), "two numbers in [0, 1)"),
        ("optim.adaptive_clip", c.optim.adaptive_clip, c.optim.adaptive_clip == 0 or c.optim.adaptive_clip > 1,
         "0 (off) or above 1, in units of the median gradient norm"),
        ("optim.micro_batch", c.optim.micro_batch, c.optim.micro_batch >= 0, "0 (all) or more"),
        ("policy.gate", c.policy.gate, 0 < min(c.policy.gate) <= max(c.policy.gate) <= 100,
         "two numbers above 0 and at most 100"),
        ("policy.dual_clip", c.policy.dual_clip, c.policy.dual_clip == 0 or c.policy.dual_clip > 1, "0 or above 1"),
        ("policy.ratio_guard", c.policy.ratio_guard, c.policy.ratio_guard == 0 or c.policy.ratio_guard > 1,
         "0 or above 1"),
        ("policy.advantage_clip", c.policy.advantage_clip, c.policy.advantage_clip >= 0, "0 (off) or more"),
        ("policy.kl_target", c.policy.kl_target, c.policy.kl_target >= 0, "0 (off) or more"),
        ("policy.kl_target", c.policy.kl_target, c.policy.kl_target == 0 or c.policy.beta > 0,
         "0 while policy.beta = 0, since an adaptive coefficient scales beta"),
        ("policy.kl_horizon", c.policy.kl_horizon, c.policy.kl_horizon >= 1, "at least 1"),
        ("policy.reference_every", c.policy.reference_every, c.policy.reference_every >= 0, "0 (never) or more"),
        ("policy.reference_share", c.policy.reference_share, 0 < c.policy.reference_share <= 1, "above 0, at most 1"),
        ("policy.reference_share", c.policy.reference_share, c.policy.reference_share == 1 or not c.lora.rank,
         "1 with lora.rank above 0: adapters have no mean"),
        ("policy.gamma", c.policy.gamma, 0 < c.policy.gamma <= 1, "above 0 and at most 1"),
        ("policy.resample_batches", c.policy.resample_batches, 1 <= c.policy.resample_batches <= 64,
         "between 1 and 64"),
        ("policy.lam", c.policy.lam, 0 <= c.policy.lam <= 1, "between 0 and 1"),
        ("policy.off_policy_mask", c.policy.off_policy_mask, c.policy.off_policy_mask >= 0, "0 (off) or more"),
        ("policy.overlong_factor", c.policy.overlong_factor, c.policy.overlong_factor >= 0, "0 or more"),
        ("policy.dual_clip", c.policy.dual_clip, c.policy.dual_clip == 0 or c.policy.surrogate == "clip",
         f"0 with policy.surrogate={c.policy.surrogate}: it bounds the clipped surrogate alone"),
        ("policy.mismatch_cap", c.policy.mismatch_cap, c.policy.mismatch_cap >= 1, "at least 1"),
        ("critic.kind", c.critic.kind, (c.critic.kind != "none") == (c.policy.advantage == "gae"),
         "separate or shared with policy.advantage=gae, and none with any other; algorithm=ppo sets both"),
        ("critic.lr", c.critic.lr, 0 < c.critic.lr <= 1, "above 0 and at most 1"),
        ("critic.coef", c.critic.coef, c.critic.coef > 0, "above 0"),
        ("critic.clip_range", c.critic.clip_range, c.critic.clip_range >= 0, "0 (off) or more"),
        ("critic.warmup_steps", c.critic.warmup_steps, c.critic.warmup_steps >= 0, "0 or more"),
        ("lora.rank", c.lora.rank, 0 <= c.lora.rank <= 1024, "between 0 (off) and 1024"),
        ("lora.alpha", c.lora.alpha, c.lora.alpha > 0, "above 0"),
        ("validation.every", c.validation.every, c.validation.every >= 0, "0 (never) or more"),
        ("validation.problems", c.validation.problems, 1 <= c.validation.problems <= HELD_OUT or c.task == DATA,
         f"between 1 and {HELD_OUT}"),
        ("validation.samples", c.validation.samples, 0 <= c.validation.samples <= 256, "between 0 and 256"),
        ("validation.temperature", c.validation.temperature, 0 < c.validation.temperature <= 2, "above 0, at most 2"),
        ("validation.patience", c.validation.patience, c.validation.patience >= 0, "0 (never) or more"),
        ("checkpoint.every", c.checkpoint.every, c.checkpoint.every >= 0, "0 (never) or more"),
        ("checkpoint.keep", c.checkpoint.keep, c.checkpoint.keep >= 2, "at least 2, so that one may be damaged"),
        ("checkpoint.ring", c.checkpoint.ring, 0 <= c.checkpoint.ring <= 64, "between 0 (none) and 64"),
        ("checkpoint.ring_mb", c.checkpoint.ring_mb, c.checkpoint.ring_mb >= 0, "0 (none) or more"),
        ("samples.every", c.samples.every, c.samples.every >= 0, "0 (never) or more"),
        ("samples.count", c.samples.count, c.samples.count >= 0, "0 or more"),
        ("search.url", c.search.url, not c.search.url or c.task in ("search", DATA),
         f"empty with task: {c.task}; what can be searched is the task `search`, or data of your own (data.path)"),
        ("search.corpus", c.search.corpus, not c.search.corpus or c.task == DATA,
         f"empty with task: {c.task}; it is for data of your own (data.path), `search` has its documents built in"),
        ("search.corpus", c.search.corpus, not (c.search.corpus and c.search.url),
         "empty with search.url: the documents are the retriever's"),
        ("search.topk", c.search.topk, c.search.topk >= 1, "at least 1"),
        ("search.max_turns", c.search.max_turns, c.search.max_turns >= 1, "at least 1"),
        ("search.max_chars", c.search.max_chars, c.search.max_chars >= 1, "at least 1"),
        ("search.timeout_s", c.search.timeout_s, c.search.timeout_s > 0, "above 0"),
        ("rollout.group_size", c.rollout.group_size, c.rollout.group_size >= 2 or c.policy.advantage not in GROUPED,
         f"at least 2 with policy.advantage={c.policy.advantage}, because an advantage compares the answers of a group:"
         " with one answer it is always 0"),
        ("policy.filter_groups", c.policy.filter_groups,
         c.policy.filter_groups == "off" or c.rollout.group_size >= 2,
         "off with rollout.group_size = 1: every group is alike in itself then, and all of them would be left out"),
        ("rollout.vllm.max_model_len", c.rollout.vllm.max_model_len, (c.rollout.vllm.max_model_len or 2) >= 2,
         "at least 2, one token of prompt and one of completion"),
        ("rollout.vllm.max_num_seqs", c.rollout.vllm.max_num_seqs, c.rollout.vllm.max_num_seqs >= 1, "at least 1"),
        ("rollout.vllm.kv_cache_gb", c.rollout.vllm.kv_cache_gb, c.rollout.vllm.kv_cache_gb > 0, "above 0"),
        ("rollout.vllm.gpu_memory", c.rollout.vllm.gpu_memory, 0 < c.rollout.vllm.gpu_memory < 1, "between 0 and 1"),
        ("rollout.vllm.probe", c.rollout.vllm.probe, c.rollout.vllm.probe >= 1,
         "at least 1: nothing else shows stale weights"),
        ("rollout.vllm.tolerance", c.rollout.vllm.tolerance, (c.rollout.vllm.tolerance or 0) >= 0,
         "0 or more, or null"),
        ("policy.minibatches", c.policy.minibatches, c.policy.minibatches <= c.rollout.prompts * c.rollout.group_size,
         f"at most prompts x group_size = {c.rollout.prompts * c.rollout.group_size}, or a minibatch would be empty"),
    )  # fmt: skip
    for key, value, allowed, rule in rules:
        if not allowed:
            raise ValueError(f"{key} = {value!r}: must be {rule}")
    read_specs(config.reward)
    for name, (key, value) in _knob_values(config).items():
        knob = KNOBS[name]
        if not knob.choices and not knob.low <= value <= knob.high:
            raise ValueError(f"{key} = {value!r}: must be between {knob.low:g} and {knob.high:g}")


def initial_knobs(config: TrainConfig) -> dict[str, float | str]:
    """The knobs of `controls.KNOBS` as the configuration sets them; the factor on the learning rate starts at 1.

    Those that could not act in this run are not among them: turning one would be believed, and change nothing.
    """
    idle = _idle_knobs(config.policy)
    values = {name: value for name, (_, value) in _knob_values(config).items() if name not in idle}
    frozen = {"control/actor_frozen": "off"} if config.critic.kind != "none" else {}
    return {"control/lr_scale": 1.0} | values | frozen


def starting_knobs(config: TrainConfig) -> dict[str, float]:
    """The same as they are logged: a switch by the number of its setting."""
    choices = {name: KNOBS[name].choices for name in KNOBS}
    return {
        name: choices[name].index(value) if isinstance(value, str) else float(value)
        for name, value in initial_knobs(config).items()
    }


def _idle_knobs(policy: PolicyConfig) -> set[str]:
    idle = set() if policy.advantage in GROUPED else {"control/advantage", "control/filter_groups"}
    if policy.kl_in == "reward":
        idle.add("control/kl_kind")  # kinds are there for their gradients, of which a reward has none
    if policy.surrogate in ("sapo", "reinforce"):
        idle |= {"control/epsilon_low", "control/epsilon_high"}
    return idle


_KNOBS = (
    ("policy", ("beta", "kl_kind", "epsilon_low", "epsilon_high", "entropy_coef", "entropy_target", "inner_epochs",
                "minibatches", "filter_groups", "mask_truncated", "overlong_buffer", "mismatch")),
    ("optim", ("max_grad_norm",)),
    ("rollout", ("prompts", "group_size", "temperature", "max_completion")),
)  # fmt: skip


def _knob_values(config: TrainConfig) -> dict[str, tuple[str, Any]]:
    """Knob -> (key, value) of the settings that are knobs."""
    keys = [f"{group}.{name}" for group, names in _KNOBS for name in names]
    keys += ["policy.advantage"] if config.policy.advantage in GROUPED else []
    values = {f"control/{key.split('.')[1]}": (key, operator.attrgetter(key)(config)) for key in keys}
    return values | {
        "control/head_float32": ("head_float32", config.head_float32),
        "control/validate_every": ("validation.every", config.validation.every),
    }


def _check_choices(config: TrainConfig) -> None:
    for key, value, hint in _leaves(config):
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ValueError(f"{key} = {value!r}: must be one of {', '.join(get_args(hint))}")


def _leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    hints = get_type_hints(type(config))
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{prefix}{f.name}.")
        else:
            yield f"{prefix}{f.name}", value, hints[f.name]
