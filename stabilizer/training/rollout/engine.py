"""The interface of generation engines: prompts and sampling parameters in, completions with log-probabilities out.

An engine may share the learner's weights (the built-in sampler) or hold its own copy (vLLM). `sync` is called after
every change of the weights: an engine with a copy then loads the new ones and returns metrics of the transfer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from stabilizer.training.rollout.rollouts import Rollouts


class Cut(NamedTuple):
    """Which tokens may be drawn. Log-probabilities and entropies remain those of the full distribution."""

    top_k: int = 0
    """Only this many of the likeliest tokens; 0 for all."""
    top_p: float = 1.0
    """Only the likeliest tokens that together reach this probability."""
    min_p: float = 0.0
    """Only tokens with at least this share of the likeliest token's probability."""


class Sampling(NamedTuple):
    """Sampling parameters. An engine that promises it returns the same completions for the same values and weights."""

    group_size: int
    """Completions per prompt."""
    temperature: float
    """0 is greedy; log-probabilities are then those at temperature 1."""
    max_completion: int
    """Maximum completion length in tokens, including the end token."""
    seed: int = 0
    """Seed of all random numbers in this call."""
    stop_ids: tuple[int, ...] = ()
    """Tokens that end a completion, in addition to the model's own."""
    stop_texts: tuple[str, ...] = ()
    """Texts at which an engine may end a completion. It need not: the caller cuts what follows them."""
    cut: Cut = Cut()
    """Which tokens may be drawn."""
    first: int = 0
    """The number of prompts before these in the whole batch, of which this call may be a part."""
    whole: int = 0
    """The number of prompts in the whole batch; 0 if these are all. A completion does not depend on the division."""


class Engine(Protocol):
    """The interface that the loop needs from a generation engine."""

    @property
    def max_length(self) -> int | None:
        """Largest total of prompt and completion tokens, where completions are cut; None without a limit."""

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> Rollouts:
        """`sampling.group_size` completions of each prompt (token ids), those of one prompt next to each other."""

    failures: Counter[str]
    """Reasons for which a part of the engine failed so far; the rest of it went on."""
    version: int
    """Version of its weights, which counts updates; 0 for an engine without a copy of the weights."""

    def sync(self, updates: int = 1) -> dict[str, float]:
        """Load the policy's weights after some updates; returns metrics of the transfer, if there was one."""

    def close(self) -> None:
        """Release the resources of the engine."""
