"""A real run with everything around it: what is on disk afterwards, how it stops, resumes, agrees with its replay."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from bench.trust.damage import BEHIND_A_VALID_HASH, flip_a_bit
from stabilizer.analysis.analyse import analyse
from stabilizer.cli import main
from stabilizer.commands.live_run import command, follow
from stabilizer.core.metrics import VOCABULARY
from stabilizer.core.records import Action, Finding, Metrics, Sample
from stabilizer.live.host import RunHost
from stabilizer.live.monitor import RESTATED, Monitor
from stabilizer.live.session import Session
from stabilizer.runs.atomic import replace_json
from stabilizer.runs.chain import chain_hash
from stabilizer.runs.disk import PATIENCE_S
from stabilizer.runs.reader import RunError, RunReader, read_json, read_records
from stabilizer.runs.requests import ask
from stabilizer.trainers.reading import load
from stabilizer.training import loop
from stabilizer.training.config import load_config

SMALL = [
    "rollout.prompts=4", "rollout.group_size=4", "validation.problems=16", "validation.every=5", "checkpoint.every=5",
]  # fmt: skip

CORE = {
    "optim/grad_norm", "optim/lr", "optim/update_ratio", "policy/loss", "policy/clip_frac", "policy/clip_frac_low",
    "policy/clip_frac_high", "policy/entropy", "policy/kl_old", "policy/kl_ref", "policy/ratio_max",
    "policy/mismatch_kl",
    "reward/mean", "reward/std_group", "reward/zero_std_frac", "reward/all_fail_frac", "reward/all_pass_frac",
    "accuracy/train", "rollout/length_mean", "rollout/truncated_frac", "rollout/repetition", "rollout/distinct",
    "rollout/staleness", "time/step_s", "time/rollout_s", "tokens/total", "batch/prompts", "batch/group_size",
    "control/beta", "control/lr_scale",
}  # fmt: skip


def small_config(steps: int, *more: str):
    return load_config("addition", [*SMALL, *more], steps=steps)


def test_a_slow_disk_does_not_keep_a_run_from_starting(tmp_path: Path, monkeypatch) -> None:
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (time.sleep(1.5 * PATIENCE_S), real(handle)))
    session = Session.start(small_config(1), tmp_path / "run")
    assert not session.host.unsaved and session.trainer.checkpoints()
    session._close("stopped")


def train_process(tmp_path: Path, *words: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "stabilizer", "train", "--json", "--runs", str(tmp_path), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def small_process(tmp_path: Path, steps: int, *more: str) -> subprocess.Popen:
    return train_process(
        tmp_path, "addition", "--steps", str(steps), *(word for key in (*SMALL, *more) for word in ("--set", key))
    )


def read_until(process: subprocess.Popen, step: int) -> list[dict]:
    """Objects the process printed, up to a step."""
    rows = []
    for line in process.stdout:
        rows.append(json.loads(line))
        if rows[-1].get("step", 0) >= step:
            return rows
    raise AssertionError(process.stderr.read())


def the_run(tmp_path: Path) -> Path:
    (path,) = [child for child in tmp_path.iterdir() if (child / "run.json").exists()]
    return path


def test_a_run_leaves_what_the_design_promises(tmp_path) -> None:
    session = Session.start(small_config(10), tmp_path / "run")
    ticks = list(session.run())
    assert [tick.step for tick in ticks] == list(range(1, 11))
    reader = RunReader(tmp_path / "run")
    assert reader.status["state"] == "finished" and reader.status["step"] == 10
    assert reader.about["config"]["task"] == "addition"
    assert reader.skipped == 0
    assert [s for s in reader.history.view().series("accuracy/val").steps] == [0, 5, 10]
    every_step = {name for name in reader.history.names() if len(reader.history.view().series(name)) >= 10}
    assert CORE - every_step == set()
    assert {name for name in reader.history.names() if name not in VOCABULARY} <= {"reward/exact/mean"}
    assert read_records(next(reader.path.glob("samples/*-r0.jsonl")), Sample).records
    assert {"unit", "estimator", "aggregation", "source"} == set(reader.about["metrics"]["policy/kl_ref"])


def test_knobs_are_read_anew_at_every_step_and_recorded(tmp_path) -> None:
    session = Session.start(small_config(4), tmp_path / "run")
    for tick in session.run():
        if tick.step == 2:
            session.trainer.controls.set("control/prompts", 6)
            session.trainer.controls.set("control/beta", 0.5)
    view = RunReader(tmp_path / "run").history.view()
    assert list(view.series("batch/prompts").values) == [4, 4, 6, 6]
    assert list(view.series("control/beta").values)[2:] == [0.5, 0.5]


def test_a_knob_is_turned_by_hand_from_outside(tmp_path) -> None:
    session = Session.start(small_config(5), tmp_path / "run")
    for tick in session.run():
        if tick.step == 2:
            ask(tmp_path / "run", "set", "prompts=6")
            ask(tmp_path / "run", "set", "kl_kind=k2")
            ask(tmp_path / "run", "set", "prompts=-1")
            ask(tmp_path / "run", "set", "group_size=1")
            ask(tmp_path / "run", "set", "filter_groups=off")
            ask(tmp_path / "run", "do", "reset-reference")
            ask(tmp_path / "run", "do", "snapshot")
    reader = RunReader(tmp_path / "run")
    view = reader.history.view()
    # asked for after step 2, taken at the boundary after step 3
    assert list(view.series("batch/prompts").values) == [4, 4, 4, 6, 6]
    assert list(view.series("control/kl_kind").values) == [2, 2, 2, 1, 1]
    told = {event.text: event.kind for event in reader.history.events if event.step >= 3}
    assert told["control/prompts 4 → 6, set by cli"] == told["reset-reference, requested by cli"] == "intervention"
    assert told["control/kl_kind k3 → k2, set by cli"] == "intervention"
    # what changes nothing is no new beginning for the detectors
    assert told["control/filter_groups off → off, set by cli"] == "note"
    assert told["snapshot of step 3, requested by cli"] == "checkpoint"
    assert any("refused" in text and "between 1 and 4096" in text for text in told)
    assert any("refused" in text and "compares the answers of a group" in text for text in told)
    assert all(event.data["by"] == "cli" for event in reader.history.events if event.step >= 3)


def test_no_knob_is_turned_to_what_a_configuration_may_not_ask_for(tmp_path) -> None:
    for tick in Session.start(small_config(4), tmp_path / "run").run():  # 4 prompts x 4 answers
        if tick.step == 1:
            for turn in ("minibatches=17", "minibatches=16", "prompts=3"):
                ask(tmp_path / "run", "set", turn)
    history = RunReader(tmp_path / "run").history
    assert list(history.view().series("batch/updates").values) == [2, 2, 16, 16]
    refused = [event.text.split(" refused")[0] for event in history.events if " refused" in event.text]
    assert refused == ["set 'minibatches=17'", "set 'prompts=3'"]


def test_what_was_asked_for_by_hand_is_listed_with_its_answer(tmp_path, capsys) -> None:
    session = Session.start(small_config(3, "algorithm=ppo"), tmp_path / "run")
    for tick in session.run():
        if tick.step == 1:
            assert main(["fix", str(tmp_path / "run"), "set", "prompts=6"]) == 0
            assert main(["fix", str(tmp_path / "run"), "set", "kl_kind=k2"]) == 2
    assert "control/kl_kind has no effect in this run; its knobs are lr_scale, beta" in capsys.readouterr().err
    assert main(["fix", str(tmp_path / "run"), "list"]) == 0
    told = capsys.readouterr().out
    assert "h1" in told and "by-hand" in told
    assert main(["fix", str(tmp_path / "run"), "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["entry"], listed["change"]) == ("applied", {"control/prompts": [4, 6]})


def test_the_live_watch_and_the_replay_of_its_run_agree(tmp_path) -> None:
    config = small_config(40, "optim.lr=0.02", "optim.warmup_steps=0", "rollout.prompts=8")
    session = Session.start(config, tmp_path / "run", "auto-full")
    list(session.run())
    replayed = analyse(load(tmp_path / "run")).findings

    def told(findings) -> list[tuple]:
        return sorted((f.incident, f.id, f.severity, f.state, f.onset_step, f.detected_step) for f in findings)

    live = session.monitor.watch.findings()
    assert told(replayed) == told(live)
    assert live, "this run is meant to break"


def test_the_journal_is_chained_and_survives_a_rollback(tmp_path) -> None:
    config = small_config(60, "optim.lr=0.005", "optim.warmup_steps=20", "rollout.prompts=16")
    session = Session.start(config, tmp_path / "run", "auto-full")
    list(session.run())
    journal = read_records(tmp_path / "run" / "actions.jsonl", Action).records
    assert journal, "this run is meant to need a fix"
    previous = ""
    for entry in journal:
        assert entry.prev == previous and entry.hash == chain_hash(entry)
        previous = entry.hash
    attempts = read_json(tmp_path / "run" / "run.json")["attempts"]
    rollbacks = [attempt for attempt in attempts if attempt["reason"] == "rollback"]
    assert len(rollbacks) == sum(entry.entry == "applied" and entry.remedy == "roll-back" for entry in journal)
    for attempt in rollbacks:
        abandoned = read_records(tmp_path / "run" / "metrics" / f"r0-a{attempt['parent']}.jsonl", Metrics).records
        assert abandoned[-1].step >= attempt["from_step"], "the abandoned branch stays readable"


def test_a_failing_watch_never_stops_training(tmp_path) -> None:
    session = Session.start(small_config(5), tmp_path / "run")

    class Broken:
        def tick(self, view):
            raise RuntimeError("no")

        def active(self):
            return []

        def verdict(self, view):
            return "healthy", None

    session.monitor.watch = Broken()
    assert [tick.step for tick in session.run()] == [1, 2, 3, 4, 5]
    assert any("monitor failed" in event.text for event in RunReader(tmp_path / "run").events)


PPO, RESAMPLED = ("algorithm=ppo", "policy.beta=0.01"), ("policy.filter_groups=resample",)


@pytest.mark.parametrize(
    ("recipe", "how"),
    [
        pytest.param((), signal.SIGKILL, id="GRPO-kill -9"),
        pytest.param(PPO, signal.SIGTERM, id="PPO-SIGTERM"),
        pytest.param(RESAMPLED, signal.SIGKILL, id="dynamic sampling-kill -9"),
        pytest.param((), signal.SIGTERM, id="GRPO-SIGTERM", marks=pytest.mark.slow),
        pytest.param(PPO, signal.SIGKILL, id="PPO-kill -9", marks=pytest.mark.slow),
        pytest.param(RESAMPLED, signal.SIGTERM, id="dynamic sampling-SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(tmp_path, how, recipe) -> None:
    process = small_process(tmp_path / "cut", 400, *recipe)
    read_until(process, 6)
    process.send_signal(how)
    process.communicate(timeout=60)
    run = the_run(tmp_path / "cut")
    status = read_json(run / "status.json")
    if how == signal.SIGTERM:
        assert process.returncode == 0 and status["state"] == "preempted" and status["step"] >= 6
    session = Session.resume(run)
    # a killed run goes on from its last checkpoint: every fifth step
    assert session.trainer.step == (status["step"] if how == signal.SIGTERM else session.trainer.step // 5 * 5)
    last = session.trainer.step + 4
    whole = Session.start(small_config(400, *recipe), tmp_path / "whole")
    for either in (session, whole):
        for tick in either.run():
            if tick.step == last:
                either.stop_reason = "SIGINT"
    ours, theirs = RunReader(run).history.view(), RunReader(tmp_path / "whole").history.view()
    for name in theirs.names():
        if not name.startswith("time/"):
            assert list(ours.series(name).values) == list(theirs.series(name).values), name


@pytest.mark.parametrize("after", [3, 8])
def test_kill_9_loses_no_reported_step_and_the_run_can_go_on(tmp_path, after: int) -> None:
    process = small_process(tmp_path, 400)
    rows = read_until(process, after)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = the_run(tmp_path)
    history = RunReader(run).history
    reported = [row["step"] for row in rows if row["kind"] == "step"]
    assert set(reported) <= set(history.view().series("reward/mean").steps.tolist())
    session = Session.resume(run)
    ticks = session.run()
    first = next(ticks)
    assert first.step <= after + 1
    ticks.close()
    assert RunReader(run).about["attempts"][-1]["reason"] == "resume"


def test_pause_and_resume_by_request(tmp_path) -> None:
    session = Session.start(small_config(6), tmp_path / "run")
    states = []
    for tick in session.run():
        if tick.step == 2:
            ask(session.writer.path, "pause")
        if tick.step == 3:
            states.append(session.host.paused)
            ask(session.writer.path, "resume")  # else this test would wait for ever
    assert states == [True]
    assert session.trainer.step == 6
    assert os.listdir(session.writer.path / "requests") == []


def test_an_approval_given_while_paused_is_not_lost(tmp_path) -> None:
    session = Session.start(small_config(6), tmp_path / "run")
    heard = []
    tick_before = session.arbiter.tick

    def listening(view, requests=()):
        heard.extend(request.kind for request in requests)
        tick_before(view, requests)

    session.arbiter.tick = listening
    for tick in session.run():
        if tick.step == 2:
            ask(session.writer.path, "pause")
        if tick.step == 3:
            ask(session.writer.path, "approve", "a1")
            ask(session.writer.path, "resume")
    assert heard == ["approve"]


def test_leaving_a_run_early_stops_and_saves_it(tmp_path) -> None:
    ticks = Session.start(small_config(8), tmp_path / "run").run()
    while next(ticks).step < 3:
        pass
    ticks.close()
    assert read_json(tmp_path / "run" / "status.json")["state"] == "stopped"
    assert Session.resume(tmp_path / "run").trainer.step == 3


def test_a_run_that_still_trains_can_not_be_resumed_by_another(tmp_path) -> None:
    process = small_process(tmp_path, 400)
    read_until(process, 2)
    try:
        with pytest.raises(ValueError, match="is still training this run"):
            Session.resume(the_run(tmp_path))
    finally:
        process.kill()
        process.wait()


def test_of_two_that_go_on_at_once_one_is_refused_whatever_the_heartbeat_says(tmp_path) -> None:
    path = tmp_path / "run"
    session = Session.start(small_config(4), path)
    session.writer.status("running", 0)
    status = read_json(path / "status.json")
    replace_json(path / "status.json", status | {"t": status["t"] - 3600})  # a step that takes an hour
    with pytest.raises(ValueError, match="another process still trains this run"):
        Session.resume(path)
    session.writer.close()
    resumed = Session.resume(path)
    assert [tick.step for tick in resumed.run()] == [1, 2, 3, 4]


def test_asked_to_end_while_paused_it_makes_no_further_step(tmp_path) -> None:
    session = Session.start(small_config(6), tmp_path / "run")
    steps = []
    for tick in session.run():
        steps.append(tick.step)
        if tick.step == 2:
            ask(session.writer.path, "pause")
            session._wait_while_paused = lambda: setattr(session, "stop_reason", "SIGTERM")
    assert steps == [1, 2]
    assert read_json(tmp_path / "run" / "status.json")["state"] == "preempted"


def test_a_setting_that_was_hidden_is_asked_for_instead_of_made_up(tmp_path) -> None:
    reward = tmp_path / "mine.py"
    reward.write_text("def score(completion, end_token): return float(completion.endswith(end_token))\n")
    more = [f"reward.functions=[{{use: {reward}:score, options: {{end_token: '1'}}}}]"]
    ticks = Session.start(small_config(4, *more), tmp_path / "run").run()
    while next(ticks).step < 2:
        pass
    ticks.close()
    assert any("end_token looks like a secret" in event.text for event in RunReader(tmp_path / "run").events)
    with pytest.raises(ValueError, match="reward.functions.0.options.end_token looked like a secret"):
        Session.resume(tmp_path / "run")
    about = (tmp_path / "run" / "run.json").read_text()
    (tmp_path / "run" / "run.json").write_text(about.replace('"end_token": "***"', '"end_token": "1"'))
    assert Session.resume(tmp_path / "run").trainer.step == 2


@pytest.mark.parametrize(("order", "back_to"), [("restore", 4), ("restore:2", 2)])
def test_a_run_returns_to_an_earlier_state_by_hand(tmp_path, order: str, back_to: int) -> None:
    session = Session.start(small_config(6, "checkpoint.every=2"), tmp_path / "run")
    asked = False
    for tick in session.run():
        if tick.step == 4 and not asked:
            asked = True
            ask(tmp_path / "run", "do", "restore:3")
            ask(tmp_path / "run", "do", order)
    reader = RunReader(tmp_path / "run")
    begun = reader.about["attempts"][-1]
    assert (begun["reason"], begun["from_step"]) == ("rollback", back_to + 1)
    steps = reader.history.view().series("reward/mean").steps
    assert list(steps) == [1, 2, 3, 4, 5, 6]
    assert "no checkpoint of step 3; available: 0, 2, 4" in (tmp_path / "run" / "events.jsonl").read_text()
    assert f"returned to step {back_to}, requested by cli" in [event.text for event in reader.history.events]


def test_an_order_nobody_knows_is_refused_with_those_there_are(tmp_path, capsys) -> None:
    session = Session.start(small_config(2), tmp_path / "run")
    for tick in session.run():
        if tick.step == 1:
            assert main(["fix", str(tmp_path / "run"), "do", "restore:soon"]) == 2
            assert main(["fix", str(tmp_path / "run"), "do", "restore:99999"]) == 2
            assert main(["fix", str(tmp_path / "run"), "set", "entropycoef=0.1"]) == 2
    told = capsys.readouterr().err
    assert "no checkpoint of step 99999 to return to; available: 0" in told
    assert not list((tmp_path / "run" / "requests").glob("*.json"))
    assert "restore:STEP" in told and "nearest is 'control/entropy_coef'" in told


def test_a_run_that_fails_says_so_on_disk_and_to_diagnose_until_it_was_resumed(tmp_path, capsys) -> None:
    session = Session.start(small_config(8), tmp_path / "run")
    train_step = session.trainer.train_step

    def failing():
        if session.trainer.step == 6:
            raise RuntimeError("CUDA out of memory. Tried to allocate 4.07 GiB")
        return train_step()

    session.trainer.train_step = failing
    with pytest.raises(RuntimeError, match="out of memory"):
        list(session.run())
    assert [f.id for f in RunReader(tmp_path / "run").findings if f.severity == "critical"] == ["system/crashed"]
    assert main(["diagnose", str(tmp_path / "run"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    crash = next(f for f in found["findings"] if f["id"] == "system/crashed")
    assert found["verdict"] == "crashed" and crash["onset_step"] == 6 and crash["causes"][0]["id"] == "out-of-memory"
    assert "optim.micro_batch" in crash["remedies"][0]["how"]
    list(Session.resume(tmp_path / "run").run())
    main(["diagnose", str(tmp_path / "run"), "--json", "--fail-on", "never"])
    assert json.loads(capsys.readouterr().out)["verdict"] != "crashed"


def interrupted_at_once() -> None:
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


def test_a_step_that_is_broken_off_is_neither_saved_nor_seen_after_a_resume(tmp_path) -> None:
    config = small_config(6, "checkpoint.every=1", "policy.minibatches=4")
    session = Session.start(config, tmp_path / "run")
    optimizer = session.trainer.learner.optimizer
    step, made = optimizer.step, []

    def half_of_the_fourth(*args) -> None:
        step(*args)
        made.append(session.trainer.step)
        if made.count(3) == 2:
            interrupted_at_once()

    optimizer.step = half_of_the_fourth
    with pytest.raises(KeyboardInterrupt):
        list(session.run())
    assert RunReader(tmp_path / "run").status["state"] == "stopped" and not session.trainer.whole
    with pytest.raises(RuntimeError, match="was interrupted.*resume"):
        session.trainer.train_step()
    again = {tick.step: tick.metrics["optim/grad_norm"] for tick in Session.resume(tmp_path / "run").run()}
    straight = {tick.step: tick.metrics["optim/grad_norm"] for tick in Session.start(config, tmp_path / "other").run()}
    assert again == {step: straight[step] for step in (4, 5, 6)}


def test_who_ends_a_run_at_once_is_told_how_to_go_on(tmp_path) -> None:
    session = Session.start(small_config(6), tmp_path / "run")
    session.trainer.learner.optimizer.step = lambda *args: interrupted_at_once()
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        follow(session, Console(file=out, width=500), json=False)
    assert f"stopped at once; resume from the last checkpoint with: {command()} train --resume" in out.getvalue()


def test_a_return_that_is_broken_off_leaves_a_run_that_is_stopped_and_can_go_on(tmp_path, monkeypatch) -> None:
    session = Session.start(small_config(6), tmp_path / "run")
    load = loop.apply
    with pytest.raises(KeyboardInterrupt):
        for tick in session.run():
            if tick.step == 2:
                ask(tmp_path / "run", "do", "restore:0")
                monkeypatch.setattr(loop, "apply", lambda *args: (interrupted_at_once(), load(*args))[1])
    monkeypatch.undo()
    assert RunReader(tmp_path / "run").status["state"] == "stopped"
    assert [tick.step for tick in Session.resume(tmp_path / "run").run()][-1] == 6


def test_being_asked_to_end_again_while_the_last_state_is_saved_changes_nothing(tmp_path, monkeypatch) -> None:
    session = Session.start(small_config(50), tmp_path / "run")
    save = session.trainer.save_checkpoint

    def asked_again(**how) -> None:
        if session.trainer.step == 5:
            signal.raise_signal(signal.SIGTERM)
        return save(**how)

    monkeypatch.setattr(session.trainer, "save_checkpoint", asked_again)
    for tick in session.run():
        if tick.step == 4:
            signal.raise_signal(signal.SIGTERM)
    status = RunReader(tmp_path / "run").status
    assert (status["state"], status["step"]) == ("preempted", 4)
    assert Session.resume(tmp_path / "run").trainer.step == 4


def test_sigterm_before_the_first_step_leaves_a_run_that_can_go_on(tmp_path, monkeypatch, capsys) -> None:
    begin = Session.start

    def while_it_is_set_up(*args, **how) -> Session:
        signal.raise_signal(signal.SIGTERM)
        return begin(*args, **how)

    monkeypatch.setattr(Session, "start", while_it_is_set_up)
    before = signal.getsignal(signal.SIGTERM)
    words = [word for key in SMALL for word in ("--set", key)]
    assert main(["train", "addition", "--steps", "3", "--runs", str(tmp_path), *words]) == 0
    assert signal.getsignal(signal.SIGTERM) == before
    assert "stopped by SIGTERM at step 0" in capsys.readouterr().out
    assert [tick.step for tick in Session.resume(the_run(tmp_path)).run()] == [1, 2, 3]


def test_who_asks_a_run_to_end_is_told_at_once_that_it_was_heard(tmp_path, capfd) -> None:
    session = Session.start(small_config(6), tmp_path / "run")
    score = session.trainer.task.score

    def amid_a_step(*args):
        if session.trainer.step == 2 and not session.stop_reason:
            signal.raise_signal(signal.SIGINT)
            assert (
                "ends after this step and saves its state; press Ctrl-C again to end at once" in capfd.readouterr().err
            )
        return score(*args)

    session.trainer.task.score = amid_a_step
    follow(session, Console(file=io.StringIO()), json=False)
    assert session.trainer.step == 3


def full_disk(*args: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_run_whose_first_state_can_not_be_saved_does_not_begin(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("stabilizer.training.checkpoint.write", full_disk)
    with pytest.raises(RunError, match="the first checkpoint could not be saved .*No space left.*free disk space"):
        Session.start(small_config(3), tmp_path / "run")
    assert RunReader(tmp_path / "run").status["state"] == "failed"


@pytest.mark.parametrize("free_gb", [0.02, 1000.0])
def test_a_disk_too_small_for_the_checkpoints_to_come_is_said_after_the_first(tmp_path, monkeypatch, free_gb) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free_gb * 1e9))
    session = Session.start(load_config("addition", ["steps=100000", "checkpoint.every=1"]), tmp_path / "run")
    for _, _ in zip(range(2), session.run(), strict=False):
        pass
    said = [event.text for event in RunReader(tmp_path / "run").events]
    assert any("checkpoints of 0.001" in text and "will be kept: free" in text for text in said) == (free_gb < 1), said


@pytest.mark.parametrize("attempts", [[], None, [{"from_step": 0}], "two", [{"attempt": 1.5}], [{"attempt": None}]])
def test_a_run_whose_attempts_are_lost_is_refused_in_words_and_left_as_it_is(tmp_path, attempts, capsys) -> None:
    run = tmp_path / "run"
    list(Session.start(small_config(2), run).run())
    about = read_json(run / "run.json")
    replace_json(run / "run.json", about | {"attempts": attempts})
    for _ in range(2):  # it lets go of what it refused
        assert main(["train", "--resume", str(run)]) == 2
        assert "names no attempt to go on from" in capsys.readouterr().err
    assert read_json(run / "run.json")["attempts"] == attempts


def test_a_run_whose_newest_attempt_is_lost_is_refused_for_its_rows_would_be_mixed(tmp_path, capsys) -> None:
    run = tmp_path / "run"
    for begin in (lambda: Session.start(small_config(6), run), lambda: Session.resume(run)):
        for tick in begin().run():
            if tick.step % 2 == 0:
                break
    states = sorted(state.name for state in (run / "checkpoints").iterdir())
    about = read_json(run / "run.json")
    assert [entry["attempt"] for entry in about["attempts"]] == [0, 1]
    replace_json(run / "run.json", about | {"attempts": about["attempts"][:1]})
    assert main(["train", "--resume", str(run)]) == 2
    assert "r0-a1.jsonl holds rows of a later one: restore it" in capsys.readouterr().err
    assert sorted(state.name for state in (run / "checkpoints").iterdir()) == states


def test_there_is_no_state_to_go_on_from_before_the_first_row_is_on_record(tmp_path, monkeypatch) -> None:
    rows = []
    save = RunHost.save_checkpoint

    def seen(host: RunHost, **options: float) -> None:
        rows.append(RunReader(host.monitor.writer.path).history.view().series("accuracy/val").steps.tolist())
        save(host, **options)

    monkeypatch.setattr(RunHost, "save_checkpoint", seen)
    Session.start(small_config(2), tmp_path / "run")
    assert rows == [[0]]


@pytest.mark.parametrize("said", [None, True, [], "x"])
def test_a_damaged_list_of_metrics_is_made_anew(tmp_path, said) -> None:
    run = tmp_path / "run"
    ticks = Session.start(small_config(4), run).run()
    next(ticks)
    ticks.close()
    replace_json(run / "run.json", read_json(run / "run.json") | {"metrics": said})
    assert [tick.step for tick in Session.resume(run).run()] == [2, 3, 4]
    assert "unit" in read_json(run / "run.json")["metrics"]["reward/mean"]


def test_a_run_that_is_over_says_how_its_weights_are_trained_on(tmp_path, capsys) -> None:
    run = tmp_path / "run"
    list(Session.start(small_config(2), run).run())
    assert main(["train", "--resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert "all 2 steps are done" in said and f"export {run} -o FOLDER" in said and "--set model=FOLDER" in said
    assert main(["export", str(run), "-o", str(tmp_path / "weights")]) == 0
    more = [word for key in (*SMALL, f"model={tmp_path / 'weights'}") for word in ("--set", key)]
    assert main(["train", "addition", "--steps", "1", "--runs", str(tmp_path / "more"), *more]) == 0
    capsys.readouterr()


def test_a_final_state_that_is_not_on_disk_is_told_and_is_no_success(tmp_path, monkeypatch) -> None:
    session = Session.start(small_config(4, "checkpoint.every=2"), tmp_path / "run")
    monkeypatch.setattr("stabilizer.training.checkpoint.write", full_disk)
    out = io.StringIO()
    assert follow(session, Console(file=out, width=200), json=False) == 1
    said = out.getvalue()
    assert said.count("checkpoint could not be saved") == 1, "once, not at every checkpoint"
    assert (
        "the final state could not be saved ([Errno 28] No space left on device): the newest checkpoint is of step 0"
        in said
    )


def test_why_a_reward_fails_is_told_at_its_first_failure_and_once(tmp_path) -> None:
    rewards = tmp_path / "rewards.py"
    rewards.write_text("def right(completion, answer):\n    assert completion == answer\n    return 1.0\n")
    session = Session.start(small_config(3, f"reward.functions=['{rewards}:right']"), tmp_path / "run")
    told = [trouble for tick in session.run() for trouble in tick.troubles]
    assert [t for t in told if "AssertionError" in t] == ["a reward failed: right: AssertionError (rewards.py line 2)"]
    assert any("held-out problems got no reward, so too few are left to compute accuracy/val" in t for t in told)
    reader = RunReader(tmp_path / "run")
    assert set(told) <= {event.text for event in reader.events}
    assert "accuracy/val" not in reader.history.names(), "what could be graded is what was right"


def test_a_run_that_a_fix_ended_is_stopped_with_its_reason_and_can_be_gone_on_with(tmp_path) -> None:
    session = Session.start(small_config(6), tmp_path / "run")
    for tick in session.run():
        if tick.step == 2:
            session.host.stop("early-stop: nothing left to gain")
    status = read_json(tmp_path / "run" / "status.json")
    assert (status["state"], status["step"]) == ("stopped", 2)
    assert any("ended early: early-stop" in event.text for event in RunReader(tmp_path / "run").events)
    assert [tick.step for tick in Session.resume(tmp_path / "run").run()] == [3, 4, 5, 6]


def test_a_fork_in_a_session_leaves_no_trace_in_its_run(tmp_path) -> None:
    plain, forked = (Session.start(small_config(5), tmp_path / name) for name in ("plain", "forked"))
    for session in (plain, forked):
        for tick in session.run():
            if session is forked and tick.step == 2:
                fork = session.host.fork({"no change": {}, "lower-lr": {"control/lr_scale": 0.5}}, 3)
    ours, theirs = (RunReader(tmp_path / name).history.view() for name in ("plain", "forked"))
    for name in ours.names():
        if not name.startswith("time/"):
            assert list(ours.series(name).values) == list(theirs.series(name).values), name
    ahead = ours.series("policy/loss").between(3, 5).values
    assert fork.curves["no change"]["policy/loss"] == list(ahead), "the twin did what the run then did"


def test_what_stands_is_written_anew_when_its_words_are_old_and_no_sooner() -> None:
    standing = Finding("reward/collapse", "critical", "it fell", 40, 45, 60, {}, "open", incident=1)
    written: list[Finding] = []
    writer = SimpleNamespace(about={}, path=Path(), finding=lambda *findings, sync: written.extend(findings))
    monitor = Monitor(writer)
    monitor.watch = SimpleNamespace(active=lambda: [standing])
    monitor._written = {(1, "reward/collapse"): 45}
    told = []
    for step in range(46, 45 + 3 * RESTATED):
        monitor.restate(step, RESTATED)
        told += [step] * (len(written) - len(told))
    assert told == [45 + RESTATED, 45 + 2 * RESTATED]
    monitor.restate(44 + 3 * RESTATED, 1)
    assert len(written) == 3, "a run that ends leaves no old words"


@pytest.mark.parametrize("behind_a_valid_hash", [False, True])
def test_a_newest_checkpoint_that_is_passed_over_is_reported(tmp_path, behind_a_valid_hash: bool) -> None:
    path = tmp_path / "run"
    list(Session.start(small_config(4, "checkpoint.every=2"), path).run())
    newest = max((path / "checkpoints").glob("step-4-*"))
    if behind_a_valid_hash:
        BEHIND_A_VALID_HASH["weights: header that lies"](newest)
    else:
        flip_a_bit(newest, random.Random(3))
    resumed = Session.resume(path)
    assert resumed.trainer.step == 2
    first = next(resumed.run())
    said = [text for text in first.troubles if "passed over" in text]
    assert len(said) == 1 and str(newest) in said[0] and said[0].endswith("resumed from step 2")
    assert said[0] in [event.text for event in RunReader(path).events]
