"""Questions that users ask about healthy logs are answered, and only where the log shows the pattern."""

import numpy as np
import pytest

from stabilizer.analysis.normal import NORMAL, normal
from tests.analysis.test_changes import noise, view

ROWS = 30
UP = np.linspace(0.3, 0.6, ROWS)
STEADY = np.full(ROWS, 0.5)
KL = np.linspace(0, 0.03, ROWS)
CASES = {
    "loss-is-beta-kl": {
        "policy__loss": 0.04 * np.linspace(0, 0.03, ROWS),
        "policy__kl_ref": np.linspace(0, 0.03, ROWS),
    },
    "loss-zero": {"policy__loss": np.zeros(ROWS), "optim__grad_norm": 0.1 + 0.01 * noise(ROWS, 0)},
    "loss-negative": {"policy__loss": -0.02 + 0.001 * noise(ROWS, 1)},
    "loss-rises": {"policy__loss": np.linspace(-0.2, 0.3, ROWS), "reward__mean": UP},
    "clip-zero": {"policy__clip_frac": np.zeros(ROWS)},
    "silent-when-solved": {"reward__zero_std_frac": np.full(ROWS, 0.8), "reward__mean": np.full(ROWS, 0.95)},
    "binary-spread": {"reward__std_group": [0, 0.5] * 15, "reward__mean": STEADY},
    "kl-negative": {"policy__kl_ref": 0.001 * noise(ROWS, 2)},
    "kl-zero-at-start": {"policy__kl_ref": [0.0, 0.001, 0.002]},
    "reward-out-of-unit": {"reward__mean": np.linspace(-1.5, 2.1, ROWS)},
    "entropy-falls": {"policy__entropy": np.linspace(1.0, 0.5, ROWS), "reward__mean": UP},
    "warmup-rate": {"optim__lr": [0.0, 1e-7, 2e-7]},
    "slow-first-step": {"time__step_s": [60.0, 10.0, 11.0, 10.0, 10.5]},
    "validation-apart": {"accuracy__train": STEADY, "accuracy__val": np.full(ROWS, 0.7)},
    "fractional-epochs": {"progress__epoch": np.linspace(0, 0.2, ROWS)},
    "length-in-tokens": {"rollout__length_mean": np.full(20, 200.0), "rollout__length_max": np.full(20, 900.0)},
    "lengths-grow": {"rollout__length_mean": np.linspace(200, 500, ROWS), "reward__mean": UP},
    "lengths-shrink": {"rollout__length_mean": np.linspace(200, 20, ROWS), "reward__mean": UP},
    "accuracy-in-steps": {"accuracy__val": [0.25, 0.28125, 0.25, 0.3125, 0.28125]},
    "noisy-reward": {"reward__mean": 0.5 + 0.2 * noise(ROWS, 3).clip(-1, 1)},
    "ratio-spikes": {"policy__ratio_max": [1.2, 9.0, 1.5, 1.4], "policy__clip_frac": [0.001] * 4},
}


def ids(shown):
    return [item.id for item in normal(shown)]


@pytest.mark.parametrize("name", CASES)
def test_the_pattern_is_answered_with_its_numbers(name):
    found = {item.id: item.why for item in normal(view(**CASES[name]))}
    assert name in found and any(character.isdigit() for character in found[name])


def test_there_are_at_least_twenty_answers_each_with_a_source():
    assert len({name for name, _, _ in NORMAL}) == len(NORMAL) >= 20
    assert all(source for _, _, source in NORMAL)


def test_longer_answers_of_a_model_s_score_are_not_called_normal():
    longer = CASES["lengths-grow"]
    assert "lengths-grow" in ids(view(**longer))
    assert "lengths-grow" not in ids(view(**longer | {"reward__mean": 5 * longer["reward__mean"]}))


def test_settings_explain_a_norm_above_its_limit_and_a_rising_entropy():
    shown = view(optim__grad_norm=[2.0, 3.0, 0.5])
    assert ids(shown) == []
    shown._history.about["config"] = {"max_grad_norm": 1.0}
    assert ids(shown) == ["norm-above-limit"]


@pytest.mark.parametrize(
    "series",
    [
        {"reward__mean": UP, "policy__kl_ref": 0.01 + 0 * UP, "policy__entropy": STEADY},
        {"policy__loss": 0.5 + 0.01 * noise(ROWS, 4), "optim__grad_norm": STEADY},
        {"policy__entropy": np.linspace(1.0, 0.01, ROWS), "reward__mean": STEADY},
    ],
    ids=["nothing odd", "an ordinary loss", "a collapse of entropy"],
)
def test_a_log_without_such_a_pattern_gets_no_answer(series):
    assert ids(view(**series)) == []
