"""The batch planner: every valid way to cut a batch over GPUs, nearest to what was asked for first.

A plan is a whole configuration in the trainer's own keys. Each candidate is put to `violations`, the same rules that
preflight checks a user's file with, so a plan that is shown is one the trainer accepts. Searched are the per-device
batches and accumulations that people use (`_PER_DEVICE`, `_ACCUMULATION`), groups up to twice what was asked, and a
quarter to four times the prompts, at most `MOST_TRIED` in all; any other per-device batch or accumulation can be
asked for by number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from stabilizer.configs.config import parse_version
from stabilizer.preflight.memory import SHARDINGS, Memory, Shape, engine_gib, estimate, model_shape
from stabilizer.trainers.constraints import Violation
from stabilizer.trainers.validity import newest_version, trainer_name, violations

PLACEMENTS = ("none", "colocate", "server")
_PER_DEVICE = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32)
_ACCUMULATION = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 48, 64)
_UPDATES = (1, 2, 4, 8)
MOST = {
    "gpus": 16_384, "prompts": 8192, "group": 1024, "memory": 100_000, "prompt_length": 10**8,
    "completion_length": 10**8, "processes": 16_384, "per_device": 10**6, "accumulation": 10**6,
}  # fmt: skip
"""The largest of each that is planned for."""
MOST_TRIED = 40_000
"""Candidates that are tried, those with the nearest prompts first: with few GPUs and large batches all are too many."""
_NEAREST = 64
"""Group sizes, and numbers of processes, that are tried."""
MARGIN = 0.9
"""A plan fits when its estimate is within this share of the memory: the estimate may err and allocators fragment."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a plan should come near to (group size, prompts), and what it must keep to (the rest)."""

    trainer: str
    version: str
    gpus: int
    shape: Shape
    group: int = 8
    prompts: int = 32
    memory: float = 80.0
    """GiB of one GPU."""
    prompt_length: int = 512
    completion_length: int = 1024
    vllm: str = "none"
    sharding: str = "zero3"
    processes: int | None = None
    per_device: int | None = None
    accumulation: int | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One way to do it. `config` is what to write, in the trainer's own keys."""

    processes: int
    vllm_gpus: int
    """GPUs that a vLLM of its own takes away."""
    per_device: int
    """Completions in one forward and backward pass of a process."""
    accumulation: int
    """Such passes in one optimizer update."""
    group: int
    prompts: int
    """Prompts behind one optimizer update."""
    updates: int
    """Optimizer updates from one rollout; 1 is on-policy."""
    memory: Memory
    fits: bool
    config: dict[str, Any]

    @property
    def completions(self) -> int:
        """Completions behind one optimizer update."""
        return self.prompts * self.group


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """How a trainer places vLLM and what it keeps in memory."""

    placements: tuple[str, ...]
    """Where its generation can live, its usual place first."""
    sleeps: bool
    """Whether a colocated vLLM gives its memory back while the model trains."""
    configure: Callable[[Wanted, Draft], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The numbers of a candidate, before it has a configuration."""

    processes: int
    vllm_gpus: int
    tensor_parallel: int
    utilization: float
    per_device: int
    accumulation: int
    group: int
    prompts: int
    updates: int


# --- asking ---------------------------------------------------------------------------------------------------------


def wanted(
    trainer: str,
    gpus: int,
    *,
    version: str | None = None,
    model_size: str = "7B",
    vllm: str | None = None,
    sharding: str = "zero3",
    **sizes: Any,
) -> Wanted:
    """A checked question; ValueError says which argument can't be and what could."""
    try:
        name = trainer_name(trainer)
    except ValueError:
        raise ValueError(f"no trainer {trainer!r}; plans are made for {', '.join(TRAINERS)}") from None
    if name not in TRAINERS:
        raise ValueError(f"no plans for {name}; plans are made for {', '.join(TRAINERS)}")
    asked = Wanted(
        trainer=name,
        version=version or newest_version(name),
        gpus=gpus,
        shape=model_shape(model_size),
        vllm=vllm or TRAINERS[name].placements[0],
        sharding=sharding,
        **{key: value for key, value in sizes.items() if value is not None},
    )
    places = _placements(asked)
    if asked.vllm not in places:
        raise ValueError(f"{name} {asked.version} has no --vllm {asked.vllm}; it can do {', '.join(places)}")
    if asked.sharding not in SHARDINGS:
        raise ValueError(f"--sharding {asked.sharding} is not known; it is one of {', '.join(SHARDINGS)}")
    if asked.group < 2:
        raise ValueError(
            f"--num-generations {asked.group} is never valid: an advantage compares completions of one prompt, so a "
            "group has at least 2"
        )
    for field, most in MOST.items():
        value = getattr(asked, field)
        if value is not None and not 1 <= value <= most:
            flag = {"group": "num-generations", "prompts": "prompts-per-update"}.get(field, field.replace("_", "-"))
            raise ValueError(f"--{flag} {value:.12g} must lie between 1 and {most:,}")
    if asked.processes and asked.processes > asked.gpus:
        raise ValueError(f"--processes {asked.processes} is more than the {asked.gpus} GPUs there are")
    if asked.processes and asked.trainer not in _PROCESSES_COUNT:
        raise ValueError(f"--processes is for TRL and Open-R1; {name} uses every GPU")
    return asked


def _placements(asked: Wanted) -> tuple[str, ...]:
    """Where that trainer's generation can live; TRL's vLLM shares GPUs since 0.18."""
    old = asked.trainer in _PROCESSES_COUNT and parse_version(asked.version) < (0, 18, 0)
    return tuple(place for place in TRAINERS[asked.trainer].placements if not (old and place == "colocate"))


def plans(asked: Wanted) -> list[Plan]:
    """All valid plans, nearest first: those that fit, then group size, prompts, GPUs in use, fewest passes."""
    found = []
    for draft in islice(_drafts(asked), MOST_TRIED):
        config = TRAINERS[asked.trainer].configure(asked, draft)
        if not refusals(asked, config, draft.processes):
            found.append(_plan(asked, draft, config))
    return sorted(found, key=lambda plan: _distance(asked, plan))


def refusals(asked: Wanted, config: dict[str, Any], processes: int) -> list[Violation]:
    """What the trainer would say to a configuration, on that many processes."""
    counted = processes if asked.trainer in _PROCESSES_COUNT else None
    return violations(asked.trainer, asked.version, config, processes=counted, gpus=asked.gpus)


def exactly(asked: Wanted) -> Violation | None:
    """Why the batch can't be cut exactly as asked; None when it can, or when nothing was fixed."""
    if asked.trainer not in _PROCESSES_COUNT or not (asked.per_device or asked.accumulation):
        return None
    taken, tensor = _vllm_gpus(asked)
    processes = asked.processes or asked.gpus - taken
    if processes < 1:
        return None
    draft = Draft(
        processes=processes,
        vllm_gpus=taken,
        tensor_parallel=tensor,
        utilization=0.3,
        per_device=asked.per_device or 1,
        accumulation=asked.accumulation or 1,
        group=asked.group,
        prompts=asked.prompts,
        updates=1,
    )
    return next(iter(refusals(asked, TRAINERS[asked.trainer].configure(asked, draft), processes)), None)


def impossible(asked: Wanted) -> tuple[str, str]:
    """Why there is no plan at all, and the nearest change that makes one."""
    taken, _ = _vllm_gpus(asked)
    left, needed = max(asked.gpus - taken, 0), asked.processes or 1
    if left < needed:
        why = f"the vLLM server takes {taken} of {asked.gpus} GPUs and leaves {left}; {needed} are needed to train"
        fewer = f"--processes {left} or " if left else ""
        colocate = " or --vllm colocate" if "colocate" in _placements(asked) else ""
        return why, f"{fewer}--gpus {taken + needed}{colocate}"
    for change in ("accumulation", "per_device", "processes"):
        kept = getattr(asked, change)
        if kept is not None and (freed := plans(replace(asked, **{change: None}))):
            plan = min(freed, key=lambda plan: (abs(plan.group - asked.group), abs(getattr(plan, change) - kept)))
            flag, value = change.replace("_", "-"), getattr(plan, change)
            why = f"no group of 2 or more near {asked.group} divides the batch with --{flag} {kept}"
            return why, f"--{flag} {value} (with {plan.group} generations)"
    why = f"no batch near {asked.prompts} prompts can be cut over {left} training GPUs"
    for prompts in (asked.prompts * 2**power for power in range(1, 8)):
        if plans(replace(asked, prompts=prompts)):
            return why, f"--prompts-per-update {prompts}"
    return why, "other values of what was fixed"


def too_small(asked: Wanted, nearest: Plan) -> tuple[str, str]:
    """Why nothing fits the memory, and the nearest changes after which something does."""
    need = nearest.memory.total
    why = f"the nearest plan needs about {need:.0f} GiB on a GPU; {MARGIN:.0%} of {asked.memory:g} GiB can be used"
    return why, " or ".join([*_roomier(asked), f"--memory {math.ceil(need / MARGIN)}"])


def _roomier(asked: Wanted) -> list[str]:
    """What makes room: sharding, another place for vLLM, more GPUs; the fewest GPUs that do."""
    places = (asked.vllm, *(place for place in _placements(asked) if place != asked.vllm))
    for gpus in (asked.gpus * 2**power for power in range(6)):
        for sharding in dict.fromkeys((asked.sharding, "zero3")):
            for place in places:
                other = replace(asked, gpus=gpus, sharding=sharding, vllm=place, processes=None, per_device=1)
                if any(plan.fits for plan in plans(other)):
                    flags = {"--gpus": (gpus, asked.gpus), "--sharding": (sharding, asked.sharding)}
                    flags |= {"--vllm": (place, asked.vllm), "--per-device": (1, asked.per_device or 1)}
                    return [" ".join(f"{flag} {new}" for flag, (new, old) in flags.items() if new != old)]
    return []


# --- the search -----------------------------------------------------------------------------------------------------


def _drafts(asked: Wanted) -> Iterator[Draft]:
    taken, tensor = _vllm_gpus(asked)
    available = asked.gpus - taken
    if available < 1:
        return
    cut = _accumulated if asked.trainer in _PROCESSES_COUNT else _mini_batched
    for processes in _process_counts(asked, available):
        if asked.vllm == "colocate":
            tensor = _engine_size(asked, processes)
        need = engine_gib(asked.shape, tensor, 64, asked.prompt_length + asked.completion_length)
        utilization = min(max(math.ceil(need / asked.memory * 20) / 20, 0.2), 0.9)
        for numbers in cut(asked, processes):
            yield Draft(
                processes=processes, vllm_gpus=taken, tensor_parallel=tensor, utilization=utilization, **numbers
            )


def _process_counts(asked: Wanted, available: int) -> Iterable[int]:
    if asked.processes:
        return [asked.processes] if asked.processes <= available else []
    if asked.trainer not in _PROCESSES_COUNT:
        return [available]
    fewer = range(available - 1, math.ceil(available * 3 / 4) - 1, -1)
    return [available, *islice((count for count in fewer if available <= 16 or count % 8 == 0), _NEAREST)]


def _groups(asked: Wanted) -> list[int]:
    near = {asked.group, *range(2, max(2 * asked.group, 8) + 1)}
    return sorted(near, key=lambda group: abs(group - asked.group))[:_NEAREST]


def _accumulated(asked: Wanted, processes: int) -> Iterator[dict[str, int]]:
    """TRL: processes x per device x accumulation completions behind one update, and one update a rollout."""
    per_device_prompts = parse_version(asked.version) < (0, 15, 0)
    for per_device in [asked.per_device] if asked.per_device else _PER_DEVICE:
        for accumulation in [asked.accumulation] if asked.accumulation else _ACCUMULATION:
            batch = processes * per_device * accumulation
            for group in _groups(asked):
                prompts = batch if per_device_prompts else batch // group
                whole = per_device_prompts or batch % group == 0
                if whole and (asked.per_device or asked.prompts / 4 <= prompts <= asked.prompts * 4):
                    yield {
                        "per_device": per_device,
                        "accumulation": accumulation,
                        "group": group,
                        "prompts": prompts,
                        "updates": 1,
                    }


def _mini_batched(asked: Wanted, processes: int) -> Iterator[dict[str, int]]:
    """The veRL family: a rollout of whole mini-batches, a mini-batch of whole micro-batches on every rank."""
    multiples = {processes * factor for factor in range(1, 4 * asked.prompts // processes + 2)}
    minis = {asked.prompts, *multiples, *(2**power for power in range(11))}
    allowed = [mini for mini in minis if asked.prompts / 4 <= mini <= asked.prompts * 4]
    for prompts in sorted(allowed, key=lambda mini: abs(math.log(mini / asked.prompts))):
        for group in _groups(asked):
            if prompts * group % processes:
                continue
            share = prompts * group // processes
            for per_device in [asked.per_device] if asked.per_device else _PER_DEVICE:
                if share % per_device or asked.accumulation not in (None, share // per_device):
                    continue
                for updates in _UPDATES:
                    yield {
                        "per_device": per_device,
                        "accumulation": share // per_device,
                        "group": group,
                        "prompts": prompts,
                        "updates": updates,
                    }


def _vllm_gpus(asked: Wanted) -> tuple[int, int]:
    """GPUs of a vLLM of its own, and its tensor parallelism: one, or as few as hold the model."""
    if asked.vllm != "server":
        return 0, 1
    tensor = 1
    while engine_gib(asked.shape, tensor, 16, asked.prompt_length + asked.completion_length) > 0.9 * asked.memory:
        if tensor >= 64:
            break
        tensor *= 2
    return tensor, tensor


def _engine_size(asked: Wanted, processes: int) -> int:
    """Tensor parallelism of a colocated vLLM: the smallest divisor of the processes that leaves room to train."""
    share = 0.9 if TRAINERS[asked.trainer].sleeps else 0.5
    for size in (n for n in range(1, min(processes, 8) + 1) if processes % n == 0 and n & (n - 1) == 0):
        if engine_gib(asked.shape, size, 64, asked.prompt_length + asked.completion_length) <= share * asked.memory:
            return size
    return max(n for n in (1, 2, 4, 8) if processes % n == 0)


def _plan(asked: Wanted, draft: Draft, config: dict[str, Any]) -> Plan:
    trainer, length = TRAINERS[asked.trainer], asked.prompt_length + asked.completion_length
    colocated = asked.vllm == "colocate"
    engine = engine_gib(asked.shape, draft.tensor_parallel, 64, length) if colocated else 0.0
    old = parse_version(asked.version) < (0, 15, 0)
    forward = draft.per_device * (draft.group if old and asked.trainer in _PROCESSES_COUNT else 1)
    once = parse_version(asked.version) < (0, 17, 0)
    generated = forward * (1 if once else draft.accumulation) if asked.vllm == "none" else 0
    memory = estimate(
        asked.shape,
        ranks=draft.processes,
        sharding=asked.sharding,
        reference=_keeps_reference(asked),
        per_device=forward,
        prompt_length=asked.prompt_length,
        completion_length=asked.completion_length,
        generated=generated,
        vllm=max(engine, draft.utilization * asked.memory) if colocated and not trainer.sleeps else engine,
        vllm_sleeps=colocated and trainer.sleeps,
    )
    return Plan(
        processes=draft.processes,
        vllm_gpus=draft.vllm_gpus,
        per_device=draft.per_device,
        accumulation=draft.accumulation,
        group=draft.group,
        prompts=draft.prompts,
        updates=draft.updates,
        memory=memory,
        fits=memory.total <= MARGIN * asked.memory,
        config=config,
    )


def _keeps_reference(asked: Wanted) -> bool:
    """Whether the trainer's defaults (for TRL), or the pasted configuration, need a reference model."""
    if asked.trainer in ("trl", "open-r1"):
        return parse_version(asked.version) < (0, 19, 0)
    return asked.trainer not in ("verl", "prime-rl")


def _distance(asked: Wanted, plan: Plan) -> tuple[float, ...]:
    """Doublings away from what was asked: the group counts most, then idle GPUs, then prompts."""
    idle = math.log2((asked.gpus - plan.vllm_gpus) / plan.processes)
    group, prompts = (abs(math.log2(a / b)) for a, b in ((plan.group, asked.group), (plan.prompts, asked.prompts)))
    far = 4 * group + 3 * idle + prompts + 0.25 * math.log2(plan.updates)
    over = 0 if plan.fits else round(10 * math.log(plan.memory.total))
    return (over, round(far, 3), plan.accumulation, plan.updates)


# --- the configurations ---------------------------------------------------------------------------------------------


def _nodes(nodes_key: str, gpus_key: str, gpus: int) -> dict[str, int]:
    """Whole nodes of eight where that comes out even, else one node."""
    whole = gpus > 8 and gpus % 8 == 0
    return {nodes_key: gpus // 8 if whole else 1, gpus_key: 8 if whole else gpus}


def _trl(asked: Wanted, draft: Draft) -> dict[str, Any]:
    version = parse_version(asked.version)
    config: dict[str, Any] = {
        "per_device_train_batch_size": draft.per_device,
        "gradient_accumulation_steps": draft.accumulation,
        "num_generations": draft.group,
        "max_completion_length": asked.completion_length,
    }
    if version < (0, 28, 0):
        config["max_prompt_length"] = asked.prompt_length
    if asked.vllm == "none":
        return config
    config["use_vllm"] = True
    if version >= (0, 18, 0):
        config["vllm_mode"] = asked.vllm
    if asked.vllm == "colocate":
        config["vllm_gpu_memory_utilization"] = draft.utilization
        config["vllm_tensor_parallel_size"] = draft.tensor_parallel
    return config


def _verl(asked: Wanted, draft: Draft) -> dict[str, Any]:
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": draft.prompts * draft.updates,
        "data.max_prompt_length": asked.prompt_length,
        "data.max_response_length": asked.completion_length,
        f"{actor}.ppo_mini_batch_size": draft.prompts,
        f"{actor}.ppo_micro_batch_size_per_gpu": draft.per_device,
        f"{rollout}.name": "vllm",
        f"{rollout}.n": draft.group,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": draft.per_device,
        f"{rollout}.tensor_model_parallel_size": draft.tensor_parallel,
        f"{rollout}.gpu_memory_utilization": draft.utilization,
        **_nodes("trainer.nnodes", "trainer.n_gpus_per_node", asked.gpus),
    }


def _search_r1(asked: Wanted, draft: Draft) -> dict[str, Any]:
    """Its mini-batch counts samples, since n_agent multiplies before it is cut; its micro-batches are totals."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    total = draft.per_device * asked.gpus
    return {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": draft.prompts * draft.updates,
        "data.max_prompt_length": asked.prompt_length,
        "data.max_response_length": asked.completion_length,
        f"{actor}.ppo_mini_batch_size": draft.prompts * draft.group,
        f"{actor}.ppo_micro_batch_size": total,
        f"{actor}.use_kl_loss": True,
        f"{rollout}.n_agent": draft.group,
        f"{rollout}.log_prob_micro_batch_size": total,
        "actor_rollout_ref.ref.log_prob_micro_batch_size": total,
        f"{rollout}.tensor_model_parallel_size": draft.tensor_parallel,
        f"{rollout}.gpu_memory_utilization": draft.utilization,
        **_nodes("trainer.nnodes", "trainer.n_gpus_per_node", asked.gpus),
    }


def _easyr1(asked: Wanted, draft: Draft) -> dict[str, Any]:
    return {
        "algorithm.adv_estimator": "grpo",
        "data.rollout_batch_size": draft.prompts * draft.updates,
        "data.max_prompt_length": asked.prompt_length,
        "data.max_response_length": asked.completion_length,
        "worker.actor.global_batch_size": draft.prompts,
        "worker.actor.micro_batch_size_per_device_for_update": draft.per_device,
        "worker.actor.micro_batch_size_per_device_for_experience": draft.per_device,
        "worker.rollout.n": draft.group,
        "worker.rollout.tensor_parallel_size": draft.tensor_parallel,
        "worker.rollout.gpu_memory_utilization": draft.utilization,
        **_nodes("trainer.nnodes", "trainer.n_gpus_per_node", asked.gpus),
    }


def _openrlhf(asked: Wanted, draft: Draft) -> dict[str, Any]:
    colocated = asked.vllm == "colocate"
    engines = draft.processes // draft.tensor_parallel if colocated else draft.vllm_gpus // draft.tensor_parallel
    placed = (
        {"train.colocate_all": True, "vllm.enable_sleep": True} if colocated else {"train.colocate_actor_ref": True}
    )
    return {
        "algo.advantage.estimator": "group_norm",
        "rollout.batch_size": draft.prompts * draft.updates,
        "rollout.n_samples_per_prompt": draft.group,
        "rollout.micro_batch_size": draft.per_device,
        "rollout.max_new_tokens": asked.completion_length,
        "data.max_len": asked.prompt_length + asked.completion_length,
        "train.batch_size": draft.prompts * draft.group,
        "train.micro_batch_size": draft.per_device,
        **_nodes("actor.num_nodes", "actor.num_gpus_per_node", draft.processes),
        **_nodes("ref.num_nodes", "ref.num_gpus_per_node", draft.processes),
        "vllm.num_engines": engines,
        "vllm.tensor_parallel_size": draft.tensor_parallel,
        "vllm.gpu_memory_utilization": draft.utilization,
        **placed,
    }


def _skyrl(asked: Wanted, draft: Draft) -> dict[str, Any]:
    colocated = asked.vllm == "colocate"
    engines = (draft.processes if colocated else draft.vllm_gpus) // draft.tensor_parallel
    return {
        "trainer.algorithm.advantage_estimator": "grpo",
        "trainer.train_batch_size": draft.prompts * draft.updates,
        "trainer.policy_mini_batch_size": draft.prompts,
        "trainer.micro_train_batch_size_per_gpu": draft.per_device,
        "trainer.micro_forward_batch_size_per_gpu": draft.per_device,
        "generator.n_samples_per_prompt": draft.group,
        "generator.sampling_params.max_generate_length": asked.completion_length,
        "generator.inference_engine.num_engines": engines,
        "generator.inference_engine.tensor_parallel_size": draft.tensor_parallel,
        "generator.inference_engine.gpu_memory_utilization": draft.utilization,
        "trainer.placement.colocate_all": colocated,
        **_nodes("trainer.placement.policy_num_nodes", "trainer.placement.policy_num_gpus_per_node", draft.processes),
        **_nodes("trainer.placement.ref_num_nodes", "trainer.placement.ref_num_gpus_per_node", draft.processes),
    }


def _nemo_rl(asked: Wanted, draft: Draft) -> dict[str, Any]:
    config = {
        "grpo.num_prompts_per_step": draft.prompts * draft.updates,
        "grpo.num_generations_per_prompt": draft.group,
        "policy.train_global_batch_size": draft.prompts * draft.group,
        "policy.train_micro_batch_size": draft.per_device,
        "policy.max_total_sequence_length": asked.prompt_length + asked.completion_length,
        "policy.generation.vllm_cfg.tensor_parallel_size": draft.tensor_parallel,
        "policy.generation.vllm_cfg.gpu_memory_utilization": draft.utilization,
        "policy.generation.colocated.enabled": asked.vllm == "colocate",
        "cluster.num_nodes": 1,
        "cluster.gpus_per_node": asked.gpus,
    }
    if asked.vllm == "colocate":
        config |= _nodes("cluster.num_nodes", "cluster.gpus_per_node", asked.gpus)
    else:
        config["policy.generation.colocated.resources.gpus_per_node"] = draft.vllm_gpus
    return config


def _prime_rl(asked: Wanted, draft: Draft) -> dict[str, Any]:
    return {
        "orchestrator.batch_size": draft.prompts * draft.group,
        "orchestrator.group_size": draft.group,
        "seq_len": asked.prompt_length + asked.completion_length,
        "deployment.num_train_gpus": draft.processes,
        "deployment.num_infer_gpus": draft.vllm_gpus,
    }


_PROCESSES_COUNT = ("trl", "trl-rloo", "open-r1")
TRAINERS: dict[str, Trainer] = {
    "trl": Trainer(placements=("none", "colocate", "server"), sleeps=False, configure=_trl),
    "trl-rloo": Trainer(placements=("none", "colocate", "server"), sleeps=False, configure=_trl),
    "open-r1": Trainer(placements=("server", "colocate", "none"), sleeps=False, configure=_trl),
    "verl": Trainer(placements=("colocate",), sleeps=True, configure=_verl),
    "search-r1": Trainer(placements=("colocate",), sleeps=True, configure=_search_r1),
    "easyr1": Trainer(placements=("colocate",), sleeps=True, configure=_easyr1),
    "openrlhf": Trainer(placements=("colocate", "server"), sleeps=True, configure=_openrlhf),
    "skyrl": Trainer(placements=("colocate", "server"), sleeps=True, configure=_skyrl),
    "nemo-rl": Trainer(placements=("colocate", "server"), sleeps=True, configure=_nemo_rl),
    "prime-rl": Trainer(placements=("server",), sleeps=True, configure=_prime_rl),
}
