"""A TRL script as a user writes it, for test_trl_supervise.py: `python supervised_trl.py FOLDER --num_generations 4`.

The first attempt asks for another group size, the second crashes, the third hangs in its reward, the fourth ends well.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

import stabilizer
from stabilizer.cli import main
from tests.guests.tiny_trl import trainer

ATTEMPT = int(os.environ["STABILIZER_ATTEMPT"])
calls = 0


def reward(completions: list[str], **others: object) -> list[float]:
    global calls
    calls += 1
    if ATTEMPT == 3 and calls == 3:
        time.sleep(600)
    return [float(text.count("1")) for text in completions]


class Events(TrainerCallback):
    def __init__(self, run: stabilizer.GuestRun) -> None:
        self.run = run

    def on_step_end(self, args, state, control, **others):
        if ATTEMPT == 1 and state.global_step == 3:
            main(["fix", str(self.run.path), "set", "group_size=2"])
        if ATTEMPT == 2 and state.global_step == 12:
            raise RuntimeError("a worker was lost")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num_generations", type=int, default=4)
    given = parser.parse_args()
    out = given.folder / "out"
    made = trainer(
        out, steps=20, reward=reward, num_generations=given.num_generations, save_strategy="steps", save_steps=5
    )
    run = stabilizer.attach(made, runs=given.folder / "runs", remedy="approve")
    made.add_callback(Events(run))
    made.train(resume_from_checkpoint=get_last_checkpoint(str(out)))
