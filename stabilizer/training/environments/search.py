"""Search as in Search-R1 (Jin et al. 2025, arXiv:2503.09516): the policy may ask a retriever before it answers.

    policy        <search>bak room</search>
    environment   <information>bak room 47</information>
    policy        <answer>47</answer>

The environment writes between `<information>` tags and never writes a tag inside them, so what stands behind the last
`</information>` is the policy's own: no document can answer in its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stabilizer.training.environments import Reply
from stabilizer.training.environments.bm25 import Bm25
from stabilizer.training.environments.http_retriever import HttpRetriever, RetrieverError

TAGS = ("<search>", "</search>", "<information>", "</information>", "<answer>", "</answer>")
_ANY_TAG = re.compile("|".join(map(re.escape, TAGS)))
NO_QUERY, NOTHING_FOUND = "no query", "nothing found"
"""What the policy reads when it closed a call it never opened or left empty, and when no document matches."""


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How a task that can be searched is played: the task `search`, or `data` with a retriever named here."""

    url: str = ""
    """Address of a retriever that speaks Search-R1's protocol; empty: BM25 over documents in memory."""
    corpus: str = ""
    """File of the documents to search where the task has none of its own: the column `contents` (or `text`) of a
    .jsonl, .json, .csv, .tsv or .parquet file."""
    topk: int = 1
    """Documents put into the context per call."""
    max_turns: int = 3
    """Turns of the policy in an episode, the answer included. A call in the last one is not answered any more."""
    max_chars: int = 2000
    """Characters of retrieved text per call; what is longer is cut, so that one document can't fill the context."""
    timeout_s: float = 10.0
    """Seconds a retriever may take for the calls of a turn."""


class Retriever(Protocol):
    """Where documents come from."""

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[str]]:
        """The contents of at most `topk` documents for each query, best first; RetrieverError when there are none to be
        had because asking failed."""


class SearchEnvironment:
    """Answers `<search>` calls from a retriever."""

    calls = ("</search>",)
    ends = ("</answer>",)

    def __init__(self, retriever: Retriever, *, topk: int, max_chars: int):
        self._retriever, self._topk, self._max_chars = retriever, topk, max_chars

    def respond(self, turns: Sequence[str]) -> list[Reply]:
        """All queries of a turn are asked at once; when that fails, every one of them has failed."""
        queries = [query_of(turn) for turn in turns]
        wanted = list(dict.fromkeys(query for query in queries if query))
        try:
            found = dict(zip(wanted, self._retriever.retrieve(wanted, self._topk) if wanted else [], strict=True))
        except RetrieverError as error:
            return [Reply("", failed=f"retriever: {error}") if query else _no_query() for query in queries]
        return [Reply(self._information(found[query])) if query else _no_query() for query in queries]

    def _information(self, contents: list[str]) -> str:
        text = _ANY_TAG.sub(" ", "\n".join(contents)).strip()  # by a space, so that what remains makes no new tag
        return _wrap(text[: self._max_chars] or NOTHING_FOUND)


def environment(documents: Sequence[str], config: SearchConfig) -> SearchEnvironment:
    """The environment a configuration asks for, over `documents` unless it names an address."""
    retriever = HttpRetriever(config.url, timeout_s=config.timeout_s) if config.url else Bm25(documents)
    return SearchEnvironment(retriever, topk=config.topk, max_chars=config.max_chars)


def query_of(turn: str) -> str:
    """What a turn that ends in `</search>` asks for; '' when it never opened the call, or says nothing in it."""
    before, opened, query = turn.removesuffix("</search>").rpartition("<search>")
    return query.strip() if opened else ""


def answer_of(episode: str) -> str | None:
    """The text of the policy's answer, None when it gave none."""
    own = episode.rpartition("</information>")[2]
    answer = re.search(r"<answer>(.*?)</answer>", own, re.DOTALL)
    return answer[1].strip() if answer else None


def _wrap(text: str) -> str:
    return f"<information>{text}</information>"


def _no_query() -> Reply:
    return Reply(_wrap(NO_QUERY), valid=False)
