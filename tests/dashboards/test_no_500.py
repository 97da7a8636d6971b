"""Whatever lies in the folder of runs and whatever a browser sends: every page answers, and no traceback is logged."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_client import RUN, Client, addresses, components
from synthetic_run import EXPLOSION, eventful, healthy, logs, record
from test_completions import log, sample

from dashboards.app import build
from dashboards.data.detector_info import detector_rows as detectors
from stabilizer.cli import main
from stabilizer.runs.writer import RunWriter

HERE = {"Host": "127.0.0.1:8050", "Origin": "http://127.0.0.1:8050"}
SAMPLES = Path(__file__).parent.parent / "trainers" / "samples"
CONSOLE = (
    "step:{step} - critic/score/mean:0.{step:02d} - actor/entropy_loss:1.5 - actor/grad_norm:0.3"
    " - actor/kl_loss:0.01 - response_length/mean:40.0 - response_length/max:64.0 - response_length/min:2.0\n"
)


def console(steps: int) -> str:
    """A console of veRL whose training ends out of memory."""
    failed = (
        'Traceback (most recent call last):\n  File "x.py", line 3, in f\ntorch.OutOfMemoryError: CUDA out of memory\n'
    )
    return "".join(CONSOLE.format(step=step) for step in range(1, steps)) + failed


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails the test when anything was logged with a traceback."""
    yield
    told = [told.getMessage() for told in caplog.get_records("call") if told.exc_info or told.levelno >= logging.ERROR]
    assert told == []


# --- a browser that asks everything it can ----------------------------------------------------------------------------


def _spelled(id: Any) -> str:
    return json.dumps(id, sort_keys=True, separators=(",", ":")) if isinstance(id, dict) else str(id)


def _matching(pattern: dict[str, Any], there: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The components whose id a pattern of ids means."""
    found = [one for one in there if isinstance(one["id"], dict) and one["id"].keys() == pattern.keys()]
    return [
        one for one in found if all(isinstance(part, list) or one["id"][key] == part for key, part in pattern.items())
    ]


def _item(declared: dict[str, Any], there: list[dict[str, Any]], match: dict[str, Any]) -> Any:
    """What the browser sends of a declared property; None when the page has no such component."""
    id, property = declared["id"], declared["property"].partition("@")[0]
    pattern = json.loads(id) if isinstance(id, str) and id.startswith("{") else id
    if not isinstance(pattern, dict):
        one = next((one for one in there if one["id"] == id), None)
        return one and {"id": id, "property": property, "value": one.get(property)}
    fixed = {key: match[key] if part == ["MATCH"] else part for key, part in pattern.items()}
    found = [{"id": one["id"], "property": property, "value": one.get(property)} for one in _matching(fixed, there)]
    return found if ["ALL"] in pattern.values() else next(iter(found), None)


def everything(app: Any, tree: Any) -> Iterator[dict[str, Any]]:
    """Each callback that the parts of a page can ask for, with what they hold, as a press of its first input."""
    frame = [
        {"id": "action-token", "data": app.runs.token},
        {"id": "url", "pathname": "/", "search": ""},
        {"id": "scheme", "data": "light"},
        {"id": "picker", "data": [], "value": None},
    ]
    there = [*frame, *(one["props"] for one in components(tree) if one["props"].get("id"))]
    for key, entry in app.callback_map.items():
        if "callback" not in entry:
            continue
        outputs = [part.rsplit(".", 1) for part in key.strip(".").split("...")]
        patterns = [json.loads(id) for id, _ in outputs if id.startswith("{")]
        patterns += [json.loads(one["id"]) for one in entry["inputs"] if str(one["id"]).startswith("{")]
        asking = next((pattern for pattern in patterns if ["MATCH"] in pattern.values()), None)
        matches = [one["id"] for one in _matching(asking, there)] if asking else [{}]
        for match in matches[:3]:
            inputs = [_item(one, there, match) for one in entry["inputs"]]
            state = [_item(one, there, match) for one in entry["state"]]
            named = [_item({"id": id, "property": property}, there, match) for id, property in outputs]
            if None in inputs or None in state:
                continue
            first = next(iter(inputs[0]), None) if isinstance(inputs[0], list) else inputs[0]
            if first is None:
                continue
            first["value"] = 1 if first["property"] in ("n_clicks", "n_intervals") else first["value"]
            named = [
                {"id": id, "property": property} if one is None else one
                for one, (id, property) in zip(named, outputs, strict=True)
            ]
            yield {
                "output": key,
                "outputs": named if key.startswith("..") else named[0],
                "inputs": inputs,
                "state": state,
                "changedPropIds": [f"{_spelled(first['id'])}.{first['property']}"],
            }


def opened(client: Client, path: str, query: str) -> list[dict[str, Any]]:
    """Open an address as a browser does, ask for all its parts can ask, and return what was asked."""
    assert client.http.get(path + query, headers=HERE).status_code == 200
    return asked(client, list(everything(client.app, client.open(path, query))))


def asked(client: Client, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for body in bodies:
        answer = client.http.post("/_dash-update-component", json=body, headers=HERE)
        assert answer.status_code in (200, 204), (body["output"][:90], answer.status_code, answer.text[:300])
    return bodies


def pages(run: str) -> list[tuple[str, str]]:
    """The addresses of every page for a run, those of its incidents by name among them."""
    named = [("/incident", f"?run={run}&n={line.id}") for line in detectors()[:2]]
    return [*addresses(run, RUN), *named, ("/incident", f"?run={run}&n=system/crashed"), ("/nowhere", f"?run={run}")]


LOOK_AROUND = ("/", "/workspace", "/incident", "/compare", "/setup")
"""Pages that show other runs than the one they are about."""


# --- what may lie in a folder of runs ---------------------------------------------------------------------------------


def own(folder: Path) -> None:
    eventful(folder / "odd").close()
    log(folder / "odd", 10, [sample(10, group, float(group)) for group in range(3)])


def single_log(folder: Path) -> None:
    (folder / "odd").write_text(console(40))


def imported(folder: Path) -> None:
    source = folder.parent / "source.log"
    source.write_text(console(40))
    assert main(["import", str(source), "--runs", str(folder), "--name", "odd"]) == 0


def foreign_folder(folder: Path) -> None:
    logs(folder.parent / "theirs")
    shutil.move(folder.parent / "theirs" / "their-run", folder / "odd")


def empty_run(folder: Path) -> None:
    RunWriter.create(folder / "odd", config={}, task="", argv=[]).close()


def empty_log(folder: Path) -> None:
    (folder / "odd").touch()


def no_json(folder: Path) -> None:
    own(folder)
    (folder / "odd" / "run.json").write_text("{")


def folder_in_place_of_files(folder: Path) -> None:
    own(folder)
    for name in ("findings.jsonl", "actions.jsonl", "events.jsonl", "status.json", "summary.json"):
        (folder / "odd" / name).unlink(missing_ok=True)
        (folder / "odd" / name).mkdir()


def file_in_place_of_folders(folder: Path) -> None:
    own(folder)
    for name in ("samples", "metrics", "checkpoints", "requests"):
        shutil.rmtree(folder / "odd" / name, ignore_errors=True)
        (folder / "odd" / name).write_text("{}")


def link_to_itself(folder: Path) -> None:
    own(folder)
    for name in ("findings.jsonl", "actions.jsonl", "status.json"):
        (folder / "odd" / name).unlink(missing_ok=True)
        (folder / "odd" / name).symlink_to(name)


KINDS: dict[str, Callable[[Path], None]] = {
    kind.__name__: kind
    for kind in (
        own,
        single_log,
        imported,
        foreign_folder,
        empty_run,
        empty_log,
        no_json,
        folder_in_place_of_files,
        file_in_place_of_folders,
        link_to_itself,
    )
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one good run, which shares its incident with nobody."""
    eventful(tmp_path / "runs" / RUN).close()
    return tmp_path / "runs"


@pytest.fixture
def client(folder: Path) -> Client:
    return Client(build([folder]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_page_answers_whatever_lies_in_the_folder(client: Client, folder: Path, kind: str) -> None:
    KINDS[kind](folder)
    client.app.runs.logs.settle()
    beside = [(path, query) for path, query in pages(RUN) if path in LOOK_AROUND]
    for path, query in [*pages("odd"), *beside]:
        opened(client, path, query)


@pytest.mark.parametrize("kind", ["own", "single_log", "foreign_folder", "imported"])
def test_every_page_answers_for_a_run_that_vanishes_while_it_is_looked_at(
    client: Client, folder: Path, kind: str
) -> None:
    KINDS[kind](folder)
    client.app.runs.logs.settle()
    bodies = [body for path, query in pages("odd") for body in opened(client, path, query)]
    odd = folder / "odd"
    shutil.rmtree(odd) if odd.is_dir() else odd.unlink()
    asked(client, bodies)
    for path, query in pages("odd"):
        opened(client, path, query)
    client.app.runs.logs.settle()
    asked(client, bodies)


def test_every_page_answers_while_a_log_grows(client: Client, folder: Path) -> None:
    text = console(80)
    for end in (len(text) // 3, len(text) // 2 + 7, len(text)):
        (folder / "odd").write_text(text[:end])
        followed = client.app.runs.get("odd")
        if followed:
            followed.log._read_after = 0.0
        client.app.runs.logs.settle()
        for path, query in pages("odd"):
            opened(client, path, query)


ODD = ("null", "[]", "{}", "7", '"x"', "-1", "1e400", '"\\ud800"')
FILES = {
    "run.json": ("config", "task", "trainer", "steps", "attempts", "created", "metrics"),
    "status.json": ("state", "step", "t", "pid", "host", "attempt", "remedy", "interventions"),
    "summary.json": ("metrics", "trends", "verdict", "worst"),
}


@pytest.mark.parametrize("odd", [odd if odd in ODD[::2] else pytest.param(odd, marks=pytest.mark.slow) for odd in ODD])
def test_every_page_answers_whatever_the_small_files_hold(client: Client, folder: Path, odd: str) -> None:
    """Every page with every odd value, and every page with every file: each pair, not each triple."""
    own(folder)
    for turn, (name, keys) in enumerate(FILES.items(), ODD.index(odd)):
        file = folder / "odd" / name
        known = file.read_text() if file.exists() else "{}"
        rest = [f"{json.dumps(key)}:{odd}" for key in keys]
        rest += [
            f"{json.dumps(key)}:{json.dumps(value)}" for key, value in json.loads(known).items() if key not in keys
        ]
        file.write_text("{" + ",".join(rest) + "}")
        for path, query in pages("odd")[turn % len(FILES) :: len(FILES)]:
            opened(client, path, query)
        file.write_text(known)


@pytest.mark.parametrize("name", ["findings.jsonl", "actions.jsonl", "events.jsonl", "metrics/r0-a0.jsonl"])
def test_every_page_answers_whatever_a_record_holds(client: Client, folder: Path, name: str) -> None:
    own(folder)
    file = folder / "odd" / name
    rows = [json.loads(line) for line in file.read_text().splitlines()[:40]]
    odd = [json.loads(word) for word in ODD if word != "1e400"] + [[[]], {"a": {"b": []}}, 10**30, 1e308]
    with file.open("a") as out:
        for row in rows[:6]:
            for key in row:
                for value in odd:
                    out.write(json.dumps({**row, key: value}) + "\n")
        out.writelines(f"{word}\n" for word in ODD)
    for path, query in pages("odd"):
        opened(client, path, query)


BODIES = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"3",
    b'{"output": null}',
    b'{"output": "x"}',
    b"\xff\xfe",
    b"[" * 100_000,
)
PLACES = ("output", "outputs", "inputs", "state", "changedPropIds")
VALUES = (None, 7, "x", "..", ".", {}, [], [[]], [None], [{}], [[{}]], [{"id": {}}], {"id": []}, [7, "x"] * 9)


def test_no_body_of_a_request_fails_in_the_framework(client: Client) -> None:
    sound = [
        *everything(client.app, client.open("/run", f"?run={RUN}")),
        *everything(client.app, client.open("/incident", f"?run={RUN}&n=2")),
    ]
    odd = [{**body, place: value} for body in sound for place in PLACES for value in VALUES]
    odd += [{key: value for key, value in body.items() if key != place} for body in sound for place in PLACES]
    odd += [{**body, place: body[place] * 2} for body in sound for place in ("inputs", "state")]
    odd += [{**sound[0], "output": key} for key in client.app.callback_map]
    spelled = [*map(json.dumps, odd), *BODIES]
    asks = [(body, "application/json") for body in spelled]
    asks += [(body, "text/plain") for body in spelled[:: len(VALUES) - 1]]  # each value at some place
    for body, kind in asks:
        answer = client.http.post("/_dash-update-component", data=body, headers=HERE, content_type=kind)
        assert answer.status_code < 500, (body[:200], answer.status_code)
    asked(client, sound)


@pytest.mark.parametrize("origin", ["http://[::1", "http://]", "//", "http://127.0.0.1:x", "[", "\xe9"])
def test_an_origin_that_is_no_address_is_another_site(client: Client, origin: str) -> None:
    said = {"Host": "127.0.0.1:8050", "Origin": origin}
    assert client.http.post("/_dash-update-component", json={}, headers=said).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:99999", "127.0.0.1:65536", "[::1]:99999", "127.0.0.1:\u0661"])
def test_a_port_that_cannot_be_is_refused(client: Client, host: str) -> None:
    assert client.http.get("/", headers={"Host": host}).status_code == 400


def test_a_log_beside_the_runs_takes_part_in_similar_incidents(client: Client, folder: Path) -> None:
    for name in ("train.log", "again.log"):
        (folder / name).write_text(console(40))
    client.app.runs.logs.settle()
    assert any(finding.id == "system/crashed" for finding in client.app.runs.logs.findings(folder / "train.log"))
    seen = {"run": "train.log", "n": "system/crashed"}
    numbered = [seen, {**seen, "n": "1"}, {"run": RUN, "n": "2"}]
    told = [client.call("incident-similar", "incident-seen.data", {"incident-seen.data": one}) for one in numbered]
    assert "again.log" in json.dumps(told[:2]) and told[2] is not None


def test_a_run_that_cannot_be_read_costs_similar_incidents_only_itself(client: Client, folder: Path) -> None:
    other = healthy(folder / "20250101-000000-older-0001")
    other.finding(record(EXPLOSION, "resolved", 300))
    other.close()
    link_to_itself(folder)
    told = client.call("incident-similar", "incident-seen.data", {"incident-seen.data": {"run": RUN, "n": "2"}})
    assert "20250101-000000-older-0001" in json.dumps(told)


@pytest.mark.parametrize("name", ["", "run.json", "findings.jsonl", "metrics/r0-a0.jsonl", "samples/000010-r0.jsonl"])
def test_a_link_out_of_the_folder_is_not_followed(client: Client, folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    eventful(outside).close()
    log(outside, 10, [sample(10, 0, 1.0, "secret-word")])
    own(folder)
    place = folder / "odd" / name
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    place.symlink_to(outside / name)
    assert "odd" not in {line.id for line in client.app.runs.lines()}
    assert "secret-word" not in json.dumps([opened(client, path, query) for path, query in pages("odd")])
    assert client.app.runs.get("odd") is None and client.app.runs.get(RUN) is not None


def test_a_log_that_is_a_link_out_of_the_folder_is_not_read(client: Client, folder: Path) -> None:
    outside = folder.parent / "secret.log"
    outside.write_text(console(40))
    (folder / "linked.log").symlink_to(outside)
    logs(folder.parent / "theirs")
    (folder / "theirs").symlink_to(folder.parent / "theirs" / "their-run")
    (folder / "inside.log").write_text(console(40))
    (folder / "again.log").symlink_to("inside.log")
    client.app.runs.logs.settle()
    assert {line.id for line in client.app.runs.lines() if line.source} == {"inside.log", "again.log"}
