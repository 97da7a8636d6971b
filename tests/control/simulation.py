"""A run small enough to think through: it learns, and from a given step on it breaks unless its cause is removed.

Stands in for the trainer and the session around it, so that watch, policy and trials are tested in closed loop within
a second; the same protocol runs on the real trainer in test_session.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from stabilizer.analysis.watching import new_watch
from stabilizer.control.engine import Mode, RemedyEngine
from stabilizer.control.fork import Fork, paired
from stabilizer.control.probe import Probe, probe
from stabilizer.core.earnings import Paid
from stabilizer.core.knobs import Checkpoint, Controls
from stabilizer.core.records import Action, Event
from stabilizer.runs.history import History

KNOBS = {
    "control/lr_scale": 1.0, "control/beta": 0.0, "control/prompts": 16, "control/entropy_coef": 0.0,
    "control/group_size": 8,
}  # fmt: skip


class Simulation:
    """Skill grows until the policy breaks; it breaks after `breaks_at` while `cause(knobs)` holds."""

    def __init__(
        self, mode: Mode, *, breaks_at: int = 40, cause: Callable[[dict[str, float]], bool] = lambda knobs: True,
        earlier: tuple[Action, ...] = (), seed: int = 0, knobs: dict[str, float] | None = None,
        growth: float = 0.003, growth_with_batch: float = 0.0, prompts: int = 16, fork: int = 0,
        drifts_at: int = 10_000, passes_at: int | None = None, rate: Callable[[int], float] | None = None,
        outside: Callable[[int], float] = lambda tick: 1.0,
    ):  # fmt: skip
        self.controls = Controls(KNOBS | {"control/prompts": prompts} | (knobs or {}), self)
        self._growth, self._growth_with_batch = growth, growth_with_batch
        self._passes_at = passes_at
        """The step at which what broke it is over and leaves no damage; steps then follow the learning rate too."""
        self._rate, self.ticks = rate, 0
        """What the schedule does to the rate at a tick, whatever the knob says; ticks go on where steps go back."""
        self._outside = outside
        """What the world outside of the weights leaves of every reward at a tick."""
        self.watch = new_watch()
        self.history = History()
        self.actions: list[Action] = []
        self.events: list[Event] = []
        self.orders: list[str] = []
        self.ended: list[str] = []
        self.varied: list[bool] = []
        """Of each return, whether other prompts came ahead."""
        self.saving_fails = False
        self._breaks_at, self._drifts_at, self._cause = breaks_at, drifts_at, cause
        self._rng = np.random.default_rng(seed)
        self._state = {"step": 0, "skill": 0.2, "broken": 0.0}
        self._saved: list[tuple[Checkpoint, dict[str, Any]]] = []
        self.save_checkpoint()
        self.engine = RemedyEngine(mode, self.controls, self.watch, self, earlier, fork_steps=fork)

    @property
    def step(self) -> int:
        return int(self._state["step"])

    def run(self, steps: int, requests: Callable[[Simulation], list] = lambda simulation: []) -> Simulation:
        """Go on until `steps` (a rollback makes that longer), at most 2,000 ticks."""
        for _ in range(2_000):
            if self.step >= steps:
                break
            self.ticks += 1
            self._train_step()
            self.watch.tick(self.history.view())
            self.engine.tick(self.history.view(), requests(self))
            if self.step % 10 == 0 and not self.saving_fails:
                self.save_checkpoint()
        return self

    def entries(self) -> list[tuple[str, str]]:
        """The journal as (remedy, entry)."""
        return [(action.remedy, action.entry) for action in self.actions]

    def _train_step(self) -> None:
        if self.controls.take_skip():
            self.orders.append("skip-update")
        metrics = self._numbers()
        self.history.append(self.step, metrics)

    def _numbers(self) -> dict[str, float]:
        state, noise = self._state, self._rng.normal(size=6)
        state["step"] += 1
        knobs = self.controls.values()
        schedule = self._rate(self.ticks) if self._rate else 1.0
        knobs["control/lr_scale"] *= schedule
        if state["step"] > self._breaks_at and self._cause(knobs):
            state["broken"] = min(1.0, state["broken"] + 0.5)
        elif state["step"] > self._drifts_at and self._cause(knobs):
            state["broken"] = min(0.05, state["broken"] + 0.005)
        size = 1.0 if self._passes_at is None else knobs["control/lr_scale"]
        if self._passes_at is not None and state["step"] >= self._passes_at:
            state["broken"] = 0.0
        broken = state["broken"]
        growth = self._growth + self._growth_with_batch * (self.controls.get("control/prompts") >= 16)
        state["skill"] = max(0.0, min(0.98, state["skill"] + growth) * (1 - 0.5 * broken))
        share = min(1.0, max(0.0, (1 - state["skill"]) ** 8 + 0.02 * noise[2]))
        return {
            "reward/mean": self._outside(self.ticks) * max(0.0, state["skill"] + 0.02 * noise[0] * (1 - broken)),
            "accuracy/train": state["skill"],
            "reward/all_fail_frac": share,
            "reward/zero_std_frac": share,
            "policy/kl_ref": float(np.exp(0.05 * noise[1])) * (0.001 * self.step + 4 * broken),
            "policy/kl_old": float(np.exp(0.2 * noise[3])) * (0.002 + 0.3 * broken) * size**2,
            "optim/update_ratio": (0.001 + 0.05 * broken) * size,
            "optim/grad_norm": float(np.exp(0.2 * noise[4])) * (0.5 + 3 * broken),
            "batch/prompts": self.controls.get("control/prompts"),
            "batch/updates": 1,
            **({"optim/lr": 1e-4 * knobs["control/lr_scale"]} if self._rate else {}),
            "policy/entropy": max(0.001, 1.0 - 0.9 * broken + 0.02 * noise[5]),
            **self.controls.values(),
        }

    # --- Backend ---

    def snapshot(self, *, keep: bool = False) -> Checkpoint:
        return self.save_checkpoint()

    def save_checkpoint(self) -> Checkpoint:
        if self.saving_fails:
            raise OSError(28, "No space left on device")
        checkpoint = Checkpoint(self.step, self.history.attempt, Path(f"step-{self.step}-a{self.history.attempt}"))
        self._saved.append((checkpoint, dict(self._state)))
        return checkpoint

    def checkpoints(self) -> list[Checkpoint]:
        return [checkpoint for checkpoint, _ in self._saved]

    def load_checkpoint(self, checkpoint: Checkpoint, *, vary_data: bool) -> None:
        self._state = dict(next(state for saved, state in self._saved if saved == checkpoint))

    # --- Host ---

    def journal(self, action: Action) -> Action:
        self.actions.append(replace(action, n=len(self.actions)))
        return self.actions[-1]

    def declare(self, step: int, kind: str, text: str, **data: Any) -> None:
        self.events.append(Event(step, kind, text, attempt=self.history.attempt, data=data))
        self.history.events.append(self.events[-1])

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> None:
        self.varied.append(vary_data)
        self.controls.restore(checkpoint, vary_data=vary_data)
        self.history = self.history.fork(checkpoint.step + 1, self.history.attempt + 1)
        self.declare(checkpoint.step + 1, "rollback", text, **data)

    def pause(self, text: str) -> None:
        self.ended.append(f"paused: {text}")

    def stop(self, text: str) -> None:
        self.ended.append(f"stopped: {text}")

    def fork(self, changes, steps: int) -> Fork:
        return paired(self, changes, steps)

    def probe(self, checkpoint: Checkpoint) -> Probe:
        return probe(self, checkpoint)

    def paid(self, checkpoint: Checkpoint | None = None) -> Paid:
        state = next((state for saved, state in self._saved if saved == checkpoint), self._state)
        noise = np.random.default_rng([self.step, checkpoint is None]).normal(size=16)
        return Paid(self._outside(self.ticks) * (state["skill"] + 0.02 * noise))

    # --- Forkable and the orders ---

    def state(self) -> dict[str, Any]:
        return {"state": dict(self._state), "rng": self._rng.bit_generator.state}

    def put_back(self, state: dict[str, Any]) -> None:
        self._state, self._rng.bit_generator.state = dict(state["state"]), state["rng"]

    def train_step(self) -> SimpleNamespace:
        return SimpleNamespace(metrics=self._numbers())

    def validate(self) -> dict[str, float]:
        return {"accuracy/val": self._state["skill"]}

    def reset_optimizer(self) -> None:
        self.orders.append("reset-optimizer")

    def reset_reference(self) -> None:
        self.orders.append("reset-reference")
