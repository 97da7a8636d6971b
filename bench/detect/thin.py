"""Runs as other trainers log them: short, sparse, small of batch, and ill from early on in slow ways.

T1 injects a fault into the middle of a run that logs nearly everything. What people bring instead is a table of five
columns and eighty rows in which the reward never moved, or a log of every tenth step in which it stopped moving
halfway. These cases are made for that: `logbooks` says what is kept of a run, and here is what ails it. The look-alikes
are those of T1 through the same logbooks, and some partners of the faults below. Slow failures of this kind are worth
knowing long before they are sure, so any finding that names the fault counts, information too; the column "any
incident" says how often there was a warning.

    from bench.detect import thin
    history, truth = thin.build(Case("thin/flattens", seed=3, severity="subtle"))
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.detect.host import Draws, Host
from bench.detect.logbooks import LOGBOOKS, Logbook, paid_otherwise
from bench.detect.lookalikes import HELD_OUT, LOOKALIKES, Shape
from bench.detect.streams import REPORT_SEEDS, SEVERITIES, Case, setting
from bench.detect.truth import Truth
from bench.detect.world import World
from stabilizer.runs.history import History

PREFIX = "thin/"
"""What the kind of such a case begins with."""
ROWS = (20, 400)
SCALES = ((1.0, 0.0), (1.0, 0.0), (2.0, -1.0), (8.0, -3.0))
"""(factor, shift) of the reward: 0..1, 0..1, -1..1, and a scale of nobody's."""

Bend = Callable[[World, float, Draws], int]
"""Bends a world; returns the first step that is ill, counted from 0."""


@dataclass(frozen=True, kw_only=True)
class Ailment:
    """A slow failure: what it does to a run, and what counts as having named it."""

    bend: Bend
    accept: tuple[str, ...]
    sizes: tuple[float, float, float]
    """For subtle, medium and severe: the one magnitude by which they differ, in the ailment's own unit."""
    host: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[int, int] = (50, 400)
    """How many there are: what begins in mid-run needs some on either side for anybody to see it."""
    shows: tuple[str, ...] = ()
    """Metrics without which no log can show it; `components` for the pieces of a reward."""

    @property
    def name(self) -> str:
        """As it is called everywhere."""
        return PREFIX + self.bend.__name__.replace("_", "-")

    def logbooks(self) -> list[Logbook]:
        """Those that can show it."""
        return [b for b in LOGBOOKS if all(b.components if m == "components" else m in b.metrics for m in self.shows)]


# --- the reward -----------------------------------------------------------------------------------------------------


def flattens(w: World, size: float, d: Draws) -> int:
    """The reward rises, and for the last so much of the run it stands, with room above it."""
    at = int((1 - size) * w.n)
    w.slow(at, d.span(0.0, 0.03))
    return at


def levels_off(w: World, size: float, d: Draws) -> int:
    """What can be learned is learned early, far below the ceiling: the curve bends and is level."""
    return int(min(3 * w.host.tau, 0.9) * w.n)


def never_rises(w: World, size: float, d: Draws) -> int:
    """The reward stands where it began from the first step to the last."""
    w.slow(0, d.span(0.0, 0.02))
    return 0


def never_succeeds(w: World, size: float, d: Draws) -> int:
    """Next to no answer is ever right, and the groups are silent for it."""
    w.slow(0, 0.0)
    w.p, w.p_val = np.full(w.n, size), np.full(w.n, size)
    return 0


def at_the_top(w: World, size: float, d: Draws) -> int:
    """The task is solved early on, or was before training: nothing is left to learn."""
    return int(2 * w.host.tau * w.n) if w.host.p_start < 0.9 else 0


def groups_fall_silent(w: World, size: float, d: Draws) -> int:
    """Prompts part into those always solved and those never: ever more groups are without any spread."""
    at = int(d.span(0.05, 0.4) * w.n)
    w.spread = w.spread * (1 + (size - 1) * w.ramp(at, 0.4 * w.n))
    w.slow(at, 0.05)
    return at


def form_without_substance(w: World, size: float, d: Draws) -> int:
    """The format is learned, which pays, while right answers stay as rare as they were."""
    w.slow(0, 0.0)
    low, over = d.span(0.05, 0.3), d.span(0.1, 0.4) * w.n
    w.p_format = low + size * (1 - low) * (1 - np.exp(-w.t / over))
    return 0


def unlike_the_tests(w: World, size: float, d: Draws) -> int:
    """The reward is gamed: it rises, and held-out accuracy falls."""
    at, over = int(d.span(0.15, 0.45) * w.n), d.span(0.2, 0.5) * w.n
    w.slow(at, 0.1)
    w.hack += size * w.ramp(at, over)
    w.p_val = w.p_val * (1 - 0.7 * size * w.ramp(at, over))
    return at


# --- the policy and its answers -------------------------------------------------------------------------------------


def entropy_dwindles(w: World, size: float, d: Draws) -> int:
    """Entropy drifts down to so little, most of it early or evenly; the reward has stood since early or half-way."""
    at = int(d.pick((0.0, 0.0, 0.15)) * w.n)
    w.slow(int(d.pick((0.0, 0.1, 0.4)) * w.n), 0.03)
    since = np.maximum(0, w.t - at) / w.n
    gone = np.minimum(1, since / d.span(0.5, 0.85)) if d.chance(0.5) else 1 - np.exp(-since / d.span(0.03, 0.25))
    w.log_entropy = np.log(size) * gone
    w.spread = w.spread * (1 + 0.4 * np.log(1 / size) * gone)
    return at


def answers_shrink(w: World, size: float, d: Draws) -> int:
    """Answers lose so much of their length little by little; the reward stands, or loses a third."""
    return _answers(w, size, d)


def answers_swell(w: World, size: float, d: Draws) -> int:
    """Answers grow little by little to so many times their length; the reward stands, or loses a third."""
    return _answers(w, size, d)


def _answers(w: World, size: float, d: Draws) -> int:
    at = int(d.span(0.05, 0.35) * w.n)
    over = d.span(0.3, 0.6) * w.n
    w.slow(at, 0.03)
    w.log_length += np.log(size) * w.ramp(at, over)
    if d.chance(0.5):
        w.hurt(at, over, 0.35)
    return at


_STUCK = ("reward/plateau", "reward/noise-floor", "optim/lr-too-low")
_RISES = {"p_start": (0.12, 0.2, 0.3), "p_end": (0.6, 0.75, 0.85), "schedule": "constant"}

AILMENTS = (
    Ailment(bend=flattens, accept=_STUCK, sizes=(1 / 3, 1 / 2, 2 / 3), host=_RISES | {"tau": (0.3, 0.5)}),
    Ailment(bend=levels_off, accept=_STUCK, sizes=(1, 1, 1), host=_RISES | {"tau": (0.05, 0.08, 0.12)}),
    Ailment(bend=never_rises, accept=_STUCK, sizes=(1, 1, 1),
            rows=ROWS,
            host={"p_start": (0.1, 0.25, 0.4, 0.6), "schedule": "constant"}),
    Ailment(bend=never_succeeds, accept=("reward/no-signal", "reward/plateau"), sizes=(0.02, 0.008, 0.0),
            rows=ROWS, host={"schedule": "constant"}),
    Ailment(bend=at_the_top, accept=("reward/saturated",), sizes=(1, 1, 1), rows=ROWS,
            host={"p_start": (0.3, 0.5, 0.97), "p_end": (0.975, 0.985, 0.995), "tau": (0.04, 0.08, 0.12), "gap": 0.0,
                  "spread": (0.6, 1.0)}),
    Ailment(bend=groups_fall_silent, accept=("reward/no-signal",), sizes=(3.0, 6.0, 20.0),
            host={"p_start": (0.2, 0.35), "p_end": (0.5, 0.7), "group": 8, "prompts": (4, 8)},
            shows=("reward/zero_std_frac",)),
    Ailment(bend=form_without_substance, accept=("reward/hacking", "reward/component-dominance"), sizes=(0.5, 0.7, 1.0),
            host={"rewards": "0-5", "p_start": (0.004, 0.02, 0.1), "schedule": "constant"}, shows=("components",)),
    Ailment(bend=unlike_the_tests, accept=("reward/hacking",), sizes=(0.35, 0.6, 0.9), host={"gap": 0.0},
            shows=("accuracy/val",)),
    Ailment(bend=entropy_dwindles, accept=("policy/entropy-collapse",), sizes=(0.3, 0.12, 0.03),
            host=_RISES | {"entropy": (0.4, 0.8, 1.4), "tau": (0.3, 0.5)}, shows=("policy/entropy",)),
    Ailment(bend=answers_shrink, accept=("rollout/length-collapse",), sizes=(0.55, 0.4, 0.2),
            host={"length_growth": 0}),
    Ailment(bend=answers_swell, accept=("rollout/length-explosion", "rollout/truncation"), sizes=(1.8, 2.5, 5.0),
            host={"length_growth": 0, "cap": (6.0, 9.0)}),
)  # fmt: skip
"""All of them."""


# --- partners: what looks like an ailment and is none ----------------------------------------------------------------


def steady_rise(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """A straight line from the first row to the last."""
    rise = d.span(0.2, 0.6)

    def shape(w: World) -> None:
        w.gain = (w.t + 1) / w.n
        w.p = w.host.p_start + rise * w.gain
        w.p_val = w.p - w.host.gap

    return {"schedule": "constant", "p_start": d.span(0.1, 0.35)}, shape


def fast_then_slow(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Much is gained in the first tenth; from then on little, but steadily and to the end."""
    slow = d.span(0.35, 0.6)

    def shape(w: World) -> None:
        w.gain = (1 - slow) * (1 - np.exp(-w.t / (0.03 * w.n))) + slow * w.t / w.n
        w.p = w.host.p_start + (w.host.p_end - w.host.p_start) * w.gain
        w.p_val = w.p - w.host.gap

    return {"schedule": "constant", "p_start": d.span(0.1, 0.2), "p_end": d.span(0.75, 0.9)}, shape


def entropy_well_spent(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Entropy falls to a twentieth, and the reward rises for it to the last row."""
    special, shape = steady_rise(d)
    return special | {"entropy_fall": d.span(2.0, 3.2), "entropy": d.span(0.4, 1.2)}, shape


def ever_briefer(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Answers shrink to a third while the reward rises to the last row."""
    special, shape = steady_rise(d)
    return special | {"length_growth": -d.span(0.7, 1.3)}, shape


def ever_longer(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Answers grow threefold while the reward rises to the last row."""
    special, shape = steady_rise(d)
    return special | {"length_growth": d.span(0.6, 1.4), "cap": 12.0}, shape


def silent_from_the_start(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Half of the groups and more are without spread from the first row on, and from the others the task is learned."""
    special, shape = steady_rise(d)
    return special | {"spread": d.span(3.0, 5.0), "group": 4, "trainer": "trl"}, shape


PARTNERS = (steady_rise, fast_then_slow, entropy_well_spent, ever_briefer, ever_longer, silent_from_the_start)
_HEALTHY = {f"{PREFIX}healthy/{kind.__name__.replace('_', '-')}": kind for kind in (*PARTNERS, *LOOKALIKES)}
_AILMENTS = {ailment.name: ailment for ailment in AILMENTS}


def kinds(half: str) -> tuple[list[str], list[str]]:
    """(look-alikes, ailments) of a half, by name."""
    return [k for k, make in _HEALTHY.items() if half == "report" or make not in HELD_OUT], list(_AILMENTS)


def cases(half: str, seed: int, healthy: int, faulty: int) -> list[Case]:
    """The cases of a half from a seed on: so many of every look-alike, and of every ailment at every severity."""
    looks, ailments = kinds(half)
    first = seed + (REPORT_SEEDS if half == "report" else 0)
    out = [Case(kind, first + i) for kind in looks for i in range(healthy)]
    return out + [Case(kind, first + i, s) for kind in ailments for s in SEVERITIES for i in range(faulty)]


def build(case: Case) -> tuple[History, Truth]:
    """The run of a case and its truth."""
    half = "report" if case.seed >= REPORT_SEEDS else "develop"
    d = Draws(np.random.default_rng([case.seed, zlib.crc32(f"{case.kind}/{case.severity}".encode())]), half)
    ailment = _AILMENTS.get(case.kind)
    if ailment is None and case.kind not in _HEALTHY:
        raise ValueError(f"no kind {case.kind!r}; there are {', '.join([*_HEALTHY, *_AILMENTS])}")
    book = d.pick(ailment.logbooks() if ailment else LOGBOOKS)
    every = d.pick(book.every)
    small = {"prompts": d.pick((1, 2, 4, 8)), "group": d.pick((4, 8)), "step_s": d.ratio(2, 120)}
    special, shape = _HEALTHY[case.kind](d) if ailment is None else ({}, None)
    if ailment:
        special = {name: d.pick(v) if isinstance(v, tuple) else v for name, v in ailment.host.items()}
    rows = int(d.ratio(*(ailment.rows if ailment else ROWS)))
    special = small | special | {"steps": rows * every, "trainer": "own", "log_every": 1}
    special["val_every"] = every * d.pick((5, 10, 20))
    world = World(Host(**setting(d, special)), int(d.rng.integers(2**62)))
    if shape:
        shape(world)
    onset = None
    if ailment:
        at = ailment.bend(world, ailment.sizes[SEVERITIES.index(str(case.severity))], d)
        onset = at - at % every + 1
    truth = Truth(tier="thin", kind=case.kind, task=world.host.task, algorithm=world.host.algorithm, seed=case.seed,
                  half=half, steps=world.n, healthy=ailment is None, fault=ailment and case.kind,
                  accept=ailment.accept if ailment else (), onset_step=onset, severity=case.severity,
                  speed="slow")  # fmt: skip
    return _history(world, book, every, d.pick(SCALES)), truth


def _history(world: World, book: Logbook, every: int, scale: tuple[float, float]) -> History:
    columns = world.columns()
    paid_otherwise(columns, *scale)
    about: dict[str, Any] = {"trainer": book.trainer, "clock": "optimizer_step", "config": {"beta": world.host.beta}}
    run = History(about | ({"steps": world.n} if book.planned else {}))
    for step, values in book.rows(columns, every):
        run.append(step, values)
    return run
