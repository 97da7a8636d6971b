"""Environments: what answers the policy in the middle of an episode, and how it is asked.

    bm25.py            a retriever over documents in memory
    http_retriever.py  a retriever behind an HTTP address, as Search-R1 runs it
    search.py          the environment in which the policy may call a retriever before it answers

`rollout/turns.py` drives episodes; an environment knows text, and neither tokens nor tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Reply(NamedTuple):
    """What an environment says to a call."""

    text: str
    """Goes into the context as it stands. The policy did not choose it, so the loss leaves it out."""
    valid: bool = True
    """Whether the call was one that can be carried out."""
    failed: str = ""
    """Why the environment itself could not answer, '' when it did. The episode ends there, and its completion is marked
    failed: a made-up or empty answer would teach the policy that searching is of no use."""


class Environment(Protocol):
    """Something to call. A turn ends behind the first of the texts in `calls` and `ends`."""

    @property
    def calls(self) -> tuple[str, ...]:
        """Texts that end a turn and ask for a reply."""

    @property
    def ends(self) -> tuple[str, ...]:
        """Texts that end the episode, besides the model's own end token."""

    def respond(self, turns: Sequence[str]) -> list[Reply]:
        """The replies to turns that ended in one of `calls`, in order. Nothing is raised for what a turn says."""
