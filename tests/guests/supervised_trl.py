"""A TRL script as a user writes it, for test_trl_supervise.py: two processes under torchrun.

The first attempt changes the learning rate and asks for another group size, in the second one process is killed, in the
third one process hangs in its reward, and the fourth ends well.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

import torch
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

import stabilizer
from stabilizer.runs.requests import ask
from tests.guests.tiny_trl import trainer

ATTEMPT, RANK = int(os.environ["STABILIZER_ATTEMPT"]), int(os.environ["RANK"])
calls = 0


def reward(completions: list[str], **others: object) -> list[float]:
    global calls
    calls += 1
    if (ATTEMPT, RANK, calls) == (3, 1, 3):
        time.sleep(600)
    return [float(text.count("1")) for text in completions]


class Events(TrainerCallback):
    def __init__(self, made, run, seen: Path) -> None:
        self.made, self.run, self.seen = made, run, seen

    def on_step_end(self, args, state, control, **others):
        weights = torch.cat([p.detach().flatten() for p in self.made.model.parameters()]).double()
        row = [ATTEMPT, state.global_step, float(weights.norm()), self.made.lr_scheduler.base_lrs[0]]
        with self.seen.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if ATTEMPT == 1 and RANK == 0 and state.global_step in (1, 3):
            ask(self.run.path, "set", "lr_scale=0.5" if state.global_step == 1 else "group_size=2")
        if (ATTEMPT, RANK, state.global_step) == (2, 1, 11):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num_generations", type=int, default=4)
    given = parser.parse_args()
    out = given.folder / "out"
    last = get_last_checkpoint(str(out)) if out.is_dir() else None
    made = trainer(
        out, steps=14, reward=reward, num_generations=given.num_generations, per_device_train_batch_size=4,
        ddp_backend="gloo", save_strategy="steps", save_steps=5,
    )  # fmt: skip
    run = stabilizer.attach(made, runs=given.folder / "runs", remedy="approve")
    made.add_callback(Events(made, run, given.folder / f"rank{RANK}.jsonl"))
    made.train(resume_from_checkpoint=last)
