"""Knobs of a foreign loop: a getter and a setter each, called in the loop's own thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stabilizer.core.knobs import KNOBS, Checkpoint, Controls

RATE = "control/lr_scale"
"""Our knob of the learning rate is a factor on the configured one."""
RATES = ("lr", "learning_rate", "lr_scale")


@dataclass
class LoopKnob:
    """One knob as the loop has it."""

    name: str
    """Ours, as in `KNOBS`."""
    get: Callable[[], float]
    set: Callable[[float], None]
    base: float
    """The learning rate when the knob was made; 1 for other knobs."""
    applied: float
    """Our value of the knob that the loop has now."""

    def apply(self, value: float) -> None:
        """Give the loop a value of ours."""
        self.set(value * self.base)
        self.applied = value


def our_name(name: str) -> str:
    """Our knob for a name; ValueError lists the knobs."""
    full = RATE if name in RATES else name if name.startswith("control/") else f"control/{name}"
    if full not in KNOBS:
        raise ValueError(f"no knob {name!r}; there are lr, {', '.join(sorted(k.partition('/')[2] for k in KNOBS))}")
    return full


class NoStates:
    """The backend of a loop that keeps its own checkpoints: knobs can be changed, states cannot be restored."""

    def __init__(self, folder: Path):
        self._folder = folder

    def snapshot(self, *, keep: bool = False) -> Checkpoint:
        """The knobs are journaled; there is no state to save."""
        return Checkpoint(0, 0, self._folder)

    def checkpoints(self) -> list[Checkpoint]:
        """None that we could restore."""
        return []

    def load_checkpoint(self, checkpoint: Checkpoint, *, vary_data: bool) -> None:
        """Refused: the loop's own checkpoints are its owner's."""
        raise ValueError("this run is a guest in another loop, whose checkpoints it cannot restore")

    def reset_optimizer(self) -> None:
        """Refused."""
        raise ValueError("this run is a guest in another loop and cannot reset its optimizer")

    def reset_reference(self) -> None:
        """Refused."""
        raise ValueError("this run is a guest in another loop and cannot reset its reference")


class LoopControls(Controls):
    """Controls to which knobs are added while the run goes on."""

    def __init__(self, folder: Path):
        super().__init__({}, NoStates(folder))

    def add(self, name: str, value: float) -> None:
        """Add a knob with its configured value; ValueError outside its bounds."""
        self._values[name] = self._configured[name] = self._checked(name, value)
