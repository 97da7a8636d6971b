"""What is done about what the detectors say: nothing, ours, or something simpler.

All arms see the same detectors, and a baseline's change is declared to them as ours is, so only the action differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from stabilizer.control.engine import Mode
from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Finding
from stabilizer.live.session import Session
from stabilizer.live.tick import Tick
from stabilizer.remedies import REMEDIES
from stabilizer.training.tasks import random_bits

FLOOR = 1 / 16
"""Scale of the learning rate below which halving it again stops."""


@dataclass
class Memory:
    """What a baseline remembers of its run, and what it did."""

    seed: int
    seen: set[tuple[int, str]] = field(default_factory=set)
    """Incident and finding."""
    done: list[str] = field(default_factory=list)


Act = Callable[[Session, list[Finding], Memory], str]
"""Does something about findings that were not there before; says what, or nothing."""


@dataclass(frozen=True)
class Arm:
    """One way to treat a run."""

    mode: Mode = "off"
    act: Act | None = None
    remedies: bool = False
    """Whether how it ends depends on our remedies."""

    def after(self, session: Session, tick: Tick, memory: Memory) -> str:
        """What a baseline did after a step, in words; empty for nothing."""
        fresh = [f for f in loud(tick.findings) if (f.incident, f.id) not in memory.seen]
        memory.seen |= {(f.incident, f.id) for f in fresh}
        if self.act is None or not fresh:
            return ""
        if said := self.act(session, fresh, memory):
            memory.done.append(said)
        return said


def loud(findings: list[Finding]) -> list[Finding]:
    """Those that stand and are worth acting on."""
    return [f for f in findings if f.severity in ("warn", "critical") and f.state not in ("resolved", "suspected")]


def halve_lr(session: Session, fresh: list[Finding], memory: Memory) -> str:
    """Half the learning rate at the first finding, and half of it again at each further one."""
    scale = session.trainer.controls.get("control/lr_scale")
    if scale / 2 < FLOOR:
        return ""
    return _turn(session, {"control/lr_scale": scale / 2})


def roll_back(session: Session, fresh: list[Finding], memory: Memory) -> str:
    """Once: back to the newest checkpoint older than the onset, with other prompts ahead and nothing else changed."""
    target = None if memory.done else _older(session, min(f.onset_step for f in fresh))
    return _return(session, target) if target else ""


def other_prompts(session: Session, fresh: list[Finding], memory: Memory) -> str:
    """Once: other prompts and random numbers ahead, and nothing else. What comes of it is chance."""
    if memory.done:
        return ""
    controls = session.trainer.controls
    controls.restore(controls.snapshot(), vary_data=True)
    return "other prompts ahead"


def at_random(session: Session, fresh: list[Finding], memory: Memory) -> str:
    """Once: any of our soft and hard remedies that this run has the knobs for, each as likely, for good."""
    if memory.done:
        return ""
    knobs = session.trainer.controls.values()
    target = _older(session, min(f.onset_step for f in fresh))
    able = []
    for remedy in REMEDIES:
        change = None if remedy.safety == "advice" or remedy.asks else remedy.change(knobs)
        acts = bool(change or remedy.orders) and change is not None
        if acts and all(name in knobs for name in change) and (target or not remedy.rollback):
            able.append((remedy, change))
    if not able:
        return ""
    remedy, change = Random(random_bits(memory.seed, "random remedy")).choice(able)  # noqa: S311 (no secret)
    said = [_return(session, target)] if remedy.rollback and target else []
    for order in remedy.orders:
        if order == "stop":
            session.host.stop(f"{remedy.id}, drawn at random")
        else:
            session.trainer.controls.obey(order)
        said.append(order)
    turned = _turn(session, {name: after for name, (_, after) in change.items() if after is not None})
    return f"{remedy.id}: {'; '.join(filter(None, (*said, turned)))}"


def _older(session: Session, onset: int) -> Checkpoint | None:
    older = [state for state in session.trainer.checkpoints() if state.step < onset]
    return older[-1] if older else None


def _turn(session: Session, knobs: dict[str, float]) -> str:
    said = []
    for name, value in knobs.items():
        before, after = session.trainer.controls.set(name, value)
        said.append(f"{name.removeprefix('control/')} {before:g} → {after:g}")
    text = ", ".join(said)
    session.host.declare(session.trainer.step + 1, "intervention", text)
    return text


def _return(session: Session, target: Checkpoint) -> str:
    text = f"returned from step {session.trainer.step} to {target.step}"
    session.host.roll_back(target, text)
    return text


ARMS: dict[str, Arm] = {
    "no action": Arm(),
    "auto-full": Arm("auto-full", remedies=True),
    "auto-safe": Arm("auto-safe", remedies=True),
    "always halve lr": Arm(act=halve_lr),
    "rollback only": Arm(act=roll_back),
    "random action": Arm(act=at_random, remedies=True),
    "other prompts": Arm(act=other_prompts),
}
OFF = "no action"
PLACEBO = "other prompts"
"""What changes nothing but the draw: how often it ends lower than its twin is what chance makes of harm."""
OURS = ("auto-full", "auto-safe")
BASELINES = ("always halve lr", "rollback only", "random action")
