"""A proposal lives while its premises hold, and what is approved is judged by the run as it is when it is applied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from stabilizer.control.cost import cost
from stabilizer.control.guard import Guard
from stabilizer.control.judge import advance
from stabilizer.control.trial import Trial
from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Action, Cause
from stabilizer.remedies import ROLL_BACK
from stabilizer.runs.requests import LIFE, Request
from tests.control.simulation import Simulation
from tests.series import history


def too_fast(knobs: dict[str, float]) -> bool:
    return knobs["control/lr_scale"] > 0.5


def approve(run: Simulation) -> None:
    """A person says yes to the first proposal, after the newest step."""
    run.engine.tick(run.history.view(), [Request("r1", "approve", run.actions[0].action, "ada", 0.0)])


def asked(steps: int = 60) -> Simulation:
    """A broken run in approve mode with a way back that waits for an answer."""
    run = Simulation("approve", cause=too_fast).run(steps)
    assert run.entries() == [("roll-back", "proposed")]
    return run


class Validated(Simulation):
    """Also measures held-out accuracy: it rises, whatever the other numbers do."""

    def _numbers(self) -> dict[str, float]:
        numbers = super()._numbers()
        return numbers | {"accuracy/val": 0.1 + 0.001 * self.step} if self.step % 5 == 0 else numbers


def test_a_proposal_nobody_answers_ends_after_its_life_and_not_before() -> None:
    run = Simulation("approve", cause=too_fast).run(LIFE)
    asked = run.actions[0].step
    assert [action.entry for action in run.actions] == ["proposed"]
    run.run(asked + LIFE)
    assert run.actions[1].entry == "expired" and run.actions[1].step == asked + LIFE
    assert run.actions[1].text == f"nobody answered within {LIFE} steps"


def test_a_proposal_whose_cause_changed_expires_when_it_is_approved() -> None:
    run = asked()
    incident = run.watch.incident(run.actions[0].incident)
    then = incident.causes[0].id
    incident.causes = (Cause("engine-mismatch", 0.8, ""),)
    approve(run)
    expired = next(action for action in run.actions if action.entry == "expired")
    assert (expired.action, run.history.attempt) == (run.actions[0].action, 0)
    assert expired.text == f"approved by ada but not applied: the cause is now engine-mismatch and was {then} then"
    assert not any(action.entry == "applied" for action in run.actions)


def test_an_approved_return_to_the_former_setting_is_made_whatever_the_cause_is_called() -> None:
    run = asked()
    (question,) = run.engine.questions.open.values()
    question.trial = replace(question.trial, back=True)
    incident = run.watch.incident(run.actions[0].incident)
    incident.causes = (Cause("engine-mismatch", 0.8, ""),)
    approve(run)
    assert [action.entry for action in run.actions][-1] == "applied"


def test_a_proposal_expires_when_the_findings_that_called_for_it_are_resolved() -> None:
    run = asked()
    (question,) = run.engine.questions.open.values()
    assert question.trial.findings, "the journal says what called for it"
    assert run.actions[0].data["hypothesis"]["findings"] == list(question.trial.findings)
    question.trial = replace(question.trial, findings=("optim/grad-spike",))  # another one of the incident
    approve(run)
    expired = next(action for action in run.actions if action.entry == "expired")
    assert "optim/grad-spike needed it and is resolved" in expired.text
    assert run.history.attempt == 0


@pytest.mark.parametrize("waits", [True, False])
def test_no_steps_are_thrown_away_for_a_proposal_that_the_run_has_outgrown(waits: bool) -> None:
    run = Simulation("approve", cause=too_fast).run(60)
    run.__class__ = Validated
    if waits:
        run.run(120)
        assert run.actions[1].entry == "expired" and run.actions[1].text.startswith("held-out accuracy is ")
        assert len(run.actions) == 2, "it is not proposed again while that holds"
        return
    run.history.append(61, {"accuracy/val": 0.2})
    for step in range(62, 120):
        run.history.append(step, {"accuracy/val": 0.2 + 0.001 * step})
    approve(run)
    expired = next(action for action in run.actions if action.entry == "expired")
    assert expired.text.startswith("approved by ada but not applied: held-out accuracy is ")
    assert run.history.attempt == 0


@pytest.mark.parametrize("waits", [True, False])
def test_a_return_to_a_checkpoint_that_is_gone_is_proposed_again_with_another_step(waits: bool) -> None:
    run = asked()
    back = run.actions[0].data["hypothesis"]["rollback_to"]
    run._saved = [(saved, state) for saved, state in run._saved if saved.step < back]
    if waits:
        run.run(200)
    else:
        approve(run)
        run.run(run.step + 1)
    assert [action.entry for action in run.actions[1:3]] == ["expired", "proposed"] and run.history.attempt == 0
    assert f"the checkpoint of step {back}, to which it would return, is gone" in run.actions[1].text
    assert run.actions[2].data["hypothesis"]["rollback_to"] < back


def test_an_approval_waits_while_the_run_recovers_and_expires_when_it_has() -> None:
    run = asked()
    run._state["broken"], run._cause = 0.0, lambda knobs: False
    run._state["skill"] = 0.9
    while not all(finding.state == "recovering" for finding in run.watch.active()):
        run.run(run.step + 1)
    approve(run)
    assert run.entries() == [("roll-back", "proposed")], "it may come back"
    run.run(run.step + 60)
    assert run.actions[-1].text == "approved by ada but not applied: the incident is over, so it is no longer needed"
    assert run.history.attempt == 0


def test_whoever_is_asked_to_go_back_is_told_how_both_weights_are_paid_now() -> None:
    proposed = asked().actions[0]
    assert proposed.data["probe"]["reward_gain"] > 0.1
    assert proposed.data["hypothesis"]["rollback_to"] == proposed.data["probe"]["step"]


def test_a_way_back_that_would_win_nothing_by_now_is_not_taken() -> None:
    run = asked()
    run._saved = [(saved, run._state) for saved, _ in run._saved]  # the weights of all states are the same by now
    approve(run)
    expired = next(action for action in run.actions if action.entry == "expired")
    assert "would gain nothing" in expired.text and expired.data["probe"]
    assert run.history.attempt == 0
    assert not any(action.entry == "proposed" for action in run.actions[1:]), "it waits before it asks anew"


def test_the_level_to_keep_is_that_of_just_before_the_fix() -> None:
    run = asked()
    promised = run.actions[0].data["hypothesis"]["guard_level"]
    run.run(90)
    now = Guard.of(run.history.view(), 30).level
    approve(run)
    applied = next(action for action in run.actions if action.entry == "applied")
    assert applied.data["guard_level"] == now != promised
    run.run(200)
    verified = next(action for action in run.actions if action.entry == "verified")
    assert f"against {now:.3g} just before the fix and " in verified.text
    assert verified.data["guard_level"] == now


@pytest.mark.parametrize(("before", "in_doubt", "outcome"), [
    (0.6, False, "failed"), (0.6, True, "verified"), (0.2, False, "verified")
])  # fmt: skip
def test_a_return_that_ends_below_where_the_run_was_is_not_verified(
    before: float, in_doubt: bool, outcome: str
) -> None:
    view = history({"reward/mean": f"0.1~0.01x40 {before}~0.01x10 0.3~0.01x30"}).view()
    trial = Trial("a1", ROLL_BACK, 1, 41, True, {}, guard=Guard.of(view.at(40), 30), before=Guard.of(view.at(50), 30),
                  target=Checkpoint(40, 0, Path("step-40")), began=51, ticks=29, in_doubt=in_doubt)  # fmt: skip
    quiet = SimpleNamespace(incident=lambda number: SimpleNamespace(findings=[]), detectors=(), active=lambda: [])
    judged = advance(trial, quiet, view)
    assert judged.outcome == outcome
    assert f"against {before:.1f}"[:11] in judged.reason and "just before the fix and 0.1" in judged.reason


def test_the_price_of_a_return_is_its_steps_and_what_was_learned_since() -> None:
    held = " ".join(f"{0.1 + 0.02 * n:.2f}x1 nanx9" for n in range(10))
    view = history({"reward/mean": "0.2x50 0.6x50", "accuracy/val": held}).view()
    probe = {"step": 30, "reward_gain": -0.2, "reward_gain_error": 0.03, "accuracy/val_here": 0.28,
             "accuracy/val_there": 0.14}  # fmt: skip
    proposed = Action("a1", "proposed", "roll-back", 40, data={"hypothesis": {"rollback_to": 30}, "probe": probe})
    steps, accuracy, reward, equal = cost(proposed, view, view.step)
    assert steps == f"{view.step - 30} steps would be discarded: the run is at step {view.step}."
    assert accuracy.startswith("accuracy/val: 0.28 now, 0.14 at step 30 ") and "+0.14 since then" in accuracy
    assert reward.startswith("reward/mean: 0.6 now, 0.2 at step 30 (mean of 10 steps, +0.4 since then")
    assert "at step 40, the checkpoint's weights got -0.2 ± 0.03 reward, and solved 14.0%" in equal
    assert cost(proposed, None, 99)[0] == "69 steps would be discarded: the run is at step 99."


@pytest.mark.parametrize(
    "data", [{}, {"hypothesis": 3}, {"hypothesis": {"rollback_to": "x", "cost": 7}}, {"probe": []}]
)
def test_a_proposal_that_says_nothing_of_its_price_has_none(data: dict[str, object]) -> None:
    assert cost(Action("a1", "proposed", "lower-lr", 3, data=data), None, 9) == ()


def test_a_slower_step_is_part_of_the_price() -> None:
    words = {"hypothesis": {"rollback_to": None, "cost": "steps up to 2 times as long"}}
    assert cost(Action("a1", "proposed", "grow-batch", 3, data=words), None, 9) == (
        "It costs steps up to 2 times as long.",
    )
