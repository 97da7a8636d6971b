"""A case study: a run directory with the reported problem, what was tried, and the result.

The folder also holds `case.toml` (written by people: what was seen, what was changed, what to do in the trainer's own
keys), the original configuration in its trainer's format, and `arms.json` (measurements: in which runs the symptom
appeared, and every change tried from one snapshot, over several seeds, on the same prompts). The report shows them as
one section. A number in the text is a name in braces, such as `{gain of batch}`, and comes from the measurements. None
of this text is trusted; a part that can't be read is listed as a problem and never stops the report.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from stabilizer.configs.bounds import load_toml
from stabilizer.configs.config import ConfigError
from stabilizer.preflight.check import Options, Preflight, preflight
from stabilizer.runs.loaded import LoadedRun

STORY, NUMBERS = "case.toml", "arms.json"
PARTS = ("saw", "changed", "happened", "advice", "limits", "do")
NAMED = re.compile(r"\{([^{}]+)\}")
"""A number that the text names."""
SYMPTOMS = ("symptom", "symptom elsewhere")
"""Where the symptom was looked for: in this trainer, and in the one of the case."""
LARGEST = 2_000_000
"""Bytes beyond which such a file is not read."""
LIMIT = 1e100
"""Beyond this nothing was measured."""
T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t for a 95 % interval, by degrees of freedom from 1 on; 2 beyond."""


class Arm(NamedTuple):
    """One change, from one snapshot a seed, and the metric after it: a row of `values` per seed, at the `steps`."""

    name: str
    change: str
    seeds: tuple[int, ...]
    steps: tuple[float, ...]
    completions: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]
    step_s: float | None = None

    def ends(self, within: float = math.inf) -> list[float]:
        """Each seed's level at the end: mean of its last three values within so many completions."""
        kept = [place for place, spent in enumerate(self.completions) if spent <= within][-3:]
        return [fmean(row[place] for place in kept) for row in self.values] if kept else []


class Trial(NamedTuple):
    """Arms that stand beside one another; differences are taken from the first."""

    title: str
    note: str
    metric: str
    arms: tuple[Arm, ...]


class Seen(NamedTuple):
    """One run with one thing changed: in which seeds the symptom appeared, and the numbers that decided it."""

    name: str
    settings: tuple[str, ...]
    present: tuple[bool, ...]
    numbers: Mapping[str, tuple[float, ...]]

    @property
    def seeds_seen(self) -> str:
        """In how many of the seeds it appeared."""
        return f"{sum(self.present)} of {len(self.present)}"


class Symptom(NamedTuple):
    """What counts as the symptom, and the runs in which it was looked for; the first is the reproduction."""

    title: str
    what: str
    note: str
    arms: tuple[Seen, ...]


class Difference(NamedTuple):
    """Mean of paired differences and half of its 95 % interval; `half` is infinite with a single seed."""

    mean: float
    half: float


@dataclass(frozen=True)
class Case:
    """All that a case's section shows."""

    title: str = ""
    saw: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    happened: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    do: tuple[str, ...] = ()
    measured: tuple[tuple[str, str], ...] = ()
    checked: Preflight | None = None
    symptoms: tuple[Symptom, ...] = ()
    trials: tuple[Trial, ...] = ()
    problems: tuple[str, ...] = field(default=())


def case_of(run: LoadedRun) -> Case | None:
    """The case a run of ours tells, None for every other run."""
    if run.source.format != "stabilizer" or not run.source.files:
        return None
    folder = Path(run.source.files[0]).parents[1]
    return read(folder) if (folder / STORY).is_file() else None


def read(folder: Path) -> Case:
    """The case in a folder, as far as it can be read."""
    problems: list[str] = []
    story = _file(folder / STORY, load_toml, problems)
    numbers = _file(folder / NUMBERS, json.loads, problems) if (folder / NUMBERS).exists() else {}
    symptoms: tuple[Symptom, ...] = ()
    trials: tuple[Trial, ...] = ()
    try:
        trials = tuple(_trials(numbers))
        symptoms = tuple(_symptom(numbers[key]) for key in SYMPTOMS if key in numbers)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        problems.append(f"{NUMBERS}: not as expected ({type(error).__name__}: {error})")
    measured = numbers.get("measured")
    words = _words(symptoms, trials)
    return Case(
        title=str(story.get("title", "")),
        **{name: _paragraphs(story.get(name), words, problems) for name in PARTS},
        measured=tuple((str(k), str(v)) for k, v in measured.items()) if isinstance(measured, dict) else (),
        checked=_checked(folder, story, problems),
        symptoms=symptoms,
        trials=trials,
        problems=tuple(problems),
    )


def _words(symptoms: Sequence[Symptom], trials: Sequence[Trial]) -> dict[str, str]:
    """The numbers that the text may name: `seen in ARM`, and of a trial's arms `level of ARM` and `gain of ARM`, with
    ` in 2` for the second trial and so on."""
    words = {f"seen in {arm.name}": arm.seeds_seen for symptom in symptoms for arm in symptom.arms}
    for place, trial in enumerate(trials, 1):
        which = f" in {place}" if place > 1 else ""
        for arm in trial.arms:
            if ends := arm.ends():
                words[f"level of {arm.name}{which}"] = f"{fmean(ends):.2f}"
            words[f"gain of {arm.name}{which}"] = _said(gain(trial.arms[0], arm))
    return words


def seen_rows(symptom: Symptom) -> list[tuple[str, ...]]:
    """The table of a symptom: arm, what it changes, in how many seeds it appeared, and the mean of each number."""
    return [
        (
            arm.name,
            ", ".join(arm.settings) or "as configured",
            arm.seeds_seen,
            *(f"{fmean(values):.3g}" for values in arm.numbers.values()),
        )
        for arm in symptom.arms
    ]


def seen_heads(symptom: Symptom) -> tuple[str, ...]:
    """The headings of that table."""
    return ("run", "settings", "seeds with the symptom", *symptom.arms[0].numbers)


def against(first: Sequence[float], other: Sequence[float]) -> Difference | None:
    """Other less first, seed by seed; None when they are not pairs."""
    if not first or len(first) != len(other):
        return None
    gaps = [b - a for a, b in zip(first, other, strict=True)]
    if len(gaps) == 1:
        return Difference(gaps[0], math.inf)
    t = T95[len(gaps) - 2] if len(gaps) - 2 < len(T95) else 2.0
    return Difference(fmean(gaps), t * stdev(gaps) / math.sqrt(len(gaps)))


def gain(first: Arm, other: Arm, within: float = math.inf) -> Difference | None:
    """The other arm less the first over the seeds that both have, the other within so many completions."""
    before = dict(zip(first.seeds, first.ends(), strict=False))
    after = dict(zip(other.seeds, other.ends(within), strict=False))
    both = [seed for seed in before if seed in after]
    return against([before[seed] for seed in both], [after[seed] for seed in both])


def rows(trial: Trial) -> list[tuple[str, ...]]:
    """The table of a trial: change, level with its range, difference at equal steps and at equal completions, cost."""
    first = trial.arms[0]
    spent = first.completions[-1] if first.completions else math.inf
    table: list[tuple[str, ...]] = []
    for arm in trial.arms:
        ends = arm.ends()
        level = f"{fmean(ends):.3g} ({min(ends):.3g} to {max(ends):.3g})" if ends else ""
        level += f", {len(ends)} seeds" if len(ends) != len(first.seeds) else ""
        steps = _said(gain(first, arm)) if arm is not first else ""
        samples = _said(gain(first, arm, spent)) if arm is not first else ""
        cost = f"{arm.completions[-1]:,.0f}" if arm.completions else ""
        pace = f"{arm.step_s * 1000:.0f}" if arm.step_s else ""
        table.append((arm.name, arm.change, level, steps, samples, cost, pace))
    return table


HEADS = (
    "arm",
    "change",
    "its last three values: mean (range over seeds)",
    "difference at equal steps",
    "at equal completions",
    "completions",
    "ms of processor a step",
)


def _said(difference: Difference | None) -> str:
    if difference is None:
        return ""
    return f"{difference.mean:+.3f}" + (
        f" ± {difference.half:.3f}" if math.isfinite(difference.half) else " (one seed)"
    )


def _file(path: Path, parse: Any, problems: list[str]) -> Mapping[str, Any]:
    try:
        if not path.is_file():
            raise ValueError("is no plain file")
        if path.stat().st_size > LARGEST:
            raise ValueError(f"is larger than {LARGEST:,} bytes")
        value = parse(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("must hold keys and values")
        return value
    except (OSError, ValueError, RecursionError) as error:  # TOML's, JSON's and Unicode's errors are ValueErrors
        problems.append(f"{path.name}: can't be read: {error}")
        return {}


def _paragraphs(value: Any, words: Mapping[str, str], problems: list[str]) -> tuple[str, ...]:
    """The paragraphs of a part of the text, with the numbers it names."""
    if isinstance(value, str):
        value = value.split("\n\n")
    parts = [" ".join(str(part).split()) for part in value] if isinstance(value, list) else []
    problems += [
        f"{STORY}: {{{name}}} names no measurement"
        for part in parts for name in NAMED.findall(part) if name not in words
    ]  # fmt: skip
    return tuple(NAMED.sub(lambda found: words.get(found[1], found[0]), part) for part in parts)


def _checked(folder: Path, story: Mapping[str, Any], problems: list[str]) -> Preflight | None:
    """What preflight says of the configuration the case began with; only a file of the folder itself is opened."""
    name = story.get("config")
    if not isinstance(name, str) or Path(name).name != name or name == ".." or (folder / name).is_symlink():
        return None
    said = story.get("said")
    said = said if isinstance(said, dict) else {}
    kinds = {"version": str, "processes": int, "prompts": int}
    options = {key: said[key] for key, kind in kinds.items() if key in said}
    if wrong := [key for key, value in options.items() if not isinstance(value, kinds[key])]:
        problems.append(f"{STORY}: said.{wrong[0]} is no {'text' if wrong[0] == 'version' else 'whole number'}")
        return None
    try:
        return preflight(folder / name, Options(**options))
    except (ConfigError, OSError, ValueError, TypeError) as error:
        problems.append(f"{name}: preflight can't read it: {error}")
        return None


def _trials(numbers: Mapping[str, Any]) -> Iterator[Trial]:
    for trial in numbers.get("trials", ()):
        arms = tuple(_arm(arm) for arm in trial["arms"])
        if arms:
            yield Trial(str(trial["title"]), str(trial.get("note", "")), str(trial["metric"]), arms)


def _symptom(symptom: Mapping[str, Any]) -> Symptom:
    arms = tuple(
        Seen(
            str(arm["name"]),
            tuple(map(str, arm["settings"])),
            tuple(map(bool, arm["present"])),
            {str(key): tuple(_number(value) for value in values) for key, values in arm["numbers"].items()},
        )
        for arm in symptom["arms"]
    )
    if not arms or any(not arm.present or {*arm.numbers} != {*arms[0].numbers} for arm in arms):
        raise ValueError("symptom: arms with seeds and the same numbers are expected")
    return Symptom(str(symptom["title"]), str(symptom["what"]), str(symptom.get("note", "")), arms)


def _arm(arm: Mapping[str, Any]) -> Arm:
    steps, spent = (tuple(_number(x) for x in arm[key]) for key in ("steps", "completions"))
    values = tuple(tuple(_number(x) for x in row) for row in arm["values"])
    seeds = tuple(int(seed) for seed in arm["seeds"])
    if not steps or len(spent) != len(steps) or len(values) != len(seeds) or any(len(r) != len(steps) for r in values):
        raise ValueError(f"arm {arm['name']!r}: one value per seed and step is expected")
    pace = arm.get("step_s")
    return Arm(
        str(arm["name"]),
        str(arm.get("change", "")),
        seeds,
        steps,
        spent,
        values,
        None if pace is None else _number(pace),
    )


def _number(value: Any) -> float:
    number = float(value)
    if not abs(number) <= LIMIT:  # also refuses NaN; sums and squares of what is let in stay finite
        raise ValueError(f"{value!r} is no number that could have been measured")
    return number
