"""TRL's GRPOConfig, RLOOConfig and PPOConfig: what each version refuses.

The main rule is "the batch must hold whole groups", but the meaning of "batch" changed three times:

    0.14         none: every device generates `per_device_train_batch_size` prompts times `num_generations`
    0.15, 0.16   processes x per_device_train_batch_size; gradient accumulation does not count
    0.17         processes x per_device_train_batch_size x gradient_accumulation_steps
    0.18 on      generation_batch_size, by default processes x per_device_train_batch_size x steps_per_generation

A group of one is refused from 0.15 on: there is nothing to compare it with. Up to 0.17 the check runs when the
trainer is made, from 0.18 on when the configuration is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stabilizer.trainers.constraints import Settings, Violation, divisors, near_multiple, nearest, positive

_BOTH = "'generation_batch_size' and 'steps_per_generation' can not be both configured"


def uses_server(settings: Settings) -> bool:
    """Whether vLLM has GPUs of its own: always up to 0.17, in server mode after that."""
    if not settings.flag("use_vllm"):
        return False
    return settings.version < (0, 18, 0) or settings.text("vllm_mode") == "server"


def world(settings: Settings) -> int | None:
    """Training processes: as given, else one per GPU less the one of a vLLM server, else unknown."""
    if settings.processes is not None:
        return settings.processes
    if settings.gpus is None:
        return None
    return settings.gpus - uses_server(settings)


def grpo(settings: Settings) -> Iterator[Violation]:
    """What GRPOConfig and GRPOTrainer refuse."""
    yield from _groups(settings, "GRPO")
    yield from _grpo_only(settings)
    yield from _vllm(settings)


def rloo(settings: Settings) -> Iterator[Violation]:
    """What RLOOConfig refuses. Up to 0.21 it was another trainer, with `rloo_k` for the group size."""
    if settings.version >= (0, 22, 0):
        yield from _groups(settings, "RLOO")
        yield from _vllm(settings)
    else:
        yield from _mini_batches(settings, "rloo_config.py and RLOOTrainer.__init__")
        local = _product(settings, "per_device_train_batch_size", "gradient_accumulation_steps")
        k = settings.number("rloo_k") or 2
        if local and local % k:
            text = f"local_batch_size ({local}) must be a multiple of rloo_k ({k})"
            yield _refuse(
                settings, "rloo-k", "rloo_k", text, f"rloo_k {nearest(k, divisors(local, 2))}", "RLOOTrainer.__init__"
            )


def ppo(settings: Settings) -> Iterator[Violation]:
    """What the PPO of 0.12 to 1.12 refuses; up to 0.11 another PPO counted in `batch_size` and `mini_batch_size`."""
    if settings.version < (0, 12, 0):
        batch, mini = settings.number("batch_size") or 128, settings.number("mini_batch_size") or 128
        backward = mini * (settings.number("gradient_accumulation_steps") or 1)
        if backward < 1 or batch % backward:
            text = (
                f"batch_size ({batch}) must be a multiple of mini_batch_size * gradient_accumulation_steps ({backward})"
            )
            yield _refuse(
                settings,
                "ppo-backward-batch",
                "batch_size",
                text,
                f"batch_size {near_multiple(batch, max(backward, 1))}",
                "ppo_config.py PPOConfig.__post_init__",
            )
        return
    yield from _mini_batches(settings, "ppo_trainer.py PPOTrainer.__init__")
    local = _product(settings, "per_device_train_batch_size", "gradient_accumulation_steps")
    minis = settings.number("num_mini_batches")
    if settings.flag("whiten_rewards") and local and minis and local % minis == 0 and local // minis < 8:
        text = f"per-rank minibatch size {local // minis} is insufficient for whitening; at least 8 are needed"
        change = f"whiten_rewards False, or per_device_train_batch_size x gradient_accumulation_steps {8 * minis}"
        yield _refuse(settings, "ppo-whiten", "whiten_rewards", text, change, "ppo_trainer.py PPOTrainer.__init__")
    if settings.text("kl_estimator") not in ("none", "k1", "k3"):
        text = f"kl_estimator {settings.get('kl_estimator')!r} is not known"
        yield _refuse(
            settings, "ppo-kl-estimator", "kl_estimator", text, "kl_estimator k1 or k3", "ppo_config.py PPOConfig"
        )


# --- whole groups ---------------------------------------------------------------------------------------------------


def _groups(settings: Settings, name: str) -> Iterator[Violation]:
    sizes = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
    yield from positive(
        settings,
        "trl",
        "an empty batch fails in the data loader, or divides by zero in the check",
        *sizes,
        "generation_batch_size",
        "per_device_eval_batch_size",
    )
    group, processes = settings.number("num_generations"), world(settings)
    if settings.version < (0, 15, 0) or group is None:
        return
    if group < 2:
        text = (
            f"{name} requires at least 2 generations per prompt to calculate the advantages; num_generations is {group}"
        )
        yield _refuse(settings, "generations-min", "num_generations", text, "num_generations 2 or more")
    if settings.version >= (0, 18, 0) and _is_set(settings, "generation_batch_size", "steps_per_generation"):
        text = f"{_BOTH} at the same time"
        change = "one of the two; each follows from the other"
        yield _refuse(settings, "generation-batch-both", "generation_batch_size", text, change)
        return
    if processes is None:
        return
    if processes < 1:
        yield Violation(
            rule="trl/no-process-left",
            key="vllm_mode",
            message=f"the vLLM server takes every GPU ({settings.gpus}); no process is left to train",
            expected="another GPU, or vllm_mode colocate",
            source="accelerate launch",
        )
        return
    yield from _global_batch(settings, processes)
    yield from _whole_groups(settings, processes, group)
    yield from _eval_groups(settings, processes)


def _global_batch(settings: Settings, processes: int) -> Iterator[Violation]:
    given, per_device = settings.number("generation_batch_size"), settings.number("per_device_train_batch_size")
    if settings.version < (0, 18, 0) or given is None or not per_device or per_device < 1 or given < 1:
        return
    batch = per_device * processes
    # Up to 0.19.0 the check read `given % per_device * processes`, which Python takes as `(given % per_device) * ...`.
    fails = given % per_device if settings.version < (0, 19, 1) else given % batch
    if fails:
        text = f"generation_batch_size ({given}) must be divisible by the global batch size ({batch})"
        change = (
            f"generation_batch_size {near_multiple(given, batch)} "
            f"(a multiple of {processes} processes x {per_device} per device)"
        )
        yield _refuse(settings, "generation-batch-global", "generation_batch_size", text, change)


def _whole_groups(settings: Settings, processes: int, group: int) -> Iterator[Violation]:
    per_device = settings.number("per_device_train_batch_size")
    if group < 2 or per_device is None or per_device < 1:
        return
    steps_key, steps = _steps(settings)
    if steps is None or steps < 1:
        return
    given = settings.number("generation_batch_size") if settings.version >= (0, 18, 0) else None
    batch = given if given is not None else processes * per_device * steps
    if batch < 1 or batch % group == 0:
        return
    valid = divisors(batch, 2)
    if given is not None:
        text = f"generation_batch_size ({batch}) must be divisible by num_generations ({group})"
        step = math.lcm(group, processes * per_device)
        changes = [f"generation_batch_size {near_multiple(batch, step)} (whole groups and whole steps)"]
    else:
        factors = f"{processes} x {per_device}" + (f" x {steps}" if steps_key else "")
        text = f"the batch of {factors} = {batch} completions must be divisible by num_generations ({group})"
        unit = group // math.gcd(group, processes * steps)
        changes = [f"per_device_train_batch_size {near_multiple(per_device, unit)}"]
        if steps_key:
            unit = group // math.gcd(group, processes * per_device)
            changes.append(f"{steps_key} {near_multiple(steps, unit)}")
    choices = f"num_generations {nearest(group, valid)}" if valid else "no num_generations fits this batch"
    counted = "" if steps_key or given is not None else f"; gradient accumulation does not count in {_v(settings)}"
    change = f"{choices}; or {', or '.join(changes)}"
    yield _refuse(settings, "generations-divide-batch", "num_generations", text + counted, change)


def _eval_groups(settings: Settings, processes: int) -> Iterator[Violation]:
    """0.20 and 0.21 check nothing here; from 0.26.1 on evaluation may have a group size of its own."""
    evaluates = settings.text("eval_strategy") not in ("no", "none", "false", "intervalstrategy.no")
    if not evaluates or (0, 20, 0) <= settings.version < (0, 22, 0):
        return
    own = settings.number("num_generations_eval") if settings.version >= (0, 26, 1) else None
    key = "num_generations_eval" if own else "num_generations"
    group, per_device = own or settings.number("num_generations"), settings.number("per_device_eval_batch_size")
    if group is None or per_device is None or per_device < 1 or group == 0:
        return
    batch = processes * per_device
    if batch % group or (group < 2 and settings.version < (0, 20, 0)):
        unit = abs(group) // math.gcd(group, processes)
        text = f"the global eval batch size ({per_device} * {processes} = {batch}) must be divisible by {key} ({group})"
        change = (
            f"per_device_eval_batch_size {near_multiple(per_device, unit)}; "
            f"or {key} {nearest(group, divisors(batch, 2))}"
        )
        yield _refuse(settings, "eval-generations-divide-batch", key, text, change)


def _mini_batches(settings: Settings, where: str) -> Iterator[Violation]:
    sizes = ("per_device_train_batch_size", "gradient_accumulation_steps")
    yield from positive(settings, "trl", _at(settings, where), *sizes, "num_mini_batches")
    local, minis = _product(settings, *sizes), settings.number("num_mini_batches")
    if not local or not minis or local < 1 or minis < 1 or local % minis == 0:
        return
    text = f"local_batch_size ({local}) must be a multiple of num_mini_batches ({minis})"
    yield _refuse(
        settings, "mini-batches", "num_mini_batches", text, f"num_mini_batches {nearest(minis, divisors(local))}", where
    )


# --- other settings that exclude each other -------------------------------------------------------------------------


def _grpo_only(settings: Settings) -> Iterator[Violation]:
    version = settings.version
    liger = settings.flag("use_liger_loss") or (version >= (0, 27, 0) and settings.flag("use_liger_kernel"))
    if (0, 18, 0) <= version < (1, 4, 0) and settings.get("delta") is not None and liger:
        yield _refuse(settings, "liger-two-sided", "delta", "Liger does not support two-sided GRPO loss", "delta None")
    if version >= (0, 28, 0) and settings.get("log_completions_hub_repo") is not None:
        if not settings.flag("log_completions"):
            text = "log_completions_hub_repo is set, but log_completions is False"
            yield _refuse(settings, "completions-hub-repo", "log_completions", text, "log_completions True")
    if version >= (0, 28, 0) and settings.flag("sync_ref_model") and settings.real("beta") == 0.0:
        text = "sync_ref_model=True while beta=0.0: there is no reference model to synchronize"
        change = "sync_ref_model False, or a beta above 0 such as 0.001"
        yield _refuse(settings, "sync-without-reference", "sync_ref_model", text, change, "GRPOTrainer.__init__")
    if version >= (1, 0, 0) and settings.text("loss_type") == "vespo" and settings.flag("use_vllm"):
        mode = settings.text("vllm_importance_sampling_mode")
        if mode not in ("token_truncate", "token_mask") and settings.flag("vllm_importance_sampling_correction"):
            text = f"VESPO loss requires a token-level importance sampling mode; got {mode}"
            change = "vllm_importance_sampling_mode token_truncate or token_mask"
            key = "vllm_importance_sampling_mode"
            yield _refuse(settings, "vespo-mode", key, text, change, "GRPOTrainer.__init__")
    if version >= (1, 6, 0):
        yield from _clip_bounds(settings)
    yield from _reward_weights(settings)


def _reward_weights(settings: Settings) -> Iterator[Violation]:
    weights, functions = settings.get("reward_weights"), settings.get("reward_funcs")
    if isinstance(weights, (list, tuple)) and isinstance(functions, (list, tuple)) and len(weights) != len(functions):
        text = f"number of reward weights ({len(weights)}) must match number of reward functions ({len(functions)})"
        change = f"{len(functions)} weights, one for each of {', '.join(map(str, functions))}"
        yield _refuse(settings, "reward-weights", "reward_weights", text, change, "GRPOTrainer.__init__")


def _clip_bounds(settings: Settings) -> Iterator[Violation]:
    prefix = "vllm_importance_sampling"
    low, high = settings.real(f"{prefix}_clip_min"), settings.real(f"{prefix}_clip_max")
    cap = settings.real(f"{prefix}_cap")
    high = cap if cap is not None else high
    if low is not None and high is not None and low >= high:
        text = f"{prefix}_clip_min ({low:g}) must be less than {prefix}_clip_max ({high:g})"
        yield _refuse(settings, "is-clip-order", f"{prefix}_clip_min", text, f"{prefix}_clip_min below {high:g}")
    truncates = settings.text(f"{prefix}_mode") in ("token_truncate", "sequence_truncate")
    if settings.flag(f"{prefix}_correction") and truncates and low is None and high is None:
        text = f"at least one of {prefix}_clip_min and {prefix}_clip_max must be set in a *_truncate mode"
        yield _refuse(settings, "is-truncate-unbounded", f"{prefix}_clip_max", text, f"{prefix}_clip_max 3.0")


def _vllm(settings: Settings) -> Iterator[Violation]:
    version, processes = settings.version, world(settings)
    if version >= (1, 9, 0) and settings.flag("auto_find_batch_size"):
        text = "auto_find_batch_size is not supported: a batch made smaller would cut groups apart"
        yield _refuse(settings, "auto-find-batch-size", "auto_find_batch_size", text, "auto_find_batch_size False")
    if version >= (1, 4, 0):
        for key in ("parallelism_config.cp_size", "parallelism_config.sp_size"):
            if (settings.number(key) or 1) > 1:
                yield _refuse(settings, "sequence-parallel", key, f"{key} above 1 is not supported yet", f"{key} 1")
    if not settings.flag("use_vllm") or processes is None:
        return
    if version < (0, 16, 0):
        if settings.text("vllm_device") == "auto" and settings.gpus is not None and processes >= settings.gpus:
            text = f"the device for vLLM (cuda:{processes}) is not available: {processes} processes take all of them"
            change = f"--num_processes {settings.gpus - 1}"
            yield _refuse(settings, "vllm-device", "use_vllm", text, change, "GRPOTrainer.__init__")
    elif version >= (0, 18, 0) and settings.text("vllm_mode") == "colocate":
        size = settings.number("vllm_tensor_parallel_size") or 1
        if processes % size:
            text = f"vllm_tensor_parallel_size ({size}) must divide the number of processes ({processes})"
            change = f"vllm_tensor_parallel_size {nearest(size, divisors(processes))}"
            key = "vllm_tensor_parallel_size"
            yield _refuse(settings, "vllm-tensor-parallel", key, text, change, "vLLM set-up")


def _refuse(
    settings: Settings, rule: str, key: str, message: str, expected: str, where: str | None = None
) -> Violation:
    source = _at(settings, where) if where else _where(settings)
    return Violation(rule=f"trl/{rule}", key=key, message=message, expected=expected, source=source)


# --- small helpers --------------------------------------------------------------------------------------------------


def _steps(settings: Settings) -> tuple[str, int | None]:
    """The third factor of the batch and the key that sets it; no key where that version has no third factor."""
    if settings.version < (0, 17, 0):
        return "", 1
    if settings.version >= (0, 18, 0) and settings.get("steps_per_generation") is not None:
        return "steps_per_generation", settings.number("steps_per_generation")
    return "gradient_accumulation_steps", settings.number("gradient_accumulation_steps")


def _is_set(settings: Settings, *keys: str) -> bool:
    return all(settings.get(key) is not None for key in keys)


def _product(settings: Settings, *keys: str) -> int | None:
    values = [settings.number(key) for key in keys]
    return None if None in values else math.prod(value for value in values if value is not None)


def _v(settings: Settings) -> str:
    return "trl " + ".".join(map(str, settings.version))


def _at(settings: Settings, where: str) -> str:
    return f"{_v(settings)}, {where}"


def _where(settings: Settings) -> str:
    in_trainer = settings.version < (0, 18, 0)
    return _at(settings, "GRPOTrainer.__init__" if in_trainer else "__post_init__ of the config")
