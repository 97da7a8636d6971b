"""What must hold before a run is resumed: one writer, a usable configuration, a verified checkpoint."""

from __future__ import annotations

import os
import time
from pathlib import Path

from stabilizer.runs.listing import run_state, writer_lives
from stabilizer.runs.reader import RunError, RunReader
from stabilizer.runs.secrets import HIDDEN, hidden_keys
from stabilizer.runs.writer import RunWriter
from stabilizer.training.checkpoint import remove, scan
from stabilizer.training.config import config_from_dict
from stabilizer.training.loop import Trainer
from stabilizer.training.ranks import ALONE, Ranks
from stabilizer.training.settings import TrainConfig


class RunComplete(ValueError):
    """A run that has nothing left to train."""


def resumed_trainer(reader: RunReader, writer: RunWriter, ranks: Ranks = ALONE) -> Trainer:
    """The trainer at the newest verified checkpoint, with a new attempt begun. ValueError when that is impossible."""
    path = writer.path
    reader.refresh()  # what another process wrote until it released the run
    attempt = max(reader.histories) + 1
    config = _config(reader)
    _forget_unfinished_returns(reader)
    trainer = Trainer(config, checkpoints=path / "checkpoints", attempt=attempt, ranks=ranks)
    checkpoint = trainer.resume()
    if checkpoint is None:
        why = f" ({trainer.passed_over[0]})" if trainer.passed_over else ""
        raise ValueError(f"{path / 'checkpoints'}: no checkpoint passes verification{why}; start a new run")
    if trainer.finished and reader.status.get("state") == "finished":
        raise RunComplete(f"{path}: {trainer.finished}; the run is complete; {how_to_train_on(path)}")
    # A checkpoint newer than every attempt was saved just before its attempt could be declared: it branches
    # off the newest declared attempt.
    parent = min(checkpoint.attempt, writer.attempt)
    history = reader.histories[parent].fork(checkpoint.step + 1, attempt)
    writer.begin_attempt(checkpoint.step + 1, "resume", parent=parent, history=history)
    writer.event(checkpoint.step + 1, "resume", f"resumed from step {checkpoint.step}")
    reader.refresh()
    return trainer


def refuse_a_second_writer(reader: RunReader) -> None:
    """ValueError while another process trains the run."""
    status = reader.status
    if run_state(status, time.time()) not in ("running", "paused", "created") or not status.get("t"):
        return
    if writer_lives(status) is False or status.get("pid") == os.getpid():  # it was killed
        return
    where = f"process {status.get('pid')} on {status.get('host')}"
    raise ValueError(f"{reader.path}: {where} is still training this run; stop it first (SIGTERM saves and ends it)")


def how_to_train_on(path: Path) -> str:
    """How to train on from the weights of a finished run."""
    return f"to train its weights further, `stabilizer export {path} -o FOLDER` and start a run with --set model=FOLDER"


def _config(reader: RunReader) -> TrainConfig:
    """The configuration the run was started with; an error when it is damaged or lacks a hidden value."""
    about = reader.path / "run.json"
    try:
        config = config_from_dict(reader.about["config"])
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{about}: no usable configuration ({error}); start a new run") from None
    if hidden := hidden_keys(reader.about["config"]):
        raise ValueError(
            f"{about}: {hidden[0]} looked like a secret and was not stored; replace {HIDDEN!r} there by its"
            f" value to resume, and read secrets from the environment next time"
        )
    return config


def _forget_unfinished_returns(reader: RunReader) -> None:
    """Remove the checkpoints of a return that a crash cut off, so that the run resumes from before it.

    The journal will say that the return failed, and the weights must agree. A return is unfinished when no step
    followed it, and either its attempt was never declared or the journal does not know of it yet.
    """
    begun = bool(reader.actions) and reader.actions[-1].entry == "approved"
    declared = {entry["attempt"]: entry.get("reason") for entry in reader.about["attempts"]}
    rows = {attempt for attempt, _ in reader.ticks}
    for state in scan(reader.path / "checkpoints"):
        undeclared = state.attempt not in declared
        returned = declared.get(state.attempt) == "rollback" and begun and state.attempt == max(declared)
        if state.attempt not in rows and (undeclared or returned):
            remove(state)
