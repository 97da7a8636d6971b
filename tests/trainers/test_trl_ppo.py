"""TRL's old PPOTrainer, wherever a tracker kept what it logged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stabilizer.analysis.analyse import analyse
from stabilizer.core.records import RemedyAdvice
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers import knobs
from stabilizer.trainers.reading import load
from stabilizer.trainers.trl import old_ppo
from tests.trainers.trl_logs import record, state, write

SAMPLE = Path(__file__).parent / "tool_samples" / "events.out.tfevents.1700000000.trl-0.11-ppo"
VALUES = {key: 0.125 + place for place, key in enumerate([*old_ppo.NAMES, *old_ppo.INSTEAD, "objective/kl"])}
VALUES["objective/kl / tokens"] = VALUES["objective/kl"] / VALUES["tokens/responses_len_mean"]
COMPUTED = "objective/kl / tokens"


def written(folder: Path, keys: list[str], name: str = "log.jsonl") -> LoadedRun:
    """A log of two steps with the trainer's numbers, as anyone may keep them."""
    rows = [{"step": step, **{key: VALUES[key] for key in keys if key != COMPUTED}} for step in (1, 2)]
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load(path)


@pytest.mark.parametrize("theirs,ours", old_ppo.NAMES.items())
def test_each_name_of_the_old_ppo(tmp_path, theirs, ours):
    run = written(tmp_path, [*old_ppo.NAMES, "objective/kl"])
    assert run.history.view().latest(ours) == pytest.approx(VALUES[theirs])
    assert run.history.about["metrics"][ours]["source"] == theirs


@pytest.mark.parametrize("theirs,ours", old_ppo.INSTEAD.items())
def test_each_name_that_serves_where_the_first_is_missing(tmp_path, theirs, ours):
    run = written(tmp_path, [theirs, "ppo/loss/policy", "objective/kl"])
    assert run.history.view().latest(ours) == VALUES[theirs]
    both = written(tmp_path, [*old_ppo.NAMES, theirs])
    assert both.history.view().latest(f"trl/{theirs}") == VALUES[theirs]  # kept, not taken twice


def test_no_two_names_share_one_of_ours():
    assert len(set(old_ppo.NAMES.values())) == len(old_ppo.NAMES)


def test_the_event_file_that_trl_0_11_wrote():
    run = load(SAMPLE)
    view = run.history.view()
    assert (run.source.trainer, run.source.steps, run.history.about["clock"]) == ("trl-old-ppo", 5, "rollout_batch")
    assert view.series("reward/mean").values.tolist() == view.series("trl/env/reward_mean").values.tolist()
    kl, length = view.latest("trl/objective/kl"), view.latest("rollout/length_mean")
    assert view.latest("policy/kl_ref") == pytest.approx(kl / length)
    assert {ours for ours in old_ppo.NAMES.values()} <= set(view.names())


def test_the_kl_of_a_sequence_is_not_taken_for_that_of_a_token(tmp_path):
    run = written(tmp_path, ["ppo/mean_scores", "objective/kl"])  # no lengths beside it
    assert "policy/kl_ref" not in run.history.names()
    assert "sum over a sequence" in load(SAMPLE).history.about["metrics"]["policy/kl_ref"]["estimator"]


def test_a_gradient_norm_that_is_not_logged_is_not_judged():
    said = {item.id for item in analyse(load(SAMPLE)).not_checked}
    assert "optim/grad-explosion" in said


def test_the_configuration_a_tracker_keeps_is_unwrapped():
    settings = old_ppo.with_beta({"trl_ppo_trainer_config": {"init_kl_coef": 0.2, "ppo_epochs": 4}, "_wandb": {}})
    assert settings == {"init_kl_coef": 0.2, "ppo_epochs": 4, "beta": 0.2}
    assert old_ppo.with_beta({"init_kl_coef": "a lot"}) == {"init_kl_coef": "a lot"}


@pytest.mark.parametrize("trainer,key", [("trl-ppo", "kl_coef=0.001"), ("trl-old-ppo", "init_kl_coef=0.001")])
def test_advice_uses_the_keys_of_ppo_and_not_of_grpo(trainer, key):
    advice = RemedyAdvice("raise-beta", "soft", {"control/beta": (0.0, 0.001)}, "why", "")
    text = knobs.how(trainer, advice, {}, onset=9)
    assert text.startswith(f"{key} in PPOConfig")


def test_the_experimental_ppo_is_a_trainer_of_its_own(tmp_path):
    run = load(write(tmp_path, state("ppo")))
    assert run.source.trainer == "trl-ppo" and "GRPOConfig" not in json.dumps(run.history.about)
    assert run.history.view().latest("value/clip_frac") == record("ppo", 40)["val/clipfrac_avg"]
    assert load(write(tmp_path / "grpo", state("1.16"))).source.trainer == "trl"


def test_an_objective_of_another_program_is_not_trls(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "objective/kl": 0.5, "reward": 1}\n{"step": 2, "objective/kl": 0.5, "reward": 1}\n')
    assert load(path).source.trainer == "unknown"
