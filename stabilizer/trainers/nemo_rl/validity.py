"""NeMo-RL: a step's batches must be whole, and the loss's switches agree.

`grpo.*` counts prompts, `policy.*` samples.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.trainers.constraints import Refusals, Settings, Violation, divisors, near_multiple, nearest, positive

_GRPO, _LOSS = "NeMo-RL, nemo_rl/algorithms/grpo.py", "NeMo-RL, ClippedPGLossFn"
_BATCH = "NeMo-RL, nemo_rl/distributed/batched_data_dict.py"
_refuse = Refusals("nemo-rl", _GRPO)


def nemo_rl(settings: Settings) -> Iterator[Violation]:
    """Whole global batches in a step, whole micro-batches on a rank; then the switches."""
    keys = ("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt")
    sizes = ("policy.train_global_batch_size", "policy.train_micro_batch_size")
    wrong = list(positive(settings, "nemo-rl", _BATCH, *keys, *sizes))
    yield from wrong
    values = [settings.number(key) for key in (*keys, *sizes)]
    if not wrong and None not in values:
        prompts, group, size, micro = (value for value in values if value is not None)
        yield from _batches(settings, prompts, group, size, micro)
    yield from _switches(settings)


def ranks(settings: Settings) -> int:
    """Data-parallel ranks: the cluster in the configuration, else the GPUs said to be there, less model parallelism."""
    keys = {"cluster.gpus_per_node": 1, "cluster.num_nodes": 1}
    gpus = settings.placed(settings.processes or settings.gpus, keys)
    if settings.get("policy.generation.colocated.enabled") is not None:
        if not settings.flag("policy.generation.colocated.enabled"):  # generation has GPUs of its own
            gpus -= settings.number("policy.generation.colocated.resources.gpus_per_node") or 0
    section = "policy.megatron_cfg" if settings.flag("policy.megatron_cfg.enabled") else "policy.dtensor_cfg"
    names = (
        "tensor_parallel_size",
        "tensor_model_parallel_size",
        "context_parallel_size",
        "pipeline_model_parallel_size",
    )
    return gpus // max(settings.product(*(f"{section}.{name}" for name in names)), 1)


def _batches(settings: Settings, prompts: int, group: int, size: int, micro: int) -> Iterator[Violation]:
    step, parallel = prompts * group, ranks(settings)
    key = "policy.train_global_batch_size"
    if step % size:
        text = f"total batch size ({prompts} x {group} = {step}) is not a multiple of train_global_batch_size ({size})"
        change = f"{key} {nearest(size, [n for n in divisors(step) if n % max(parallel, 1) == 0])}"
        yield _refuse("global-divides-step", key, text, change, _BATCH)
    if parallel < 1:
        return
    if size % parallel:
        text = f"batch size ({size}) is not a multiple of shards ({parallel})"
        yield _refuse("global-batch-ranks", key, text, f"{key} {near_multiple(size, parallel)}", _BATCH)
    elif size // parallel % micro and not _packs(settings):
        text = (
            f"data dict size ({size} / {parallel} = {size // parallel}) is not a multiple of the provided "
            f"microbatch size ({micro})"
        )
        change = f"policy.train_micro_batch_size {nearest(micro, divisors(size // parallel))}"
        yield _refuse("micro-divides-rank", "policy.train_micro_batch_size", text, change, _BATCH)
    if settings.flag("loss_fn.force_on_policy_ratio") and size != step:
        text = (
            f"force_on_policy_ratio requires train_global_batch_size ({size}) == num_prompts_per_step * "
            f"num_generations_per_prompt ({step})"
        )
        yield _refuse("on-policy-ratio", key, text, f"{key} {step}")


def _packs(settings: Settings) -> bool:
    return settings.flag("policy.sequence_packing.enabled") or settings.flag("policy.dynamic_batching.enabled")


def _switches(settings: Settings) -> Iterator[Violation]:
    multiplier = settings.real("grpo.batch_multiplier")
    if multiplier is not None and multiplier > 1 and not settings.flag("grpo.use_dynamic_sampling"):
        text = f"batch_multiplier>1 can only be used if use_dynamic_sampling=True; it is {multiplier:g}"
        yield _refuse("batch-multiplier", "grpo.batch_multiplier", text, "1, or use_dynamic_sampling true")
    if settings.flag("loss_fn.sequence_level_importance_ratios") and settings.flag("loss_fn.token_level_loss"):
        text = "sequence-level importance sampling (e.g. GSPO) is mutually exclusive with token-level loss"
        yield _refuse("sequence-ratios", "loss_fn.token_level_loss", text, "token_level_loss false", _LOSS)
    truncates = settings.get("loss_fn.truncated_importance_sampling_ratio") is not None
    if truncates and not settings.flag("loss_fn.use_importance_sampling_correction"):
        key = "loss_fn.use_importance_sampling_correction"
        text = "truncated importance sampling is only supported when use_importance_sampling_correction is True"
        yield _refuse("truncated-is", key, text, f"{key} true", _LOSS)
    clip = settings.real("loss_fn.ratio_clip_c")
    if clip is not None and clip <= 1:
        text = f"ratio_clip_c must exceed 1 representing a lower bound of the ratios, got {clip:g}"
        yield _refuse("ratio-clip-c", "loss_fn.ratio_clip_c", text, "3 to 10, or null", _LOSS)
    if settings.flag("grpo.skip_reference_policy_logprobs_calculation"):
        if settings.real("loss_fn.reference_policy_kl_penalty") != 0.0:
            key = "loss_fn.reference_policy_kl_penalty"
            text = "grpo.skip_reference_policy_logprobs_calculation=True requires reference_policy_kl_penalty == 0"
            yield _refuse("skip-reference", key, text, f"{key} 0")
    if settings.get("grpo.stop_at_validation_metric") is not None:
        key = "grpo.stop_at_validation_threshold"
        if settings.get(key) is None:
            text = f"{key} must be set when grpo.stop_at_validation_metric is set"
            yield _refuse("stop-threshold", key, text, "a threshold such as 0.9")
        passes = settings.text("grpo.stop_at_validation_metric") == "pass_k"
        if passes and (settings.number("grpo.val_num_generations_per_prompt") or 1) <= 1:
            key = "grpo.val_num_generations_per_prompt"
            text = f"grpo.stop_at_validation_metric='pass_k' requires {key} > 1"
            yield _refuse("stop-pass-k", key, text, f"{key} 2 or more")
