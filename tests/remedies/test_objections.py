"""Which incident comes first, and each pair of opposite fixes decided both ways."""

from __future__ import annotations

import pytest

from stabilizer.control.choose import left_to_people
from stabilizer.core.records import Cause, Finding
from stabilizer.detectors import DETECTORS
from stabilizer.remedies import REMEDIES
from stabilizer.remedies.going_back import learned_until
from stabilizer.remedies.situation import Situation
from stabilizer.remedies.urgency import (
    DIVERGENCE,
    EFFICIENCY,
    EXPLORATION,
    INTEGRITY,
    STARVATION,
    just_seen,
    most_urgent,
    rank,
)
from tests.series import history

BY_ID = {remedy.id: remedy for remedy in REMEDIES}


def finding(id: str, severity: str = "warn", incident: int = 1, last: int = 60, state: str = "open") -> Finding:
    return Finding(id, severity, "", last, last, last, state=state, incident=incident)


def objected(remedy: str, curves: dict[str, str], cause: str = "", *found: Finding, seen=()) -> str:
    now = Situation(1, Cause(cause, 0.7, ""), 1, found, history(curves).view(), findings=tuple(seen))
    return BY_ID[remedy].objection(now) or ""


def test_classes_are_served_in_their_order() -> None:
    order = [
        "numerics/non-finite", "policy/kl-runaway", "reward/no-signal", "policy/entropy-collapse", "reward/plateau",
    ]  # fmt: skip
    assert [rank(finding(id)) for id in order] == [INTEGRITY, DIVERGENCE, STARVATION, EXPLORATION, EFFICIENCY]
    standing = [finding(id, incident=n) for n, id in enumerate(order, 1)]
    for first in range(5):
        assert most_urgent(standing[first:]) == first + 1
    assert most_urgent([finding("reward/plateau", "info"), finding("policy/kl-runaway", state="recovering")]) is None


def test_every_detector_has_a_class() -> None:
    assert {rank(finding(detector.id)) for detector in DETECTORS} == set(range(5))
    for slow in ("optim/lr-too-low", "optim/no-update", "policy/kl-pinned"):
        assert rank(finding(slow)) == EFFICIENCY, "what stands still does not keep what explodes waiting"


@pytest.mark.parametrize(
    ("remedy", "curves", "cause", "objects"),
    [
        ("lower-beta", {"policy/kl_ref": "0.02~0.001x60"}, "", False),
        ("lower-beta", {"policy/kl_ref": "0.05+0.02~0.001x60"}, "", True),
        ("raise-entropy", {"policy/entropy": "1~0.01x30 0.1~0.01x40"}, "", False),
        ("raise-entropy", {"policy/entropy": "1~0.01x30 0.5~0.01x40"}, "", True),
        ("narrow-clip", {"policy/entropy": "1~0.01x30 0.1~0.01x40"}, "lr-too-high", True),
        ("narrow-clip", {"policy/entropy": "1~0.01x70"}, "lr-too-high", False),
        ("narrow-clip", {"policy/entropy": "1~0.01x30 0.1~0.01x40"}, "clip-too-wide", False),
        ("lower-lr", {"optim/grad_cosine": "0.8~0.01x40"}, "noise-floor", False),
        ("lower-lr", {"optim/grad_cosine": "0.1~0.01x40"}, "noise-floor", True),
        ("lower-lr", {"reward/mean": "0.1x40"}, "noise-floor", True),
        ("grow-batch", {"optim/grad_cosine": "0.8~0.01x40"}, "noise-floor", True),
        ("grow-batch", {"optim/grad_cosine": "0.1~0.01x40"}, "noise-floor", False),
        ("longer-answers", {"rollout/length_reward_corr": "-0.5~0.01x40"}, "", True),
        ("longer-answers", {"rollout/length_reward_corr": "0.1~0.01x40"}, "", False),
    ],
)
def test_each_pair_is_decided_by_its_own_question(remedy, curves, cause, objects) -> None:
    assert bool(objected(remedy, curves, cause)) is objects


@pytest.mark.parametrize("remedy", ["lower-lr", "narrow-clip", "clip-updates"])
def test_steps_are_made_smaller_only_while_they_are_too_large(remedy: str) -> None:
    spike = Finding("optim/grad-explosion", "critical", "", 41, 50, 50, incident=1)

    def curves(after: str) -> dict[str, str]:
        return {"policy/kl_old": f"0.004~0.0005x40 {after}", "policy/entropy": "1~0.01x70"}

    assert objected(remedy, curves("0.1x2 0.004~0.0005x10"), "lr-too-high", spike)
    assert objected(remedy, curves("0.3x2 0.01~0.001x10"), "lr-too-high", spike), "what learns again steps further"
    assert not objected(remedy, curves("0.1x12"), "lr-too-high", spike)
    assert not objected(remedy, curves("0.1x2"), "lr-too-high", spike), "two rows do not say that it is over"
    large = {"policy/kl_old": "0.08~0.005x60", "policy/entropy": "1~0.01x70"}
    assert not objected(remedy, large, "lr-too-high", spike), "as before, and too large before as well"
    assert not objected(remedy, {"policy/entropy": "1~0.01x60"}, "lr-too-high", spike)


def test_smaller_steps_bring_nothing_back_that_has_fallen() -> None:
    steps = {"policy/kl_old": "0.004~0.0005x60 0.1~0.01x40", "policy/entropy": "1~0.01x100"}
    spike = Finding("optim/grad-explosion", "critical", "", 61, 90, 90, incident=1)
    fallen, falling = "0.2+0.008~0.01x60 0.1~0.01x20", "0.2+0.008~0.01x60 0.68+-0.06~0.01x9"
    assert objected("lower-lr", steps | {"reward/mean": fallen}, "lr-too-high", spike)
    assert not objected("lower-lr", steps | {"reward/mean": falling}, "lr-too-high", spike)
    assert not objected("lower-lr", steps | {"reward/mean": fallen}, "no-kl-anchor", spike), (
        "what lasts is another cause"
    )


def test_what_comes_back_by_itself_is_not_slowed() -> None:
    steps = {"policy/kl_old": "0.004~0.0005x60 0.1~0.01x60", "policy/entropy": "1~0.01x120"}
    spike = Finding("optim/grad-explosion", "critical", "", 61, 110, 110, incident=1)
    falls, rises = "0.2+0.008~0.01x60 0.1~0.01x12", "0.2+0.008~0.01x60 0.1~0.01x10 0.1+0.008~0.01x40"
    for remedy in ("lower-lr", "raise-beta"):
        assert "has risen since" in objected(remedy, steps | {"reward/mean": rises}, "lr-too-high", spike)
        assert "has risen since" not in objected(remedy, steps | {"reward/mean": falls}, "lr-too-high", spike)
    climbs = "0.2+0.008~0.01x{}"
    early = {"policy/kl_old": "0.004~0.0005x60 0.1~0.01x12", "reward/mean": climbs.format(72)}
    assert not objected("lower-lr", early, "lr-too-high", spike), "it may fall yet"
    assert "has risen since" in objected("lower-lr", steps | {"reward/mean": climbs.format(100)}, "lr-too-high", spike)


@pytest.mark.parametrize(
    ("remedy", "cause", "sure", "people"),
    [
        ("grow-group", "prompts-too-hard", 0.95, True),
        ("grow-batch", "dead-groups", 0.95, False),
        ("grow-batch", "prompts-too-hard", 0.95, False),
        ("raise-beta", "reward-hackable", 0.95, True),
        ("grow-batch", "batch-too-small", 0.45, False),
        ("correct-mismatch", "stale-weights", 0.7, False),
        ("skip-update", "reward-fault", 0.7, False),
        ("lower-lr", "undetermined", 0.85, True),
        ("lower-lr", "kl-estimator", 0.7, True),
        ("lower-lr", "lr-too-high", 0.45, True),
        ("lower-lr", "lr-too-high", 0.7, False),
        ("roll-back", "undetermined", 0.85, False),
    ],
)
def test_a_soft_fix_is_made_by_itself_only_where_it_answers_a_known_cause_within_the_trainer(
    remedy, cause, sure, people
) -> None:
    assert bool(left_to_people(BY_ID[remedy], Cause(cause, sure, ""))) is people


def test_going_back_from_a_leap_that_is_over_leaves_the_rate_alone() -> None:
    def change(after: str, cause: str = "lr-too-high", dead: float = 0.3) -> dict:
        view = history({"policy/kl_old": f"0.004~0.0005x40 {after}", "reward/zero_std_frac": f"{dead}x60"}).view()
        return BY_ID["roll-back"].given(cause, {"control/lr_scale": 1.0}, view, 41, {})

    halved = {"control/lr_scale": (1.0, 0.5)}
    assert change("0.1x2 0.004~0.0005x6") == {}
    assert change("0.1x8") == change("0.1x2") == halved
    assert change("0.004~0.0005x8") == halved, "nothing leapt, so this is not what happened"
    assert change("0.1x2 0.0001x6", dead=1.0) == halved, "small steps of a policy that learns nothing"
    assert change("0.1x2 0.004~0.0005x6", "no-kl-anchor") == halved


def test_steps_that_leapt_at_one_rate_and_come_down_are_left_alone() -> None:
    spike = Finding("optim/grad-explosion", "critical", "", 41, 50, 50, incident=1)
    rates = {"flat": "0.001x60", "turned up": "0.001x40 0.01x20"}

    def curves(steps: str, rate: str = "flat") -> dict[str, str]:
        return {"optim/update_ratio": f"0.001~0.0001x40 {steps}", "optim/lr": rates[rate], "policy/entropy": "1x60"}

    falls, stays = "0.02x1 0.012x1 0.009x1 0.008x1 0.007x1", "0.02~0.001x5"
    said = "shrink without help"
    assert said in objected("lower-lr", curves(falls), "lr-too-high", spike)
    assert said not in objected("lower-lr", curves(stays), "lr-too-high", spike), "a rate that is too high stays so"
    assert said not in objected("lower-lr", curves(falls, "turned up"), "lr-too-high", spike)
    assert said not in objected("lower-lr", curves("0.0015x1 0.001x5"), "lr-too-high", spike), "nothing leapt"


@pytest.mark.parametrize("remedy", ["longer-answers", "mask-truncated", "overlong-penalty"])
def test_answers_that_run_on_since_the_policy_leapt_do_not_want_for_room(remedy: str) -> None:
    cut = Finding("rollout/truncation", "critical", "", 41, 50, 50, incident=1)
    for after, leapt in (("0.02x2 0.001x8", True), ("0.001~0.0001x10", False)):
        said = objected(remedy, {"optim/update_ratio": f"0.001~0.0001x40 {after}"}, "capped-length", cut)
        assert ("weights are damaged" in said) == leapt


def test_updates_are_not_skipped_where_a_leap_damaged_the_weights() -> None:
    fell = Finding("reward/collapse", "critical", "", 41, 50, 50, incident=1)

    def said(after: str) -> str:
        return objected("skip-update", {"optim/update_ratio": f"0.001~0.0001x40 {after}"}, "reward-fault", fell)

    assert "damaged weights" in said("0.02x1 0.001~0.0001x9")
    assert not said("0.0015~0.0001x10"), "what is taught wrong is taught by steps that are hardly larger"
    assert not objected("skip-update", {"reward/mean": "0.5x60"}, "reward-fault", fell), "nobody measures steps"


def test_updates_are_not_skipped_for_single_rows_that_spike() -> None:
    spike, fell = (Finding(id, "warn", "", 41, 50, 50, incident=1) for id in ("optim/grad-spike", "reward/collapse"))
    assert "single rows" in objected("skip-update", {"reward/mean": "0.5x50"}, "reward-fault", spike)
    assert not objected("skip-update", {"reward/mean": "0.5x50"}, "reward-fault", spike, fell)


@pytest.mark.parametrize(("step", "waits"), [(45, True), (60, True), (61, False), (90, False)])
def test_updates_are_skipped_for_what_may_pass_and_not_for_what_has_lasted(step: int, waits: bool) -> None:
    fell = Finding("reward/collapse", "critical", "", 41, step, step, incident=1)
    assert ("has lasted" in objected("skip-update", {"reward/mean": f"0.5x{step}"}, "reward-fault", fell)) is not waits


@pytest.mark.parametrize(
    ("reward", "mended"),
    [
        ("0.1+0.01~0.01x60", False),
        ("0.5~0.01x60", False),  # too short to say that it stands
        ("0.2+0.01~0.01x40 0.1~0.01x20", True),
        ("0.1+0.01~0.01x60 0.7~0.01x140", True),
    ],
)
def test_a_critic_is_mended_where_the_reward_fell_or_stands_and_else_mends_itself(reward: str, mended: bool) -> None:
    broken = Finding("value/critic-failure", "warn", "", 50, 60, 60, incident=1)
    assert bool(objected("mend-critic", {"reward/mean": reward}, "critic-broken", broken)) is not mended


def test_drift_that_pays_needs_no_anchor_and_drift_that_does_not_pay_does() -> None:
    rising, flat = {"reward/mean": "0.1+0.01~0.01x60"}, {"reward/mean": "0.5~0.01x60"}
    kl, explosion = finding("policy/kl-runaway"), finding("optim/grad-explosion")
    assert objected("raise-beta", rising, "", kl)
    assert not objected("raise-beta", flat, "", kl)
    assert not objected("raise-beta", rising, "", kl, explosion), "gradients that explode are a reason of their own"


def test_the_rate_is_not_raised_within_a_hundred_steps_of_a_divergence() -> None:
    curves = {"reward/mean": "0.5x200"}
    assert objected("raise-lr", curves, seen=[finding("policy/kl-runaway", last=150)])
    assert not objected("raise-lr", curves, seen=[finding("policy/kl-runaway", last=90)])
    assert not objected("raise-lr", curves, seen=[finding("reward/plateau", last=199)])


@pytest.mark.parametrize(("held_out", "objects"), [("0.6~0.01x12", True), ("0.6x8 0.3x4", False), ("0.6x2", False)])
def test_a_run_is_ended_early_only_where_held_out_accuracy_is_not_known_to_hold(held_out: str, objects: bool) -> None:
    curves, damage = {"reward/mean": "0.5x60", "accuracy/val": held_out}, finding("reward/collapse", "critical")
    assert bool(objected("early-stop", curves, "", damage)) is objects
    assert "no damage" in objected("early-stop", curves, "", finding("reward/collapse"))


@pytest.mark.parametrize(
    ("ids", "step", "fresh"),
    [(["system/invariant"], 103, True), (["system/invariant", "policy/mismatch"], 105, True),
     (["system/invariant"], 120, False), (["numerics/non-finite"], 101, False),
     (["system/invariant", "policy/kl-runaway"], 103, False)],
)  # fmt: skip
def test_what_broke_around_the_policy_a_moment_ago_is_nothing_to_go_back_from(ids, step, fresh) -> None:
    findings = [Finding(name, "critical", "", 100, 101, step) for name in ids]
    assert just_seen(findings, step) is fresh


@pytest.mark.parametrize("onset", [1, 5, 60])
def test_a_return_keeps_what_was_learned_after_the_first_sign(onset) -> None:
    view = history({"reward/mean": "0.2+0.005~0.02x120 0.2~0.02x40"}).view()
    assert 100 <= learned_until(view, onset) <= 125


@pytest.mark.parametrize("onset", [1, 5])
@pytest.mark.parametrize("reward", ["0.5~0.02x60 0.1~0.02x40", "0.5~0.02x100"])
def test_a_return_goes_before_the_first_sign_where_nothing_was_learned_since(onset, reward) -> None:
    view = history({"reward/mean": reward}).view()
    assert learned_until(view, onset) == onset


def test_a_reward_that_only_recovers_from_a_fall_in_the_first_rows_has_learned_nothing() -> None:
    assert learned_until(history({"reward/mean": "0.25~0.05x3 0.05~0.05x20 0.19~0.05x40"}).view(), 1) == 1
