"""A run in memory."""

from __future__ import annotations

from stabilizer.runs.history import History


def test_a_run_without_some_metrics_is_the_same_run_otherwise() -> None:
    run = History({"steps": 3}, attempt=1)
    for step in (1, 2, 3):
        run.append(step, {"time/step_s": 0.1, "reward/mean": float(step)})
    rest = run.without("time/")
    assert rest.names() == ["reward/mean"] and list(rest.view().series("reward/mean").values) == [1, 2, 3]
    assert (rest.step, rest.attempt, rest.about) == (3, 1, {"steps": 3})
    assert "time/step_s" in run.view(), "the run itself keeps what it logged"
