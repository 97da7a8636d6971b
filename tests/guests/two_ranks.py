"""One of two processes of a TRL training, for test_trl_ranks.py: python two_ranks.py SCENE FOLDER, under torchrun."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from transformers import TrainerCallback

from stabilizer.guests.attach import attach
from stabilizer.runs.requests import ask
from tests.guests.tiny_trl import trainer

RANK = int(os.environ["RANK"])


class Scene(TrainerCallback):
    """Asks for changes, or meddles with one process."""

    def __init__(self, scene, run, guest):
        self.scene, self.run, self.guest, self.seen = scene, run, guest, []

    def on_step_begin(self, args, state, control, **others):
        if self.scene == "apart" and RANK == 1 and state.global_step == 3:
            self.run.epsilon_high = 0.9
        if self.guest is not None and self.scene == "acts" and state.global_step == 3:
            ask(self.guest.path, "set", "lr_scale=0.5")
        if self.guest is not None and self.scene == "acts" and state.global_step == 6:
            ask(self.guest.path, "do", "restore:2")

    def on_step_end(self, args, state, control, **others):
        weights = torch.cat([p.detach().flatten() for p in self.run.model.parameters()])
        rate = self.run.lr_scheduler.base_lrs[0]
        self.seen.append([state.global_step, float(weights.double().sum()), float(weights.double().norm()), rate])


def main(scene: str, folder: Path) -> None:
    out = folder / f"rank{RANK}" / "out"
    out.parent.mkdir(parents=True, exist_ok=True)
    run = trainer(out, steps=12, per_device_train_batch_size=4, ddp_backend="gloo", learning_rate=0.01)
    attached = scene != "alone" or RANK == 0
    guest = attach(run, runs=folder / "runs", remedy="approve", checkpoint_every=2) if attached else None
    callback = Scene(scene, run, guest)
    run.add_callback(callback)
    run.train()
    told = {"seen": callback.seen, "run": str(guest.path) if guest else None}
    (folder / f"rank{RANK}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
