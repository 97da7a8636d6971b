"""slime: what `slime_validate_args` and `build_dp_schedule` refuse. Batches of training count answers."""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.trainers.constraints import Refusals, Settings, Violation, divisors, near_multiple, nearest, positive

_SOURCE = "slime 0.3.1, slime/utils/arguments.py slime_validate_args"
_SCHEDULE = "slime 0.3.1, slime/utils/dp_schedule.py"
_SIZES = ("rollout-batch-size", "n-samples-per-prompt", "global-batch-size", "micro-batch-size")
_refuse = Refusals("slime", _SOURCE)


def slime(settings: Settings) -> Iterator[Violation]:
    """Batches that can't be cut, and switches that exclude or need each other."""
    wrong = list(positive(settings, "slime", _SOURCE, *_SIZES, "num-steps-per-rollout"))
    yield from wrong
    if not wrong:
        yield from _batches(settings)
    yield from _switches(settings)
    yield from _lengths(settings)


def ranks(settings: Settings) -> int:
    """Data-parallel ranks of the actor: its GPUs over its model-parallel sizes."""
    gpus = settings.placed(settings.gpus, {"actor-num-nodes": 1, "actor-num-gpus-per-node": 8})
    for key in ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"):
        gpus //= max(settings.number(key) or 1, 1)
    return gpus


def _batches(settings: Settings) -> Iterator[Violation]:
    rollout, group, given = (
        settings.number(key) for key in ("rollout-batch-size", "n-samples-per-prompt", "global-batch-size")
    )
    if rollout is None or group is None:
        return
    answers, steps = rollout * group, settings.number("num-steps-per-rollout")
    batch = answers // steps if steps else given
    if steps and given is not None and given != batch:
        text = (
            f"global_batch_size {given} is not equal to rollout_batch_size {rollout} * n_samples_per_prompt {group} "
            f"// num_steps_per_rollout {steps}"
        )
        yield _refuse("steps-per-rollout", "global-batch-size", text, f"global-batch-size {batch}, or leave it out")
        return
    if batch is None:
        return
    if answers < batch:
        text = f"num_rollouts ({answers}) < global_batch_size ({batch}); need at least one rollout per step"
        yield _refuse("rollout-under-batch", "global-batch-size", text,
                      f"global-batch-size {nearest(batch, divisors(answers))}, or rollout-batch-size"
                      f" {-(-batch // group)} or more", _SCHEDULE)  # fmt: skip
    elif answers % batch:
        text = (
            f"rollout_batch_size {rollout} x n_samples_per_prompt {group} = {answers} answers are no multiple of"
            f" global_batch_size {batch}: {answers % batch} of them are never trained on"
        )
        yield _refuse("batch-divides-rollout", "global-batch-size", text,
                      f"global-batch-size {nearest(batch, divisors(answers))}", _SCHEDULE)  # fmt: skip
    else:
        yield from _over_ranks(settings, batch)


def _over_ranks(settings: Settings, batch: int) -> Iterator[Violation]:
    parallel, micro = ranks(settings), settings.number("micro-batch-size") or 1
    if parallel < 1:
        text = "the model-parallel sizes take more GPUs than the actor has"
        yield _refuse("model-parallel", "tensor-model-parallel-size", text, "smaller sizes, or more actor GPUs")
    elif batch < parallel:
        text = f"{batch} samples < dp_size {parallel}; each step needs at least one sample per rank"
        yield _refuse(
            "batch-under-ranks", "global-batch-size", text, f"global-batch-size {parallel} or more", _SCHEDULE
        )
    elif not settings.flag("use-dynamic-batch-size") and batch % (unit := parallel * micro):
        text = (
            f"num_mbs is not a multiple of dp_size * mb_group ({parallel}): step_size={batch}, "
            f"micro_batch_size={micro}, dp_size={parallel}"
        )
        yield _refuse("batch-ranks", "global-batch-size", text,
                      f"global-batch-size {near_multiple(batch, unit)}, or use-dynamic-batch-size with"
                      " max-tokens-per-gpu", _SCHEDULE)  # fmt: skip


def _switches(settings: Settings) -> Iterator[Violation]:
    temperature = settings.real("rollout-temperature")
    if temperature is not None and temperature <= 0:
        text = "--rollout-temperature must be > 0; temperature 0 is greedy decoding"
        yield _refuse("temperature", "rollout-temperature", text, "rollout-temperature 1.0")
    if settings.real("kl-coef") and settings.real("kl-loss-coef"):
        text = "Only one of kl_coef and kl_loss_coef can be set"
        yield _refuse("kl-twice", "kl-coef", text, "one of them at 0")
    estimator = settings.text("advantage-estimator")
    if estimator.startswith("reinforce_plus_plus") and not settings.flag("normalize-advantages"):
        text = f"{estimator} requires advantage normalization"
        yield _refuse("normalize-advantages", "normalize-advantages", text, "add --normalize-advantages")
    if settings.flag("use-rollout-logprobs") and settings.flag("use-tis"):
        text = "use_rollout_logprobs and use_tis cannot be set at the same time"
        yield _refuse("tis-rollout-logprobs", "use-tis", text, "one of the two")
    yield from _needs(settings)


_NEEDED = (
    ("get-mismatch-metrics", "custom-tis-function-path", "custom_tis_function_path must be set"),
    ("use-dynamic-batch-size", "max-tokens-per-gpu", "max_tokens_per_gpu must be set"),
    ("balance-by-flops", "use-dynamic-batch-size", "--balance-by-flops requires --use-dynamic-batch-size"),
    ("save-interval", "save", "'--save' is required when save_interval is set"),
)
"""A switch, what it needs, and slime's own words."""


def _needs(settings: Settings) -> Iterator[Violation]:
    for switch, needed, text in _NEEDED:
        if settings.flag(switch) and not settings.get(needed):
            yield _refuse(f"{switch}-needs", needed, f"{text} (with {switch})", f"add --{needed}")
    evaluated = settings.get("eval-prompt-data") or settings.get("eval-config")
    if settings.number("eval-interval") and not evaluated:
        text = "Evaluation datasets must be configured when eval_interval is set"
        yield _refuse("eval-data", "eval-prompt-data", text, "--eval-prompt-data NAME FILE")
    if settings.config and settings.get("num-epoch") is None and settings.get("num-rollout") is None:
        text = "num_epoch is not set, but num_rollout is not set"
        yield _refuse("length-of-run", "num-rollout", text, "--num-rollout, or --num-epoch")
    key = "rollout-batch-size"
    over, rollout = settings.number("over-sampling-batch-size"), settings.number(key)
    if over is not None and rollout is not None and over < rollout:
        text = f"over_sampling_batch_size {over} should be greater than or equal to rollout_batch_size {rollout}"
        yield _refuse("over-sampling", "over-sampling-batch-size", text, f"{rollout} or more")


def _lengths(settings: Settings) -> Iterator[Violation]:
    prompt, context = (settings.number(f"rollout-max-{part}-len") for part in ("prompt", "context"))
    if prompt is not None and context is not None and prompt > context - 1:
        text = f"rollout_max_prompt_len ({prompt}) must be smaller than rollout_max_context_len ({context})"
        yield _refuse("prompt-length", "rollout-max-prompt-len", text, f"{context - 1} or less")
