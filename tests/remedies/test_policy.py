"""Incidents, fixes and the journal, in closed loop on a simulated run."""

from __future__ import annotations

import pytest

from stabilizer.records import Action
from stabilizer.remedies import REMEDIES
from stabilizer.remedies.controls import KNOBS, Controls
from stabilizer.runs.requests import Request
from tests.remedies.simulation import Simulation


def too_fast(knobs: dict[str, float]) -> bool:
    return knobs["control/lr_scale"] > 0.5


def request(kind: str, action: str = "a1") -> Request:
    return Request("r1", kind, action, "test", 0.0)


def test_auto_full_rolls_back_before_the_onset_halves_lr_and_keeps_it() -> None:
    run = Simulation("auto-full", cause=too_fast).run(150)
    assert [e for r, e in run.entries() if r == "roll-back"] == ["proposed", "approved", "applied", "verified"]
    applied = next(action for action in run.actions if action.entry == "applied")
    assert applied.change == {"control/lr_scale": (1.0, 0.5)}
    assert run.actions[0].data["hypothesis"]["rollback_to"] <= 40
    assert run.controls.get("control/lr_scale") == 0.5
    verdict, ever = run.watch.verdict(run.history.view())
    assert (verdict, ever) == ("healthy", "critical")
    assert run.history.attempt == 1


def test_the_hypothesis_is_written_before_anything_changes() -> None:
    run = Simulation("auto-full", cause=too_fast).run(150)
    proposed = run.actions[0]
    assert proposed.entry == "proposed"
    assert {"expects", "guard", "guard_level", "horizon_steps", "undo", "rollback_to"} <= set(
        proposed.data["hypothesis"]
    )


@pytest.mark.parametrize("mode", ["off", "suggest", "auto-safe"])
def test_other_modes_never_roll_back(mode: str) -> None:
    run = Simulation(mode, cause=too_fast).run(120)
    assert run.history.attempt == 0
    assert ("roll-back", "applied") not in run.entries()
    if mode == "off":
        assert run.actions == []
    else:
        assert ("roll-back", "proposed") in run.entries()


def test_suggest_changes_nothing() -> None:
    run = Simulation("suggest").run(120)
    assert {entry for _, entry in run.entries()} == {"proposed"}
    assert run.controls.values() == Simulation("off").controls.values()


def test_a_fix_that_does_not_help_is_undone_and_after_two_a_person_is_asked() -> None:
    run = Simulation("auto-full", cause=lambda knobs: True).run(250)
    outcomes = [entry for _, entry in run.entries() if entry in ("verified", "reverted")]
    assert outcomes == ["reverted", "reverted"]
    assert run.controls.get("control/lr_scale") == 1.0
    assert run.controls.get("control/beta") == 0.0
    assert any("a person should look" in event.text for event in run.events)


def test_a_healthy_run_is_left_alone() -> None:
    run = Simulation("auto-full", breaks_at=10_000).run(400)
    assert run.actions == []
    assert {finding.severity for finding in run.watch.findings()} <= {"info"}


def test_without_a_snapshot_nothing_is_changed() -> None:
    run = Simulation("auto-full", cause=too_fast)
    run.run(40)
    run.saving_fails = True
    run.run(80)
    assert ("roll-back", "failed") in run.entries()
    assert ("roll-back", "applied") not in run.entries()
    assert run.controls.get("control/lr_scale") == 1.0


def test_approve_waits_for_a_person_and_then_acts() -> None:
    asked: list[int] = []

    def approve_late(run: Simulation) -> list[Request]:
        if run.actions and run.actions[-1].entry == "proposed" and run.step >= 60 and not asked:
            asked.append(run.step)
            return [request("approve", run.actions[-1].action)]
        return []

    run = Simulation("approve", cause=too_fast).run(150, approve_late)
    assert [e for r, e in run.entries() if r == "roll-back"] == ["proposed", "approved", "applied", "verified"]
    assert asked
    assert next(action for action in run.actions if action.entry == "applied").step == asked[0]


def test_a_rejected_proposal_is_not_applied() -> None:
    def reject(run: Simulation) -> list[Request]:
        return [request("reject")] if run.actions and run.actions[-1].entry == "proposed" else []

    run = Simulation("approve", cause=too_fast).run(100, reject)
    assert ("roll-back", "rejected") in run.entries()
    assert run.history.attempt == 0


def test_a_proposal_waits_as_long_as_its_incident_stands_and_no_longer() -> None:
    run = Simulation("approve", cause=too_fast).run(300)
    assert run.entries() == [("roll-back", "proposed")]
    run._state["broken"], run._cause = 0.0, lambda knobs: False
    run._state["skill"] = 0.9
    run.run(420)
    assert ("roll-back", "expired") in run.entries()


def test_a_kept_fix_can_be_undone_by_hand() -> None:
    def revert(run: Simulation) -> list[Request]:
        return [request("revert")] if run.actions and run.actions[-1].entry == "verified" else []

    run = Simulation("auto-full", breaks_at=40, cause=too_fast).run(120, revert)
    assert ("by-hand", "reverted") in run.entries()
    assert run.controls.get("control/lr_scale") == 1.0, "a machine must not turn back what a person just undid"
    assert run.actions[-1].entry == "rejected" or "lr_scale" not in str(run.actions[-1].change)


@pytest.mark.parametrize(("entry", "closing"), [("applied", "reverted"), ("approved", "failed")])
def test_a_trial_cut_off_by_a_crash_is_closed_on_restart(entry: str, closing: str) -> None:
    cut = Action("a1", entry, "lower-lr", 50, 1, change={"control/lr_scale": (1.0, 0.5)})
    run = Simulation("auto-full", earlier=(cut,), knobs={"control/lr_scale": 0.5})  # as the checkpoint held it
    assert [(action.action, action.entry) for action in run.actions] == [("a1", closing)]
    assert run.controls.get("control/lr_scale") == 1.0
    assert run.arbiter.trial is None


def test_two_failures_before_a_restart_still_count() -> None:
    failed = [
        Action(f"a{n}", entry, remedy, 50 + n, 1, change={"control/lr_scale": (1.0, 0.5)}, data=data)
        for n, remedy in ((1, "roll-back"), (2, "lower-lr"))
        for entry, data in (("applied", {}), ("reverted", {"ticks": 30}))
    ]
    run = Simulation("auto-full", earlier=tuple(failed)).run(150)
    assert ("raise-beta", "applied") not in run.entries()


def flat(mode: str, **options) -> Simulation:
    """A run that never learns anything, because its batch is too small for its noise, or so it says."""
    return Simulation(mode, breaks_at=10_000, growth=0.0, prompts=8, **options)


def test_a_fix_that_changes_nothing_is_undone_although_its_own_event_blinds_the_detector() -> None:
    run = flat("auto-full").run(400)
    outcomes = [entry for remedy, entry in run.entries() if remedy == "grow-batch"]
    assert "applied" in outcomes and "verified" not in outcomes
    assert run.controls.get("control/prompts") == 8


def test_a_fix_that_helps_a_plateau_is_kept() -> None:
    run = flat("auto-full", growth_with_batch=0.004).run(400)
    outcomes = [entry for remedy, entry in run.entries() if remedy == "grow-batch"]
    assert outcomes[:4] == ["proposed", "approved", "applied", "verified"]
    assert run.controls.get("control/prompts") == 16


def test_an_approval_given_during_another_trial_is_kept_for_afterwards() -> None:
    from stabilizer.remedies import REMEDIES as ALL

    run = Simulation("approve", cause=too_fast).run(50)
    arbiter, view = run.arbiter, run.history.view()
    (question,) = arbiter._questions.values()
    other = arbiter._trial(
        "a9", next(r for r in ALL if r.id == "raise-beta"), {"control/beta": (0.0, 0.001)}, 1, 40, view
    )
    arbiter._apply(other, view)
    arbiter.tick(view, [request("approve", question.trial.action)])
    assert ("roll-back", "applied") not in run.entries()
    run.run(300)
    assert ("roll-back", "applied") in run.entries()


def test_what_was_approved_late_is_applied_to_the_knobs_as_they_are_by_then() -> None:
    run = Simulation("approve", cause=too_fast).run(50)
    run.controls.set("control/lr_scale", 0.5)  # somebody else turned it meanwhile
    run.arbiter.tick(run.history.view(), [request("approve", run.actions[-1].action)])
    applied = next(action for action in run.actions if action.entry == "applied")
    assert applied.change == {"control/lr_scale": (0.5, 0.25)}


def test_a_request_nobody_can_meet_is_answered_in_the_events() -> None:
    run = Simulation("suggest").run(60)
    run.arbiter.tick(run.history.view(), [request("approve", "a77")])
    assert "nothing to approve" in run.events[-1].text


def test_remedies_move_knobs_only_the_way_their_name_says() -> None:
    lowered = ("lower-lr", "roll-back", "lower-beta", "lower-entropy-bonus", "narrow-clip", "fewer-epochs")
    for remedy in REMEDIES:
        for name, knob in KNOBS.items():
            for value in (knob.low, 0.1, 0.3, 1, 3, 100, 256, knob.high):
                if not knob.low <= value <= knob.high:
                    continue
                knobs = {
                    "control/lr_scale": 1.0,
                    "control/beta": 0.005,
                    "control/prompts": 16,
                    "control/entropy_coef": 0.0,
                }
                for before, after in (remedy.change(knobs | {name: value}) or {}).values():
                    assert (after - before) * (-1 if remedy.id in lowered else 1) > 0, (remedy.id, name, value)


def test_remedies_stay_within_the_bounds_of_their_knobs() -> None:
    for remedy in REMEDIES:
        for scale in (1 / 64, 0.25, 0.5, 1.0, 4.0):
            knobs = {name: (knob.low if scale < 1 else knob.high) for name, knob in KNOBS.items()}
            knobs["control/lr_scale"] = scale
            for name, (_, after) in (remedy.change(knobs) or {}).items():
                assert KNOBS[name].low <= after <= KNOBS[name].high or remedy.safety == "advice", (remedy.id, name)


def test_the_automatic_modes_move_lr_by_two_at_a_time_and_four_in_all() -> None:
    lower = next(remedy for remedy in REMEDIES if remedy.id == "lower-lr")
    scale, path = 1.0, [1.0]
    while change := lower.change({"control/lr_scale": scale}):
        scale = change["control/lr_scale"][1]
        path.append(scale)
    assert path == [1.0, 0.5, 0.25]


def test_a_knob_outside_its_bounds_is_refused() -> None:
    controls = Controls({"control/beta": 0.0, "control/prompts": 8}, backend=None)
    for name, value in (("control/beta", 2.0), ("control/beta", float("nan")), ("control/prompts", 2.5)):
        with pytest.raises(ValueError, match="must be"):
            controls.set(name, value)
    with pytest.raises(ValueError, match="no knob"):
        controls.set("control/magic", 1.0)
    assert controls.values() == {"control/beta": 0.0, "control/prompts": 8}
