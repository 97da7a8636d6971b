"""A task whose completions are rewarded by reward functions instead of its own score.

Where the policy may search, a completion is a whole episode, including retrieved text. Functions get only the answer
(the text between `<answer>` tags, or an empty one), so that retrieved text is never rewarded as the answer. Functions
that name the column `episode` get the whole episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stabilizer.training.environments import Environment
from stabilizer.training.environments.search import SearchConfig, answer_of
from stabilizer.training.rewards.config import RewardConfig
from stabilizer.training.rewards.runner import RewardRunner
from stabilizer.training.tasks import DerivedTask, Problem, Score, Task

EPISODE = "episode"


class RewardedTask(DerivedTask):
    """The problems of a task, rewarded by functions. Only the scores differ from those of the task."""

    def __init__(self, problems: Task, config: RewardConfig, environment: Environment | None):
        super().__init__(problems)
        self.reads_generated = True
        self._environment = environment
        if environment and EPISODE in problems.columns:
            raise ValueError(
                f"the data has a column {EPISODE!r}, the name under which reward functions get the text that the policy"
                " wrote and read: rename the column"
            )
        self._runner = RewardRunner(config, (*problems.columns, EPISODE) if environment else problems.columns)
        self.failures = self._runner.failures  # keeps counting during the run
        self.notes = (*problems.notes, *self._runner.notes)

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
