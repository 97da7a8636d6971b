"""Settings changed without a declaration, and settings that are not in force."""

from __future__ import annotations

import pytest

from stabilizer.core.records import Event
from stabilizer.detectors.system.invariant import Invariant
from stabilizer.incidents.diagnosis import causes
from stabilizer.remedies.turns import turns
from stabilizer.runs.history import History
from tests.series import history

OWN = {"trainer": "stabilizer"}
STILL = {"control/lr_scale": "1x120", "reward/mean": "0.3+0.002~0.03x120"}


def run_with(series: dict[str, str], **about: object) -> History:
    return history(STILL | series, about=OWN | about)


@pytest.mark.parametrize(
    ("knob", "course", "cause"),
    [
        ("control/lr_scale", "1x60 3x60", "lr-too-high"),
        ("control/lr_scale", "1x60 0.2x60", "lr-too-low"),
        ("control/beta", "0.02x60 0.5x60", "pinned-by-kl"),
        ("control/beta", "0.02x60 0x60", "no-kl-anchor"),
        ("control/epsilon_high", "0.2x60 10x60", "clip-too-wide"),
        ("control/inner_epochs", "1x60 8x60", "too-many-epochs"),
        ("control/entropy_coef", "0x60 0.1x60", "entropy-bonus-too-large"),
        ("control/entropy_coef", "0x60 -0.1x60", "exploration-exhausted"),
        ("control/temperature", "1x60 0.3x60", "exploration-exhausted"),
        ("control/prompts", "16x60 2x60", "batch-too-small"),
        ("control/max_completion", "20x60 5x60", "capped-length"),
    ],
)
def test_a_changed_knob_is_reported_at_once_with_its_cause(knob: str, course: str, cause: str) -> None:
    run = run_with({knob: course})
    assert Invariant().check(run.view(60)) is None
    view = run.view(61)
    found = Invariant().check(view)
    assert found is not None
    assert (found.severity, found.onset_step, found.evidence["metric"]) == ("warn", 61, knob)
    assert causes([found], view)[0].id == cause


def test_it_stands_until_the_knob_is_back() -> None:
    run = run_with({"control/prompts": "16x60 4x20 16x40"})
    assert [step for step in range(50, 121) if Invariant().check(run.view(step))] == list(range(61, 81))


def test_a_later_declaration_does_not_remove_a_finding() -> None:
    run = run_with({"control/prompts": "16x60 4x60"})
    said = Invariant().check(run.view(61))
    run.events.append(Event(62, "intervention", "too late"))
    assert Invariant().check(run.view(61)) == said is not None


def test_a_remedy_is_not_an_undeclared_change() -> None:
    run = run_with({"control/lr_scale": "1x60 0.5x60"})
    run.events.append(Event(61, "intervention", "lower-lr", data={"action": "a1"}))
    assert Invariant().check(run.view(80).ignoring("a1")) is None


def test_a_fix_declares_no_change_of_another_knob() -> None:
    run = run_with({"control/lr_scale": "1x60 0.5x60", "control/inner_epochs": "1x60 8x60"})
    run.events.append(
        Event(61, "intervention", "lower-lr", data={"action": "a1", "change": {"control/lr_scale": [1, 0.5]}})
    )
    found = Invariant().check(run.view(61))
    assert found is not None and found.evidence["settings"] == ["control/inner_epochs"]
    assert [turn.knob for turn in turns(run.view(61), 61)] == ["control/inner_epochs"]


def test_restoring_a_knob_counts_even_without_a_declaration() -> None:
    run = run_with({"control/prompts": "16x60 4x10 16x50"})
    run.events.append(Event(71, "intervention", "restore-setting", data={"action": "a1"}))
    untold = [Invariant().check(run.view(step).ignoring("a1")) for step in (70, 71, 80)]
    assert [found is not None for found in untold] == [True, False, False]


def test_a_foreign_log_may_change_knobs_while_the_reward_is_unaffected() -> None:
    series = {"reward/mean": STILL["reward/mean"], "control/beta": "0.02x60 0.2x60", "optim/lr": "1e-4x60 3e-4x60"}
    run = history(series, about={"trainer": "trl"})
    assert all(Invariant().check(run.view(step)) is None for step in range(1, 121))


ATTACHED = {"trainer": "trl"}
"""Inside a foreign trainer we read its knobs at every step, the scale of its rate among them."""


@pytest.mark.parametrize(
    ("knob", "course", "reported"),
    [
        ("control/temperature", "1x60 0.3x60", 61),
        ("control/beta", "0x60 0.1x60", 61),
        ("control/lr_scale", "1x60 6x60", 61),
        ("control/lr_scale", "1x60 1+0.1x59", 81),
        ("control/temperature", "1x60 0.8x60", None),
        ("control/beta", "0.04x60 0.02x60", None),
        ("control/prompts", "16x60 64x60", None),
        ("control/entropy_coef", "0.01+0.001x119", None),
        ("optim/lr", "1e-4x60 1e-5x60", None),
        ("optim/lr", "0.01+-0.00008x119", None),
    ],
)
def test_in_a_foreign_trainer_only_a_leap_of_a_knob_counts_at_once(
    knob: str, course: str, reported: int | None
) -> None:
    run = history(STILL | {knob: course}, about=ATTACHED)
    said = [step for step in range(1, 121) if Invariant().check(run.view(step))]
    assert (said[0] if said else None) == reported


@pytest.mark.parametrize(
    ("rate", "prompts", "reported"),
    [
        ("1x60 2x60", "16x60 8x60", True),
        ("1x60 2x60", "16x60 32x60", False),  # a larger batch at a rate that grows with it
        ("1x60 2x60", "16x80 8x40", False),  # not at one step
        ("1x60 1.4x60", "16x60 12x60", False),
    ],
)
def test_in_a_foreign_trainer_knobs_changed_at_one_step_count_together(rate: str, prompts: str, reported: bool) -> None:
    run = history(STILL | {"control/lr_scale": rate, "control/prompts": prompts}, about=ATTACHED)
    assert all(Invariant().check(run.view(step)) is None for step in range(1, 61))
    found = Invariant().check(run.view(100))
    assert (found is not None) == reported
    assert found is None or found.evidence["settings"] == ["control/prompts", "control/lr_scale"]


def test_in_a_foreign_trainer_a_smaller_change_counts_once_the_reward_has_fallen() -> None:
    run = history(STILL | {"control/lr_scale": "1x60 2x60", "reward/mean": "0.5~0.01x60 0.3~0.01x60"}, about=ATTACHED)
    said = [step for step in range(1, 121) if Invariant().check(run.view(step))]
    assert said and 62 < said[0] < 70


def test_in_a_foreign_trainer_a_declared_leap_is_a_decision() -> None:
    run = history(STILL | {"control/temperature": "1x60 0.3x60"}, about=ATTACHED)
    run.events.append(Event(61, "schedule", "stage two"))
    assert all(Invariant().check(run.view(step)) is None for step in range(61, 121))


def test_rows_without_an_update_do_not_hide_a_rate_above_its_peak() -> None:
    rates = "1e-4x60 _x3 4e-4x10 _x2 4e-4x45"
    run = run_with({"optim/lr": rates}, config={"optim": {"lr": 1e-4}})
    found = Invariant().check(run.view(70))
    assert found is not None
    assert found.onset_step == 64


@pytest.mark.parametrize(("schedule", "told"), [("constant", True), ("cosine", False)])
def test_a_rate_below_its_peak_is_a_mistake_only_where_it_should_rest(schedule: str, told: bool) -> None:
    optim = {"lr": 1e-4, "schedule": schedule, "warmup_steps": 20}
    run = run_with({"optim/lr": "5e-6+5e-6x19 1e-4x40 2e-5x61"}, config={"optim": optim})
    said = [step for step in range(1, 121) if Invariant().check(run.view(step))]
    assert said == (list(range(62, 121)) if told else [])
