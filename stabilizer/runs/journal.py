"""What the journal of a run says: whether it is whole, how every action stands, and where it puts each knob.

`actions.jsonl` is written by the training process alone, one line an entry, each with the hash of the one before. So a
line that was edited, taken out or put in shows; that lines were cut off at the end can't be seen from the chain alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabilizer.core.records import Action, RecordError, decode
from stabilizer.runs.chain import chain_hash
from stabilizer.runs.reader import Tail

BY_HAND = "by-hand"
"""The remedy of an entry that a person caused: a knob turned, an order given, a kept fix undone."""


@dataclass(frozen=True)
class Chain:
    """What checking a journal found."""

    entries: int
    torn: int
    """Lines that are no record, as a crash in the middle of a write leaves them; the chain goes on behind them."""
    broken: str
    """The first broken link in words; empty when the chain holds."""


def verify(path: Path) -> Chain:
    """Check a journal from its first line; the first broken link is told, for everything behind it is in doubt."""
    tail = Tail(path)
    before, count, torn = "", 0, 0
    for number, line in enumerate(tail.lines(), 1):
        try:
            entry: Action = decode(Action, line)
        except RecordError:
            torn += 1
            continue
        what = f"line {number} ({entry.action} {entry.entry} at step {entry.step})"
        if entry.hash != chain_hash(entry):
            return Chain(count, torn, f"{what} was changed after it was written: its hash is not that of what it says")
        if entry.prev != before or entry.n != count:
            return Chain(count, torn, f"{what} does not follow the line before it: an entry is missing, new or moved")
        before, count = entry.hash, count + 1
    return Chain(count, torn + tail.skipped, "")


def newest(actions: Iterable[Action]) -> dict[str, Action]:
    """The newest entry of every action, in the order in which the actions came up."""
    latest: dict[str, Action] = {}
    for action in actions:
        latest[action.action] = action
    return latest


def turned(entry: Action) -> dict[str, float]:
    """Knobs as this entry left them: an applied change at its end, an undone one where it was."""
    place = {"applied": 1, "reverted": 0, "failed": 0}.get(entry.entry)
    if place is None:
        return {}
    return {knob: values[place] for knob, values in entry.change.items() if values[place] is not None}


def knobs(initial: Mapping[str, float], actions: Iterable[Action]) -> dict[str, float]:
    """Where the journal says the knobs stand, from where they stood when the run began."""
    stands = dict(initial)
    begun: set[str] = set()
    for entry in actions:
        if entry.entry in ("approved", "applied"):
            begun.add(entry.action)
        if entry.entry != "failed" or entry.action in begun:  # one that never began has turned nothing back
            stands |= turned(entry)
    return stands


@dataclass(frozen=True)
class Intervention:
    """One change made to a run while it trained, with everything the journal says of it."""

    action: str
    remedy: str
    step: int
    """The step after which it was made."""
    change: Mapping[str, tuple[float | None, float | None]]
    order: str
    """What was done that turns no knob (`reset-optimizer`, a return to a checkpoint); empty when nothing was."""
    by: str
    outcome: str
    """`kept`, `undone`, or `on trial`."""
    ended: int | None
    """The step of the outcome."""
    why: str
    expects: str
    said: str
    """The outcome in the journal's words."""
    twin: Mapping[str, Any]
    """What a paired fork measured with and without the change; empty when none was run."""


def interventions(actions: Iterable[Action]) -> list[Intervention]:
    """Every change that was made, oldest first."""
    lives: dict[str, list[Action]] = {}
    for action in actions:
        lives.setdefault(action.action, []).append(action)
    found = []
    for life in lives.values():
        made = next((entry for entry in life if entry.entry == "applied"), None)
        if made is not None:
            found.append((made.n, _intervention(life, made)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _intervention(life: Sequence[Action], made: Action) -> Intervention:
    last, proposed = life[-1], next((e for e in life if e.entry == "proposed"), made)
    by_hand = made.remedy == BY_HAND
    outcome = {"verified": "kept", "reverted": "undone", "failed": "undone"}.get(last.entry)
    hypothesis = proposed.data.get("hypothesis")
    expects = hypothesis.get("expects", "") if isinstance(hypothesis, dict) else ""
    twin = next((e.data["twin"] for e in reversed(life) if isinstance(e.data.get("twin"), dict)), {})
    return Intervention(
        action=made.action,
        remedy=made.remedy,
        step=made.step,
        change=dict(made.change),
        order=str(made.data.get("order", "") or (made.text if not made.change else "")),
        by=str(made.data.get("by", "")) if by_hand else "",
        outcome=outcome or ("kept" if by_hand else "on trial"),
        ended=last.step if outcome else None,
        why=proposed.text,
        expects=str(expects),
        said=last.text if outcome else "",
        twin=twin,
    )


def summary(actions: Iterable[Action]) -> dict[str, Any]:
    """How much a run was changed while it trained: a count, and a sentence for people."""
    made = interventions(actions)
    hands = sum(one.remedy == BY_HAND for one in made)
    undone = sum(one.outcome == "undone" for one in made)
    if not made:
        return {"count": 0, "by_hand": 0, "kept": 0, "undone": 0, "text": "nothing was changed while this run trained"}
    times = "once" if len(made) == 1 else f"{len(made)} times"
    parts = [f"{hands} by hand"] if hands else []
    parts += [f"{undone} undone"] if undone else []
    more = f" ({', '.join(parts)})" if parts else ""
    text = f"changed {times} while it trained{more}: not a plain run"
    kept = sum(one.outcome == "kept" for one in made)
    return {"count": len(made), "by_hand": hands, "kept": kept, "undone": undone, "text": text}


NO_TWIN = "no twin was run, so what would have happened without it is not known"


def twin_words(made: Intervention) -> str:
    """What the paired fork says would have happened, or that there was none.

    The journal holds either two numbers (`with`, `without`, `metric`) or the curves of both copies, the one that was
    left alone named first; of curves the mean over the fork is told, for single steps are noise.
    """
    twin = made.twin
    if not twin:
        return NO_TWIN
    metric, with_it, without = _ends(twin, made.remedy)
    span = f"over {twin['steps']} steps" if isinstance(twin.get("steps"), int) else "over its steps"
    said = [f"{span} {metric} was {with_it:.4g} with it and {without:.4g} in the twin without it"] if metric else []
    if not metric and isinstance(twin.get("curves"), dict):  # of a return to a checkpoint only the run left alone
        alone = [level for curve in twin["curves"].values() if (level := _mean(curve, "reward/mean")) is not None]
        said += [f"{span} the twin left alone had a reward/mean of {level:.4g}" for level in alone[:1]]
    said += [str(twin["said"])] if isinstance(twin.get("said"), str) else []
    return "; ".join(said) or NO_TWIN


def _ends(twin: Mapping[str, Any], remedy: str) -> tuple[str, float, float]:
    """Metric, its level with the change, its level without; ("", 0, 0) when there is no such pair."""
    pair = twin.get("with"), twin.get("without")
    if all(isinstance(value, (int, float)) for value in pair):
        return str(twin.get("metric", "the metric")), float(pair[0]), float(pair[1])
    curves = twin.get("curves")
    if isinstance(curves, dict) and remedy in curves and len(curves) > 1:
        alone = next(name for name in curves if name != remedy)
        for metric in ("reward/mean", "accuracy/train"):
            levels = _mean(curves[remedy], metric), _mean(curves[alone], metric)
            if None not in levels:
                return metric, levels[0], levels[1]
    return "", 0.0, 0.0


def _mean(curve: Any, metric: str) -> float | None:
    values = curve.get(metric) if isinstance(curve, dict) else None
    numbers = [value for value in values or () if isinstance(value, (int, float)) and value == value]
    return sum(numbers) / len(numbers) if numbers else None
