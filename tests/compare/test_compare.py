"""What is said of runs whose truth is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stabilizer.compare import VERDICTS, as_json, compare
from stabilizer.compare.smoothing import averaged
from stabilizer.compare.support import remarks, resolution, support
from stabilizer.runs.reader import RunError
from tests.compare.synthetic import ar1, learning, member, noisy, side

CONFIG = {"optim": {"lr": 1e-4}, "rollout": {"prompts": 16, "group_size": 8}, "seed": 1}


def changed(**leaves) -> dict:
    optim, rollout = dict(CONFIG["optim"]), dict(CONFIG["rollout"])
    for key, value in leaves.items():
        (optim if key in optim else rollout)[key] = value
    return {"optim": optim, "rollout": rollout, "seed": 2}


def two(a: np.ndarray, b: np.ndarray, *, mine=None, theirs=None, **options):
    first = member(a, "a", config=mine or CONFIG, **options)
    second = member(b, "b", config=theirs or {**CONFIG, "seed": 2}, **options)
    return compare(side(first), side(second))


def explained(answer, gap: str) -> dict[str, bool]:
    return {item.cause: item.explains for item in answer.explanations if item.gap == gap}


# --- same -----------------------------------------------------------------------------------------------------------


def test_two_seeds_of_one_configuration_are_the_same_within_noise() -> None:
    verdicts = [two(noisy(2 * s, sd=0.05), noisy(2 * s + 1, sd=0.05)).verdict for s in range(12)]
    assert verdicts.count("same") >= 10


def test_same_says_there_is_nothing_to_change() -> None:
    answer = two(noisy(0, sd=0.05), noisy(1, sd=0.05))
    assert answer.verdict == "same" and answer.next.what == "nothing to change" and not answer.then
    assert "within" in answer.headline


def test_a_run_cut_short_is_no_other_run_for_having_had_less_time_to_rise() -> None:
    # one curve, 1 - exp(-step / 60), drawn to step 150 (0.92 of the way) and to step 400 (0.999): full peaks differ
    curve = 1 - np.exp(-np.arange(400) / 60)
    verdicts = []
    for seed in range(8):
        noise = [0.05 * ar1(np.random.default_rng(2 * seed + k), 400, 0.3) for k in (0, 1)]
        answer = two(curve + noise[0], (curve + noise[1])[:150])
        peak, time = answer.main.gap("peak"), answer.main.gap("time-to-peak")
        verdicts += [answer.verdict, peak.state, time.state]
        assert "up to step 150" in peak.estimator
    assert verdicts.count("different") <= 1


def test_runs_without_a_common_step_are_not_judged() -> None:
    early, late = noisy(1, 100), member(noisy(2, 100), "late")
    late.series["reward/mean"].steps[:] += 1000
    steps = np.arange(1001.0, 1101.0)
    late.clocks["step"] = (steps, steps)
    answer = compare(side(member(early)), side(late))
    assert answer.verdict == "undetermined" and "no steps in common" in answer.headline
    assert {gap.state for gap in answer.main.gaps} == {"undetermined"}


def test_a_long_reference_is_compared_where_a_short_run_ends_however_it_is_thinned() -> None:
    # 20,000 points are thinned to 600, of which the first stands for steps 1 to 34
    answer = two(noisy(3, 30, sd=0.01, low=0.5, high=0.6), 0.1 + 0.01 * np.random.default_rng(0).normal(size=20_000))
    assert answer.verdict == "different" and answer.main.gap("level-at-end").direction == "higher"


def test_values_beyond_any_measure_are_left_out() -> None:
    wild = noisy(5)
    wild[40:50] = 1e308
    assert two(wild, noisy(6)).verdict in ("same", "undetermined")
    assert two(noisy(5), 1e-320 * np.arange(300)).verdict == "different"


def test_wide_intervals_are_undetermined_not_same() -> None:
    answer = two(noisy(4, 24, sd=0.3, phi=0.6), noisy(5, 24, sd=0.3, phi=0.6))
    assert answer.verdict == "undetermined" and "not ruled out" in answer.headline
    assert "seed" in answer.next.what


def test_a_run_beside_itself_is_identical() -> None:
    answer = two(noisy(1), noisy(1))
    assert answer.verdict == "identical" and not answer.explanations


# --- different ------------------------------------------------------------------------------------------------------


def test_a_lower_level_is_different_and_the_changed_learning_rate_is_tried_first() -> None:
    answer = two(noisy(0, high=0.7), noisy(1), mine=changed(lr=3e-5))
    assert answer.verdict == "different" and answer.main.gap("final-level").direction == "lower"
    assert explained(answer, "final-level") == {"lr": True}
    assert (answer.next.key, answer.next.value, answer.next.target) == ("optim.lr", 3e-5, 1e-4)


def test_a_seed_that_fell_back_leads_the_headline_and_a_steady_or_noisy_one_does_not() -> None:
    fallen = np.concatenate([noisy(3, 150), 0.1 * ar1(np.random.default_rng(4), 150, 0.3)])
    answer = compare(side(member(noisy(0), "s0"), member(fallen, "s1")), side(member(noisy(1), "r")))
    assert answer.headline.startswith("1 of 2 seeds of the run fell back, s1: reward/mean from ")
    beside = compare(side(member(noisy(0), "s0")), side(member(fallen, "r")))
    assert beside.headline.startswith("The reference fell back: ")
    for seed in range(10):
        calm = two(noisy(2 * seed), 0.3 * ar1(np.random.default_rng(seed), 300, 0.3))
        assert "fell back" not in calm.headline


def test_a_run_that_ends_higher_is_not_told_to_copy_the_reference() -> None:
    answer = two(noisy(0, high=0.75), noisy(1, high=0.65), mine=changed(lr=3e-5))
    assert explained(answer, "final-level") == {"lr": True} and answer.next.key is None and not answer.then
    assert answer.next.what == "keep the settings of the run" and "3e-05 -> 0.0001 might undo" in answer.next.why


def test_one_variable_at_a_time() -> None:
    answer = two(noisy(0, high=0.6), noisy(1), mine=changed(lr=3e-5, group_size=4), theirs=CONFIG)
    assert answer.next.key == "optim.lr" and [change.key for change in answer.then] == ["rollout.group_size"]


def test_a_gap_without_a_known_difference_is_undetermined() -> None:
    answer = two(noisy(0, high=0.6), noisy(1))
    assert explained(answer, "final-level") == {"undetermined": True}
    assert answer.next.what.startswith("another seed")


def test_smaller_batches_explain_the_noise_by_their_root() -> None:
    answer = two(noisy(0, sd=0.2, phi=0.0), noisy(1, sd=0.1, phi=0.0), mine=changed(prompts=4))
    # 4 x 8 completions against 16 x 8: sqrt(128 / 32) = 2 times the noise
    gap = answer.main.gap("noise")
    assert gap.state == "different" and gap.low < 2 < gap.high
    assert explained(answer, "noise")["batch-size"] is True
    assert "= 2 times" in next(item.why for item in answer.explanations if item.cause == "batch-size")
    assert answer.next.key == "rollout.prompts" and answer.next.target == 16


def test_a_batch_of_the_wrong_direction_does_not_explain_noise() -> None:
    answer = two(noisy(0, sd=0.3, phi=0.0), noisy(1, sd=0.1, phi=0.0), mine=changed(prompts=64))
    assert explained(answer, "noise")["batch-size"] is False


def test_equal_batches_and_a_calm_reference_point_to_smoothing() -> None:
    first = member(noisy(0, sd=0.2, phi=0.0), "a", config=CONFIG)
    calm = averaged(noisy(1, sd=0.2, phi=0.0), 0.8)
    answer = compare(side(first), side(member(calm, "b", kind="curve", config=CONFIG)))
    assert explained(answer, "noise") == {"batch-size": False, "smoothing": True}
    said = next(item for item in answer.explanations if item.cause == "smoothing")
    assert said.sure == "medium" and "autocorrelation" in said.why
    logged = compare(side(first), side(member(calm, "b", config=CONFIG)))  # a trainer's own log is not smoothed
    assert "smoothing" not in explained(logged, "noise")


def test_a_reference_stated_to_be_unsmoothed_is_believed() -> None:
    first = member(noisy(0, sd=0.3, phi=0.0), "a", config=CONFIG)
    second = member(noisy(1, sd=0.1, phi=0.0), "b", config=CONFIG, smoothing="none")
    answer = compare(side(first), side(second))
    assert explained(answer, "noise") == {"batch-size": False, "smoothing": False, "undetermined": True}


def test_a_reward_of_0_and_1_is_calmer_near_its_ends() -> None:
    rng = np.random.default_rng(0)
    # right or wrong, 64 a step: sqrt(0.5 x 0.5) / sqrt(0.02 x 0.98) = 3.6 times the noise in the middle
    middle, end = (rng.binomial(64, p, 300) / 64 for p in (0.5, 0.02))
    answer = two(middle, end)
    gap = answer.main.gap("noise")
    assert explained(answer, "noise")["level"] is True and gap.low < 3.57 < gap.high
    assert "level" not in explained(two(noisy(0, sd=0.1, phi=0.0), noisy(1, sd=0.02, phi=0.0)), "noise")


def test_a_higher_rate_explains_an_earlier_peak_and_a_lower_one_does_not() -> None:
    early, late = noisy(0, sd=0.03, time=0.05), noisy(1, sd=0.03, time=0.2)
    # the rate is 4 times as high and the peak comes after a quarter of the steps
    for lr, fits in ((4e-4, True), (2e-5, False)):
        answer = two(early, late, mine=changed(lr=lr))
        assert answer.main.gap("time-to-peak").state == "different"
        assert explained(answer, "time-to-peak")["lr-x-updates"] is fits


def test_a_multiplied_reward_is_recognised_by_trend_and_noise_together() -> None:
    answer = two(3 * noisy(0), noisy(1), mine=changed(lr=3e-5))
    assert answer.verdict == "rescaled" and answer.next.what == "bring the reward to one scale"
    # more noise alone, or a higher level alone, is no other scale
    assert not two(noisy(0, sd=0.3), noisy(1)).main.rescaled
    assert not two(noisy(0, high=3), noisy(1)).main.rescaled


# --- support --------------------------------------------------------------------------------------------------------


def test_a_reward_never_above_zero_cannot_match_one_from_0_to_1() -> None:
    answer = two(noisy(0, low=-10, high=-1), noisy(1, sd=0.01, low=0.05, high=0.9))
    assert answer.verdict == "not-comparable" and "never above 0" in answer.headline
    assert {gap.state for gap in answer.main.gaps if gap.scale == "linear"} == {"not-comparable"}
    assert answer.next.what == "plot the same reward on both sides"
    assert explained(answer, "support")["reward-function"]


def test_an_engine_explains_no_reward_range() -> None:
    config = {**CONFIG, "rollout": {**CONFIG["rollout"], "engine": "vllm"}}
    answer = two(noisy(0, low=-10, high=-1), noisy(1, sd=0.01, low=0.05, high=0.9), theirs=config)
    assert explained(answer, "support") == {"reward-function": True, "generation-engine": False}


def test_means_below_zero_with_a_spread_that_only_both_signs_allow_are_no_conflict() -> None:
    # 128 rewards <= 0 with mean -0.01 have a deviation of at most sqrt(128) x 0.01 = 0.11; 0.9 needs rewards above 0
    mean = -0.01 - 0.3 * np.exp(-np.arange(100) / 20)
    first = member(mean, "a", per_step=128, more={"reward/std": np.full(100, 0.9)})
    second = member(learning(100), "b", per_step=128)
    answer = compare(side(first), side(second))
    assert answer.main.supports[0].sign == "both" and not answer.main.conflict


def test_resolution_of_means_and_of_single_rewards() -> None:
    rng = np.random.default_rng(0)
    whole = rng.integers(-10, 1, size=(60, 16)).mean(axis=1)
    assert resolution(whole) == pytest.approx(1 / 16)
    assert (
        compare(side(member(whole, per_step=16)), side(member(whole + 0, "b", per_step=16))).main.supports[0].single
        == 1
    )
    assert resolution(rng.normal(size=60)) is None and resolution(np.array([0.0, 1.0] * 9)) is None


def test_rewards_of_other_terms_are_not_compared_by_level() -> None:
    terms = {"reward/format/mean": learning(300), "reward/accuracy/mean": learning(300)}
    first = member(noisy(0), "a", more=terms)
    second = member(noisy(1), "b", more={"reward/format/mean": learning(300), "reward/brevity/mean": learning(300)})
    answer = compare(side(first), side(second))
    assert answer.verdict == "not-comparable" and "brevity" in answer.headline


# --- clocks, metrics, seeds -----------------------------------------------------------------------------------------


def test_equal_steps_are_the_clock_and_unequal_ones_are_not() -> None:
    a, b = noisy(0), noisy(1)
    same = compare(side(member(a, "a", per_step=8)), side(member(b, "b", per_step=8)))
    other = compare(side(member(a, "a", per_step=8)), side(member(b, "b", per_step=64)))
    assert same.clock.name == "step" and "8 completions" in same.clock.why
    assert other.clock.name == "samples" and "not equal amounts" in other.clock.why
    assert other.main.gap("level-at-end") is not None  # the run ends after an eighth of the reference's completions


def test_steps_of_unknown_size_are_compared_with_a_warning() -> None:
    answer = two(noisy(0), noisy(1))
    assert answer.clock.name == "step" and any("may not mean the same" in text for text in answer.cautions)


def test_an_absent_clock_is_refused_with_what_it_needs() -> None:
    with pytest.raises(RunError, match="tokens/total"):
        compare(side(member(noisy(0), "a")), side(member(noisy(1), "b")), by="tokens")


def test_the_spread_of_seeds_is_believed_of_a_lone_run_too() -> None:
    seeds = [member(noisy(s) + shift, f"s{s}") for s, shift in enumerate((-0.4, 0.0, 0.4))]
    lone = member(noisy(9) + 0.35, "lone")
    assert compare(side(lone), side(seeds[1])).main.gap("final-level").state == "different"
    gap = compare(side(lone), side(*seeds)).main.gap("final-level")
    assert gap.state == "undetermined" and gap.reference.seeds == 3


def test_metrics_of_other_names_are_paired_on_request() -> None:
    first, second = member(noisy(0), "a", metric="reward/mean"), member(noisy(1), "b", metric="score")
    with pytest.raises(RunError, match="no metric in common.*--metric"):
        compare(side(first), side(second))
    answer = compare(side(first), side(second), metrics=["reward/mean=score"])
    assert (answer.main.run_metric, answer.main.reference_metric) == ("reward/mean", "score")
    with pytest.raises(RunError, match="has no 'scores'"):
        compare(side(first), side(second), metrics=["reward/mean=scores"])


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_runs_of_a_few_points_are_answered_without_intervals(count: int) -> None:
    answer = two(noisy(0)[:count], noisy(1))
    assert answer.verdict == "undetermined" and any("no interval" in text for text in answer.cautions)
    json.dumps(as_json(answer), allow_nan=False)


def test_nan_is_left_out_and_said() -> None:
    values = noisy(0)
    values[250:] = np.nan
    values[10] = np.inf
    answer = two(values, noisy(1))
    assert any("51 of 300 values" in text and "at its end" in text for text in answer.cautions)
    json.dumps(as_json(answer), allow_nan=False)


def test_constant_runs_have_no_noise_and_do_not_fail() -> None:
    assert two(np.full(50, 0.5), np.full(50, 0.5)).verdict == "identical"
    assert two(np.full(50, 0.5), np.full(50, 0.75)).verdict == "different"


def test_json_has_what_it_promises() -> None:
    told = as_json(two(noisy(0, high=0.7), noisy(1), mine=changed(lr=3e-5)))
    assert told["schema"] == 1 and told["verdict"] in VERDICTS
    assert set(told) == {
        "schema", "verdict", "headline", "run", "reference", "clock", "metrics", "differences", "one_sided",
        "explanations", "unknown", "next", "then", "cautions",
    }  # fmt: skip
    gap = next(gap for gap in told["metrics"][0]["gaps"] if gap["id"] == "final-level")
    assert gap["interval_99"][0] < gap["difference"] < gap["interval_99"][1] < 0 and gap["estimator"]
    assert told["next"]["key"] == "optim.lr"
    json.dumps(told, allow_nan=False)


def test_only_differences_are_listed_and_names_of_other_trainers_are_known() -> None:
    first = member(noisy(0), "a", config={**CONFIG, "other": {"x": 1}}, versions={"torch": "2.9"})
    config = {"learning_rate": 2e-6, "num_generations": 8, "output_dir": "/x", "other": {"x": 1}}
    second = member(noisy(1), "b", kind="trl_trainer_state", config=config, versions={"torch": "2.8"})
    answer = compare(side(first), side(second))
    assert {(d.key, d.run, d.reference) for d in answer.differences} == {
        ("optim.lr", 1e-4, 2e-6), ("versions.torch", "2.9", "2.8"),
    }  # fmt: skip


def test_length_and_speed_have_their_own_explanations() -> None:
    rng = np.random.default_rng(0)
    longer, shorter = (level + ar1(rng, 300, 0.2) for level in (40, 20))
    slow, fast = (level + 0.05 * ar1(rng, 300, 0.2) for level in (4, 1))
    mine = {**CONFIG, "rollout": {**CONFIG["rollout"], "max_completion": 64}}
    theirs = {**CONFIG, "rollout": {**CONFIG["rollout"], "max_completion": 32}}
    first = member(noisy(0), "a", more={"rollout/length_mean": longer, "time/step_s": slow}, config=mine)
    second = member(noisy(1), "b", more={"rollout/length_mean": shorter, "time/step_s": fast}, config=theirs,
                    hardware={"gpus": 8})  # fmt: skip
    answer = compare(side(first), side(second))
    assert explained(answer, "rollout/length_mean") == {"max_completion": True}
    assert "processes" in explained(answer, "time/step_s")


def test_only_a_run_of_few_points_is_said_to_have_no_interval():
    long, short = (side(member(noisy(seed, count))) for seed, count in ((1, 300), (2, 5)))
    assert not any("no interval" in text for text in compare(long, side(member(noisy(3)))).cautions)
    assert any("5 points of reward/mean; no interval" in text for text in compare(short, long).cautions)


def test_another_grain_of_single_rewards_is_remarked_and_the_same_is_not():
    """Means of 16 rewards of 0 or 1 lie on sixteenths; of 0, 0.5 or 1 on thirty-seconds."""
    rng = np.random.default_rng(0)
    coarse, again = (rng.binomial(16, 0.5, 200) / 16 for _ in range(2))
    fine = rng.binomial(32, 0.5, 200) / 32
    first = side(member(coarse, per_step=16))
    other, same = (support(side(member(values, per_step=16)), "reward/mean") for values in (fine, again))
    mine = support(first, "reward/mean")
    assert (mine.single, other.single) == (pytest.approx(1.0), pytest.approx(0.5))
    assert any("steps of 1 here and 0.5 in the reference" in text for text in remarks(mine, other))
    assert remarks(mine, same) == []


def logging(rates_a: np.ndarray, rates_b: np.ndarray):
    """A late and an early run that log their learning rate and state nothing."""
    late = member(noisy(0, time=0.25, sd=0.03), "a", kind="trl", more={"optim/lr": rates_a})
    return compare(side(late), side(member(noisy(1, time=0.1, sd=0.03), "b", kind="trl", more={"optim/lr": rates_b})))


def silent(answer) -> bool:
    return any("does not state its learning rate" in found.why for found in answer.explanations)


def test_a_learning_rate_that_is_only_logged_is_known_too() -> None:
    answer = logging(np.full(300, 1e-6), np.linspace(3e-6, 0, 300))
    assert not silent(answer)
    assert [(found.label, found.run, found.reference) for found in answer.differences] == [
        ("learning rate", 1e-6, 3e-6)
    ]


def test_a_learning_rate_that_was_rounded_to_nothing_stays_unknown() -> None:
    assert silent(logging(np.zeros(300), np.zeros(300)))


def test_the_first_row_of_a_schedule_is_no_other_learning_rate() -> None:
    logged = member(noisy(0), "a", kind="trl", more={"optim/lr": np.linspace(0.999e-6, 0, 300)})
    stated = member(noisy(1), "b", kind="trl", config={"learning_rate": 1e-6})
    assert compare(side(logged), side(stated)).differences == ()
