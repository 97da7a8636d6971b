"""What is compared: runs of any readable format, several seeds of one, a CSV, or points read off a published curve.

A published curve is a JSON file (`CURVE_HELP` is its schema); only `metric`, `x` and `points` must be there. Facts that
the source does not state stay out of the file: what is not known is then said to be not known.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stabilizer.core.settings import flat
from stabilizer.formats.files import json_value
from stabilizer.formats.rows import number
from stabilizer.runs.history import RunView, Series
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import OwnNames, RunError
from stabilizer.runs.story import summary
from stabilizer.trainers.reading import load

LARGEST = 1e100
"""Values beyond are no measurement: their squares would be infinite."""
CLOCKS = ("step", "tokens", "samples", "time")
UNITS = {"step": "step", "tokens": "tokens", "samples": "completions", "time": "s"}
CURVE_HELP = """\
A reference may be a run, seeds of a run (A,B,C), a CSV, or a JSON file with points read off a published curve:
  {"name": "docs, figure 1", "source": "where it was read", "metric": "reward/mean", "x": "step",
   "points": [[0, 0.1], [25, 0.2], ...],           x is step, tokens, samples or time (seconds)
   "smoothing": {"kind": "ema", "weight": 0.9},    or "none"; leave it out when it is not known
   "support": [0, 1],                              range of the reward axis or function, where stated
   "components": ["format", "accuracy"],           terms the reward is the sum of, where stated
   "completions_per_step": 64, "trainer": "trl",   and, as far as known, nested as you like:
   "config": {"learning_rate": 1e-6}, "hardware": {"gpus": 8}, "versions": {"trl": "0.17"}, "note": "..."}
Only metric, x and points must be there. Leave out what the source does not say."""
_CURVE_KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "source": str,
    "metric": str,
    "x": str,
    "points": list,
    "smoothing": (dict, str),
    "support": list,
    "components": list,
    "completions_per_step": (int, float),
    "trainer": str,
    "config": dict,
    "hardware": dict,
    "versions": dict,
    "note": str,
}
SEEDS = frozenset({"seed", "data_seed", "random_seed"})
NAMES = frozenset({"output_dir", "run_name", "logging_dir", "name", "experiment_name", "runs"})
"""Last parts of keys that do not make another configuration: seeds, and names of runs and their folders."""


@dataclass(frozen=True)
class Member:
    """One run or curve: its series, where each step lies on other clocks, and what it says of itself."""

    name: str
    path: str
    kind: str
    """The format it was read from; `curve` for points read off a drawing."""
    series: Mapping[str, Series]
    clocks: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """Clock -> (steps, position at those steps), both ascending."""
    about: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    changed: str = ""
    """That it was changed while it trained, in words; empty for a plain run."""

    def on(self, clock: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Positions and values of a metric's finite points; what is beyond any measure counts as not finite."""
        series = self.series[metric].finite()
        steps, places = self.clocks[clock]
        values = np.asarray(series.values, float)
        keep = np.abs(values) <= LARGEST
        return np.interp(series.steps, steps, places)[keep], values[keep]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as dotted keys."""
        return flat(self.about.get("config"))

    @property
    def stated(self) -> dict[str, Any]:
        """The configuration, task, trainer, hardware and versions, as dotted keys."""
        stated = self.config
        for key in ("task", "trainer"):
            if self.about.get(key) not in (None, "", "unknown"):
                stated.setdefault(key, self.about[key])
        for part in ("hardware", "versions"):
            stated |= flat(self.about.get(part), part)
        return stated


@dataclass(frozen=True)
class Side:
    """Seeds of one configuration; most often one."""

    members: tuple[Member, ...]

    @property
    def name(self) -> str:
        """The first member's name, and how many there are."""
        first = self.members[0].name
        return first if len(self.members) == 1 else f"{first} and {len(self.members) - 1} more"

    @property
    def first(self) -> Member:
        """The member whose configuration speaks for all."""
        return self.members[0]

    def metrics(self) -> list[str]:
        """Metrics every member has finite values of."""
        return [
            name
            for name in self.first.series
            if all(name in m.series and (np.abs(m.series[name].values) <= LARGEST).any() for m in self.members)
        ]

    def clocks(self) -> list[str]:
        """Clocks every member can be read on."""
        return [clock for clock in CLOCKS if all(clock in member.clocks for member in self.members)]


def read_side(word: str, *, mapping: Mapping[str, str] | None = None) -> Side:
    """The runs of one argument: a path, or several separated by commas that are seeds of one configuration."""
    paths = [word] if Path(word).exists() or "," not in word else [part for part in word.split(",") if part]
    if len({str(Path(path).resolve()) for path in paths}) < len(paths):
        raise RunError(f"{word}: the same path twice; a run is not a second seed of itself")
    members = tuple(read_member(Path(path), mapping=mapping) for path in paths)
    for other in members[1:]:
        if keys := _differing(members[0], other):
            raise RunError(
                f"{members[0].path} and {other.path} are no seeds of one configuration: they differ in "
                f"{', '.join(keys[:4])}; give them as separate arguments"
            )
    return Side(members)


def group(run: Side, reference: Side, others: Iterable[Side]) -> tuple[list[Side], Side]:
    """Further runs join the side whose configuration differs from theirs by the seed alone, the run's before the
    reference's; what fits neither is compared with the reference by itself. Returns the runs and the reference."""
    sides = [run, reference]
    for other in others:
        place = next((i for i, side in enumerate(sides) if same_but_seed(side.first, other.first)), None)
        if place is None:
            sides.append(other)
        else:
            members = sides[place].members + other.members
            if len({Path(m.path).resolve() for m in members}) < len(members):
                raise RunError(f"{other.first.path}: the same run twice; a run is not a second seed of itself")
            sides[place] = Side(members)
    return [sides[0], *sides[2:]], sides[1]


def same_but_seed(a: Member, b: Member) -> bool:
    """Whether two runs state configurations that differ by nothing but seed, names and output folders."""
    return bool(a.config) and bool(b.config) and a.kind == b.kind and not _differing(a, b)


def _differing(a: Member, b: Member) -> list[str]:
    left, right = a.config, b.config
    keys = [key for key in {**left, **right} if key.rpartition(".")[2] not in SEEDS | NAMES]
    return [key for key in keys if left.get(key) != right.get(key)]


# --- reading --------------------------------------------------------------------------------------------------------


def read_member(path: Path, *, mapping: Mapping[str, str] | None = None) -> Member:
    """The run or curve at `path`."""
    suffix = path.suffix.lower() if path.is_file() else ""
    if suffix == ".json" and isinstance(value := json_value(path), dict) and "points" in value:
        if mapping:
            raise OwnNames(f"{path}: a curve names its metric itself; leave out --map")
        return _curve(path, value)
    try:
        return from_run(load(path, mapping=mapping))
    except RunError as error:
        if suffix == ".json" and "not a log in a known format" in str(error):
            raise RunError(f'{path}: neither a log nor a curve; a curve has "metric", "x" and "points"') from None
        raise


def from_run(run: LoadedRun) -> Member:
    """A loaded run as something to compare."""
    view = run.history.view()
    series = {name: view.series(name) for name in view.names()}
    if not series:
        raise RunError(f"{run.name}: no metric in it, so there is nothing to compare")
    path = run.source.files[0] if run.source.files else run.name
    if run.source.format == "stabilizer" and run.source.files:
        path = str(Path(path).parent.parent)
    made = summary(run.actions)
    changed = f"{run.name} was {made['text']} of its configuration, and no baseline" if made["count"] else ""
    about = dict(run.history.about)
    return Member(run.name, path, run.source.format, series, _clocks(view), about, run.source.notes, changed)


def _clocks(view: RunView) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Where each step lies on every clock that was measured."""
    steps = np.unique(np.concatenate([view.series(name).steps for name in view.names()])).astype(float)
    clocks: dict[str, tuple[np.ndarray, np.ndarray]] = {"step": (steps, steps)}
    tokens = view.series("tokens/total").finite()
    if len(tokens) > 1:
        clocks["tokens"] = (tokens.steps.astype(float), np.maximum.accumulate(tokens.values))
    prompts, sizes = view.series("batch/prompts"), view.series("batch/group_size")
    if len(prompts) == len(sizes) > 1:
        spans = np.diff(prompts.steps, prepend=prompts.steps[0] - 1)
        clocks["samples"] = _running(prompts.steps, prompts.values * sizes.values * spans)
    seconds = view.series("time/step_s").finite()
    if len(seconds) > 1:
        spans = np.diff(seconds.steps, prepend=min(float(seconds.steps[0]), 1.0) - 1)
        clocks["time"] = _running(seconds.steps, seconds.values * np.maximum(spans, 0))
    return clocks


def _running(steps: np.ndarray, amounts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A running total that is 0 before the first step."""
    return np.r_[steps[0] - 1, steps].astype(float), np.r_[0.0, np.cumsum(np.nan_to_num(amounts))]


def _curve(path: Path, value: Mapping[str, Any]) -> Member:
    _check_keys(path, value)
    clock = value["x"]
    if clock not in CLOCKS:
        raise RunError(f"{path}: x is {clock!r}; it is one of {', '.join(CLOCKS)}")
    xs, ys = _points(path, value["points"])
    _check_support(path, value.get("support"))
    _check_smoothing(path, value.get("smoothing"))
    clocks = {clock: (xs, xs), **_second_clock(path, clock, xs, value.get("completions_per_step"))}
    about = {key: item for key, item in value.items() if key not in ("points", "x", "metric", "name", "schema")}
    notes = tuple(str(value[key]) for key in ("source", "note") if value.get(key))
    name = str(value.get("name") or path.stem)
    return Member(name, str(path), "curve", {value["metric"]: Series(xs, ys)}, clocks, about, notes)


def _second_clock(
    path: Path, clock: str, xs: np.ndarray, per_step: float | None
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Completions beside steps, or steps beside completions, where the completions per step are stated."""
    if per_step is None:
        return {}
    if not 0 < per_step < 1e9:
        raise RunError(f"{path}: completions_per_step is {per_step!r}; give a number above 0 or leave it out")
    if clock == "step":
        return {"samples": (xs, xs * per_step)}
    return {"step": (xs, xs / per_step)} if clock == "samples" else {}


def _check_keys(path: Path, value: Mapping[str, Any]) -> None:
    """Every key is known and of its type, and what must be there is."""
    for key, item in value.items():
        if key == "schema":
            continue
        if key not in _CURVE_KEYS:
            near = difflib.get_close_matches(str(key), _CURVE_KEYS, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it may have {', '.join(_CURVE_KEYS)}"
            raise RunError(f"{path}: a curve has no {str(key)!r}{hint}")
        if not isinstance(item, _CURVE_KEYS[key]) or isinstance(item, bool):
            raise RunError(f"{path}: {key!r} is {_kind(item)}; see `stabilizer compare --help` for the schema")
    for key in ("metric", "x", "points"):
        if not value.get(key):
            raise RunError(f"{path}: a curve needs {key!r}; see `stabilizer compare --help` for the schema")


def _check_support(path: Path, support: list[Any] | None) -> None:
    if support is None:
        return
    low, high = (number(v) for v in support) if len(support) == 2 else (None, None)
    if low is None or high is None or not -math.inf < low < high < math.inf:
        raise RunError(f"{path}: support is {support!r}; write the lowest and the highest reward, e.g. [0, 1]")


def _points(path: Path, points: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    pairs = [_point(path, place, point) for place, point in enumerate(points)]
    xs, ys = (np.array(column) for column in zip(*pairs, strict=True))
    if np.any(np.diff(xs) <= 0):
        place = int(np.flatnonzero(np.diff(xs) <= 0)[0]) + 1
        raise RunError(f"{path}: point {place} lies at x = {xs[place]:g}, not after {xs[place - 1]:g}; sort by x")
    return xs, ys


def _point(path: Path, place: int, point: Any) -> tuple[float, float]:
    x, y = (number(v) for v in point) if isinstance(point, list) and len(point) == 2 else (None, None)
    if x is None or y is None:
        raise RunError(f"{path}: point {place} is {point!r:.60}; each point is [x, y], two numbers")
    if not math.isfinite(x) or x < 0:
        raise RunError(f"{path}: point {place} lies at x = {x}; x is a number from 0 up")
    return x, y


def _check_smoothing(path: Path, smoothing: Any) -> None:
    if smoothing in (None, "none"):
        return
    weight = number(smoothing.get("weight")) if isinstance(smoothing, dict) else None
    if not isinstance(smoothing, dict) or smoothing.get("kind") != "ema" or weight is None or not 0 <= weight < 1:
        raise RunError(
            f'{path}: smoothing is {smoothing!r:.60}; write {{"kind": "ema", "weight": 0.9}} or "none", or leave it out'
        )


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "text", bool: "true or false"}.get(type(value), "a number")
