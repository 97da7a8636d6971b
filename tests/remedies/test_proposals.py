"""How long a proposal waits for somebody."""

from __future__ import annotations

from stabilizer.runs.requests import LIFE
from tests.remedies.simulation import Simulation


def test_a_proposal_nobody_answers_ends_after_its_life_and_not_before() -> None:
    run = Simulation("approve", cause=lambda knobs: knobs["control/lr_scale"] > 0.5).run(LIFE)
    asked = run.actions[0].step
    assert [action.entry for action in run.actions] == ["proposed"]
    run.run(asked + LIFE)
    assert run.actions[1].entry == "expired" and run.actions[1].step == asked + LIFE
    assert run.actions[1].text == f"nobody answered within {LIFE} steps"
