"""Search as in Search-R1 (Jin et al. 2025, arXiv:2503.09516): the policy may ask a retriever before it answers.

    policy        <search>bak room</search>
    environment   <information>bak room 47</information>
    policy        <answer>47</answer>

The environment writes between `<information>` tags and never writes a tag inside them. So the policy wrote all text
after the last `</information>`, and no document can answer in its place.
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
"""Replies that the policy reads after a call without an opening tag or without a query, and if no document matches."""


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Settings of the search environment, for the task `search`, or for `data` with a retriever."""

    url: str = ""
    """Address of a retriever with Search-R1's protocol; empty: BM25 over documents in memory."""
    corpus: str = ""
    """File of the documents to search, for tasks without built-in documents: the column `contents` (or `text`) of a
    .jsonl, .json, .csv, .tsv or .parquet file."""
    topk: int = 1
    """Documents added to the context per call."""
    max_turns: int = 3
    """Turns of the policy per episode, including the answer. A call in the last turn gets no reply."""
    max_chars: int = 2000
    """Characters of retrieved text per call; longer text is cut, so that one document cannot fill the context."""
    timeout_s: float = 10.0
    """Seconds that a retriever may take for all calls of a turn."""


class Retriever(Protocol):
    """A source of documents."""

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[str]]:
        """The contents of at most `topk` documents for each query, best first; RetrieverError on
        failure."""


class SearchEnvironment:
    """Answers `<search>` calls from a retriever."""

    calls = ("</search>",)
    ends = ("</answer>",)

    def __init__(self, retriever: Retriever, *, topk: int, max_chars: int):
        self._retriever, self._topk, self._max_chars = retriever, topk, max_chars

    def respond(self, turns: Sequence[str]) -> list[Reply]:
        """All queries of a turn are sent together; if that fails, all of them have failed."""
        queries = [query_of(turn) for turn in turns]
        wanted = list(dict.fromkeys(query for query in queries if query))
        try:
            found = dict(zip(wanted, self._retriever.retrieve(wanted, self._topk) if wanted else [], strict=True))
        except RetrieverError as error:
            return [Reply("", failed=f"retriever: {error}") if query else _no_query() for query in queries]
        return [Reply(self._information(found[query])) if query else _no_query() for query in queries]

    def _information(self, contents: list[str]) -> str:
        text = _ANY_TAG.sub(" ", "\n".join(contents)).strip()  # replaced by a space, so that the rest forms no new tag
        return _wrap(text[: self._max_chars] or NOTHING_FOUND)


def environment(documents: Sequence[str], config: SearchConfig) -> SearchEnvironment:
    """The environment of a configuration, over `documents` unless it names an address."""
    retriever = HttpRetriever(config.url, timeout_s=config.timeout_s) if config.url else Bm25(documents)
    return SearchEnvironment(retriever, topk=config.topk, max_chars=config.max_chars)


def query_of(turn: str) -> str:
    """The query of a turn that ends in `</search>`; '' if the turn has no opening tag or no query."""
    before, opened, query = turn.removesuffix("</search>").rpartition("<search>")
    return query.strip() if opened else ""


def answer_of(episode: str) -> str | None:
    """The text of the policy's answer; None if it gave none."""
    own = episode.rpartition("</information>")[2]
    answer = re.search(r"<answer>(.*?)</answer>", own, re.DOTALL)
    return answer[1].strip() if answer else None


def _wrap(text: str) -> str:
    return f"<information>{text}</information>"


def _no_query() -> Reply:
    return Reply(_wrap(NO_QUERY), valid=False)
