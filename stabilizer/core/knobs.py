"""What may be turned while a run trains: named knobs with bounds, skip, snapshot and restore.

A remedy sees `Controls`, never the model. The trainer reads every knob anew at each step, so a change takes effect at
the next step boundary and nowhere else. `Controls` itself is plain Python: the trainer lends it a `Backend` for the
three things only a trainer can do.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Knob:
    """One thing that may be turned, and how far."""

    name: str
    low: float
    high: float
    whole: bool = False
    """Only whole numbers make sense (a batch size)."""
    choices: tuple[str, ...] = ()
    """Names of the settings of a switch; its value is the position of the one that holds."""
    reach: float = 0.0
    """Factor by which all fixes together may take it from its configured value, either way; 0: to either bound."""
    longer_steps: bool = False
    """A higher value makes each step take longer, in proportion."""


def _switch(name: str, *choices: str) -> Knob:
    return Knob(name, 0, len(choices) - 1, whole=True, choices=choices)


GROUPED = ("group_std", "group_mean", "batch_std", "leave_one_out")
"""Ways to form an advantage that compare the answers of a group; a run may change among them."""

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
        _switch("control/filter_groups", "off", "drop", "resample"),
        _switch("control/mask_truncated", "off", "on"),
        _switch("control/mismatch", "none", "tis_token", "tis_sequence", "mask_token", "mask_sequence"),
        _switch("control/head_float32", "off", "on"),
        _switch("control/actor_frozen", "off", "on"),
    )
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified state on disk: weights, optimizer, random numbers, data position, knobs, as they were after `step`."""

    step: int
    attempt: int
    path: Path


class Backend(Protocol):
    """What the trainer lends to `Controls`."""

    def snapshot(self, *, keep: bool = False) -> Checkpoint:
        """Make the present state safe, on disk, for good or until it is thinned out; OSError when it can't be."""

    def checkpoints(self) -> list[Checkpoint]:
        """Those of this run that can be returned to, oldest first."""

    def load_checkpoint(self, checkpoint: Checkpoint, *, vary_data: bool) -> None:
        """Return to a state. With `vary_data` the prompts and random numbers ahead differ from last time."""

    def reset_optimizer(self) -> None:
        """Forget the optimizer's running averages."""

    def reset_reference(self) -> None:
        """Let the KL be measured from the present policy on."""


ORDERS = ("skip-update", "reset-optimizer", "reset-reference", "snapshot", "restore")
"""What can be done to a run beside turning knobs; `restore:120` returns to step 120, `restore` to the newest state."""


def in_words(name: str, value: float | None) -> str:
    """A knob's value as people say it: a switch's setting by its name, ? where it is not known."""
    if value is None:
        return "?"
    choices = KNOBS[name].choices if name in KNOBS else ()
    return choices[int(value)] if choices and value in range(len(choices)) else f"{value:g}"


def parse_turn(text: str) -> tuple[str, float | str]:
    """Knob and value of 'beta=0.01', 'control/beta=0.01' or 'kl_kind=k2'; ValueError says what would do."""
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
    """Order and step of 'snapshot', 'restore' or 'restore:120'; ValueError says what would do."""
    order, colon, step = text.partition(":")
    if order not in ORDERS or (colon and (order != "restore" or not step.isdecimal())):
        raise ValueError(f"do {text!r}? There are {', '.join(ORDERS)}, and restore:STEP")
    return order, int(step) if colon else None


class Controls:
    """The knobs of one run. Setting a knob outside its bounds is an error, never a silent clamp."""

    def __init__(self, values: Mapping[str, float | str], backend: Backend):
        if unknown := sorted(set(values) - set(KNOBS)):
            raise ValueError(f"no knob named {unknown[0]!r}; there are {', '.join(KNOBS)}")
        self._values = {name: self._checked(name, value) for name, value in values.items()}
        self._configured = dict(self._values)
        self._backend = backend
        self._skip = False

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> float:
        """The present value of a knob."""
        try:
            return self._values[name]
        except KeyError:
            raise ValueError(f"this run has no knob {name!r}; it has {', '.join(self._values)}") from None

    def base(self, name: str) -> float:
        """What a knob was configured to, whatever it was turned to since, before a restart too."""
        return self._configured[name]

    def choice(self, name: str) -> str:
        """The present setting of a switch, by its name."""
        return KNOBS[name].choices[int(self.get(name))]

    def values(self) -> dict[str, float]:
        """All knobs as they stand: what the trainer logs and stores with a checkpoint."""
        return dict(self._values)

    def set(self, name: str, value: float | str) -> tuple[float, float]:
        """Turn one knob, a switch by number or by name; returns (before, after)."""
        before, after = self.get(name), self._checked(name, value)
        if name == "control/group_size" and after < 2 and "control/advantage" in self:
            raise ValueError(f"{name} = {after}: must be at least 2, because this run compares the answers of a group")
        self._values[name] = after
        return before, after

    def set_all(self, values: Mapping[str, float | str]) -> None:
        """Put every knob back as it was recorded; knobs this run does not have are an error."""
        for name, value in values.items():
            self.set(name, value)

    def obey(self, order: str) -> None:
        """Do one of `ORDERS` that needs no more than its name."""
        if parse_order(order)[0] == "restore":
            raise ValueError("restore needs a state to return to: Controls.restore(checkpoint)")
        getattr(self, order.replace("-", "_"))()

    def skip_update(self) -> None:
        """Have the trainer throw away the next step's updates: rollouts are made and logged, weights stay."""
        self._skip = True

    def take_skip(self) -> bool:
        """For the trainer: whether to skip, asked once a step; the request is used up by the asking."""
        skip, self._skip = self._skip, False
        return skip

    def reset_optimizer(self) -> None:
        """Forget the optimizer's running averages; they grow anew from the next update."""
        self._backend.reset_optimizer()

    def reset_reference(self) -> None:
        """Make the present policy the reference: the KL is measured, and paid, from here on."""
        self._backend.reset_reference()

    def snapshot(self, *, keep: bool = False) -> Checkpoint:
        """Make the present state safe before a change; when that raises OSError, nothing may be changed.

        What people ask for is to `keep`; other states are thinned out as they grow old.
        """
        return self._backend.snapshot(keep=keep)

    def checkpoints(self) -> list[Checkpoint]:
        """States that can be returned to, oldest first."""
        return self._backend.checkpoints()

    def restore(self, checkpoint: Checkpoint, *, vary_data: bool = True) -> None:
        """Return to a state. Knobs keep their present values: a rollback without a changed cause would only replay."""
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
