"""What other trainers leave of a run: a few metrics, seldom, rounded as they are printed, paid on a scale of their own.

A `Logbook` turns the columns of a generated world (`world.World.columns`, one value a step) into the rows that a reader
would make of such a log. Names are ours; which of them a trainer has a key for, and how it prints a number, follows
the trainers' sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bench.detect.world import window_value

_TRL = ("policy/loss", "optim/grad_norm", "optim/lr", "reward/mean", "reward/std_group", "rollout/length_mean",
        "policy/kl_ref")  # fmt: skip
_TRL_LATER = (*_TRL, "reward/zero_std_frac", "policy/entropy", "policy/clip_frac", "rollout/length_max",
              "rollout/truncated_frac")  # fmt: skip
_VERL = ("reward/mean", "rollout/length_mean", "rollout/length_max", "rollout/truncated_frac", "policy/entropy",
         "policy/kl_ref", "policy/kl_old", "policy/loss", "policy/clip_frac", "optim/grad_norm", "accuracy/val",
         "time/step_s")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Logbook:
    """One way in which runs are left behind."""

    name: str
    trainer: str
    metrics: tuple[str, ...]
    every: tuple[int, ...] = (1,)
    """Steps that one row is the mean of."""
    components: bool = False
    """Whether the pieces of the reward are logged one by one."""
    decimals: int | None = None
    """Places after the point, where that is how numbers are printed."""
    digits: int | None = None
    """Significant digits, where that is."""
    planned: bool = False
    """Whether the log says how long the run was to be."""

    def keeps(self, name: str) -> bool:
        """Whether there is anything of a metric in it."""
        piece = name.startswith("reward/") and name.count("/") == 2
        return self.components if piece else name in self.metrics

    def printed(self, value: float) -> float:
        """A number as it is read back."""
        if self.decimals is not None:
            return round(value, self.decimals)
        return float(f"{value:.{self.digits}g}") if self.digits is not None else value

    def rows(self, columns: Mapping[str, np.ndarray], every: int) -> Iterator[tuple[int, dict[str, float]]]:
        """(step, values) of every row."""
        kept = {name: values for name, values in columns.items() if self.keeps(name)}
        for end in range(every, len(next(iter(kept.values()))) + 1, every):
            known = {name: window_value(name, values[end - every : end]) for name, values in kept.items()}
            yield end, {name: self.printed(value) for name, value in known.items() if not np.isnan(value)}


LOGBOOKS = (
    Logbook(name="notebook", trainer="trl", decimals=6,
            metrics=("policy/loss", "reward/mean", "reward/std_group", "rollout/length_mean", "policy/kl_ref")),
    Logbook(name="trl-state", trainer="trl", metrics=_TRL_LATER, every=(1, 5, 10, 25), components=True, planned=True),
    Logbook(name="trl-early", trainer="trl", metrics=_TRL, every=(1, 5, 10), components=True, planned=True),
    Logbook(name="trl-console", trainer="trl", metrics=_TRL_LATER, every=(1, 10), components=True, digits=4),
    Logbook(name="open-r1", trainer="trl", metrics=_TRL, components=True, digits=6),
    Logbook(name="verl-console", trainer="verl", metrics=_VERL, decimals=3),
    Logbook(name="search-r1", trainer="verl", decimals=3,
            metrics=(*_VERL, "value/loss", "value/explained_variance")),
    Logbook(name="easyr1", trainer="verl", metrics=(*_VERL, "optim/lr"), components=True),
    Logbook(name="openrlhf", trainer="openrlhf", digits=5,
            metrics=(*_TRL, "policy/clip_frac", "policy/kl_old", "rollout/truncated_frac", "accuracy/val")),
)  # fmt: skip
"""All of them."""


def paid_otherwise(columns: dict[str, np.ndarray], scale: float, shift: float) -> None:
    """The reward on another scale: so many times what it was, and so much more, the second in its first piece."""
    pieces = [name for name in columns if name.startswith("reward/") and name.count("/") == 2]
    for name in ("reward/mean", "reward/std", "reward/std_group", *pieces):
        columns[name] = columns[name] * scale
    for name in ("reward/mean", *pieces[:1]):
        columns[name] = columns[name] + shift
