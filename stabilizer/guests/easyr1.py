"""Monitor a training of EasyR1, started by `python -m stabilizer.guests.easyr1` and not `python -m verl.trainer.main`.

The arguments are EasyR1's own, with `trainer.logger=[console,stabilizer]`. Ray registers the logger in every process.
The KL weight of the reward can be changed live; clip range and learning rate live in workers that take no change.

Environment: `STABILIZER_RUNS` names the folder of runs (`runs`), `STABILIZER_REMEDY` the mode (`suggest`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

from stabilizer.guests.adapter import Backend, Guest, caller_with
from stabilizer.guests.verl import from_environment
from stabilizer.trainers.verl.names import naming

NAME = "stabilizer"
PACKAGES = ("transformers", "ray", "vllm")


def register() -> None:
    """Make the logger known to EasyR1, in the process that calls this."""
    from verl.utils.logger import logger

    base = logger.Logger

    class Stabilizer(base):  # type: ignore[misc, valid-type, unused-ignore]
        """Passes what EasyR1 logs on."""

        def __init__(self, config: dict[str, Any]):
            self._rows = backend(config or {})

        def log(self, data: dict[str, Any], step: int) -> None:
            self._rows.log(data, step)

        def finish(self) -> None:
            self._rows.finish()

    logger.LOGGERS[NAME] = Stabilizer


def backend(config: Mapping[str, Any]) -> Backend:
    """The logger of one training."""
    trainer = caller_with("actor_rollout_ref_wg")
    name = str(config.get("trainer", {}).get("experiment_name", ""))
    runs, remedy = from_environment()
    names = naming("easyr1", [], config, [])
    guest = Guest("easyr1", name, runs=runs, remedy=remedy, packages=PACKAGES, naming=names)

    def begin() -> None:
        guest.begin(config, steps=getattr(trainer, "training_steps", None))
        if trainer is not None and not trainer.config.algorithm.use_kl_loss and trainer.use_reference_policy:
            control = trainer.kl_ctrl
            guest.offer("beta", lambda: control.kl_coef, functools.partial(setattr, control, "kl_coef"))
        guest.announce()

    guest.quietly(begin)
    return Backend(guest, trainer, "training_steps")


def hook() -> None:
    """`register` in a process of Ray, which a hook that raises would end."""
    try:
        register()
    except Exception as error:
        print(f"stabilizer: not known to EasyR1 here ({type(error).__name__}: {error})", file=sys.stderr)


def main() -> None:
    """EasyR1's main, in a Ray whose processes know the logger."""
    import ray
    from verl.trainer.main import main as train

    plain = ray.init

    @functools.wraps(plain)
    def init(*args: Any, runtime_env: dict[str, Any] | None = None, **named: Any) -> Any:
        hooked = {"worker_process_setup_hook": "stabilizer.guests.easyr1.hook", **(runtime_env or {})}
        return plain(*args, runtime_env=hooked, **named)

    ray.init = init
    train()


if __name__ == "__main__":
    main()
