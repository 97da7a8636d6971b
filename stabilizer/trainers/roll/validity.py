"""ROLL 0.3: what the configuration classes and their validation refuse."""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.trainers.constraints import Refusals, Settings, Violation, near_multiple, nearest, positive
from stabilizer.trainers.roll.config import PARALLEL, SAMPLED, TRAIN, devices

_BASE = "roll 0.3.0, roll/configs/base_config.py"
_SIZES = (
    "rollout_batch_size", "num_return_sequences_in_group", f"{TRAIN}per_device_train_batch_size",
    f"{TRAIN}gradient_accumulation_steps",
)  # fmt: skip
_refuse = Refusals("roll", _BASE)


def roll(settings: Settings) -> Iterator[Violation]:
    """Lengths, batches over the actor's ranks, and switches."""
    wrong = list(positive(settings, "roll", _BASE, *_SIZES))
    yield from wrong
    if not wrong:
        yield from _batches(settings)
    yield from _lengths(settings)
    yield from _switches(settings)


def ranks(settings: Settings) -> int | None:
    """Data-parallel ranks of the actor; None when its devices are not said."""
    gpus = devices(settings.get("actor_train.device_mapping")) or settings.gpus
    if not gpus:
        return None
    for size in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"):
        gpus //= max(settings.number(f"{PARALLEL}{size}") or 1, 1)
    return gpus


def _batches(settings: Settings) -> Iterator[Violation]:
    rollout, group = settings.number("rollout_batch_size"), settings.number("num_return_sequences_in_group")
    parallel = ranks(settings)
    if rollout is None or group is None or parallel is None:
        return
    if parallel < 1:
        text = "the model-parallel sizes take more GPUs than actor_train.device_mapping names"
        yield _refuse("model-parallel", "actor_train.device_mapping", text, "smaller sizes, or more devices")
        return
    megatron = "megatron" in settings.text("actor_train.strategy_args.strategy_name")
    if megatron and parallel > 1 and rollout % parallel:
        text = f"Rollout Batch Size ({rollout}) must be divisible by data parallel size ({parallel})"
        yield _refuse("batch-ranks", "rollout_batch_size", text,
                      f"rollout_batch_size {near_multiple(rollout, parallel)}",
                      "roll 0.3.0, roll/utils/config_utils.py validate_megatron_batch_size")  # fmt: skip
        return
    each = rollout * group // parallel
    one, passes = (settings.number(f"{TRAIN}{key}") or 1 for key in
                   ("per_device_train_batch_size", "gradient_accumulation_steps"))  # fmt: skip
    if each < one * passes:
        text = (
            f"{rollout} prompts x {group} answers / {parallel} ranks = {each} are fewer than the {one * passes} of"
            " per_device_train_batch_size x gradient_accumulation_steps: no update is made"
        )
        fitting = [count for count in range(1, passes + 1) if each % (one * count) == 0 and each >= one * count]
        yield _refuse("update-under-batch", f"{TRAIN}gradient_accumulation_steps", text,
                      f"gradient_accumulation_steps {nearest(passes, fitting)}",
                      "roll 0.3.0, roll/configs/base_config.py set_max_steps")  # fmt: skip


def _lengths(settings: Settings) -> Iterator[Violation]:
    answer, whole, prompt = (settings.number(key) for key in ("response_length", "sequence_length", "prompt_length"))
    if settings.config and answer is None and whole is None and "prompt_length" in settings.config:
        text = "response_length or sequence_length must be set"
        yield _refuse("length", "response_length", text, "response_length, or sequence_length")
    if whole is not None and prompt is not None and answer is None and whole <= prompt:
        text = f"sequence_length {whole} - prompt_length {prompt} leaves no token for an answer"
        yield _refuse("answer-length", "sequence_length", text, f"more than {prompt}")
    if settings.get("val_prompt_length") is not None and settings.get("val_sequence_length") is None:
        text = "val_prompt_length and val_sequence_length must be set simultaneously"
        yield _refuse("val-length", "val_sequence_length", text, "both of them, or none")


def _switches(settings: Settings) -> Iterator[Violation]:
    ratio = settings.real("async_generation_ratio")
    if ratio and settings.number("generate_opt_level") not in (1, None):
        text = "AsyncRLVRPipeline only support generate_opt_level 1"
        yield _refuse("async-level", "generate_opt_level", text, "1", "roll 0.3.0, roll/pipeline/rlvr/rlvr_config.py")
    if ratio and 0 < ratio < 1:
        text = "async_generation_ratio must be >= 1.0"
        yield _refuse("async-ratio", "async_generation_ratio", text, "1, or 0 for synchronous training",
                      "roll 0.3.0, roll/pipeline/rlvr/rlvr_config.py")  # fmt: skip
    engine = settings.text("actor_infer.strategy_args.strategy_name")
    if engine not in ("none", "vllm", "sglang"):
        text = f"the strategy of actor_infer must be vllm or sglang, got {engine}"
        yield _refuse("engine", "actor_infer.strategy_args.strategy_name", text, "vllm or sglang")
    if settings.flag("is_pure_opd") and settings.flag("use_opd"):
        text = "is_pure_opd=True and use_opd=True are mutually exclusive"
        yield _refuse("distillation", "use_opd", text, "one of the two")
    beams = settings.number(f"{SAMPLED}num_beams")
    if beams is not None and beams > 1:
        text = f"num_beams {beams} sets num_return_sequences to {beams}, whatever num_return_sequences_in_group says"
        yield _refuse("beams", f"{SAMPLED}num_beams", text, "1", "roll 0.3.0, roll/configs/generating_args.py")
