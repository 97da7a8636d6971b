"""Copying a run to other tools while it trains: whole, in order, and without any effect on the training."""

from __future__ import annotations

import json
import math
import time
import urllib.request
from importlib.util import find_spec

import pytest

import stabilizer
from stabilizer.analysis.analyse import analyse
from stabilizer.cli import main
from stabilizer.guests.own_loop import GuestRun
from stabilizer.live import mirror
from stabilizer.output import sinks
from stabilizer.trainers.reading import load


def needs(package):
    reason = f"needs {package}: make test-sinks runs these in an environment of their own"
    return pytest.mark.skipif(find_spec(package) is None, reason=reason)


def train(run, steps=60, first=1):
    """A run whose KL runs away, so that a finding opens."""
    for step in range(first, first + steps):
        kl = 0.01 if step < 40 else 0.01 + 0.2 * (step - 40)
        run.log({"reward": 0.5 - 0.002 * step, "kl": kl, "grad_norm": 0.5}, step)


def waited(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


class Broken:
    """A tool that raises or hangs, depending on `Broken.how`."""

    how = ""
    got: list[int] = []

    def __init__(self, place):
        self.got = Broken.got  # one that hung in an earlier test goes on with that test's list
        self._fail()

    def _fail(self):
        if Broken.how == "raises":
            raise ConnectionError("no server")
        if Broken.how == "exits":
            raise SystemExit(3)
        while Broken.how == "hangs":
            time.sleep(0.05)

    def row(self, step, t, values):
        self._fail()
        self.got.append(step)

    def incident(self, finding):
        self._fail()

    def close(self):
        self._fail()


@pytest.fixture
def broken(monkeypatch):
    monkeypatch.setitem(sinks.KINDS, "broken", sinks.Kind(Broken))
    monkeypatch.setattr(mirror, "POLL_S", 0.05)
    monkeypatch.setattr(mirror, "RETRY_S", 0.1)
    monkeypatch.setattr(mirror, "CLOSING_S", 0.5)
    Broken.how, Broken.got = "", []
    yield Broken
    Broken.how = ""


def test_json_lines_get_every_row_and_each_incident_once(tmp_path):
    with GuestRun("mine", runs=tmp_path, sinks=["jsonl"]) as run:
        run.log({"reward": math.nan}, 0)
        train(run)
    lines = [json.loads(line) for line in (run.path / "sinks" / "jsonl" / "rows.jsonl").read_text().splitlines()]
    rows = [line for line in lines if line["kind"] == "row"]
    assert [row["step"] for row in rows] == list(range(61))
    assert rows[0]["metrics"]["reward/mean"] is None and rows[9]["metrics"]["policy/kl_ref"] == 0.01
    incidents = [(i["finding"]["id"], i["finding"]["state"]) for i in lines if i["kind"] == "incident"]
    assert ("policy/kl-runaway", "open") in incidents


def test_event_files_can_be_diagnosed_and_hold_incidents_as_text(tmp_path):
    with GuestRun("mine", runs=tmp_path, config={"lr": 1e-6}, sinks=[f"tensorboard:{tmp_path / 'tb'}"]) as run:
        train(run)
    copy = load(tmp_path / "tb")
    assert copy.history.view().series("reward/mean").steps.tolist() == list(range(1, 61))
    kept = load(run.path).history.view().series("policy/kl_ref").values.tolist()
    assert copy.history.view().series("policy/kl_ref").values.tolist() == pytest.approx(kept, rel=1e-6)
    assert "policy/kl-runaway" in [finding.id for finding in analyse(copy).findings]
    (file,) = (tmp_path / "tb").iterdir()
    assert b"incidents" in file.read_bytes() and b"policy/kl-runaway open" in file.read_bytes()


@pytest.mark.parametrize("how", ["raises", "hangs", "exits"])
def test_a_tool_that_fails_for_a_while_costs_the_training_nothing_and_gets_all_rows_later(
    tmp_path, broken, how, capsys
):
    broken.how = how
    run = GuestRun("mine", runs=tmp_path, sinks=["broken"])
    slowest = 0.0
    for step in range(1, 41):
        begun = time.perf_counter()
        run.log({"reward": 0.5}, step)
        slowest = max(slowest, time.perf_counter() - begun)
        time.sleep(0.01)
    assert broken.got == [] and slowest < 0.2  # the machine may be busy; a call takes 0.05 ms
    broken.how = ""
    assert waited(lambda: set(broken.got) == set(range(1, 41)))
    run.finish()
    assert capsys.readouterr().err.count("is tried again") == (0 if how == "hangs" else 1)


def test_a_tool_that_hangs_at_the_end_delays_the_end_by_a_bounded_time(tmp_path, broken):
    broken.how = "hangs"
    run = GuestRun("mine", runs=tmp_path, sinks=["broken"])
    train(run)
    begun = time.monotonic()
    run.finish()
    assert time.monotonic() - begun < 10
    assert json.loads((run.path / "status.json").read_text())["state"] == "finished"


def test_what_an_outage_left_is_copied_by_watch_and_nothing_is_copied_twice(tmp_path, broken, capsys):
    run = GuestRun("mine", runs=tmp_path, sinks=["broken"])
    train(run, 20)
    assert waited(lambda: len(broken.got) == 20)
    time.sleep(0.3)  # a look that found nothing new: how far it got is on disk
    broken.how = "raises"
    train(run, 20, first=21)
    run.finish()
    assert broken.got == list(range(1, 21))
    broken.how = ""
    assert main(["watch", str(run.path), "--to", "broken", "--fail-on", "never", "--json"]) == 0
    assert broken.got == list(range(1, 41))


def test_another_place_gets_the_whole_run_whatever_was_copied_elsewhere(tmp_path):
    with GuestRun("mine", runs=tmp_path, sinks=["jsonl"]) as run:
        train(run, 10)
    for name in ("a", "b"):
        to = f"jsonl:{tmp_path / name}"
        assert main(["watch", str(run.path), "--to", to, "--fail-on", "never", "--json"]) == 0
        assert len((tmp_path / name).read_text().splitlines()) == 10


def test_a_wrong_place_is_refused_before_a_run_is_made(tmp_path):
    for asked in ("tensorbord", "prometheus:http"):
        with pytest.raises(ValueError, match=asked.split(":")[0]):
            stabilizer.init("mine", runs=tmp_path / "runs", sinks=[asked])
    assert not (tmp_path / "runs").exists()


def test_a_wrong_place_in_the_environment_is_reported_and_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STABILIZER_SINKS", "jsonl, nowhere")
    with GuestRun("mine", runs=tmp_path) as run:
        train(run, 5)
    assert len((run.path / "sinks" / "jsonl" / "rows.jsonl").read_text().splitlines()) == 5
    assert "no place 'nowhere'" in capsys.readouterr().err


def test_a_log_is_not_copied_by_watch(tmp_path, capsys):
    (tmp_path / "log.csv").write_text("step,reward\n1,0.5\n2,0.6\n")
    assert main(["watch", str(tmp_path / "log.csv"), "--to", "jsonl", "--idle", "0"]) == 2
    assert "stabilizer export" in capsys.readouterr().err


# --- the tools themselves -------------------------------------------------------------------------------------------


def copied(tmp_path, monkeypatch, asked):
    monkeypatch.setattr(mirror, "CLOSING_S", 90.0)  # databases are slow to begin
    said = []
    monkeypatch.setattr(GuestRun, "_report", lambda self, text: said.append(text))
    with GuestRun("mine", runs=tmp_path / "runs", config={"lr": 1e-6, "deep": {"a": 1}}, sinks=[asked]) as run:
        train(run)
        mirrors = run._mirrors
    mirror.end(mirrors, 90)
    assert said == []
    return run


@needs("tensorboard")
def test_tensorboard_itself_reads_numbers_settings_and_incidents(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    copied(tmp_path, monkeypatch, f"tensorboard:{tmp_path / 'tb'}")
    found = EventAccumulator(str(tmp_path / "tb"), size_guidance={"tensors": 0}).Reload()
    assert [event.step for event in found.Scalars("reward/mean")] == list(range(1, 61))
    texts = {tag: found.Tensors(tag) for tag in found.Tags()["tensors"]}
    assert b"| deep.a | 1 |" in texts["settings"][0].tensor_proto.string_val[0]
    assert any(b"policy/kl-runaway open" in event.tensor_proto.string_val[0] for event in texts["incidents"])


@needs("prometheus_client")
def test_prometheus_fetches_the_newest_numbers_on_this_machine_alone(tmp_path):
    run = GuestRun("mine", runs=tmp_path, sinks=["prometheus:9479"])
    train(run)

    def page():
        with urllib.request.urlopen("http://127.0.0.1:9479/metrics", timeout=5) as answer:  # noqa: S310
            return answer.read().decode()

    def complete():
        try:
            return "stabilizer_step" in page() and 'metric="reward/mean"' in page() and "60.0" in page()
        except OSError:
            return False

    assert waited(complete)
    assert 'severity="critical"' in page() or 'severity="warn"' in page()
    run.finish()
    with pytest.raises(OSError):
        page()


@needs("mlflow")
def test_mlflow_gets_rows_settings_and_incidents(tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = copied(tmp_path, monkeypatch, "mlflow")
    client = MlflowClient(tracking_uri=f"sqlite:///{run.path / 'sinks' / 'mlflow' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("stabilizer").experiment_id])
    assert found.data.params["deep.a"] == "1" and found.info.status == "FINISHED"
    assert len(client.get_metric_history(found.info.run_id, "reward/mean")) == 60
    assert any(key.startswith("incident.") and "kl-runaway" in key for key in found.data.tags)


def wandb_folder(run):
    (folder,) = (run.path / "sinks").glob("wandb-*/wandb")
    return folder


@needs("wandb")
def test_wandb_gets_rows_and_incidents(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = copied(tmp_path, monkeypatch, "wandb:mine")
    copy = load(wandb_folder(run))
    assert copy.history.view().series("reward/mean").steps.tolist() == list(range(1, 61))
    (file,) = wandb_folder(run).glob("offline-run-*/*.wandb")
    assert b"policy/kl-runaway open" in file.read_bytes()


@needs("trackio")
def test_trackio_gets_rows_and_incidents(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    copied(tmp_path, monkeypatch, "trackio:mine")
    copy = load(tmp_path / "trackio" / "mine.db")
    assert copy.history.view().series("reward/mean").steps.tolist() == list(range(1, 61))
    assert b"policy/kl-runaway" in b"".join(path.read_bytes() for path in (tmp_path / "trackio").glob("mine.db*"))


@needs("swanlab")
def test_swanlab_gets_rows_and_incidents(tmp_path, monkeypatch):
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    run = copied(tmp_path, monkeypatch, "swanlab:mine")
    written = b"".join(path.read_bytes() for path in (run.path / "sinks").rglob("*") if path.is_file())
    assert b"reward/mean" in written and b"kl-runaway" in written
