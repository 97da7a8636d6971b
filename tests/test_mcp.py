"""`stabilizer mcp` through the real client of the SDK, over standard input and output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import stabilizer
from stabilizer.cli import main
from stabilizer.commands.mcp import Runs

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_runs"
MCP = find_spec("mcp") is not None
needs_mcp = pytest.mark.skipif(not MCP, reason="needs the SDK: make test-mcp runs these in an environment of their own")
READING = {"list_runs", "diagnose", "incidents", "what_changed", "fixes", "compare"}


def session(folder, *calls, flags=()):
    """The tools that the server offers, and the answers to some calls."""
    import anyio
    from mcp import Client, StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "stabilizer", "mcp", str(folder), *flags],
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
    )  # fmt: skip

    async def talk():
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(talk)


def printed(*words):
    command = [sys.executable, "-m", "stabilizer", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return json.loads(done.stdout)


@needs_mcp
def test_every_tool_returns_what_the_command_line_prints():
    run, other = "addition-unstable", "addition-healthy"
    tools, answers = session(
        SAMPLES, ("list_runs", {}), ("diagnose", {"run": run}), ("incidents", {"run": run}),
        ("what_changed", {"run": run}), ("fixes", {"run": run}), ("compare", {"run": run, "reference": other}),
    )  # fmt: skip
    assert {tool.name for tool in tools} == READING
    assert all(tool.annotations.read_only_hint for tool in tools)
    listed, whole, incidents, moved, fixes, compared = (answer.structured_content for answer in answers)
    assert {line["id"] for line in listed["runs"]} >= {run, other}
    diagnosis = printed("diagnose", str(SAMPLES / run))
    assert whole == diagnosis and diagnosis["findings"]
    assert incidents["findings"] == diagnosis["findings"] and "not_checked" not in incidents
    assert moved["what_changed"] == diagnosis["what_changed"]
    assert fixes["actions"] == printed("fix", str(SAMPLES / run), "list")
    assert compared == printed("compare", str(SAMPLES / run), str(SAMPLES / other))


@needs_mcp
def test_nothing_outside_the_folder_is_read(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "secret.csv").write_text("step,reward\n1,0.5\n2,0.6\n")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "secret.csv")
    names = ["../secret.csv", str(tmp_path / "secret.csv"), "link", ".", "", "no-such-run"]
    _, answers = session(tmp_path / "runs", *[("diagnose", {"run": name}) for name in names])
    for answer in answers:
        assert answer.is_error and "list_runs names them" in answer.content[0].text


@pytest.mark.parametrize("name", ["..", "x" * 5000, "a/" * 5000, "\0", "\ud800", "loop/x", "~", "a\nb"])
def test_a_name_that_is_no_run_of_the_folder_is_refused_in_words(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ValueError, match="list_runs names them"):
        Runs(tmp_path).path(name)


@needs_mcp
def test_what_cannot_be_read_is_an_error_with_its_reason(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    _, (answer,) = session(tmp_path, ("fixes", {"run": "broken"}))
    assert answer.is_error and "run.json" in answer.content[0].text


@needs_mcp
def test_approving_is_offered_only_when_allowed_and_leaves_a_request(tmp_path):
    run = stabilizer.init("mine", runs=tmp_path)
    stop = threading.Event()
    feeding = threading.Thread(
        target=lambda: [run.log({"reward": 0.5}) or time.sleep(0.1) for _ in iter(stop.is_set, True)]
    )
    feeding.start()
    try:
        name = run.path.name
        calls = [("approve", {"run": name, "action": "a1"}), ("reject", {"run": name, "action": "--help"})]
        _, refused = session(tmp_path, *calls)
        tools, answers = session(tmp_path, *calls, flags=["--allow-approve"])
    finally:
        stop.set()
        feeding.join()
        run.finish()
    assert all(answer.is_error for answer in refused)
    changing = {tool.name for tool in tools if not tool.annotations.read_only_hint}
    assert changing == {"approve", "reject"}
    texts = [answer.content[0].text for answer in answers]
    assert "applies no remedies" in texts[0] and "is no action" in texts[1]


def test_without_the_sdk_the_error_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["mcp", str(tmp_path)]) == 2
    assert "pip install 'mcp>=2'" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["mcp", str(tmp_path / "nothing")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_the_skill_names_the_tools_and_only_real_commands(capsys):
    assert main(["mcp", "--skill"]) == 0
    skill = capsys.readouterr().out
    assert skill.startswith("---\nname: monitor-rl-run\ndescription: ")
    assert all(f"`{name}`" in skill for name in READING)
