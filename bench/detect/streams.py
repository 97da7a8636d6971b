"""Tier 1: cases made of a kind, a seed and a severity, each with its truth; the same three give the same run.

Seeds under `REPORT_SEEDS` belong to the develop half, on which detectors may be made; those from there on to the report
half, whose figures are published. The halves share no seed and no magnitude (`host.Draws`), and the report half has
look-alikes, tasks and mechanisms that the other one lacks. To look at a case by itself:

    from bench.detect.streams import make
    history = make("entropy-collapse", seed=3, severity="subtle")
    history = make("healthy/cyclic-data", seed=7)
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np

from bench.detect import lookalikes
from bench.detect.catalogue import FAULTS, Fault
from bench.detect.host import Draws, Host
from bench.detect.lookalikes import HOSTS, LOOKALIKES
from bench.detect.truth import HEALTHY, Truth
from bench.detect.world import VIEWS, World
from stabilizer.core.records import Event
from stabilizer.runs.history import History

REPORT_SEEDS = 1_000_000
"""The first seed of the report half."""
SEVERITIES = ("subtle", "medium", "severe")
TASKS = {"develop": ("arithmetic", "sorting", "search"), "report": ("code", "countdown", "dialogue")}
FELL = 0.1
"""Share of its support by which the reward counts as fallen."""


class Case(NamedTuple):
    """What names a case: enough to make it again."""

    kind: str
    seed: int
    severity: str | None = None


def _named(function: Any) -> str:
    return function.__name__.replace("_", "-")


_HEALTHY = {HEALTHY + _named(kind): kind for kind in LOOKALIKES}
_FAULTS = {fault.name: fault for fault in FAULTS}
_HELD_OUT = {HEALTHY + _named(kind) for kind in lookalikes.HELD_OUT} | {f.name for f in FAULTS if f.held_out}


def kinds(half: str) -> tuple[list[str], list[str]]:
    """(look-alikes, faults) of a half, by name."""
    hidden = _HELD_OUT if half == "develop" else ()
    return [k for k in _HEALTHY if k not in hidden], [k for k in _FAULTS if k not in hidden]


def explain(kind: str) -> str:
    """What a kind is, in one line."""
    function = _HEALTHY.get(kind) or _fault(kind).apply
    return " ".join((function.__doc__ or "").split())


def make(kind: str, seed: int, severity: str | None = None) -> History:
    """The run of a case."""
    return build(Case(kind, seed, severity))[0]


def twin(case: Case) -> History:
    """The healthy twin of a fault: the same set-up and the same noise, up to the onset the very same numbers."""
    return build(case, injected=False)[0]


def build(case: Case, *, injected: bool = True) -> tuple[History, Truth]:
    """The run of a case and its truth."""
    half = "report" if case.seed >= REPORT_SEEDS else "develop"
    if half == "develop" and case.kind in _HELD_OUT:
        raise ValueError(f"{case.kind} is held out for the report half; its seeds begin at {REPORT_SEEDS}")
    key = f"{case.kind}/{case.severity}".encode()
    draws = Draws(np.random.default_rng([case.seed, zlib.crc32(key)]), half)
    if case.kind in _HEALTHY:
        return _healthy(case, draws)
    if case.severity not in SEVERITIES:
        raise ValueError(f"{case.kind} needs a severity: {', '.join(SEVERITIES)}")
    return _faulty(case, _fault(case.kind), draws, injected)


def _fault(kind: str) -> Fault:
    if kind not in _FAULTS:
        raise ValueError(f"no kind {kind!r}; there are {', '.join([*_HEALTHY, *_FAULTS])}")
    return _FAULTS[kind]


def _healthy(case: Case, d: Draws) -> tuple[History, Truth]:
    special, shape = _HEALTHY[case.kind](d)
    world = World(_host(d, special), int(d.rng.integers(2**62)))
    if shape:
        shape(world)
    return _history(world), _truth(case, world.host, d.half, healthy=True)


def _faulty(case: Case, fault: Fault, d: Draws, injected: bool) -> tuple[History, Truth]:
    host = d.pick([kind for kind in HOSTS if _named(kind) not in fault.not_on])
    special, shape = host(d)
    needed = {name: d.pick(value) if isinstance(value, tuple) else value for name, value in fault.host.items()}
    special = {"p_start": d.span(0.2, 0.35), "p_end": d.span(0.8, 0.92), "tau": d.span(0.35, 0.6), **special, **needed}
    if fault.steps:
        special["steps"] = d.whole(*fault.steps) // 10 * 10
    elif fault.speed == "plateau":
        special["steps"] = d.whole(900, 1400) // 10 * 10
    world = World(_host(d, special), int(d.rng.integers(2**62)))
    if shape:
        shape(world)
    before = world.expected_reward()
    at = int(d.span(*(fault.begins or (0.3, 0.45 if fault.speed == "plateau" else 0.6))) * world.n)
    at -= at % world.host.log_every  # the first row of the log that holds it begins with it
    if injected:
        fault.apply(world, at, d.ratio(*_positive(fault.sizes[str(case.severity)])), d)
    after = world.expected_reward()
    fallen = np.flatnonzero(after[at:] < before[: at + 1].max() - FELL) + at if before[at] > FELL else []
    healed = np.flatnonzero(before[at:] < before[: at + 1].max() - FELL) + at  # a host may go down by itself
    falls = next((int(step) for step in fallen if step not in set(healed.tolist())), None)
    views = VIEWS[world.host.trainer]
    causes = fault.causes if not fault.told_by or views is None or fault.told_by in views else ()
    truth = _truth(
        case, world.host, d.half, healthy=False, fault=fault.name, accept=fault.accept, causes=causes,
        onset_step=at + 1, severity=case.severity, speed=fault.speed,
        reward_falls_at=None if falls is None else falls + 1,
    )  # fmt: skip
    return _history(world), truth


def _positive(span: tuple[float, float]) -> tuple[float, float]:
    return max(span[0], 1e-4), max(span[1], 1e-4)


def _host(d: Draws, special: dict[str, Any]) -> Host:
    return Host(**setting(d, special))


def setting(d: Draws, special: dict[str, Any]) -> dict[str, Any]:
    """An ordinary set-up with what is special about this one."""
    trainer = d.pick(("own", "own", "trl", "verl"))
    return {
        "task": d.pick(TASKS[d.half]),
        "algorithm": "ppo" if d.chance(0.25) else "grpo",
        "trainer": trainer,
        "log_every": 10 if trainer == "trl" and d.chance(0.25) else 1,
        "steps": d.whole(450, 900) // 10 * 10,
        "prompts": d.whole(16, 64),
        "group": d.pick((8, 16)) if trainer == "own" else 8,
        "p_start": d.span(0.12, 0.4),
        "p_end": d.span(0.65, 0.92),
        "tau": d.span(0.25, 0.6),
        "spread": d.span(1.0, 2.2),
        "rewards": d.pick(("0-1", "0-1", "-1..1", "0-5")),
        "entropy": d.ratio(0.3, 2.0),
        "entropy_fall": d.span(0.2, 0.9),
        "length": d.ratio(30, 1500),
        "length_growth": d.span(-0.25, 0.35),
        "cap": d.span(3.5, 7.0),
        "grad": d.ratio(0.05, 3.0),
        "grad_noise": d.span(0.12, 0.25),
        "lr": d.ratio(5e-7, 1e-5),
        "schedule": d.pick(("constant", "constant", "linear", "cosine")),
        "beta": d.ratio(5e-4, 1e-2),
        "kl": d.ratio(0.01, 0.15),
        "kl_old": d.ratio(2e-4, 3e-3),
        "clip": d.ratio(0.002, 0.03),
        "mismatch": d.ratio(1e-4, 1.5e-3),
        "phi": d.span(0.1, 0.6),
        "val_every": d.whole(10, 50),
        "val_size": d.whole(100, 500),
        "gap": d.span(0.0, 0.06),
        "step_s": d.ratio(2, 120),
        "planned": d.chance(0.7),
    } | special  # fmt: skip


def _history(world: World) -> History:
    host = world.host
    about: dict[str, Any] = {
        "trainer": {"own": "stabilizer"}.get(host.trainer, host.trainer),
        "clock": "rollout_batch",
        "config": {"policy": {"beta": host.beta}} if host.trainer == "own" else {"beta": host.beta},
    }
    if host.planned:
        about["steps"] = host.steps
    run = History(about)
    for step, values in world.rows():
        run.append(step, values)
    run.events += [Event(step, kind, text) for step, kind, text in sorted(world.events)]
    return run


def _truth(case: Case, host: Host, half: str, **more: Any) -> Truth:
    return Truth(tier="T1", kind=case.kind, task=host.task, algorithm=host.algorithm, seed=case.seed, half=half,
                 steps=host.steps, **more)  # fmt: skip
