"""Incidents, fixes and the journal, in closed loop on a simulated run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from stabilizer.control import follow_up
from stabilizer.control.budget import Refusal, affordable
from stabilizer.control.choose import Proposal, candidates, choose, proposal
from stabilizer.control.context import follows_restoring, reward_is_back
from stabilizer.control.engine import RemedyEngine
from stabilizer.control.fork import Comparison, Fork
from stabilizer.control.guard import Guard
from stabilizer.control.judge import advance
from stabilizer.control.permission import no_better_there
from stabilizer.control.probe import COST, Probe
from stabilizer.control.questions import Question, worth_asking_again
from stabilizer.control.trial import SETTLE, Trial, plan, targets
from stabilizer.core.earnings import Paid
from stabilizer.core.knobs import Checkpoint, Controls
from stabilizer.core.records import Action, Cause, Finding
from stabilizer.incidents.watch import Incident
from stabilizer.remedies import LOWER_LR, REMEDIES, RESTORE, ROLL_BACK, fitting
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.going_back import returns
from stabilizer.remedies.situation import Situation
from stabilizer.runs.history import RunView
from stabilizer.runs.journal import fold
from stabilizer.runs.requests import Request
from tests.control.simulation import Simulation
from tests.series import history


def too_fast(knobs: dict[str, float]) -> bool:
    return knobs["control/lr_scale"] > 0.5


def request(kind: str, action: str = "a1") -> Request:
    return Request("r1", kind, action, "test", 0.0)


def need(run: Simulation, cause: str, *members: Finding, onset: int = 1, view: RunView | None = None) -> Situation:
    """An incident of one cause, with damage only where one of its findings says so."""
    view, memory = view or run.history.view(), run.engine.memory
    return Situation(
        1, Cause(cause, 0.7, ""), onset, members, view, run.controls.values(), members,
        findings=tuple(run.engine.context.watch.findings()), list_checkpoints=run.controls.checkpoints, memory=memory,
        affordable=affordable(memory, view), mode=run.engine.mode,
    )  # fmt: skip


def consider(run: Simulation, remedy: Remedy, change: Change, now: Situation) -> bool:
    """Propose one remedy, whatever else could be; whether nothing else is to be considered."""
    return run.engine.carry_out(proposal(remedy, change, remedy.onset(now), now), now)


def planned(
    run: Simulation, action: str, remedy: Remedy, change: Change, incident: int, onset: int, cause: str = ""
) -> Trial:
    now = run.engine.context.situation(incident, run.history.view(), cause=Cause(cause, 0.0, ""))
    return plan(action, remedy, change, now, onset)


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


@pytest.mark.parametrize(
    ("mode", "live", "restart"),
    [("approve", "ask", "ask"), ("auto-safe", "apply", "suggest"), ("auto-full", "apply", "apply")],
)
def test_a_fix_that_takes_a_restart_needs_a_person_or_auto_full(mode: str, live: str, restart: str) -> None:
    run = Simulation(mode, cause=too_fast)
    now = need(run, "lr-too-high")
    change = LOWER_LR.change(now.knobs)
    assert change is not None
    assert proposal(LOWER_LR, change, 1, now).handling == live
    assert proposal(LOWER_LR, change, 1, replace(now, restarts=frozenset(change))).handling == restart


def going_back(*, broken: bool, left: float) -> tuple[Simulation, bool]:
    """A run whose reward has fallen because its weights broke, or to what the world outside leaves of it, and whether
    it went back."""
    run = Simulation("off", breaks_at=60 if broken else 10_000, outside=lambda tick: left if tick > 60 else 1.0).run(75)
    run.engine.context.mode = "auto-full"
    run.watch.incidents.append(Incident(1, 61))
    fell = Finding("policy/kl-runaway", "critical", "", 61, 75, 75)
    return run, consider(run, ROLL_BACK, {}, need(run, "undetermined", fell, onset=61))


@pytest.mark.parametrize(("broken", "left", "back"), [(True, 1.0, True), (True, 0.5, True), (False, 0.2, False)])
def test_a_run_goes_back_only_where_the_weights_gone_back_to_are_paid_more_now(
    broken: bool, left: float, back: bool
) -> None:
    run, went = going_back(broken=broken, left=left)
    probed = next(action for action in run.actions if action.entry == ("approved" if back else "rejected"))
    assert went is back and run.history.attempt == back
    assert (probed.data["probe"]["reward_gain"] > 0.1) is back
    assert "on the same prompts its weights get a reward of" in probed.text
    assert back or probed.text.startswith("a rollback to step 50 would gain nothing: ")
    assert probed.data["extra_steps"] == COST and run.engine.memory.extra >= COST


def test_what_is_refused_for_good_is_not_proposed_again_at_every_step_once_a_wait_has_run_out() -> None:
    run = Simulation("auto-full", breaks_at=10_000, outside=lambda tick: 0.2 if tick > 60 else 1.0).run(400)
    ways = [action for action in run.actions if action.remedy == "roll-back"]
    assert any("would gain nothing" in action.text for action in ways), "it was asked"
    assert any("it would cost" in action.text for action in ways), "and refused for good in the end"
    assert len([action for action in ways if action.entry == "proposed"]) < 10


def test_a_way_back_that_was_taken_in_the_end_is_known_from_then_on() -> None:
    run, _ = going_back(broken=False, left=0.2)
    fell = Finding("policy/kl-runaway", "critical", "", 61, 75, 75)
    run.probe = lambda checkpoint: Probe(checkpoint.step, run.paid(), Paid(run.paid().rewards + 0.5))
    assert consider(run, ROLL_BACK, {}, need(run, "undetermined", fell, onset=61))
    assert run.engine.memory.tried_by(1, "roll-back", 1000)


def meddled(growth: float, *turns: tuple[int, str, float]) -> Simulation:
    """A run in which somebody turns knobs after some steps, and which gets 0.4 of its reward from step 60 on."""
    run = Simulation("auto-full", breaks_at=10_000, growth=growth, outside=lambda tick: 0.4 if tick > 60 else 1.0)
    turned = set()

    def meddle(simulation: Simulation) -> list[Request]:
        for turn in turns:
            if simulation.step == turn[0] and turn not in turned:
                turned.add(turn)
                simulation.controls.set(f"control/{turn[1]}", turn[2])
        return []

    return run.run(120, meddle)


@pytest.mark.parametrize(("growth", "waits"), [(0.008, True), (0.0, False)])
def test_a_setting_is_not_restored_for_a_lower_reward_while_the_weights_improve(growth: float, waits: bool) -> None:
    run = meddled(growth, (60, "lr_scale", 2.0))
    fixes = [(action.remedy, action.entry) for action in run.actions if action.entry in ("applied", "rejected")]
    assert (("restore-setting", "rejected") in fixes) is waits
    assert (run.controls.get("control/lr_scale") == 2.0) is waits
    if waits:
        assert all(entry == "rejected" for _, entry in fixes), "nor is anything else changed for it"
        text = next(a.text for a in run.actions if (a.remedy, a.entry) == ("restore-setting", "rejected"))
        assert text.startswith("the run still learns under the changed setting, compared with step ")


@pytest.mark.parametrize(("later", "together"), [(2, True), (SETTLE + 4, False)])
def test_a_setting_that_changes_just_after_a_restored_one_is_restored_with_it(later: int, together: bool) -> None:
    run = meddled(0.0, (40, "lr_scale", 4.0), (41 + later, "prompts", 4))
    applied = [action for action in run.actions if action.entry == "applied"]
    assert "control/lr_scale" in applied[0].change and run.controls.get("control/lr_scale") == 1.0
    found = [action for action in applied if "control/prompts" in action.change]
    assert bool(found and found[0].step == 42 + later) is together
    kept = [action.action for action in run.actions if action.entry == "verified"]
    assert not together or {applied[0].action, found[0].action} <= {*kept}


def test_a_reward_that_fails_for_all_alike_is_no_reason_to_go_back() -> None:
    run, went = going_back(broken=False, left=0.0)
    assert not went and "would gain nothing" in run.actions[-1].text


def test_what_would_have_won_nothing_is_looked_at_again_after_ever_longer_waits_through_a_restart() -> None:
    run, _ = going_back(broken=False, left=0.2)
    step = run.step

    def known(engine: RemedyEngine, *later: int) -> list[bool]:
        return [engine.memory.tried_by(1, "roll-back", step + steps) for steps in later]

    assert known(run.engine, 0, 19, 20) == [True, True, False]
    fell = Finding("policy/kl-runaway", "critical", "", 61, 75, 75)
    consider(run, ROLL_BACK, {}, need(run, "undetermined", fell, onset=61))
    assert known(run.engine, 39, 40) == [True, False]
    again = Simulation("auto-full", earlier=tuple(run.actions)).engine
    assert known(again, 0, 39, 40) == [True, True, False], "a restart forgets no wait"
    assert again.memory.extra == 2 * COST


def test_weights_that_can_not_even_be_asked_are_no_reason_to_stay() -> None:
    def broken(checkpoint: Checkpoint) -> None:
        raise RuntimeError("probability tensor contains nan")

    run = Simulation("auto-full", cause=too_fast)
    run.probe = broken
    run.run(150)
    assert ("roll-back", "verified") in run.entries()
    spent = run.engine.memory.extra
    assert Simulation("auto-full", earlier=tuple(run.actions)).engine.memory.extra == spent, "the question is paid for"
    assert any("could not be measured: RuntimeError" in event.text for event in run.events)


@pytest.mark.parametrize("mode", ["off", "suggest", "auto-safe"])
def test_other_modes_never_roll_back(mode: str) -> None:
    run = Simulation(mode, cause=too_fast).run(120)
    own = {action.data.get("back_to") for action in run.actions if action.entry == "reverted"}
    assert run.history.attempt == len(own - {None}), "a failed trial goes back to its own snapshot at most"
    assert ("roll-back", "applied") not in run.entries()
    if mode == "off":
        assert run.actions == []
    else:
        assert ("roll-back", "proposed") in run.entries()


def passing(mode: str = "auto-safe", **more) -> Simulation:
    """Something pushes the policy too far for twenty steps, whatever the learning rate, and is over."""
    return Simulation(mode, breaks_at=10_000, drifts_at=60, passes_at=80, growth=0.002, **more)


def test_what_held_a_passing_trouble_back_is_put_back_when_it_is_over() -> None:
    run = passing().run(260)
    assert [e for r, e in run.entries() if r == "lower-lr"] == ["proposed", "approved", "applied", "reverted"]
    assert run.controls.get("control/lr_scale") == 1.0
    assert "steps would have their usual size without it" in run.actions[-1].text
    assert not any("a person should check" in event.text for event in run.events), "it is no failure"


def test_it_is_put_back_once_a_run_and_a_restart_knows_that() -> None:
    earlier = passing().run(130).actions
    assert earlier[-1].entry == "reverted"
    again = passing(earlier=tuple(earlier)).run(260)
    assert [e for r, e in again.entries() if r == "lower-lr"] == ["proposed", "approved", "applied", "verified"]
    assert again.controls.get("control/lr_scale") == 0.5


def test_a_trial_that_was_cut_off_is_undone_at_the_step_from_which_the_run_goes_on() -> None:
    run = Simulation("auto-safe", breaks_at=10_000).run(40)
    run.watch.incidents.append(Incident(1, 38))
    trial = planned(run, "a1", LOWER_LR, LOWER_LR.change(run.controls.values()) or {}, 1, 38, "lr-too-high")
    run.engine.executor.apply(trial, run.history.view())
    assert run.run(43).controls.get("control/lr_scale") < 1.0
    run.engine = RemedyEngine("auto-safe", run.controls, run.watch, run, tuple(run.actions))
    undone = run.actions[-1]
    assert (undone.entry, undone.reason, undone.step) == ("reverted", "interrupted", 43)
    assert run.controls.get("control/lr_scale") == 1.0


@pytest.mark.parametrize(("drifts_at", "left"), [(10_000, ["reverted"]), (75, [])])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_kept_to_hold_steps_back_goes_when_they_are_small_and_stays_while_they_are_not(
    drifts_at: int, left: list[str], restarted: bool
) -> None:
    run = Simulation("auto-safe", breaks_at=10_000, drifts_at=drifts_at, passes_at=500).run(70)
    run.watch.incidents.append(Incident(1, 68))
    trial = planned(run, "a9", LOWER_LR, {"control/lr_scale": (1.0, 0.5)}, 1, 68, "lr-too-high")
    run.controls.set("control/lr_scale", 0.5)
    run.engine.executor._keep(trial, run.history.view(), "quiet")
    if restarted:
        run.engine = RemedyEngine("auto-safe", run.controls, run.watch, run, run.actions)
    run.run(150)
    assert [a.entry for a in run.actions if a.action == "a9" and a.entry != "verified"] == left
    assert ("a9" in run.engine.memory.kept) is not bool(left)


def test_a_fix_that_was_kept_and_that_no_version_knows_any_more_keeps_no_run_from_going_on() -> None:
    run = Simulation("auto-safe", breaks_at=10_000)
    data = {"against": {"cause": "lr-too-high", "onset": 8}}
    kept = Action("a9", "verified", "was-renamed", 9, 1, change={"control/lr_scale": (1.0, 0.5)}, data=data)
    run.engine = RemedyEngine("auto-safe", run.controls, run.watch, run, [kept])
    run.controls.set("control/lr_scale", 0.5)
    run.run(60)
    assert "a9" in run.engine.memory.kept and not run.actions


def test_a_fix_for_what_lies_outside_is_proposed_and_says_why_it_is_not_made() -> None:
    run = Simulation("auto-full", breaks_at=10_000).run(40)
    grow = next(r for r in REMEDIES if r.id == "grow-group")
    change = grow.change(run.controls.values())
    run.watch.incidents.append(Incident(1, 38))

    def considered(cause: str) -> bool:
        return consider(run, grow, change, need(run, cause, onset=38))

    assert not considered("prompts-too-hard")
    assert [entry for _, entry in run.entries()] == ["proposed"]
    assert "not applied automatically: prompts-too-hard lies outside of the trainer" in run.actions[0].text
    assert considered("batch-too-small")
    assert run.actions[-1].entry == "applied" and "not applied" not in run.actions[1].text


@pytest.mark.parametrize("right", [True, False])
def test_steps_are_not_made_smaller_once_what_was_changed_is_put_back(right: bool) -> None:
    earlier = [
        Action("a1", entry, "restore-setting", 30, 1 if right else 7, change={"control/prompts": (2, 16)}, data=data)
        for entry, data in (("applied", {}), ("verified", {"put_right": True}))
    ]
    run = Simulation("auto-safe", cause=too_fast, earlier=tuple(earlier)).run(120)
    assert (("lower-lr", "applied") in run.entries()) is not right


@pytest.mark.parametrize("mode", ["suggest", "approve", "auto-safe", "auto-full"])
def test_a_restart_remembers_what_the_live_run_knew(mode: str) -> None:
    run = Simulation(mode, cause=lambda knobs: knobs["control/lr_scale"] > 0.3).run(150)
    assert run.actions and fold(run.actions) == run.engine.memory


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
    assert any("a person should check" in event.text for event in run.events)


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


def asked_before_the_damage(approved_by: str = "") -> Simulation:
    """Broken, and what waits for an answer is from when it was not: smaller steps."""
    run = Simulation("approve", cause=too_fast).run(60)
    engine, (asked,) = run.engine, run.engine.questions.open.values()
    now = engine.context.situation(asked.trial.incident, run.history.view())
    engine.questions.withdraw(asked, now, instead="lower-lr")
    trial = planned(run, "a7", LOWER_LR, {"control/lr_scale": (1.0, 0.5)}, now.incident, 40, "lr-too-high")
    trial.critical = False
    engine.context.ledger.record(trial, "proposed", run.step, "")
    engine.questions.open["a7"] = Question(trial, approved_by, asked=run.step)
    return run


def test_a_proposal_is_replaced_when_things_have_come_to_damage() -> None:
    run = asked_before_the_damage().run(61)
    gone, asked = run.actions[-2:]
    assert (gone.action, gone.entry, asked.remedy, asked.entry) == ("a7", "expired", "roll-back", "proposed")
    assert gone.text == "outdated: there has been damage since; roll-back is proposed in its place"
    assert [question.trial.remedy for question in run.engine.questions.open.values()] == [ROLL_BACK]
    assert run.run(200).actions[-1] is asked, "and what stands is not asked again"


def test_a_way_back_from_damage_is_not_asked_about_again_while_there_is_damage() -> None:
    run = asked_before_the_damage().run(61)
    (asked,) = run.engine.questions.open.values()
    assert asked.trial.remedy is ROLL_BACK
    assert not any(worth_asking_again(asked, True, step) for step in range(61, 161))
    assert any(worth_asking_again(asked, False, step) for step in range(61, 161)), "it is over: now and then"


def test_what_somebody_has_said_yes_to_is_done_though_things_have_come_to_damage() -> None:
    run = asked_before_the_damage(approved_by="somebody").run(61)
    assert ("a7", "applied") in [(action.action, action.entry) for action in run.actions]
    assert "expired" not in [action.entry for action in run.actions if action.action == "a7"]


def test_a_proposal_that_would_help_no_more_is_taken_back() -> None:
    run = Simulation("approve", cause=too_fast).run(60)
    questions = run.engine.questions
    questions.withdraw(next(iter(questions.open.values())), need(run, "undetermined"))
    assert run.actions[-1].entry == "expired" and not questions.open
    assert run.actions[-1].text.startswith("outdated: the cause is now undetermined and was ")


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
    assert run.engine.trial is None


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
    run = flat("auto-full").run(300)
    outcomes = [entry for remedy, entry in run.entries() if remedy == "grow-batch"]
    assert "applied" in outcomes and "verified" not in outcomes
    assert run.controls.get("control/prompts") == 8


def test_a_fix_that_helps_a_plateau_is_kept() -> None:
    run = flat("auto-full", growth_with_batch=0.004).run(400)
    outcomes = [entry for remedy, entry in run.entries() if remedy == "grow-batch"]
    assert outcomes[:4] == ["proposed", "approved", "applied", "verified"]
    assert run.controls.get("control/prompts") == 16


def test_an_approval_given_during_another_trial_is_kept_for_afterwards() -> None:
    run = Simulation("approve", cause=too_fast).run(50)
    (question,) = run.engine.questions.open.values()
    anchor = next(r for r in REMEDIES if r.id == "raise-beta")
    run.engine.executor.apply(planned(run, "a9", anchor, {"control/beta": (0.0, 0.001)}, 1, 40), run.history.view())
    run.engine.tick(run.history.view(), [request("approve", question.trial.action)])
    assert ("roll-back", "applied") not in run.entries()
    run.run(300)
    assert ("roll-back", "applied") in run.entries()


def test_what_was_approved_late_is_applied_to_the_knobs_as_they_are_by_then() -> None:
    run = Simulation("approve", cause=too_fast).run(50)
    run.controls.set("control/lr_scale", 0.5)  # somebody else turned it meanwhile
    run.engine.tick(run.history.view(), [request("approve", run.actions[-1].action)])
    applied = next(action for action in run.actions if action.entry == "applied")
    assert applied.change == {"control/lr_scale": (0.5, 0.25)}


def test_a_request_nobody_can_meet_is_answered_in_the_events() -> None:
    run = Simulation("suggest").run(60)
    run.engine.tick(run.history.view(), [request("approve", "a77")])
    assert "nothing to approve" in run.events[-1].text


def test_a_knob_outside_its_bounds_is_refused() -> None:
    controls = Controls({"control/beta": 0.0, "control/prompts": 8}, backend=None)
    for name, value in (("control/beta", 2.0), ("control/beta", float("nan")), ("control/prompts", 2.5),
                        ("control/beta", None), ("control/prompts", [8])):  # fmt: skip
        with pytest.raises(ValueError, match="must be"):
            controls.set(name, value)
    with pytest.raises(ValueError, match="no knob"):
        controls.set("control/magic", 1.0)
    assert controls.values() == {"control/beta": 0.0, "control/prompts": 8}


def test_a_lowered_rate_warms_up_again_and_every_value_is_on_record() -> None:
    run = Simulation("auto-full", cause=too_fast).run(150)
    applied = next(action for action in run.actions if action.entry == "applied")
    course = applied.data["course"]["control/lr_scale"]
    first = applied.data["back_to"] + 1
    seen = run.history.view().series("control/lr_scale").between(first, first + len(course) - 1).values
    assert list(seen) == course and course == sorted(course) and course[0] >= 0.25 and course[-1] == 0.5


def test_a_knob_that_a_person_turns_while_it_warms_up_stays_where_the_person_put_it() -> None:
    run = Simulation("auto-full", cause=too_fast)
    while run.engine.trial is None:
        run.run(run.step + 1)
    run.run(run.step + 5)
    run.controls.set("control/lr_scale", 0.3)
    run.run(run.step + 10)
    assert run.controls.get("control/lr_scale") == 0.3


def warned_then_broken(mode: str, **options) -> Simulation:
    """It drifts for a while before it breaks, so that a soft fix is tried first."""
    return Simulation(mode, breaks_at=60, drifts_at=30, **options)


def test_a_soft_fix_that_does_not_stop_a_divergence_is_given_up_within_a_few_steps_and_the_run_goes_back() -> None:
    run = warned_then_broken("auto-full", cause=lambda knobs: knobs["control/lr_scale"] > 0.6).run(260)
    trials = [(a.remedy, a.entry) for a in run.actions if a.entry in ("applied", "reverted", "verified")]
    assert ("roll-back", "verified") in trials or ("lower-lr", "verified") in trials
    for action in run.actions:
        if action.entry == "reverted":
            assert action.data["ticks"] <= 30


def test_the_target_of_a_rollback_is_older_than_the_first_sign_of_the_incident() -> None:
    run = warned_then_broken("auto-full").run(260)
    for action in run.actions:
        if action.entry == "applied" and action.remedy == "roll-back":
            assert action.data["back_to"] < run.watch.incident(action.incident).onset_step
            assert action.data["extra_steps"] == action.step - action.data["back_to"]


def test_with_a_fork_the_journal_says_what_the_run_would_have_done_otherwise() -> None:
    run = Simulation("auto-full", cause=too_fast, fork=10).run(150)
    approved = next(action for action in run.actions if action.entry == "approved")
    twin = approved.data["twin"]
    assert len(twin["curves"]["no change"]["reward/mean"]) == 10
    assert approved.data["extra_steps"] == 10 + COST, "the copy's, and what asking both weights cost"
    assert max(twin["curves"]["no change"]["reward/mean"]) < 0.1, "left alone it stays broken"
    assert ("roll-back", "verified") in run.entries()


def test_a_fix_that_does_nothing_on_a_copy_is_not_applied() -> None:
    run = flat("auto-full", fork=20).run(300)
    assert ("grow-batch", "rejected") in run.entries() and ("grow-batch", "applied") not in run.entries()
    rejected = next(a for a in run.actions if a.remedy == "grow-batch" and a.entry == "rejected")
    assert "no better" in rejected.text and set(rejected.data["twin"]["curves"]) == {"no change", "grow-batch"}
    assert run.controls.get("control/prompts") == 8


def test_a_copy_too_short_to_tell_is_said_to_be_and_leaves_the_judging_to_the_trial() -> None:
    run = flat("auto-full", fork=6)
    noisy = {"no change": [0.5, 0.1, 0.6, 0.2, 0.5, 0.3], "grow-batch": [0.2, 0.5, 0.1, 0.6, 0.3, 0.5]}
    run.fork = lambda changes, steps: Fork(0, steps, {name: {"reward/mean": noisy[name]} for name in changes}, {})
    run.run(300)
    approved = next(a for a in run.actions if a.remedy == "grow-batch" and a.entry == "approved")
    assert approved.data["twin"]["said"].startswith("undetermined: 6 steps are too few to decide")
    assert ("grow-batch", "applied") in run.entries()


@pytest.mark.parametrize(
    ("difference", "width", "said"),
    [(0.2, 0.1, "better"), (-0.2, 0.1, "worse"), (0.01, 0.05, "no better"), (0.01, 0.3, "undetermined")],
)
def test_a_comparison_says_no_better_only_where_it_could_have_seen_better(difference, width, said) -> None:
    found = Comparison(difference > width, difference < -width, difference, width, "", 20)
    assert found.verdict(matters=0.1) == said


def test_a_fork_is_no_part_of_the_run() -> None:
    plain, forked = flat("suggest").run(150), flat("suggest", fork=20).run(150)
    assert list(plain.history.view().series("reward/mean").values) == list(
        forked.history.view().series("reward/mean").values
    )


def faulty_reward(run: Simulation) -> Simulation:
    """An outage is on record, so that its cause and its answers are known."""
    remedy = next(r for r in REMEDIES if r.id == "skip-update")
    trial = planned(run, "a1", remedy, {}, 1, run.step, "reward-fault")
    run.engine.executor.apply(trial, run.history.view())
    return run


def test_updates_are_skipped_for_some_steps_and_then_no_more() -> None:
    run = Simulation("auto-full", breaks_at=40, cause=too_fast).run(48)
    run.engine.executor.trial = None
    faulty_reward(run).run(run.step + 60)
    assert run.orders.count("skip-update") == 20


def test_updates_are_made_again_once_the_reward_moved_while_the_weights_stood() -> None:
    run = Simulation("auto-safe", breaks_at=10_000).run(48)
    run.watch.incidents.append(Incident(1, 48))
    faulty_reward(run).run(run.step + 4)
    run._state["skill"] -= 0.2  # the simulated policy goes on learning, so this is the verifier's doing
    run.run(run.step + 10)
    assert run.orders.count("skip-update") < 12
    assert run.actions[-1].entry == "verified" and "the reward itself has changed" in run.actions[-1].text
    assert next(a for a in run.actions if a.entry == "applied").data["orders"] == ["skip-update"]


class Outage(Simulation):
    """Most answers go unpaid for some steps; what was learned meanwhile may have done harm."""

    harm = 1.0

    def _numbers(self) -> dict[str, float]:
        metrics = super()._numbers()
        out = 100 < self.step <= 106
        paid = 0.2 if out else self.harm if self.step > 106 else 1.0
        return metrics | {"reward/mean": paid * metrics["reward/mean"], "reward/failed_frac": 0.8 * out}


@pytest.mark.parametrize(("harm", "back"), [(1.0, False), (0.6, True)])
def test_what_failed_and_is_back_is_gone_back_from_only_where_the_policy_took_harm(harm: float, back: bool) -> None:
    run = Outage("auto-full", breaks_at=10_000)
    run.harm = harm
    run.run(120)
    assert ("skip-update", "verified") in run.entries()
    assert (("roll-back", "proposed") in run.entries()) is back
    [failed] = [f for f in run.watch.findings() if f.id == "reward/outage"]
    assert failed.severity == "critical"
    again = Simulation("auto-full", earlier=tuple(run.actions)).engine
    assert reward_is_back(run.engine.memory, failed) and reward_is_back(again.memory, failed), "after a restart too"


def test_what_a_restart_cut_off_is_ordered_anew() -> None:
    killed = Outage("auto-full", breaks_at=10_000).run(104)
    assert killed.entries()[-1] == ("skip-update", "applied")
    journal = tuple(killed.actions)
    for _ in range(2):  # it may be killed once more
        run = Outage("auto-full", breaks_at=10_000).run(101)
        run.actions = []
        run.engine = RemedyEngine("auto-full", run.controls, run.watch, run, journal)
        journal += tuple(run.actions)
    run.run(120)
    assert run.orders.count("skip-update") > 3
    assert [entry for entry in run.entries() if "skip-update" in entry][-1] == ("skip-update", "verified")


@pytest.mark.parametrize(("remedy", "ended"), [("early-stop", "stopped"), ("pause-and-ask", "paused")])
def test_ending_and_pausing_are_kept_at_once_and_said(remedy: str, ended: str) -> None:
    run = Simulation("auto-full", breaks_at=40, cause=too_fast).run(48)
    run.engine.executor.trial = None
    found = next(r for r in REMEDIES if r.id == remedy)
    run.engine.executor.apply(planned(run, "a9", found, {}, 1, 40), run.history.view())
    assert run.actions[-1].entry == "verified" and run.ended[0].startswith(ended)
    assert run.engine.trial is None


def test_what_has_no_other_undo_is_undone_by_returning_to_the_snapshot() -> None:
    run = Simulation("auto-full", breaks_at=40, cause=too_fast).run(48)
    run.engine.executor.trial = None
    found = next(r for r in REMEDIES if r.id == "reset-optimizer")
    trial = planned(run, "a9", found, {}, 1, 40)
    before, attempt = run.controls.get("control/lr_scale"), run.history.attempt
    run.engine.executor.apply(trial, run.history.view())
    assert run.orders == ["reset-optimizer"] and run.controls.get("control/lr_scale") < before
    run.engine.executor.trial = None
    run.engine.executor._revert(trial, run.history.view(), "it did not help", "failed")
    assert run.step == trial.snapshot.step and run.history.attempt == attempt + 1
    assert run.controls.get("control/lr_scale") == before


def test_what_was_only_suggested_is_carried_out_after_a_restart_in_an_automatic_mode() -> None:
    earlier = Action("a1", "proposed", "roll-back", 50, 1, safety="hard", change={"control/lr_scale": (1.0, 0.5)})
    run = Simulation("auto-full", cause=too_fast, earlier=(earlier,)).run(150)
    assert run.entries()[0] == ("roll-back", "expired") and ("roll-back", "verified") in run.entries()


def test_suggestions_for_one_incident_are_few() -> None:
    run = Simulation("suggest").run(200)
    assert 1 <= len([a for a in run.actions if a.incident == 1]) <= 3


def test_damage_that_is_back_after_a_return_is_answered_by_a_second_one_with_more_of_the_same() -> None:
    run = Simulation("auto-full", cause=lambda knobs: knobs["control/lr_scale"] > 0.3).run(200)
    applied = [action for action in run.actions if action.entry == "applied"]
    assert [action.change["control/lr_scale"] for action in applied] == [(1.0, 0.5), (0.5, 0.25)]
    assert [(a.action, a.entry) for a in run.actions][-2:] == [("a1", "verified"), ("a2", "verified")]
    assert run.controls.get("control/lr_scale") == 0.25
    assert run.watch.verdict(run.history.view()) == ("healthy", "critical")


def test_two_returns_that_did_not_help_are_both_undone_and_there_is_no_third() -> None:
    run = Simulation("auto-full").run(200)
    outcomes = [entry for _, entry in run.entries() if entry in ("applied", "verified", "reverted")]
    assert outcomes == ["applied", "applied", "reverted", "reverted"]
    assert run.controls.get("control/lr_scale") == 1.0 and run.history.attempt == 2


def test_two_trials_on_top_of_each_other_are_undone_newest_first_after_a_crash() -> None:
    cut = [
        Action("a1", "applied", "roll-back", 50, 1, change={"control/lr_scale": (1.0, 0.5)}),
        Action("a2", "applied", "roll-back", 60, 1, change={"control/lr_scale": (0.5, 0.25)}),
    ]
    run = Simulation("auto-full", earlier=tuple(cut), knobs={"control/lr_scale": 0.25})
    assert run.controls.get("control/lr_scale") == 1.0
    assert {(action.action, action.entry) for action in run.actions} == {("a1", "reverted"), ("a2", "reverted")}


def test_auto_safe_contains_a_divergence_by_smaller_steps_whatever_its_cause() -> None:
    run = Simulation("auto-safe", cause=too_fast).run(120)
    assert ("lower-lr", "applied") in run.entries()
    assert {action.safety for action in run.actions if action.entry == "applied"} == {"soft"}


def test_auto_safe_returns_to_the_snapshot_of_its_own_trial_with_still_smaller_steps() -> None:
    run = Simulation("auto-safe", breaks_at=10_000).run(40)
    run.watch.incidents.append(Incident(1, 38))
    trial = planned(run, "a1", LOWER_LR, LOWER_LR.change(run.controls.values()) or {}, 1, 38, "lr-too-high")
    run.engine.executor.apply(trial, run.history.view())
    run._breaks_at, run._cause = 40, lambda knobs: knobs["control/lr_scale"] > 0.25
    run.run(100)
    applied = [(a.change["control/lr_scale"], a.data.get("back_to")) for a in run.actions if a.entry == "applied"]
    assert applied[:2] == [((1.0, 0.5), None), ((0.5, 0.25), 40)]
    assert {action.safety for action in run.actions if action.entry == "applied"} == {"soft"}


def turn(knob: str, value: float, at: int):
    """A knob is turned without a word, as by a configuration's next stage."""

    def turns(run: Simulation) -> list[Request]:
        if run.ticks == at:
            run.controls.set(knob, value)
        return []

    return turns


def few_prompts(knobs: dict[str, float]) -> bool:
    return knobs["control/prompts"] < 8


@pytest.mark.parametrize(("mode", "remedy"), [("auto-full", "roll-back"), ("auto-safe", "restore-setting")])
def test_what_was_changed_just_before_things_broke_is_changed_back_first(mode: str, remedy: str) -> None:
    run = Simulation(mode, cause=few_prompts).run(200, turn("control/prompts", 2, at=40))
    first = next(action for action in run.actions if action.entry == "applied")
    assert (first.remedy, first.change) == (remedy, {"control/prompts": (2, 16)})
    assert run.controls.get("control/prompts") == 16
    assert (run._state["broken"] == 0) is (mode == "auto-full"), "going back mends what was damaged, too"


def test_a_change_that_somebody_declared_is_not_changed_back() -> None:
    def declared(run: Simulation) -> list[Request]:
        if run.ticks == 40:
            run.declare(run.step + 1, "intervention", "fewer prompts")
        return turn("control/prompts", 2, at=40)(run)

    run = Simulation("auto-full", cause=few_prompts).run(200, declared)
    assert "control/prompts" not in {knob for action in run.actions for knob in action.change}


def test_a_setting_that_was_changed_back_stays_so_even_where_that_was_not_enough() -> None:
    run = Simulation("auto-full").run(250, turn("control/prompts", 2, at=40))
    assert run.controls.get("control/prompts") == 16
    assert run.controls.get("control/lr_scale") == 1.0, "what was tried on top of it is undone"


def test_a_rate_that_left_its_schedule_is_held_where_it_was_for_as_long_as_it_is_up() -> None:
    def rate(tick: int) -> float:
        return 8.0 if 40 < tick <= 90 else 1.0

    run = Simulation("auto-full", rate=rate, cause=lambda knobs: knobs["control/lr_scale"] > 2)
    run.run(60)
    assert run.controls.get("control/lr_scale") == pytest.approx(1 / 8)
    run.run(160)
    assert run.controls.get("control/lr_scale") == 1.0
    assert run._state["broken"] == 0
    assert [entry for _, entry in run.entries()] == ["proposed", "approved", "applied", "verified"]


def test_a_held_rate_is_let_go_when_somebody_turns_its_knob() -> None:
    run = Simulation(
        "auto-full", rate=lambda tick: 8.0 if tick > 40 else 1.0, cause=lambda k: k["control/lr_scale"] > 2
    )
    run.run(150)
    run.controls.set("control/lr_scale", 0.2)
    run.run(170)
    assert run.controls.get("control/lr_scale") == 0.2


@pytest.mark.parametrize(
    ("since", "critical", "outcome", "back"),
    [("0.45", False, "failed", True), ("0.45", True, "failed", False), ("0.5", False, "verified", False)],
)
def test_a_level_that_may_be_lower_takes_the_weights_back_where_there_was_no_damage_before(
    since: str, critical: bool, outcome: str, back: bool
) -> None:
    trial = Trial("a1", next(r for r in REMEDIES if r.id == "raise-beta"), 1, 40, critical, {},
                  Guard("reward/mean", 0.5, 0.1, 10, 0.01), window=3, began=58)  # fmt: skip
    quiet = SimpleNamespace(active=lambda: [], incident=lambda number: Incident(1, 40), detectors=())
    run = history({"reward/mean": f"0.5x57 {since}x3"})
    assert [advance(trial, quiet, run.view()).outcome for _ in range(3)] == ["running", "running", outcome]
    assert trial.harmed is back


def test_going_back_is_kept_though_the_level_is_not_quite_what_it_was() -> None:
    """Chance has a say in a level; what did the damage is not put back for it."""
    trial = Trial("a1", ROLL_BACK, 1, 40, True, {}, Guard("reward/mean", 0.5, 0.1, 10, 0.01), window=3)
    trial.target = Checkpoint(30, 0, Path("step-30"))
    run = history({"reward/mean": "0.48x60"})
    quiet = SimpleNamespace(active=lambda: [], incident=lambda number: Incident(1, 40), detectors=())
    trial.began = 50
    assert [advance(trial, quiet, run.view()).outcome for _ in range(3)] == ["running", "running", "verified"]


def test_weights_with_a_hole_are_gone_back_from_and_a_bad_batch_is_not() -> None:
    skipped = {"optim/skipped": "0x50 1x10", "policy/loss": "0.1x50 nanx10", "optim/grad_norm": "0.5x50 nanx10"}
    hole = history(skipped).view()
    batch = history({name: f"{rows} {rows[: rows.index('x')]}x5" for name, rows in skipped.items()}).view()
    assert ROLL_BACK in fitting("numeric-overflow", hole)
    assert ROLL_BACK not in fitting("numeric-overflow", batch)


def test_a_state_right_before_a_known_change_is_gone_back_to_and_an_estimated_onset_keeps_its_distance() -> None:
    known = Simulation("auto-full", cause=few_prompts).run(150, turn("control/prompts", 2, at=40))
    assert next(action for action in known.actions if action.entry == "applied").data["back_to"] == 40
    run = Simulation("auto-full", cause=too_fast).run(30)
    assert [c.step for c in targets(run.checkpoints(), onset=25, margin=10)] == [10, 0, 20]
    assert [c.step for c in targets(run.checkpoints(), onset=25, margin=2)] == [20, 10, 0]


def test_a_loss_that_nobody_can_explain_is_gone_back_from_and_one_that_is_made_good_is_not() -> None:
    lost = history({"reward/mean": "0.1+0.005~0.01x60 0.2~0.01x20"}).view()
    regained = history({"reward/mean": "0.1+0.005~0.01x60 0.2+0.02x20"}).view()
    fell = [Finding(id="reward/collapse", severity="warn", summary="", onset_step=61, detected_step=70, last_step=80)]
    run = Simulation("auto-full")
    assert returns(need(run, "undetermined", *fell, onset=61, view=lost))
    assert not returns(need(run, "undetermined", *fell, onset=61, view=regained))
    assert not returns(need(run, "data-shift", *fell, onset=61, view=lost)), "what the data did is no loss of weights"


def test_the_level_under_another_setting_is_no_measure_for_the_one_that_was_put_back() -> None:
    trial = Trial("a1", RESTORE, 1, 40, False, {}, Guard("reward/mean", 0.9, 0.01, 10, 0.01), window=3, back=True)
    trial.began = 50
    quiet = SimpleNamespace(active=lambda: [], incident=lambda number: Incident(1, 40), detectors=())
    run = history({"reward/mean": "0.5x60"})
    assert [advance(trial, quiet, run.view()).outcome for _ in range(3)] == ["running", "running", "verified"]


@pytest.mark.parametrize(
    ("since", "damage", "back"),
    [("0.1~0.01x40", False, True), ("0.1+0.006~0.01x40", False, False), ("0.1+0.006~0.01x40", True, True)],
)
def test_after_a_fix_that_is_kept_the_weights_go_back_unless_the_run_learns_again(
    since: str, damage: bool, back: bool, monkeypatch
) -> None:
    run = Simulation("auto-full", breaks_at=10_000).run(60)
    monkeypatch.setattr(follow_up, "still_critical", lambda now: damage)
    view = history({"reward/mean": f"0.2+0.01~0.01x40 0.1~0.01x20 {since}"}).view()
    kept = next(r for r in REMEDIES if r.id == "mend-critic")
    trial = Trial("a9", kept, 1, 41, False, {}, cause="critic-broken", window=40, began=61)
    assert bool(follow_up.mending(trial, need(run, trial.cause, view=view))) is back


@pytest.mark.parametrize(("came", "now", "back"), [(True, "0.1", True), (True, "0.6", False), (False, "0.1", False)])
def test_what_was_learned_from_a_reward_that_failed_is_gone_back_from_when_it_is_back(
    came: bool, now: str, back: bool, monkeypatch
) -> None:
    run = Simulation("auto-full", breaks_at=10_000).run(60)
    monkeypatch.setattr(follow_up, "still_critical", lambda now: False)
    view = history({"reward/mean": f"0.6~0.05x40 0.6+0.03~0.05x10 {now}~0.01x3"}).view()
    skip = next(r for r in REMEDIES if r.id == "skip-update")
    trial = Trial("a9", skip, 1, 41, False, {}, cause="reward-fault", window=26, began=44, came=51 if came else 0)
    assert bool(follow_up.mending(trial, need(run, trial.cause, view=view))) is back


@pytest.mark.parametrize(
    ("back", "cause", "changed", "outside"),
    [
        ("reward/collapse", "prompts-too-hard", False, True),
        ("reward/collapse", "undetermined", False, True),
        ("policy/kl-runaway", "undetermined", False, False),
        ("reward/collapse", "lr-too-high", False, False),
        ("reward/collapse", "prompts-too-hard", True, False),
    ],
)
def test_a_loss_that_is_back_after_a_return_is_not_returned_from_again_unless_a_return_can_end_it(
    back: str, cause: str, changed: bool, outside: bool
) -> None:
    run = Simulation("auto-full", breaks_at=10_000).run(60)
    hurt = Finding(id=back, severity="critical", summary="", onset_step=50, detected_step=55, last_step=60, incident=1)
    change = {"control/lr_scale": (1.0, 0.5)} if changed else {}
    trial = Trial("a1", ROLL_BACK, 1, 50, True, change, target=Checkpoint(40, 0, Path("step-40")), harmed=True)
    now = need(run, cause, hurt, onset=50)
    assert follow_up.goes_on_outside(trial, now) is outside
    if not changed:
        assert bool(follow_up.escalation(trial, now, "it is back")) is not outside


def test_prompts_stay_as_they_were_where_the_cause_is_known_and_differ_where_it_is_not() -> None:
    known = Simulation("auto-full", cause=few_prompts).run(150, turn("control/prompts", 2, at=40))
    assert known.varied == [False]
    assert Simulation("auto-full", cause=too_fast).run(150).varied == [True]
    twice = Simulation("auto-full").run(150, turn("control/prompts", 2, at=40))
    assert twice.varied[:2] == [False, True], "what failed once is not replayed"


def test_a_reward_that_steps_when_a_setting_is_put_back_is_no_loss() -> None:
    fell = Finding(
        id="reward/collapse", severity="critical", summary="", onset_step=122, detected_step=145, last_step=150
    )
    assert not follows_restoring(Simulation("auto-full").engine.memory, fell)
    restored = Action("a1", "verified", RESTORE.id, 130, 1, data={"restored": 122})
    memory = Simulation("auto-full", earlier=(restored,)).engine.memory
    assert follows_restoring(memory, fell)
    assert not follows_restoring(memory, replace(fell, id="policy/kl-runaway"))
    assert not follows_restoring(memory, replace(fell, onset_step=140))


def test_a_second_return_goes_no_less_far_back_than_the_first() -> None:
    run = Simulation("auto-full").run(250)
    back = [action.data["back_to"] for action in run.actions if action.entry == "applied" and "back_to" in action.data]
    assert len(back) == 2
    assert back[1] <= back[0], "what was saved in between was trained under what was not enough"


@pytest.mark.parametrize(
    ("reward", "outcome"), [("0.5x30 0.3~0.01x40", "verified"), ("0.5x30 0.3x8 0.1~0.01x40", "failed")]
)
def test_a_correction_is_judged_by_what_follows_and_not_by_what_it_corrects(reward: str, outcome: str) -> None:
    """A sampler that is still broken still shows in every sample."""
    run = history({"reward/mean": reward})
    mismatch = Finding(id="policy/mismatch", severity="critical", summary="", onset_step=30, detected_step=31,
                       last_step=60, incident=1)  # fmt: skip
    loud = SimpleNamespace(active=lambda: [mismatch], incident=lambda number: Incident(1, 30), detectors=())
    trial = Trial("a1", ROLL_BACK, 1, 30, True, {}, Guard("reward/mean", 0.5, 0.01, 10, 0.01), "engine-mismatch")
    trial.target, trial.began = Checkpoint(30, 0, Path("step-30")), 31
    trial.outlived = ("policy/mismatch",)
    told = [advance(trial, loud, run.view(step)).outcome for step in range(31, 61)]
    assert next(word for word in told if word != "running") == outcome


class Apart(Simulation):
    """From a step on the engine gives tokens other probabilities, which goes on and, once corrected for, costs only the
    reward of what it samples."""

    def _numbers(self) -> dict[str, float]:
        metrics, apart = super()._numbers(), self.step > 60
        reward = metrics["reward/mean"] * (0.6 if apart else 1.0)
        between = 0.03 * math.exp(0.1 * self._rng.normal()) if apart else 1e-9
        return metrics | {"policy/mismatch_kl": between, "rollout/length_mean": 10.0, "reward/mean": reward}


def test_what_was_made_harmless_and_goes_on_is_left_alone_after_a_restart_too() -> None:
    run = Apart("auto-full", breaks_at=10_000, growth=0.02, knobs={"control/mismatch": 0}).run(120)
    made = [("correct-mismatch", entry) for entry in ("proposed", "approved", "applied", "verified")]
    assert run.entries() == made
    standing = [f.id for f in run.watch.active() if f.severity != "info"]
    assert "policy/mismatch" in standing, "it is said all the same"
    run.engine = RemedyEngine("auto-full", run.controls, run.watch, run, tuple(run.actions))
    assert run.run(200).entries() == made


@pytest.mark.parametrize(("during", "harmed"), [("0.4~0.01x40", False), ("0.4~0.01x4 0.1~0.01x36", True)])
def test_what_was_lost_before_a_trial_began_is_not_its_harm(during: str, harmed: bool) -> None:
    """Held-out accuracy was last known before the onset: a verdict by it is also about what the fix was made for."""
    held_out = "0.8x1 _x4 " * 6 + "0.1x1 _x4 " * 10
    run = history({"reward/mean": f"0.8~0.01x30 0.4~0.01x10 {during}", "accuracy/val": held_out})
    quiet = SimpleNamespace(active=lambda: [], incident=lambda number: Incident(1, 31), detectors=())
    grow = next(remedy for remedy in REMEDIES if remedy.id == "grow-batch")
    trial = Trial("a1", grow, 1, 31, True, {}, Guard.of(run.view(30), 30), "dead-groups", window=30, began=41)
    told = [advance(trial, quiet, run.view(step)).outcome for step in range(41, 71)]
    assert "failed" in told and trial.guard.metric == "accuracy/val"
    assert trial.harmed is harmed


def test_a_rate_that_was_held_is_held_after_a_restart() -> None:
    def rate(tick: int) -> float:
        return 8.0 if tick <= 20 else 1.0

    change = {"control/lr_scale": (1.0, 0.125)}
    journal = tuple(
        Action("a1", entry, "roll-back", 50, 1, change=change, data=data)
        for entry, data in (("applied", {"holds": 1e-4}), ("verified", {}))
    )
    run = Simulation("auto-full", rate=rate, earlier=journal, knobs={"control/lr_scale": 0.125}).run(15)
    assert run.controls.get("control/lr_scale") == 0.125
    assert run.run(30).controls.get("control/lr_scale") == 1.0


def test_damage_is_gone_back_from_though_somebody_would_measure_more_often_or_stop() -> None:
    hurt = Finding(
        id="policy/kl-runaway", severity="critical", summary="", onset_step=40, detected_step=50, last_step=60
    )
    run = Simulation("auto-full").run(60)

    def first(cause: str, *members: Finding) -> str:
        return candidates(need(run, cause, *members, onset=40))[0].id

    assert first("reward-hackable", hurt) == "roll-back", "what touches no weights mends none"
    assert first("reward-hackable") != "roll-back", "and without damage there is nothing to go back from"


def test_what_goes_on_outside_and_shows_in_nothing_that_the_policy_does_is_not_gone_back_from() -> None:
    failing = Finding("reward/no-signal", "critical", "", 40, 50, 60, incident=1)
    diverged = replace(failing, id="policy/kl-runaway")
    run = Simulation("auto-full").run(60)
    leap, calm = (history({"optim/update_ratio": f"0.001~0.0001x40 {end}"}).view() for end in ("0.05x2", "0.001x2"))

    def considered(cause: str, *members: Finding, view: RunView = calm) -> bool:
        return ROLL_BACK in candidates(need(run, cause, *members, onset=40, view=view))

    assert not considered("data-shift", failing) and not considered("prompts-too-hard", failing)
    assert considered("data-shift", failing, diverged) and considered("undetermined", failing)
    assert not considered("prompts-too-hard", failing, diverged)
    assert considered("prompts-too-hard", failing, diverged, view=leap), "no choice of prompts mends weights that leapt"


def test_a_run_that_stands_no_lower_than_where_it_would_go_back_to_stays_where_it_is() -> None:
    def refused(rewards: str, back_to: int, onset: int) -> str:
        view = history({"reward/mean": rewards}).view()
        state = Checkpoint(back_to, 0, Path(f"step-{back_to}"))
        trial = Trial("a1", ROLL_BACK, 1, onset, True, {}, guard=Guard(), target=state)
        refusal = no_better_there(trial, view)
        return refusal.text if refusal else ""

    start, learned, lost, half = "0.5~0.02x20", "0.7~0.02x30", "0.1~0.02x15", "0.52~0.02x15"
    said = refused(f"{start} {learned} {half}", 0, 45)
    assert "gain nothing" in said and "around step 0" in said, "all that was learned would go, and nothing come back"
    assert not refused(f"{start} {learned} {half}", 40, 51), "it was better there"
    assert not refused(f"{start} {learned} {lost}", 0, 51), "it is worse than it ever was"
    assert not refused(f"{start} {learned} nanx15", 0, 51)
    assert not refused(f"{start} {learned} {'0.52~0.02x5'}", 0, 51), "too few rows to know where it stands"


@pytest.mark.parametrize(
    ("cause", "onset", "held_out", "back"),
    [
        ("exploration-exhausted", 15, "0.7 0.75 0.8 0.85 0.85 0.8", False),  # the policy can do what it could
        ("exploration-exhausted", 15, "0.7 0.75 0.8 0.85 0.3 0.2", True),
        ("exploration-exhausted", 15, "", True),
        ("exploration-exhausted", 95, "0.7 0.75 0.8 0.85 0.85 0.8", True),  # a few steps: it is seldom as new
        ("wrong-groups", 95, "0.7 0.75 0.8 0.85 0.85 0.8", False),  # what lies outside meets older weights too
        ("wrong-groups", 95, "0.7 0.75 0.8 0.85 0.3 0.2", True),
        ("wrong-groups", 95, "", True),
    ],
)
def test_much_is_thrown_away_or_against_what_lies_outside_only_where_held_out_accuracy_fell_or_is_not_known(
    cause: str, onset: int, held_out: str, back: bool
) -> None:
    run = Simulation("auto-full", breaks_at=10_000).run(120)
    hurt = Finding("policy/kl-runaway", "critical", "", onset, 110, 120, incident=1)
    known = {"accuracy/val": " ".join(f"{value}x1 _x19" for value in held_out.split())} if held_out else {}
    view = history({"reward/mean": "0.7~0.01x100 0.4~0.01x20", **known}, about={"config": {"steps": 240}}).view()
    assert (ROLL_BACK.objection(need(run, cause, hurt, onset=onset, view=view)) is None) is back


@pytest.mark.parametrize(("detected", "measured", "back"), [(90, 80, True), (110, 80, False), (90, 100, False)])
def test_accuracy_from_before_the_damage_stops_a_rollback_for_twenty_steps_only(
    detected: int, measured: int, back: bool
) -> None:
    run = Simulation("auto-full", breaks_at=10_000).run(120)
    hurt = Finding("policy/kl-runaway", "critical", "", 15, detected, 120, incident=1)
    held_out = "0.85x1 _x19 " * (measured // 20) + f"0.85x1 _x{119 - measured}"
    view = history({"reward/mean": "0.7~0.01x90 0.4~0.01x30", "accuracy/val": held_out}).view()
    assert (ROLL_BACK.objection(need(run, "lr-too-high", hurt, onset=15, view=view)) is None) is back


def test_a_way_back_throws_away_nothing_that_was_learned_after_the_first_sign() -> None:
    learned = "0.2~0.005x40 0.2+0.01~0.005x40 0.6~0.005x20 0.1~0.005x10"
    stood = "0.2~0.005x100 0.1~0.005x10"
    run = Simulation("auto-full")
    hurt = Finding(
        id="policy/kl-runaway", severity="critical", summary="", onset_step=30, detected_step=105, last_step=110
    )
    once = need(run, "lr-too-high", hurt, onset=30, view=history({"reward/mean": learned}).view())
    assert 75 <= ROLL_BACK.onset(once) <= 100, "its best is from before the damage"
    assert ROLL_BACK.onset(replace(once, view=history({"reward/mean": stood}).view())) == 30
    assert LOWER_LR.onset(once) == 30


def test_where_nothing_older_than_the_first_sign_is_within_reach_the_damage_itself_is_gone_back_from() -> None:
    run = Simulation("auto-full", breaks_at=10_000, growth=0.0).run(160)
    hurt = Finding(
        id="policy/kl-runaway", severity="critical", summary="", onset_step=130, detected_step=150, last_step=160
    )
    first = replace(hurt, id="reward/oscillation", severity="warn", onset_step=5)
    now = need(run, "lr-too-high", first, hurt, onset=5)
    assert ROLL_BACK.onset(now) == 130, "155 steps are more than fixes may cost"
    assert ROLL_BACK.onset(replace(now, onset=90)) == 90


def test_a_change_that_touches_neither_weights_nor_data_does_not_blind_the_detectors() -> None:
    run = Simulation("auto-safe", breaks_at=10_000, knobs={"control/validate_every": 20}).run(60)
    run.watch.incidents.append(Incident(1, 55))
    before = run.history.view().baseline_start()
    more = next(r for r in REMEDIES if r.id == "validate-more")
    trial = planned(run, "a9", more, more.change(run.controls.values()), 1, 55, "reward-hackable")
    run.engine.executor.apply(trial, run.history.view())
    run.run(64)
    view = run.history.view()
    assert run.controls.get("control/validate_every") == 10
    assert view.baseline_start() == before and view.declared(61), "it is declared all the same"


@pytest.mark.parametrize("climbs", [True, False])
def test_a_trial_gives_way_when_it_comes_to_light_that_the_schedule_runs_away(climbs: bool) -> None:
    run = Simulation("auto-safe", breaks_at=10_000, rate=lambda tick: 1.1 ** max(0, tick - 68) if climbs else 1.0).run(
        70
    )
    run.watch.incidents.append(Incident(1, 68))
    trial = planned(run, "a9", LOWER_LR, {"control/lr_scale": (1.0, 0.5)}, 1, 68, "lr-too-high")
    run.engine.executor.apply(trial, run.history.view())
    run.run(82)
    entries = [action.entry for action in run.actions if action.action == "a9"]
    assert entries == ["approved", "applied", *(["reverted"] if climbs else [])]
    assert (run.controls.get("control/lr_scale") == 1.0) is climbs
    assert not run.engine.memory.failures, "it was not tried to its end"
    assert (
        RESTORE.given("lr-too-high", run.controls.values(), run.history.view(), 68, run.engine.memory.courses)
        or not climbs
    )


@pytest.mark.parametrize(
    ("last", "cause", "doubted"),
    [(105, "reward-fault", True), (60, "reward-fault", False), (105, "noise-floor", False)],
)
def test_what_the_reward_reached_while_its_judge_was_broken_is_no_height_to_go_back_to(
    last: int, cause: str, doubted: bool
) -> None:
    paid = history({"reward/mean": "0.2+0.002~0.005x94 0.7~0.005x20 0.2~0.005x14"}).view()
    doubt = Finding("policy/likelihood-displacement", "warn", "", 94, 101, last, causes=(Cause(cause, 0.7, ""),))
    fell = Finding("reward/collapse", "critical", "", 100, 128, 128)
    run = Simulation("auto-full").run(120)
    at = ROLL_BACK.onset(replace(need(run, "undetermined", fell, onset=100, view=paid), findings=(doubt,)))
    assert at == 94 if doubted else at > 100


def test_while_the_rate_warms_up_only_a_batch_that_is_too_small_is_changed() -> None:
    run = Simulation("auto-safe", cause=lambda knobs: False).run(60)
    run.history.about["config"] = {"optim": {"warmup_steps": 286}}
    noisy = Finding("reward/noise-floor", "warn", "", 40, 60, 60, incident=1)
    found = choose(need(run, "batch-too-small", noisy))
    assert isinstance(found, Proposal) and (found.remedy.id, found.handling) == ("grow-batch", "apply")
    silent = Finding("reward/no-signal", "warn", "", 40, 60, 60, incident=1)
    for cause, shown in (
        ("prompts-too-hard", noisy), ("noise-floor", noisy), ("lr-too-high", noisy), ("batch-too-small", silent),
    ):  # fmt: skip
        refused = choose(need(run, cause, shown))
        assert isinstance(refused, Refusal) and "warms up until step 286" in refused.text
