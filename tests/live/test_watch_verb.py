"""Following a log that grows: the same incidents as afterwards, through rotation, cuts and half-written rows."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from stabilizer.analysis.analyse import analyse
from stabilizer.analysis.watching import new_watch
from stabilizer.cli import main
from stabilizer.incidents.watch import Watch
from stabilizer.live.follow import SETTLED, FollowedLog, follow
from stabilizer.runs.reader import RunError, RunReader
from stabilizer.trainers.reading import load

SAMPLES = Path(__file__).parents[1] / "trainers" / "samples"


def collapsing(rows: int = 120, seed: int = 0) -> list[str]:
    """A loop's JSON lines: it learns, then loses everything at step 81."""
    rng = np.random.default_rng(seed)
    lines = []
    for step in range(1, rows + 1):
        ill = step > 80
        reward = 0.02 if ill else 0.2 + 0.006 * step + 0.02 * rng.normal()
        row = {"step": step, "reward": reward, "kl": 4.0 if ill else 0.01, "grad_norm": 0.5 + 0.05 * rng.normal()}
        lines.append(json.dumps(row) + "\n")
    return lines


def seen(followed: FollowedLog, watch: Watch) -> None:
    for view in followed.look().views:
        watch.tick(view)


@pytest.mark.parametrize("piece", [37, 1000, 100_000])
def test_a_log_that_grows_gives_the_incidents_it_gives_afterwards(tmp_path, piece: int, monkeypatch) -> None:
    monkeypatch.setattr("stabilizer.live.follow.DUTY", 1.0)  # every look reads
    path, text = tmp_path / "log.jsonl", "".join(collapsing())
    path.write_text(text[:400])
    followed, watch = follow(path, load), new_watch()
    seen(followed, watch)
    for start in range(400, len(text), piece):
        with path.open("a") as file:
            file.write(text[start : start + piece])
        seen(followed, watch)
    for _ in range(SETTLED):
        seen(followed, watch)
    afterwards = analyse(load(path))
    assert [(f.id, f.onset_step, f.detected_step) for f in watch.findings()] == [
        (f.id, f.onset_step, f.detected_step) for f in afterwards.findings
    ]
    assert "reward/collapse" in [finding.id for finding in watch.findings()]


def test_the_newest_row_waits_until_the_log_rests_or_goes_on(tmp_path) -> None:
    path, lines = tmp_path / "log.jsonl", collapsing(30)
    path.write_text("".join(lines[:20]))
    followed = follow(path, load)
    assert [view.step for view in followed.look().views] == list(range(1, 20))
    later = [view.step for _ in range(SETTLED) for view in followed.look().views]
    assert later == [20]
    assert followed.look().views == []


def test_a_log_that_was_replaced_is_another_training(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("stabilizer.live.follow.DUTY", 1.0)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(collapsing(60)))
    followed = follow(path, load)
    assert len(followed.look().views) == 59
    other = tmp_path / "other"
    other.write_text("".join(collapsing(25, seed=1)))
    other.replace(path)
    news = followed.look()
    assert news.anew and [view.step for view in news.views] == list(range(1, 25))


def test_a_log_that_was_replaced_by_one_of_the_same_steps_is_another_training_too(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("stabilizer.live.follow.DUTY", 1.0)
    path, other = tmp_path / "log.jsonl", tmp_path / "other"
    path.write_text("".join(collapsing(40)))
    followed = follow(path, load)
    followed.look()
    other.write_text("".join(collapsing(60, seed=1)))
    other.replace(path)
    assert followed.look().anew


def test_a_log_that_is_gone_for_a_moment_is_waited_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("stabilizer.live.follow.DUTY", 1.0)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(collapsing(40)))
    followed = follow(path, load)
    followed.look()
    path.rename(tmp_path / "log.jsonl.1")
    assert followed.look().views == []
    path.write_text("".join(collapsing(50)))
    news = followed.look()
    assert not news.anew and [view.step for view in news.views] == list(range(40, 50))


def test_what_is_no_log_is_said_at_once(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("nothing to see")
    with pytest.raises(RunError, match="not a log in a known format"):
        follow(tmp_path / "notes.txt", load).look()


def test_watch_waits_for_a_log_that_is_not_there_yet_when_told_to(tmp_path, capsys, monkeypatch) -> None:
    path, lines = tmp_path / "log.jsonl", collapsing()
    stages = iter(["", "loading the model\n", "".join(lines)])
    monkeypatch.setattr("stabilizer.commands.watch.time.sleep", lambda seconds: path.write_text(next(stages)))
    assert main(["watch", str(path), "--wait", "--fail-on", "critical", "--json"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["verdict"] == "critical"
    assert next(stages, None) is None


def test_watch_does_not_wait_unasked_nor_longer_than_idle_says(tmp_path, capsys) -> None:
    assert main(["watch", str(tmp_path / "log.jsonl")]) == 2
    assert main(["watch", str(tmp_path / "log.jsonl"), "--wait", "--idle", "0"]) == 2
    assert capsys.readouterr().err.count("no such file") == 2


def test_watch_ends_with_1_when_the_verdict_reaches_the_level(tmp_path, capsys) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(collapsing()))
    assert main(["watch", str(path), "--fail-on", "critical", "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[-1] == {"kind": "end", "verdict": "critical", "exit": 1}
    assert max(row["step"] for row in rows if row["kind"] == "step") < 120, "it did not wait for the end"


def test_watch_of_a_healthy_log_ends_with_0_when_it_rests(tmp_path, capsys) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(collapsing(70)))
    assert main(["watch", str(path), "--fail-on", "warn", "--idle", "0"]) == 0
    assert "verdict:" in capsys.readouterr().out


def test_watch_of_a_finished_run_directory_ends_by_itself(capsys) -> None:
    run = Path(__file__).parents[2] / "sample_runs" / "addition-unstable"
    assert main(["watch", str(run), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["id"] for row in rows if row["kind"] == "finding"} == {f.id for f in analyse(load(run)).findings}


def test_a_log_that_ends_in_a_failure_is_said_to_have_crashed(tmp_path, capsys) -> None:
    path = tmp_path / "train.log"
    text = (SAMPLES / "trl-transformers-5.log").read_text()
    path.write_text(text + "\nTraceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n"
                    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")  # fmt: skip
    assert main(["watch", str(path), "--idle", "1.2", "--fail-on", "critical", "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[-1]["verdict"] == "crashed"
    assert "system/crashed" in [row["id"] for row in rows if row["kind"] == "finding"]


def test_a_command_is_run_once_for_a_critical_incident_with_the_finding_on_its_input(tmp_path, capsys) -> None:
    path, out = tmp_path / "log.jsonl", tmp_path / "told.json"
    path.write_text("".join(collapsing()))
    script = tmp_path / "tell.sh"
    script.write_text(f"#!/bin/sh\ncat >> {out}; echo >> {out}\n")
    script.chmod(0o755)
    main(["watch", str(path), "--idle", "0", "--on-critical", str(script), "--json"])
    told = [json.loads(line) for line in out.read_text().splitlines()]
    critical = {f.id for f in analyse(load(path)).findings if f.severity == "critical"}
    assert told and {row["id"] for row in told} <= critical
    assert len(told) == len({row["id"] for row in told}) and told[0]["run"] == "log.jsonl"


def test_a_webhook_gets_incidents_as_json_and_a_dead_one_is_said_once(tmp_path, capsys) -> None:
    got: list[dict] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path = tmp_path / "log.jsonl"
    path.write_text("".join(collapsing()))
    good, dead = f"http://127.0.0.1:{server.server_port}/hook", "http://127.0.0.1:1/nobody"
    main(["watch", str(path), "--idle", "0", "--notify", good, "--notify", dead])
    server.shutdown()
    assert got and all(row["severity"] != "info" for row in got) and got[0]["run"] == "log.jsonl"
    assert capsys.readouterr().err.count("could not be told") == 1


def test_an_address_that_needs_apprise_says_so_at_once(tmp_path, capsys) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(collapsing(30)))
    assert main(["watch", str(path), "--notify", "slack://token"]) == 2
    assert "pip install apprise" in capsys.readouterr().err


APPRISE = """
class Apprise:
    def __init__(self, urls=()):
        self.urls = list(urls)
    def add(self, url):
        return url.startswith("mailto://")
    def notify(self, **told):
        import json, pathlib
        with pathlib.Path(__file__).with_name("told.jsonl").open("a") as file:
            file.write(json.dumps([self.urls, told]) + chr(10))
        return True
"""


@pytest.fixture
def apprise(tmp_path, monkeypatch):
    """A module of that name on the path, which writes down what it is to tell."""
    (tmp_path / "apprise.py").write_text(APPRISE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "apprise", raising=False)
    yield tmp_path
    sys.modules.pop("apprise", None)


def test_apprise_is_told_of_incidents_with_how_bad_they_are(apprise, capsys) -> None:
    path = apprise / "log.jsonl"
    path.write_text("".join(collapsing()))
    assert main(["watch", str(path), "--idle", "0", "--notify", "mailto://me@example.org", "--json"]) == 0
    told = [json.loads(line) for line in (apprise / "told.jsonl").read_text().splitlines()]
    assert {url for urls, _ in told for url in urls} == {"mailto://me@example.org"}
    bad = [words for _, words in told if words["notify_type"] == "failure"]
    assert bad and all(words["body"].startswith("critical at step ") for words in bad)
    assert "log.jsonl: reward/collapse" in [words["title"] for words in bad]


def test_an_address_that_apprise_does_not_know_is_said_at_once(apprise, capsys) -> None:
    path = apprise / "log.jsonl"
    path.write_text("".join(collapsing(30)))
    assert main(["watch", str(path), "--notify", "bogus://x"]) == 2
    assert "--notify bogus://x: no address that apprise knows" in capsys.readouterr().err
    (apprise / "apprise.py").write_text("raise RuntimeError('broken')")
    sys.modules.pop("apprise", None)
    assert main(["watch", str(path), "--notify", "mailto://x"]) == 2
    assert "apprise does not work here (RuntimeError: broken)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--notify", "http://"], "--notify http://: no host in it"),
        (["--notify", "http://host:99999/x"], "--notify http://host:99999/x: Port out of range 0-65535; write it as"),
        (["--notify", "http://[::1"], "--notify http://[::1: Invalid IPv6 URL; write it as"),
        (["--on-critical", "sh -c 'x"], "--on-critical sh -c 'x: No closing quotation; quote it"),
    ],
)
def test_where_nobody_can_ever_be_told_is_said_at_once_and_by_the_flag(tmp_path, capsys, words, said) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(collapsing(30)))
    assert main(["watch", str(path), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("sample", ["verl-0.5.log", "trl-transformers-5.log", "llama-factory.jsonl", "prime-rl"])
def test_an_imported_log_says_the_same_as_the_log(tmp_path, sample: str, capsys) -> None:
    assert main(["import", str(SAMPLES / sample), "--runs", str(tmp_path), "--name", "mine", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    original, copy = analyse(load(SAMPLES / sample)), analyse(load(Path(told["run"])))
    assert (copy.verdict, copy.last_step) == (original.verdict, original.last_step)
    before, after = original.run.history.view(), copy.run.history.view()
    assert sorted(after.names()) == sorted(before.names())
    for name in before.names():
        np.testing.assert_array_equal(after.series(name).values, before.series(name).values)
    assert copy.run.history.about["config"] == original.run.history.about.get("config", {})


def test_a_restart_in_a_log_becomes_an_attempt_of_the_import(tmp_path, capsys) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(collapsing(40) + collapsing(30, seed=1)))
    assert main(["import", str(path), "--runs", str(tmp_path / "runs")]) == 0
    assert len(RunReader(next((tmp_path / "runs").iterdir())).histories) == 2


def test_import_refuses_what_it_would_overwrite_or_escape(tmp_path, capsys) -> None:
    sample = str(SAMPLES / "verl-0.5.log")
    assert main(["import", sample, "--runs", str(tmp_path), "--name", "a"]) == 0
    assert main(["import", sample, "--runs", str(tmp_path), "--name", "a"]) == 2
    assert "there is a run here already; give another name with --name NAME" in capsys.readouterr().err
    assert main(["import", sample, "--runs", str(tmp_path), "--name", "../b"]) == 2
    assert "must be a plain name" in capsys.readouterr().err
