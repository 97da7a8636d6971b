"""An environment of the user's own, in a process of its own.

    class Game:
        calls = ("</move>",)                     optional: texts that end a turn, besides the model's end token
        role = "user"                            optional: role of the replies in a chat

        def reset(self, **columns): ...          begins an episode with the row of the data
        def step(self, text): ...                returns (reply, done) or (reply, done, reward)

Every episode has an object of its own. `step` gets what the policy wrote in its turn. It may be `async`; the episodes
of a turn then run concurrently. Rewards of an episode are added. An episode whose environment raises, hangs or dies has
failed: it gets no reward and teaches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stabilizer.training.environments.config import EnvironmentConfig
from stabilizer.training.rewards.process import CallFailed, RewardProcess
from stabilizer.training.user_code import read_code

ENTRY_POINTS = "stabilizer.environments"
"""The entry-point group through which installed packages provide environments."""


class Step(NamedTuple):
    """What an environment returned for one turn."""

    text: str
    done: bool
    reward: float | None
    failed: str
    """Why it returned nothing, '' if it did."""


class OwnEnvironment:
    """Episodes in the user's class. A call that fails as a whole fails all episodes of its turn."""

    def __init__(self, config: EnvironmentConfig):
        self._timeout_s = config.timeout_s
        code = read_code("environment.use", config.use, ENTRY_POINTS, "class")
        request = code.load_request() | {"kind": "environment", "options": dict(config.options), "memory_gb": 0.0}
        self._process = RewardProcess(request, config.import_timeout_s)
        try:
            about = self._process.start()
        except CallFailed as error:
            raise ValueError(f"environment.use = {config.use!r} can't be used: {error}") from None
        self.calls: tuple[str, ...] = tuple(about["calls"])
        self.role: str = about["role"]

    def begin(self, columns: Sequence[Mapping[str, Any]]) -> list[str]:
        """Begin an episode for each row of data; returns why it failed, '' where it did not."""
        try:
            failures: list[str] = self._process.ask({"begin": [dict(row) for row in columns]}, self._timeout_s)["begun"]
        except CallFailed as error:
            return [str(error)] * len(columns)
        return failures

    def step(self, episodes: Sequence[int], turns: Sequence[str]) -> list[Step]:
        """The answers to one turn of some episodes, which `begin` numbered from 0."""
        try:
            steps = self._process.ask({"steps": list(zip(episodes, turns, strict=True))}, self._timeout_s)["steps"]
        except CallFailed as error:
            return [Step("", True, None, str(error))] * len(turns)
        return [Step(*step) for step in steps]

    def close(self) -> None:
        """End its process."""
        self._process.close()
