"""ms-swift's GRPO: what `RLHFArguments` and `RolloutTrainerArgumentsMixin` refuse, 3.2 to 4.6.

"The batch must hold whole groups" counts as TRL's does, with changes of its own: up to 3.3 processes x
per_device_train_batch_size, in 3.4 times gradient_accumulation_steps, from 3.5 on generation_batch_size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stabilizer.trainers.constraints import Settings, Violation, divisors, near_multiple, nearest, positive

SIZES = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation", "generation_batch_size")


def ms_swift(settings: Settings) -> Iterator[Violation]:
    """What its GRPO refuses; other kinds of training have none of these rules."""
    if settings.text("rlhf_type") != "grpo":
        return
    source = _source(settings)
    wrong = list(positive(settings, "ms-swift", source, *SIZES))
    yield from wrong
    group = settings.number("num_generations")
    if group is not None and group < 2 and not settings.get("teacher_model"):
        text = "num_generations must be greater than 1 for GRPO"
        yield _refuse(
            settings, "generations-min", "num_generations", text, "8, or any from 2 on that divides the batch"
        )
    elif not wrong and group is not None:
        yield from _whole_groups(settings, group)
    yield from _vllm(settings)
    yield from _lengths(settings)
    yield from _liger(settings)


def _source(settings: Settings) -> str:
    place = "swift/arguments/rlhf_args.py" if settings.version >= (4, 0, 0) else "swift/llm/argument/rlhf_args.py"
    return f"ms-swift {'.'.join(map(str, settings.version))}, {place}"


def _refuse(settings: Settings, rule: str, key: str, message: str, expected: str) -> Violation:
    return Violation(
        rule=f"ms-swift/{rule}", key=key, message=message, expected=expected, source=_source(settings)
    )  # fmt: skip


def _whole_groups(settings: Settings, group: int) -> Iterator[Violation]:
    processes = settings.processes or settings.gpus
    device, passes = settings.number(SIZES[0]), settings.number(SIZES[1])
    if processes is None or device is None:
        return
    one = processes * device
    given, steps = settings.number("generation_batch_size"), settings.number("steps_per_generation")
    if settings.version >= (3, 5, 0) and given is not None:
        yield from _given_batch(settings, given, one, steps)
        batch: int | None = given
    elif settings.version >= (3, 5, 0):
        rounds = steps or passes
        batch = one * rounds if rounds else None
    else:
        batch = one if settings.version < (3, 4, 0) else one * passes if passes else None
    if batch is None or batch % group == 0:
        return
    key = "generation_batch_size" if given is not None else "num_generations"
    unit = math.lcm(group, one)
    yield _refuse(
        settings, "generations-divide-batch", key,
        f"generation_batch_size ({batch}) must be evenly divisible by num_generations ({group})",
        f"num_generations {nearest(group, divisors(batch, 2))}; or a batch of {near_multiple(batch, unit)}"
        f" ({processes} processes x {device} per device x {near_multiple(batch, unit) // one} passes)",
    )  # fmt: skip


def _given_batch(settings: Settings, given: int, one: int, steps: int | None) -> Iterator[Violation]:
    if steps is not None and given != one * steps:
        text = (
            f"generation_batch_size ({given}) must equal per_device_train_batch_size * world_size *"
            f" steps_per_generation = {one * steps}"
        )
        yield _refuse(settings, "generation-batch-both", "generation_batch_size", text, "set one of the two")
    elif given % one:
        text = f"generation_batch_size ({given}) must be divisible by the global batch size ({one})"
        yield _refuse(settings, "generation-batch", "generation_batch_size", text, f"{near_multiple(given, one)}")


def _vllm(settings: Settings) -> Iterator[Violation]:
    uses, mode = settings.flag("use_vllm"), settings.text("vllm_mode")
    if settings.version >= (3, 12, 0):
        if uses and mode == "none":
            text = "vllm_mode is required when use_vllm is true"
            yield _refuse(settings, "vllm-mode", "vllm_mode", text, "colocate, or server with vllm_server_host")
        elif mode != "none" and not uses:
            text = "vllm_mode is not supported when use_vllm is false"
            yield _refuse(settings, "vllm-mode", "use_vllm", text, "use_vllm true")
    served = settings.get("vllm_server_host") or settings.get("vllm_server_base_url")
    if uses and mode == "server" and not served:
        text = "vllm_mode server needs vllm_server_host or vllm_server_base_url"
        yield _refuse(settings, "vllm-server", "vllm_server_host", text, "the host on which `swift rollout` runs")
    if settings.flag("async_generate") and mode != "server":
        text = "async generate require vllm_mode == server"
        yield _refuse(settings, "async-generate", "async_generate", text, "vllm_mode server, or async_generate false")
    if settings.flag("async_generate") and settings.get("multi_turn_scheduler"):
        text = "Currently, async_generate is not supported with multi-turn functionality"
        yield _refuse(settings, "async-multi-turn", "async_generate", text, "false")


def _lengths(settings: Settings) -> Iterator[Violation]:
    if (strategy := settings.text("truncation_strategy")) not in ("left", "delete", "none"):
        text = f"GRPO requires `truncation_strategy 'left' or 'delete'`; it is {strategy}"
        yield _refuse(settings, "truncation", "truncation_strategy", text, "delete, or left")
    rewards = settings.get("reward_funcs")
    named = rewards if isinstance(rewards, list) else [rewards]
    if "soft_overlong" in named and settings.number("soft_cache_length") is None:
        text = "The soft_cache_length must be set when using soft overlong rewards"
        yield _refuse(settings, "soft-overlong", "soft_cache_length", text, "a fifth of max_completion_length")
    if settings.version >= (4, 5, 0) and settings.real("warmup_ratio") and settings.number("warmup_steps"):
        text = "`warmup_ratio` and `warmup_steps` cannot be set at the same time"
        yield _refuse(settings, "warmup-both", "warmup_ratio", text, "one of the two")


_LIGER = (
    ("delta", "Liger loss does not support two-sided GRPO loss yet"),
    ("padding_free", "Liger loss does not support padding free yet"),
    ("log_entropy", "Liger loss does not support log entropy yet"),
    ("off_policy_sequence_mask_delta", "Liger loss does not support off-policy sequence masking yet"),
)


def _liger(settings: Settings) -> Iterator[Violation]:
    if not settings.flag("use_liger_kernel"):
        return
    told = [(key, text) for key, text in _LIGER if settings.get(key) not in (None, False, "false")]
    if (settings.number("sequence_parallel_size") or 1) > 1:
        told.append(("sequence_parallel_size", "Liger loss does not support sequence parallel yet"))
    if (settings.real("top_entropy_quantile") or 1.0) < 1.0:
        told.append(("top_entropy_quantile", "Liger loss does not support entropy mask yet"))
    if settings.text("advantage_estimator") not in ("grpo", "none"):
        told.append(("advantage_estimator", "Liger loss currently only support grpo advantage estimator"))
    for key, text in told:
        yield _refuse(settings, "liger", key, text, f"use_liger_kernel false, or without {key}")
