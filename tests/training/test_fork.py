"""Copies of a real run side by side, and states kept in memory."""

from __future__ import annotations

import contextlib
import shutil

import numpy as np
import pytest
import torch

from stabilizer.control.fork import paired
from stabilizer.core.earnings import BATCHES
from stabilizer.core.knobs import Checkpoint
from stabilizer.training import checkpoint as disk
from stabilizer.training import loop
from stabilizer.training.checkpoint import CheckpointDamaged
from stabilizer.training.ring import Ring
from tests.training.test_loop import weights, without_time


def test_copies_that_change_nothing_are_equal_and_the_run_goes_on_as_if_nothing_had_been(trainer) -> None:
    alone = trainer(folder="alone")
    run = trainer(folder="forked")
    for either in (alone, run):
        either.train_step()
    fork = paired(run, {"as it is": {}, "again": {}, "half the rate": {"control/lr_scale": 0.5}}, 3)
    assert fork.curves["as it is"] == fork.curves["again"]
    assert fork.curves["as it is"] != fork.curves["half the rate"]
    assert all(len(curve["reward/mean"]) == 3 for curve in fork.curves.values())
    assert run.step == 1 and run.controls.get("control/lr_scale") == 1.0
    for _ in range(2):
        assert without_time(run.train_step().metrics) == without_time(alone.train_step().metrics)
    assert torch.equal(weights(run), weights(alone))


def test_the_copy_left_alone_is_what_the_run_then_does(trainer) -> None:
    run = trainer()
    run.train_step()
    fork = paired(run, {"as it is": {}}, 2)
    seen = [run.train_step().metrics["policy/loss"] for _ in range(2)]
    assert fork.curves["as it is"]["policy/loss"] == seen


@pytest.mark.parametrize("change", [{}, {"control/magic": 1.0}])
def test_a_request_to_skip_an_update_is_kept_for_the_run_itself(trainer, change) -> None:
    run = trainer()
    run.train_step()
    run.controls.obey("skip-update")
    with contextlib.suppress(ValueError):
        fork = paired(run, {"as it is": change}, 1)
        assert fork.curves["as it is"]["batch/updates"][0] > 0
    assert run.train_step().metrics["batch/updates"] == 0
    assert run.train_step().metrics["batch/updates"] > 0


def test_a_copy_that_fails_leaves_the_run_where_it_was(trainer) -> None:
    run = trainer()
    run.train_step()
    before = weights(run)
    with pytest.raises(ValueError, match="no knob|has no"):
        paired(run, {"as it is": {}, "nonsense": {"control/magic": 1.0}}, 2)
    assert run.step == 1 and torch.equal(weights(run), before)


def test_asking_what_is_paid_leaves_no_trace_and_asks_the_prompts_that_come_next(trainer) -> None:
    alone, run = trainer(folder="alone"), trainer(folder="asked")
    for either in (alone, run):
        either.train_step()
        either.save_checkpoint()
        either.train_step()
    (saved,) = run.checkpoints()
    now, then, again = run.paid(), run.paid(saved), run.paid()
    assert np.array_equal(now.rewards, again.rewards) and now.held_out == again.held_out
    assert run.step == 2 and torch.equal(weights(run), weights(alone))
    for _ in range(2):
        ours, theirs = run.train_step().metrics, alone.train_step().metrics
        if run.step == 3:
            first = now.rewards[: int(ours["batch/prompts"])]
            assert first.mean() == pytest.approx(ours["reward/mean"]) and len(now.rewards) == BATCHES * len(first)
        assert without_time(ours) == without_time(theirs)
    run.load_checkpoint(saved, vary_data=False)
    run._progress = alone._progress
    alone_then = run.paid()
    assert alone_then.held_out == then.held_out, "of the weights of the checkpoint"


def test_asking_after_a_resume_loses_no_state_to_go_back_to(trainer) -> None:
    lines = []
    for asks in (False, True):
        first, run = (trainer("checkpoint.keep=9", folder=f"asks-{asks}") for _ in range(2))
        for _ in range(3):
            first.train_step()
            first.save_checkpoint()
        run.resume()
        run.attempt = 1
        if asks:
            run.paid(run.checkpoints()[0])
        run.train_step()
        run.save_checkpoint()
        lines.append([(saved.step, saved.attempt) for saved in run.checkpoints()])
    assert lines[0] == lines[1] == [(1, 0), (2, 0), (3, 0), (4, 1)]


def test_weights_of_one_state_with_the_rest_of_another_are_neither_trained_nor_saved(trainer, monkeypatch) -> None:
    run = trainer()
    run.train_step()
    saved = run.save_checkpoint()
    run.train_step()
    good, loads = loop.apply, []

    def breaks_off_going_back(*args):
        loads.append(args)
        if len(loads) == 2:
            raise RuntimeError("out of memory")
        return good(*args)

    monkeypatch.setattr(loop, "apply", breaks_off_going_back)
    with pytest.raises(RuntimeError, match="out of memory"):
        run.paid(saved)
    for harm in (run.train_step, run.snapshot):
        with pytest.raises(RuntimeError, match="resume the run from its newest checkpoint"):
            harm()
    run.load_checkpoint(saved, vary_data=False)
    assert run.train_step().step == 2, "a whole state mends it"


def test_asking_for_what_can_not_be_read_leaves_the_run_as_it_was(trainer) -> None:
    run = trainer()
    run.train_step()
    saved = run.save_checkpoint()
    run.train_step()
    (saved.path / "model.safetensors").write_bytes(b"x")
    before = weights(run)
    with pytest.raises(CheckpointDamaged):
        run.paid(saved)
    assert run.step == 2 and torch.equal(weights(run), before)


def test_going_back_to_a_snapshot_needs_no_disk(trainer) -> None:
    run = trainer()
    run.train_step()
    saved, before = run.snapshot(), weights(run)
    run.train_step()
    shutil.rmtree(saved.path)
    assert saved in run.checkpoints()
    run.load_checkpoint(saved, vary_data=False)
    assert run.step == 1 and torch.equal(weights(run), before)


def test_what_memory_holds_does_not_thin_out_the_disk(trainer) -> None:
    def on_disk(ring: int) -> list[int]:
        run = trainer("checkpoint.keep=2", f"checkpoint.ring={ring}", folder=f"ring-{ring}")
        for step in (0, 10, 20, 30, 31, 40, 50, 60):
            run._progress.step = step
            run.save_checkpoint(remember=step in (30, 31))
        return [saved.step for saved in disk.scan(run._folder)]

    # ages seen from 60: 50 and 60 are the newest two, 0 the oldest; of 16-31 the oldest that is there is 40
    assert on_disk(ring=2) == on_disk(ring=0) == [0, 40, 50, 60]


def test_a_regular_checkpoint_is_not_kept_in_memory(trainer) -> None:
    run = trainer()
    run.save_checkpoint()
    assert run._ring.nbytes == 0
    for _ in range(4):
        run.train_step()
        run.snapshot()
    assert len(run._ring.checkpoints()) == run.config.checkpoint.ring


def test_a_snapshot_of_a_run_with_adapters_holds_these_alone(trainer) -> None:
    pytest.importorskip("peft")
    whole, adapters = trainer(folder="whole"), trainer("lora.rank=2", folder="lora")
    for run in (whole, adapters):
        run.train_step()
        run.snapshot()
    assert adapters._ring.nbytes < whole._ring.nbytes / 3


def test_the_ring_is_bounded_in_number_and_in_bytes(tmp_path) -> None:
    states = [Checkpoint(step, 0, tmp_path / str(step)) for step in range(4)]
    ring = Ring(2, 100)
    for state in states:
        ring.put(state, {"model": b"x" * 30})
    assert ring.checkpoints() == states[2:] and ring.nbytes == 60
    ring.put(states[0], {"model": b"x" * 80})
    assert ring.checkpoints() == [states[0]]
    ring.put(states[1], {"model": b"x" * 101})
    assert ring.get(states[1]) is None and ring.nbytes == 0, "what is too large never comes, and the rest has gone"
    nothing = Ring(0, 100)
    nothing.put(states[0], {"model": b"x"})
    assert nothing.checkpoints() == []
