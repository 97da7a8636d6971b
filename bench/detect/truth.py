"""What is known of a case of the benchmark: healthy or not, which fault, from when on, and what counts as seeing it.

A case is anything `stabilizer diagnose` can read with its truth beside it: `truth.json` in a run directory, and
`NAME.truth.json` next to a file NAME. Generated streams, real training with injected faults and logs of one's own
share this one form, so that one scorer serves all of them.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

SCHEMA = 1
HEALTHY = "healthy/"
"""What the kind of a healthy case begins with."""

_WORDS = {
    "tier": ("T1", "T2", "thin", "extra"),
    "severity": ("subtle", "medium", "severe", None),
    "half": ("develop", "report"),
    "speed": ("instant", "fast", "slow", "plateau"),
}


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The answer a case must get. For a healthy one the fields about the fault are None or empty."""

    tier: str
    """`T1` generated stream, `T2` real training with an injected fault, `thin` a generated stream as other trainers log
    theirs, `extra` a log of one's own."""
    kind: str
    """What was injected (`entropy-collapse`), or the look-alike (`healthy/solved`)."""
    healthy: bool
    task: str
    algorithm: str
    """`grpo` or `ppo`."""
    seed: int
    half: str
    """`develop` may be looked at while detectors are made; `report` gives the figures that are published."""
    steps: int
    """Length of the case in steps, by which rates are counted."""
    fault: str | None = None
    """The name of the mechanism; the same as `kind` where one kind has one mechanism."""
    accept: tuple[str, ...] = ()
    """Ids of findings that count as having seen it."""
    causes: tuple[str, ...] = ()
    """Ids of causes that count as right; empty when nobody can tell the cause from a log."""
    onset_step: int | None = None
    """The first step that differs from the healthy twin."""
    severity: str | None = None
    """`subtle` (barely material), `medium` or `severe` (ruin)."""
    speed: str = "fast"
    """How soon it can show at all: `instant` (1 step), `fast` (tens), `slow` (hundreds), `plateau` (no gain)."""
    reward_falls_at: int | None = None
    """The first step at which the reward itself has materially fallen; None when it never does."""

    def __post_init__(self) -> None:
        for name, allowed in _WORDS.items():
            if getattr(self, name) not in allowed:
                words = ", ".join(str(word) for word in allowed)
                raise ValueError(f"truth: {name} is {getattr(self, name)!r}; it must be one of {words}")
        if self.healthy and (self.fault or self.onset_step is not None):
            raise ValueError(f"truth of {self.kind}: a healthy case has no fault and no onset_step")
        if not self.healthy and (not self.accept or self.onset_step is None):
            raise ValueError(f"truth of {self.kind}: a fault needs onset_step and at least one id in accept")

    def as_json(self) -> dict[str, Any]:
        """The contents of a truth file."""
        return {"schema": SCHEMA, **dataclasses.asdict(self)}

    def save(self, case: Path) -> Path:
        """Write the truth beside a run directory's or a file's contents; returns where."""
        path = case / "truth.json" if case.is_dir() else case.with_name(f"{case.name}.truth.json")
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n", encoding="utf-8")
        return path


def load(path: Path) -> Truth:
    """The truth in a truth file; ValueError says what is wrong with it."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(row, dict) or row.pop("schema", None) != SCHEMA:
        raise ValueError(f"{path}: not a truth of schema {SCHEMA}")
    types = get_type_hints(Truth)
    if unknown := sorted(set(row) - set(types)):
        raise ValueError(f"{path}: truth has no field {unknown[0]!r}")
    row |= {name: tuple(row[name] or ()) for name in ("accept", "causes") if name in row}
    for name, value in row.items():
        if name not in ("accept", "causes") and not isinstance(value, get_args(types[name]) or types[name]):
            raise ValueError(f"{path}: {name} is {value!r}")
    try:
        return Truth(**row)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def beside(folder: Path) -> list[tuple[Path, Truth]]:
    """Every case under a folder: (what to read, its truth), in order of path."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; it should hold cases with their truth.json")
    found = []
    for path in sorted(folder.rglob("*truth.json")):
        case = path.parent if path.name == "truth.json" else path.with_name(path.name.removesuffix(".truth.json"))
        if not case.exists():
            raise ValueError(f"{path}: {case.name}, of which this is the truth, is not beside it")
        found.append((case, load(path)))
    return found
