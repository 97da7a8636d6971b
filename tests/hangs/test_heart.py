"""Limits of phases come from their own history, and a change of phase costs microseconds."""

from __future__ import annotations

import math
import time

import pytest

from stabilizer.live.heart import FACTOR, FIRST_LONG_S, FIRST_S, OTHERS_S, Heart


class Clock:
    def __init__(self):
        self.t = 1000.0

    def __call__(self) -> float:
        return self.t


def lived(durations: dict[str, list[float]]) -> Heart:
    heart = Heart(clock := Clock())
    for phase, lengths in durations.items():
        for length in lengths:
            heart.enter(phase)
            clock.t += length
            heart.enter("other")
    return heart


def test_the_first_of_a_phase_gets_the_time_of_a_compilation():
    assert lived({}).limit("update") == FIRST_S
    assert lived({}).limit("validation") == FIRST_LONG_S
    assert lived({"update": [900.0, 2.0]}).limit("update") == FIRST_S


@pytest.mark.parametrize(
    ("lengths", "limit"),
    [
        ([1.0] * 20, OTHERS_S),
        ([100.0] * 20, FACTOR * 100),
        ([900.0] + [2.0] * 20, OTHERS_S),
        ([60.0 * 1.02**n for n in range(60)], FACTOR * 60 * 1.02**58),
    ],
    ids=["short", "long", "first compiled", "growing"],
)
def test_the_limit_follows_the_usual_durations(lengths, limit):
    assert lived({"update": lengths}).limit("update") == pytest.approx(limit)


def test_a_save_and_a_validation_have_higher_floors_than_an_update():
    heart = lived({"save": [1.0] * 9, "validation": [1.0] * 9, "update": [1.0] * 9})
    assert heart.limit("validation") > heart.limit("save") > heart.limit("update")


def test_a_busy_process_gets_more_time_and_a_pause_all_of_it():
    heart = lived({"update": [1.0] * 9})
    assert heart.limit("update", busy=True) > 2 * heart.limit("update")
    assert heart.limit("paused") == math.inf


def test_an_inner_phase_does_not_count_for_the_outer_one():
    clock = Clock()
    heart = Heart(clock)
    with heart.phase("rollout"):
        clock.t += 1
        with heart.phase("reward"):
            clock.t += 100
        assert heart.now.phase == "rollout" and heart.now.since == clock.t
        clock.t += 3
    assert heart.usual("reward") == 100 and heart.usual("rollout") == 2


def test_a_phase_ends_with_an_exception_of_the_loop():
    heart = Heart()
    with pytest.raises(KeyError), heart.phase("reward"):
        raise KeyError
    assert heart.now.phase == "other"


def test_a_change_of_phase_costs_less_than_20_microseconds():
    heart = Heart()
    best = math.inf
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(2000):
            with heart.phase("reward", "judge"):
                pass
        best = min(best, (time.perf_counter() - began) / 4000)
    assert best < 20e-6
