"""Monitor a training of Stable-Baselines3: `model.learn(100_000, callback=sb3.callback(runs="runs"))`.

Every dump of its logger becomes a row, counted from 1; PPO dumps once an iteration. `writer` alone is an output format
of its logger, for programs that have callbacks of their own. Stable-Baselines3 is imported when either is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stabilizer.guests.adapter import Guest

OF_ENTROPY = "train/entropy_loss"
"""The negative of the entropy."""
SETTINGS = (
    "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "target_kl",
    "normalize_advantage", "n_envs", "seed", "buffer_size", "learning_starts", "tau", "train_freq", "gradient_steps",
)  # fmt: skip
"""Attributes of an algorithm that are recorded where it has them."""


def callback(name: str = "", *, runs: str | Path = "runs", remedy: str = "suggest") -> Any:
    """A callback for `learn`; `callback.guest.run` is the run once training has begun."""
    from stable_baselines3.common.callbacks import BaseCallback

    guest = _guest(name, runs, remedy)
    rows = _writer(guest)

    class Stabilizer(BaseCallback):  # type: ignore[misc, unused-ignore]
        """Adds the writer to the model's logger and stops training when asked."""

        def __init__(self) -> None:
            super().__init__()
            self.guest = guest

        def _on_training_start(self) -> None:
            guest.quietly(self._begin)

        def _begin(self) -> None:
            if guest.begin(_settings(self.model, self.locals)):
                _offer(guest, self.model)
                guest.announce()
            if rows not in self.logger.output_formats:
                self.logger.output_formats.append(rows)

        def _on_rollout_start(self) -> None:
            guest.quietly(guest.enter, "rollout")

        def _on_rollout_end(self) -> None:
            guest.quietly(guest.enter, "update")

        def _on_step(self) -> bool:
            return not guest.decision.stop

        def _on_training_end(self) -> None:
            guest.quietly(guest.end)

    return Stabilizer()


def writer(name: str = "", *, runs: str | Path = "runs", remedy: str = "suggest") -> Any:
    """An output format: `model.logger.output_formats.append(writer())`. It watches and offers no knob."""
    guest = _guest(name, runs, remedy)
    guest.begin({})
    guest.announce()
    return _writer(guest)


def _guest(name: str, runs: str | Path, remedy: str) -> Guest:
    return Guest("stable-baselines3", name, runs=runs, remedy=remedy, packages=("stable-baselines3", "gymnasium"))


def _writer(guest: Guest) -> Any:
    from stable_baselines3.common.logger import KVWriter

    class Rows(KVWriter):  # type: ignore[misc, unused-ignore]
        """Passes each dump on as a row."""

        def __init__(self) -> None:
            self.guest, self._count = guest, 0

        def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
            self._count += 1
            guest.quietly(self._log, dict(key_values))

        def _log(self, row: dict[str, Any]) -> None:
            if OF_ENTROPY in row:
                row["policy/entropy"] = -row.pop(OF_ENTROPY)
            guest.log(row, self._count)

        def close(self) -> None:
            guest.quietly(guest.end)

    return Rows()


def _settings(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    found = {"algorithm": type(model).__name__, "total_timesteps": given.get("total_timesteps")}
    for name, key in {"learning_rate": "lr_schedule", "clip_range": "clip_range"}.items():
        if callable(schedule := getattr(model, key, None)):
            found[name] = schedule(1.0)
    return found | {name: getattr(model, name) for name in SETTINGS if hasattr(model, name)}


def _offer(guest: Guest, model: Any) -> None:
    """The knobs of an algorithm. A rate or a clip range keeps its schedule and is scaled."""
    guest.offer("lr", *_scaled(model, "lr_schedule"))
    guest.offer("epsilon_low", *_scaled(model, "clip_range"))  # it clips both sides
    for knob, key in (("max_grad_norm", "max_grad_norm"), ("entropy_coef", "ent_coef"), ("inner_epochs", "n_epochs")):
        guest.offer(knob, *_attribute(model, key))


def _attribute(model: Any, key: str) -> tuple[Callable[[], Any], Callable[[float], None]]:
    """Get and set an attribute; one that is a whole number stays one."""

    def get() -> Any:
        return getattr(model, key, None)

    def set(value: float) -> None:
        setattr(model, key, int(value) if isinstance(get(), int) else value)

    return get, set


def _scaled(model: Any, key: str) -> tuple[Callable[[], float], Callable[[float], None]]:
    """Get and set the first value of a schedule of the remaining progress."""
    plain: Any = getattr(model, key, None)

    def get() -> float:
        return float(getattr(model, key)(1.0))

    def set(value: float) -> None:
        setattr(model, key, _times(plain, value / plain(1.0)))

    return get, set


def _times(schedule: Any, factor: float) -> Callable[[float], float]:
    """A schedule times a factor. It refers to nothing of ours, so that a saved model loads without stabilizer."""

    def scaled(progress: float) -> float:
        return float(schedule(progress)) * factor

    return scaled
