"""Metrics of the machine: seldom, plausible, and never in the way."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from stabilizer.core.metrics import VOCABULARY
from stabilizer.live import machine
from stabilizer.live.machine import EVERY_S, Machine
from stabilizer.live.monitor import Monitor
from stabilizer.runs.reader import RunReader
from stabilizer.runs.writer import RunWriter


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_sample_comes_when_it_is_due_and_not_before(tmp_path: Path) -> None:
    clock = Clock()
    found = Machine(tmp_path, clock)
    assert found.sample() == {}
    clock.now += EVERY_S
    assert found.sample() and found.sample() == {}


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs /proc")
def test_numbers_are_known_metrics_and_plausible(tmp_path: Path) -> None:
    clock = Clock()
    found = Machine(tmp_path, clock)
    sum(range(10**6))
    clock.now += EVERY_S
    row = found.sample()
    assert row.keys() <= VOCABULARY.keys()
    assert 0 <= row["system/cpu_frac"] <= 1 and 0 < row["system/memory_frac"] < 1
    assert 0.005 < row["system/process_memory_gb"] < 100 and row["system/disk_free_gb"] > 0
    assert row["system/process_cores"] >= 0 and row["system/network_mb_s"] >= 0


def test_a_machine_without_any_of_it_gives_nothing_and_does_not_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "Path", lambda *_: tmp_path / "nothing")
    monkeypatch.setattr(machine, "CGROUP_MEMORY", tmp_path / "nothing")
    clock = Clock()
    found = Machine(tmp_path / "gone", clock)
    clock.now += EVERY_S
    assert set(found.sample()) == {"system/process_cores"}


@pytest.mark.parametrize("driver", [True, False])
def test_a_gpu_is_read_through_a_loaded_torch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: bool
) -> None:
    asked = []

    def utilization() -> int:
        asked.append(1)
        if not driver:
            raise ModuleNotFoundError("pynvml")
        return 40

    cuda = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        mem_get_info=lambda: (6e9, 8e9),
        utilization=utilization,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    clock = Clock()
    found = Machine(tmp_path, clock)
    for _ in range(3):
        clock.now += EVERY_S
        row = found.sample()
        assert row["system/gpu_memory_gb"] == 2 and row["system/gpu_memory_frac"] == 0.25
        assert row.get("system/gpu_frac") == (0.4 if driver else None)
    assert len(asked) == (4 if driver else 1)  # a driver that is missing is asked once


def test_they_are_ordinary_metrics_of_the_run(tmp_path: Path) -> None:
    monitor = Monitor(RunWriter.create(tmp_path / "run", config={}, task="t", steps=3, argv=[]))
    clock = Clock()
    monitor.machine = Machine(tmp_path, clock)
    monitor.write(1, {"reward/mean": 0.5})
    clock.now += EVERY_S
    monitor.write(2, {"reward/mean": 0.6})
    monitor.writer.close()
    reader = RunReader(tmp_path / "run")
    view = reader.history.view()
    assert view.series("system/disk_free_gb").steps.tolist() == [2]
    assert monitor.history.view().series("system/disk_free_gb").steps.tolist() == [2]
