"""Compress large text responses: a page's scripts are 7 MB plain, which is slow over an ssh tunnel.

Scripts and styles never change while the server runs, so they are compressed once, in the background, as soon as the
server is up; until then they are sent plain. Other answers are compressed lightly when that pays.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Iterable, Mapping

from flask import Flask, Response, request

FILES = ("/_dash-component-suites/", "/assets/")
LAZY = ("/_dash-component-suites/plotly/package_data/plotly.min.js", "/_dash-component-suites/dash/dcc/async-graph.js")
"""Scripts the first page does not name but every page with a chart loads."""
LEAST = 20_000
"""Bytes from which compressing another answer pays."""
TEXT = frozenset({"application/javascript", "text/javascript", "text/css", "application/json", "text/html"})
MAX_FILES = 200


class CompressedFiles:
    """The files compressed so far, by address."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def take(self, server: Flask) -> None:
        """Compress the answers of `server` from now on."""

        @server.before_request
        def whole() -> None:  # a range of the plain file would complete a broken download of the compressed one
            request.environ.pop("HTTP_RANGE", None)

        @server.after_request
        def pack(response: Response) -> Response:
            if response.status_code != 200 or response.mimetype not in TEXT or response.content_encoding:
                return response
            response.vary.add("Accept-Encoding")
            if request.path.startswith("/assets/") and "m" in request.args:  # the address changes when the file does
                response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
            if not request.accept_encodings["gzip"]:
                return response
            if request.path.startswith(FILES):
                return self._file(response)
            body = response.get_data()
            return _with(response, _gzip(body, 1)) if len(body) >= LEAST else response

    def begin(self, server: Flask, headers: Mapping[str, str]) -> None:
        """Compress the scripts of the first page in the background; `headers` are those of an allowed request."""
        threading.Thread(target=self._begin, args=(server, headers), daemon=True).start()

    def _begin(self, server: Flask, headers: Mapping[str, str]) -> None:
        client = server.test_client(use_cookies=False)
        page = client.get("/", headers=headers).get_data(as_text=True)
        for address in self._wanted(re.findall(r'(?:src|href)="(/[^"]+)"', page)):
            answer = client.get(address, headers=headers)
            if answer.status_code == 200 and answer.mimetype in TEXT:
                self.keep(address, answer.get_data())

    def _wanted(self, named: Iterable[str]) -> list[str]:
        return [*LAZY, *(address for address in named if address.startswith(FILES))]

    def keep(self, address: str, body: bytes) -> None:
        """Compress a file and keep it; its address contains its version."""
        if len(self._known) < MAX_FILES:
            self._known[address] = _gzip(body, 6)

    def _file(self, response: Response) -> Response:
        compressed = self._known.get(request.full_path.rstrip("?"))
        return response if compressed is None else _with(response, compressed)


def _with(response: Response, compressed: bytes) -> Response:
    response.direct_passthrough = False
    response.set_data(compressed)
    response.content_encoding = "gzip"
    return response


def _gzip(body: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()
