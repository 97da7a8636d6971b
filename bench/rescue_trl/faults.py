"""Settings that somebody turns in a running TRL training, as by a typing error or the next stage of a script.

Every one is turned in the trainer's own objects, without a word to stabilizer, and stays so until somebody turns it
back. They are those of RescueBench's settings (`bench.rescue.faults`) that TRL has a place for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Turn = Callable[[str, float], None]
"""Sets a setting of TRL to a value."""

RAMP = 40
"""Steps over which a learning rate that runs away reaches its end."""


@dataclass(frozen=True)
class Fault:
    """One way to harm a run."""

    kind: str
    strengths: tuple[float, float]
    """Medium and severe."""
    settings: dict[str, float | None]
    """What it sets; None is the strength, and `lr` is a factor."""
    why: str


# fmt: off
FAULTS = (
    Fault("lr-jump", (6, 15), {"lr": None}, "the learning rate is so many times what was meant"),
    Fault("lr-ramp", (8, 15), {}, "a schedule with a wrong sign: the rate grows to so many times itself"),
    Fault("lr-too-low", (0.1, 0.03), {"lr": None}, "the learning rate is so small that little is learned"),
    Fault("clip-too-wide", (4, 8), {"epsilon_low": 1.0, "epsilon_high": 10.0, "max_grad_norm": 1e6,
                                    "inner_epochs": None, "lr": 3.0}, "nothing limits a step, and passes are many"),
    Fault("too-many-epochs", (6, 10), {"inner_epochs": None, "lr": 3.0}, "every buffer is used too often"),
    Fault("entropy-bonus", (0.1, 0.3), {"entropy_coef": None}, "the bonus outweighs the reward"),
    Fault("entropy-penalty", (-0.1, -0.3), {"entropy_coef": None}, "the sign of the bonus is wrong"),
    Fault("kl-pinned", (0.3, 1.0), {"beta": None}, "the KL holds the policy where it began"),
    Fault("no-kl-anchor", (2.5, 5.0), {"beta": 0.0, "inner_epochs": 4, "lr": None}, "beta 0, and drift"),
    Fault("too-hot", (1.6, 2.0), {"temperature": None}, "sampling is nearly uniform"),
    Fault("too-cold", (0.3, 0.15), {"temperature": None}, "answers of a group are alike"),
    Fault("batch-shrunk", (3, 3), {"prompts": None, "lr": 2.0}, "half of the prompts of a step, at twice the rate"),
)
# fmt: on
BY_KIND = {fault.kind: fault for fault in FAULTS}


def inject(trainer: Any, kind: str, strength: float, onset: int, turn: Turn) -> Any:
    """A callback of transformers that does it before step `onset`."""
    from transformers import TrainerCallback

    fault = BY_KIND[kind]

    class Happens(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """The fault. transformers may begin a step twice: at its first micro-batch, and again at the next one if the
        accumulation has become shorter meanwhile."""

        begun = False

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            self.begun = False

        def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if self.begun:
                return
            self.begun = True
            step = state.global_step + 1
            if step == onset:
                for name, value in fault.settings.items():
                    turn(name, strength if value is None else value)
            if kind == "lr-ramp" and onset <= step < onset + RAMP:
                turn("lr", strength ** (1 / RAMP))

    return Happens()
