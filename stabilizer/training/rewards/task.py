"""A task whose completions are paid by reward functions instead of its own score.

Where the policy may search, a completion is a whole episode, retrieved text included. Functions are given the answer
alone (what stands between `<answer>` tags, empty when there is none), so that no document is paid in its place; those
that name the column `episode` get everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stabilizer.training.environments import Environment
from stabilizer.training.environments.search import SearchConfig, answer_of
from stabilizer.training.rewards.config import RewardConfig
from stabilizer.training.rewards.runner import RewardRunner
from stabilizer.training.tasks import Problem, Score, Task, Tokenizer

EPISODE = "episode"


class RewardedTask(Task):
    """The problems of one task, paid by functions. What a completion is worth is all that differs."""

    def __init__(self, problems: Task, config: RewardConfig, environment: Environment | None):
        self._problems = problems
        self._environment = environment
        if environment and EPISODE in problems.columns:
            raise ValueError(
                f"the data's column {EPISODE!r} has the name under which reward functions get what the policy wrote"
                " and read: call the column something else"
            )
        self._runner = RewardRunner(config, (*problems.columns, EPISODE) if environment else problems.columns)
        self.name = problems.name
        self.size = problems.size
        self.columns = problems.columns
        self.failures = self._runner.failures  # counts on while the run goes
        self.notes = (*problems.notes, *self._runner.notes)

    def problem(self, index: int) -> Problem:
        return self._problems.problem(index)

    def held_out(self, count: int) -> list[Problem]:
        return self._problems.held_out(count)

    def training(self, count: int, *, seed: int, salt: int, cursor: int) -> list[Problem]:
        return self._problems.training(count, seed=seed, salt=salt, cursor=cursor)

    def encode(self, problems: Sequence[Problem], tokenizer: Tokenizer) -> list[list[int]]:
        return self._problems.encode(problems, tokenizer)

    def environment(self, config: SearchConfig) -> Environment | None:
        return self._environment

    def score_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        if self._environment is None:
            return self._runner(problems, completions)
        whole = [
            replace(problem, columns={**problem.columns, EPISODE: text})
            for problem, text in zip(problems, completions, strict=True)
        ]
        return self._runner(whole, [answer_of(text) or "" for text in completions])

    def close(self) -> None:
        """End the functions' processes."""
        self._runner.close()
