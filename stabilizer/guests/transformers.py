"""Monitor trainers of transformers and TRL by `report_to="stabilizer"`, after `transformers.register()`.

What the trainer logs becomes a row. A callback does not get the trainer: for TRL, `stabilizer.attach` sees every step
and more of it, and can change more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stabilizer.guests.adapter import Guest
from stabilizer.trainers.trl import state

NAME = "stabilizer"
PACKAGES = ("transformers", "trl", "accelerate", "peft")
AT_THE_END = "train_runtime"
"""In the trainer's last log, which sums up the whole training."""


def register(name: str = "", *, runs: str | Path = "runs", remedy: str = "suggest") -> None:
    """Make `report_to="stabilizer"` known to transformers; call it before the trainer is made."""
    Guest("transformers", remedy=remedy)  # ValueError for a mode that is none
    from transformers import TrainerCallback
    from transformers.integrations import integration_utils

    class Stabilizer(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Passes the trainer's events on."""

        def __init__(self) -> None:
            self.guest = Guest("transformers", name, runs=runs, remedy=remedy)

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.guest.quietly(self._begin, args, state, given)

        def _begin(self, args: Any, progress: Any, given: dict[str, Any]) -> None:
            trl = type(args).__module__.startswith("trl.")
            self.guest = Guest(
                "trl" if trl else "transformers", name or type(args).__name__, runs=runs, remedy=remedy,
                names=state.NAMES if trl else None, packages=PACKAGES,
            )  # fmt: skip
            steps = progress.max_steps if progress.max_steps > 0 else None
            if self.guest.begin(args.to_dict(), steps=steps, main=progress.is_world_process_zero):
                if alone := args.world_size == 1:
                    _offer(self.guest, args, given)
                self.guest.announce(alone)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
            if logs and AT_THE_END not in logs:
                self.guest.quietly(lambda: self.guest.log(logs, state.global_step))
            if self.guest.decision.stop:
                control.should_training_stop = True

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.guest.quietly(self.guest.end)

    integration_utils.INTEGRATION_TO_CALLBACK[NAME] = Stabilizer


def _offer(guest: Guest, args: Any, given: dict[str, Any]) -> None:
    """The knobs that a callback can reach."""
    if given.get("optimizer") is not None:
        guest.offer_rates([given["optimizer"]], [given.get("lr_scheduler")])
    if not args.deepspeed and args.max_grad_norm:  # DeepSpeed clips by its own configuration
        guest.offer("max_grad_norm", lambda: args.max_grad_norm, lambda value: setattr(args, "max_grad_norm", value))
