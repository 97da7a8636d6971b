"""Batches that are generated while the learner updates: their age, states that hold them, and what discards them."""

import threading
import time

import pytest
import torch

from stabilizer.control.fork import paired
from stabilizer.training.config import load_config
from stabilizer.training.corrections import mismatch_weights
from stabilizer.training.loop import Trainer
from stabilizer.training.model import load_policy
from stabilizer.training.ranks import Ranks, refuse
from stabilizer.training.rollout import vllm_server
from stabilizer.training.rollout.vllm_server import ServersLost
from tests.training.test_loop import weights, without_time
from tests.training.test_resume import run_steps
from tests.training.vllm_stand_in import standing_in

AHEAD = ("rollout.asynchronous=true", "policy.minibatches=1")


@pytest.fixture
def served(small, tmp_path, monkeypatch):
    """A function giving a trainer whose batches a server writes, and that server."""
    monkeypatch.setattr(vllm_server, "PAUSE_S", 0.001)
    with standing_in(load_policy("builtin", "sorting", torch.device("cpu"))) as server:
        made = []

        def build(*overrides, folder="served"):
            urls = f"rollout.server.urls=[{server.url}]"
            config = small(
                "rollout.engine=vllm-server", "policy.minibatches=1", urls, *AHEAD, *overrides, task="sorting"
            )
            made.append(Trainer(config, checkpoints=tmp_path / folder))
            return made[-1]

        yield build, server
        for run in made:
            run._ahead.wait()
            run.engine.close()


# --- age and correction -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("updates", [1, 3])
def test_every_batch_but_the_first_is_one_step_of_updates_old(trainer, updates):
    run = trainer(*AHEAD, f"policy.minibatches={updates}")
    steps = run_steps(run, 4)
    assert [row["rollout/staleness"] for row in steps] == [0, updates, updates, updates]
    assert [row["rollout/weight_version"] for row in steps] == [1, 1, 1 + updates, 1 + 2 * updates]


def test_a_server_says_the_same_age_and_gets_weights_between_batches_only(served):
    build, server = served
    run = build("validation.every=2")
    steps = run_steps(run, 4)
    assert [row["rollout/staleness"] for row in steps] == [0, 1, 1, 1]
    assert [row["rollout/weight_version"] for row in steps] == [1, 1, 2, 3]
    assert max(row["rollout/sync_error"] for row in steps[1:]) < 1e-5
    writing = 0
    for route in server.log:
        writing += {"begins": 1, "ends": -1}.get(route, 0)
        assert not (writing and route == "/collective_rpc"), "weights arrived while completions were written"
    assert "/collective_rpc" in server.log


def test_the_batch_was_written_by_the_weights_of_the_step_before(trainer):
    run = trainer(*AHEAD, "optim.lr=4e-3", "optim.warmup_steps=0")
    run.train_step()
    before = run.policy.model.state_dict()
    before = {name: tensor.clone() for name, tensor in before.items()}
    run.train_step()  # begins with a batch of the starting weights, and begins one of `before`
    rollouts = run._ahead.waiting().episodes.rollouts
    now = run.scorer.logps(run.policy.model, rollouts, 1.0).logp_BT
    run.policy.model.load_state_dict(before)
    then = run.scorer.logps(run.policy.model, rollouts, 1.0).logp_BT
    mask = rollouts.mask_BT
    assert torch.allclose(then[mask], rollouts.logp_BT[mask], atol=1e-4)
    assert (now - rollouts.logp_BT)[mask].abs().max() > 1e-2


def test_its_weights_are_the_truncated_ratios_of_the_learner_to_those_that_wrote_it(trainer):
    run = trainer(*AHEAD, "optim.lr=4e-3", "optim.warmup_steps=0")
    assert run.config.policy.mismatch == "tis_token" and run.config.policy.mismatch_cap == 2
    run.train_step()
    seen, update = [], run.learner.update
    run.learner.update = lambda step, batch, *rest, **more: seen.append(batch) or update(step, batch, *rest, **more)
    metrics = run.train_step().metrics
    (batch,) = seen
    ours, theirs, mask = batch.old_logp_BT, batch.rollouts.logp_BT, batch.mask_BT
    ratio = (ours - theirs).exp().clamp(max=2)
    assert torch.allclose(batch.weight_BT[mask], ratio[mask]) and (ratio[mask] - 1).abs().max() > 1e-3
    expected = mismatch_weights("tis_token", ours, theirs, mask, 2.0)[1]["policy/mismatch_kl"].item()
    assert metrics["policy/mismatch_kl"] == pytest.approx(expected, rel=0.2)  # there over all rows
    assert metrics["policy/ratio_first_error"] < 1e-4, "the clipped ratio begins at the learner's own weights"


def test_without_updates_it_is_the_synchronous_run(trainer):
    settings = (
        "optim.lr=1e-12",
        "samples.every=1",
        "policy.mismatch=tis_token",
        "policy.filter_groups=resample",
        "policy.beta=0",
    )
    ahead, plain = trainer(*AHEAD, *settings, folder="ahead"), trainer(*settings, folder="plain")
    for _ in range(3):
        ours, theirs = ahead.train_step(), plain.train_step()
        assert [sample.completion for sample in ours.samples] == [sample.completion for sample in theirs.samples]
        for name in ("reward/mean", "batch/prompts_drawn", "tokens/total", "rollout/length_mean"):
            assert ours.metrics[name] == theirs.metrics[name]


# --- at the same time -------------------------------------------------------------------------------------------------


def test_the_learner_updates_while_a_slow_server_writes(served):
    build, server = served
    run = build("rollout.prompts=2")
    run.train_step()
    server.delay_s = 0.8
    update = run.learner.update

    def slow(*args, **more):
        time.sleep(1.2)
        return update(*args, **more)

    run.learner.update = slow
    run.train_step()  # the batch that it begins is written during its update
    began = time.perf_counter()
    row = run.train_step().metrics
    took = time.perf_counter() - began
    assert row["time/rollout_s"] < 0.7 < 1.2 <= row["time/update_s"]
    assert took < 2.0, "one after the other would take 2.0 s"


def test_only_the_main_thread_reports_phases(trainer):
    run = trainer(*AHEAD)
    threads = set()
    run.watched_by(lambda phase: threads.add(threading.current_thread()))
    run_steps(run, 2)
    assert threads == {threading.main_thread()}


def test_nothing_is_written_after_the_last_step(trainer):
    run = trainer(*AHEAD, "steps=2")
    run_steps(run, 2)
    assert run._ahead.waiting() is None


# --- states -----------------------------------------------------------------------------------------------------------

KINDS = {
    "dynamic sampling": ("policy.filter_groups=resample", "validation.every=2", "policy.minibatches=2"),
    "ReMax, adapters": ("algorithm=remax", "lora.rank=4"),
    "PPO": ("algorithm=ppo", "critic.kind=shared"),
}


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_resuming_is_bit_identical(trainer, settings):
    whole, first = trainer(*AHEAD, *settings, folder="whole"), trainer(*AHEAD, *settings)
    expected = versionless(run_steps(whole, 5))
    assert versionless(run_steps(first, 2)) == expected[:2]
    first.save_checkpoint()
    second = trainer(*AHEAD, *settings)
    assert second.resume().step == 2
    assert versionless(run_steps(second, 3)) == expected[2:]
    assert torch.equal(weights(second), weights(whole))


def test_resuming_a_search_is_bit_identical(trainer):
    whole = trainer(*AHEAD, task="search", folder="whole")
    expected = versionless(run_steps(whole, 3))
    first = trainer(*AHEAD, task="search")
    run_steps(first, 1)
    first.save_checkpoint()
    second = trainer(*AHEAD, task="search")
    second.resume()
    assert versionless(run_steps(second, 2)) == expected[1:]


def test_saving_a_state_changes_nothing(trainer):
    saved, plain = trainer(*AHEAD, folder="saved"), trainer(*AHEAD, folder="plain")
    for _ in range(3):
        assert without_time(saved.train_step().metrics) == without_time(plain.train_step().metrics)
        saved.save_checkpoint()


def test_a_rollback_replays_and_with_vary_data_writes_another_batch(trainer):
    run = trainer(*AHEAD)
    run_steps(run, 2)
    saved = run.save_checkpoint()
    expected = versionless(run_steps(run, 2))
    run.load_checkpoint(saved, vary_data=False)
    assert versionless(run_steps(run, 2)) == expected
    run.load_checkpoint(saved, vary_data=True)
    other = run_steps(run, 2)
    assert [row["rollout/staleness"] for row in other] == [0, 1], "the batch in flight belonged to other prompts"
    assert versionless(other) != expected


def test_copies_of_a_run_leave_it_as_it_was(trainer):
    alone, run = trainer(*AHEAD, folder="alone"), trainer(*AHEAD, folder="forked")
    for either in (alone, run):
        run_steps(either, 2)
        either.save_checkpoint()
    fork = paired(run, {"as it is": {}, "hotter": {"control/temperature": 1.3}}, 2)
    assert fork.curves["hotter"]["rollout/staleness"] == [0, 1]
    run.paid()
    run.paid(run.checkpoints()[0])
    assert versionless(run_steps(run, 2)) == versionless(run_steps(alone, 2))
    assert torch.equal(weights(run), weights(alone))


# --- changes while a batch is written ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knob", "value"),
    [("temperature", 0.7), ("group_size", 2), ("prompts", 6), ("max_completion", 5), ("filter_groups", "resample")],
)
def test_a_knob_of_the_generation_holds_from_the_next_step(trainer, knob, value):
    run = trainer(*AHEAD)
    run_steps(run, 2)
    drawn = run._progress.cursor
    run.controls.set(f"control/{knob}", value)
    first, second = run_steps(run, 2)
    assert (first["rollout/staleness"], second["rollout/staleness"]) == (0, 1)
    assert first["batch/group_size"] == run.controls.get("control/group_size")
    assert first["rollout/length_max"] <= run.controls.get("control/max_completion")
    assert run._progress.cursor == drawn + first["batch/prompts_drawn"] + second["batch/prompts_drawn"]


def test_other_knobs_keep_the_batch(trainer):
    run = trainer(*AHEAD)
    run_steps(run, 2)
    for knob, value in {"lr_scale": 0.5, "beta": 0.1, "epsilon_high": 0.3, "mismatch": "mask_token"}.items():
        run.controls.set(f"control/{knob}", value)
    run.controls.reset_reference()
    run.controls.reset_optimizer()
    assert run_steps(run, 1)[0]["rollout/staleness"] == 1


def test_after_a_skipped_update_the_batch_is_not_old(trainer):
    run = trainer(*AHEAD)
    run.train_step()
    run.controls.skip_update()
    assert [row["rollout/staleness"] for row in run_steps(run, 3)] == [1, 0, 1]


# --- a lost engine ----------------------------------------------------------------------------------------------------


def test_a_lost_server_ends_the_next_step_in_words_and_the_state_resumes(served):
    build, server = served
    run = build("rollout.server.retries=0")
    run.train_step()
    run._ahead.wait()
    answer = server.answer

    def fails(route, body):
        if "prompt_logprobs" not in body.get("sampling_params", {"prompt_logprobs": 0}):
            raise RuntimeError("out of memory")
        return answer(route, body)

    server.answer = fails
    run.train_step()  # its own batch was complete
    saved = run.save_checkpoint()
    with pytest.raises(ServersLost, match="no vLLM server is left"):
        run.train_step()
    assert run.whole and not (saved.path / "ahead.safetensors").exists()
    server.answer = answer
    again = build("rollout.server.retries=0")
    assert again.resume().step == 2
    assert [row["rollout/staleness"] for row in run_steps(again, 2)] == [0, 1]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["rollout.engine=vllm"], "rollout.asynchronous = True: must be false with rollout.engine=vllm"),
        (["stage=sft"], "rollout.asynchronous = True: must be false in the stage `sft`"),
        (["policy.mismatch=none"], "policy.mismatch = 'none': must be a correction with rollout.asynchronous"),
        (
            ["rollout.engine=vllm-server", "rollout.server.urls=[http://127.0.0.1:1]", "rollout.top_p=0.9"],
            "must be false with top_p, top_k or min_p on servers",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused_in_one_line(overrides, words):
    with pytest.raises(ValueError, match=words) as error:
        load_config("addition", [*AHEAD, *overrides])
    assert "\n" not in str(error.value)


def test_several_processes_are_refused():
    with pytest.raises(ValueError, match="rollout.asynchronous = True: with several processes it must be false"):
        refuse(load_config("addition", [*AHEAD, "device=cpu"]), Ranks(0, 2, 0, 2))


def test_it_is_off_by_default(trainer):
    assert trainer().train_step().metrics["rollout/staleness"] == 0


def versionless(rows):
    """Without the version of the weights, which counts on from the start of the process."""
    return [{name: value for name, value in row.items() if name != "rollout/weight_version"} for row in rows]
