"""Questions and answers in JSON over HTTP, with a limit of time and size."""

from __future__ import annotations

import json
from http.client import HTTPException
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from stabilizer.core.text import spoken

MAX_BYTES = 16 * 2**20
"""Limit per answer: passages that fit a context window, or 100,000 tokens with their log-probabilities, are smaller."""
SHOWN = 300
"""Characters of a refusal that an error repeats."""


class HttpJson:
    """A server at an address; ignores proxies set in the environment."""

    def __init__(self, url: str, *, timeout_s: float, key: str, example: str):
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError(f"{key} = {url!r}: must look like {example}")
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._opener = build_opener(ProxyHandler({}))

    def ask(self, route: str = "", body: object = None) -> Any:
        """The answer to a POST of `body`, or to a GET without one; '' for an empty answer. OSError for a server that
        fails, TimeoutError for one that is late, and ValueError for an answer that is not JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            answer = self._read(Request(f"{self.url}{route}", data, headers))  # noqa: S310 (the scheme was checked)
        except HTTPException as error:
            raise OSError(f"{error or type(error).__name__}") from error
        try:
            return json.loads(answer) if answer else ""
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the answer is not JSON: {error}") from None

    def _read(self, request: Request) -> bytes:
        """The body of the answer. The time limit covers all of it, so a server that sends a byte now and then also
        times out."""
        deadline = monotonic() + self.timeout_s
        chunks: list[bytes] = []
        size = 0
        try:
            with self._opener.open(request, timeout=self.timeout_s) as response:
                while chunk := response.read1(65_536):
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > MAX_BYTES:
                        raise ValueError(f"the answer is larger than {MAX_BYTES} bytes")
                    if monotonic() > deadline:
                        raise TimeoutError(f"no complete answer within {spoken(self.timeout_s)}")
        except HTTPError as error:
            error.msg = " ".join([str(error.msg), *error.read(SHOWN).decode(errors="replace").split()])
            raise
        return b"".join(chunks)
