"""Which runs tier T2 consists of: what a fault happens to, how bad, from which step on, and the healthy runs beside it.

Nothing is drawn when a plan is made: seed and onset of a case are a hash of its kind and severity, and of which draw of
the half is wanted. Another draw is another half of the same make, for figures that nobody has seen yet.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from bench.detect.faults import FAULTS, SEVERITIES
from bench.detect.live_lookalikes import LOOKALIKES, STRONG, LookAlike
from stabilizer.training.tasks import random_bits

FIRST_ONSET = 60
"""The earliest step at which a fault begins: a run has to have a past by which it can be judged."""
LAST_ONSET = 0.6
"""Share of the run by which every fault has begun, so that there is time to see it."""
HEALTHY = 0.42
"""Share of the cases that are healthy."""
FIRST_SEED = {"develop": 0, "report": 1000}
NEXT_DRAW = 2000
"""Distance between the seeds of one draw of a half and of the next: no two draws share a run, in either half."""
FIRST_OTHER = 100
"""Added to the seeds of healthy runs that are nobody's twin."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """The run that a fault happens to."""

    task: str
    algorithm: str = "grpo"
    steps: int = 210
    start: float | None = 0.5
    """Held-out accuracy to which the starting policy imitated demonstrations; None for the one that is shipped."""
    settings: tuple[str, ...] = ()
    seeds: int = 6
    """Clean twins, over which the faults are spread."""


_EVERYWHERE = ("device=cpu", "threads=1", "optim.schedule=constant", "validation.every=20", "validation.problems=64",
               "checkpoint.every=0", "checkpoint.best=false", "samples.every=20", "samples.count=2")  # fmt: skip
_SMALL = ("rollout.prompts=8", "rollout.group_size=6", "rollout.max_completion=10", "optim.lr=3e-4",
          "policy.entropy_coef=0")  # fmt: skip
_CRITIC = ("optim.lr=2e-4", "critic.warmup_steps=10")
_LENGTH = Host(task="length", steps=160, start=None, seeds=3, settings=("rollout.prompts=4", "rollout.group_size=6"))
_TOOL = Host(task="search", steps=130, start=0.7, seeds=2,
             settings=("rollout.prompts=4", "rollout.group_size=4", "optim.lr=2e-4"))  # fmt: skip
_SORTING = Host(task="sorting", settings=_SMALL)

HOSTS: dict[str, dict[str, Host]] = {
    "develop": {
        "grpo": Host(task="addition", settings=_SMALL),
        "ppo": Host(task="addition", algorithm="ppo", settings=(*_SMALL, *_CRITIC), seeds=3),
        "length": _LENGTH,
        "tool": _TOOL,
    },
    "report": {
        "grpo": _SORTING,
        "ppo": Host(task="sorting", algorithm="ppo", settings=(*_SMALL, *_CRITIC), seeds=3),
        "length": _SORTING,
        "tool": _TOOL,
    },
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run to be made."""

    half: str
    kind: str
    task: str
    algorithm: str
    seed: int
    steps: int
    settings: tuple[str, ...]
    start: float | None
    severity: str | None = None
    strength: float | None = None
    onset: int | None = None
    """The first step that differs; of a healthy run, that at which something happens to it."""

    @property
    def name(self) -> str:
        """What its folder is called."""
        words = (self.kind.replace("/", "-"), self.severity, self.task, self.algorithm, str(self.seed), self.key)
        return "-".join(word for word in words if word)

    @property
    def key(self) -> str:
        """A hash of all that decides what is logged."""
        return hashlib.sha256((json.dumps(asdict(self), sort_keys=True) + sources()).encode()).hexdigest()[:10]

    @property
    def twin(self) -> Case:
        """The same run without the fault: a healthy case like any other."""
        kind = "ppo" if self.algorithm == "ppo" else {"length": "length", "search": "search"}.get(self.task, "plain")
        return replace(self, kind=f"healthy/{kind}", severity=None, strength=None, onset=None)


def plan(half: str, draw: int = 0) -> list[Case]:
    """Every case of a half, twins first, then faults and healthy runs evenly mixed: any beginning is a fair sample."""
    ill = [case for severity in ("medium", "severe", "subtle") for case in _faulty(half, severity, draw)]
    twins = list(dict.fromkeys(case.twin for case in ill))
    others = math.ceil(len(ill) * HEALTHY / (1 - HEALTHY)) - len(twins)
    rounds = math.ceil(others / len(LOOKALIKES))
    well = [_healthy(half, look, i, draw) for i in range(rounds) for look in LOOKALIKES][:others]
    ranked = [((i + 0.5) / len(part), case) for part in (ill, well) for i, case in enumerate(part)]
    return twins + [case for _, case in sorted(ranked, key=lambda row: row[0])]


def _faulty(half: str, severity: str, draw: int) -> Iterator[Case]:
    at = SEVERITIES.index(severity)
    for fault in FAULTS:
        strength = getattr(fault, half)[at]
        if strength is None:
            continue
        host = HOSTS[half][fault.hosts[at % len(fault.hosts)]]
        bits = random_bits(half, fault.kind, severity, *([draw] if draw else []))
        onsets = range(FIRST_ONSET, int(LAST_ONSET * host.steps) + 1)
        yield Case(
            half=half, kind=fault.kind, task=host.task, algorithm=host.algorithm,
            seed=FIRST_SEED[half] + draw * NEXT_DRAW + bits % host.seeds, steps=host.steps,
            settings=(*_EVERYWHERE, *host.settings), start=host.start,
            severity=severity, strength=float(strength), onset=onsets[bits // 1000 % len(onsets)],
        )  # fmt: skip


def _healthy(half: str, look: LookAlike, i: int, draw: int) -> Case:
    host = _LENGTH if look.host == "length" else HOSTS[half][look.host]
    return Case(
        half=half, kind=look.kind, task=host.task, algorithm=host.algorithm,
        seed=FIRST_SEED[half] + draw * NEXT_DRAW + FIRST_OTHER + i, steps=host.steps,
        settings=(*_EVERYWHERE, *host.settings, *look.settings),
        start=STRONG[host.task] if look.strong else host.start,
        onset=max(1, round(look.at * host.steps)) if look.act or look.resumes else None,
    )  # fmt: skip


@cache
def sources() -> str:
    """A hash of the code by which runs come about."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    package = here.parents[1] / "stabilizer"
    files = [
        *here.glob("broken_*.py"),
        here / "reach.py",
        here / "live_lookalikes.py",
        package / "core" / "knobs.py",
    ]
    for file in sorted([*files, *(package / "training").rglob("*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()
