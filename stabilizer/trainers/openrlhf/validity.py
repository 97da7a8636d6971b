"""OpenRLHF 0.11.2: what `train_ppo_ray` asserts. Flags are dotted since spring 2026; old spellings are understood."""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.trainers.constraints import Refusals, Settings, Violation, divisors, nearest, positive

_CLI = "openrlhf 0.11.2, openrlhf/cli/train_ppo_ray.py"
_refuse = Refusals("openrlhf", _CLI)


def openrlhf(settings: Settings) -> Iterator[Violation]:
    """Group estimators, enough batches for the actor's processes, whole DeepSpeed batches, switches."""
    sizes = ("rollout.batch_size", "rollout.micro_batch_size", "train.batch_size", "train.micro_batch_size")
    wrong = list(positive(settings, "openrlhf", _CLI, *sizes, "rollout.n_samples_per_prompt"))
    yield from wrong
    n, estimator = settings.number("rollout.n_samples_per_prompt"), settings.text("algo.advantage.estimator")
    if estimator in ("rloo", "reinforce_baseline", "group_norm", "dr_grpo") and n is not None and n <= 1:
        text = f"{estimator} requires n_samples_per_prompt > 1; it is {n}"
        yield _refuse(
            "group-size", "rollout.n_samples_per_prompt", text, "rollout.n_samples_per_prompt 2 or more, commonly 8"
        )
    if not wrong:
        yield from _batches(settings, n)
    yield from _switches(settings, n)


def actor_gpus(settings: Settings, role: str = "actor") -> int:
    """GPUs of a role: the configuration's own numbers, else those said to be there, else the default 8."""
    keys = {f"{role}.num_nodes": 1, f"{role}.num_gpus_per_node": 8}
    return settings.placed(settings.processes or settings.gpus, keys)


def ranks(settings: Settings) -> int:
    """Data-parallel processes of the actor."""
    ring, tensor = settings.number("ds.ring_attn_size") or 1, settings.number("ds.tensor_parallel_size") or 1
    return actor_gpus(settings) // max(ring, 1) // max(tensor, 1)


def _batches(settings: Settings, n: int | None) -> Iterator[Violation]:
    rollout, micro_rollout = settings.number("rollout.batch_size"), settings.number("rollout.micro_batch_size")
    train, micro, parallel = (
        settings.number("train.batch_size"),
        settings.number("train.micro_batch_size"),
        ranks(settings),
    )
    if rollout is not None and micro_rollout is not None and n is not None and n * rollout // micro_rollout < parallel:
        text = (
            f"the number of sample batches ({n} x {rollout} // {micro_rollout} = "
            f"{n * rollout // micro_rollout}) must be at least the number of actor processes ({parallel})"
        )
        change = f"rollout.micro_batch_size {max(n * rollout // max(parallel, 1), 1)} or less"
        yield _refuse("enough-sample-batches", "rollout.micro_batch_size", text, change)
    dynamic = settings.flag("train.dynamic_batch_enable")
    if train is not None and micro is not None and parallel > 0 and not dynamic and train % (micro * parallel):
        fitting = [size for size in divisors(train // parallel)] if train % parallel == 0 else []
        unit = micro * parallel
        choices = f"train.micro_batch_size {nearest(micro, fitting)}; or " if fitting else ""
        text = (
            f"train.batch_size ({train}) must be train.micro_batch_size ({micro}) x accumulation x {parallel} "
            "actor processes"
        )
        yield _refuse(
            "train-batch-ranks",
            "train.batch_size",
            text,
            f"{choices}train.batch_size {max(unit, train // unit * unit)} or another multiple of {unit}",
            "openrlhf 0.11.2, DeepSpeed's own batch check",
        )


def _switches(settings: Settings, n: int | None) -> Iterator[Violation]:
    yield from _asynchronous(settings)
    remote = bool(settings.get("reward.remote_url") or settings.get("train.agent_func_path"))
    if settings.get("eval.dataset") and not remote:
        text = "--eval.dataset requires a remote reward or an agent function"
        yield _refuse("eval-reward", "eval.dataset", text, "reward.remote_url or train.agent_func_path")
    packs = settings.flag("ds.packing_samples") or (settings.number("ds.ring_attn_size") or 1) > 1
    if (packs or settings.flag("train.dynamic_batch_enable")) and settings.number("vllm.num_engines") == 0:
        yield _refuse("packing-vllm", "ds.packing_samples", "packing needs vLLM", "vllm.num_engines 1 or more")
    yield from _colocated(settings)
    clip = settings.real("actor.dual_clip")
    if clip is not None and clip <= 1.0:
        text = f"dual_clip must be > 1.0, got {clip:g}"
        yield _refuse("dual-clip", "actor.dual_clip", text, "actor.dual_clip 3.0, or unset")
    if settings.flag("algo.dynamic_filtering_enable"):
        yield from _filtering(settings, remote, n)


def _asynchronous(settings: Settings) -> Iterator[Violation]:
    asynchronous, colocated = settings.flag("train.async_enable"), settings.flag("train.colocate_all")
    if asynchronous and colocated and settings.flag("vllm.enable_sleep"):
        text = "async RLHF is not supported with --vllm.enable_sleep"
        yield _refuse("async-sleep", "vllm.enable_sleep", text, "vllm.enable_sleep off")
    if settings.flag("train.partial_rollout_enable") and not asynchronous:
        text = "--train.partial_rollout_enable requires --train.async_enable"
        yield _refuse("partial-rollout", "train.partial_rollout_enable", text, "train.async_enable on")
    rollout, generated = settings.number("rollout.batch_size"), settings.number("rollout.vllm_generate_batch_size")
    if generated and rollout is not None and generated > rollout and not asynchronous:
        text = f"--rollout.vllm_generate_batch_size ({generated}) > --rollout.batch_size ({rollout}) requires async"
        yield _refuse("generate-batch", "rollout.vllm_generate_batch_size", text, f"{rollout} or less")


def _colocated(settings: Settings) -> Iterator[Violation]:
    asynchronous, colocated = settings.flag("train.async_enable"), settings.flag("train.colocate_all")
    engines = settings.number("vllm.num_engines") or 0
    served, gpus = engines * (settings.number("vllm.tensor_parallel_size") or 1), actor_gpus(settings)
    if colocated and not asynchronous and engines > 0 and served != gpus:
        text = f"colocated: the actor's GPUs ({gpus}) must equal num_engines * vllm.tensor_parallel_size ({served})"
        yield _refuse("colocate-vllm", "vllm.num_engines", text, f"vllm.num_engines {nearest(engines, divisors(gpus))}")
    beside = colocated or settings.flag("train.colocate_actor_ref")
    if beside and (settings.real("algo.kl.init_coef") or 0.0) > 0 and actor_gpus(settings, "ref") != gpus:
        text = "num_nodes and num_gpus_per_node must be the same when colocating actor and reference"
        yield _refuse("colocate-ref", "ref.num_gpus_per_node", text, "the actor's numbers")


def _filtering(settings: Settings, remote: bool, n: int | None) -> Iterator[Violation]:
    bounds = settings.get("algo.dynamic_filtering_range")
    if isinstance(bounds, (list, tuple)) and len(bounds) == 2 and float(bounds[0]) >= float(bounds[1]):
        text = f"the lower end ({bounds[0]}) must be less than the upper ({bounds[1]})"
        yield _refuse("filter-range", "algo.dynamic_filtering_range", text, "0 1")
    if not remote:
        text = "remote_rm_url or agent_func_path must be specified when using dynamic filtering"
        yield _refuse("filter-reward", "algo.dynamic_filtering_enable", text, "reward.remote_url")
    if n is not None and n <= 1:
        text = "n_samples_per_prompt must be greater than 1 when using dynamic filtering"
        yield _refuse("filter-group", "rollout.n_samples_per_prompt", text, "2 or more")
