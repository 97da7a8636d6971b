"""The base of every remedy: one bounded change, its reason and the test that judges it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

from stabilizer.core.knobs import Change as Change
from stabilizer.core.knobs import change_words
from stabilizer.remedies.doses import Dose
from stabilizer.remedies.objections import slowing_objection
from stabilizer.remedies.situation import Situation
from stabilizer.runs.history import RunView

BACK = 3
"""Rows needed to show that the event a fix waits for has happened."""
SECTIONS = (
    "What it does", "For", "Preconditions", "Dose and bounds", "Undo", "Side effects", "References",
)  # fmt: skip
"""Sections of the page of a remedy; the page is the docstring of its class."""
Course = dict[str, list[float]]
"""Knob -> its values at the steps of a trial."""


class Remedy:
    """One fix. Its file, class and id share one name, a verb. It reads knob values, never the model.

    `change` is pure: the same knobs give the same proposal, so later advice and a live fix agree. Most remedies state
    a `dose`. An action without a knob (resetting the optimizer's averages, skipping updates, ending the run) is an
    order of `core.knobs.ORDERS`.
    """

    id: str
    safety: ClassVar[Literal["soft", "hard", "advice"]]
    answers: tuple[str, ...]
    """Causes it treats."""
    in_warm_up: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Cause -> the finding that shows it whatever the learning rate: such a cause may be treated during warm-up."""
    dose: ClassVar[Dose | None] = None
    """The change of one knob; None for remedies that only give orders or decide otherwise."""
    objections: ClassVar[tuple[Callable[[Situation], str | None], ...]] = ()
    """Reasons not to use it in a situation; each is empty or None if it does not apply."""
    rollback: ClassVar[bool] = False
    """Returns to a checkpoint from before the onset. The change must then remove the cause, or the failure repeats."""
    orders: ClassVar[tuple[str, ...]] = ()
    """Orders it gives besides changing knobs."""
    repeats: ClassVar[int] = 1
    """Number of steps at which the orders are repeated."""
    asks: ClassVar[bool] = False
    """Waits for a person in every mode, because a person must end it."""
    harmless: ClassVar[bool] = False
    """Changes neither weights nor data, so it can do no damage and needs no rollback."""
    slows: ClassVar[bool] = False
    """Slows learning while it lasts, to prevent a failure."""
    outlived_by: ClassVar[tuple[str, ...]] = ()
    """Findings of a fault that it makes harmless but does not remove: they do not show whether it helped."""
    horizon: ClassVar[int] = 30
    """Steps after which a trial is judged at the earliest; a noisy guard makes it longer."""
    by_hand: str = ""
    """The instruction for a person, where it is more than changing the knobs of `change`."""
    turns: ClassVar[str] = ""
    """The one knob that `by_hand` is about. If its value is known, `change` gives the same advice with numbers."""
    of_settings: bool = True
    """It changes settings of a trainer, not only data, rewards or code."""
    restart: str = ""
    """The restart it needs in another trainer, where that differs from other settings."""
    why: str
    expects: str
    """The expected result at the horizon. The guard is the other half of the hypothesis."""

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        """Knobs before and after; None if it can't help (a bound is reached or the knob is missing)."""
        if self.dose is not None:
            return self.dose(knobs)
        return {} if knobs else None

    def against(self, cause: str, knobs: Mapping[str, float]) -> Change | None:
        """The change for one of the causes it answers; the same for all by default."""
        return self.change(knobs)

    def outlived(self, cause: str) -> tuple[str, ...]:
        """`outlived_by` when it is used against a cause."""
        return self.outlived_by

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int]
    ) -> Change | None:
        """The change for a cause in a run that went wrong at `onset`. Remedies change knobs until the steps in
        `ours`."""
        return self.against(cause, knobs)

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """Values of a knob at the steps of a trial, if it changes gradually."""
        return {}

    def over(self, view: RunView, began: int) -> str:
        """Description of the event it waits for, if it happened since step `began`; empty otherwise."""
        return ""

    def unfit(self, view: RunView) -> str:
        """Why it must not be used on this run in its current state; empty if it may."""
        return ""

    def objection(self, now: Situation) -> str | None:
        """Why it should not be used in a situation, besides `unfit`; None if it may."""
        if self.slows and (why := slowing_objection(now, self.answers)):
            return why
        return next((why for objection in self.objections if (why := objection(now))), None)

    def onset(self, now: Situation) -> int:
        """The step from which the incident counts for this remedy."""
        return now.onset


SILENCE = ("reward/no-signal", "reward/collapse", "reward/hacking", "system/data-shift")
"""Findings about prompts that give no gradient: they stay open, however many other prompts there are."""


def in_words(change: Change) -> str:
    """A change in words, switches by the names of their settings."""
    return ", ".join(change_words({knob: turn for knob, turn in change.items() if turn[0] != turn[1]}))
