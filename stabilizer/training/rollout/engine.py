"""Generation as one interface: prompts and how to sample in, completions with their log-probabilities out.

An engine may share the learner's weights (the built-in sampler) or hold a copy of its own (vLLM). `sync` is called
after every change of the weights: an engine with a copy takes the new ones over then, and says how well that went.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from stabilizer.training.rollout.rollouts import Rollouts


class Sampling(NamedTuple):
    """How to sample. The same values and weights give the same completions from an engine that promises it."""

    group_size: int
    """Completions per prompt."""
    temperature: float
    """0 is greedy; log-probabilities are then those at 1."""
    max_completion: int
    """Tokens after which a completion is cut, its end token included."""
    seed: int = 0
    """Of everything random in this call."""
    stop_ids: tuple[int, ...] = ()
    """Tokens that end a completion besides the model's own."""


class Engine(Protocol):
    """What the loop needs of a generation engine."""

    @property
    def max_length(self) -> int | None:
        """Tokens of prompt and completion together, beyond which one is cut; None where nothing limits them."""

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> Rollouts:
        """`sampling.group_size` completions of each prompt (token ids), those of one prompt next to each other."""

    def sync(self) -> dict[str, float]:
        """Take over the policy's present weights; returns metrics of the transfer, if there was one."""

    def close(self) -> None:
        """Release what the engine holds."""
