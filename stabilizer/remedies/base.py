"""The base of every remedy: one bounded change, with its reason and the test that will judge it."""

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
"""Rows that show that what a fix waits for has happened."""
SECTIONS = (
    "What it does", "For", "Preconditions", "Dose and bounds", "Undo", "Side effects", "References",
)  # fmt: skip
"""Sections of the page of a remedy, which is its class's docstring."""


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
    """Steps in which the orders are given again."""
    asks: ClassVar[bool] = False
    """Waits for a person in every mode, because somebody has to end what it begins."""
    harmless: ClassVar[bool] = False
    """Touches neither weights nor data, so nothing can get worse and there is nothing to go back from."""
    slows: ClassVar[bool] = False
    """Slows learning for as long as it lasts, to keep what has not failed yet from failing."""
    outlived_by: ClassVar[tuple[str, ...]] = ()
    """Findings of a trouble that it makes harmless and does not remove: they do not show whether it helped."""
    horizon: ClassVar[int] = 30
    """Steps after which a trial is judged at the earliest; a noisy guard makes it longer."""
    by_hand: str = ""
    """What a person does, as an instruction, where that is more than turning the knobs of `change`."""
    turns: ClassVar[str] = ""
    """The one knob that `by_hand` is about. Where its value is known, `change` says the same with numbers."""
    of_settings: bool = True
    """It changes a trainer's settings, not data, rewards or code alone."""
    restart: str = ""
    """What has to be restarted for it in another trainer, where that differs from any other setting."""
    why: str
    expects: str
    """What must be seen at the horizon, in words. The guard is the other half of the hypothesis."""

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        """Knobs before and after; None when it can't help (a bound is reached, the knob is missing)."""
        raise NotImplementedError

    def against(self, cause: str, knobs: Mapping[str, float]) -> Change | None:
        """The change for one of the causes it answers; the same for all by default."""
        return self.change(knobs)

    def outlived(self, cause: str) -> tuple[str, ...]:
        """`outlived_by` when it is used against a cause."""
        return self.outlived_by

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int] = NOBODY
    ) -> Change | None:
        """The change for a cause in a run that went wrong at `onset`. Remedies turn knobs until the steps in `ours`."""
        return self.against(cause, knobs)

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """Values of a knob at the steps of a trial, if it does not take its new value at once."""
        return {}

    def over(self, view: RunView, began: int) -> str:
        """How what it waits for has happened, in a run under it since step `began`; empty while it has not."""
        return ""

    def unfit(self, view: RunView) -> str:
        """Why it must not be used on this run in its present state; empty when it may."""
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
"""Findings about prompts that teach nothing: they stay open, however many other prompts there are."""
MOST_MORE, MOST_PROMPTS = 4.0, 128
"""Largest factor by which the prompts grow at once, and the most there may be."""


def more_prompts(knobs: Mapping[str, float], factor: float) -> Change:
    """Multiply the prompts by a factor; no change where it is not above 1, or a bound is reached."""
    factor = min(factor, MOST_MORE)
    return (scaled(knobs, "control/prompts", factor, low=1, high=MOST_PROMPTS) or {}) if factor > 1 else {}


def lowered(knobs: Mapping[str, float], name: str, to: float) -> Change | None:
    """Lower one knob to a value; None when it is there or below."""
    before = knobs.get(name)
    return None if before is None or before <= to else {name: (before, to)}


def raised(knobs: Mapping[str, float], name: str, to: float) -> Change | None:
    """Raise one knob to a value; None when it is there or above."""
    before = knobs.get(name)
    return None if before is None or before >= to else {name: (before, to)}


def switched(knobs: Mapping[str, float], name: str, to: str, *, when: tuple[str, ...]) -> Change | None:
    """Turn one switch to a setting, if it is at one of `when`."""
    choices = KNOBS[name].choices
    before = knobs.get(name)
    if before is None or choices[int(before)] not in when:
        return None
    return {name: (before, choices.index(to))}


def in_words(change: Change) -> str:
    """A change in words, switches by the names of their settings."""
    turns = [(knob, before, after) for knob, (before, after) in change.items() if before != after]
    return ", ".join(f"{knob} {_value(knob, before)} → {_value(knob, after)}" for knob, before, after in turns)


def _value(knob: str, value: float | None) -> str:
    return "?" if value is None else controls.in_words(knob, value)
