"""A retriever at an HTTP address with the protocol of Search-R1's server (github.com/PeterGriffinJin/Search-R1).

    POST {"queries": ["..."], "topk": 3, "return_scores": true}
    ->   {"result": [[{"document": {"contents": "..."}, "score": 1.5}, ...], ...]}      one list per query

Any other answer, or a late one, is a `RetrieverError`: the caller marks the waiting episodes as failed, and training
continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stabilizer.training.http_json import HttpJson


class RetrieverError(Exception):
    """The retriever could not be reached or gave no usable answer. The message names the address and the reason."""


class HttpRetriever:
    """Sends all queries of a turn to `url` in one request; ignores proxies set in the environment."""

    def __init__(self, url: str, *, timeout_s: float):
        self._server = HttpJson(url, timeout_s=timeout_s, key="search.url", example="http://127.0.0.1:8000/retrieve")
        self.url, self.timeout_s = url, timeout_s

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[str]]:
        """The contents of the best documents for each query."""
        try:
            answer = self._server.ask(body={"queries": list(queries), "topk": topk, "return_scores": True})
            return _contents(answer, len(queries), topk)
        except (OSError, ValueError) as error:
            raise RetrieverError(f"{self.url}: {error or type(error).__name__}") from error


def _contents(values: Any, num_queries: int, topk: int) -> list[list[str]]:
    try:
        found = [[hit["document"]["contents"] for hit in hits][:topk] for hits in values["result"]]
    except (KeyError, TypeError, IndexError):
        raise ValueError('the answer must have the form {"result": [[{"document": {"contents": "..."}}]]}') from None
    if len(found) != num_queries:
        raise ValueError(f"{num_queries} queries were sent, but {len(found)} lists of documents came back")
    return [[_text(contents) for contents in hits] for hits in found]


def _text(contents: object) -> str:
    """The contents of a document, without half characters."""
    if not isinstance(contents, str):
        raise ValueError("the contents of a document are not text")
    return contents.encode(errors="replace").decode()
