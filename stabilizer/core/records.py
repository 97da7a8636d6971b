"""The schema: the records that a run consists of, and how each looks as a line of JSON.

Five kinds of record, all small and frozen: `Metrics` (numbers of a step), `Sample` (a completion), `Event`
(something declared: a schedule change, a rollback, a note), `Finding` (an incident as it opens, changes and closes)
and `Action` (an entry of the remedy journal).

NaN and Inf are evidence, so they survive the round trip. JSON can't hold them: a non-finite number is written as `null`
and named in the side map `nf`. `null` without an entry in `nf` reads as "not measured" and is left out. Unknown metric
names are kept as they are; unknown fields of our own records are an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import orjson

from stabilizer.core import json_text

SCHEMA = 1

Severity = Literal["info", "warn", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warn", "critical")

FindingState = Literal["suspected", "open", "mitigating", "recovering", "resolved"]
FINDING_STATES: tuple[FindingState, ...] = ("suspected", "open", "mitigating", "recovering", "resolved")

RunState = Literal["created", "running", "paused", "preempted", "finished", "stopped", "failed", "stalled"]

JournalEntry = Literal["proposed", "approved", "rejected", "expired", "applied", "verified", "reverted", "failed"]

Origin = Literal["", "remedy", "person"]
"""Who began an action. Empty in journals that were written before the field existed."""

Reason = Literal[
    "", "failed", "over", "overtaken", "person", "interrupted", "no-gain", "no-better", "no-need", "outdated",
    "replaced", "unanswered", "limit", "copy", "error",
]  # fmt: skip
"""Why an entry of the journal says that an action ended, or was not begun; empty where it needs no reason.

`failed`: the trial failed its test. `over`: what the change was kept for has passed. `overtaken`: an undeclared change
came to light. `person`: a person decided. `interrupted`: the run was cut off. `no-gain`: going back would win nothing.
`no-better`: the run is no worse than at the checkpoint. `no-need`: nothing calls for it any more. `outdated`: it would
not be proposed any more. `replaced`: another proposal took its place. `unanswered`: nobody answered. `limit`: a budget,
cooldown or bound forbids it. `copy`: a copy of the run spoke against it. `error`: it could not be done.
"""

_PLAIN = frozenset({int, float})
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class RecordError(ValueError):
    """A line is not a record of this schema."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Numbers measured at one step by one process.

    `n` counts the records of one file, so a gap is a lost record; `t` is wall time in seconds since the epoch.
    """

    step: int
    values: Mapping[str, float]
    t: float = 0.0
    n: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of a step with its reward. The text is kept as generated; the writer cuts long texts."""

    step: int
    group: int
    prompt: str
    completion: str
    reward: float
    advantage: float
    rewards: Mapping[str, float] = field(default_factory=dict)
    length: int = 0
    truncated: bool = False
    solved: bool | None = None
    """Whether the task counts it as correct; None where only the reward is known."""
    tokens: Sequence[str] = ()
    """The completion token by token, where the configuration asks for it."""
    logps: Sequence[float | None] = ()
    """Log-probability of each of `tokens` when it was sampled; None for tokens of an environment."""
    expected: str = ""
    """The right answer, where the data names one."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something declared, not measured. Detectors start a new baseline at some kinds; charts mark all of them.

    kind: `note`, `schedule`, `data-stage`, `resume`, `rollback`, `intervention`, `checkpoint`.
    """

    step: int
    kind: str
    text: str
    t: float = 0.0
    attempt: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cause:
    """A possible cause with the confidence (0-1) the evidence gives it, and the reasons in words."""

    id: str
    confidence: float
    why: str
    doubt: str = ""
    """Why the cause is only suspected; empty where it is not."""

    def beyond(self, said: str) -> str:
        """The reasons without those in `said`, the summary of its finding, for a reader who has just read that."""
        return "" if self.why.removeprefix("possibly ") in said else self.why.replace(said, "").strip("; ")


@dataclass(frozen=True, slots=True)
class RemedyAdvice:
    """A remedy proposed for a finding: the knobs it changes (`change`), and the setting in the trainer (`how`)."""

    id: str
    safety: Literal["soft", "hard", "advice"]
    change: Mapping[str, tuple[float | None, float | None]]
    why: str
    how: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What a detector found. Once `watch` has given it an incident and a state, it is a line of findings.jsonl."""

    id: str
    severity: Severity
    summary: str
    onset_step: int
    detected_step: int
    last_step: int
    evidence: Mapping[str, Any] = field(default_factory=dict)
    state: FindingState = "suspected"
    incident: int = 0
    attempt: int = 0
    t: float = 0.0
    causes: tuple[Cause, ...] = ()
    remedies: tuple[RemedyAdvice, ...] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """An entry of the journal. `action` is the id of the trial; its entries, oldest first, are its history.

    `hash` covers the entry and `prev`, the hash of the entry before, so a missing or edited line shows.
    """

    action: str
    entry: JournalEntry
    remedy: str
    step: int
    incident: int = 0
    attempt: int = 0
    t: float = 0.0
    safety: Literal["soft", "hard", "advice"] = "soft"
    change: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    n: int = 0
    prev: str = ""
    hash: str = ""
    origin: Origin = ""
    reason: Reason = ""


def worst(severities: Iterable[Severity]) -> Severity | None:
    """The worst of some severities, or None when there are none."""
    ranked = sorted(severities, key=SEVERITIES.index)
    return ranked[-1] if ranked else None


# --- metrics: one line a step ---------------------------------------------------------------------------------------


def encode_metrics(record: Metrics) -> bytes:
    """One line, newline included. Every number is kept exactly; other values are an error."""
    values: dict[str, Any] = {}
    non_finite: dict[str, str] = {}
    for name, value in record.values.items():
        name = _text(name)
        number = _number(name, value)
        if math.isfinite(number):
            values[name] = number
        else:
            values[name] = None
            non_finite[name] = _non_finite_word(number)
    row: dict[str, Any] = {"n": record.n, "step": record.step, "t": record.t, "m": values}
    if non_finite:
        row["nf"] = non_finite
    return orjson.dumps(row) + b"\n"


def decode_metrics(line: bytes) -> Metrics:
    """The record of one line. RecordError says what is wrong with it."""
    row = _object(line, orjson.loads)  # any depth: only numbers in `m` are kept
    try:
        step, values = row["step"], row["m"]
    except KeyError as missing:
        raise RecordError(f"metrics record without {missing}") from None
    if not isinstance(step, int) or isinstance(step, bool) or abs(step) >= 2**62 or not isinstance(values, dict):
        raise RecordError("metrics record whose 'step' is not an integer or whose 'm' is not an object")
    if not _PLAIN.issuperset(map(type, values.values())):  # seldom, and ten times as slow
        values = _measured(values, row.get("nf"))
    t, n = row.get("t", 0.0), row.get("n", 0)
    if not isinstance(t, (int, float)) or not isinstance(n, int):
        raise RecordError("metrics record whose 't' or 'n' is not a number")
    return Metrics(step=step, values=values, t=float(t), n=n)


def _measured(values: Mapping[str, Any], non_finite: Any) -> dict[str, float]:
    """The numbers of a record: `null` is the value that `nf` names, or was not measured."""
    words = non_finite if isinstance(non_finite, dict) else {}
    measured: dict[str, float] = {}
    for name, value in values.items():
        if value is None:
            word = words.get(name)
            if isinstance(word, str) and word in _NON_FINITE:
                measured[name] = _NON_FINITE[word]
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            measured[name] = value
        else:
            raise RecordError(f"metric {name!r} is not a number")
    return measured


def _non_finite_word(number: float) -> str:
    if math.isnan(number):
        return "nan"
    return "inf" if number > 0 else "-inf"


def _number(name: str, value: Any) -> float | int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        if -(2**63) <= value < 2**64:
            return value
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, float):
        return float(value)  # numpy's float64 is a float; orjson wants the plain one
    if hasattr(value, "item"):  # numpy and torch scalars
        return _number(name, value.item())
    raise TypeError(f"metric {name!r} is a {type(value).__name__}; metrics are numbers")


# --- the other records: written rarely, encoded alike ---------------------------------------------------------------


def encode(record: Sample | Event | Finding | Action) -> bytes:
    """One line, newline included; fields are the keys, a non-finite number becomes {"nf": "nan"} or the like."""
    row = _plain(record)
    if isinstance(record, Sample):
        row = {name: value for name, value in row.items() if name not in _OPTIONAL or value not in (None, [], "")}
    return orjson.dumps(row) + b"\n"


def decode(kind: type[Any], line: bytes) -> Any:
    """A record of `kind` from a line; unknown or missing fields raise RecordError."""
    row = _object(line, json_text.loads)
    fields = kind.__dataclass_fields__
    if unknown := sorted(set(row) - set(fields)):
        raise RecordError(f"{kind.__name__} has no field {unknown[0]!r}")
    try:
        record = kind(**{name: _restore(kind, name, value) for name, value in row.items()})
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RecordError(f"not a {kind.__name__}: {error}") from None
    return _checked(record)


_OPTIONAL = frozenset({"solved", "tokens", "logps", "expected"})
_UNSTATED = frozenset({"origin", "reason", "doubt"})
"""Fields that are left out while empty, so that the hashes of older journals hold."""
_FIELD_TYPES: dict[Any, Any] = {
    "int": int,
    "str": str,
    "float": (int, float),
    "bool": bool,
    "Severity": str,
    "FindingState": str,
    "JournalEntry": str,
    "Mapping[str, Any]": dict,
    "Mapping[str, float]": dict,
    "bool | None": (bool, type(None)),
    "Sequence[str]": tuple,
    "Sequence[float | None]": tuple,
    "Origin": str,
    "Reason": str,
}
_FIELD_WORDS: dict[Any, Any] = {
    "Severity": SEVERITIES,
    "FindingState": FINDING_STATES,
    "JournalEntry": get_args(JournalEntry),
    "Origin": get_args(Origin),
    "Reason": get_args(Reason),
}


def _checked(record: Any) -> Any:
    """The record; RecordError where a field does not hold its declared type."""
    kind = type(record)
    for name, spec in kind.__dataclass_fields__.items():
        value, wanted = getattr(record, name), _FIELD_TYPES.get(spec.type, object)
        allowed = _FIELD_WORDS.get(spec.type)
        if not isinstance(value, wanted) or (allowed and value not in allowed):
            raise RecordError(f"not a {kind.__name__}: {name!r} is {value!r:.60}")
    return record


def _restore(kind: type[Any], name: str, value: Any) -> Any:
    if kind is Finding and name == "causes":
        return tuple(_checked(Cause(**cause)) for cause in value)
    if kind is Finding and name == "remedies":
        return tuple(_checked(RemedyAdvice(**{**advice, "change": _change(advice["change"])})) for advice in value)
    if kind is Action and name == "change":
        return _change(value)
    if kind is Sample and name in ("tokens", "logps"):
        return tuple(_floats(value)) if isinstance(value, list) else value
    return _floats(value)


def _change(change: Mapping[str, Any]) -> dict[str, tuple[float | None, float | None]]:
    return {knob: (_setting(before), _setting(after)) for knob, (before, after) in change.items()}


def _setting(value: Any) -> float | None:
    value = _floats(value)
    if value is not None and not isinstance(value, (int, float)):
        raise ValueError(f"a knob can't be at {value!r:.60}")
    return value


def _floats(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"nf"} and value["nf"] in _NON_FINITE:
            return _NON_FINITE[value["nf"]]
        return {key: _floats(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_floats(inner) for inner in value]
    return value


def _plain(value: Any) -> Any:
    """JSON's own types; a non-finite number becomes {"nf": "nan"} and comes back as itself."""
    if hasattr(value, "__dataclass_fields__"):
        fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
        return {name: _plain(held) for name, held in fields.items() if held != "" or name not in _UNSTATED}
    if isinstance(value, Mapping):
        return {_text(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return value
    number = _number("value", value)
    return number if math.isfinite(number) else {"nf": _non_finite_word(number)}


def _text(value: str) -> str:
    """Text as UTF-8 can hold it: a lone surrogate, as some tokenizers decode to, becomes a question mark."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def as_json(record: Any) -> Any:
    """The record as JSON's own types, for `--json` output and the report."""
    return _plain(record)


def _object(line: bytes, loads: Callable[[bytes], Any]) -> dict[str, Any]:
    try:
        row = loads(line)
    except ValueError as error:
        raise RecordError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise RecordError(f"not a JSON object but {type(row).__name__}")
    return row
