"""Environments: they answer the policy in the middle of an episode.

    bm25.py            a retriever for documents in memory
    http_retriever.py  a retriever at an HTTP address, as in Search-R1
    search.py          the environment that lets the policy call a retriever before it answers

`rollout/turns.py` drives episodes; an environment handles text, and neither tokens nor tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Reply(NamedTuple):
    """An environment's answer to a call."""

    text: str
    """Added to the context unchanged. The policy did not choose it, so the loss excludes it."""
    valid: bool = True
    """Whether the call was valid."""
    failed: str = ""
    """Why the environment could not answer, '' if it did. The episode ends there and its completion is marked as
    failed: a made-up or empty answer would teach the policy that searching is useless."""


class Environment(Protocol):
    """An environment that the policy can call. A turn ends after the first of the texts in `calls` and `ends`."""

    @property
    def calls(self) -> tuple[str, ...]:
        """Texts that end a turn and ask for a reply."""

    @property
    def ends(self) -> tuple[str, ...]:
        """Texts that end the episode, in addition to the model's end token."""

    def respond(self, turns: Sequence[str]) -> list[Reply]:
        """The replies to turns that ended in one of `calls`, in order. No text of a turn may raise an exception."""
