"""What may be done to a run at most, and that a restart forgets nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stabilizer.control.budget import (
    COOLDOWN,
    LEAST_EXTRA,
    LOCK,
    MAX_ACTIONS,
    quiet_hours,
    refusal,
    resting,
    too_expensive,
    too_often,
    warming_up,
)
from stabilizer.core.knobs import Controls
from stabilizer.core.records import Action
from stabilizer.runs.journal import FIRST_WAIT, Memory, fold
from tests.series import history


def controls(**values: float) -> Controls:
    made = Controls({"control/lr_scale": 1.0, "control/prompts": 8}, backend=None)
    made.set_all({f"control/{name}": value for name, value in values.items()})
    return made


def applied(n: int, change: dict, step: int = 10, **data) -> Action:
    return Action(f"a{n}", "applied", "lower-lr", step, 1, change=change, data=data)


def test_all_fixes_together_take_the_learning_rate_no_further_than_a_factor_of_four() -> None:
    def text(change: dict, **knobs: float) -> str:
        found = refusal(Memory(), change, controls(**knobs), 1)
        return found.text if found else ""

    assert text({"control/lr_scale": (0.5, 0.25)}, lr_scale=0.5) == ""
    assert "configured" in text({"control/lr_scale": (0.25, 0.125)}, lr_scale=0.25)
    assert "configured" in text({"control/prompts": (64, 128)}, prompts=64)


def test_a_knob_is_not_moved_back_soon_and_a_person_is_asked() -> None:
    memory = fold([applied(1, {"control/lr_scale": (1.0, 0.5)}, 100)])
    up = {"control/lr_scale": (0.5, 0.75)}
    found = refusal(memory, up, controls(lr_scale=0.5), 100 + LOCK - 1)
    assert found and found.needs_person and "a person should decide" in found.text
    assert refusal(memory, up, controls(lr_scale=0.5), 100 + LOCK) is None
    assert refusal(memory, {"control/lr_scale": (0.5, 0.25)}, controls(lr_scale=0.5), 101) is None


def test_a_knob_that_a_person_turned_back_is_locked_by_the_journal() -> None:
    down = {"control/lr_scale": (1.0, 0.5)}
    undone = replace(applied(1, down, 100), entry="reverted", step=110, reason="person")
    for remedy in ("lower-lr", "by-hand"):  # a trial that was under way, and a fix that had been kept
        memory = fold([applied(1, down, 100), replace(undone, remedy=remedy)])
        assert refusal(memory, down, controls(), 110 + LOCK - 1) and not refusal(memory, down, controls(), 110 + LOCK)


def test_an_order_is_not_given_again_soon_whatever_its_end_made_look_broken() -> None:
    given = applied(1, {}, 100, orders=["skip-update"])
    memory = fold([given, replace(given, entry="verified", data={})])
    for step, refused in ((60, True), (100 + LOCK - 1, True), (100 + LOCK, False)):  # 60: after going back
        assert bool(refusal(memory, {}, controls(), step, orders=["skip-update"])) is refused
    assert not refusal(memory, {}, controls(), 101, orders=["reset-optimizer"])
    assert not refusal(memory, {}, controls(), 101)
    cut = replace(given, entry="reverted", reason="interrupted", data={})
    assert not refusal(fold([given, cut]), {}, controls(), 101, orders=["skip-update"]), "a restart cut it off"


def test_fixes_steps_and_returns_are_counted() -> None:
    down = {"control/lr_scale": (1.0, 0.5)}
    journal = [applied(n, down, back_for="lr-too-high", extra_steps=30) for n in range(2)]
    journal += [applied(n, {}) for n in range(2, MAX_ACTIONS)]
    journal += [Action("a1", "reverted", "lower-lr", 60, 1, change=down, data={"ticks": 9, "extra_steps": 20})]
    memory = fold(journal)
    assert (memory.applied, memory.extra, memory.failures[1]) == (MAX_ACTIONS, 80, 1)
    found = refusal(memory, {}, controls(), 500)
    assert found and found.needs_person
    assert too_often(memory, "lr-too-high") and not too_often(memory, "no-kl-anchor")
    short = history({"reward/mean": "0.5x10"}).view()
    assert too_expensive(memory, LEAST_EXTRA - 80, short) is None
    found = too_expensive(memory, LEAST_EXTRA - 79, short)
    assert found and "fixes have used 80 of their budget of 100" in found.text
    assert too_expensive(memory, LEAST_EXTRA - 80, short, pending=1), "what is spent and not in the journal yet counts"
    long = history({"reward/mean": "0.5x10"}, about={"config": {"steps": 2000}}).view()
    assert too_expensive(memory, 500, long) is None and too_expensive(memory, 600, long)


@pytest.mark.parametrize(
    ("reason", "data", "rests"),
    [("failed", {}, 60), ("failed", {"back_to": 50}, 50), ("over", {}, 60), ("person", {}, None),
     ("overtaken", {}, None)],
)  # fmt: skip
def test_after_a_trial_the_run_rests_from_where_it_was_left(reason: str, data: dict, rests: int | None) -> None:
    memory = fold([applied(1, {}), Action("a1", "reverted", "lower-lr", 60, 1, data=data, reason=reason)])
    assert memory.rested_from == rests
    if rests is not None:
        found = [resting(memory, step) for step in (rests - 1, rests, rests + COOLDOWN - 1, rests + COOLDOWN)]
        assert found == [False, True, True, False]


@pytest.mark.parametrize(
    ("last", "again"),
    [
        (("expired", "no-need"), True),
        (("expired", "replaced"), True),
        (("expired", "interrupted"), True),
        (("reverted", "over"), True),
        (("expired", "unanswered"), False),
        (("expired", "outdated"), False),
        (("rejected", "limit"), False),
        (("rejected", "no-better"), False),
        (("reverted", "failed"), False),
    ],
)
def test_what_ended_for_want_of_need_may_be_proposed_again_and_what_was_answered_may_not(last, again: bool) -> None:
    proposed = Action("a1", "proposed", "lower-lr", 10, 1)
    memory = fold([proposed, replace(proposed, entry=last[0], reason=last[1])])
    assert memory.tried_by(1, "lower-lr", 11) is not again


def test_each_wait_is_twice_as_long_and_ends_for_good_where_something_else_refuses() -> None:
    proposed = Action("a1", "proposed", "roll-back", 10, 1)
    vain = replace(proposed, entry="rejected", reason="no-gain")
    waits = [proposed, vain, replace(proposed, action="a2", step=40), replace(vain, action="a2", step=40)]
    memory = fold(waits)
    assert [memory.tried_by(1, "roll-back", step) for step in (40 + 2 * FIRST_WAIT - 1, 40 + 2 * FIRST_WAIT)] == [1, 0]
    late = [replace(proposed, action="a3", step=90), replace(vain, action="a3", step=90, reason="limit")]
    assert fold([*waits, *late]).tried_by(1, "roll-back", 10_000)


def test_a_trial_that_goes_on_from_another_is_no_proposal_of_its_own() -> None:
    more = Action("a2", "proposed", "roll-back", 10, 1, data={"builds_on": "a1"})
    assert not fold([more, replace(more, entry="rejected", data={}, reason="limit")]).tried_by(1, "roll-back", 11)


def test_actions_that_people_began_are_no_trials_whatever_they_are_called() -> None:
    by_hand = Action("a7", "applied", "by-hand", 10, change={"control/lr_scale": (1.0, 0.5)}, origin="person")
    memory = fold([by_hand, replace(by_hand, action="h1", origin="")])
    assert memory == Memory()


def test_nothing_is_changed_while_the_rate_warms_up_or_just_after_a_resume() -> None:
    about = {"config": {"optim": {"warmup_steps": 20}}}
    run = history({"reward/mean": "0.5x60"}, about=about, events=[(49, "resume")])
    assert "warms up" in warming_up(run.view(20)) and not warming_up(run.view(30))
    assert "resumed" in quiet_hours(run.view(55)) and not quiet_hours(run.view(60))


@pytest.mark.parametrize("value", ["nonsense", None, [1]])
def test_a_configuration_that_says_nothing_sensible_stops_nothing(value) -> None:
    run = history({"reward/mean": "0.5x60"}, about={"config": {"optim": {"warmup_steps": value}, "steps": value}})
    assert (
        quiet_hours(run.view()) == warming_up(run.view()) == ""
        and too_expensive(Memory(), LEAST_EXTRA, run.view()) is None
    )
