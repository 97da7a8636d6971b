"""Inside real TRL: every step is on record, weights stay what they were, knobs act, and our failures stay ours."""

from __future__ import annotations

import json
import time
from importlib.util import find_spec

import pytest

TRL = find_spec("trl") is not None
pytestmark = pytest.mark.skipif(not TRL, reason="needs TRL: make test-trl runs these in an environment of their own")

if TRL:
    import torch
    from peft import LoraConfig

    from stabilizer.core.knobs import KNOBS
    from stabilizer.guests.attach import attach
    from stabilizer.runs.reader import RunReader
    from tests.guests.tiny_trl import trainer


def weights(of):
    return torch.cat([p.detach().flatten() for p in of.model.parameters()])


def turn(guest, plan):
    """Set knobs when the row of a step is logged; returns the changes of each step as they come."""
    plain, changes = guest.log, {}

    def log(metrics, step=None, **more):
        for name, value in plan.get(step, {}).items():
            guest._controls.set(name, value)
        decision = plain(metrics, step, **more)
        changes[step] = dict(decision.changes)
        return decision

    guest.log = log
    return changes


@pytest.mark.parametrize("rloo", [False, True])
def test_every_step_is_a_row_equal_to_trls_own_log(tmp_path, rloo):
    run = trainer(tmp_path / "out", rloo=rloo)
    guest = attach(run, runs=tmp_path / "runs")
    run.train()
    view = RunReader(guest.path).history.view()
    logged = [row for row in run.state.log_history if "reward" in row]
    assert [row["step"] for row in logged] == view.series("reward/mean").steps.tolist() == [1, 2, 3, 4]
    for ours, theirs in {
        "reward/mean": "reward", "optim/grad_norm": "grad_norm", "optim/lr": "learning_rate", "policy/loss": "loss",
        "policy/entropy": "entropy", "rollout/length_mean": "completions/mean_length",
    }.items():  # fmt: skip
        assert view.series(ours).values.tolist() == pytest.approx([row[theirs] for row in logged], rel=1e-5, abs=1e-6)
    about = json.loads((guest.path / "run.json").read_text())
    assert about["trainer"] == "trl" and about["config"]["num_generations"] == 4 and about["versions"]["trl"]
    assert json.loads((guest.path / "status.json").read_text())["state"] == "finished"


def test_steps_between_two_logs_are_rows_too(tmp_path):
    run = trainer(tmp_path / "out", steps=6, logging_steps=3)
    guest = attach(run, runs=tmp_path / "runs")
    run.train()
    view = RunReader(guest.path).history.view()
    assert view.series("reward/mean").steps.tolist() == [1, 2, 3, 4, 5, 6]
    means = view.series("reward/mean").values.reshape(2, 3).mean(1)
    logged = [row["reward"] for row in run.state.log_history if "reward" in row]
    assert means.tolist() == pytest.approx(logged, rel=1e-5)


def test_completions_are_kept_with_their_rewards(tmp_path):
    run = trainer(tmp_path / "out", steps=10)
    guest = attach(run, runs=tmp_path / "runs")
    run.train()
    samples = RunReader(guest.path).samples(10)
    assert len(samples) == 8
    assert all(sample.reward == sample.completion.count("1") for sample in samples)


def test_a_guest_that_changes_nothing_changes_no_bit(tmp_path):
    alone = trainer(tmp_path / "a")
    alone.train()
    watched = trainer(tmp_path / "b")  # seeds everything again
    attach(watched, runs=tmp_path / "runs")
    watched.train()
    assert torch.equal(weights(alone), weights(watched))


def test_a_knob_that_is_set_acts_at_the_next_step(tmp_path):
    run = trainer(tmp_path / "out", steps=6, beta=0.1)
    guest = attach(run, runs=tmp_path / "runs")
    changes = turn(guest, {3: {"control/lr_scale": 0.5, "control/beta": 0.2, "control/epsilon_high": 0.4}})
    run.train()
    assert set(changes[3]) == {"control/lr_scale", "control/beta", "control/epsilon_high"} <= set(KNOBS)
    assert (run.beta, run.epsilon_high) == (0.2, 0.4)
    rates = [row["learning_rate"] for row in run.state.log_history if "learning_rate" in row]
    assert rates[:3] == pytest.approx([1e-3] * 3) and rates[4:] == pytest.approx([5e-4] * 2)


def test_beta_that_leaves_zero_waits_for_the_next_generation(tmp_path):
    run = trainer(tmp_path / "out", steps=12, beta=0.1, num_iterations=4)
    guest = attach(run, runs=tmp_path / "runs")
    turn(guest, {2: {"control/beta": 0.0}, 6: {"control/beta": 0.1}})
    run.train()
    logged = {row["step"]: "kl" in row for row in run.state.log_history if "reward" in row or "loss" in row}
    assert [step for step, measured in logged.items() if not measured] == [5, 6, 7, 8]


def test_adapters_get_a_kl_to_their_base_from_beta_zero(tmp_path):
    adapters = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
    run = trainer(tmp_path / "out", steps=6, adapters=adapters, num_iterations=4, learning_rate=0.05)
    guest = attach(run, runs=tmp_path / "runs")
    turn(guest, {2: {"control/beta": 0.05}})
    run.train()
    kl = RunReader(guest.path).history.view().series("policy/kl_ref")
    assert kl.steps.tolist() == [5, 6] and all(value > 0 for value in kl.values)


def test_an_evaluation_between_two_logs_changes_no_row(tmp_path):
    rows = []
    for folder, settings in (("a", {}), ("b", {"eval_strategy": "steps", "eval_steps": 2})):
        run = trainer(tmp_path / folder, steps=8, logging_steps=4, per_device_eval_batch_size=8, **settings)
        guest = attach(run, runs=tmp_path / "runs", name=folder)
        run.train()
        means = RunReader(guest.path).history.view().series("reward/mean").values
        logged = [row["reward"] for row in run.state.log_history if "reward" in row]
        assert means.reshape(2, 4).mean(1).tolist() == pytest.approx(logged, rel=1e-5)
        rows.append(means.tolist())
    assert rows[0][:2] == rows[1][:2]  # the evaluation draws random numbers of its own afterwards


def test_a_training_that_raises_is_on_record_as_failed(tmp_path):
    def broken(completions, **others):
        raise ZeroDivisionError("in the reward")

    run = trainer(tmp_path / "out", reward=broken)
    guest = attach(run, runs=tmp_path / "runs")
    with pytest.raises(ZeroDivisionError, match="in the reward"):
        run.train()
    assert json.loads((guest.path / "status.json").read_text())["state"] == "failed"


def test_only_the_main_process_has_a_run(tmp_path):
    class Second:
        args = type("Arguments", (), {"process_index": 1, "world_size": 2})

    assert attach(Second(), runs=tmp_path / "runs") is None and not (tmp_path / "runs").exists()


def test_beta_is_not_offered_where_no_reference_was_loaded(tmp_path, capsys):
    attach(trainer(tmp_path / "out"), runs=tmp_path / "runs").finish()
    said = capsys.readouterr().out
    assert "knobs: lr, epsilon_low, epsilon_high, max_grad_norm" in said


@pytest.mark.parametrize("part", ["row", "samples", "saw_norm", "saw_loss"])
def test_what_fails_in_a_hook_does_not_reach_the_training(tmp_path, monkeypatch, part, capsys):
    from stabilizer.guests import attach as module

    def fails(*_):
        raise RuntimeError("ours")

    monkeypatch.setattr(module._Guest, part, fails)
    run = trainer(tmp_path / "out", steps=2)
    attach(run, runs=tmp_path / "runs")
    run.train()
    assert run.state.global_step == 2 and "RuntimeError: ours" in capsys.readouterr().err


def test_a_run_that_is_asked_to_stop_stops(tmp_path):
    run = trainer(tmp_path / "out", steps=50)
    guest = attach(run, runs=tmp_path / "runs")
    guest._host.stop("a test")
    run.train()
    assert run.state.global_step == 1


def slow_judge(completions, **others):
    slow_judge.calls += 1
    if slow_judge.calls == 3:
        time.sleep(4)
    return [float(len(text)) for text in completions]


def test_a_reward_that_hangs_is_located_and_the_weights_stay_the_same(tmp_path, monkeypatch):
    slow_judge.calls = 3
    plain = trainer(tmp_path / "plain" / "out", reward=slow_judge)
    plain.train()
    slow_judge.calls = 0
    monkeypatch.setenv("STABILIZER_HANG_S", "1")
    run = trainer(tmp_path / "watched" / "out", reward=slow_judge, save_strategy="steps", save_steps=2)
    guest = attach(run, runs=tmp_path / "runs")
    run.train()
    found = [one for one in RunReader(guest.path).findings if one.evidence.get("kind") == "slow-reward"]
    assert found and found[0].evidence["phase"] == "reward" and "test_trl.py" in found[0].summary
    assert "slow_judge" in found[0].summary
    durations = guest.heart._durations
    assert all(len(durations[phase]) for phase in ("data", "rollout", "reward", "update", "save"))
    assert torch.equal(weights(plain), weights(run))
