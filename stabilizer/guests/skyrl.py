"""Monitor a training of SkyRL: `trainer.add_callback(skyrl.callback(runs="runs"))` before `trainer.train()`.

Clip range and KL weight reach the workers through the trainer's dispatch. A changed learning rate is sent before every
step, because SkyRL's schedule overwrites it; it is offered with a constant schedule alone. SkyRL's fully asynchronous
trainer takes no callbacks. There is no way to stop a training from a callback.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stabilizer.guests.adapter import Guest
from stabilizer.trainers.skyrl.log import NAMING

CONSTANT = ("constant", "constant_with_warmup")
"""Schedules after which the configured rate holds."""
POLICY = "policy"
PACKAGES = ("skyrl", "transformers", "ray", "vllm")


def callback(name: str = "", *, runs: str | Path = "runs", remedy: str = "suggest") -> Any:
    """A callback for SkyRL's trainers; `callback.guest.run` is the run once training has begun."""
    from skyrl.train.utils.callbacks import TrainingCallback

    guest = Guest("skyrl", name, runs=runs, remedy=remedy, naming=NAMING, packages=PACKAGES)
    training = _Training(guest)

    class Stabilizer(TrainingCallback):  # type: ignore[misc, valid-type, unused-ignore]
        """Passes SkyRL's events on."""

        def __init__(self) -> None:
            self.guest = guest

        def on_train_start(self, trainer: Any, callback_input: Any, control: Any) -> None:
            guest.quietly(training.begin, trainer, callback_input)

        def on_step_start(self, trainer: Any, callback_input: Any, control: Any) -> None:
            guest.quietly(training.before, trainer)

        def on_log(self, trainer: Any, callback_input: Any, control: Any) -> None:
            guest.quietly(guest.log, callback_input.logs or {}, callback_input.global_step)

        def on_train_end(self, trainer: Any, callback_input: Any, control: Any) -> None:
            guest.quietly(guest.end)

    return Stabilizer()


class _Training:
    """What the events do."""

    def __init__(self, guest: Guest):
        self._guest = guest
        self._rate: float | None = None
        """The learning rate that somebody asked for."""

    def begin(self, trainer: Any, given: Any) -> None:
        if self._guest.begin(_settings(trainer.cfg), steps=getattr(given, "total_steps", None)):
            self._offer(trainer)
            self._guest.announce()

    def _offer(self, trainer: Any) -> None:
        algorithm, optimizer = trainer.cfg.trainer.algorithm, trainer.cfg.trainer.policy.optimizer_config
        for knob, key in {"epsilon_low": "eps_clip_low", "epsilon_high": "eps_clip_high"}.items():
            self._guest.offer(knob, functools.partial(getattr, algorithm, key), _setting(trainer, key))
        if algorithm.use_kl_loss:
            self._guest.offer("beta", lambda: algorithm.kl_loss_coef, _setting(trainer, "kl_loss_coef"))
        if getattr(optimizer, "scheduler", "constant_with_warmup") in CONSTANT and not optimizer.num_warmup_steps:
            self._guest.offer("lr", lambda: self._rate or optimizer.lr, self._want)

    def _want(self, rate: float) -> None:
        self._rate = rate

    def before(self, trainer: Any) -> None:
        """Send a changed rate again, over the schedule's."""
        if self._rate is not None:
            trainer.dispatch.set_lr(POLICY, self._rate)


def _setting(trainer: Any, key: str) -> Callable[[float], None]:
    """Change a setting of the loss in the workers, then in the trainer's own configuration."""

    def set(value: float) -> None:
        trainer.dispatch.set_algorithm_config(POLICY, **{key: value})
        setattr(trainer.cfg.trainer.algorithm, key, value)

    return set


def _settings(config: Any) -> Mapping[str, Any]:
    """SkyRL's configuration as plain values: dataclasses since 0.4, OmegaConf before."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return dataclasses.asdict(config)
    from omegaconf import OmegaConf

    found: Mapping[str, Any] = OmegaConf.to_container(config, resolve=True)
    return found
