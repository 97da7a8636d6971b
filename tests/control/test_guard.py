"""What a fix must not cost: which metric says so, from where, and when it is proven."""

from __future__ import annotations

from stabilizer.control.guard import Guard
from tests.series import history

FLAT = "0.5~0.02x40"


def test_a_loss_beyond_noise_is_proven_and_within_it_is_not() -> None:
    for after, wanted in (("0.2~0.02x30", "worse"), ("0.5~0.02x30", "holds"), ("0.6~0.02x30", "holds")):
        view = history({"reward/mean": f"{FLAT} {after}"}).view()
        guard = Guard.of(view.at(40), 30)
        assert guard.metric == "reward/mean" and guard.verdict(view, 41, 30)[0] == wanted, after


def test_a_large_loss_is_proven_long_before_the_end_of_the_window() -> None:
    view = history({"reward/mean": f"{FLAT} 0.1~0.02x30"}).view()
    guard = Guard.of(view.at(40), 30)
    first = next(step for step in range(41, 71) if guard.verdict(view.at(step), 41, 30)[0] == "worse")
    assert first <= 46


def test_held_out_accuracy_guards_where_it_is_measured_often_enough() -> None:
    val = " ".join("0.5x1 nanx9" for _ in range(4))
    often = history({"reward/mean": FLAT, "accuracy/val": val.replace("nanx9", "nanx4") + " 0.5x1"}).view()
    assert Guard.of(often, 30).metric == "accuracy/val"
    rare = history({"reward/mean": FLAT, "accuracy/val": "0.5x1 nanx29 0.5x1"}).view()
    assert Guard.of(rare, 30).metric == "reward/mean", "one value within a trial would judge nothing"


def test_the_window_grows_with_the_noise_and_never_beyond_twice_the_horizon() -> None:
    windows = [
        Guard.of(history({"reward/mean": f"0.1+0.01~{noise}x40"}).view(), 30).window(30) for noise in (0.005, 0.15, 0.5)
    ]
    assert windows[0] == 30 < windows[1] <= windows[2] == 60


def test_a_guard_that_is_no_number_any_more_is_worse() -> None:
    view = history({"reward/mean": f"{FLAT} nanx10"}).view()
    assert Guard.of(view.at(40), 30).verdict(view, 41, 30)[0] == "worse"


def test_without_anything_to_guard_nothing_is_claimed() -> None:
    view = history({"policy/kl_ref": "1x5"}).view()
    assert Guard.of(view, 30).verdict(view, 6, 30) == ("open", None)
