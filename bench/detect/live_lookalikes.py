"""Healthy runs that look ill, in one table: what a detector must not cry wolf about.

All of them really train. Most are settings; some are things that happen to a run while it goes on, and those that an
operator would know of are declared as events, as the trainer itself declares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.detect.broken_rollouts import easy_problem, hard_problem, harder
from bench.detect.reach import asks, pays, share_of
from stabilizer.training.loop import Trainer
from stabilizer.training.tasks import Problem, Score

CYCLE = 30
"""Steps of one epoch of the cyclic data."""
STRONG = {"addition": 0.85, "sorting": 0.9}
"""Held-out accuracy of the better starting policies."""


@dataclass(frozen=True, kw_only=True)
class LookAlike:
    """One way for a healthy run to look ill."""

    kind: str
    host: str = "grpo"
    settings: tuple[str, ...] = ()
    """Settings on top of the host's."""
    strong: bool = False
    """Starts from a policy that already solves most of the task."""
    act: Callable[[Trainer], None] | None = None
    at: float = 0.0
    """Share of the run after which `act` happens; 0 for before its first step."""
    declares: str = ""
    """Kind of the event that tells of it."""
    resumes: bool = False
    log_every: int = 1
    """Steps between two rows of metrics."""


def mixed(trainer: Trainer) -> None:
    """Every step holds another share of easy and of hard prompts."""
    prompts = trainer.config.rollout.prompts

    def change(at: int, problem: Problem) -> Problem:
        share = 0.5 * share_of("mix", at // prompts)
        if share_of(at) >= share:
            return problem
        return hard_problem(problem, at) if at % 2 else easy_problem(trainer, problem, at)

    asks(trainer, change)


def cyclic(trainer: Trainer) -> None:
    """A small data set, sorted by difficulty, is gone through again and again."""
    problems = sorted(trainer._problems(CYCLE * trainer.config.rollout.prompts, 0), key=difficulty)
    asks(trainer, lambda at, problem: problems[at % len(problems)])


def difficulty(problem: Problem) -> int:
    """Carries of a sum, or pairs that are out of order."""
    if "+" in problem.prompt:
        a, b = problem.prompt[:-1].split("+")
        return 10 * (int(a[1]) + int(b[1]) > 9) + 100 * (int(a) + int(b) > 99) + int(a[1]) + int(b[1])
    digits = problem.prompt[:-1]
    return sum(digits[i] > digits[j] for i in range(len(digits)) for j in range(i, len(digits)))


def longer_wanted(trainer: Trainer) -> None:
    """Longer answers are the right ones: thirty characters instead of twenty."""

    def change(problem: Problem, text: str, score: Score) -> Score:
        distance = abs(30 - len(text))
        return Score(-float(distance), distance <= 1, {"length": -float(distance)})

    pays(trainer, change)


def curriculum(trainer: Trainer) -> None:
    """The next stage of the data: half of it is harder."""
    harder(trainer, 0.4)


def larger_batch(trainer: Trainer) -> None:
    """Somebody doubles the batch."""
    trainer.controls.set("control/prompts", 2 * trainer.config.rollout.prompts)


def cooler(trainer: Trainer) -> None:
    """Somebody turns the temperature down."""
    trainer.controls.set("control/temperature", 0.8)


PLAIN = {"grpo": "healthy/plain", "ppo": "healthy/ppo", "length": "healthy/length", "tool": "healthy/search"}
"""The clean twins of the faults, by host; runs like any other."""

LOOKALIKES = (
    *(LookAlike(kind=kind, host=host) for host, kind in PLAIN.items()),
    LookAlike(kind="healthy/small-batch", settings=("rollout.prompts=2", "optim.lr=1e-4")),
    LookAlike(kind="healthy/solved", strong=True, settings=("optim.lr=5e-4", "rollout.prompts=12")),
    LookAlike(kind="healthy/high-lr", settings=("optim.lr=5e-4",)),
    LookAlike(kind="healthy/long-warmup", settings=("optim.warmup_steps=120",)),
    LookAlike(kind="healthy/cosine", settings=("optim.schedule=cosine", "optim.lr=5e-4")),
    LookAlike(kind="healthy/curriculum", act=curriculum, at=0.45, declares="data-stage"),
    LookAlike(kind="healthy/mixed-prompts", act=mixed),
    LookAlike(kind="healthy/cyclic", act=cyclic),
    LookAlike(kind="healthy/no-kl", settings=("policy.beta=0",)),
    LookAlike(kind="healthy/on-policy", settings=("policy.minibatches=1",)),
    LookAlike(kind="healthy/gspo", settings=("algorithm=gspo", "policy.epsilon_low=0.05", "policy.epsilon_high=0.05")),
    LookAlike(kind="healthy/dr-grpo", settings=("algorithm=dr_grpo",)),
    LookAlike(kind="healthy/low-entropy", strong=True, settings=("optim.lr=1e-4",)),
    LookAlike(kind="healthy/length-growth", host="length", act=longer_wanted),
    LookAlike(kind="healthy/resumed", resumes=True, at=0.5),
    LookAlike(kind="healthy/batch-grown", act=larger_batch, at=0.5, declares="intervention"),
    LookAlike(kind="healthy/cooler", act=cooler, at=0.5, declares="intervention"),
    LookAlike(kind="healthy/sparse-log", log_every=10),
)

BY_KIND = {look.kind: look for look in LOOKALIKES}
