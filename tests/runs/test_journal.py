"""What the journal says of a run: whether it is whole, what was changed, where the knobs are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stabilizer.cli import main
from stabilizer.core.records import Action, RecordError, decode, encode
from stabilizer.runs.chain import chain_hash
from stabilizer.runs.journal import (
    by_remedies,
    knobs,
    origin_of,
    reason_of,
    turned,
    verify,
)
from stabilizer.runs.reader import read_records
from stabilizer.runs.story import NO_TWIN, interventions, summary, twin_words
from stabilizer.runs.writer import RunWriter

LR = {"control/lr_scale": (1.0, 0.5)}


def entry(name: str, how: str, **more) -> Action:
    return Action(name, how, more.pop("remedy", "lower-lr"), more.pop("step", 5), **more)


@pytest.fixture
def run(tmp_path) -> Path:
    writer = RunWriter.create(tmp_path / "run", config={})
    for how in ("proposed", "approved", "applied", "reverted"):
        writer.action(entry("a1", how, change=LR))
    writer.close()
    return writer.path


def lines(run: Path) -> list[bytes]:
    return (run / "actions.jsonl").read_bytes().splitlines(keepends=True)


def test_a_journal_as_it_was_written_is_whole(run, capsys) -> None:
    assert verify(run / "actions.jsonl").entries == 4 and not verify(run / "actions.jsonl").broken
    assert main(["fix", str(run), "verify"]) == 0
    assert "4 entries in an unbroken chain" in capsys.readouterr().out


def test_the_first_broken_link_is_told(run, capsys) -> None:
    kept = lines(run)
    for damaged, said in (
        ([kept[0], kept[1].replace(b'"step":5', b'"step":6'), *kept[2:]], "line 2 (a1 approved at step 6) was changed"),
        ([kept[0], *kept[2:]], "line 2 (a1 applied at step 5) does not follow"),
        ([kept[1], kept[0], *kept[2:]], "line 1 (a1 approved at step 5) does not follow"),
    ):
        (run / "actions.jsonl").write_bytes(b"".join(damaged))
        assert verify(run / "actions.jsonl").broken.startswith(said)
    assert main(["fix", str(run), "verify", "--json"]) == 1
    assert '"ok": false' in capsys.readouterr().out


def test_an_entry_made_up_anew_with_its_own_hash_still_breaks_the_next(run) -> None:
    kept = lines(run)
    forged = read_records(run / "actions.jsonl", Action).records[1]
    forged = replace(forged, text="nothing happened", hash="")
    (run / "actions.jsonl").write_bytes(
        b"".join([kept[0], encode(replace(forged, hash=chain_hash(forged))), *kept[2:]])
    )
    assert "line 3" in verify(run / "actions.jsonl").broken


@pytest.mark.parametrize("cut", [1, 40])
def test_the_chain_goes_on_behind_a_line_that_a_crash_cut_off(run, cut) -> None:
    """A line without its newline is an entry; a shorter one is none, and the chain leaves it out."""
    (run / "actions.jsonl").write_bytes(b"".join(lines(run))[:-cut])
    writer = RunWriter.reopen(run)
    writer.action(entry("a2", "proposed"))
    writer.close()
    chain = verify(run / "actions.jsonl")
    assert (chain.broken, chain.torn, chain.entries) == ("", int(cut > 1), 5 - (cut > 1))


def test_knobs_follow_the_journal_and_only_what_was_begun_is_undone() -> None:
    told = [entry("a1", "proposed", change=LR), entry("a1", "approved", change=LR), entry("a1", "applied", change=LR)]
    assert knobs({"control/lr_scale": 1.0}, told) == {"control/lr_scale": 0.5}
    assert knobs({}, [*told, entry("a1", "reverted", change=LR)]) == {"control/lr_scale": 1.0}
    by_hand = entry("h1", "applied", remedy="by-hand", change={"control/lr_scale": (1.0, 0.25)})
    never_begun = entry("a1", "failed", change=LR)
    assert knobs({}, [by_hand, never_begun]) == {"control/lr_scale": 0.25}
    assert turned(entry("a1", "verified", change=LR)) == {}


def test_what_was_changed_is_counted_by_action_and_outcome() -> None:
    told = [
        entry("a1", "proposed", change=LR, data={"hypothesis": {"expects": "calm"}}),
        entry("a1", "applied", change=LR), entry("a1", "reverted", change=LR, step=12, text="no better"),
        entry("h1", "approved", remedy="by-hand"),
        entry("h1", "applied", remedy="by-hand", data={"order": "reset-optimizer", "by": "ada"}),
        entry("a2", "proposed", change=LR), entry("a2", "rejected", change=LR),
        entry("a3", "applied", change=LR, step=20),
    ]  # fmt: skip
    one, two, three = interventions(told)
    assert (one.outcome, one.ended, one.result, one.expects) == ("undone", 12, "no better", "calm")
    assert (two.order, two.by, two.outcome) == ("reset-optimizer", "ada", "kept")
    assert three.outcome == "on trial"
    assert summary(told)["count"] == 3
    assert summary(told)["text"] == "changed 3 times while it trained (1 by hand, 1 undone): not a plain run"
    assert summary([])["count"] == 0 and summary(told[5:7])["count"] == 0


@pytest.mark.parametrize(
    ("twin", "said"),
    [
        ({}, NO_TWIN),
        (
            {"steps": 20, "with": 0.5, "without": 0.25, "metric": "reward/mean"},
            "over 20 steps reward/mean was 0.5 with it and 0.25 in the twin without it",
        ),
        (
            {"steps": 2, "curves": {"no change": {"reward/mean": [0.0, 0.2]}, "lower-lr": {"reward/mean": [0.4, 0.6]}}},
            "over 2 steps reward/mean was 0.5 with it and 0.1 in the twin without it",
        ),
        (
            {"steps": 2, "curves": {"no change": {"reward/mean": [0.0, float("nan")]}}},
            "over 2 steps the twin left alone had a reward/mean of 0",
        ),
        ({"curves": "?"}, NO_TWIN),
    ],
)
def test_the_twin_is_told_in_words_and_its_absence_too(twin, said) -> None:
    (one,) = interventions([entry("a1", "approved", data={"twin": twin}), entry("a1", "applied")])
    assert twin_words(one) == said


def test_who_began_an_action_and_why_it_ended_are_fields_that_older_lines_do_not_have() -> None:
    stated = entry("a1", "reverted", origin="remedy", reason="over")
    assert decode(Action, encode(stated)) == stated
    older = entry("a1", "reverted")
    assert b"origin" not in encode(older) and b"reason" not in encode(older), "its hash is that of the line as written"
    assert decode(Action, encode(older)) == older
    with pytest.raises(RecordError):
        decode(Action, encode(replace(stated, origin="nobody")))


def test_older_entries_say_who_began_them_and_why_they_ended_by_what_they_hold() -> None:
    by_hand = entry("h1", "applied", remedy="by-hand")
    undone = [entry("a1", "applied"), entry("a1", "reverted", remedy="by-hand")]
    assert (origin_of(by_hand), origin_of(undone[0])) == ("person", "remedy")
    assert by_remedies([by_hand, *undone]) == undone, "a fix that a person undid was begun by a remedy all the same"
    for data, reason in (
        ({"interrupted": True}, "interrupted"),
        ({"released": True, "ticks": 3}, "over"),
        ({"ticks": 3}, "failed"),
        ({}, ""),
    ):
        assert reason_of(entry("a1", "reverted", data=data)) == reason
    assert reason_of(undone[1]) == "person"
    assert reason_of(entry("a1", "rejected", data={"probe": {"step": 3}})) == "no-gain"
