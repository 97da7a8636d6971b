"""Generation one step ahead: a thread writes and scores the batch of the next step while the learner updates.

The batch of step k + 1 begins with the weights from before the updates of step k, so it is older than the weights that
learn from it by exactly these updates. Weights reach the engine only while no batch is being written.

A batch belongs to one place of the run. If the run is at another place when the batch is due, because a state was
restored or a knob of the generation was turned, the batch is discarded and the step writes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stabilizer.training.knobs import Knobs
from stabilizer.training.rollout.episodes import Episodes
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.rollout.turns import Outcome
from stabilizer.training.tasks import Problem, Score, Task, random_bits


class Place(NamedTuple):
    """Everything that decides about a batch, besides the configuration and the weights."""

    seed: int
    salt: int
    step: int
    cursor: int
    """Prompts drawn before it."""
    prompts: int
    group_size: int
    temperature: float
    max_completion: int
    filter_groups: str

    @classmethod
    def of(cls, knobs: Knobs, *, seed: int, salt: int, step: int, cursor: int) -> Place:
        """A place of a run with these knobs."""
        return cls(
            seed, salt, step, cursor,
            knobs.prompts, knobs.group_size, knobs.temperature, knobs.max_completion, knobs.filter_groups,
        )  # fmt: skip

    def problems(self, task: Task, count: int, offset: int) -> list[Problem]:
        """Prompts of the batch."""
        return task.training(count, seed=self.seed, salt=self.salt, cursor=self.cursor + offset)

    def random_bits(self, purpose: str) -> int:
        """A seed of the batch."""
        return random_bits(self.seed, self.salt, self.step, purpose) >> 1


class Waiting(NamedTuple):
    """A batch that is written and not yet learned from."""

    place: Place
    updates: int
    """Updates since it was begun."""
    episodes: Episodes


class Ahead:
    """At most one batch, written in a thread. The engine and the task may be used only after `wait`."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rollout")
        self._begun: tuple[Place, Future[Episodes]] | None = None
        self.updates = 0
        """Updates since the batch was begun."""

    def begin(self, place: Place, write: Callable[[], Episodes]) -> None:
        """Write a batch from now on."""
        self._begun, self.updates = (place, self._thread.submit(write)), 0

    def wait(self) -> None:
        """Wait until nothing is being written. An error stays for `take`."""
        if self._begun is not None:
            self._begun[1].exception()

    def take(self, place: Place) -> Episodes | None:
        """The batch of this place, or the error that ended it; None if there is none. It is then forgotten."""
        self.wait()
        begun, self._begun = self._begun, None
        return begun[1].result() if begun is not None and begun[0] == place else None

    def waiting(self) -> Waiting | None:
        """The batch, once it is written; None if there is none, or an error ended it."""
        self.wait()
        if self._begun is None or self._begun[1].exception() is not None:
            return None
        place, batch = self._begun
        return Waiting(place, self.updates, batch.result())

    def restore(self, waiting: Waiting | None, task: Task, device: torch.device) -> None:
        """Have the batch of a restored state, with its prompts, instead of the present one."""
        self.wait()
        self._begun = None
        if waiting is not None:
            batch: Future[Episodes] = Future()
            batch.set_result(_with_problems(waiting.episodes, waiting.place, task, device))
            self._begun, self.updates = (waiting.place, batch), waiting.updates


def _with_problems(episodes: Episodes, place: Place, task: Task, device: torch.device) -> Episodes:
    drawn = place.problems(task, episodes.prompts_drawn, 0)
    rollouts = episodes.rollouts.on(device)
    greedy = episodes.greedy and _with_problems(episodes.greedy, place, task, device)
    problems = [problem for problem in drawn for _ in range(rollouts.group_size)]
    return episodes._replace(problems=problems, rollouts=rollouts, greedy=greedy)


# --- as a part of a state: tensors and JSON ---------------------------------------------------------------------------


def to_parts(waiting: Waiting) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by name, and the rest. The prompts are left out: they follow from the place."""
    tensors, rest = _parts(waiting.episodes, "")
    return tensors, {"place": list(waiting.place), "updates": waiting.updates, **rest}


def _parts(episodes: Episodes, prefix: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    values = {field.name: getattr(episodes.rollouts, field.name) for field in fields(Rollouts)}
    tensors = {f"{prefix}{name}": value for name, value in values.items() if isinstance(value, Tensor)}
    rest = {
        "rollouts": {name: value for name, value in values.items() if not isinstance(value, Tensor)},
        "scores": [asdict(score) for score in episodes.scores],
        "outcomes": [list(outcome) for outcome in episodes.outcomes],
        "prompts_drawn": episodes.prompts_drawn,
    }
    if episodes.greedy is not None:
        more, rest["greedy"] = _parts(episodes.greedy, "greedy.")
        tensors |= more
    return tensors, rest


def from_parts(tensors: Mapping[str, Tensor], rest: Mapping[str, Any]) -> Waiting:
    """The batch without its prompts. ValueError, KeyError or TypeError for parts that do not make one."""
    return Waiting(Place(*rest["place"]), int(rest["updates"]), _episodes(tensors, rest, ""))


def _episodes(tensors: Mapping[str, Tensor], rest: Mapping[str, Any], prefix: str) -> Episodes:
    own: dict[str, Any] = {
        name[len(prefix) :]: t for name, t in tensors.items() if name.rpartition(".")[0] == prefix[:-1]
    }
    rollouts = Rollouts(**own, **rest["rollouts"])
    scores = [Score(**score) for score in rest["scores"]]
    outcomes = [Outcome(*outcome) for outcome in rest["outcomes"]]
    rows = {len(tensor) for tensor in own.values()} | {len(scores), len(rollouts.texts), len(outcomes) or len(scores)}
    if len(rows) != 1 or rows != {rest["prompts_drawn"] * rollouts.group_size}:
        raise ValueError(f"its batch has parts of {', '.join(map(str, sorted(rows)))} completions")
    greedy = _episodes(tensors, rest["greedy"], "greedy.") if "greedy" in rest else None
    return Episodes([], rollouts, scores, outcomes, rest["prompts_drawn"], greedy)
