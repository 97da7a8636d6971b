"""What may be changed while a run trains: knobs (named numbers with bounds), and orders that change no knob.

A remedy sees `Controls`, never the model. The trainer reads every knob again at each step, so a change takes effect at
the next step boundary. `Controls` is plain Python; the trainer passes in a `Backend`, which saves and restores states
and resets the optimizer and the reference.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stabilizer.core.text import short


@dataclass(frozen=True, slots=True)
class Knob:
    """A number that may be changed while a run trains, and its bounds."""

    name: str
    low: float
    high: float
    whole: bool = False
    """Whether only whole numbers are allowed (a batch size)."""
    choices: tuple[str, ...] = ()
    """Names of the positions of a switch; the value of the knob is the number of its position, counted from 0."""
    reach: float = 0.0
    """Factor by which all fixes together may take it from its configured value, either way; 0: to either bound."""
    longer_steps: bool = False
    """A higher value makes each step take longer, in proportion."""


def _switch(name: str, *choices: str) -> Knob:
    return Knob(name, 0, len(choices) - 1, whole=True, choices=choices)


Change = dict[str, tuple[float | None, float | None]]
"""Knob -> its value before and after."""

GROUPED = ("group_std", "group_mean", "batch_std", "leave_one_out")
"""Advantages that compare the completions of a group. A run may switch between them."""

KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob("control/lr_scale", 1 / 64, 4.0, reach=4.0),
        Knob("control/beta", 0.0, 1.0),
        _switch("control/kl_kind", "k1", "k2", "k3", "k3_is", "k3_k2grad"),
        Knob("control/epsilon_low", 1e-4, 1.0),
        Knob("control/epsilon_high", 1e-4, 10.0),
        Knob("control/temperature", 0.1, 2.0),
        Knob("control/max_grad_norm", 1e-3, 1e6, reach=4.0),
        Knob("control/entropy_coef", -0.1, 0.1),
        Knob("control/entropy_target", 0.0, 20.0),
        Knob("control/prompts", 1, 4096, whole=True, reach=8.0, longer_steps=True),
        Knob("control/group_size", 1, 256, whole=True, reach=8.0, longer_steps=True),
        Knob("control/inner_epochs", 1, 16, whole=True, reach=16.0),
        Knob("control/minibatches", 1, 256, whole=True, reach=8.0),
        Knob("control/max_completion", 1, 65536, whole=True, reach=2.0, longer_steps=True),
        Knob("control/overlong_buffer", 0.0, 1.0),
        Knob("control/validate_every", 0, 1_000_000, whole=True),
        _switch("control/advantage", *GROUPED),
        _switch("control/average", "token", "sequence", "constant"),
        _switch("control/filter_groups", "off", "drop", "resample"),
        _switch("control/mask_truncated", "off", "on"),
        _switch(
            "control/mismatch", "none", "tis_token", "tis_sequence", "mask_token", "mask_sequence", "mask_geometric"
        ),
        _switch("control/head_float32", "off", "on"),
        _switch("control/actor_frozen", "off", "on"),
    )
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified state on disk, as it was after `step`: weights, optimizer, random numbers, data position, knobs."""

    step: int
    attempt: int
    path: Path


class Backend(Protocol):
    """What the trainer does for `Controls`."""

    def snapshot(self, *, keep: bool = False) -> Checkpoint:
        """Save the present state to disk; with `keep` it is never thinned out. OSError when it can't be saved."""

    def checkpoints(self) -> list[Checkpoint]:
        """Checkpoints of this run that can be restored, oldest first."""

    def load_checkpoint(self, checkpoint: Checkpoint, *, vary_data: bool) -> None:
        """Restore a state. With `vary_data` the prompts and random numbers that follow differ from last time."""

    def reset_optimizer(self) -> None:
        """Clear the optimizer's running averages."""

    def reset_reference(self) -> None:
        """Make the present policy the reference of the KL."""


ORDERS = ("skip-update", "reset-optimizer", "reset-reference", "snapshot", "restore")
"""What can be done to a run besides changing knobs. `restore:120` returns to step 120, `restore` to the newest one."""


def in_words(name: str, value: float | None) -> str:
    """A knob's value as text: a switch by the name of its position, ? where it is not known."""
    if value is None:
        return "?"
    choices = KNOBS[name].choices if name in KNOBS else ()
    return choices[int(value)] if choices and value in range(len(choices)) else short(value)


def turned(knob: str, before: float | None, after: float | None) -> str:
    """A change of a knob as text: `control/beta 0 → 0.001`."""
    return f"{knob} {in_words(knob, before)} → {in_words(knob, after)}"


def change_words(change: Mapping[str, tuple[float | None, float | None]]) -> list[str]:
    """The change of a remedy, one knob an item."""
    return [turned(knob, before, after) for knob, (before, after) in change.items()]


def parse_turn(text: str) -> tuple[str, float | str]:
    """Knob and value of 'beta=0.01', 'control/beta=0.01' or 'kl_kind=k2'; ValueError says what is allowed."""
    name, equals, value = text.partition("=")
    name = name.strip() if name.startswith("control/") else f"control/{name.strip()}"
    if not equals:
        raise ValueError(f"{text!r}: must look like knob=value, for example beta=0.01")
    if name not in KNOBS:
        near = difflib.get_close_matches(name, KNOBS, 1)
        hint = f"; nearest is {near[0]!r}" if near else ""
        raise ValueError(f"no knob {name!r}{hint} (there are {', '.join(k.removeprefix('control/') for k in KNOBS)})")
    try:
        setting: float | str = float(value)
    except ValueError:
        setting = value.strip()
    return name, Controls._checked(name, setting)


def parse_order(text: str) -> tuple[str, int | None]:
    """Order and step of 'snapshot', 'restore' or 'restore:120'; ValueError says what is allowed."""
    order, colon, step = text.partition(":")
    if order not in ORDERS or (colon and (order != "restore" or not step.isdecimal())):
        raise ValueError(f"do {text!r}? There are {', '.join(ORDERS)}, and restore:STEP")
    return order, int(step) if colon else None


class Controls:
    """The knobs of one run. A value outside the bounds of its knob is an error; it is never clamped silently."""

    def __init__(self, values: Mapping[str, float | str], backend: Backend):
        if unknown := sorted(set(values) - set(KNOBS)):
            raise ValueError(f"no knob named {unknown[0]!r}; there are {', '.join(KNOBS)}")
        self._values = {name: self._checked(name, value) for name, value in values.items()}
        self._configured = dict(self._values)
        self._backend = backend
        self._skip = False
        self.restarts: frozenset[str] = frozenset()
        """Knobs that the loop cannot turn while it runs: a change of one ends the process and starts it again."""

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> float:
        """The present value of a knob."""
        try:
            return self._values[name]
        except KeyError:
            raise ValueError(f"this run has no knob {name!r}; it has {', '.join(self._values)}") from None

    def base(self, name: str) -> float:
        """The value that the configuration gives a knob, whatever it was changed to since, in earlier processes too."""
        return self._configured[name]

    def choice(self, name: str) -> str:
        """The present position of a switch, by its name."""
        return KNOBS[name].choices[int(self.get(name))]

    def values(self) -> dict[str, float]:
        """The present values of all knobs. The trainer logs them and stores them with a checkpoint."""
        return dict(self._values)

    def set(self, name: str, value: float | str) -> tuple[float, float]:
        """Change one knob, a switch by number or by name; returns (before, after)."""
        before, after = self.get(name), self._checked(name, value)
        if name == "control/group_size" and after < 2 and "control/advantage" in self:
            raise ValueError(f"{name} = {after}: must be at least 2, because this run compares the answers of a group")
        self._values[name] = after
        return before, after

    def set_all(self, values: Mapping[str, float | str]) -> None:
        """Change several knobs. A knob this run does not have is an error."""
        for name, value in values.items():
            self.set(name, value)

    def obey(self, order: str) -> None:
        """Carry out one of `ORDERS` that needs no checkpoint."""
        if parse_order(order)[0] == "restore":
            raise ValueError("restore needs a state to return to: Controls.restore(checkpoint)")
        getattr(self, order.replace("-", "_"))()

    def skip_update(self) -> None:
        """Have the trainer discard the updates of the next step: rollouts are made and logged, the weights stay."""
        self._skip = True

    def take_skip(self) -> bool:
        """For the trainer, once a step: whether to skip this one. The answer clears the request."""
        skip, self._skip = self._skip, False
        return skip

    @property
    def skipping(self) -> bool:
        """Whether the next step is to be skipped."""
        return self._skip

    def mirror(self, values: Mapping[str, float], *, skip: bool) -> None:
        """Take over the values and the request to skip of another process, which has checked them."""
        self._values, self._skip = dict(values), skip

    def reset_optimizer(self) -> None:
        """Clear the optimizer's running averages; they build up again from the next update."""
        self._backend.reset_optimizer()

    def reset_reference(self) -> None:
        """Make the present policy the reference: the KL is measured and penalised from here on."""
        self._backend.reset_reference()

    def snapshot(self, *, keep: bool = False) -> Checkpoint:
        """Save the present state before a change. When that raises OSError, nothing may be changed.

        `keep` is for states that a user asked for; others are thinned out as they grow old.
        """
        return self._backend.snapshot(keep=keep)

    def save_knobs(self) -> None:
        """Save the present knobs with the state, so that they survive a crash. OSError when that fails."""
        self.snapshot()

    def checkpoints(self) -> list[Checkpoint]:
        """Checkpoints that can be restored, oldest first."""
        return self._backend.checkpoints()

    def restore(self, checkpoint: Checkpoint, *, vary_data: bool = True) -> None:
        """Restore a state. Knobs keep their present values: a rollback alone would only repeat the run."""
        self._backend.load_checkpoint(checkpoint, vary_data=vary_data)

    @staticmethod
    def _checked(name: str, value: float | str) -> float:
        knob = KNOBS[name]
        if isinstance(value, str):
            if value not in knob.choices:
                raise ValueError(f"{name} = {value!r}: must be {_words(knob)}")
            value = knob.choices.index(value)
        if not isinstance(value, (int, float)):
            raise ValueError(f"{name} = {value!r}: must be {_words(knob)}")
        if not knob.low <= value <= knob.high:  # also refuses NaN
            raise ValueError(f"{name} = {value!r}: must be between {knob.low:g} and {knob.high:g}")
        if knob.whole and value != int(value):
            raise ValueError(f"{name} = {value!r}: must be a whole number")
        return int(value) if knob.whole else float(value)


def _words(knob: Knob) -> str:
    return f"one of {', '.join(knob.choices)}" if knob.choices else f"a number, {knob.low:g} to {knob.high:g}"
