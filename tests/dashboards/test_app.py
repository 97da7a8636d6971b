"""The app's contract, callback by callback, and who may talk to it; no browser."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from page_client import CALM, RUN, Client, components, settled
from synthetic_run import values

from dashboards.compression import LAZY, CompressedFiles
from dashboards.data.live_updates import SOON
from dashboards.pages import PAGES
from dashboards.server import bind, prepare
from stabilizer.core.records import Action
from stabilizer.figures import CONFIG
from stabilizer.runs.writer import RunWriter

HOSTILE = '<img src=x onerror="window.pwned=1">'


def test_the_newest_run_opens_by_itself_and_the_address_names_it(client) -> None:
    shown = client.show("")
    assert shown["url"]["search"] == f"?run={RUN}"
    assert shown["tick"]["interval"] < 1000, "the other charts come soon"


def test_the_address_chooses_run_and_axis(client) -> None:
    shown = client.show(f"?run={RUN}&x=tokens")
    assert shown["axis"]["value"] == "tokens"
    graph = next(c for c in components(shown["grid"]) if c["type"] == "Graph")
    assert graph["props"]["figure"]["layout"]["xaxis"]["title"]["text"] == "tokens"


def test_a_page_opens_with_pictures_of_its_first_charts_and_figures_follow(client) -> None:
    tree = client.open("/run", f"?run={RUN}")
    there = [c["type"] for c in components(tree)]
    assert there.count("Img") == 4 and "Graph" not in there
    shown = client.show(f"?run={RUN}")
    graphs = [c["props"]["id"]["chart"] for c in components(shown["grid"]) if c["type"] == "Graph"]
    assert sorted(graphs) == sorted(shown["seen"]["data"]["charts"]) and len(graphs) == SOON


def test_a_finished_run_is_polled_less(client) -> None:
    shown = client.show(f"?run={CALM}")
    seen = shown["seen"]["data"]
    while seen["rest"]:
        answer = client.poll(seen)
        seen = answer["seen"]["data"]
    assert answer["tick"]["interval"] > 1000  # once all charts are there


def test_unknown_runs_and_empty_folders_say_what_to_do(client, tmp_path: Path) -> None:
    assert "no such run" in json.dumps(client.show("?run=../../etc/passwd")["head"])
    from dashboards.app import build

    empty = Client(build([tmp_path / "nothing"])).show("")
    assert "stabilizer demo" in json.dumps(empty["tree"])


def test_a_poll_without_news_answers_nothing(client) -> None:
    seen = settled(client, client.show(f"?run={RUN}"))
    assert client.poll(seen) is None


def test_a_poll_with_a_step_is_small_and_extends_the_lines(client, runs_folder: Path) -> None:
    seen = settled(client, client.show(f"?run={RUN}"))
    RunWriter.reopen(runs_folder / RUN).metrics(401, values(401))
    client.app.runs.get(RUN)._read = 0
    answer = client.poll(seen)
    assert client.size < 50_000
    assert "401" in json.dumps(answer["head"])
    assert '"operation": "Extend"' in json.dumps(answer["growth"]["data"]["reward"])


def test_a_choice_made_while_an_answer_was_on_its_way_wins(client) -> None:
    seen = settled(client, client.show(f"?run={RUN}"))
    answer = client.poll(seen, **{"settings.data": {"x": "tokens"}})
    assert answer["seen"]["data"]["settings"]["x"] == "tokens"
    assert answer["growth"]["data"]["reward"]["layout"]["xaxis"]["title"]["text"] == "tokens"


def test_every_graph_has_our_configuration_and_nothing_dangerous_is_used(client) -> None:
    shown = client.show(f"?run={RUN}")
    layout = client.http.get("/_dash-layout", headers={"Host": "localhost"}).get_json()
    everything = components(shown) + components(layout)
    graphs = [c for c in everything if c["type"] == "Graph"]
    assert graphs and all(graph["props"]["config"] == dict(CONFIG) for graph in graphs)
    assert CONFIG["showSendToCloud"] is False and CONFIG["plotlyServerURL"] == ""
    assert not [c for c in everything if any(name.startswith("dangerously") for name in c["props"])]
    assert not [c for c in everything if {"srcDoc", "action"} & set(c["props"])]
    pictures = [c for c in everything if "src" in c["props"]]
    assert all(c["type"] == "Img" and c["props"]["src"].startswith("data:image/svg+xml,%3Csvg") for c in pictures)
    ways = [c["props"]["href"] for c in everything if "href" in c["props"]]
    assert ways and {way.split("?")[0] for way in ways} <= {"/incident", *(page.PATH for page in PAGES)}


def test_what_waits_for_an_answer_is_answered_at_the_top(client, runs_folder: Path) -> None:
    RunWriter.reopen(runs_folder / RUN).action(Action("trial-2", "proposed", "lower-lr", 400, text="why"))
    shown = client.show(f"?run={RUN}")
    places = {_id(c)["of"] for c in components(shown["now"]["children"]) if _id(c).get("type") == "answers"}
    assert places == {"trial-2"}
    assert "waits for your answer" in json.dumps(shown["now"])
    everywhere = [_id(c)["of"] for c in components(shown["tree"]) if _id(c).get("type") == "answers"]
    assert sorted(everywhere) == ["", "trial-1", "trial-2"], "the run and each trial have one place"


def _id(component: dict[str, Any]) -> Any:
    id = component["props"].get("id")
    return id if isinstance(id, dict) else {}


def test_numbers_behind_a_chart_are_a_file_of_all_points(client) -> None:
    seen = client.show(f"?run={RUN}")["seen"]["data"]
    wanted = {"chart": "accuracy", "name": "run-Accuracy"}
    answer = client.call("file", "wanted.data", {"wanted.data": wanted, "seen.data": seen})
    lines = answer["file"]["data"]["content"].splitlines()
    assert answer["file"]["data"]["filename"] == "run-Accuracy.csv"
    assert lines[0] == "step,seconds_since_epoch,accuracy/train,accuracy/val" and len(lines) == 401


@pytest.mark.parametrize("wanted", [None, 5, {}, {"chart": "../../etc/passwd"}, {"chart": ["x"]}])
def test_a_file_of_no_chart_is_no_file(client, wanted: Any) -> None:
    seen = client.show(f"?run={RUN}")["seen"]["data"]
    assert client.call("file", "wanted.data", {"wanted.data": wanted, "seen.data": seen}) is None


def test_the_address_says_how_a_run_is_looked_at(client) -> None:
    shown = client.show(f"?run={RUN}&smooth=20&y=log&find=kl&pin=entropy&link=1&zoom=10:90")
    assert (shown["smooth"]["value"], shown["scale"]["value"], shown["find"]["value"]) == ("20", "log", "kl")
    graphs = [c for c in components(shown["grid"]) if c["type"] == "Graph"]
    assert sorted(graph["props"]["id"]["chart"] for graph in graphs) == ["entropy", "kl"]
    layout = graphs[0]["props"]["figure"]["layout"]
    assert layout["xaxis"]["range"] == [10.0, 90.0] and layout["yaxis"]["type"] == "log"


def test_scripts_travel_packed_and_are_the_same_unpacked(client) -> None:
    compressed = CompressedFiles()
    compressed.take(client.app.server)
    compressed._begin(client.app.server, {"Host": "localhost"})
    for address in (LAZY[0], "/assets/run.js"):
        plain = client.http.get(address, headers={"Host": "localhost"})
        page = client.http.get("/", headers={"Host": "localhost"}).get_data(as_text=True)
        named = next((word for word in page.split('"') if word.startswith(address)), address)
        got = client.http.get(named, headers={"Host": "localhost", "Accept-Encoding": "gzip"})
        assert got.headers["Content-Encoding"] == "gzip" and "Content-Security-Policy" in got.headers
        assert gzip.decompress(got.data) == plain.data and len(got.data) < 0.5 * len(plain.data)
        assert "Content-Encoding" not in plain.headers
        known = {"Host": "localhost", "Accept-Encoding": "gzip", "If-None-Match": got.headers["ETag"]}
        assert client.http.get(named, headers=known).status_code == 304
        part = {"Host": "localhost", "Range": "bytes=9-", "If-Range": got.headers["ETag"]}
        assert client.http.get(named, headers=part).status_code == 200, "a plain range completes no packed file"


def test_figures_hold_lists_so_that_they_can_be_extended(client) -> None:
    shown = client.show(f"?run={RUN}")
    for graph in (c for c in components(shown["grid"]) if c["type"] == "Graph"):
        for trace in graph["props"]["figure"]["data"]:
            assert isinstance(trace["x"], list) and isinstance(trace["y"], list)


def test_text_of_a_run_reaches_figures_escaped(tmp_path: Path) -> None:
    from dashboards.app import build

    writer = RunWriter.create(tmp_path / HOSTILE, config={}, task=HOSTILE, argv=[])
    writer.metrics(1, {HOSTILE: 1.0})
    writer.event(1, "rollback", HOSTILE)
    shown = Client(build([tmp_path])).show("")
    figure = json.dumps([c["props"]["figure"] for c in components(shown["grid"]) if c["type"] == "Graph"])
    assert "<img" not in figure and "&lt;img" in figure


# --- who may ask ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8050", "localhost:1", "LOCALHOST", "[::1]:8050"])
def test_this_machine_is_answered(client, host: str) -> None:
    assert client.http.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8050",
        "evil@127.0.0.1",
        "0.0.0.0:8050",
        "",
        "127.0.0.1:8050:80",
        "[::1",
        "::1",
        "127.0.0.1 evil",
    ],
)
def test_other_names_are_refused(client, method: str, host: str) -> None:
    assert client.http.open("/", method=method, headers={"Host": host}).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_sites_may_not_post(client, headers: dict[str, str]) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = client.http.open(
            "/_dash-update-component", method=method, json={}, headers={"Host": "127.0.0.1:8050", **headers}
        )
        assert answer.status_code == 403


@pytest.mark.parametrize("path", ["/", "/_dash-layout", "/nothing", "/assets/style.css"])
def test_every_answer_carries_the_headers(client, path: str) -> None:
    headers = client.http.get(path, headers={"Host": "localhost"}).headers
    policy = headers["Content-Security-Policy"]
    assert "unsafe-eval" not in policy and "connect-src 'self'" in policy and "frame-ancestors 'self'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "SAMEORIGIN"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_refusals_carry_the_headers_too(client) -> None:
    assert "Content-Security-Policy" in client.http.get("/", headers={"Host": "evil.example"}).headers


def test_a_large_body_is_refused(client) -> None:
    body = b"x" * (1024 * 1024 + 1)
    answer = client.http.post("/_dash-update-component", data=body, headers={"Host": "localhost"})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "path",
    ["/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/..%2fapp.py", "/assets//etc/passwd", "/_mcp", "/mcp"],
)
def test_files_of_the_machine_are_not_served(client, path: str) -> None:
    answer = client.http.get(path, headers={"Host": "localhost"})
    assert answer.status_code == 404 or b"react-entry-point" in answer.data


def test_binds_loopback_whatever_the_environment_says(monkeypatch) -> None:
    monkeypatch.setenv("HOST", "0.0.0.0")  # noqa: S104
    with bind("localhost", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "", "::", "example.org"])  # noqa: S104
def test_other_addresses_are_refused_with_the_way_to_do_it(host: str) -> None:
    with pytest.raises(ValueError, match="ssh -L"):
        prepare([], host, 0)


def test_a_taken_port_names_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(ValueError, match=r"in use; try --port \d+"):
            bind("127.0.0.1", taken.getsockname()[1])


def test_the_command_says_where_it_listens_and_never_beyond_loopback(runs_folder: Path) -> None:
    environment = {**os.environ, "HOST": "0.0.0.0", "PORT": "1"}  # noqa: S104
    process = subprocess.Popen(
        [sys.executable, "-m", "dashboards", str(runs_folder), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("dashboard: http://127.0.0.1:")
        port = int(line.rstrip("/\n").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
            assert b" 400 " in connection.recv(100)
    finally:
        process.terminate()
        process.wait(timeout=10)


def test_nothing_in_a_run_is_opened_for_writing(client, runs_folder: Path) -> None:
    written: list[str] = []
    watching = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching and event == "open" and str(runs_folder) in str(args[0]):
            flags = args[2] if isinstance(args[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(str(args[1] or "r")) & set("wax+"):
                written.append(str(args[0]))
        elif watching and event in ("os.rename", "os.remove", "os.mkdir") and str(runs_folder) in str(args[0]):
            written.append(str(args[0]))

    sys.addaudithook(hook)
    seen = settled(client, client.show(f"?run={RUN}"))
    client.poll(seen)
    client.app.runs.lines()
    watching.clear()
    assert written == []


def test_a_poll_never_takes_the_place_of_what_a_hand_asked_for(client: Client) -> None:
    """Where two requests of one callback overlap, the browser drops what the first one answers."""
    alike = {"picker.data"}  # whoever asks, the answer is to all that is asked
    polls = 0
    for callback in client.app._callback_list:
        asks = {wanted["property"] for wanted in callback["inputs"]}
        if "n_intervals" in asks and not callback["clientside_function"] and callback["output"] not in alike:
            polls += 1
            assert asks == {"n_intervals"} or callback.get("running"), callback["output"]
    assert polls > 5
