"""Which checkpoints of a foreign loop are kept."""

from __future__ import annotations

from pathlib import Path

from stabilizer.guests.boundary import Boundary
from stabilizer.guests.states import KEEP, LoopStates


class Keeper:
    def save(self) -> dict[str, bytes]:
        return {"state.json": b"{}"}


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
