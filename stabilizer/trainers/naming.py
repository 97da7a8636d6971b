"""Maps a trainer's names to ours: one table a trainer, no key lost, never two of its names on one of ours.

A reader gathers rows under the trainer's own names and hands them over with a `Naming`. Names without a metric of ours
are kept behind the trainer's prefix (`verl/actor/loss`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stabilizer.core.records import Event
from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import Row, assemble, check_mapping, check_names, definition
from stabilizer.runs.loaded import LoadedRun


def _no_family(_key: str) -> str | None:
    return None


def _nothing_more(values: dict[str, float], _config: Mapping[str, Any]) -> dict[str, float]:
    return values


@dataclass(frozen=True, kw_only=True)
class Naming:
    """One trainer's names. `names` maps its keys to our metrics; `instead` holds keys to use where those are absent."""

    trainer: str
    """The trainer, as in `Source.trainer` and in `knobs`."""
    prefix: str
    """Prefix of the names that have no metric of ours."""
    names: Mapping[str, str]
    instead: Mapping[str, str] = field(default_factory=dict)
    """Keys of other versions or settings for a metric of ours; one that `names` fills already leaves them their own."""
    family: Callable[[str], str | None] = _no_family
    """Our name for keys that are made up per run (reward functions), or None."""
    differs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Where the trainer's quantity is not quite the one the vocabulary defines: what it is instead."""
    aggregation: str = ""
    """How the trainer makes one number of a step's updates, where it is the same for all of `names`."""
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """Keys that are 0 throughout when the trainer did not measure them, and the note that says so."""
    asks: Mapping[str, str] = field(default_factory=dict)
    """Metrics of ours that only a `--map` can fill, and the note that says so until one does."""
    derived: Callable[[dict[str, float], Mapping[str, Any]], dict[str, float]] = _nothing_more
    """A row with the numbers that are worked out from it and the configuration."""
    clock: str = "rollout_batch"

    def ours(self, seen: Iterable[str], mapping: Mapping[str, str], left: Iterable[str] = ()) -> dict[str, str]:
        """Our name for every key of a log except those in `left`; `mapping` (ours -> theirs) has priority."""
        keys = sorted(seen)
        known = set(keys) - set(left)
        names = {key: f"{self.prefix}/{key}" for key in keys}
        taken = set(mapping)
        for table in (self.names, self.instead):
            for key, ours in table.items():
                if key in known and ours not in taken:
                    names[key] = ours
                    taken.add(ours)
        for key in keys:
            if key in known and names[key].startswith(f"{self.prefix}/"):
                member = self.family(key)
                if member and member not in taken:
                    names[key] = member
                    taken.add(member)
        names.update({theirs: ours for ours, theirs in mapping.items()})
        return names

    def definition(self, ours: str, theirs: str) -> dict[str, str]:
        """What `about["metrics"]` says of a metric."""
        known = theirs in self.names or theirs in self.instead
        said = {"aggregation": self.aggregation} if self.aggregation and known else {}
        return definition(ours, theirs, **{**said, **self.differs.get(theirs, {})})


def named_run(
    name: str,
    naming: Naming,
    rows: Iterable[Row | Event],
    *,
    format: str,
    files: Sequence[Path],
    mapping: Mapping[str, str],
    config: Mapping[str, Any] | None = None,
    planned: int | None = None,
    skipped: int = 0,
    notes: Iterable[str] = (),
) -> LoadedRun:
    """The run in our words. Rows hold the trainer's names; an Event among them happened at the step reached so far."""
    settings = dict(config or {})
    entries = [row if isinstance(row, Event) else (row[0], naming.derived(row[1], settings)) for row in rows]
    seen: dict[str, bool] = {}  # and whether the key was ever anything but 0
    counted = 0
    for entry in entries:
        if not isinstance(entry, Event):
            counted += 1
            for key, value in entry[1].items():
                if value != 0 or key not in seen:
                    seen[key] = value != 0
    check_names(len(seen), files[0])
    check_mapping(mapping, seen, files[0])
    zero = [key for key in naming.unmeasured if counted > 1 and seen.get(key) is False]
    names = naming.ours(seen, mapping, zero)
    notes = [*notes, *(naming.unmeasured[key] for key in zero)]
    notes += [note for ours, note in naming.asks.items() if ours not in mapping]
    return assemble(
        name,
        format=format,
        trainer=naming.trainer,
        files=files,
        rows=(
            entry if isinstance(entry, Event) else (entry[0], {names[key]: value for key, value in entry[1].items()})
            for entry in entries
        ),
        about={
            "clock": naming.clock,
            "steps": planned,
            "config": settings,
            "versions": {},
            "metrics": {ours: naming.definition(ours, theirs) for theirs, ours in names.items()},
        },
        skipped=skipped,
        notes=notes,
    )


def held_out(trainer: str, tests: Sequence[str], what: str = "data sets") -> tuple[dict[str, str], dict[str, str]]:
    """The name of the held-out accuracy where there is one test, and what is asked of the user where there are several.

    For `Naming.names` and `Naming.asks`.
    """
    if len(tests) < 2:
        return dict.fromkeys(tests, "accuracy/val"), {}
    several = f"validation stays under {trainer}/ ({len(tests)} {what}); say which"
    return {}, {"accuracy/val": f"{several}: --map 'accuracy/val={tests[0]}'"}


def named_log(
    log: NumberLog, naming: Naming, mapping: Mapping[str, str], config: Mapping[str, Any] | None
) -> LoadedRun:
    """The run in a container's numbers, in our words."""
    return named_run(
        log.name, naming, log.rows, format=log.format, files=log.files, mapping=mapping,
        config=log.configured(config), skipped=log.skipped, notes=log.notes,
    )  # fmt: skip


def named_by(
    wrote: Callable[[Iterable[str]], bool], naming: Callable[[Iterable[str]], Naming]
) -> Callable[[NumberLog, Mapping[str, str], Mapping[str, Any] | None], LoadedRun | None]:
    """Reads a container's numbers for a trainer that gives trackers the names its own readers know."""

    def named(log: NumberLog, mapping: Mapping[str, str], config: Mapping[str, Any] | None) -> LoadedRun | None:
        seen = log.names()
        return named_log(log, naming(seen), mapping, config) if wrote(seen) else None

    return named
