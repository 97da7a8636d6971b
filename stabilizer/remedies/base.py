"""What every remedy is: one change, bounded, with the reason and the test that will judge it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from stabilizer.core import knobs as controls
from stabilizer.core.knobs import KNOBS
from stabilizer.remedies.change import NOBODY as NOBODY
from stabilizer.remedies.change import Change as Change
from stabilizer.remedies.change import Course as Course
from stabilizer.remedies.objections import slowing_objection
from stabilizer.remedies.situation import Situation
from stabilizer.runs.history import RunView

BACK = 3
"""Rows that say that what a fix waits for has come."""
SECTIONS = (
    "What it does", "For", "Preconditions", "Dose and bounds", "Undo", "Side effects", "References",
)  # fmt: skip
"""What the page of a remedy, its class's docstring, has."""


class Remedy:
    """One fix: file, class and id are the same words, a verb. It sees knob values, never the model.

    `change` is pure: the same knobs give the same proposal, so advice after the fact and a live fix agree. What is no
    knob (forgetting the optimizer's averages, skipping updates, ending the run) is an order of `controls.ORDERS`.
    """

    id: str
    safety: ClassVar[Literal["soft", "hard", "advice"]]
    answers: tuple[str, ...]
    """Causes it is meant for."""
    rollback: ClassVar[bool] = False
    """Returns to a checkpoint from before the onset; then the change must remove the cause, or it would replay it."""
    orders: ClassVar[tuple[str, ...]] = ()
    """What it does beside turning knobs."""
    repeats: ClassVar[int] = 1
    """Steps for which the orders are given anew."""
    asks: ClassVar[bool] = False
    """Waits for a person in every mode: nobody may be there to end what it begins."""
    harmless: ClassVar[bool] = False
    """Touches neither weights nor data, so that nothing can get worse and there is nothing to go back from."""
    slows: ClassVar[bool] = False
    """Slows learning for as long as it lasts, to keep what has not failed yet from failing."""
    outlived_by: ClassVar[tuple[str, ...]] = ()
    """Findings that measure what it can't take away, only make harmless: they say nothing about whether it helped."""
    horizon: ClassVar[int] = 30
    """Steps after which a trial is judged at the earliest; a noisy guard makes it longer."""
    by_hand: str = ""
    """What a person does, in words that can be followed, where that is more than turning the knobs of `change`."""
    turns: ClassVar[str] = ""
    """The one knob that `by_hand` speaks of: where its value is known, `change` says all there is to say."""
    of_settings: bool = True
    """A matter of a trainer's settings, and not of data, rewards or code alone."""
    restart: str = ""
    """Whether a person has to start another trainer's run again for it, where that is not as for any setting."""
    why: str
    expects: str
    """What must be seen at the horizon, in words: half of the hypothesis (the guard is the other half)."""

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        """Knobs before and after, or None when it can't help here (a bound is reached, the knob is missing)."""
        raise NotImplementedError

    def against(self, cause: str, knobs: Mapping[str, float]) -> Change | None:
        """The change for one of the causes it answers: the same for all, unless a remedy knows better."""
        return self.change(knobs)

    def outlived(self, cause: str) -> tuple[str, ...]:
        """`outlived_by`, used against a cause."""
        return self.outlived_by

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int] = NOBODY
    ) -> Change | None:
        """The change for a cause in a run that went wrong at `onset`; remedies turn knobs until the steps of `ours`."""
        return self.against(cause, knobs)

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """Values of a knob at the steps of a trial, where it does not go to its new value at once."""
        return {}

    def over(self, view: RunView, began: int) -> str:
        """Why what it waits for has come, in a run under it since step `began`; empty while it has not."""
        return ""

    def unfit(self, view: RunView) -> str:
        """Why it must not be used on this run as it stands; empty when it may."""
        return ""

    def objection(self, now: Situation) -> str | None:
        """What speaks against it in a situation, beside `unfit`; None where nothing does."""
        return slowing_objection(now, self.answers) if self.slows else None

    def onset(self, now: Situation) -> int:
        """The step from which the incident counts for this remedy."""
        return now.onset


def scaled(knobs: Mapping[str, float], name: str, factor: float, low: float, high: float) -> Change | None:
    """Multiply one knob, kept within `low`..`high` and its own bounds; None when that can't move it the right way."""
    if name not in knobs:
        return None
    before = knobs[name]
    after = min(max(before * factor, low, KNOBS[name].low), high, KNOBS[name].high)
    after = round(after) if KNOBS[name].whole else after
    return {name: (before, after)} if (after - before) * (factor - 1) > 0 else None


SILENCE = ("reward/no-signal", "reward/collapse", "reward/hacking", "system/data-shift")
"""Findings that measure prompts which teach nothing: they go on however many others there are beside them."""
MOST_MORE, MOST_PROMPTS = 4.0, 128
"""By how much prompts are made more at once at most, and how many there may be."""


def more_prompts(knobs: Mapping[str, float], factor: float) -> Change:
    """As many prompts more as a fix asks for; nothing where it asks for no more, or there can't be more."""
    factor = min(factor, MOST_MORE)
    return (scaled(knobs, "control/prompts", factor, low=1, high=MOST_PROMPTS) or {}) if factor > 1 else {}


def lowered(knobs: Mapping[str, float], name: str, to: float) -> Change | None:
    """Bring one knob down to a value; None when it is there already."""
    before = knobs.get(name)
    return None if before is None or before <= to else {name: (before, to)}


def raised(knobs: Mapping[str, float], name: str, to: float) -> Change | None:
    """Bring one knob up to a value; None when it is there already."""
    before = knobs.get(name)
    return None if before is None or before >= to else {name: (before, to)}


def switched(knobs: Mapping[str, float], name: str, to: str, *, when: tuple[str, ...]) -> Change | None:
    """Put one switch to a setting, when it stands at one of `when`."""
    choices = KNOBS[name].choices
    before = knobs.get(name)
    if before is None or choices[int(before)] not in when:
        return None
    return {name: (before, choices.index(to))}


def in_words(change: Change) -> str:
    """A change as people say it, switches by the names of their settings."""
    turns = [(knob, before, after) for knob, (before, after) in change.items() if before != after]
    return ", ".join(f"{knob} {_value(knob, before)} → {_value(knob, after)}" for knob, before, after in turns)


def _value(knob: str, value: float | None) -> str:
    return "?" if value is None else controls.in_words(knob, value)
