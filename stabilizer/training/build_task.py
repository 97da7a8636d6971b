"""Build the task of a configuration: built-in problems or a data set, rewarded by their own score or by functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stabilizer.training.data.task import DataTask
from stabilizer.training.rewards.task import RewardedTask
from stabilizer.training.settings import TrainConfig
from stabilizer.training.tasks import DATA, TASKS, DerivedTask, Problem, Score, Task


def build_task(config: TrainConfig, tokenizer: Any, *, scores: bool = True) -> Task:
    """The task of a run, with all its inputs read and tried; ValueError when something will not work.

    A process that never `scores` needs no reward functions.
    """
    task = DataTask(config.data, tokenizer) if config.task == DATA else TASKS[config.task]
    if not config.reward.functions and (config.environment.use or (config.stage == "sft" and config.task == DATA)):
        return UnscoredTask(task)
    if not (config.reward.functions and scores):
        return task
    return RewardedTask(task, config.reward, task.environment(config.search))


class UnscoredTask(DerivedTask):
    """Problems without a score of their own: an environment rewards them, or they are demonstrated."""

    def score_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        return [Score(0.0, False, {}) for _ in problems]
