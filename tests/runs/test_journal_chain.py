"""Whether a journal is as it was written, and what its twin says."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabilizer.core.records import Action
from stabilizer.runs.journal import newest, verify
from stabilizer.runs.story import interventions, twin_words
from stabilizer.runs.writer import RunWriter


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    writer = RunWriter.create(tmp_path / "run", config={}, task="t", argv=[])
    for index, entry in enumerate(("proposed", "approved", "applied", "verified")):
        writer.action(Action("a1", entry, "lower-lr", index))
    writer.close()
    return tmp_path / "run" / "actions.jsonl"


def test_a_journal_as_written_is_whole(journal: Path) -> None:
    chain = verify(journal)
    assert (chain.entries, chain.torn, chain.broken) == (4, 0, "")


def test_a_journal_that_is_not_there_is_whole(tmp_path: Path) -> None:
    assert verify(tmp_path / "actions.jsonl").broken == ""


def test_an_edited_line_is_named(journal: Path) -> None:
    journal.write_bytes(journal.read_bytes().replace(b'"approved"', b'"rejected"'))
    chain = verify(journal)
    assert chain.entries == 1 and "line 2 (a1 rejected at step 1) was changed" in chain.broken


def test_a_missing_line_is_named(journal: Path) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:1] + lines[2:]))
    assert "line 2 (a1 applied at step 2) does not follow" in verify(journal).broken


def test_a_torn_line_breaks_nothing(journal: Path) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:2], b'{"act\n', *lines[2:]]))
    assert (verify(journal).torn, verify(journal).broken) == (1, "")


def test_newest_is_by_action() -> None:
    actions = [Action("a1", "proposed", "x", 1), Action("a2", "proposed", "y", 2), Action("a1", "applied", "x", 3)]
    assert {name: action.entry for name, action in newest(actions).items()} == {"a1": "applied", "a2": "proposed"}


def told(**data: object) -> str:
    return twin_words(interventions([Action("a1", "applied", "lower-lr", 1, data=data)])[0])


def test_a_twin_is_told_in_numbers_and_its_absence_too() -> None:
    twin = {"steps": 8, "metric": "reward/mean", "with": 0.7, "without": 0.52}
    assert told(twin=twin) == "over 8 steps reward/mean was 0.7 with it and 0.52 in the twin without it"
    assert "no twin was run" in told() and "no twin was run" in told(twin={"with": 1.0})
