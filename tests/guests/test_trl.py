"""Inside real TRL: every step is on record, weights stay what they were, knobs act, and our failures stay ours."""

from __future__ import annotations

import itertools
import json
import time
from importlib.metadata import version
from importlib.util import find_spec

import pytest

TRL = find_spec("trl") is not None
pytestmark = pytest.mark.skipif(not TRL, reason="needs TRL: make test-trl runs these in an environment of their own")

if TRL:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import TrainerCallback

    from stabilizer.cli import main
    from stabilizer.core.knobs import KNOBS
    from stabilizer.core.records import Sample
    from stabilizer.guests.attach import attach
    from stabilizer.guests.trl_knobs import SCALES
    from stabilizer.runs.reader import RunReader, read_records
    from stabilizer.runs.requests import ask
    from tests.guests.tiny_trl import WORDS, model, trainer

    ADVANTAGES = KNOBS["control/advantage"].choices


NEWER = TRL and version("trl") >= "1"
"""Whether it is a present TRL, and not the one that Open-R1 pins: `make test-old-trl`."""
newer = pytest.mark.skipif(not NEWER, reason="TRL 0.18 has no such trainer or setting")
both = pytest.mark.parametrize("rloo", [False, pytest.param(True, marks=newer)])


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


@both
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
        shown = [row[theirs] for row in logged if NEWER or theirs != "entropy"]
        rounded = 1e-6 if NEWER or theirs != "loss" else 5e-5  # four digits before transformers 5
        assert view.series(ours).values.tolist() == pytest.approx(shown, rel=1e-5, abs=rounded)
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
    samples = read_records(guest.path / "samples/000010-r0.jsonl", Sample).records
    assert len(samples) == 8
    assert all(sample.reward == sample.completion.count("1") for sample in samples)
    groups = torch.tensor([sample.reward for sample in samples]).reshape(-1, 4)
    logged = RunReader(guest.path).history.view().series("reward/std_group")
    assert logged.steps.tolist() == list(range(1, 11))
    assert logged.values[-1] == pytest.approx(groups.std(1).mean().item(), rel=1e-5)


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


def trained_adapter(config):
    """A policy with an adapter that is not at its start any more."""
    policy = get_peft_model(model(), config)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if ".lora_B." in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return policy


@pytest.mark.parametrize("policy", ["full", "fresh adapter", "trained adapter"])
def test_beta_that_leaves_zero_measures_the_kl_of_a_run_with_a_reference_from_the_start(tmp_path, policy):
    kls, ends = [], []
    for folder, beta in (("a", 1e-12), ("b", 0.0)):  # the first has a reference that weighs nothing
        config = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
        run = trainer(
            tmp_path / folder / "out", steps=10, beta=beta, num_iterations=2, learning_rate=0.01,
            adapters=config if policy == "fresh adapter" else None,
            policy=trained_adapter(config) if policy == "trained adapter" else None,
        )  # fmt: skip
        guest = attach(run, runs=tmp_path / "runs", name=folder)
        turn(guest, {3: {"control/beta": 0.2}})
        run.train()
        kl = RunReader(guest.path).history.view().series("policy/kl_ref")
        kls.append(dict(zip(kl.steps.tolist(), kl.values.tolist(), strict=True)))
        trainable = [p.detach().flatten() for p in run.model.parameters() if p.requires_grad]
        ends.append(torch.cat(trainable))
    assert sorted(kls[1]) == [5, 6, 7, 8, 9, 10]
    assert all(kls[1][step] == pytest.approx(kls[0][step], rel=1e-3, abs=1e-6) for step in kls[1])
    assert kls[1][10] > 1e-3 and torch.allclose(*ends, rtol=1e-3, atol=1e-5)


def test_the_reference_of_a_model_without_a_name_is_a_copy_of_its_starting_weights(tmp_path):
    run = trainer(tmp_path / "out", steps=6, learning_rate=0.05)
    run.model.config._name_or_path = ""
    start = weights(run)
    guest = attach(run, runs=tmp_path / "runs")
    turn(guest, {2: {"control/beta": 0.1}})
    run.train()
    assert torch.equal(torch.cat([p.flatten() for p in run.ref_model.parameters()]), start)
    assert not torch.equal(weights(run), start)
    notes = [event.text for event in RunReader(guest.path).events]
    assert any("a copy of the starting weights" in note for note in notes)


def test_a_reference_that_cannot_be_loaded_leaves_beta_at_zero(tmp_path, capsys):
    run = trainer(tmp_path / "out", steps=5)
    guest = attach(run, runs=tmp_path / "runs")
    (guest.path / "reference" / "model.safetensors").write_bytes(b"damaged")
    turn(guest, {2: {"control/beta": 0.1}})
    run.train()
    assert run.beta == 0.0 and "knob beta = 0.1" in capsys.readouterr().err
    beta = RunReader(guest.path).history.view().series("control/beta")
    assert beta.values.tolist() == [0.0, 0.1, 0.0, 0.0, 0.0]  # asked for at step 2


@pytest.mark.parametrize(
    ("knob", "value", "seen"),
    [
        ("temperature", 0.5, lambda run: (run.temperature, run.generation_config.temperature)),
        ("max_completion", 4, lambda run: (run.max_completion_length, run.generation_config.max_new_tokens)),
        ("inner_epochs", 1, lambda run: (run.num_iterations,)),
        ("average", 2, lambda run: ({"dr_grpo": 2}.get(run.loss_type),)),
        ("advantage", 1, lambda run: (ADVANTAGES.index(SCALES[run.scale_rewards]),)),
        pytest.param(
            "entropy_coef", 0.05, lambda run: (run.entropy_coef, run._entropy_bonus_enabled * 0.05), marks=newer
        ),
        ("prompts", 8, lambda run: (run.args.gradient_accumulation_steps * 2,)),
    ],
)
def test_a_knob_reaches_every_place_that_reads_it(tmp_path, knob, value, seen):
    run = trainer(tmp_path / "out", steps=8, num_iterations=2, gradient_accumulation_steps=2)
    guest = attach(run, runs=tmp_path / "runs")
    turn(guest, {2: {f"control/{knob}": value}})
    run.train()
    assert all(found == pytest.approx(value) for found in seen(run))
    rows = RunReader(guest.path).history.view().series(f"control/{knob}").values.tolist()
    assert rows[:2] != rows[2:4] and rows[-1] == pytest.approx(value)


def test_an_update_that_is_skipped_moves_no_weight(tmp_path):
    run = trainer(tmp_path / "out", steps=8, weight_decay=0.1)
    guest = attach(run, runs=tmp_path / "runs", remedy="approve")  # a step waits for requests
    plain, seen = guest.log, {0: weights(run)}

    def log(metrics, step=None, **more):
        seen[step] = weights(run)
        if step == 3:
            assert main(["fix", str(guest.path), "do", "skip-update"]) == 0
        return plain(metrics, step, **more)

    guest.log = log
    run.train()
    still = [step for step in range(1, 9) if torch.equal(seen[step], seen[step - 1])]
    skipped = RunReader(guest.path).history.view().series("optim/skipped")
    assert still == skipped.steps[skipped.values > 0].tolist() and len(still) == 1


@pytest.mark.parametrize(("start", "average"), [("dapo", "sequence"), ("grpo", "token")])
@newer
def test_a_loss_averages_as_that_of_a_run_configured_so(tmp_path, start, average):
    """From the generation after the change on, gradients are those of a run with that loss from its start."""
    norms = {}
    for folder, loss, change in (("turned", start, {2: {"control/average": average}}), ("still", start, {})):
        run = trainer(tmp_path / folder, steps=6, loss_type=loss, learning_rate=0.0, reward=long)
        turn(attach(run, runs=tmp_path / folder / "runs"), change)
        run.train()
        norms[folder] = [row["grad_norm"] for row in run.state.log_history if "grad_norm" in row]
    other = trainer(tmp_path / "other", steps=6, loss_type={"dapo": "grpo", "grpo": "dapo"}[start], learning_rate=0.0,
                    reward=long)  # fmt: skip
    other.train()
    wanted = [row["grad_norm"] for row in other.state.log_history if "grad_norm" in row]
    assert norms["turned"][:2] == norms["still"][:2]
    assert norms["turned"][2:] == pytest.approx(wanted[2:]) != norms["still"][2:]


@newer
def test_the_correction_of_an_engines_mismatch_is_turned_at_the_next_generation(tmp_path):
    """The engine is made up: its answers are the policy's, with log-probabilities of another."""
    run = trainer(tmp_path / "out", steps=8, vllm_importance_sampling_mode="token_truncate")
    plain = run._generate_single_turn

    def engine(*args, **named):
        run.use_vllm = False
        ids, _ = plain(*args, **named)
        run.use_vllm = True
        return ids, [[-2.0] * len(answer) for answer in ids]

    run._generate_single_turn, run.use_vllm = engine, True
    guest = attach(run, runs=tmp_path / "runs")
    with pytest.raises(ValueError, match="TRL has no correction 'mask_geometric'"):
        guest._controls.set("control/mismatch", "mask_geometric")
    turn(guest, {2: {"control/mismatch": "none"}, 5: {"control/mismatch": "mask_token"}})
    run.train()
    corrected = [
        row["step"] for row in run.state.log_history if "sampling/importance_sampling_ratio/mean" in row
    ]  # fmt: skip
    assert corrected == [1, 2, 6, 7, 8] and run.vllm_importance_sampling_mode == "token_mask"
    assert "control/mismatch" not in attach(trainer(tmp_path / "own"), runs=tmp_path / "runs")._controls


@newer
def test_rloo_has_the_knobs_of_its_settings(tmp_path):
    run = trainer(tmp_path / "out", steps=8, rloo=True, beta=0.0)
    guest = attach(run, runs=tmp_path / "runs")
    turn(guest, {2: {"control/temperature": 0.5, "control/beta": 0.2, "control/epsilon_high": 0.4}})
    run.train()
    assert (run.temperature, run.generation_config.temperature, run.beta, run.epsilon_high) == (0.5, 0.5, 0.2, 0.4)
    assert [row["step"] for row in run.state.log_history if "kl" in row] == [3, 4, 5, 6, 7, 8]
    assert "control/advantage" not in guest._controls and "control/entropy_coef" not in guest._controls


@newer
def test_a_new_temperature_is_the_learners_too(tmp_path):
    """With the learner at another temperature the first ratio would not be 1, and some tokens would be clipped."""
    run = trainer(tmp_path / "out", steps=6, num_iterations=1, steps_per_generation=2, learning_rate=0.0)
    guest = attach(run, runs=tmp_path / "runs")
    turn(guest, {2: {"control/temperature": 0.3}})
    run.train()
    entropy = [row["entropy"] for row in run.state.log_history if "entropy" in row]
    assert entropy[0] - entropy[2] > 0.04  # measured by the learner's head at the new temperature
    assert all(row["clip_ratio/region_mean"] == 0 for row in run.state.log_history if "clip_ratio/region_mean" in row)


def test_a_value_that_trl_cannot_have_is_refused_with_the_reason(tmp_path):
    run = trainer(tmp_path / "out", steps=2)
    guest = attach(run, runs=tmp_path / "runs")
    with pytest.raises(ValueError, match="multiple of 2"):
        guest._controls.set("control/prompts", 3)
    with pytest.raises(ValueError, match="TRL has no advantages 'leave_one_out'"):
        guest._controls.set("control/advantage", "leave_one_out")


def test_what_others_turn_shows_in_the_rows(tmp_path):
    run = trainer(tmp_path / "out", steps=6)
    guest = attach(run, runs=tmp_path / "runs")

    class Meddles(TrainerCallback):
        def on_step_begin(self, args, state, control, **others):
            if state.global_step == 3:
                run.epsilon_high = 0.7
                run.lr_scheduler.base_lrs = [8 * rate for rate in run.lr_scheduler.base_lrs]

    run.add_callback(Meddles())
    run.train()
    view = RunReader(guest.path).history.view()
    assert view.series("control/epsilon_high").values.tolist() == [0.2] * 3 + [0.7] * 3
    assert view.series("control/lr_scale").values.tolist() == pytest.approx([1.0] * 3 + [8.0] * 3)


# --- checkpoints of ours ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["full", "adapter", pytest.param("rloo", marks=newer)])
def test_a_return_restores_weights_optimizer_and_schedule_bit_for_bit(tmp_path, policy):
    adapters = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]) if policy == "adapter" else None
    run = trainer(
        tmp_path / "out", steps=14, lr_scheduler_type="linear", learning_rate=0.01, adapters=adapters,
        rloo=policy == "rloo",
    )  # fmt: skip
    guest = attach(run, runs=tmp_path / "runs", remedy="approve", checkpoint_every=4)
    seen, plain = {}, guest.log

    def log(metrics, step=None, **more):
        if step == 9:
            ask(guest.path, "do", "restore:4")
        seen[step, "before"] = state_of(run)
        decision = plain(metrics, step, **more)
        seen[step, "after"] = state_of(run)
        return decision

    guest.log = log
    run.train()
    reader = RunReader(guest.path)
    assert [a["reason"] for a in reader.about["attempts"]] == ["start", "rollback"]
    assert torch.equal(seen[9, "after"][0], seen[4, "after"][0])  # checkpoints after steps 0, 4, 8
    assert not torch.equal(seen[9, "before"][0], seen[9, "after"][0])
    assert all(torch.equal(a, b) for a, b in zip(seen[9, "after"][1], seen[4, "after"][1], strict=True))
    assert seen[9, "after"][2] == seen[4, "after"][2]


def judged(completion_ids, prompts, **others):
    """Rewards a first token that is the prompt's first digit: a tiny model learns it in some steps."""
    return [
        float(bool(ids) and WORDS[ids[0]] == prompt[0]) for ids, prompt in zip(completion_ids, prompts, strict=True)
    ]


def long(completion_ids, **others):
    """A reward for length, of answers that differ in length."""
    return [float(len(ids)) for ids in completion_ids]


class Jumps(TrainerCallback if TRL else object):
    """Multiplies the learning rate, as somebody's typing error would."""

    def __init__(self, run, step, factor):
        self.run, self.step, self.factor = run, step, factor

    def on_step_begin(self, args, state, control, **others):
        if state.global_step == self.step:
            schedule = self.run.lr_scheduler
            schedule.base_lrs = [self.factor * rate for rate in schedule.base_lrs]


def jumping(folder, remedy, **settings):
    run = trainer(
        folder / "out", steps=90, reward=judged, per_device_train_batch_size=32, learning_rate=2e-3, logging_steps=90,
        max_completion_length=2, **settings,
    )  # fmt: skip
    guest = attach(run, runs=folder / "runs", remedy=remedy, checkpoint_every=10)
    run.add_callback(Jumps(run, 50, 20.0))
    return run, guest


@both
def test_auto_full_finds_a_jump_of_the_rate_and_puts_it_back(tmp_path, rloo):
    run, guest = jumping(tmp_path, "auto-full", rloo=rloo)
    run.train()
    actions = RunReader(guest.path).actions
    applied = [action for action in actions if action.entry == "applied"]
    assert applied and applied[0].change["control/lr_scale"] == pytest.approx((20.0, 1.0))
    assert run.lr_scheduler.base_lrs[0] == pytest.approx(2e-3)
    assert json.loads((guest.path / "status.json").read_text())["remedy"] == "auto-full"


def test_a_proposal_is_applied_once_it_is_approved(tmp_path):
    run, guest = jumping(tmp_path, "approve")
    plain = guest.log

    def log(metrics, step=None, **more):
        decision = plain(metrics, step, **more)
        for action in [
            action for action in guest._host.entries if action.entry == "proposed" and action.safety != "advice"
        ]:
            if not (guest.path / "requests").is_dir():
                assert main(["fix", str(guest.path), "approve", action.action]) == 0
        return decision

    guest.log = log
    run.train()
    actions = RunReader(guest.path).actions
    assert [action.action for action in actions if action.entry == "applied"]
    assert run.lr_scheduler.base_lrs[0] < 0.03


def test_suggest_applies_nothing_and_saves_no_checkpoint(tmp_path):
    run, guest = jumping(tmp_path, "suggest")
    run.train()
    assert not any(action.entry == "applied" for action in RunReader(guest.path).actions)
    assert not (guest.path / "checkpoints").exists()


@pytest.mark.parametrize("remedy", ["suggest", "auto-full"])
def test_our_hooks_cost_a_step_of_200_ms_less_than_a_hundredth(tmp_path, monkeypatch, remedy):
    """Processor time of the training's thread, so that a busy machine does not count."""
    from stabilizer.guests import attach as module

    spent, steps = [0.0], []

    def timed(plain):
        def call(*args, **named):
            began = time.thread_time()
            try:
                return plain(*args, **named)
            finally:
                spent[0] += time.thread_time() - began

        return call

    for hook in ("saw_norm", "saw_loss", "before_update", "step_end"):
        monkeypatch.setattr(module._Guest, hook, timed(getattr(module._Guest, hook)))
    run = trainer(tmp_path / "out", steps=40, logging_steps=40)
    attach(run, runs=tmp_path / "runs", remedy=remedy, checkpoint_every=1000)

    class Counts(TrainerCallback):
        def on_step_end(self, args, state, control, **others):
            steps.append(spent[0])

    run.add_callback(Counts())
    run.train()
    costs = sorted(after - before for before, after in itertools.pairwise(steps))
    print(f"{remedy}: {1000 * costs[len(costs) // 2]:.2f} ms in the median")
    assert costs[len(costs) // 2] < 0.002


def test_a_training_with_a_broken_monitor_ends_as_without_it(tmp_path, monkeypatch, capsys):
    """Our thread hangs: the steps wait once, and the training goes on."""
    from stabilizer.guests import own_loop

    monkeypatch.setattr(own_loop, "PATIENCE_S", 0.2)
    monkeypatch.setattr(own_loop.GuestRun, "_take", lambda self, row: time.sleep(60))
    monkeypatch.setattr(own_loop, "CLOSING_S", 0.2)
    run = trainer(tmp_path / "out", steps=6)
    attach(run, runs=tmp_path / "runs", remedy="auto-full")
    began = time.monotonic()
    run.train()
    assert run.state.global_step == 6 and time.monotonic() - began < 50


def state_of(run):
    optimizer = run.optimizer.state_dict()["state"]
    tensors = [value for number in sorted(optimizer) for _, value in sorted(optimizer[number].items())]
    return (
        weights(run),
        [t.clone() for t in tensors],
        (run.lr_scheduler.last_epoch, run.optimizer.param_groups[0]["lr"]),
    )


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


@pytest.mark.parametrize(("left", "in_force"), [("2", True), ("2", False), ("0", True)])
def test_a_group_size_can_be_planned_while_restarts_are_left_and_the_last_one_worked(
    tmp_path, monkeypatch, capsys, left, in_force
):
    monkeypatch.setenv("STABILIZER_RESTARTS_LEFT", left)
    monkeypatch.setenv("STABILIZER_ATTEMPT", "2")
    monkeypatch.setenv("STABILIZER_ARGUMENTS", json.dumps({"num_generations": 4 if in_force else 8}))
    guest = attach(trainer(tmp_path / "out"), runs=tmp_path / "runs")
    assert ("control/group_size" in guest._controls) is (left == "2" and in_force)
    assert ("restarted for num_generations=8, which the script does not use" in capsys.readouterr().err) is not in_force
    if "control/group_size" in guest._controls:
        with pytest.raises(ValueError, match="must be at least 2 and divide generation_batch_size=8"):
            guest._controls.set("control/group_size", 3)
    elif left == "0":
        with pytest.raises(ValueError, match="takes a restart with another num_generations"):
            guest._controls.set("control/group_size", 2)
    guest.finish()


def test_only_the_main_process_has_a_run(tmp_path):
    class Second:
        args = type("Arguments", (), {"process_index": 1, "world_size": 2})

    assert attach(Second(), runs=tmp_path / "runs") is None and not (tmp_path / "runs").exists()


def test_the_knobs_are_named_when_it_begins(tmp_path, capsys):
    attach(trainer(tmp_path / "out"), runs=tmp_path / "runs").finish()
    said = capsys.readouterr().out
    entropy = "entropy_coef, " if NEWER else ""
    assert f"knobs: lr, epsilon_low, epsilon_high, max_grad_norm, {entropy}beta, temperature," in said


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
