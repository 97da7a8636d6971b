"""Which runs RescueBench consists of: the hosts, what happens to each, and from when on.

Nothing is drawn when a plan is made: seed and onset of a case are a hash of its kind, severity and round. The halves
share no seed, no strength (but where there is only one) and no task:

    develop   seeds 0-999       addition by GRPO and PPO, search       may be looked at while remedies are made
    report    seeds 1000-1999   sorting by GRPO and PPO, length        gives the figures that are published

Lengths, rates and starts of the hosts were chosen on healthy runs alone: a run has learned most of what it will by its
end, and what is broken in its second quarter leaves half of the run to make it good. The learning rate comes down to a
tenth, as in most runs of others: at a constant one a run ends in the middle of its own noise, and two healthy ones that
differ by the draw of their prompts ended up to ten points apart, beside which no harm of two points can be seen. And it
is about the best of half of it, itself and twice: otherwise what is broken may well be what helps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from bench.detect.live_lookalikes import BY_KIND as LOOKS
from bench.detect.live_lookalikes import STRONG
from bench.rescue.faults import FAULTS, SEVERITIES
from stabilizer.training.tasks import random_bits

FIRST_ONSET, LAST_ONSET = 0.25, 0.45
"""Shares of the run between which faults begin."""
FIRST_SEED = {"develop": 0, "report": 1000}
SEEDS = 3
"""Clean twins per host and `--seed`, over which the faults are spread."""
FIRST_OTHER = 50
"""Added to the seeds of healthy runs that are nobody's twin."""
NEXT = 100
"""Distance between the seeds of one `--seed` and the next."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """The run that something happens to."""

    task: str
    algorithm: str = "grpo"
    steps: int = 240
    start: float | None = 0.5
    """Held-out accuracy to which the starting policy imitated demonstrations; None for the one that is shipped."""
    settings: tuple[str, ...] = ()


EVERYWHERE = ("device=cpu", "threads=1", "optim.schedule=linear", "policy.entropy_coef=0", "validation.every=20",
              "validation.problems=64", "checkpoint.every=20", "checkpoint.best=false", "samples.every=0")  # fmt: skip
_BATCH = ("rollout.prompts=16", "rollout.group_size=8", "rollout.max_completion=10")
_PPO = (*_BATCH, "critic.warmup_steps=10")
_ADDITION, _SORTING = Host(task="addition", start=0.85), Host(task="sorting", start=0.8)

HOSTS: dict[str, dict[str, Host]] = {
    "develop": {
        "grpo": replace(_ADDITION, settings=(*_BATCH, "optim.lr=3e-4")),
        "ppo": replace(_ADDITION, algorithm="ppo", settings=(*_PPO, "optim.lr=2e-4")),
        "other": Host(task="search", steps=160, start=0.7,
                      settings=("rollout.prompts=4", "rollout.group_size=4", "optim.lr=4e-4")),
        "cap": replace(_ADDITION, settings=(*_BATCH, "optim.lr=3e-4")),
    },
    "report": {
        "grpo": replace(_SORTING, settings=(*_BATCH, "optim.lr=4e-4")),
        "ppo": replace(_SORTING, algorithm="ppo", settings=(*_PPO, "optim.lr=6e-4")),
        "other": Host(task="length", steps=180, start=None,
                      settings=("rollout.prompts=4", "rollout.group_size=6", "optim.lr=4e-4")),
        "cap": replace(_SORTING, settings=(*_BATCH, "optim.lr=4e-4")),
    },
}  # fmt: skip

TWIN, OTHER_PROMPTS = "healthy/twin", "healthy/other-prompts"
HEALTHY = ("plain", "high-lr", "solved", "curriculum", "small-batch", "ppo", "no-kl", "mixed-prompts", "batch-grown",
           "long-warmup", "on-policy", "cyclic", "dr-grpo", "low-entropy", "cooler", "gspo")  # fmt: skip
"""Look-alikes of `live_lookalikes`, those that ask most of a policy first."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run that something happens to, or a healthy one."""

    half: str
    kind: str
    """A fault, or `healthy/...`."""
    task: str
    algorithm: str
    seed: int
    steps: int
    """Iterations that every arm trains, those that a rollback throws away among them."""
    settings: tuple[str, ...]
    start: float | None
    severity: str | None = None
    strength: float | None = None
    onset: int | None = None
    """The first iteration that differs; of a healthy run, that at which something happens to it."""

    @property
    def name(self) -> str:
        """What it is called."""
        words = (self.kind.replace("/", "-"), self.severity, self.task, self.algorithm, self.seed, self.onset)
        return "-".join(str(word) for word in words if word is not None)

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.severity is None

    @property
    def twin(self) -> Case:
        """The same run without the fault."""
        return replace(self, kind=TWIN, severity=None, strength=None, onset=None)

    @property
    def other_prompts(self) -> Case:
        """The twin with other prompts from its first third on: what chance alone does."""
        return replace(self.twin, kind=OTHER_PROMPTS, onset=round(self.steps / 3))

    def key(self, sources: str) -> str:
        """A hash of all that decides how it ends."""
        text = json.dumps(asdict(self), sort_keys=True) + sources
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def plan(half: str, seed: int = 0, rounds: int = 1) -> list[Case]:
    """Every case of a half but the twins, faults and healthy runs evenly mixed: any beginning is a fair sample."""
    ill = [case for i in range(rounds) for s in ("medium", "severe", "subtle") for case in _faulty(half, s, seed, i)]
    well = [_healthy(half, kind, seed, i) for i in range(rounds) for kind in HEALTHY]
    count = (len(ill) + 1) // 2  # at least half as many as there are faults
    well = [replace(case, seed=case.seed + k) for k, case in enumerate((well * (count // len(well) + 1))[:count])]
    ranked = [((i + 0.5) / len(part), case) for part in (ill, well) for i, case in enumerate(part)]
    return [case for _, case in sorted(ranked, key=lambda row: row[0])]


def _faulty(half: str, severity: str, seed: int, turn: int) -> Iterator[Case]:
    at = SEVERITIES.index(severity)
    for fault in FAULTS:
        strength = getattr(fault, half)[at]
        if strength is None:
            continue
        bits = random_bits(half, fault.kind, severity, seed, turn)
        hosts = (*fault.hosts, "other") if fault.hosts == ("grpo", "ppo") and _fits_any(fault.kind) else fault.hosts
        host = HOSTS[half][hosts[(bits + at) % len(hosts)]]
        first, last = round(FIRST_ONSET * host.steps), round(LAST_ONSET * host.steps)
        yield Case(
            half=half, kind=fault.kind, severity=severity, strength=float(strength),
            seed=FIRST_SEED[half] + NEXT * seed + bits // 1000 % SEEDS,
            onset=first + bits // 10**6 % (last - first + 1), **_of(host),
        )  # fmt: skip


def _fits_any(kind: str) -> bool:
    """The third task knows no harder prompts, and its rewards are not 0 or 1."""
    return kind not in ("harder-prompts", "verifier-burst", "batch-shrunk")


def _healthy(half: str, kind: str, seed: int, turn: int) -> Case:
    look = LOOKS[f"healthy/{kind}"]
    host = HOSTS[half][look.host]
    about = _of(host) | {"settings": (*EVERYWHERE, *host.settings, *look.settings)}
    if look.strong:
        about["start"] = STRONG[host.task]
    return Case(
        half=half, kind=look.kind, seed=FIRST_SEED[half] + NEXT * seed + FIRST_OTHER,
        onset=max(1, round(look.at * host.steps)) if look.act else None, **about,
    )  # fmt: skip


def _of(host: Host) -> dict[str, Any]:
    return {"task": host.task, "algorithm": host.algorithm, "steps": host.steps, "start": host.start,
            "settings": (*EVERYWHERE, *host.settings)}  # fmt: skip


def quick(seed: int = 0) -> list[Case]:
    """A handful of short runs that shows whether the bench itself works; too few to say more."""
    host = Host(task="addition", steps=80, start=None,
                settings=("rollout.prompts=8", "rollout.group_size=6", "optim.lr=4e-4"))  # fmt: skip
    about = _of(host) | {"half": "develop", "seed": FIRST_SEED["develop"] + NEXT * seed + FIRST_OTHER - 1}
    ill = [Case(kind=kind, severity="severe", strength=strength, onset=40, **about)
           for kind, strength in (("nan-weight", 1.0), ("lr-burst", 25.0))]  # fmt: skip
    return [*ill, Case(kind="healthy/curriculum", onset=40, **about)]


@cache
def sources(remedies: bool) -> str:
    """A hash of the code by which a run ends as it does; without `remedies`, of a run that none of ours touches."""
    here = Path(__file__).parent
    package, detect = here.parents[1] / "stabilizer", here.with_name("detect")
    files = [
        *detect.glob("broken_*.py"), detect / "reach.py", detect / "live_lookalikes.py",
        *(here / name for name in ("faults.py", "play.py", "arms.py")),
        *(package / "live" / name for name in ("session.py", "monitor.py", "host.py")),
    ]  # fmt: skip
    for folder in ("core", "training", "detectors", "incidents", *(["remedies", "control"] if remedies else [])):
        files += (package / folder).rglob("*.py")
    digest = hashlib.sha256()
    for file in sorted(set(files)):
        digest.update(file.read_bytes())
    return digest.hexdigest()
