"""Monitor a training of Lightning: `Trainer(callbacks=[lightning.callback(runs="runs")])`.

Every optimizer step becomes a row with what the module logs and the gradient norm before clipping. Lightning is
imported when the callback is made, from whichever of its two packages the program uses.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stabilizer.guests.adapter import Guest

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""Where Lightning may be. Their classes differ, and a trainer takes only its own."""


def callback(
    name: str = "", *, runs: str | Path = "runs", remedy: str = "suggest", names: Mapping[str, str] | None = None,
    knobs: Iterable[str] = (),
) -> Any:  # fmt: skip
    """A callback for Lightning's `Trainer`; `callback.guest.run` is the run once training has begun.

    `names` says which logged name is which of our metrics (theirs -> ours). `knobs` are attributes of the module with
    the name of a knob, such as `entropy_coef`, that may be changed while it trains.
    """
    guest = Guest("lightning", name, runs=runs, remedy=remedy, names=names, packages=("lightning", "pytorch-lightning"))
    training = _Training(guest, tuple(knobs))

    class Stabilizer(_lightning().Callback):  # type: ignore[misc, unused-ignore]
        """Passes Lightning's hooks on."""

        def __init__(self) -> None:
            self.guest = guest

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            guest.quietly(training.begin, trainer, pl_module)

        def on_train_batch_start(self, *others: Any) -> None:
            guest.quietly(guest.enter, "update")

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            guest.quietly(guest.enter, "validation")

        def on_save_checkpoint(self, *others: Any) -> None:
            guest.quietly(guest.enter, "save")

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            guest.quietly(training.measure, trainer, optimizer)

        def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
            guest.quietly(training.step, trainer)
            guest.quietly(guest.enter, "data")

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            guest.quietly(training.validated, trainer)
            guest.quietly(guest.enter, "other")

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            guest.quietly(guest.end)

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            guest.quietly(guest.end, exception)

    return Stabilizer()


class _Training:
    """What the hooks do."""

    def __init__(self, guest: Guest, knobs: tuple[str, ...]):
        self._guest, self._knobs = guest, knobs
        self._norms: dict[str, Any] = {}
        self._seen: dict[str, Any] = {}
        """The value of each metric that was taken; Lightning keeps old ones beside new ones."""
        self._last = -1

    def begin(self, trainer: Any, module: Any) -> None:
        steps = trainer.max_steps if trainer.max_steps > 0 else None
        config = {**dict(getattr(module, "hparams", {})), "module": type(module).__name__}
        if not self._guest.begin(config, steps=steps, main=trainer.is_global_zero):
            return
        self._last = trainer.global_step
        if alone := trainer.world_size == 1:
            self._offer(trainer, module)
        self._guest.announce(alone)

    def _offer(self, trainer: Any, module: Any) -> None:
        schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
        self._guest.offer_rates(trainer.optimizers, schedules)
        if trainer.gradient_clip_val:
            self._attribute("max_grad_norm", trainer, "gradient_clip_val")
        for name in self._knobs:
            self._attribute(name, module, name)

    def _attribute(self, knob: str, owner: Any, key: str) -> None:
        self._guest.offer(knob, lambda: getattr(owner, key), lambda value: setattr(owner, key, value))

    def measure(self, trainer: Any, optimizer: Any) -> None:
        """The norm of an optimizer's gradients, unless a process has only a part of them."""
        if self._guest.run is None or (trainer.world_size > 1 and "DDP" not in type(trainer.strategy).__name__):
            return
        from torch.nn.utils import get_total_norm

        number = next((n for n, other in enumerate(trainer.optimizers) if other is optimizer), 0)
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._norms[f"grad_norm_{number}" if number else "grad_norm"] = get_total_norm(grads)

    def step(self, trainer: Any) -> None:
        """A row once an optimizer step is done; batches that only accumulate make none."""
        if trainer.global_step == self._last:
            return
        self._last = trainer.global_step
        rates = {"learning_rate": trainer.optimizers[0].param_groups[0]["lr"]} if trainer.optimizers else {}
        self._log(trainer, {**rates, **self._norms, **self._fresh(trainer)})
        self._norms = {}

    def validated(self, trainer: Any) -> None:
        """What a validation logged; the check before training makes no row."""
        if not trainer.sanity_checking and (found := self._fresh(trainer)):
            self._log(trainer, found)

    def _log(self, trainer: Any, row: dict[str, Any]) -> None:
        decision = self._guest.log(row, trainer.global_step)
        if decision.stop and trainer.world_size == 1:
            trainer.should_stop = True

    def _fresh(self, trainer: Any) -> dict[str, Any]:
        """Metrics that Lightning made since the last look; it makes a new tensor each time."""
        found = dict(trainer.callback_metrics)
        fresh = {name: value for name, value in found.items() if self._seen.get(name) is not value}
        self._seen = found
        return fresh


def _lightning() -> Any:
    """Lightning as the program uses it; ImportError says what to install."""
    for name in sorted(PACKAGES, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ImportError("this callback needs Lightning: pip install lightning")
