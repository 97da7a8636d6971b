"""The HTTP retriever against a real server in a thread, well-behaved and otherwise."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stabilizer.training import http_json
from stabilizer.training.environments.http_retriever import HttpRetriever, RetrieverError


def documents(*contents):
    return [{"document": {"id": str(i), "contents": text}, "score": 1.0} for i, text in enumerate(contents)]


class Server(ThreadingHTTPServer):
    """Answers every request with `status` and `body`; with `stall` it sends half of the body and waits to be closed."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.body, self.stall = 200, b"", False
        self.requests: list[tuple[str, str, dict]] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/retrieve"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, self.headers["Content-Type"], body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        if self.server.stall:
            self.wfile.write(self.server.body[: len(self.server.body) // 2])
            self.server.closing.wait()
            return
        self.wfile.write(self.server.body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


def test_asks_for_all_queries_at_once_and_returns_the_contents(server):
    server.body = json.dumps({"result": [documents("bak room 47", "bak desk 12"), []]}).encode()
    found = HttpRetriever(server.url, timeout_s=5).retrieve(["bak", "zzz"], 2)
    assert found == [["bak room 47", "bak desk 12"], []]
    asked = {"queries": ["bak", "zzz"], "topk": 2, "return_scores": True}
    assert server.requests == [("/retrieve", "application/json", asked)]


def test_more_documents_than_asked_for_are_left_out(server):
    server.body = json.dumps({"result": [documents("a", "b", "c")]}).encode()
    assert HttpRetriever(server.url, timeout_s=5).retrieve(["q"], 1) == [["a"]]


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (500, b"{}", "500"),
        (404, b"", "404"),
        (200, b"<html>", "not JSON"),
        (200, b"\xff", "not JSON"),
        (200, b"[]", "must have the form"),
        (200, b'{"result": null}', "must have the form"),
        (200, b'{"result": [[{"contents": "no scores"}]]}', "must have the form"),
        (200, b'{"result": []}', "1 queries were sent, but 0 lists"),
        (200, b'{"result": [[{"document": {"contents": 47}}]]}', "not text"),
        (200, b"[" * 100_000, "not JSON"),
    ],
)
def test_any_other_answer_is_an_error_that_names_address_and_reason(server, status, body, words):
    server.status, server.body = status, body
    with pytest.raises(RetrieverError) as error:
        HttpRetriever(server.url, timeout_s=5).retrieve(["q"], 1)
    assert server.url in str(error.value) and words in str(error.value)


def test_half_a_character_in_a_document_is_replaced(server):
    server.body = b'{"result": [[{"document": {"contents": "47 \\ud800!"}}]]}'  # no tokenizer would take it
    assert HttpRetriever(server.url, timeout_s=5).retrieve(["q"], 1) == [["47 ?!"]]


def test_an_answer_that_stops_half_way_is_given_up(server):
    server.body, server.stall = json.dumps({"result": [documents("a")]}).encode(), True
    with pytest.raises(RetrieverError, match="timed out"):
        HttpRetriever(server.url, timeout_s=0.1).retrieve(["q"], 1)


def test_an_answer_without_end_is_not_read_to_the_end(server, monkeypatch):
    monkeypatch.setattr(http_json, "MAX_BYTES", 100)
    server.body = json.dumps({"result": [documents("a" * 200)]}).encode()
    with pytest.raises(RetrieverError, match="larger than 100 bytes"):
        HttpRetriever(server.url, timeout_s=5).retrieve(["q"], 1)


def test_nobody_at_the_address():
    with Server() as server:
        url = server.url
    with pytest.raises(RetrieverError, match="refused"):
        HttpRetriever(url, timeout_s=5).retrieve(["q"], 1)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "file:///etc/passwd", "http://"])
def test_an_address_that_is_none_is_refused_at_once(url):
    with pytest.raises(ValueError, match="search.url"):
        HttpRetriever(url, timeout_s=5)
