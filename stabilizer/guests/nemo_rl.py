"""Monitor a training of NeMo-RL: `nemo_rl.attach(logger, loss_fn, master_config)` between `setup()` and training.

The logger joins NeMo-RL's own. `policy.train` ships the loss function with every step, so clip range and KL weight that
change on the driver act at the next one. Learning rate, batch and a stop have no way in.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.guests.adapter import Guest
from stabilizer.trainers.naming import Naming
from stabilizer.trainers.nemo_rl.log import NAMES, naming

OF_THE_LOSS = {"epsilon_low": "ratio_clip_min", "epsilon_high": "ratio_clip_max"}
PACKAGES = ("nemo-rl", "transformers", "ray", "vllm", "megatron-core")


def attach(
    logger: Any, loss_fn: Any = None, config: Any = None, *, name: str = "", runs: str | Path = "runs",
    remedy: str = "suggest",
) -> Any:  # fmt: skip
    """Add our logger to NeMo-RL's `Logger` and offer the knobs of the loss; returns the logger, with `guest.run`."""
    from nemo_rl.utils.logger import LoggerInterface

    guest = Guest("nemo_rl", name, runs=runs, remedy=remedy, naming=_naming(), packages=PACKAGES)
    guest.quietly(_begin, guest, loss_fn, config)
    rows = _Rows(guest)

    class Stabilizer(LoggerInterface):  # type: ignore[misc, valid-type, unused-ignore]
        """Passes what NeMo-RL logs on; plots and histograms are not kept."""

        def __init__(self) -> None:
            self.guest = guest

        def log_metrics(
            self, metrics: dict[str, Any], step: int, prefix: str | None = "", step_metric: str | None = None,
            step_finished: bool = False,
        ) -> None:  # fmt: skip
            if step_metric is None:  # GPU monitoring counts its own steps
                guest.quietly(rows.add, metrics, step, prefix, step_finished)

        def log_hyperparams(self, params: Mapping[str, Any]) -> None:
            """NeMo-RL logs them in `setup()`, before this logger is there."""

        def log_histogram(self, histogram: list[Any], step: int, name: str) -> None:
            """Not kept."""

        def log_plot(self, figure: Any, step: int, name: str) -> None:
            """Not kept."""

        def finish(self) -> None:
            guest.quietly(rows.flush)
            guest.quietly(guest.end)

    made = Stabilizer()
    logger.loggers.append(made)
    return made


class _Rows:
    """Gathers the calls of one step, each with a prefix of its own, into one row."""

    def __init__(self, guest: Guest):
        self._guest = guest
        self._step = 0
        self._row: dict[str, Any] = {}

    def add(self, metrics: Mapping[str, Any], step: int, prefix: str | None, finished: bool) -> None:
        if step != self._step:
            self.flush()
        self._step = step
        self._row |= {f"{prefix}/{key}" if prefix else key: value for key, value in metrics.items()}
        if finished:
            self.flush()

    def flush(self) -> None:
        row, self._row = self._row, {}
        if row:
            self._guest.log(row, self._step)


def _naming() -> Naming:
    return naming(NAMES)


def _begin(guest: Guest, loss_fn: Any, config: Any) -> None:
    settings = config.model_dump() if hasattr(config, "model_dump") else dict(config or {})
    steps = settings.get("grpo", {}).get("max_num_steps")
    guest.begin(settings, steps=steps)
    for knob, key in OF_THE_LOSS.items():
        guest.offer(knob, functools.partial(getattr, loss_fn, key), functools.partial(setattr, loss_fn, key))
    key = "reference_policy_kl_penalty"
    if getattr(loss_fn, key, 0):  # at 0 NeMo-RL built no reference
        guest.offer("beta", functools.partial(getattr, loss_fn, key), functools.partial(setattr, loss_fn, key))
    guest.announce()
