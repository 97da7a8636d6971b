"""An imported log says what the log in place says: `diagnose`, and the page, in the keys of its trainer."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stabilizer.analysis.analyse import analyse, as_json
from stabilizer.analysis.importing import write_run
from stabilizer.runs.loaded import imported, load_own
from stabilizer.runs.reader import RunReader
from stabilizer.runs.writer import RunWriter
from stabilizer.trainers.reading import load

FOLDERS = (Path(__file__).parent / "samples", Path(__file__).parent / "tool_samples")
LOGS = [path for folder in FOLDERS for path in sorted(folder.iterdir()) if path.suffix not in (".py", ".md")]


def collapsed(path: Path, rows: int = 160) -> Path:
    """A TRL run that learns and then loses everything at step 81, in its own format."""
    rng = np.random.default_rng(0)
    history = []
    for step in range(1, rows + 1):
        ill = step > 80
        reward = 0.02 if ill else 0.2 + 0.006 * step + 0.02 * rng.normal()
        history.append(
            {"step": step, "reward": reward, "reward_std": 0.1, "kl": 4.0 if ill else 0.01, "completion_length": 90.0,
             "grad_norm": 0.5 + 0.05 * rng.normal(), "learning_rate": 1e-6, "loss": 0.01 * rng.normal()}
        )  # fmt: skip
    path.mkdir(parents=True)
    state = {"log_history": history, "global_step": rows, "max_steps": rows}
    (path / "trainer_state.json").write_text(json.dumps(state))
    return path


def told(run: Path) -> dict[str, Any]:
    """What `diagnose --json` says, but for the name of the run and where it lies."""
    said = as_json(analyse(load(run)))
    del said["run"], said["source"]["format"], said["source"]["files"]
    return said


@pytest.mark.parametrize("log", LOGS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_import_gets_the_diagnosis_of_its_log(log: Path, tmp_path: Path) -> None:
    assert told(write_run(load(log), tmp_path / "run")) == told(log)


def test_an_import_of_a_collapse_gets_the_diagnosis_of_its_log(tmp_path: Path) -> None:
    log = collapsed(tmp_path / "log")
    said = told(write_run(load(log), tmp_path / "run"))
    assert said == told(log)
    assert said["verdict"] == "critical" and any(finding["remedies"] for finding in said["findings"])


@pytest.mark.parametrize("log", [*LOGS, None], ids=lambda path: f"{path.parent.name}-{path.name}" if path else "made")
def test_the_record_of_an_import_holds_what_diagnose_prints(log: Path | None, tmp_path: Path) -> None:
    log = log or collapsed(tmp_path / "log")
    found = {(f.incident, f.id, f.detected_step): f for f in analyse(load(log)).findings}
    kept = {(f.incident, f.id, f.detected_step): f for f in RunReader(write_run(load(log), tmp_path / "run")).findings}
    assert kept.keys() == found.keys()
    for key, finding in found.items():
        assert (kept[key].summary, kept[key].last_step) == (finding.summary, finding.last_step)
        assert [(r.id, r.how) for r in kept[key].remedies] == [(r.id, r.how) for r in finding.remedies]
        assert not any("during the run" in remedy.how for remedy in kept[key].remedies)


def test_an_import_keeps_what_its_reader_could_not_read(tmp_path: Path) -> None:
    log = FOLDERS[0] / "verl-0.3.log"
    source, kept = load(log).source, load_own(write_run(load(log), tmp_path / "run")).source
    assert source.skipped_lines == kept.skipped_lines == 1
    assert source.notes == kept.notes and source.trainer == kept.trainer == "verl"


def test_an_import_is_as_old_as_its_log(tmp_path: Path) -> None:
    log = collapsed(tmp_path / "log")
    os.utime(log / "trainer_state.json", (1_700_000_000, 1_700_000_000))
    reader = RunReader(write_run(load(log), tmp_path / "run"))
    assert (reader.about["created"], reader.status["t"]) == (1_700_000_000, 1_700_000_000)
    assert not len(reader.history.view().times()), "the log does not say when a row was written"


def test_rows_and_events_keep_the_times_they_have(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "own", config={}, trainer="trl", argv=[])
    writer.event(2, "schedule", "another stage")
    for step in range(1, 6):
        writer.metrics(step, {"reward/mean": 0.1 * step}, t=1_700_000_000.0 + 60 * step)
    writer.close()
    then = RunReader(tmp_path / "own")
    now = RunReader(write_run(load_own(tmp_path / "own"), tmp_path / "run"))
    assert now.history.view().times().values.tolist() == then.history.view().times().values.tolist()
    assert now.about["created"] == 1_700_000_060.0
    assert [event.t for event in now.events if event.kind == "schedule"] == [event.t for event in then.events]


@pytest.mark.parametrize("said", [None, 3, [], {"files": 3, "notes": {}, "steps": "x", "skipped_lines": True}])
def test_an_unusual_origin_is_not_an_error(said: Any) -> None:
    source = imported({"imported": said, "trainer": "trl"})
    assert source is None or (source.files, source.notes, source.steps, source.skipped_lines) == ((), (), 0, 0)
