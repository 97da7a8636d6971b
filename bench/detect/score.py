"""How good a method is, from what it said about cases whose truth is known. Pure arithmetic.

A method's alarms are merged alike for all methods: an alarm within `MERGE` steps of the one before belongs to the same
incident. What is of severity `warn` or `critical` is an alarm; `info` is counted beside it. An incident that opens in a
healthy run, or before the onset of a fault, is a false one, and no hit for that fault either. A trained run with a
fault is equal to its clean twin until the onset, so those steps count once, as the twin's.

A hit is an alarm that opens `EARLY` steps before the onset or later and names the fault: its id is in `accept`. Where
such a finding is `info` by design, and in thin logs, any severity counts. Misses are never left out: their delay is
infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bench.detect.truth import HEALTHY, Truth

MERGE = 50
"""Steps between two alarms of one incident."""
EARLY = 2
"""Steps by which a hit may come before the onset: a row of a log that is written every step or so."""
LEAD = 25
"""Steps before the fall of the reward that count as an early warning."""
INFO_BY_DESIGN = frozenset(
    {"reward/saturated", "system/data-shift", "system/slowdown", "system/memory-growth", "policy/kl-estimator"}
)
"""Findings that ask for nothing to be done about the training: a KL whose spikes move neither gradient nor reward is a
bad gauge, and a slow machine is no fault of the policy."""
ABSTAINED = "undetermined"
ANY = "*"
"""What a method that names no failure is taken to name: every one, in its favour."""


BINS = (0.0, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
"""Bounds of the bins in which confidence is compared with the share that was right."""
SURE = 0.6
"""Confidence from which a wrong cause misleads: pages name such a cause without reservation."""


@dataclass(frozen=True)
class Alarm:
    """Something a method said at a step."""

    step: int
    """When it was said."""
    ids: tuple[str, ...]
    """Our ids of what it names."""
    severity: str = "warn"
    onset: int | None = None
    """When it began, as the method has it."""
    causes: tuple[str, ...] = ()
    """Likeliest first."""
    text: str = ""
    confidence: float = 0.0
    """Of the likeliest cause."""

    @property
    def loud(self) -> bool:
        """Whether it counts as an alarm."""
        return self.severity != "info"


@dataclass(frozen=True)
class Judged:
    """One case, judged."""

    truth: Truth
    false: tuple[Alarm, ...]
    """The first alarm of every false incident."""
    false_alarms: tuple[Alarm, ...]
    """Every false alarm, before merging."""
    false_infos: int
    """Incidents that are info alone and false."""
    healthy_steps: int
    hit: Alarm | None
    """The first alarm that names the fault."""
    any_step: int | None
    """The first step of an alarm that opened at the onset or later."""
    late: tuple[Alarm, ...] = ()
    """Everything said from the onset on."""

    @property
    def delay(self) -> float:
        """Steps from the onset to the hit; infinite for a miss."""
        if self.hit is None or self.truth.onset_step is None:
            return math.inf
        return float(max(0, self.hit.step - self.truth.onset_step))


def merged(alarms: Iterable[Alarm]) -> list[list[Alarm]]:
    """Alarms grouped into incidents, in order of time."""
    groups: list[list[Alarm]] = []
    for alarm in sorted(alarms, key=lambda a: a.step):
        if groups and alarm.step - groups[-1][-1].step <= MERGE:
            groups[-1].append(alarm)
        else:
            groups.append([alarm])
    return groups


def judge(truth: Truth, alarms: Sequence[Alarm]) -> Judged:
    """What a method's alarms are worth against the truth of a case."""
    start = truth.steps + 1 if truth.healthy else int(truth.onset_step or 0) - EARLY
    again = truth.tier == "T2" and not truth.healthy  # until its onset it is its clean twin, a case of its own
    early = [] if again else [alarm for alarm in alarms if alarm.step < start]
    late = sorted((alarm for alarm in alarms if alarm.step >= start), key=lambda a: a.step)
    loud = [alarm for alarm in early if alarm.loud]
    heard = merged(loud)
    infos = sum(1 for group in merged(early) if not any(alarm.loud for alarm in group))
    named = [a for a in late if _names(a, truth) and (a.loud or _told(a, truth))]
    opened = [alarm.step for alarm in late if alarm.loud]
    return Judged(
        truth=truth,
        false=tuple(group[0] for group in heard),
        false_alarms=tuple(loud),
        false_infos=infos,
        healthy_steps=0 if again else max(0, start - 1),
        hit=named[0] if named else None,
        any_step=opened[0] if opened else None,
        late=tuple(late),
    )


def _names(alarm: Alarm, truth: Truth) -> bool:
    return ANY in alarm.ids or bool(set(alarm.ids) & set(truth.accept))


def _told(alarm: Alarm, truth: Truth) -> bool:
    """Whether information is enough: for what asks for nothing to be done, and for slow failures of a thin log."""
    return truth.tier == "thin" or bool(INFO_BY_DESIGN.intersection(alarm.ids, truth.accept))


# --- figures --------------------------------------------------------------------------------------------------------


def summary(judged: Sequence[Judged]) -> dict[str, Any]:
    """Every figure of one method, as JSON's own types."""
    faults = [j for j in judged if not j.truth.healthy]
    false = false_alarms(judged)
    return {
        "false alarms": false,
        "by chance": by_chance(judged, false["rate"]),
        "worst look-alikes": by_kind(judged),
        "recall": {name: recall(part) for name, part in _by_severity(faults)},
        "delay": {name: delays(part) for name, part in _by_speed(faults)},
        "onset error": onset_error(faults),
        "lead": lead(faults),
        "causes": causes(faults),
        "reliability": reliability(faults),
        "faults": [_fault_row(kind, [j for j in faults if j.truth.kind == kind]) for kind in _kinds(faults)],
    }


def false_alarms(judged: Iterable[Judged]) -> dict[str, Any]:
    """Incidents per 1,000 healthy steps with a 95 % interval, in healthy runs and before onsets."""
    judged = list(judged)
    steps = sum(j.healthy_steps for j in judged)
    count = sum(len(j.false) for j in judged)
    infos = sum(j.false_infos for j in judged)
    thousand = max(steps, 1) / 1000
    low, high = poisson(count)
    return {"incidents": count, "steps": steps, "runs": len(judged), "rate": count / thousand,
            "interval": [low / thousand, high / thousand], "info rate": infos / thousand}  # fmt: skip


def by_kind(judged: Iterable[Judged]) -> list[dict[str, Any]]:
    """False alarms per look-alike, the worst first; what comes before the onset of faults is a kind of its own."""
    groups: dict[str, list[Judged]] = {}
    for j in judged:
        groups.setdefault(j.truth.kind if j.truth.healthy else "before an onset", []).append(j)
    rows = [{"kind": kind.removeprefix(HEALTHY), **false_alarms(part)} for kind, part in groups.items()]
    return sorted(rows, key=lambda row: -row["rate"])


def recall(judged: Sequence[Judged]) -> dict[str, Any]:
    """Share of faults that were named, and of those with any incident, each with a Wilson interval."""
    hits, loud = sum(j.hit is not None for j in judged), sum(j.any_step is not None for j in judged)
    return {"n": len(judged), "hits": hits, "recall": hits / max(len(judged), 1), "interval": wilson(hits, len(judged)),
            "any": loud / max(len(judged), 1), "any interval": wilson(loud, len(judged))}  # fmt: skip


def by_chance(judged: Iterable[Judged], rate: float) -> float:
    """Share of faults that a method with this rate of false incidents per 1,000 steps meets without looking."""
    left = [j.truth.steps - int(j.truth.onset_step or 0) for j in judged if not j.truth.healthy]
    return sum(1 - math.exp(-rate * steps / 1000) for steps in left) / max(len(left), 1)


def delays(judged: Sequence[Judged]) -> dict[str, Any]:
    """Median and 90th percentile of the delay; None where that many are missed."""
    found = sorted(j.delay for j in judged)
    return {"n": len(found), "median": _finite(quantile(found, 0.5)), "p90": _finite(quantile(found, 0.9))}


def onset_error(judged: Iterable[Judged]) -> dict[str, Any]:
    """How far the method's onset is from the true one, over hits that give one."""
    errors = sorted(
        abs(j.hit.onset - int(j.truth.onset_step or 0)) for j in judged if j.hit and j.hit.onset is not None
    )
    return {"n": len(errors), "median": _finite(quantile([float(e) for e in errors], 0.5))}


def lead(judged: Iterable[Judged]) -> dict[str, Any]:
    """Steps between the first alarm that names the fault and the fall of the reward; a miss has no lead."""
    fell = [j for j in judged if j.truth.reward_falls_at is not None]
    leads = sorted(int(j.truth.reward_falls_at or 0) - j.hit.step if j.hit else -math.inf for j in fell)
    early = sum(value >= LEAD for value in leads)
    return {"n": len(leads), "median": _finite(quantile(leads, 0.5)), "share early": early / max(len(leads), 1)}


def causes(judged: Iterable[Judged]) -> dict[str, Any]:
    """How often the cause is right, over hits of faults whose cause can be told; abstaining is not being wrong."""
    told = [j for j in judged if j.hit and j.truth.causes]
    given = [tuple(c for c in j.hit.causes if c != ABSTAINED) if j.hit else () for j in told]
    first = [j.hit.causes[0] if j.hit and j.hit.causes else ABSTAINED for j in told]
    dared = sum(name != ABSTAINED for name in first)
    top1 = sum(name in j.truth.causes for name, j in zip(first, told, strict=True))
    top2 = sum(bool(set(names[:2]) & set(j.truth.causes)) for names, j in zip(given, told, strict=True))
    n = max(len(told), 1)
    return {"n": len(told), "top-1": top1 / n, "top-2": top2 / n, "abstained": 1 - dared / n if told else 0.0,
            "precision": top1 / dared if dared else None, "top-1 interval": wilson(top1, len(told))}  # fmt: skip


def reliability(judged: Iterable[Judged]) -> dict[str, Any]:
    """How often the first cause is right at each confidence, over hits of faults whose cause can be told.

    The calibration error is the mean distance between confidence and share right, weighed by the hits of each bin.
    """
    hits = [(j.hit, j.truth.causes) for j in judged if j.hit and j.truth.causes and j.hit.causes]
    named = [(hit.confidence, hit.causes[0] in right) for hit, right in hits if hit.causes[0] != ABSTAINED]
    bins = [
        {
            "from": low,
            "to": min(high, 1.0),
            "n": len(inside),
            "right": sum(right for _, right in inside) / len(inside),
            "interval": wilson(sum(right for _, right in inside), len(inside)),
            "said": sum(confidence for confidence, _ in inside) / len(inside),
        }
        for low, high in pairwise(BINS)
        if (inside := [pair for pair in named if low <= pair[0] < high])
    ]
    error = sum(b["n"] * abs(b["right"] - b["said"]) for b in bins) / max(len(named), 1)
    wrong = sum(not right for confidence, right in named if confidence >= SURE)
    return {"n": len(named), "bins": bins, "calibration error": error, "surely wrong": wrong / max(len(hits), 1)}


def detectors(judged: Sequence[Judged]) -> dict[str, dict[str, Any]]:
    """Per finding id: how many of the faults made for it got that very finding, and how often it was a false alarm."""
    steps = max(sum(j.healthy_steps for j in judged), 1)
    ids = {j.truth.accept[0] for j in judged if not j.truth.healthy}
    ids |= {id for j in judged for alarm in j.false_alarms for id in alarm.ids}
    out = {}
    for id in sorted(ids):
        meant = [j for j in judged if not j.truth.healthy and j.truth.accept[0] == id]
        seen = sum(any(id in a.ids and (a.loud or id in INFO_BY_DESIGN) for a in j.late) for j in meant)
        false = sum(id in alarm.ids for j in judged for alarm in j.false_alarms)
        low, high = poisson(false)
        out[id] = {"n": len(meant), "hits": seen, "recall": seen / max(len(meant), 1),
                   "interval": wilson(seen, len(meant)), "false": false, "false rate": 1000 * false / steps,
                   "false interval": [1000 * low / steps, 1000 * high / steps]}  # fmt: skip
    return out


def _fault_row(kind: str, judged: Sequence[Judged]) -> dict[str, Any]:
    parts = {name: recall(part) for name, part in _by_severity(judged)}
    return {"fault": kind, "accept": list(judged[0].truth.accept), "speed": judged[0].truth.speed, **parts,
            "delay": delays(judged)}  # fmt: skip


def _by_severity(judged: Sequence[Judged]) -> list[tuple[str, list[Judged]]]:
    named = [(name, [j for j in judged if j.truth.severity == name]) for name in ("subtle", "medium", "severe")]
    return [("all", list(judged)), *((name, part) for name, part in named if part)]


def _by_speed(judged: Sequence[Judged]) -> list[tuple[str, list[Judged]]]:
    named = [(name, [j for j in judged if j.truth.speed == name]) for name in ("instant", "fast", "slow", "plateau")]
    return [("all", list(judged)), *((name, part) for name, part in named if part)]


def _kinds(judged: Iterable[Judged]) -> list[str]:
    return list(dict.fromkeys(j.truth.kind for j in judged))


# --- intervals ------------------------------------------------------------------------------------------------------


def wilson(hits: int, n: int, z: float = 1.96) -> list[float]:
    """95 % interval of a share (Wilson 1927); [0, 1] when nothing was tried."""
    if not n:
        return [0.0, 1.0]
    share, z2 = hits / n, z * z
    centre, half = share + z2 / (2 * n), z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return [max(0.0, (centre - half) / (1 + z2 / n)), min(1.0, (centre + half) / (1 + z2 / n))]


def poisson(count: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of the mean of a Poisson count (Garwood 1936)."""
    tail = (1 - level) / 2
    low = 0.0 if count == 0 else _solve(lambda mean: 1 - _at_most(count - 1, mean), tail, count)
    return low, _solve(lambda mean: 1 - _at_most(count, mean), 1 - tail, count)


def _at_most(count: int, mean: float) -> float:
    if mean <= 0:
        return 1.0
    return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))


def _solve(rising: Any, target: float, near: int) -> float:
    low, high = 0.0, near + 10 * math.sqrt(near + 1) + 10
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > target else (middle, high)
    return (low + high) / 2


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that this share does not exceed (nearest rank), so that infinities stay what they are."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.inf


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
