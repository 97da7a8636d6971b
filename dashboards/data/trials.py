"""Trials of remedies in words: what was promised, what the journal's entries hold, and the paired fork."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from stabilizer.core.records import Action
from stabilizer.core.text import short
from stabilizer.runs.journal import BY_HAND
from stabilizer.runs.listing import whole_number, word
from stabilizer.runs.story import TrialStory, trials, twin_words

ENTRY_WORDS = {
    "after_step": "counted from step",
    "back_for": "because of",
    "back_to": "back to the state after step",
    "builds_on": "continues",
    "extra_steps": "cost in steps:",
    "guard": "guard:",
    "guard_level": "guard level before",
    "guard_noise": "guard noise",
    "ticks": "steps judged",
}
"""Words for keys of the journal; others are shown as they are written."""
INTERNAL = frozenset({"request", "put_right"})
"""Keys of the journal that only the training process needs."""


def trials_of(actions: Iterable[Action]) -> tuple[TrialStory, ...]:
    """The trials of a journal, the newest first."""
    return tuple(reversed(trials(actions)))


def facts_of(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Names and values in words. Structures are left out: the entry's own text describes them."""
    return tuple((str(key), short(value)) for key, value in values.items() if not isinstance(value, Mapping))


def entry_facts(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The facts of a journal's entry in words, without numbers that are not finite."""
    told = {key: value for key, value in data.items() if key not in INTERNAL and _known(value)}
    return tuple((ENTRY_WORDS.get(key, key.replace("_", " ")), value) for key, value in facts_of(told))


def _known(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def twin_of(trial: TrialStory) -> str:
    """The result of the paired fork, if one was run; it can speak against a change that was then not made. Empty where
    nothing was applied, or a person applied it."""
    if not trial.twin and (not trial.made or trial.entries[0].remedy == BY_HAND):
        return ""
    try:
        return twin_words(trial)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return "a twin was run, but its result can't be read"


def promise(trial: TrialStory) -> dict[str, str]:
    """What was recorded before anything was changed, by headings; empty where nothing was."""
    entry = next((entry for entry in trial.entries if isinstance(entry.data.get("hypothesis"), Mapping)), None)
    if entry is None:
        return {}
    card: Mapping[str, Any] = {**entry.data["hypothesis"], **_guard_of_change(trial)}
    back, horizon = whole_number(card.get("rollback_to")), card.get("horizon_steps")
    return {
        "Why": entry.text.partition("; expected within")[0],
        "Expects": word(card.get("expects")),
        "Guard": _guard(card),
        "Judged after": f"{short(horizon)} steps" if horizon is not None else "",
        "Undo": _undo(card.get("undo")),
        "Rollback": f"rolls back to the state after step {back:,} first" if back is not None else "",
    }


def _guard_of_change(trial: TrialStory) -> dict[str, Any]:
    """The guard and its level as measured just before the change, which may be long after the proposal."""
    made = (entry.data for entry in reversed(trial.entries) if entry.entry == "applied" and "guard" in entry.data)
    data = next(made, {})
    return {name: data[name] for name in ("guard", "guard_level") if name in data}


def _undo(undo: Any) -> str:
    if not isinstance(undo, Mapping):
        return ""
    return "; ".join(f"{knob}: back to {short(value)}" for knob, value in undo.items())


def _guard(card: Mapping[str, Any]) -> str:
    """The metric that must not suffer, its level, and how far below it still counts as noise."""
    metric, level, noise = word(card.get("guard")), card.get("guard_level"), card.get("guard_noise")
    if not metric:
        return ""
    if not isinstance(level, (int, float)) or level == float("-inf"):
        return f"{metric} (no earlier level known)"
    words = f"{metric} stays at {short(level)} or above"
    return f"{words} (tolerance {short(2 * noise)}, twice its noise)" if isinstance(noise, (int, float)) else words
