"""Laws over all remedies: what every file of the catalogue must keep, whatever it mends."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from pathlib import Path

import pytest

import stabilizer.remedies
from stabilizer.cli import main
from stabilizer.core.knobs import KNOBS, Controls
from stabilizer.core.records import Cause
from stabilizer.incidents.diagnosis import CAUSES
from stabilizer.remedies import FIRST, REMEDIES, RESTORE, advise, fitting, for_cause
from stabilizer.remedies.advice import Advice
from stabilizer.remedies.base import SECTIONS
from tests.series import history

ACTIVE = [remedy for remedy in REMEDIES if not isinstance(remedy, Advice)]
BY_ID = {remedy.id: remedy for remedy in ACTIVE}
each = pytest.mark.parametrize("remedy", ACTIVE, ids=lambda remedy: remedy.id)

DEFAULTS = {
    "control/lr_scale": 1.0, "control/beta": 0.005, "control/kl_kind": 2, "control/epsilon_low": 0.2,
    "control/epsilon_high": 0.28, "control/temperature": 1.0, "control/max_grad_norm": 1.0, "control/entropy_coef": 0.0,
    "control/entropy_target": 0.0, "control/prompts": 32, "control/group_size": 8, "control/inner_epochs": 1,
    "control/minibatches": 2, "control/max_completion": 8, "control/overlong_buffer": 0.0, "control/validate_every": 10,
    "control/advantage": 0, "control/average": 0, "control/filter_groups": 0, "control/mask_truncated": 0,
    "control/mismatch": 0, "control/head_float32": 1, "control/actor_frozen": 0,
}  # fmt: skip

SOFT = {
    "skip-update", "lower-lr", "narrow-clip", "widen-clip", "raise-beta", "grow-batch", "grow-group", "filter-groups",
    "correct-mismatch", "target-entropy", "raise-entropy", "lower-entropy-bonus", "validate-more", "clip-updates",
    "fewer-epochs", "restore-setting",
}  # fmt: skip
HARD = {
    "roll-back", "reset-reference", "reset-optimizer", "raise-lr", "raise-beta-further", "lower-beta",
    "raise-temperature", "other-normaliser", "longer-answers", "mask-truncated", "overlong-penalty", "mend-critic",
    "early-stop", "pause-and-ask", "reweight-prompts", "other-kl-estimator", "shrink-batch",
}  # fmt: skip


def reachable() -> list[dict[str, float]]:
    """Knobs as they may stand: the defaults, and each knob by itself at many of its values."""
    found = [DEFAULTS]
    for name, knob in KNOBS.items():
        values = [1e-3, 0.01, 0.05, 0.2, 0.25, 0.28, 0.5, 1, 1.3, 3, 16, 128]
        for value in [knob.low, knob.high, *range(len(knob.choices)), *values]:
            if name == "control/group_size" and value < 2:
                continue  # refused in a run that compares the answers of a group
            if knob.low <= value <= knob.high and (not knob.whole or value == int(value)):
                found.append(DEFAULTS | {name: value})
    return found


def test_safety_is_what_the_design_says() -> None:
    assert {remedy.id for remedy in ACTIVE if remedy.safety == "soft"} == SOFT
    assert {remedy.id for remedy in ACTIVE if remedy.safety == "hard"} == HARD
    assert {remedy.safety for remedy in REMEDIES if isinstance(remedy, Advice)} == {"advice"}
    assert len({remedy.id for remedy in REMEDIES}) == len(REMEDIES)


@each
def test_page_has_its_sections_and_id_matches_file_and_class(remedy) -> None:
    page = inspect.getdoc(type(remedy)) or ""
    found = [section for section in SECTIONS if f"\n{section}\n" in page]
    assert found == list(SECTIONS)
    assert all(text.strip() for text in re.split("|".join(f"\n{section}\n" for section in SECTIONS), page))
    assert type(remedy).__module__ == f"stabilizer.remedies.{remedy.id.replace('-', '_')}"
    assert type(remedy).__name__ == "".join(word.title() for word in remedy.id.split("-"))
    assert remedy.why and remedy.expects
    assert bool(remedy.answers) is (remedy is not RESTORE), "it answers what was changed, whatever cause is told"


def test_every_file_of_the_catalogue_is_in_use() -> None:
    folder = Path(stabilizer.remedies.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if "(Remedy)" in path.read_text()} - {"advice"}
    assert files == {remedy.id.replace("-", "_") for remedy in ACTIVE}


@each
def test_causes_it_answers_exist(remedy) -> None:
    assert set(remedy.answers) <= set(CAUSES)


def test_what_comes_first_against_a_cause_is_meant_for_it() -> None:
    for cause, first in FIRST.items():
        assert [remedy.id for remedy in for_cause(cause)][: len(first)] == list(first)


@each
def test_changes_name_knobs_start_at_what_they_are_and_stay_within_bounds(remedy) -> None:
    for knobs in reachable():
        for cause in remedy.answers:
            change = remedy.against(cause, knobs)
            for name, (before, after) in (change or {}).items():
                assert before == knobs[name] != after, (name, before, after)
                Controls({name: before}, backend=None).set(name, after)  # refuses what is out of bounds
            for name, values in (remedy.course(change, knobs) if change is not None else {}).items():
                control = Controls({name: knobs[name]}, backend=None)
                for value in values:
                    control.set(name, value)


@each
def test_a_change_taken_back_leaves_every_knob_as_it_was(remedy) -> None:
    for knobs in reachable():
        change = remedy.against((*remedy.answers, "undetermined")[0], knobs)
        if change is None:
            continue
        controls = Controls(knobs, backend=None)
        controls.set_all({name: after for name, (_, after) in change.items()})
        controls.set_all({name: before for name, (before, _) in change.items()})
        assert controls.values() == Controls(knobs, backend=None).values()


@each
def test_applied_again_and_again_it_arrives_at_a_bound_and_stops(remedy) -> None:
    knobs = dict(DEFAULTS)
    for _ in range(40):
        change = remedy.change(knobs)
        if not change:
            return  # nothing more to turn; orders are given once an incident
        knobs |= {name: after for name, (_, after) in change.items()}
    raise AssertionError(f"{remedy.id} never stops: {change}")


UP = ("raise-", "grow-", "widen-", "longer-", "target-", "overlong-")
DOWN = ("lower-", "narrow-", "fewer-", "shrink-", "clip-", "roll-back", "validate-more")


@each
def test_knobs_move_only_the_way_the_name_says(remedy) -> None:
    for knobs in reachable():
        for name, (before, after) in (remedy.change(knobs) or {}).items():
            if name == "control/minibatches":  # fewer of them are larger
                before, after = after, before
            if remedy.id.startswith(UP + DOWN):
                assert (after > before) is remedy.id.startswith(UP), (name, before, after)


@each
def test_without_knobs_there_is_nothing_to_change(remedy) -> None:
    assert remedy.change({}) is None


@each
def test_a_course_ends_where_the_change_leaves_the_knob_or_where_it_was(remedy) -> None:
    change = remedy.change(DEFAULTS)
    for name, values in (remedy.course(change, DEFAULTS) if change is not None else {}).items():
        settled = change[name][1] if name in change else DEFAULTS[name]
        assert values[-1] == settled or (remedy.id == "mend-critic" and values[-1] == DEFAULTS[name])
        assert len(values) <= remedy.horizon + 1, "a trial is judged by what it settled at"


def test_the_automatic_modes_move_lr_by_two_at_a_time_and_four_in_all() -> None:
    for remedy in ACTIVE:
        scale, path = 1.0, [1.0]
        while change := remedy.change(DEFAULTS | {"control/lr_scale": scale}):
            if "control/lr_scale" not in change:
                break
            scale = change["control/lr_scale"][1]
            path.append(scale)
        assert all(1 / 2 <= after / before <= 2 for before, after in itertools.pairwise(path)), remedy.id
        assert all(1 / 4 <= scale <= 4 for scale in path), remedy.id
        course = remedy.course(remedy.change(DEFAULTS) or {}, DEFAULTS).get("control/lr_scale", [])
        assert all(1 / 4 <= scale <= 4 for scale in course)


def test_soft_fixes_raise_beta_to_a_hundredth_and_only_hard_ones_beyond() -> None:
    by_id = {remedy.id: remedy for remedy in ACTIVE}
    assert by_id["raise-beta"].change(DEFAULTS | {"control/beta": 0.0}) == {"control/beta": (0.0, 0.001)}
    assert by_id["raise-beta"].change(DEFAULTS | {"control/beta": 0.008}) == {"control/beta": (0.008, 0.01)}
    assert by_id["raise-beta"].change(DEFAULTS | {"control/beta": 0.01}) is None
    assert by_id["raise-beta-further"].change(DEFAULTS | {"control/beta": 0.008}) is None
    assert by_id["raise-beta-further"].change(DEFAULTS | {"control/beta": 0.01}) == {"control/beta": (0.01, 0.02)}


def test_a_plateau_of_a_small_batch_is_answered_by_batch_then_groups_then_filtering_and_by_the_rate_last() -> None:
    ids = [remedy.id for remedy in for_cause("batch-too-small") if remedy.id != "validate-more"]
    assert ids == ["grow-batch", "grow-group", "filter-groups", "raise-lr"]


def test_a_missing_anchor_is_answered_by_an_anchor_before_a_smaller_step() -> None:
    ids = [remedy.id for remedy in for_cause("no-kl-anchor")]
    assert ids.index("raise-beta") < ids.index("lower-lr")


@pytest.mark.parametrize(
    ("metric", "curve", "reason"),
    [("policy/kl_old", "0.02~0.001x60", False), ("reward/zero_std_frac", "0.7~0.01x60", False),
     ("policy/entropy", "1~0.01x30 0.1~0.01x30", False), ("policy/kl_old", "0.00001x60", True)],
)  # fmt: skip
def test_the_rate_is_raised_only_where_nothing_else_holds_the_run_back(metric: str, curve: str, reason: bool) -> None:
    view = history({"reward/mean": "0.3~0.01x60", metric: curve}).view()
    assert ("raise-lr" in [remedy.id for remedy in fitting("lr-too-low", view)]) is reason


def test_more_answers_are_not_asked_for_where_all_are_right_already() -> None:
    passing = history({"reward/all_pass_frac": "0.8~0.01x40", "reward/all_fail_frac": "0.1~0.01x40"}).view()
    failing = history({"reward/all_pass_frac": "0.1~0.01x40", "reward/all_fail_frac": "0.8~0.01x40"}).view()
    assert "grow-group" not in [remedy.id for remedy in fitting("dead-groups", passing)]
    assert "grow-group" in [remedy.id for remedy in fitting("dead-groups", failing)]


@pytest.mark.parametrize(
    ("silent", "spread", "fit"),
    [("0.1x30 0.75~0.02x20", "0.4x30 0.1~0.01x20", ["reweight-prompts"]),
     ("0.1~0.02x50", "0.4x30 0.15~0.01x20", ["reweight-prompts", "other-normaliser"]),
     ("0.1~0.02x50", "0.4~0.01x50", ["other-normaliser"]), ("0.1x30 1x20", "0.4x30 0x20", [])],
)  # fmt: skip
def test_prompts_are_drawn_anew_where_some_teach_and_some_do_not(silent: str, spread: str, fit: list[str]) -> None:
    view = history({"reward/zero_std_frac": silent, "reward/std_group": spread}).view()
    found = [r.id for r in fitting("dead-groups", view) if r.id in ("reweight-prompts", "other-normaliser")]
    assert found == fit


def test_length_that_is_earned_is_not_charged_for() -> None:
    earned = history({"reward/mean": "0.1+0.01~0.01x60", "rollout/length_reward_corr": "0.5~0.01x60"}).view()
    idle = history({"reward/mean": "0.3~0.01x60", "rollout/length_reward_corr": "0.5~0.01x60"}).view()
    assert "overlong-penalty" not in [remedy.id for remedy in fitting("length-rewarded", earned)]
    assert "overlong-penalty" in [remedy.id for remedy in fitting("length-rewarded", idle)]


def test_rolling_back_turns_the_knob_of_the_cause_where_it_has_one() -> None:
    back = next(remedy for remedy in ACTIVE if remedy.id == "roll-back")
    wide = DEFAULTS | {"control/epsilon_high": 5.0, "control/inner_epochs": 8, "control/entropy_coef": 0.05}
    assert back.against("clip-too-wide", wide) == {"control/epsilon_high": (5.0, 0.28)}
    assert back.against("too-many-epochs", wide) == {"control/inner_epochs": (8, 4)}
    assert back.against("lr-too-high", wide) == {"control/lr_scale": (1.0, 0.5)}
    assert back.against("clip-too-wide", DEFAULTS | {"control/epsilon_high": 0.2}) == {"control/lr_scale": (1.0, 0.5)}


def test_advice_says_how_in_words_that_can_be_followed() -> None:
    view = history({name: f"{value}x40" for name, value in DEFAULTS.items()}).view()
    for cause in CAUSES:
        for advice in advise([Cause(cause, 0.9, "")], view):
            assert len(advice.how) > 20, (cause, advice)
            assert not (advice.safety != "advice" and "--remedy" not in advice.how), advice


def test_of_another_trainer_whose_knobs_are_unknown_the_words_for_doing_it_by_hand_remain() -> None:
    view = history({"reward/mean": "0.3~0.01x40"}).view()
    (said,) = [a for a in advise([Cause("engine-mismatch", 0.9, "")], view) if a.id == "correct-mismatch"]
    assert said.safety == "advice" and "importance sampling" in said.how and not said.change
    assert not [a for a in advise([Cause("saturated", 0.9, "")], view) if a.id == "early-stop"]


@pytest.mark.parametrize(
    ("actor", "said"),
    [
        ({}, {"narrow-clip", "fewer-epochs"}),
        ({"clip_ratio": 0.4, "ppo_epochs": 4}, {"narrow-clip", "fewer-epochs"}),
        ({"clip_ratio": 0.2, "ppo_epochs": 1}, set()),
        ({"clip_ratio": 0.2, "clip_ratio_high": 0.4, "ppo_epochs": 1}, {"narrow-clip"}),
    ],
)
def test_nothing_is_advised_that_the_configuration_of_another_trainer_has_already(actor, said) -> None:
    about = {"trainer": "verl", "config": {"actor_rollout_ref": {"actor": actor}}}
    view = history({"reward/mean": "0.3~0.01x40"}, about=about).view()
    advised = {one.id for one in advise([Cause("lr-too-high", 0.9, "")], view)}
    assert advised & {"narrow-clip", "fewer-epochs"} == said and "roll-back" in advised


def test_the_page_of_a_remedy_can_be_asked_for_by_its_id(capsys) -> None:
    assert main(["detectors", "explain", "roll-back"]) == 0
    said = capsys.readouterr().out
    assert "roll-back (hard)" in said and all(section in said for section in SECTIONS)


@pytest.mark.parametrize("remedy", ["grow-batch", "grow-group", "filter-groups"])
@pytest.mark.parametrize(
    ("silent", "fits"), [("0.85~0.02x40", True), ("0.96~0.01x40", True), ("0.995~0.001x40", False), ("1x40", False)]
)
def test_more_of_the_same_is_no_use_where_no_group_has_spread(remedy: str, silent: str, fits: bool) -> None:
    view = history({"reward/zero_std_frac": silent}).view()
    assert (remedy in {found.id for found in fitting("dead-groups", view)}) is fits


@pytest.mark.parametrize(
    ("silent", "spread", "prompts"),
    [
        ("0.3~0.01x40 0.9~0.01x20", "0.4x60", 16 * 0.7 / 0.4),  # four draws of a tenth fill less than half of a batch
        ("0.3~0.01x40 0.6~0.01x20", "0.4x60", None),  # they fill it
        ("0.3~0.01x60", "0.4x40 0.06~0.001x20", 16 / 0.6),  # groups that hardly differ teach as little as silent ones
    ],
)
def test_silent_prompts_are_replaced_by_as_many_as_leave_no_fewer_groups_to_learn_from(
    silent: str, spread: str, prompts: float | None
) -> None:
    about = {"config": {"policy": {"resample_batches": 4}}}
    view = history({"reward/zero_std_frac": silent, "reward/std_group": spread}, about=about).view()
    remedy = next(r for r in REMEDIES if r.id == "reweight-prompts")
    knobs = {"control/filter_groups": 0, "control/prompts": 16}
    change = remedy.given("dead-groups", knobs, view, 41, {})
    assert change["control/filter_groups"] == (0, 2)
    assert change.get("control/prompts") == ((16, pytest.approx(prompts, abs=3)) if prompts else None)


@pytest.mark.parametrize(
    ("silent", "cause", "prompts"),
    [
        ("0.1~0.01x40 0.7~0.01x20", "dead-groups", 48),  # a third of the groups teach that taught before
        ("0.1~0.01x40 0.95x20", "dead-groups", 64),  # four times at most
        ("0.1~0.01x40 0.3~0.01x20", "dead-groups", 32),
        ("0.1~0.01x40 0.7~0.01x20", "noise-floor", 32),
        ("0.1~0.01x40 0.7~0.01x20", "prompts-too-hard", 48),
        ("0.1~0.01x40 0.2~0.01x20", "prompts-too-hard", None),  # they still teach
    ],
)
def test_a_batch_grows_by_as_many_prompts_as_fell_silent(silent: str, cause: str, prompts: int | None) -> None:
    view = history({"reward/zero_std_frac": silent}).view()
    change = BY_ID["grow-batch"].given(cause, {"control/prompts": 16}, view, 41, {})
    assert change == (prompts and {"control/prompts": (16, pytest.approx(prompts, abs=3))})


@pytest.mark.parametrize("remedy", ["grow-batch", "reweight-prompts"])
@pytest.mark.parametrize(
    ("solved", "answers"), [("0.1x60", True), ("0.1~0.01x40 0.6~0.01x20", False), (None, True)]
)  # fmt: skip
def test_prompts_that_are_solved_are_not_too_hard_though_their_groups_are_silent(
    remedy: str, solved: str | None, answers: bool
) -> None:
    curves = {"reward/zero_std_frac": "0.1~0.01x40 0.7~0.01x20"} | ({"reward/all_pass_frac": solved} if solved else {})
    knobs = {"control/prompts": 16, "control/filter_groups": 0}
    change = BY_ID[remedy].given("prompts-too-hard", knobs, history(curves).view(), 41, {})
    assert bool(change) is answers
    assert BY_ID[remedy].given("dead-groups", knobs, history(curves).view(), 41, {}), "paid alike for another reason"


@pytest.mark.parametrize(
    ("silent", "more", "skips"),
    [("0.9x10", {}, False), ("0.2x10", {}, True), ("0.9x10", {"value/loss": "0.1x10"}, True)],
)
def test_groups_paid_alike_need_no_skipping_unless_a_critic_expected_more_of_them(
    silent: str, more: dict[str, str], skips: bool
) -> None:
    view = history({"reward/zero_std_frac": silent} | more).view()
    assert (not BY_ID["skip-update"].unfit(view)) is skips


@pytest.mark.parametrize(
    ("since", "over"),
    [
        ("0.2~0.02x8", ""),  # still failing
        ("0.2~0.02x6 0.5~0.02x3", "under constant weights"),
        ("0.9~0.02x6 0.4~0.02x3", "under constant weights"),  # what failed paid too much
        ("0.2~0.02x8 0.5~0.02x1", ""),  # one row may be chance
        ("0.2~0.02x7 0.5~0.02x2", ""),  # three tell where it is now
        ("0.2~0.02x2 0.5~0.02x3", ""),  # too few to say where it stood
        ("nanx6 0.5~0.02x3", "a number again"),
        ("0.2~0.02x6 nanx3", ""),
        ("0.2~0.02x20 0.5~0.02x3", ""),  # updates are made again
        ("0.2x1 nanx1 0.2~0.02x4", ""),  # it was one before, and as low
    ],
)
def test_updates_are_skipped_until_the_reward_of_a_policy_that_stands_moves(since: str, over: str) -> None:
    view = history({"reward/mean": f"0.5~0.02x60 {since}"}).view()
    said = BY_ID["skip-update"].over(view, 61)
    assert over in said and bool(said) is bool(over)
    assert not BY_ID["skip-update"].over(history({"policy/entropy": "1x80"}).view(), 61), "nobody measures a reward"


def test_what_outweighs_silent_groups_is_judged_by_the_reward_as_they_stay_silent() -> None:
    for cause in ("dead-groups", "prompts-too-hard"):
        assert "reward/no-signal" in BY_ID["grow-batch"].outlived(cause)
    assert not BY_ID["grow-batch"].outlived("noise-floor"), "a plateau that stays was not helped"


@pytest.mark.parametrize(
    ("apart", "length", "kind", "prompts"),
    [
        ("0x40 0.02x3", "10x43", "tis_sequence", 16 * math.exp(0.4)),  # a fifth of a nat over an answer
        ("0x40 0.06x3", "10x43", "tis_sequence", 16 * math.exp(1.2)),
        ("0x40 0.09x3", "10x43", "tis_token", 16 * math.exp(0.18)),  # of whole answers six times as many: four is most
        ("0x40 0.2x3", "10x43", "tis_token", 16 * math.exp(0.4)),  # two nats: of whole answers nothing would be left
        ("0x40 0.01x3", "1000x43", "tis_token", None),  # long answers: a token costs next to nothing
        (None, "10x43", "tis_token", None),
    ],
)
def test_answers_are_weighed_as_finely_as_leaves_enough_of_them_and_prompts_make_good_for_it(
    apart: str | None, length: str, kind: str, prompts: float | None
) -> None:
    view = history({"rollout/length_mean": length} | ({"policy/mismatch_kl": apart} if apart else {})).view()
    knobs = {"control/mismatch": 0, "control/prompts": 16, "control/lr_scale": 1.0}
    kinds = KNOBS["control/mismatch"].choices
    for remedy in (BY_ID["correct-mismatch"], BY_ID["roll-back"]):
        change = remedy.given("engine-mismatch", knobs, view, 41, {})
        assert change["control/mismatch"] == (0, kinds.index(kind))
        assert change.get("control/prompts") == ((16, pytest.approx(prompts, abs=0.5)) if prompts else None)
        assert ("control/lr_scale" in change) is (bool(apart) and kind == "tis_token")


@pytest.mark.parametrize(
    ("apart", "slower"),
    [
        ("0x40 0.001x1 0.004x1", None),
        ("0x40 0.001x1 0.002x1 0.004x1", True),
        ("0x40 0.003x3", False),
        ("0x40 0.001x3 0.01x5", False),
    ],
)
def test_an_engine_that_falls_behind_asks_for_smaller_steps_too(apart: str, slower: bool | None) -> None:
    view = history({"policy/mismatch_kl": apart, "rollout/length_mean": "10x60"}).view()
    view = view.at(int(view.series("policy/mismatch_kl").steps[-1]))
    knobs = {"control/mismatch": 0, "control/lr_scale": 1.0}
    change = BY_ID["correct-mismatch"].given("engine-mismatch", knobs, view, 41, {})
    assert change is None if slower is None else (change.get("control/lr_scale") == (1.0, 0.5)) is slower


def test_going_back_takes_the_mismatch_away_though_too_few_rows_say_how_large_it_is() -> None:
    view = history({"policy/mismatch_kl": "0x40 0.001x1 0.004x1", "rollout/length_mean": "10x42"}).view()
    knobs = {"control/mismatch": 0, "control/lr_scale": 1.0}
    assert BY_ID["roll-back"].given("engine-mismatch", knobs, view, 41, {}) == {"control/mismatch": (0, 1)}


def test_where_a_critic_judges_silent_prompts_are_outweighed_by_more_of_them() -> None:
    view = history({"reward/zero_std_frac": "0.2~0.01x40 0.7~0.01x20"}, about={"config": {}}).view()
    remedy = BY_ID["reweight-prompts"]
    more = remedy.given("prompts-too-hard", {"control/prompts": 12}, view, 41, {})
    assert more == {"control/prompts": (12, pytest.approx(12 * 0.8 / 0.3, abs=3))}
    assert remedy.given("prompts-too-hard", {"control/prompts": 12, "control/filter_groups": 2}, view, 41, {}) is None
    assert remedy.given("prompts-too-hard", {"control/prompts": 128}, view, 41, {}) is None


def test_a_batch_of_single_answers_is_grown_for_a_critic_alone() -> None:
    single = {"batch/group_size": "1x40", "reward/zero_std_frac": "1x40", "reward/mean": "0.06~0.04x40"}
    assert BY_ID["grow-batch"].unfit(history(single).view())
    assert not BY_ID["grow-batch"].unfit(history(single | {"value/loss": "0.02~0.01x40"}).view())


def test_the_division_by_a_narrow_spread_is_left_out_where_silent_groups_are_filtered() -> None:
    silent = {"reward/zero_std_frac": "0.8~0.05x40"}
    assert BY_ID["other-normaliser"].unfit(history(silent | {"control/filter_groups": "0x40"}).view())
    assert not BY_ID["other-normaliser"].unfit(history(silent | {"control/filter_groups": "1x40"}).view())
    assert [remedy.id for remedy in for_cause("divided-by-spread")] == ["other-normaliser"]
