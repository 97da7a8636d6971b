"""The settings of rewards, and how an entry of `reward.functions` is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stabilizer.core.nearest import nearest
from stabilizer.training.rewards import BUILTIN, ENTRY_POINTS
from stabilizer.training.user_code import Code, read_code


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """The reward of completions, instead of a built-in task's own score."""

    functions: list[str | dict[str, Any]] = field(default_factory=list)
    """Reward functions: `exact`, `numeric`, `regex`, `format`, `boxed_math`, `length`, `code_free`, `FILE.py:FUNCTION`,
    or an entry point's name; or a mapping with `use` (one of these), `name`, `weight` (1), `options`."""
    timeout_s: float = 30.0
    """Seconds one function may take for a step's completions. Single retries after that may together take as long
    again."""
    import_timeout_s: float = 120.0
    """Seconds that importing a function's file may take, including loading a reward model."""
    memory_gb: float = 0.0
    """Address space of a function's process in GiB; 0 for no limit. A reward model on a GPU needs many times its
    size."""
    solved_by: str = ""
    """Function that decides whether a problem is solved; empty: the first one that applies to the sample."""
    solved_at: float = 1.0
    """Value of that function from which a problem counts as solved, for accuracy and for groups that all fail."""


@dataclass(frozen=True, kw_only=True)
class RewardSpec:
    """One function with its weight in the sum."""

    name: str
    use: str
    weight: float
    options: Mapping[str, Any]
    code: Code

    def load_request(self, memory_gb: float) -> dict[str, Any]:
        """The data the worker needs to load it."""
        return self.code.load_request() | {"options": dict(self.options), "memory_gb": memory_gb}


def read_specs(config: RewardConfig) -> list[RewardSpec]:
    """The entries of `reward.functions`; ValueError for an invalid entry."""
    specs = [_spec(i, entry) for i, entry in enumerate(config.functions)]
    names = [spec.name for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ValueError(f"reward.functions: two are named {twice!r}; give one of them a different `name`")
    if config.solved_by and not names:
        raise ValueError(f"reward.solved_by = {config.solved_by!r}: must be empty without reward.functions")
    if config.solved_by and config.solved_by not in names:
        raise ValueError(f"reward.solved_by = {config.solved_by!r}: must be one of {', '.join(names)}")
    return specs


def _spec(i: int, entry: str | dict[str, Any]) -> RewardSpec:
    where = f"reward.functions[{i}]"
    entry = {"use": entry} if isinstance(entry, str) else dict(entry)
    keys = ("use", "name", "weight", "options")
    unknown = next((key for key in entry if key not in keys), None)
    if unknown is not None:
        hint = nearest(str(unknown), keys)
        why = f"nearest is {hint!r}" if hint else "put the function's own parameters under `options`"
        raise ValueError(f"{where}: no key {unknown!r}; {why} (there are {', '.join(keys)})")
    use, weight, options = entry.get("use"), entry.get("weight", 1.0), entry.get("options") or {}
    if not isinstance(use, str):
        raise ValueError(f"{where}: `use` must name a function, for example use: numeric or use: reward.py:mine")
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight):
        raise ValueError(f"{where}: weight = {weight!r}: must be a number")
    if not isinstance(options, dict):
        raise ValueError(f"{where}: options = {options!r}: must be a mapping, for example {{tolerance: 0.01}}")
    code = read_code(where, use, ENTRY_POINTS, "function", BUILTIN)
    name = str(entry.get("name") or code.name)
    if not name.replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"{where}: name = {name!r}: use only letters, digits, - and _ (for the metric's name)")
    return RewardSpec(name=name, use=use, weight=float(weight), options=options, code=code)
