"""The order in which signals left their trend in an incident."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.incidents.diagnosis.order import departures, onset
from stabilizer.runs.history import History, RunView

FOUND = Finding("policy/kl-runaway", "critical", "", 210, 225, 240,
                evidence={"metric": "policy/kl_ref", "baseline": 0.1, "now": 3.0}, incident=1)  # fmt: skip


def run(moves: dict[str, int], steps: int = 260) -> RunView:
    """Flat noisy metrics, each growing from its own step on."""
    rng = np.random.default_rng(0)
    history = History()
    for step in range(1, steps):
        row = {"reward/mean": 0.5 + 0.01 * rng.normal()}
        for name, left in moves.items():
            row[name] = 0.1 * np.exp(0.1 * rng.normal() + 0.15 * max(0, step - left))
        history.append(step, row)
    return history.view()


def test_departures_are_ordered_and_sized() -> None:
    view = run({"policy/kl_ref": 210, "optim/grad_norm": 222, "policy/ratio_max": 205})
    found = departures([FOUND], view)
    assert [signal.metric for signal in found] == ["policy/ratio_max", "policy/kl_ref", "optim/grad_norm"]
    assert all(signal.up and signal.ratio > 1.5 for signal in found)
    assert abs(found[0].step - 205) <= 8 and found[0].stage == "update"


def test_metrics_without_a_departure_are_left_out() -> None:
    assert "reward/mean" not in {signal.metric for signal in departures([FOUND], run({"policy/kl_ref": 210}))}


def test_a_young_run_takes_the_departure_from_the_finding() -> None:
    early = replace(FOUND, onset_step=6, detected_step=12)
    (signal,) = departures([early], run({"policy/kl_ref": 6}, steps=30))
    assert (signal.metric, signal.step, signal.before, signal.after, signal.up) == ("policy/kl_ref", 6, 0.1, 3.0, True)


def test_a_finding_without_a_metric_has_no_departure() -> None:
    assert departures([replace(FOUND, evidence={})], History().view()) == ()
    assert departures([replace(FOUND, evidence={"metric": 7, "now": "x"})], History().view()) == ()


def test_the_onset_is_within_its_bounds_and_before_detection() -> None:
    view = run({"policy/kl_ref": 210})
    began = onset([FOUND], view)
    assert (began.earliest, began.step, began.latest) == (207, 210, 220)
    assert onset([replace(FOUND, detected_step=213)], view).latest == 213


def test_rows_far_apart_widen_the_bounds() -> None:
    history = History()
    for step in range(10, 3000, 10):
        history.append(step, {"reward/mean": 0.5})
    began = onset([replace(FOUND, onset_step=2000, detected_step=2400)], history.view())
    assert (began.earliest, began.latest) == (1970, 2100)


def test_an_empty_run_has_an_onset_too() -> None:
    assert onset([FOUND], History().view()).step == 210
