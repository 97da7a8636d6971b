"""What was changed shortly before things broke, and what is no such thing."""

from __future__ import annotations

import pytest

from stabilizer.core.records import Event
from stabilizer.core.schedule import learning_rate
from stabilizer.remedies.turns import NOBODY, turned_back
from stabilizer.training.settings import OptimConfig
from tests.series import history

ONSET = 60


def changed(series: dict[str, str], *, events=(), ours=NOBODY):
    return turned_back(history({"reward/mean": "0.5x80", **series}, events=events).view(), ONSET, ours)


def test_a_knob_that_was_turned_without_a_word_goes_back_to_what_it_was() -> None:
    turned = changed({"control/beta": "0.01x55 0.0x25", "control/inner_epochs": "1x58 4x22"})
    assert turned == {"control/beta": (0.0, 0.01), "control/inner_epochs": (4.0, 1.0)}


@pytest.mark.parametrize(
    "series",
    [
        "0.01x80",  # never turned
        "0.01*1.01x80",  # a controller moves it all the time
        "0.01x55 0.0x5 0.01x20",  # back already
    ],
)
def test_a_knob_that_nobody_turned_before_the_onset_is_left_alone(series: str) -> None:
    assert changed({"control/beta": series}) == {}


@pytest.mark.parametrize("kind", ["intervention", "schedule", "data-stage", "resume", "rollback"])
def test_what_was_declared_is_somebodys_decision(kind: str) -> None:
    assert changed({"control/beta": "0.01x55 0.0x25"}, events=[(55, kind)]) == {}
    assert changed({"control/beta": "0.01x55 0.0x25"}, events=[(55, "note")])


def test_what_a_remedy_does_row_by_row_is_its_own_and_what_somebody_does_to_its_knob_later_is_not() -> None:
    climbs = "1x40 0.25x6 0.3x6 0.5x8"
    assert changed({"control/lr_scale": f"{climbs} 0.5x20"}, ours={"control/lr_scale": 55}) == {}
    assert changed({"control/lr_scale": f"{climbs} 4x20"}, ours={"control/lr_scale": 55}) == {
        "control/lr_scale": (4.0, 0.5)
    }


@pytest.mark.parametrize(
    ("series", "data", "turned"),
    [
        ("0.01x40 0.03x10 0.01x15 0.02x15", {"action": "a1", "origin": "remedy"}, None),  # it was over before the fix
        ("0.8x50 1x15 0.5x15", {"action": "a1", "origin": "remedy"}, None),  # the fix has more than made up for it
        ("1x50 4x15 2x15", {"action": "a1", "origin": "remedy"}, (2.0, 1.0)),
        ("1x50 4x15 2x15", {"action": "a1"}, (2.0, 1.0)),  # as runs had it before origins were recorded
        ("1x50 4x15 3x15", {"action": "a1", "origin": "person"}, None),  # a person decided what it is to be
        ("1x50 4x15 3x15", {"action": "h1", "by": "ada"}, None),
    ],
)
def test_what_a_fix_or_a_person_did_about_a_knob_since_counts(series: str, data: dict, turned: tuple | None) -> None:
    run = history({"reward/mean": "0.5x80", "control/beta": series})
    run.events.append(Event(66, "intervention", "a word", data=data))
    assert turned_back(run.view(), ONSET) == ({"control/beta": turned} if turned else {})


def test_a_note_of_what_a_fix_did_is_a_word_about_its_knob() -> None:
    series = {"reward/mean": "0.5x80", "control/lr_scale": "1x55 0.9x25"}
    for data, turned in (({"action": "a1"}, {}), ({}, {"control/lr_scale": (0.9, 1.0)})):
        run = history(series)
        run.events.append(Event(56, "note", "kept where it was", data=data))
        assert turned_back(run.view(), ONSET) == turned


@pytest.mark.parametrize(
    ("rate", "to"),
    [
        ("1e-4x55 8e-4x25", 1 / 8),
        ("1e-4x50 1e-4*1.05x30", 1 / 1.05**29),
        ("1e-4x74 1.05e-4*1.05x6", 1 / 1.05**6),  # not far yet, but it climbs at every row
    ],
)
def test_a_rate_that_left_its_schedule_upward_is_brought_back_by_its_knob(rate: str, to: float) -> None:
    assert changed({"optim/lr": rate, "control/lr_scale": "1x80"})["control/lr_scale"] == pytest.approx((1.0, to))


@pytest.mark.parametrize(
    "rate",
    [
        "1e-4x80",
        "1e-6+2e-6x80",  # warms up
        "1e-4*0.98x80",  # decays
        "1e-4x55 1e-5x25",  # dropped: a step of a schedule, and no danger
        "1e-4x55 8e-4x10 1e-4x15",  # over
        "_x80",
    ],
)
def test_a_rate_that_keeps_its_schedule_is_left_alone(rate: str) -> None:
    run = history({"reward/mean": "0.5x80", "optim/lr": rate, "control/lr_scale": "1x80"})
    assert turned_back(run.view(), ONSET) == {}


def test_a_rate_raised_by_its_knob_is_the_knobs_business() -> None:
    series = {"optim/lr": "1e-4x55 4e-4x25", "control/lr_scale": "1x55 4x25"}
    assert changed(series) == {"control/lr_scale": (4.0, 1.0)}


@pytest.mark.parametrize(("scale", "turned"), [("1x60 0.5x20", (0.5, 1 / 8)), ("1x60 0.13x20", None)])
def test_a_rate_that_runs_away_under_a_knob_that_a_fix_has_turned_is_seen_unless_that_made_up_for_it(
    scale: str, turned: tuple[float, float] | None
) -> None:
    factor = float(scale.split()[1].split("x")[0])
    series = {"optim/lr": f"1e-4x55 8e-4x5 {8e-4 * factor:g}x20", "control/lr_scale": scale}
    found = changed(series, events=[(61, "intervention")])
    assert found == ({"control/lr_scale": pytest.approx(turned)} if turned else {})


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_rate_that_leaves_a_schedule_which_comes_down_is_brought_back_to_it(schedule: str) -> None:
    optim = {"lr": 1e-4, "schedule": schedule, "warmup_steps": 5}
    asked = [learning_rate(OptimConfig(**optim), step, 80) for step in range(1, 81)]
    about = {"trainer": "stabilizer", "steps": 80, "config": {"optim": optim}}

    def found(rates: list[float]) -> dict[str, object]:
        series = {"optim/lr": " ".join(f"{rate:.9g}x1" for rate in rates), "control/lr_scale": "1x80"}
        return turned_back(history({"reward/mean": "0.5x80", **series}, about=about).view(), ONSET)

    jumped = [rate * (5.0 if step > 55 else 1.0) for step, rate in enumerate(asked)]
    assert found(jumped)["control/lr_scale"] == pytest.approx((1.0, 1 / 5))
    climbed = [rate * 1.05 ** max(0, step - 50) for step, rate in enumerate(asked)]
    assert found(climbed)["control/lr_scale"] == pytest.approx((1.0, 1 / 1.05**29))
    assert found(asked) == {}
    assert found([rate / 5 for rate in asked]) == {}
