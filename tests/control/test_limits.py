"""What may be done to a run at most, and that a restart forgets nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stabilizer.control.limits import COOLDOWN, LEAST_EXTRA, LOCK, MAX_ACTIONS, Limits, quiet_hours
from stabilizer.core.knobs import Controls
from stabilizer.core.records import Action
from tests.series import history


def controls(**values: float) -> Controls:
    made = Controls({"control/lr_scale": 1.0, "control/prompts": 8}, backend=None)
    made.set_all({f"control/{name}": value for name, value in values.items()})
    return made


def applied(n: int, change: dict, step: int = 10, **data) -> Action:
    return Action(f"a{n}", "applied", "lower-lr", step, 1, change=change, data=data)


def test_all_fixes_together_take_the_learning_rate_no_further_than_a_factor_of_four() -> None:
    limits = Limits()
    assert limits.refusal({"control/lr_scale": (0.5, 0.25)}, controls(lr_scale=0.5), 1) == ""
    assert "configured" in limits.refusal({"control/lr_scale": (0.25, 0.125)}, controls(lr_scale=0.25), 1)
    assert "configured" in limits.refusal({"control/prompts": (64, 128)}, controls(prompts=64), 1)


def test_a_knob_is_not_moved_back_soon_and_a_person_is_asked() -> None:
    limits = Limits()
    limits.note({"control/lr_scale": (1.0, 0.5)}, 100)
    up = {"control/lr_scale": (0.5, 0.75)}
    assert "a person should decide" in limits.refusal(up, controls(lr_scale=0.5), 100 + LOCK - 1)
    assert limits.refusal(up, controls(lr_scale=0.5), 100 + LOCK) == ""
    assert limits.refusal({"control/lr_scale": (0.5, 0.25)}, controls(lr_scale=0.5), 101) == ""


@pytest.mark.parametrize("restarted", [False, True])
def test_an_order_is_not_given_again_soon_whatever_its_end_made_look_broken(restarted: bool) -> None:
    limits = Limits()
    if restarted:
        given = applied(1, {}, 100, orders=["skip-update"])
        limits.recall([given, replace(given, entry="verified", data={})])
    else:
        limits.note({}, 100, ["skip-update"])
    for step, refused in ((60, True), (100 + LOCK - 1, True), (100 + LOCK, False)):  # 60: after going back
        assert bool(limits.refusal({}, controls(), step, orders=["skip-update"])) is refused
    assert not limits.refusal({}, controls(), 101, orders=["reset-optimizer"])
    assert not limits.refusal({}, controls(), 101)


def test_fixes_steps_and_returns_are_counted_and_the_count_survives_a_restart() -> None:
    down = {"control/lr_scale": (1.0, 0.5)}
    journal = [applied(n, down, back_for="lr-too-high", extra_steps=30) for n in range(2)]
    journal += [applied(n, {}) for n in range(2, MAX_ACTIONS)]
    journal += [Action("a1", "reverted", "lower-lr", 60, 1, change=down, data={"ticks": 9, "extra_steps": 20})]
    limits = Limits()
    limits.recall(journal)
    assert (limits.applied, limits.extra, limits.failures[1]) == (MAX_ACTIONS, 80, 1)
    assert "a person should look" in limits.refusal({}, controls(), 500)
    assert limits.too_often("lr-too-high") and not limits.too_often("no-kl-anchor")
    short = history({"reward/mean": "0.5x10"}).view()
    assert limits.too_dear(LEAST_EXTRA - 80, short) == ""
    assert "80 are spent" in limits.too_dear(LEAST_EXTRA - 79, short)
    long = history({"reward/mean": "0.5x10"}, about={"config": {"steps": 2000}}).view()
    assert limits.too_dear(500, long) == "" and limits.too_dear(600, long)


def test_nothing_is_changed_while_the_rate_warms_up_or_just_after_a_resume() -> None:
    about = {"config": {"optim": {"warmup_steps": 20}}}
    run = history({"reward/mean": "0.5x60"}, about=about, events=[(49, "resume")])
    assert "warms up" in quiet_hours(run.view(20)) and not quiet_hours(run.view(30))
    assert "resumed" in quiet_hours(run.view(55)) and not quiet_hours(run.view(60))


@pytest.mark.parametrize("value", ["nonsense", None, [1]])
def test_a_configuration_that_says_nothing_sensible_stops_nothing(value) -> None:
    run = history({"reward/mean": "0.5x60"}, about={"config": {"optim": {"warmup_steps": value}, "steps": value}})
    assert quiet_hours(run.view()) == "" and Limits().too_dear(LEAST_EXTRA, run.view()) == ""
    assert COOLDOWN > 0
