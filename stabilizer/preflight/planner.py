"""The batch planner: every valid way to cut a batch over GPUs, nearest to what was asked for first.

A plan is a whole configuration in the trainer's own keys. Each candidate is put to `violations`, the same rules that
preflight checks a user's file with, so a plan that is shown is one the trainer accepts. Searched are the per-device
batches and accumulations that people use (`_PER_DEVICE`, `_ACCUMULATION`), groups up to twice what was asked, and a
quarter to four times the prompts, at most `MOST_TRIED` in all; any other per-device batch or accumulation can be
asked for by number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

from stabilizer.configs.config import Version, parse_version
from stabilizer.preflight.memory import SHARDINGS, Memory, Shape, engine_gib, estimate, model_shape
from stabilizer.trainers.all import TRAINERS as ALL
from stabilizer.trainers.all import plain
from stabilizer.trainers.constraints import Violation
from stabilizer.trainers.plan import Cut, Planned
from stabilizer.trainers.validity import newest_version, trainer_name, violations

TRAINERS: Mapping[str, Planned] = {plain(trainer.id): trainer.planned for trainer in ALL if trainer.planned}
PLACEMENTS = ("none", "colocate", "server")
_PER_DEVICE = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32)
_ACCUMULATION = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 48, 64)
_UPDATES = (1, 2, 4, 8)
MOST = {
    "gpus": 16_384,
    "prompts": 8192,
    "group": 1024,
    "memory": 100_000,
    "prompt_length": 10**8,
    "completion_length": 10**8,
    "processes": 16_384,
    "per_device": 10**6,
    "accumulation": 10**6,
}
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

    @property
    def planned(self) -> Planned:
        """How the trainer writes and places a batch."""
        return TRAINERS[self.trainer]

    @property
    def release(self) -> Version:
        """The version as numbers."""
        return parse_version(self.version)

    @property
    def length(self) -> int:
        """Tokens of a prompt with its completion."""
        return self.prompt_length + self.completion_length

    @property
    def placements(self) -> tuple[str, ...]:
        """Where that trainer's generation can run in this version."""
        early = self.release < self.planned.colocates_since
        return tuple(place for place in self.planned.placements if not (early and place == "colocate"))

    def near(self, prompts: int) -> bool:
        """Whether a number of prompts is within the range that is searched."""
        return self.prompts / 4 <= prompts <= self.prompts * 4


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
    for objection in _objections(asked):
        raise ValueError(objection)
    return asked


def _objections(asked: Wanted) -> Iterator[str]:
    """What can't be asked for, in words."""
    name = asked.trainer
    if asked.vllm not in asked.placements:
        yield f"{name} {asked.version} has no --vllm {asked.vllm}; it can do {', '.join(asked.placements)}"
    if asked.sharding not in SHARDINGS:
        yield f"--sharding {asked.sharding} is not known; it is one of {', '.join(SHARDINGS)}"
    if asked.group < 2:
        yield (
            f"--num-generations {asked.group} is never valid: an advantage compares completions of one prompt, so a "
            "group has at least 2"
        )
    for field, most in MOST.items():
        value = getattr(asked, field)
        if value is not None and not 1 <= value <= most:
            flag = {"group": "num-generations", "prompts": "prompts-per-update"}.get(field, field.replace("_", "-"))
            yield f"--{flag} {value:.12g} must lie between 1 and {most:,}"
    if asked.processes and asked.processes > asked.gpus:
        yield f"--processes {asked.processes} is more than the {asked.gpus} GPUs there are"
    if asked.processes and not asked.planned.per_process:
        yield f"--processes is for TRL and Open-R1; {name} uses every GPU"


def plans(asked: Wanted) -> list[Plan]:
    """All valid plans, nearest first: those that fit, then group size, prompts, GPUs in use, fewest passes."""
    found = []
    for cut in islice(_cuts(asked), MOST_TRIED):
        config = asked.planned.configure(cut)
        if not refusals(asked, config, cut.processes):
            found.append(_plan(asked, cut, config))
    return sorted(found, key=lambda plan: _distance(asked, plan))


def refusals(asked: Wanted, config: dict[str, Any], processes: int) -> list[Violation]:
    """What the trainer would say to a configuration, on that many processes."""
    counted = processes if asked.planned.per_process else None
    return violations(asked.trainer, asked.version, config, processes=counted, gpus=asked.gpus)


def exactly(asked: Wanted) -> Violation | None:
    """Why the batch can't be cut exactly as asked; None when it can, or when nothing was fixed."""
    if not asked.planned.per_process or not (asked.per_device or asked.accumulation):
        return None
    taken, tensor = _vllm_gpus(asked)
    processes = asked.processes or asked.gpus - taken
    if processes < 1:
        return None
    cut = _cut(
        asked,
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
    return next(iter(refusals(asked, asked.planned.configure(cut), processes)), None)


def impossible(asked: Wanted) -> tuple[str, str]:
    """Why there is no plan at all, and the nearest change that makes one."""
    taken, _ = _vllm_gpus(asked)
    left, needed = max(asked.gpus - taken, 0), asked.processes or 1
    if left < needed:
        why = f"the vLLM server takes {taken} of {asked.gpus} GPUs and leaves {left}; {needed} are needed to train"
        fewer = f"--processes {left} or " if left else ""
        colocate = " or --vllm colocate" if "colocate" in asked.placements else ""
        return why, f"{fewer}--gpus {taken + needed}{colocate}"
    for fixed in ("accumulation", "per_device", "processes"):
        kept = getattr(asked, fixed)
        if kept is not None and (plan := _nearest_without(asked, fixed, kept)):
            flag = fixed.replace("_", "-")
            why = f"no group of 2 or more near {asked.group} divides the batch with --{flag} {kept}"
            return why, f"--{flag} {getattr(plan, fixed)} (with {plan.group} generations)"
    why = f"no batch near {asked.prompts} prompts can be cut over {left} training GPUs"
    larger = (asked.prompts * 2**power for power in range(1, 8))
    enough = next((prompts for prompts in larger if plans(replace(asked, prompts=prompts))), None)
    return why, f"--prompts-per-update {enough}" if enough else "other values of what was fixed"


def _nearest_without(asked: Wanted, fixed: str, kept: int) -> Plan | None:
    """The plan with the group and the value nearest to what was asked, when one fixed value may change."""
    freed: dict[str, Any] = {fixed: None}
    return min(
        plans(replace(asked, **freed)),
        key=lambda plan: (abs(plan.group - asked.group), abs(getattr(plan, fixed) - kept)),
        default=None,
    )


def too_small(asked: Wanted, nearest: Plan) -> tuple[str, str]:
    """Why nothing fits the memory, and the nearest changes after which something does."""
    need = nearest.memory.total
    why = f"the nearest plan needs about {need:.0f} GiB on a GPU; {MARGIN:.0%} of {asked.memory:g} GiB can be used"
    return why, " or ".join([*_roomier(asked), f"--memory {math.ceil(need / MARGIN)}"])


def _roomier(asked: Wanted) -> list[str]:
    """What makes room: sharding, another place for vLLM, more GPUs; the fewest GPUs that do."""
    more = [asked.gpus * 2**power for power in range(6)]
    shardings = dict.fromkeys((asked.sharding, "zero3"))
    places = dict.fromkeys((asked.vllm, *asked.placements))
    for gpus, sharding, place in product(more, shardings, places):
        other = replace(asked, gpus=gpus, sharding=sharding, vllm=place, processes=None, per_device=1)
        if any(plan.fits for plan in plans(other)):
            flags = {"--gpus": (gpus, asked.gpus), "--sharding": (sharding, asked.sharding)}
            flags |= {"--vllm": (place, asked.vllm), "--per-device": (1, asked.per_device or 1)}
            return [" ".join(f"{flag} {new}" for flag, (new, old) in flags.items() if new != old)]
    return []


# --- the search -----------------------------------------------------------------------------------------------------


def _cuts(asked: Wanted) -> Iterator[Cut]:
    taken, tensor = _vllm_gpus(asked)
    available = asked.gpus - taken
    if available < 1:
        return
    divided = _accumulated if asked.planned.per_process else _mini_batched
    for processes in _process_counts(asked, available):
        if asked.vllm == "colocate":
            tensor = _engine_size(asked, processes)
        need = engine_gib(asked.shape, tensor, 64, asked.length)
        utilization = min(max(math.ceil(need / asked.memory * 20) / 20, 0.2), 0.9)
        for numbers in divided(asked, processes):
            yield _cut(
                asked,
                processes=processes,
                vllm_gpus=taken,
                tensor_parallel=tensor,
                utilization=utilization,
                **numbers,
            )


def _cut(asked: Wanted, *, utilization: float, **numbers: int) -> Cut:
    return Cut(
        version=asked.release,
        gpus=asked.gpus,
        vllm=asked.vllm,
        prompt_length=asked.prompt_length,
        completion_length=asked.completion_length,
        utilization=utilization,
        **numbers,
    )


def _process_counts(asked: Wanted, available: int) -> Iterable[int]:
    if asked.processes:
        return [asked.processes] if asked.processes <= available else []
    if not asked.planned.per_process:
        return [available]
    fewer = range(available - 1, math.ceil(available * 3 / 4) - 1, -1)
    return [available, *islice((count for count in fewer if available <= 16 or count % 8 == 0), _NEAREST)]


def _groups(asked: Wanted) -> list[int]:
    near = {asked.group, *range(2, max(2 * asked.group, 8) + 1)}
    return sorted(near, key=lambda group: abs(group - asked.group))[:_NEAREST]


def _tried(fixed: int | None, usual: Iterable[int]) -> Iterable[int]:
    return [fixed] if fixed else usual


def _accumulated(asked: Wanted, processes: int) -> Iterator[dict[str, int]]:
    """TRL: processes x per device x accumulation completions behind one update, and one update a rollout."""
    counts_prompts = asked.release < asked.planned.device_counts_prompts_before
    passes = product(_tried(asked.per_device, _PER_DEVICE), _tried(asked.accumulation, _ACCUMULATION))
    for per_device, accumulation in passes:
        batch = processes * per_device * accumulation
        for group in _groups(asked):
            prompts, rest = (batch, 0) if counts_prompts else divmod(batch, group)
            if not rest and (asked.per_device or asked.near(prompts)):
                yield {
                    "per_device": per_device,
                    "accumulation": accumulation,
                    "group": group,
                    "prompts": prompts,
                    "updates": 1,
                }


def _mini_batched(asked: Wanted, processes: int) -> Iterator[dict[str, int]]:
    """The veRL family: a rollout of whole mini-batches, a mini-batch of whole micro-batches on every rank."""
    multiples = (processes * factor for factor in range(1, 4 * asked.prompts // processes + 2))
    minis = {asked.prompts, *multiples, *(2**power for power in range(11))}
    near = sorted(filter(asked.near, minis), key=lambda prompts: abs(math.log(prompts / asked.prompts)))
    for prompts, group in product(near, _groups(asked)):
        share, rest = divmod(prompts * group, processes)
        if rest:
            continue
        for per_device in _tried(asked.per_device, _PER_DEVICE):
            accumulation, rest = divmod(share, per_device)
            if rest or asked.accumulation not in (None, accumulation):
                continue
            for updates in _UPDATES:
                yield {
                    "per_device": per_device,
                    "accumulation": accumulation,
                    "group": group,
                    "prompts": prompts,
                    "updates": updates,
                }


def _vllm_gpus(asked: Wanted) -> tuple[int, int]:
    """GPUs of a vLLM of its own, and its tensor parallelism: one, or as few as hold the model."""
    if asked.vllm != "server":
        return 0, 1
    tensor = 1
    while engine_gib(asked.shape, tensor, 16, asked.length) > 0.9 * asked.memory:
        if tensor >= 64:
            break
        tensor *= 2
    return tensor, tensor


def _engine_size(asked: Wanted, processes: int) -> int:
    """Tensor parallelism of a colocated vLLM: the smallest divisor of the processes that leaves room to train."""
    share = 0.9 if asked.planned.sleeps else 0.5
    for size in (n for n in range(1, min(processes, 8) + 1) if processes % n == 0 and n & (n - 1) == 0):
        if engine_gib(asked.shape, size, 64, asked.length) <= share * asked.memory:
            return size
    return max(n for n in (1, 2, 4, 8) if processes % n == 0)


def _plan(asked: Wanted, cut: Cut, config: dict[str, Any]) -> Plan:
    planned = asked.planned
    engine = engine_gib(asked.shape, cut.tensor_parallel, 64, asked.length) if cut.colocated else 0.0
    awake = cut.colocated and not planned.sleeps
    forward = cut.per_device * (cut.group if cut.version < planned.device_counts_prompts_before else 1)
    at_once = 1 if cut.version < planned.generates_per_pass_before else cut.accumulation
    memory = estimate(
        asked.shape,
        ranks=cut.processes,
        sharding=asked.sharding,
        reference=planned.reference_before is None or cut.version < planned.reference_before,
        per_device=forward,
        prompt_length=asked.prompt_length,
        completion_length=asked.completion_length,
        generated=forward * at_once if asked.vllm == "none" else 0,
        vllm=max(engine, cut.utilization * asked.memory) if awake else engine,
        vllm_sleeps=cut.colocated and planned.sleeps,
    )
    return Plan(
        processes=cut.processes,
        vllm_gpus=cut.vllm_gpus,
        per_device=cut.per_device,
        accumulation=cut.accumulation,
        group=cut.group,
        prompts=cut.prompts,
        updates=cut.updates,
        memory=memory,
        fits=memory.total <= MARGIN * asked.memory,
        config=config,
    )


def _distance(asked: Wanted, plan: Plan) -> tuple[float, ...]:
    """Doublings away from what was asked: the group counts most, then idle GPUs, then prompts."""
    idle = math.log2((asked.gpus - plan.vllm_gpus) / plan.processes)
    group, prompts = (abs(math.log2(a / b)) for a, b in ((plan.group, asked.group), (plan.prompts, asked.prompts)))
    far = 4 * group + 3 * idle + prompts + 0.25 * math.log2(plan.updates)
    over = 0 if plan.fits else round(10 * math.log(plan.memory.total))
    return (over, round(far, 3), plan.accumulation, plan.updates)
