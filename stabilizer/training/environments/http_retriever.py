"""A retriever at an HTTP address with the protocol of Search-R1's server (github.com/PeterGriffinJin/Search-R1).

    POST {"queries": ["..."], "topk": 3, "return_scores": true}
    ->   {"result": [[{"document": {"contents": "..."}, "score": 1.5}, ...], ...]}      one list per query

Any other answer, or a late one, is a `RetrieverError`: the caller marks the waiting episodes as failed, and training
continues.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.client import HTTPException
from time import monotonic
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from stabilizer.core.text import spoken

MAX_BYTES = 16 * 2**20
"""Limit per answer. A larger answer is no list of passages, and would not fit a context window."""


class RetrieverError(Exception):
    """The retriever could not be reached or gave no usable answer. The message names the address and the reason."""


class HttpRetriever:
    """Sends all queries of a turn to `url` in one request; ignores proxies set in the environment."""

    def __init__(self, url: str, *, timeout_s: float):
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError(f"search.url = {url!r}: must look like http://127.0.0.1:8000/retrieve")
        self.url = url
        self.timeout_s = timeout_s
        self._opener = build_opener(ProxyHandler({}))

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[str]]:
        """The contents of the best documents for each query."""
        body = json.dumps({"queries": list(queries), "topk": topk, "return_scores": True}).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            answer = self._read(Request(self.url, body, headers))  # noqa: S310 (the scheme was checked)
            return _contents(answer, len(queries), topk)
        except (OSError, HTTPException, ValueError) as error:
            raise RetrieverError(f"{self.url}: {error or type(error).__name__}") from error

    def _read(self, request: Request) -> bytes:
        """The body of the answer. The time limit covers all of it, so a server that sends a byte now and then also
        times out."""
        deadline = monotonic() + self.timeout_s
        chunks: list[bytes] = []
        size = 0
        with self._opener.open(request, timeout=self.timeout_s) as response:
            while chunk := response.read1(65_536):
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_BYTES:
                    raise ValueError(f"the answer is larger than {MAX_BYTES} bytes")
                if monotonic() > deadline:
                    raise TimeoutError(f"no complete answer within {spoken(self.timeout_s)}")
        return b"".join(chunks)


def _contents(answer: bytes, num_queries: int, topk: int) -> list[list[str]]:
    try:
        values = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the answer is not JSON: {error}") from None
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
