"""A run in two processes gives the numbers of a run in one."""

import os
import signal
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load as from_safetensors

from stabilizer.cli import main
from stabilizer.control.fork import paired
from stabilizer.control.probe import probe
from stabilizer.runs.reader import RunReader
from stabilizer.training import loop
from stabilizer.training.loop import Trainer
from stabilizer.training.model import load_policy
from stabilizer.training.ranks import RankLost, Ranks, follow, launched, refuse
from tests.training.rank_processes import run_commands, run_ranks, weights, whole_weights

CLOSE = 2e-6
"""Largest difference of a weight after 20 steps at a learning rate of 5e-5, which move weights by about 1e-3.

It comes from another order of sums. `optim.micro_batch` in one process makes as large a difference.
"""


CLOSE_AFTER_RESET = 1e-5
"""The same after a reset of the optimizer, at the same rate: Adam's first step divides a gradient by its own size.

A weight whose gradient is all rounding then moves by up to the rate. One processor in two showed 4.5e-6.
"""


def twenty_steps(trainer):
    return [trainer.train_step().metrics for _ in range(20)]


def assert_equal(config, tmp_path, trainer, *, lead=twenty_steps, close=CLOSE, size=2):
    """The same metrics and weights in one process and in several. All ranks hold bit-equal weights, or a part each."""
    expected = lead(trainer)
    found, *shared = run_ranks(size, lead, config, tmp_path / "ranks")
    if config.sharding == "full":
        alone, all_weights = whole_weights(trainer).numpy(), weights(trainer).numel()
        assert all(abs(len(part) / all_weights - 1 / size) < 0.01 for part in shared[1:])
    else:
        alone = weights(trainer).numpy()
        assert all(np.array_equal(other, shared[0]) for other in shared[1:])
    assert np.abs(shared[0] - alone).max() <= close
    for ours, theirs in zip(expected, found, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            if not name.startswith("time/"):
                assert theirs[name] == pytest.approx(ours[name], rel=2e-3, abs=2e-5), name


def test_two_ranks_train_grpo_like_one_process(small, trainer, tmp_path):
    overrides = "rollout.prompts=5", "validation.every=10", "optim.lr=5e-5"  # an uneven division
    assert_equal(small(*overrides), tmp_path, trainer(*overrides))


def five_steps(trainer):
    return [trainer.train_step().metrics for _ in range(5)]


ALGORITHMS = {
    "ppo": ("algorithm=ppo", "critic.lr=5e-5"),
    "a shared critic": ("algorithm=ppo", "critic.kind=shared", "critic.lr=5e-5"),
    "lora": ("lora.rank=4",),
    "dapo": ("algorithm=dapo", "policy.minibatches=4", "policy.inner_epochs=2"),
    "whitened": ("algorithm=reinforce_pp", "optim.micro_batch=3"),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_ranks_train_every_kind_of_objective_like_one_process(name, small, trainer, tmp_path):
    overrides = *ALGORITHMS[name], "optim.lr=5e-5"
    assert_equal(small(*overrides), tmp_path, trainer(*overrides), lead=five_steps)


SHARDED = {
    "grpo": ("rollout.prompts=5", "optim.block_norms=true"),
    "ppo": (*ALGORITHMS["ppo"], "critic.warmup_steps=2"),
    "a shared critic": (*ALGORITHMS["a shared critic"], "optim.lr=5e-5"),
    "lora": ALGORITHMS["lora"],
    "dapo": ALGORITHMS["dapo"],
    "recomputed activations": ("gradient_checkpointing=true", "optim.micro_batch=3"),
    "a reference that follows": ("policy.beta=0.01", "policy.reference_every=2", "policy.reference_share=0.6"),
}


RARE = "a shared critic", "recomputed activations", "a reference that follows"


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in RARE else []) for n in SHARDED])
def test_ranks_that_share_the_weights_train_like_one_process(name, small, trainer, tmp_path):
    overrides = "optim.lr=2e-5", *SHARDED[name]
    lead = twenty_steps if name == "grpo" else five_steps
    assert_equal(small(*overrides, "sharding=full"), tmp_path, trainer(*overrides), lead=lead)


def test_ranks_that_share_weights_in_bfloat16_train_like_ranks_that_hold_all(small, tmp_path):
    overrides = "precision=bfloat16", "optim.lr=2e-5"
    expected, *_ = run_ranks(2, mean_gradients_of_a_step, small(*overrides), tmp_path / "held")
    found, *_ = run_ranks(2, mean_gradients_of_a_step, small(*overrides, "sharding=full"), tmp_path / "shared")
    apart = sum(np.square(found[name] - value).sum() for name, value in expected.items())
    size = sum(np.square(value).sum() for value in expected.values())
    assert (apart / size) ** 0.5 < 0.02, "numbers in bfloat16 have a spacing of 0.4 to 0.8 %"


def mean_gradients_of_a_step(trainer):
    trainer.train_step()
    moments = from_safetensors(trainer.state()["optimizer.safetensors"])
    return {name: value.numpy() for name, value in moments.items() if name.endswith("exp_avg")}


def test_more_ranks_than_prompts_train_like_one_process(small, trainer, tmp_path):
    overrides = "rollout.prompts=2", "optim.lr=2e-5"
    assert_equal(small(*overrides), tmp_path, trainer(*overrides), lead=five_steps, size=3)


def episodes_of_five_steps(trainer):
    kept = ("rollout/", "reward/", "tokens/", "accuracy/")
    return [{name: m[name] for name in m if name.startswith(kept)} for m in five_steps(trainer)]


def test_episodes_of_several_turns_do_not_depend_on_the_number_of_ranks(small, trainer, tmp_path):
    # the built-in policy has learned this task: its gradients are mostly rounding, so it learns next to nothing here
    overrides = "optim.lr=1e-9", "rollout.prompts=3", "rollout.group_size=3", "rollout.temperature=1.5"
    config, alone = small(*overrides, task="search"), trainer(*overrides, task="search")
    assert_equal(config, tmp_path, alone, lead=episodes_of_five_steps)


def everything(trainer):
    """What a remedy or a person does to a run: knobs, a skipped update, a rollback, a probe, a fork, resets."""
    made = [trainer.train_step().metrics]
    state = trainer.snapshot()
    trainer.controls.set("control/lr_scale", 0.5)
    trainer.controls.set("control/prompts", 3)
    made.append(trainer.train_step().metrics)
    trainer.controls.skip_update()
    made.append(trainer.train_step().metrics)
    assert made[-1]["batch/updates"] == 0
    paid = probe(trainer, state)
    made.append({"here": paid.here.held_out, "there": paid.there.held_out, "reward": paid.there.rewards.mean()})
    fork = paired(trainer, {"as it is": {}, "half": {"control/lr_scale": 0.25}}, steps=2)
    made.append(fork.ends)
    trainer.controls.restore(state)
    trainer.reset_optimizer()
    trainer.reset_reference()
    made.append(trainer.train_step().metrics)
    assert trainer.step == 2
    made.append(trainer.validate())
    return made


@pytest.mark.parametrize("sharding", [(), ("sharding=full",)])
def test_knobs_skips_probes_forks_and_rollbacks_reach_all_ranks_at_one_step(sharding, small, trainer, tmp_path):
    overrides = "optim.lr=5e-5", "rollout.prompts=5"
    run = small(*overrides, *sharding)
    assert_equal(run, tmp_path, trainer(*overrides), lead=everything, close=CLOSE_AFTER_RESET)


def two_steps_and_a_checkpoint(trainer):
    made = [trainer.train_step().metrics for _ in range(2)]
    trainer.save_checkpoint()
    return made


def resumed_for_a_step(trainer):
    assert trainer.resume() is not None
    return [trainer.train_step().metrics]


@pytest.mark.parametrize("sharding", [(), ("sharding=full",)])
def test_another_number_of_ranks_resumes_a_run(sharding, small, trainer, tmp_path):
    overrides = "optim.lr=5e-5", "policy.beta=0.01"
    run_ranks(2, two_steps_and_a_checkpoint, small(*overrides, *sharding), tmp_path / "ranks")
    alone = trainer(*overrides, folder="ranks")
    assert_equal(small(*overrides, *sharding), tmp_path, alone, lead=resumed_for_a_step)
    assert alone.step == 3


def exported(trainer):
    trainer.train_step()
    trainer.save_pretrained(trainer._folder / "exported")
    whole = whole_weights(trainer)
    exported = load_policy(str(trainer._folder / "exported"), "addition", torch.device("cpu"))
    kept = dict(exported.model.named_parameters())
    return torch.equal(torch.cat([kept[name].detach().reshape(-1) for name in sorted(kept)]), whole)


def test_ranks_that_share_the_weights_export_a_whole_model(small, tmp_path):
    (equal, *_) = run_ranks(2, exported, small("sharding=full"), tmp_path)
    assert equal


def fails_to_save(trainer):
    before, folder = whole_weights(trainer), trainer._folder
    folder.write_text("a file where the folder should be")
    with pytest.raises(OSError, match=str(folder)):
        trainer.save_checkpoint()
    return torch.equal(whole_weights(trainer), before) and trainer.train_step().metrics["batch/updates"]


def test_a_checkpoint_that_cannot_be_written_leaves_the_ranks_together(small, tmp_path):
    updates, *_ = run_ranks(2, fails_to_save, small("sharding=full"), tmp_path / "checkpoints")
    assert updates > 0


def in_the_backward_pass_of_rank_1(trainer, act):
    terms = trainer.learner._terms

    def terms_with_a_hook(*args, **kwargs):
        loss, metrics = terms(*args, **kwargs)
        if loss.requires_grad:
            loss.register_hook(act)
        return loss, metrics

    if trainer.ranks.rank == 1:
        trainer.learner._terms = terms_with_a_hook


def not_finite_on_rank_1(trainer):
    in_the_backward_pass_of_rank_1(trainer, lambda gradient: gradient * float("nan"))


def one_step(trainer):
    before = weights(trainer)
    metrics = trainer.train_step().metrics
    return metrics["optim/skipped"], metrics["batch/updates"], bool((weights(trainer) == before).all())


@pytest.mark.parametrize("sharding", ["none", "full"])
def test_a_gradient_that_is_not_finite_on_one_rank_skips_the_update_on_all(sharding, small, tmp_path):
    config = small(f"sharding={sharding}")
    (skipped, updates, same), first, second = run_ranks(2, one_step, config, tmp_path, not_finite_on_rank_1)
    assert skipped > 0 and updates == 0 and same
    assert np.array_equal(first, second) or sharding == "full"


def in_the_second_step(trainer, act):
    """On rank 1, when the second step computes gradients."""
    in_the_backward_pass_of_rank_1(trainer, lambda _: act() if trainer.step == 1 else None)


def dies(trainer):
    in_the_second_step(trainer, lambda: os.kill(os.getpid(), signal.SIGKILL))


def hangs(trainer):
    in_the_second_step(trainer, lambda: time.sleep(60))


def trained_until_lost(trainer):
    made = trainer.train_step().metrics
    with pytest.raises(RankLost) as lost:
        trainer.train_step()
    with pytest.raises(RankLost, match="the ranks stopped working together"):
        trainer.validate()
    with pytest.raises(RuntimeError, match="resume the run from its newest checkpoint"):
        trainer.save_checkpoint()
    return made["batch/updates"], str(lost.value)


def test_a_killed_rank_ends_the_run_at_once_and_in_words(small, tmp_path):
    began = time.monotonic()
    (updates, words), *_ = run_ranks(2, trained_until_lost, small(), tmp_path, dies, lost=1)
    assert updates > 0 and time.monotonic() - began < small().rank_timeout_s / 10
    assert "rank 0 was waiting for gradients when another process of the run ended" in words
    assert "Resume the run from its newest checkpoint" in words and ".cc:" not in words


def test_a_killed_rank_that_held_a_part_of_the_weights_ends_the_run_in_words(small, tmp_path):
    (updates, words), *_ = run_ranks(2, trained_until_lost, small("sharding=full"), tmp_path, dies, lost=1)
    assert updates > 0 and "another process of the run ended" in words and ".cc:" not in words


def test_a_rank_that_hangs_ends_the_run_after_the_time_out(small, tmp_path):
    config = small("rank_timeout_s=5")
    (_, words), *_ = run_ranks(2, trained_until_lost, config, tmp_path, hangs, lost=1)
    assert "another process of the run hangs or is slow" in words


RUN = (
    "addition", "--steps", "6", "--seed", "1", "--set", "device=cpu", "--set", "rollout.prompts=4", "--set",
    "optim.lr=5e-5", "--set", "validation.every=3", "--set", "validation.problems=16",
)  # fmt: skip


def recorded(runs):
    """The metrics of the one run in a folder, without those of the machine; its state; and its findings."""
    (path,) = runs.iterdir()
    reader = RunReader(path)
    view = reader.history.view()
    series = {name: view.series(name) for name in view.names() if not name.startswith(("time/", "system/"))}
    metrics = {name: list(zip(found.steps, found.values, strict=True)) for name, found in series.items()}
    return metrics, reader.status["state"], [finding.id for finding in reader.findings]


def test_the_command_writes_one_run_with_the_records_of_one_process(tmp_path, capsys):
    assert main(["train", *RUN, "--runs", str(tmp_path / "one")]) == 0
    assert run_commands(2, ["train", *RUN, "--runs", str(tmp_path / "two")]) == [0, 0]
    (alone, *same), (shared, *also) = recorded(tmp_path / "one"), recorded(tmp_path / "two")
    assert same == also and same[0] == "finished"
    assert alone.keys() == shared.keys() and len(alone["reward/mean"]) == 6
    for name, values in alone.items():
        assert np.allclose(shared[name], values, rtol=2e-3, atol=2e-5), name


def test_a_mistake_ends_all_ranks_with_the_words_of_one(tmp_path):
    assert run_commands(2, ["train", *RUN, "--set", "optim.lr=-1", "--runs", str(tmp_path)]) == [2, 0]


def test_processes_that_a_launcher_restarts_resume_their_run(tmp_path, monkeypatch, capsys):
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True)
    there = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in {**there, "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": 0}.items():
        monkeypatch.setenv(name, str(value))
    words = ["train", *RUN, "--runs", str(tmp_path)]
    with monkeypatch.context() as broken:
        made = Trainer.train_step

        def breaks_in_step_4(trainer):
            if trainer.step == 3:
                raise RuntimeError("out of memory")
            return made(trainer)

        broken.setattr(Trainer, "train_step", breaks_in_step_4)
        assert main(words) == 2
    assert recorded(tmp_path)[1] == "failed"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert main(words) == 0
    metrics, state, _ = recorded(tmp_path)
    assert state == "finished" and [step for step, _ in metrics["reward/mean"]] == [1, 2, 3, 4, 5, 6]
    assert main(words) == 0, "nothing is left to train, which is no failure"


class Told:
    """Rank 1, which gets three orders: build, take a step with half the rate, end."""

    def __init__(self):
        knobs = {"control/lr_scale": 0.5}
        self.words = iter(["a configuration", ("train_step", (), {}, knobs, True), None])

    def told(self):
        return next(self.words)


def test_a_rank_takes_knobs_before_a_call_and_reports_every_wait(trainer):
    run, seen = trainer(), []
    run.train_step = lambda: seen.append((run.controls.values(), run.controls.skipping))
    follow(Told(), lambda config: run, lambda: seen.append("waits"))
    assert seen == ["waits", ({"control/lr_scale": 0.5}, True), "waits"]


REFUSED = {
    "rollout.engine = 'vllm': with several processes it must be builtin": ("rollout.engine=vllm",),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_several_processes_cannot_do_is_refused_before_a_model_is_loaded(words, small, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "starting_policy", None)
    with pytest.raises(ValueError, match=words):
        Trainer(small(*REFUSED[words]), checkpoints=tmp_path, ranks=Ranks(0, 2))


def test_more_processes_than_gpus_are_refused(small, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ValueError, match="2 processes on a machine with 1 GPUs"):
        refuse(small("device=auto"), Ranks(0, 2, 0, on_this_machine=2))
    refuse(small("device=cpu"), Ranks(0, 2, 0, on_this_machine=2))


def test_a_second_process_of_anything_else_is_refused(small, tmp_path, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setattr(loop, "starting_policy", None)
    with pytest.raises(ValueError, match="WORLD_SIZE = 2: only `stabilizer train` runs in several processes"):
        Trainer(small(), checkpoints=tmp_path)


def test_a_world_size_without_the_rest_is_explained(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="WORLD_SIZE = 2 without RANK: start several processes with `torchrun"):
        launched()
