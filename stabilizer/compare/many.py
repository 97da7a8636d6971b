"""Many runs side by side: groups of seeds, their curves with bands, what they were set to, and where each ended.

`compare` judges one side against one reference; this is the overview before that. Curves are smoothed as `compare`
smooths them, so the two agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stabilizer.compare.measure import MINIMUM, noise
from stabilizer.compare.sides import NAMES, SEEDS, Member, same_but_seed
from stabilizer.core.metrics import metric as definition
from stabilizer.core.points import thin

X = Literal["step", "tokens", "share"]
GRID = 240
"""Positions at which a band is drawn."""
MEMBER_POINTS = 300
"""Points of one member's smooth."""
POINTS = 500
"""Logged points of one member, where they are drawn."""
QUARTILES = 4
"""Members from which a band is the middle half; fewer say no more than their range."""


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, or with one value of a setting."""

    label: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class MemberCurve:
    """One run: its smooth, and the points as logged."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    raw_x: tuple[float, ...] = ()
    raw_y: tuple[float, ...] = ()


@dataclass(frozen=True)
class GroupCurve:
    """A group on one metric: median and band over the members' smooths, where at least two of them are."""

    label: str
    members: tuple[MemberCurve, ...]
    x: tuple[float, ...] = ()
    middle: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    band: str = ""
    """What the band is, in words; "" without one."""


@dataclass(frozen=True)
class Ending:
    """Where a group ended and where its smooth peaked on one metric: means over members, and standard deviations."""

    label: str
    final: float
    final_sd: float | None
    peak: float
    peak_sd: float | None
    peak_step: float
    members: int
    lowest: bool
    """Whether the peak is the lowest point, because lower is better."""


@dataclass(frozen=True)
class Setting:
    """A setting that is not the same in all groups; values in the order of the groups, None where not stated."""

    key: str
    values: tuple[str | None, ...]


def grouped(members: Sequence[Member], by: str = "") -> list[Group]:
    """Members in groups: seeds of one configuration together; each alone with `by` "run"; by value of a dotted key."""
    if by == "run":
        return [Group(member.name, (member,)) for member in members]
    if by:
        return _by_value(members, by)
    sets: list[list[Member]] = []
    for member in members:
        home = next((found for found in sets if same_but_seed(found[0], member)), None)
        if home is None:
            sets.append([member])
        else:
            home.append(member)
    groups = [Group(_label(found), tuple(found)) for found in sets]
    return _named(groups) if len(sets) < len(members) else groups


def _by_value(members: Sequence[Member], key: str) -> list[Group]:
    values: dict[str, list[Member]] = {}
    for member in members:
        stated = member.stated
        values.setdefault(_words(stated[key]) if key in stated else "not stated", []).append(member)
    return [Group(f"{_last(key)} {value}", tuple(found)) for value, found in values.items()]


def only_differences(groups: Sequence[Group]) -> list[Setting]:
    """Settings that are not the same everywhere, configuration first. Several values within a group are all listed."""
    rows = [row for row in _rows(groups) if _last(row.key) not in NAMES and len(set(row.values)) > 1]
    return sorted(rows, key=_on_machine)


def _rows(groups: Sequence[Group]) -> list[Setting]:
    """Every setting that a member states."""
    stated = [[member.stated for member in group.members] for group in groups]
    keys = dict.fromkeys(key for group in stated for one in group for key in one)
    return [Setting(key, tuple(_values(group, key) for group in stated)) for key in keys]


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _on_machine(row: Setting) -> bool:
    """Whether it is about hardware or versions, and not about the configuration."""
    return row.key.startswith(("hardware.", "versions."))


def _values(group: Sequence[Mapping[str, Any]], key: str) -> str | None:
    """The values of a setting within a group, four at most; None where no member states it."""
    values = list(dict.fromkeys(_words(one[key]) for one in group if key in one))
    more = f" … {len(values)} values" if len(values) > 4 else ""
    return ", ".join(values[:4]) + more if values else None


def positions(member: Member, steps: np.ndarray, x: X) -> np.ndarray | None:
    """Where steps lie on an axis; None when the run has no such clock."""
    if x == "share":
        last = max((float(s.steps[-1]) for s in member.series.values() if len(s)), default=0.0)
        return 100.0 * np.asarray(steps, float) / last if last > 0 else None
    if x not in member.clocks:
        return None
    clock, places = member.clocks[x]
    at: np.ndarray = np.interp(np.asarray(steps, float), clock, places)
    return at


def curves(groups: Sequence[Group], name: str, x: X) -> list[GroupCurve]:
    """A metric of every group that has it."""
    found = []
    alone = sum(len(group.members) for group in groups) <= 6
    for group in groups:
        smooths = [(member, *_smooth(member, name, x)) for member in group.members]
        smooths = [entry for entry in smooths if len(entry[1])]
        if smooths:
            lines = tuple(_curve(m.name, places, values, line, alone) for m, places, values, line in smooths)
            found.append(_band(group.label, lines, [(places, line) for _, places, _, line in smooths]))
    return found


def endings(groups: Sequence[Group], name: str) -> list[Ending]:
    """Final level (mean over the last fifth) and peak of the smooth, per group."""
    up = definition(name).better != "down"
    found = []
    for group in groups:
        rows = []
        for member in group.members:
            steps, values, line = _smooth(member, name, "step")
            if len(values):
                count = max(min(5, len(values)), len(values) // 5)
                place = int(np.argmax(line if up else -line))
                rows.append((float(np.mean(values[-count:])), float(line[place]), float(steps[place])))
        if rows:
            columns = np.array(rows)
            sds = np.std(columns, axis=0, ddof=1) if len(rows) > 1 else (None, None, None)
            final, peak, step = columns.mean(axis=0).tolist()
            spread = [None if sd is None else float(sd) for sd in sds]
            found.append(Ending(group.label, final, spread[0], peak, spread[1], step, len(rows), not up))
    return found


def _smooth(member: Member, name: str, x: X) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, finite values and their smooth."""
    none = np.empty(0)
    if name not in member.series or "step" not in member.clocks:
        return none, none, none
    steps, values = member.on("step", name)
    places = positions(member, steps, x)
    if places is None or not len(values):
        return none, none, none
    return places, values, noise(values)[0] if len(values) >= MINIMUM else values


def _curve(name: str, places: np.ndarray, values: np.ndarray, line: np.ndarray, with_points: bool) -> MemberCurve:
    keep = thin(line, MEMBER_POINTS)
    raw = thin(values, POINTS) if with_points else np.empty(0, int)
    return MemberCurve(name, _short(places[keep]), _short(line[keep]), _short(places[raw]), _short(values[raw]))


def _band(label: str, lines: tuple[MemberCurve, ...], smooths: Sequence[tuple[np.ndarray, np.ndarray]]) -> GroupCurve:
    if len(smooths) == 1:
        return GroupCurve(label, lines, lines[0].x, lines[0].y)
    grid = np.linspace(min(x[0] for x, _ in smooths), max(x[-1] for x, _ in smooths), GRID)
    table = np.array([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in smooths])
    grid, table = (part[..., np.sum(np.isfinite(table), axis=0) >= 2] for part in (grid, table))
    if not len(grid):
        return GroupCurve(label, lines)
    quartiles = len(smooths) >= QUARTILES
    low, middle, high = np.nanpercentile(table, (25, 50, 75) if quartiles else (0, 50, 100), axis=0)
    words = "middle half" if quartiles else "range"
    return GroupCurve(
        label, lines, _short(grid), _short(middle), _short(low), _short(high), f"{words} of {len(smooths)} runs"
    )


def _short(values: np.ndarray) -> tuple[float, ...]:
    """Five digits are more than a screen shows, and a fraction of what there is to send."""
    return tuple(float(f"{value:.5g}") for value in values.tolist())


def _named(groups: list[Group]) -> list[Group]:
    """Groups of several runs by what sets them apart, where that is one or two settings and tells them all apart."""
    rows = [row for row in only_differences(groups) if not _on_machine(row)]
    apart = [row for row in rows if _last(row.key) not in SEEDS and None not in row.values]
    if not 1 <= len(apart) <= 2:
        return groups
    labels = [", ".join(f"{_last(row.key)} {row.values[i]}" for row in apart) for i in range(len(groups))]
    if len(set(labels)) < len(groups) or max(map(len, labels)) > 60:
        return groups
    return [Group(label, group.members) for label, group in zip(labels, groups, strict=True)]


def _label(members: Sequence[Member]) -> str:
    return members[0].name if len(members) == 1 else f"{members[0].name} and {len(members) - 1} more"


def _words(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 200 else text[:199] + "…"
