"""Monitor a training of veRL from inside: `trainer.logger=[console,stabilizer]`.

The logger runs on the driver, inside the trainer's `fit`. A changed clip range, KL weight or entropy bonus reaches the
actors as a new loss function, the learning rate as a function that every worker runs. Temperature is not offered: on
the driver it would change the learner's log-probabilities and not the samples.

Environment: `STABILIZER_RUNS` names the folder of runs (`runs`), `STABILIZER_REMEDY` the mode (`suggest`).
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from stabilizer.guests.adapter import Backend, Guest, caller_with
from stabilizer.guests.knobs import Rates
from stabilizer.guests.own_loop import WATCHING
from stabilizer.trainers.naming import Naming
from stabilizer.trainers.verl.names import naming

NAME = "stabilizer"
RUNS, REMEDY = "STABILIZER_RUNS", "STABILIZER_REMEDY"
PACKAGES = ("verl", "transformers", "ray", "vllm", "sglang", "tensordict")
OF_THE_LOSS = {
    "epsilon_low": "clip_ratio_low", "epsilon_high": "clip_ratio_high", "entropy_coef": "entropy_coeff",
    "beta": "kl_loss_coef",
}  # fmt: skip
"""Our knobs and the actor's settings that its loss reads at every call."""


def install() -> None:
    """Make the logger known to veRL. ImportError without it; a second call changes nothing."""
    from verl.utils.tracking import Tracking

    if NAME in Tracking.supported_backend:
        return
    Tracking.supported_backend = [*Tracking.supported_backend, NAME]
    begin, finish = Tracking.__init__, getattr(Tracking, "finish", None)
    takes = inspect.signature(begin)

    @functools.wraps(begin)
    def begun(self: Any, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        given = takes.bind(self, *args, **named).arguments
        asked = given.get("default_backend", ())
        if NAME in ([asked] if isinstance(asked, str) else asked):
            self.logger[NAME] = backend(given.get("experiment_name", ""), given.get("config") or {})

    Tracking.__init__ = begun
    if finish is None:
        return

    @functools.wraps(finish)
    def finished(self: Any, exit_code: int = 0) -> None:
        if NAME in getattr(self, "logger", {}):
            self.logger.pop(NAME).finish(exit_code)
        finish(self, exit_code)

    Tracking.finish = finished


def backend(name: str, config: Mapping[str, Any]) -> Backend:
    """The logger of one training; whatever fails here is printed and costs only the watching."""
    trainer = caller_with("actor_rollout_wg")
    runs, remedy = from_environment()
    guest = Guest("verl", str(name), runs=runs, remedy=remedy, packages=PACKAGES, naming=_naming(config))

    def begin() -> None:
        guest.begin(config, steps=getattr(trainer, "total_training_steps", None))
        if trainer is not None:
            _offer(guest, trainer)
        guest.announce()

    guest.quietly(begin)
    return Backend(guest, trainer, "total_training_steps")


def from_environment() -> tuple[str, str]:
    """Where runs go and what remedies may do, for loggers that are built without arguments."""
    remedy = os.environ.get(REMEDY, "suggest")
    if remedy not in WATCHING:
        print(
            f"stabilizer: {REMEDY}={remedy}: it is one of {', '.join(WATCHING)} here; taking suggest", file=sys.stderr
        )
    return os.environ.get(RUNS, "runs"), remedy if remedy in WATCHING else "suggest"


def _naming(config: Mapping[str, Any]) -> Naming:
    return naming("verl", [(0, {"actor/entropy": 0.0})], config, [])


def _offer(guest: Guest, trainer: Any) -> None:
    """The knobs that this trainer has."""
    actor = trainer.config.actor_rollout_ref.actor
    workers = trainer.actor_rollout_wg
    if hasattr(workers, "set_loss_fn") and not _distils(trainer.config):
        for knob, key in OF_THE_LOSS.items():
            if knob != "beta" or actor.get("use_kl_loss"):
                guest.offer(knob, functools.partial(getattr, actor, key), _loss_setting(workers, actor, key))
    if getattr(trainer.config.algorithm, "use_kl_in_reward", False):
        controller = trainer.kl_ctrl_in_reward
        guest.offer("beta", lambda: controller.value, functools.partial(setattr, controller, "value"))
    guest.offer("inner_epochs", lambda: actor.ppo_epochs, lambda value: setattr(actor, "ppo_epochs", int(value)))
    if hasattr(workers, "execute_with_func_generator"):
        rate = _Rate(workers, float(actor.optim.lr))
        guest.offer("lr", rate.get, rate.set)


def _distils(config: Any) -> bool:
    """Whether the actors have another loss, which this module does not build."""
    distillation = config.get("distillation") or {}
    return bool(distillation.get("enabled", False))


def _loss_setting(workers: Any, actor: Any, key: str) -> Callable[[float], None]:
    """Change a setting of the loss: on the driver, which asks for entropies by it, and as a new loss of the actors."""

    def set(value: float) -> None:
        before = getattr(actor, key)
        setattr(actor, key, value)
        try:
            workers.set_loss_fn(_loss(actor))
        except Exception:
            setattr(actor, key, before)
            raise

    return set


def _loss(actor: Any) -> Callable[..., Any]:
    """The loss of the actors, as their worker builds it, with the settings as they are now."""
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    return functools.partial(ppo_loss, config=omega_conf_to_dataclass(actor))


class _Rate:
    """The actors' learning rate, which every worker scales by the same factor."""

    def __init__(self, workers: Any, rate: float):
        self._workers, self._rate = workers, rate

    def get(self) -> float:
        return self._rate

    def set(self, rate: float) -> None:
        self._workers.execute_with_func_generator(_scaling(rate / self._rate))
        self._rate = rate


def _scaling(factor: float) -> Callable[..., Any]:
    """What each worker runs: scale the optimizer's rates and its schedule's, and return the rate."""

    def scale(worker: Any) -> Any:
        import torch
        from tensordict import TensorDict

        from stabilizer.guests.verl import scale_engine

        rate = scale_engine(worker.actor.engine, factor)
        return TensorDict({"rate": torch.tensor([rate])}, batch_size=[1])

    return scale


def scale_engine(engine: Any, factor: float) -> float:
    """Scale the rates of an engine of veRL. ValueError where its schedule would overwrite them (Megatron's)."""
    if not hasattr(engine.lr_scheduler, "base_lrs"):
        raise ValueError(f"{type(engine).__name__}: its schedule keeps no base_lrs, so the rate cannot be changed live")
    rates = Rates([engine.optimizer], [engine.lr_scheduler])
    rates.set(rates.get() * factor)
    return rates.get()
