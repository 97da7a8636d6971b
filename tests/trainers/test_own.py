"""A run directory of ours: what its status says beside what its metrics say."""

from __future__ import annotations

import io
import json
import math
import shutil
import time
from pathlib import Path

import pytest

from stabilizer.analysis.analyse import analyse
from stabilizer.commands import printing
from stabilizer.live.tick import Tick
from stabilizer.trainers.console_log import console as reader_of
from stabilizer.trainers.reading import load
from stabilizer.trainers.stabilizer import console, log

SAMPLE = Path(__file__).parents[2] / "sample_runs/addition-healthy"


@pytest.mark.parametrize(
    ("said", "silence", "stalled"),
    [("running", 86400.0, True), ("running", 0.0, False), ("paused", 86400.0, False), ("finished", 86400.0, False)],
)
def test_only_a_run_that_calls_itself_running_and_fell_silent_is_stalled(tmp_path, said, silence, stalled) -> None:
    folder = Path(shutil.copytree(SAMPLE, tmp_path / "run"))
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"state": said, "t": time.time() - silence}))
    found = analyse(log.read(folder, mapping={}, config=None)).findings
    assert any(finding.id == "system/stalled" for finding in found) == stalled


SAID = {
    "reward/mean": 0.125, "accuracy/train": 0.25, "accuracy/val": 0.5, "optim/grad_norm": 0.775, "policy/kl_ref": 1e-13,
}  # fmt: skip


def printed(monkeypatch, rows: dict[int, dict[str, float]]) -> str:
    """What `stabilizer train` prints of these steps, a line each."""
    monkeypatch.setattr(printing, "EVERY_S", 0.0)
    out = io.StringIO()
    console = printing.Console(file=out, width=80)
    console.print("run runs/a-run · remedies: approve · Ctrl-C stops and saves")
    printer = printing.LivePrinter(console)
    for step, values in rows.items():
        printer.tick(Tick(step, 900, dict(values), [], [], 0))
    return out.getvalue()


def test_the_printed_lines_of_a_training_are_read_as_they_were(tmp_path, monkeypatch) -> None:
    assert list(console.NAMES.values()) == list(SAID)
    later = {**SAID, "reward/mean": float("nan"), "accuracy/val": 0.625}
    unmeasured = {name: value for name, value in SAID.items() if name != "accuracy/val"}
    text = printed(monkeypatch, {1: unmeasured, 15: SAID, 20: unmeasured, 33: later, 21: SAID})
    (tmp_path / "train.log").write_text(text)
    run = load(tmp_path / "train.log")
    assert (run.source.format, run.source.trainer) == ("stabilizer_console", "stabilizer")
    assert run.ticks == [(0, 1), (0, 15), (0, 20), (0, 33), (1, 21)], "a return begins an attempt"
    view = run.histories[0].view()
    assert {name: view.series(name).values[1] for name in SAID if name != "accuracy/val"} == {
        name: value for name, value in SAID.items() if name != "accuracy/val"
    }
    held_out = view.series("accuracy/val")
    assert list(zip(held_out.steps, held_out.values, strict=True)) == [(15, 0.5), (33, 0.625)], "each measured once"
    assert math.isnan(view.series("reward/mean").values[-1])
    assert any("runs/a-run" in note for note in run.source.notes)


def test_a_table_that_only_looks_alike_is_no_training_of_ours(tmp_path, monkeypatch) -> None:
    text = printed(monkeypatch, {1: SAID, 2: SAID}).replace("remedies", "seed")
    (tmp_path / "train.log").write_text(text)
    assert not reader_of(console).recognises(tmp_path / "train.log")
