"""Stopping and going on must not show; going back must, when it is asked to."""

import hashlib
import json
import math
import subprocess
import sys

import pytest
import torch

from stabilizer.core.knobs import Checkpoint
from stabilizer.training.checkpoint import CheckpointDamaged
from stabilizer.training.config import config_dict
from tests.deep import DEPTHS, nested
from tests.training.test_loop import weights, without_time

SETTINGS = ("validation.every=2", "checkpoint.every=2", "policy.inner_epochs=2")
ALGORITHMS = {
    "GRPO": SETTINGS,
    "GRPO with dynamic sampling": (*SETTINGS, "algorithm=dapo", "rollout.group_size=4", "policy.beta=0.01"),
    "PPO": (*SETTINGS, "algorithm=ppo", "policy.kl_target=0.001", "optim.adaptive_clip=2"),
    "PPO with dynamic sampling": (*SETTINGS, "algorithm=ppo", "policy.filter_groups=resample", "critic.warmup_steps=2"),
    "PPO, shared critic": (*SETTINGS, "algorithm=ppo", "critic.kind=shared", "policy.entropy_target=3"),
    "a reference that was refreshed": (*SETTINGS, "policy.reference_every=2", "policy.beta=0.05"),
    "a reference that follows": (
        *SETTINGS, "policy.reference_every=2", "policy.reference_share=0.6", "policy.beta=0.05",
    ),
    "GRPO on two threads": (*SETTINGS, "threads=2"),
    "PPO on two threads": (*SETTINGS, "threads=2", "algorithm=ppo", "critic.kind=shared"),
}  # fmt: skip


def run_steps(run, count):
    return [without_time(run.train_step().metrics) for _ in range(count)]


def damage(checkpoint: Checkpoint) -> None:
    file = checkpoint.path / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("settings", ALGORITHMS.values(), ids=ALGORITHMS)
def test_resuming_is_bit_identical(trainer, settings):
    whole, first = trainer(*settings, folder="whole"), trainer(*settings)
    expected = run_steps(whole, 6)
    assert run_steps(first, 3) == expected[:3]
    first.save_checkpoint()
    second = trainer(*settings)
    assert second.resume().step == 3
    assert run_steps(second, 3) == expected[3:]
    assert torch.equal(weights(second), weights(whole))


def test_a_rollback_to_before_a_reset_of_the_reference_brings_the_old_one_back(trainer):
    run = trainer("policy.beta=0.05", "policy.minibatches=1", "optim.lr=2e-3")
    run_steps(run, 2)
    saved = run.save_checkpoint()
    expected = run_steps(run, 1)
    run.controls.reset_reference()
    assert run_steps(run, 1)[0]["policy/kl_ref"] < expected[0]["policy/kl_ref"]
    run.load_checkpoint(saved, vary_data=False)
    assert run_steps(run, 1) == expected


def test_resuming_in_another_process_is_bit_identical(trainer, tmp_path):
    run = trainer(*SETTINGS)
    run_steps(run, 2)
    run.save_checkpoint()
    expected = run_steps(run, 2)
    code = """if True:
        import json, sys
        from pathlib import Path
        from stabilizer.training.config import config_from_dict
        from stabilizer.training.loop import Trainer
        run = Trainer(config_from_dict(json.loads(sys.argv[1])), checkpoints=Path(sys.argv[2]), attempt=1)
        run.resume()
        print(json.dumps([run.train_step().metrics for _ in range(2)]))
    """
    arguments = [sys.executable, "-c", code, json.dumps(config_dict(run.config)), str(tmp_path / "checkpoints")]
    out = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    assert [without_time(metrics) for metrics in json.loads(out)] == expected


def test_resume_brings_the_knobs_back_and_a_rollback_does_not(trainer):
    run = trainer()
    run.controls.set("control/beta", 0.25)
    saved = run.save_checkpoint()
    run.controls.set("control/beta", 0.5)
    run.load_checkpoint(saved, vary_data=True)
    assert run.controls.get("control/beta") == 0.5
    other = trainer()
    other.resume()
    assert other.controls.get("control/beta") == 0.25


def test_a_rollback_replays_and_with_vary_data_differs_every_time(trainer):
    run = trainer()
    run.train_step()
    saved = run.save_checkpoint()
    at_saving = weights(run)
    seen = [run_steps(run, 2)]
    run.load_checkpoint(saved, vary_data=False)
    assert run.step == 1 and torch.equal(weights(run), at_saving)
    assert run_steps(run, 2) == seen[0]
    for _ in range(2):
        run.load_checkpoint(saved, vary_data=True)
        assert torch.equal(weights(run), at_saving)
        seen.append(run_steps(run, 2))
    assert seen[0] != seen[1] != seen[2] != seen[0]


def test_the_other_data_of_a_rollback_survive_a_resume(trainer):
    run = trainer()
    run.load_checkpoint(run.save_checkpoint(), vary_data=True)
    run.attempt = 1
    run.save_checkpoint()
    expected = run_steps(run, 2)
    other = trainer()
    assert other.resume().attempt == 1
    assert run_steps(other, 2) == expected


def test_a_damaged_checkpoint_falls_back_to_the_one_before(trainer):
    run = trainer()
    saved = []
    for _ in range(3):
        run.train_step()
        saved.append(run.save_checkpoint())
    damage(saved[2])
    with pytest.raises(CheckpointDamaged, match="step-3-a0"):
        run.load_checkpoint(saved[2], vary_data=False)
    assert run.step == 3  # nothing was touched
    other = trainer()
    assert other.resume().step == 2 and other.step == 2
    damage(saved[0]), damage(saved[1])
    assert trainer().resume() is None


@pytest.mark.parametrize("name", ["optimizer.safetensors", "state.json"])
def test_a_checkpoint_whose_manifest_lost_a_file_is_passed_over_like_a_damaged_one(trainer, name):
    run = trainer()
    saved = []
    for _ in range(2):
        run.train_step()
        saved.append(run.save_checkpoint())
    manifest = saved[1].path / "manifest.json"
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(said | {"files": {key: v for key, v in said["files"].items() if key != name}}))
    with pytest.raises(CheckpointDamaged, match=f"names no {name}"):
        run.load_checkpoint(saved[1], vary_data=False)
    assert trainer().resume().step == 1
    manifest.write_text(json.dumps(said | {"files": list(said["files"])}))
    assert trainer().resume().step == 1


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_checkpoint_with_nested_files_is_passed_over_like_a_damaged_one(trainer, levels):
    run = trainer()
    saved = []
    for _ in range(3):
        run.train_step()
        saved.append(run.save_checkpoint())
    (saved[2].path / "manifest.json").write_text(f'{{"schema": 2, "files": {nested(levels)}}}')
    state = f'{{"progress": {nested(levels)}, "knobs": {{}}}}'.encode()
    (saved[1].path / "state.json").write_bytes(state)
    manifest = saved[1].path / "manifest.json"
    said = json.loads(manifest.read_text())
    said["files"]["state.json"] = {"size": len(state), "sha256": hashlib.sha256(state).hexdigest()}
    manifest.write_text(json.dumps(said))
    for checkpoint in saved[1:]:
        with pytest.raises(CheckpointDamaged, match=r"levels|limit"):
            run.load_checkpoint(checkpoint, vary_data=False)
    assert run.step == 3  # nothing was touched
    assert trainer().resume().step == 1


def test_resume_without_a_checkpoint_starts_afresh(trainer):
    run = trainer()
    assert run.resume() is None and run.step == 0 and run.checkpoints() == []


def test_an_abandoned_branch_is_not_returned_to(trainer):
    run = trainer()
    saved = [run.save_checkpoint()]
    for _ in range(3):
        run.train_step()
        saved.append(run.save_checkpoint())
    assert run.checkpoints() == saved
    run.load_checkpoint(saved[1], vary_data=True)
    run.attempt = 1
    run.train_step()
    new = run.save_checkpoint()
    assert run.checkpoints() == [*saved[:2], new]
    other = trainer()
    assert other.resume() == new and other.checkpoints() == [*saved[:2], new]


def test_old_checkpoints_are_thinned_and_step_0_stays(trainer):
    run = trainer("checkpoint.keep=2", "rollout.prompts=2", "rollout.group_size=2")
    run.save_checkpoint()
    for _ in range(12):
        run.train_step()
        run.save_checkpoint()
    steps = [checkpoint.step for checkpoint in run.checkpoints()]
    assert steps[0] == 0 and steps[-2:] == [11, 12] and len(steps) <= 7


def test_a_state_that_somebody_asked_for_is_never_thinned_out(trainer):
    run = trainer("checkpoint.keep=2")
    run.train_step()
    run.save_checkpoint()
    run.train_step()
    asked = run.controls.snapshot(keep=True)
    run.train_step()
    passing = run.controls.snapshot()
    for _ in range(6):
        run.train_step()
        run.save_checkpoint()
    again = trainer("checkpoint.keep=2")
    again.resume()
    for _ in range(12):
        again.train_step()
        again.save_checkpoint()
    there = [state.step for state in again.checkpoints()]
    assert asked.step in there and passing.step not in there


def test_controls_snapshot_and_restore_go_through_the_trainer(trainer):
    run = trainer()
    run.train_step()
    snapshot = run.controls.snapshot()
    before = weights(run)
    run.train_step()
    run.controls.restore(snapshot)
    assert torch.equal(weights(run), before) and run.step == 1 and snapshot in run.controls.checkpoints()


def test_nan_weights_keep_their_nan(trainer):
    run = trainer()
    with torch.no_grad():
        next(run.policy.model.parameters())[5, 3] = math.nan
    run.save_checkpoint()
    other = trainer()
    other.resume()
    assert weights(other).isnan().sum() == 1


def test_a_checkpoint_of_another_model_is_refused(trainer):
    run = trainer()
    run.save_checkpoint()
    other = trainer()
    other.policy.model.lm_head.weight.data = other.policy.model.lm_head.weight.data[:, :-1]
    assert other.resume() is None
    assert "does not belong to the model" in other.passed_over[0]
