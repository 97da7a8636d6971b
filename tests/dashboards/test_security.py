"""What the dashboard promises of itself, line by line, and the tests that hold it to it (here, if no file is named).

 1  loopback is bound, whatever the environment says: test_app (binds_loopback, the_command_says_where_it_listens)
 2  another address needs a token, printed once, then a cookie that is HttpOnly and SameSite=Strict: another_address,
    the_token, without_the_cookie, a_token; test_app (other_addresses). So does an action: test_answers (the_token)
 3  Host and Origin, for every method: other_sites; test_app (other_names, other_sites)
 4  CSP and headers on every answer: every_kind_of_answer, the_policy; that no page needs more: test_joined_ui
 5  no connection to anywhere: a_whole_session, hostile_addresses; in a browser: test_joined_ui
 6  no debug mode: no_environment
 7  no way out of the runs: hostile_addresses, hostile_values, files_of_the_machine, an_id_is_looked_up
 8  no HTML from data: text_of_a_run; test_page_ui (hostile_text); the report: test_report
 9  completions are text, and what hides is spelt out: test_completions, test_pages_ui; the terminal: test_cli
10  no cell of a table is a formula: a_table
11  caps: a_large_body, what_a_page_shows; lines and texts: runs/test_run_directory
12  hostile folders: a_pipe, loops_and_a_line; test_state, test_logs, readers/test_bad_logs
13  no pickle, eval or shell: ruff's S rules, in `make lint`
14  secrets and webhooks: runs/test_run_directory (secrets), test_webhook
15  a fix turns known knobs within their bounds: remedies/test_catalogue, remedies/test_policy
16  writes nothing but requests, locks nothing, holds up nobody: all_pages_and_callbacks, a_run_goes_on, a_folder_that;
    test_answers (a_press_creates_nothing)
"""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import resource
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from asking_run import ASKING, asking
from page_client import CALM, RUN, Client, addresses, components, questions
from test_completions import log, sample

from dashboards.pages import PAGES
from dashboards.security.access import Access
from dashboards.security.request_guard import HEADERS, MAX_BODY
from dashboards.server import THREADS, bind, prepare
from stabilizer.core.records import Action, Cause, Finding
from stabilizer.live.stacks import OUR_THREADS
from stabilizer.runs.writer import RunWriter

HERE = {"Host": "127.0.0.1:8050", "Origin": "http://127.0.0.1:8050"}
TRAVERSAL = (
    "..",
    "../",
    "../..",
    "../../etc/passwd",
    "../../../../../../etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "./",
    ".",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "%252e%252e%252f",
    "..%2f..%2fetc",
    "..%5c..%5c",
    "..\\..\\windows",
    "\\\\host\\share",
    "C:\\windows\\win.ini",
    "file:///etc/passwd",
    "http://evil.example/",
    "//evil.example",
    "a\0b",
    "\0",
    "%00",
    "..\0",
    "#",
    "?",
    "&",
    ";",
    "~",
    "~root",
    "$HOME",
    "`id`",
    "$(id)",
    "|id",
    "*",
    "....//....//",
    ".%2e/",
    "%c0%ae%c0%ae/",
    "\u2025",
    "\uff0e\uff0e/",
    "a/../b",
    f"{RUN}/..",
    f"../runs/{RUN}",
    f"{RUN}/run.json",
    "outside",
    "a" * 5000,
    " ",
    "\n",
    "\ud800",
    "\U0010ffff",
)
ODD = (
    "-1",
    "0",
    "1e999",
    "nan",
    "99999999999999999999999",
    "(",
    "[",
    "(a+)+$",
    "<b>x</b>",
    "{}",
    '{"id":"x"}',
    "'",
    '"',
    "null",
    "1,2,,3",
    ",",
    "b" * 5000,
)
PAYLOADS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg/onload=window.pwned=1>",
    "<a href=javascript:window.pwned=1>x</a>",
    "javascript:window.pwned=1",
    "</title><script>window.pwned=1</script>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'>",
    "<b>bold</b>",
    "<br>",
    "<sub>1</sub>",
    "&lt;script&gt;",
    '"><script>window.pwned=1</script>',
    "' onmouseover='window.pwned=1",
    "{{7*7}}",
    "${7*7}",
    "%{x}<extra>y</extra>",
    "<math><mtext></math>",
    "<style>*{display:none}</style>",
    "<base href=//evil.example>",
    "<object data=x>",
    "<form action=//evil.example>",
    "<input autofocus onfocus=window.pwned=1>",
    "<details open ontoggle=window.pwned=1>",
    "<video><source onerror=window.pwned=1>",
    "<marquee onstart=window.pwned=1>",
    "data:text/html,<script>1</script>",
    "<!--",
    "]]>",
    "[x](javascript:window.pwned=1)",
    "![x](http://evil.example/x.png)",
    "<meta http-equiv=refresh>",
    "=cmd|'/C calc'!A0",
    "@SUM(1)",
    "+1",
    "-1",
    "\x1b]52;c;AAAA\x07",
    "\u202egnp.exe",
    "$x^2$",
)


@pytest.fixture
def folder(runs_folder: Path) -> Iterator[Path]:
    """The runs, one of which waits for an answer, and one of which wrote texts."""
    log(runs_folder / CALM, 10, [sample(10, g, float(g)) for g in range(3)])
    writer = asking(runs_folder / ASKING)
    yield runs_folder
    writer.close()


@pytest.fixture
def client(folder: Path) -> Client:
    from dashboards.app import build

    return Client(build([folder]))


# --- who is let in ----------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(folder: Path) -> tuple[Any, Access]:
    from dashboards.app import build

    access = Access.of("192.0.2.7", True)
    return build([folder], access).server, access


THERE = {"Host": "192.0.2.7:8050"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "example.org", "fe80::1%eth0"])  # noqa: S104
def test_another_address_must_be_one_even_with_a_token(host: str) -> None:
    with pytest.raises(ValueError, match="--host"):
        prepare([], host, 0, token=True)


def test_another_address_is_listened_on_alone_and_printed_with_its_token(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(
        "dashboards.server.bind", lambda host, port: bind("127.0.0.1", port)
    )  # this machine has no other
    server, address = prepare([folder], "192.0.2.7", 0, token=True)
    server.close()
    token = address.partition("?token=")[2]
    assert address.startswith("http://192.0.2.7:") and len(token) >= 32
    other, again = prepare([folder], "192.0.2.7", 0, token=True)
    other.close()
    assert token not in again


def test_an_address_of_another_machine_is_an_error_in_words() -> None:
    with pytest.raises(ValueError, match="not an address of this machine"):
        bind("192.0.2.7", 0)


def test_the_token_is_exchanged_for_a_strict_cookie_and_leaves_the_address(guarded) -> None:
    server, access = guarded
    client = server.test_client()
    first = client.get(f"/run?run={RUN}&token={access.token}&x=tokens", headers=THERE)
    cookie = first.headers["Set-Cookie"]
    assert first.status_code == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert first.headers["Refresh"] == f"0; url=/run?run={RUN}&x=tokens" and b"react-entry-point" not in first.data
    assert b"react-entry-point" in client.get("/run", headers=THERE).data
    assert client.post("/_dash-update-component", json={}, headers=THERE).status_code not in (401, 403)


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "/%0d%0aSet-Cookie:x", "/%2f%2fevil.example"])
def test_the_token_opens_no_way_to_another_host(guarded, path: str) -> None:
    server, access = guarded
    answer = server.test_client().get(path, query_string={"token": access.token}, headers=THERE)
    to = answer.headers.get("Refresh", "0; url=/").partition("url=")[2]
    assert to.startswith("/") and not to.startswith(("//", "/\\")) and "\n" not in to


def test_without_the_cookie_nothing_is_told(guarded) -> None:
    server, access = guarded
    wrong = {**THERE, "Cookie": f"{access.cookie}=x; stabilizer={access.token}"}
    client = server.test_client(use_cookies=False)
    for path in ("/", "/run", "/_dash-layout", "/_dash-dependencies", "/assets/style.css", "/nothing"):
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
            for query in ("", "?token=", "?token=x", f"?token={access.token[:-1]}", "?token=%ff%fe", "?token=é"):
                answer = client.open(path + query, method=method, headers=THERE)
                assert answer.status_code == 401 and "Set-Cookie" not in answer.headers
                assert answer.headers["Content-Security-Policy"]
            assert client.open(path, method=method, headers=wrong).status_code == 401


def test_a_token_is_no_way_past_the_host_and_the_origin(guarded) -> None:
    server, access = guarded
    client = server.test_client(use_cookies=False)
    key = {"Cookie": f"{access.cookie}={access.token}"}
    for host in ("evil.example", "127.0.0.1", "localhost", "192.0.2.8", "192.0.2.7.evil.example"):
        assert client.get("/", headers={**key, "Host": host}).status_code == 400
    foreign = {**key, **THERE, "Origin": "http://evil.example"}
    assert client.post("/_dash-update-component", json={}, headers=foreign).status_code == 403
    assert client.get("/", headers={**key, **THERE}).status_code == 200


def test_the_token_guards_a_shared_machine_too_and_tokens_are_compared_in_constant_time(monkeypatch) -> None:
    access = Access.of("127.0.0.1", True)
    assert access.token and "127.0.0.1" in access.hosts
    compared: list[Any] = []
    monkeypatch.setattr("dashboards.security.access.hmac.compare_digest", lambda a, b: compared.append((a, b)) or False)
    assert not access._same("x") and compared == [(b"x", access.token.encode())]


def test_other_sites_may_not_use_any_method_that_changes_something(client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "PROPFIND", "TRACE", "CONNECT", "X"):
        for path in ("/", "/run", "/_dash-update-component", "/assets/style.css", "/nothing"):
            for said in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
                headers = {"Host": "127.0.0.1:8050", **said}
                assert client.http.open(path, method=method, headers=headers).status_code == 403, (method, path)


def test_no_environment_turns_debugging_on(folder: Path, monkeypatch) -> None:
    from dashboards.app import build

    for name in (
        "DASH_DEBUG",
        "FLASK_DEBUG",
        "DASH_UI",
        "DASH_HOT_RELOAD",
        "DASH_PROPS_CHECK",
        "DASH_SERVE_DEV_BUNDLES",
    ):
        monkeypatch.setenv(name, "1")
    app = build([folder])
    assert app.server.debug is False and not app._dev_tools.get("ui") and not app._dev_tools.get("hot_reload")
    monkeypatch.setattr(app.runs, "lines", lambda: 1 / 0)
    answer = app.server.test_client().get("/_dash-layout", headers=HERE)
    assert answer.status_code == 500 and b"Traceback" not in answer.data and b"ZeroDivision" not in answer.data


# --- what comes with an answer ----------------------------------------------------------------------------------------


def test_every_kind_of_answer_carries_the_headers(client, monkeypatch) -> None:
    page = client.http.get("/", headers=HERE).get_data(as_text=True)
    files = [word for word in page.split('"') if word.startswith(("/assets/", "/_dash-component-suites/"))]
    plain = [
        "/",
        "/run",
        "/_dash-layout",
        "/_dash-dependencies",
        "/_favicon.ico",
        "/nothing",
        "/assets/nothing.js",
        "/_dash-component-suites/dash/nothing.js",
        "/_mcp",
        "/_reload-hash",
        "/_alive",
    ]
    answers = [client.http.get(path, headers=HERE) for path in (*plain, *files)]
    answers += [
        client.http.open(path, method=method, headers=HERE)
        for path in ("/", "/_dash-update-component", "/assets/style.css")
        for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")
    ]
    answers.append(client.http.get("/", headers={"Host": "evil.example"}))
    answers.append(client.http.post("/", headers={"Host": "localhost", "Origin": "null"}))
    answers.append(client.http.post("/", data=b"x" * (MAX_BODY + 1), headers=HERE))
    monkeypatch.setattr(client.app.runs, "lines", lambda: 1 / 0)
    answers.append(client.http.get("/_dash-layout", headers=HERE))
    assert len(files) > 10 and {200, 400, 403, 405, 413, 500} <= {answer.status_code for answer in answers}
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert "Server" not in answer.headers and answer.headers.get("Access-Control-Allow-Origin") is None
        answer.close()


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["connect-src"] == policy["frame-ancestors"] == "'self'"
    assert policy["object-src"] == "'none'" and "unsafe-eval" not in str(policy)
    for sources in policy.values():
        assert set(sources.split()) <= {"'self'", "'unsafe-inline'", "'none'", "data:", "blob:"}


# --- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [page.PATH for page in PAGES])
def test_hostile_addresses_open_no_file_outside_of_the_runs_and_break_nothing(client, path: str, watching) -> None:
    words = (
        "run n id step runs x y q find pin zoom group by vs page sort state form show open link smooth take low high"
    )
    keys = [*words.split(), "cols"]
    client.open(path, f"?run={RUN}")
    with watching() as seen:
        for hostile in (*TRAVERSAL, *ODD):
            client.open(path, "?" + urlencode({"run": hostile}, errors="replace"))
            for run in (CALM, ASKING):
                everything = {"runs": f"{RUN},{hostile}", **{key: hostile for key in keys}, "run": run}
                client.open(path, "?" + urlencode(everything, errors="replace"))
    assert client.open(path, f"?run={RUN}")
    outside = {
        path for path in seen.opened if "passwd" in path or "etc/" in path or "outside" in path or "win.ini" in path
    }
    written = [path for path in seen.written if "heartbeats" not in path]  # of a run that an earlier test left open
    assert outside == set() and written == [] and seen.connected == []


@pytest.mark.parametrize("folder_of", ["/", "/assets/", "/_dash-component-suites/dash/", "/_dash-component-suites/"])
def test_files_of_the_machine_are_not_served_by_any_name(client, folder_of: str) -> None:
    spelt = {"\0": "%00", "\n": "%0a", "\ud800": "%ed%a0%80", "?": "%3f", "#": "%23"}
    for word in TRAVERSAL:
        answer = client.http.get(folder_of + "".join(spelt.get(letter, letter) for letter in word), headers=HERE)
        assert answer.status_code < 500, word
        assert answer.status_code != 200 or b"react-entry-point" in answer.data, word
        assert b"root:" not in answer.data and b"def build" not in answer.data
        assert "evil" not in answer.headers.get("Location", "").partition("/_dash")[0]
        answer.close()


HOSTILE_VALUES = (
    None,
    0,
    -1,
    1e308,
    True,
    "",
    "../../etc/passwd",
    "a\0b",
    "<b>",
    [],
    {},
    [None],
    [[]],
    {"a": {"b": [1, 2]}},
    {"run": "../..", "theme": [], "settings": 5, "charts": {"x": []}},
    {"run": RUN, "theme": "x", "rev": {}, "n": [], "step": "x"},
    {
        "run": RUN,
        "theme": "dark",
        "settings": {"x": [], "smooth": {}},
        "rev": [],
        "heartbeat": "x",
        "sections": {"a": []},
        "charts": {"reward": ["x", 1, "y"]},
        "rest": ["nothing"],
        "behind": ["nothing"],
        "broken": 7,
    },
    [RUN, "../x", None],
    "x" * 20_000,
)


@pytest.mark.parametrize("value", HOSTILE_VALUES, ids=lambda value: repr(value)[:40])
def test_hostile_values_break_no_callback(client, value: Any, watching) -> None:
    client.open("/run", f"?run={RUN}")
    broken = []
    with watching() as seen:
        for body in questions(client.app, value):
            answer = client.http.post("/_dash-update-component", json=body, headers=HERE)
            if answer.status_code not in (200, 204):
                broken.append((answer.status_code, body["output"][:80], body["changedPropIds"]))
    assert broken == []
    assert seen.written == [] and not [path for path in seen.opened if "passwd" in path]


@pytest.mark.parametrize("there", [None, 0, "x", {}, [None], [[]], [{}], [{"chart": None}], [{"chart": []}]], ids=repr)
def test_a_page_that_says_nonsense_of_its_charts_is_sent_them_all_anew(client, there: Any, monkeypatch) -> None:
    seen = client.show(f"?run={RUN}")["seen"]["data"]

    def state(item: dict[str, Any], values: dict[str, Any], _: Any) -> Any:
        if item["id"].startswith("{"):
            told = there if isinstance(there, list) else [there]
            return [{"id": {"chart": "x"}, "property": item["property"], "value": one} for one in told]
        return {**item, "value": values.get(f"{item['id']}.{item['property']}")}

    monkeypatch.setattr(client, "_state", state)
    answer = client.poll(seen)
    begun = answer["seen"]["data"]
    assert {*begun["charts"], *begun["rest"]} == {*seen["charts"], *seen["rest"]}
    assert any(of.startswith('{"section"') for of in answer)


def test_nested_without_end_breaks_nothing(client) -> None:
    body = b'{"output":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert client.http.post(
        "/_dash-update-component", data=body, headers=HERE, content_type="application/json"
    ).status_code
    assert client.http.get("/", headers=HERE).status_code == 200


def test_a_large_body_is_refused_however_it_comes(folder: Path) -> None:
    server, address = prepare([folder], port=0)
    threading.Thread(target=server.run, daemon=True).start()
    port = int(address.rstrip("/").rpartition(":")[2])
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    head = "POST /_dash-update-component HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    ways = {
        "told": (f"{head}Content-Length: {MAX_BODY + 1}\r\n\r\n".encode(), b"x" * (MAX_BODY + 1)),
        "in pieces": (f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(), chunk * 20 + b"0\r\n\r\n"),
    }
    try:
        for way, (begin, body) in ways.items():
            with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                try:
                    connection.sendall(begin + body)
                except OSError:
                    pass  # it did not care to hear the rest
                assert connection.recv(40).split()[1] == b"413", way
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert connection.recv(40).split()[1] == b"200"
    finally:
        server.close()


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "[1]",
        "3",
        '"x"',
        "null",
        "{}",
        "{",
        '{"output": 3}',
        '{"output": "a.b", "inputs": 3}',
        '{"output": "a.b", "inputs": [1]}',
        '{"output": "a.b", "inputs": [{"id": "url"}]}',
        '{"output": "a.b", "inputs": [[[]]]}',
    ],
)
def test_a_callback_of_another_form_is_refused_with_a_sentence(client, body: str) -> None:
    asked = client.app.server.test_client().post(
        "/_dash-update-component", data=body, headers=HERE, content_type="application/json"
    )
    assert asked.status_code == 400
    assert asked.text.startswith(("a callback is a JSON object", "no page here has such an output"))


def test_an_output_that_no_page_has_is_refused_with_a_sentence(client) -> None:
    asked = client.http.post("/_dash-update-component", json={"output": "nothing.here", "inputs": []}, headers=HERE)
    assert asked.status_code == 400 and "no page here has such an output" in asked.text


# --- what is shown ----------------------------------------------------------------------------------------------------


@pytest.fixture
def hostile(folder: Path) -> str:
    """A run all of whose words are hostile."""
    text = " ".join(PAYLOADS)
    name = "20260109-<img src=x onerror=window.pwned=1>"
    config = {f"{word}": word for word in PAYLOADS} | {"nested": {word: {"a": word} for word in PAYLOADS[:9]}}
    writer = RunWriter.create(folder / name, config=config, task=text, argv=list(PAYLOADS))
    for step in range(1, 40):
        writer.metrics(step, {"reward/mean": step / 40, **{word: float(step) for word in PAYLOADS}})
    for number, word in enumerate(PAYLOADS, 1):
        writer.finding(
            Finding(
                word,
                "warn",
                word,
                9,
                10,
                12,
                evidence={word: word, "metric": word},
                incident=number,
                state="open",
                causes=[Cause(word, 0.5, word)],
            )
        )
        writer.action(Action(f"a{number}", "applied", word, 8, incident=number, text=word, change={word: (0.0, 1.0)}))
        writer.event(9, "intervention", word)
    writer.status("running", 39, force=True)
    writer.close()
    log(folder / name, 10, [sample(10, 0, 1.0, word, prompt=word, rewards={word: 1.0}) for word in PAYLOADS])
    return name


def test_text_of_a_run_is_only_ever_text_on_every_page(client, hostile: str) -> None:
    seen = 0
    for path, query in addresses(hostile, CALM):
        tree = client.open(path, query)
        if path == "/run":
            tree = [tree, client.show(query)]
        for component in components(tree):
            props, kind = component["props"], component["type"]
            seen += any(word in json.dumps(props.get("children", ""), default=str) for word in ("window.pwned",))
            assert kind not in (
                "Markdown",
                "DangerouslySetInnerHTML",
                "Iframe",
                "Script",
                "Object",
                "Embed",
                "ObjectEl",
            )
            assert not any(
                name.startswith(("dangerously", "on")) or name in ("srcDoc", "action", "formAction") for name in props
            )
            if kind in ("A", "Link"):
                assert str(props["href"]).startswith(("/", "#", "https://github.com/")), (path, props["href"])
            if kind == "Img":
                assert props["src"].startswith("data:image/svg+xml"), path
            if kind == "Graph":
                figure = json.dumps(props.get("figure"))
                assert (
                    "<img" not in figure and "<script" not in figure and "<a " not in figure and "<svg" not in figure
                ), path
                assert props["config"]["showSendToCloud"] is False and props["config"]["plotlyServerURL"] == ""
    assert seen > 10


def test_a_table_holds_no_formula(client, hostile: str) -> None:
    from stabilizer.figures.table import table

    with client.app.runs.get(hostile).lock:
        view = client.app.runs.get(hostile).refresh().history.view()
    text, _ = table(view, [word for word in PAYLOADS if word in view])
    heads = next(csv.reader(text.splitlines()))
    assert len(heads) > 10 and not [head for head in heads if head[:1] in "=+-@\t\r"]


def test_what_a_page_shows_is_capped(folder: Path) -> None:
    from dashboards.app import build

    writer = RunWriter.create(folder / "wide", config={f"k{i}": "v" * 200 for i in range(3000)}, task="t", argv=[])
    for step in (1, 2, 3):
        writer.metrics(step, {f"m{i}": 1.0 for i in range(4000)})
    for number in range(1500):
        writer.finding(Finding("optim/grad-spike", "warn", "x" * 2000, 1, 1, 2, incident=number + 1, state="resolved"))
    writer.status("running", 3, force=True)
    writer.close()
    log(folder / "wide", 2, [sample(2, g, 1.0, "y" * 60_000) for g in range(60)])
    client = Client(build([folder]))
    for path, query in addresses("wide", CALM):
        if path == "/incident" and "n=" not in query:
            continue
        client.open(path, query)
        assert client.size < 3_000_000, (path, client.size)


# --- what it leaves alone ---------------------------------------------------------------------------------------------


class Seen:
    """What this process opened, wrote, locked and connected to; threads of trainings in other tests don't count."""

    def __init__(self, folder: Path):
        self.folder = str(folder)
        self.opened: list[str] = []
        self.written: list[str] = []
        self.locked: list[str] = []
        self.connected: list[str] = []

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if threading.current_thread().name in OUR_THREADS:
            return
        if event == "open" and isinstance(args[0], str):
            self.opened.append(args[0])
            flags = args[2] if isinstance(args[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(str(args[1] or "r")) & set("wax+"):
                self.written.append(args[0])
        elif event in (
            "os.rename",
            "os.remove",
            "os.mkdir",
            "os.rmdir",
            "os.link",
            "os.symlink",
            "os.truncate",
            "os.chmod",
            "os.utime",
            "shutil.rmtree",
            "shutil.move",
        ):
            self.written.append(str(args[0]))
        elif event in ("fcntl.flock", "fcntl.lockf"):
            self.locked.append(str(args))
        elif event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
            self.connected.append(str(args))

    def __enter__(self) -> Seen:
        first = not _LOOKING
        _LOOKING[:] = [self]
        if first:
            sys.addaudithook(_seen)  # for good: there is no way to take one away, and each slows all tests to come
        return self

    def __exit__(self, *_: Any) -> None:
        _LOOKING[:] = [None]
        self.written = [path for path in self.written if not path.startswith(("/dev/null", "/proc/self"))]


_LOOKING: list[Seen | None] = []
"""Who is told; empty until the first."""


def _seen(event: str, args: tuple[Any, ...], looking: list[Seen | None] = _LOOKING) -> None:
    if looking[0] is not None:
        looking[0].hook(event, args)


@pytest.fixture
def watching(folder: Path) -> Any:
    return lambda: Seen(folder)


def test_all_pages_and_callbacks_write_nothing_and_lock_nothing(client, folder: Path, watching) -> None:
    client.open("/compare", f"?runs={RUN},{CALM}")  # its worker is a process of its own, started once
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with watching() as seen:
        for run in (RUN, CALM, ASKING):
            for path, query in addresses(run, CALM):
                client.open(path, query)
            client.show(f"?run={run}")
        for body in questions(client.app, None):
            client.http.post("/_dash-update-component", json=body, headers=HERE)
        client.app.runs.lines()
    assert (seen.written, seen.locked) == ([], [])
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_the_audit_would_see_a_write_and_a_lock(watching, tmp_path: Path) -> None:
    with watching() as seen:
        with open(tmp_path / "x", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
        with socket.socket() as there:
            there.connect_ex(("127.0.0.1", 9))
    assert len(seen.written) == len(seen.locked) == len(seen.connected) == 1


def test_a_whole_session_connects_to_nothing(client, watching) -> None:
    with watching() as seen:
        client.http.get("/", headers=HERE)
        for path, query in addresses(RUN, CALM):
            client.open(path, query)
        client.show(f"?run={RUN}")
    assert seen.connected == []


def test_a_folder_that_cannot_be_written_is_shown_all_the_same(client, folder: Path) -> None:
    run = folder / RUN
    for path in (run, *(path for path in run.rglob("*") if path.is_dir())):
        path.chmod(0o555)
    try:
        assert client.show(f"?run={RUN}")["body"]["hidden"] is False
    finally:
        for path in (run, *(path for path in run.rglob("*") if path.is_dir())):
            path.chmod(0o755)


def test_a_run_goes_on_writing_while_its_pages_are_open(client, folder: Path) -> None:
    """A viewer holds no lock a writer could meet: what is written while one reads is there at the next look."""
    writer = RunWriter.reopen(folder / RUN)
    with client.app.runs.get(RUN).lock:  # as if a viewer were in the middle of the heaviest page
        writer.metrics(401, {"reward/mean": 0.5})
        writer.status("running", 401, force=True)
    writer.close()
    client.app.runs.get(RUN)._read = 0
    assert "401" in json.dumps(client.show(f"?run={RUN}")["head"])


PIPES = (
    "metrics/000-r0.jsonl",
    "metrics/pipe.jsonl",
    "findings.jsonl",
    "actions.jsonl",
    "events.jsonl",
    "status.json",
    "summary.json",
    "run.json",
    "samples/000010-r0.jsonl",
    "requests/x.json",
    "checkpoints",
)


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_in_a_run_blocks_no_viewer(client, folder: Path, name: str) -> None:
    place = folder / CALM / name
    place.parent.mkdir(exist_ok=True)
    if place.is_dir():
        place.rename(place.with_name("other"))
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    pages = addresses(CALM, RUN)
    done: list[str] = []

    def look() -> None:
        for path, query in pages:
            client.open(path, query)
            done.append(path)
        client.show(f"?run={CALM}")
        done.append("shown")

    viewer = threading.Thread(target=look, daemon=True)
    viewer.start()
    viewer.join(60)
    assert not viewer.is_alive(), f"{name} blocks after {done}"
    assert done[-1:] == ["shown"]


def test_loops_and_a_line_without_end_block_no_viewer(client, folder: Path) -> None:
    (folder / CALM / "loop").symlink_to(folder)
    (folder / "loop").symlink_to(folder)
    (folder / CALM / "metrics" / "self").symlink_to("self")
    with open(folder / CALM / "findings.jsonl", "ab") as file:
        file.write(b'{"x": "')
        file.truncate(3 << 30)  # a hole: three gigabytes of NUL without an end of line
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # the peak of this process, earlier tests included
    for path, query in addresses(CALM, RUN):
        client.open(path, query)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak - before < 1 << 19, "half a gigabyte at most, of a file of three"


def test_an_id_is_looked_up_and_never_joined_to_a_path(client, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    RunWriter.create(outside, config={"secret-word": 1}, task="outside", argv=[]).close()
    for id in ("../outside", str(outside), f"{RUN}/../../outside", "outside"):
        for path, _ in addresses(id, CALM):
            told = json.dumps(client.open(path, "?" + urlencode({"run": id, "runs": f"{id},{CALM}"})))
            assert "secret-word" not in told


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    """The port of a dashboard that answers over real sockets."""
    server, address = prepare([folder], port=0)
    threading.Thread(target=server.run, daemon=True).start()
    yield int(address.rstrip("/").rpartition(":")[2])
    server.close()


def first_line(port: int) -> bytes:
    """What a viewer gets who comes now."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as viewer:
        viewer.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        return viewer.recv(12)


def test_hundreds_of_open_connections_keep_no_viewer_out(port: int) -> None:
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    try:
        for half in idle[::2]:
            half.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        assert first_line(port) == b"HTTP/1.1 200"
    finally:
        for connection in idle:
            connection.close()


def test_clients_that_ask_for_much_and_read_nothing_keep_no_viewer_out(port: int, client) -> None:
    pages = client.http.get("/", headers=HERE).text
    files = re.findall(r'src="(/_dash-component-suites[^"]+)"', pages)
    largest = max(files, key=lambda file: len(client.http.get(file, headers=HERE).data))
    asking = f"GET {largest} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() * 30
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(2 * THREADS)]
    try:
        for connection in silent:
            connection.sendall(asking)
        assert [first_line(port) for _ in range(3)] == [b"HTTP/1.1 200"] * 3
    finally:
        for connection in silent:
            connection.close()


def test_requests_behind_one_that_is_not_answered_yet_are_left_and_the_connection_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 3)
        answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    assert answer.count(b"HTTP/1.1 200") == 1 and b"Connection: close" in answer
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for _ in range(2):  # one after another over one connection, as a browser does
            connection.sendall(b"HEAD /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
