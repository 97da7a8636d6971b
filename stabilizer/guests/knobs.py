"""Knobs of a foreign loop: a getter and a setter each, called in the loop's own thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabilizer.core.knobs import KNOBS, ORDERS, Backend, Checkpoint, Controls

RATE = "control/lr_scale"
"""Our knob of the learning rate is a factor on the configured one."""
ROUNDING = 1e-6
"""Relative difference within which a knob has the value it was given: rates are scaled by one factor after another."""
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
    follows: bool = False
    """Whether what the getter says is taken over when somebody else changed it."""
    moved_at: int = -1_000_000
    """The step at which somebody else changed it last."""
    argument: str = ""
    """The trainer's argument that a restart changes; empty for a knob that acts while the loop runs."""

    def apply(self, value: float) -> None:
        """Give the loop a value of ours."""
        self.set(value * self.base)
        self.applied = value

    def moved(self) -> float | None:
        """Our value of what the loop has, if it was changed without us; None if it was not."""
        now = float(self.get()) / self.base
        same = math.isclose(now, self.applied, rel_tol=ROUNDING, abs_tol=1e-12) or math.isnan(now)
        return None if same else now


class Rates:
    """The learning rates of torch optimizers and of their schedules as one number, the first peak rate.

    Another rate scales all of them alike: groups at once, schedules so that their next step keeps it.
    """

    SCALED = ("lr", "initial_lr", "max_lr", "min_lr")
    """Rates in a parameter group; schedules such as OneCycleLR keep theirs there."""

    def __init__(self, optimizers: Iterable[Any], schedules: Iterable[Any] = ()):
        self._groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._schedules = [part for schedule in schedules if schedule is not None for part in _parts(schedule)]
        peaks = [rate for schedule in self._schedules for rate in schedule.base_lrs]
        peaks += [group.get("initial_lr", group["lr"]) for group in self._groups]
        self._rate = next((float(rate) for rate in peaks if float(rate) > 0), 0.0)
        if not self._rate:
            raise ValueError("the optimizer has no learning rate above 0, so there is nothing to scale")

    def get(self) -> float:
        """The peak rate."""
        return self._rate

    def set(self, rate: float) -> None:
        """Scale all rates so that the peak becomes this."""
        factor = rate / self._rate
        for schedule in self._schedules:
            schedule.base_lrs = [base * factor for base in schedule.base_lrs]
        for group in self._groups:
            for key in self.SCALED:
                if key in group:
                    group[key] *= factor  # in place where it is a tensor
        self._rate = rate


def _parts(schedule: Any) -> Iterator[Any]:
    """A schedule, or those that it is made of, which have rates of their own."""
    inner = getattr(schedule, "_schedulers", None) or [getattr(schedule, "scheduler", None)]
    for part in inner:
        if part is not None:
            yield from _parts(part)
    if hasattr(schedule, "base_lrs"):
        yield schedule


def our_name(name: str) -> str:
    """Our knob for a name; ValueError lists the knobs."""
    full = RATE if name in RATES else name if name.startswith("control/") else f"control/{name}"
    if full not in KNOBS:
        raise ValueError(f"no knob {name!r}; there are lr, {', '.join(sorted(k.partition('/')[2] for k in KNOBS))}")
    return full


def scale_of(name: str, value: float) -> float:
    """What one unit of our knob is in the loop: the learning rate as it was found, 1 for other knobs."""
    return value if name == RATE else 1.0


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
    """Controls to which knobs are added while the run goes on, and which follow what others do to the loop."""

    def __init__(self, folder: Path, backend: Backend | None = None):
        super().__init__({}, backend or NoStates(folder))
        self._checks: dict[str, Callable[[float], None]] = {}
        self._orders = ORDERS if backend else ()
        self.arguments: dict[str, str] = {}
        """Knobs that take a restart, and the trainer's arguments for them."""

    def add(self, name: str, value: float, check: Callable[[float], None] = lambda value: None) -> None:
        """Add a knob with its configured value; ValueError outside its bounds. `check` refuses further values."""
        self._values[name] = self._configured[name] = self._checked(name, value)
        self._checks[name] = check

    def get(self, name: str) -> float:
        """The present value of a knob; ValueError says how to change one that takes a restart."""
        if name in self.arguments and name not in self:
            raise ValueError(
                f"{name} takes a restart with another {self.arguments[name]}: begin the training by"
                " `stabilizer supervise -- CMD`, which restarts it for such a change"
            )
        return super().get(name)

    def set(self, name: str, value: float | str) -> tuple[float, float]:
        """Change one knob; ValueError if this loop cannot have that value."""
        if name in self._checks:
            self._checks[name](self._checked(name, value))
        return super().set(name, value)

    def adopt(self, name: str, value: float) -> None:
        """Take over a value that somebody else gave the loop, whatever its bounds."""
        self._values[name] = value

    def clear(self) -> None:
        """Have no knobs any more."""
        self._values, self._configured = {}, {}

    def save_knobs(self) -> None:
        """Nothing: a loop that is started again has them from the journal."""

    def skip_update(self) -> None:
        """Refused where nobody carries it out."""
        if "skip-update" not in self._orders:
            raise ValueError("this run is a guest in another loop and cannot skip its updates")
        super().skip_update()
