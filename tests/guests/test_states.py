"""Which checkpoints of a foreign loop are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabilizer.guests.boundary import Boundary
from stabilizer.guests.own_loop import GuestRun
from stabilizer.guests.states import KEEP, LoopStates
from stabilizer.live.announced import ATTEMPT, SUPERVISED
from stabilizer.runs.reader import RunReader
from stabilizer.runs.requests import ask


class Keeper:
    def save(self) -> dict[str, bytes]:
        return {"state.json": b"{}"}

    def load(self, files: dict[str, Path]) -> None:
        pass


def kept(folder: Path, changes: list[int], steps: int = 400) -> list[int]:
    """The steps of the states that are left, saved every tenth step, where settings were changed at some steps."""
    states = LoopStates(folder, Keeper(), Boundary(), every=10)
    for step in range(0, steps + 1):
        states.step = step
        states.save_if_due()
        if step in changes:
            states.setting_changed()
    return [state.step for state in states.checkpoints()]


def test_the_state_before_a_change_of_a_setting_is_kept_while_others_are_thinned_out(tmp_path: Path) -> None:
    usual = kept(tmp_path / "a", [])
    assert 90 not in usual and {0, 380, 390, 400} <= set(usual)
    assert 90 in kept(tmp_path / "b", [95])


def test_only_the_newest_states_before_changes_are_kept(tmp_path: Path) -> None:
    usual = kept(tmp_path / "a", [])
    many = kept(tmp_path / "b", list(range(105, 400, 10)))
    assert len(many) <= len(usual) + KEEP


def trained(runs: Path, begin: int, end: int, *, back: int | None = None) -> Path:
    """A loop from one of its own steps to another, with a checkpoint every tenth and a return when it is over."""
    run = GuestRun("mine", runs=runs, keeper=Keeper(), checkpoint_every=10, remedy="approve")
    run.begin(begin)
    for step in range(begin + 1, end + 1):
        run.log({"reward": 0.5}, step)
    if back is not None:
        ask(run.path, "do", f"restore:{back}", by="tester")
        run.log({"reward": 0.5}, end + 1)
        run.log({"reward": 0.5}, end + 2)
    run.crashed(RuntimeError("over"))
    return run.path


@pytest.mark.parametrize(("resumed", "row"), [(41, 21), (35, 36)], ids=["after the return", "before the return"])
def test_a_restart_counts_on_from_the_step_that_a_return_left(tmp_path, monkeypatch, resumed: int, row: int) -> None:
    (tmp_path / "supervised").write_text("")
    monkeypatch.setenv(SUPERVISED, str(tmp_path / "supervised"))
    first = trained(tmp_path / "runs", 0, 40, back=20)
    (tmp_path / "supervised").write_text(f"{first.resolve()}\n")
    monkeypatch.setenv(ATTEMPT, "2")
    monkeypatch.setattr("stabilizer.guests.earlier._begun", set())
    assert trained(tmp_path / "runs", resumed, resumed + 3) == first
    attempts = RunReader(first).about["attempts"]
    assert [entry["reason"] for entry in attempts] == ["start", "rollback", "resume"]
    assert attempts[-1]["from_step"] == row
