"""What people ask of a run: on record like a remedy's change, heeded once, and through restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stabilizer.cli import main
from stabilizer.core.knobs import parse_turn
from stabilizer.core.records import Action
from stabilizer.figures.marks import story
from stabilizer.figures.theme import PALETTES
from stabilizer.live.session import Session
from stabilizer.runs.journal import newest, verify
from stabilizer.runs.listing import run_line
from stabilizer.runs.reader import RunReader
from stabilizer.runs.requests import MAX_OPENED, MAX_TAKEN, ask, look, settle
from stabilizer.runs.story import summary
from stabilizer.trainers.reading import load
from stabilizer.training.config import load_config
from tests.deep import nested

SMALL = ["rollout.prompts=2", "rollout.group_size=2", "validation.problems=4", "checkpoint.every=5"]


def start(path: Path, steps: int = 6, mode: str = "suggest") -> Session:
    return Session.start(load_config("addition", SMALL, steps=steps), path, mode)


def entries(path: Path) -> list[tuple[str, str, int]]:
    return [(entry.action, entry.entry, entry.step) for entry in RunReader(path).actions]


def said(path: Path) -> str:
    return "\n".join(event.text for event in RunReader(path).events)


@pytest.fixture(scope="module")
def turned(tmp_path_factory) -> Path:
    """A run whose knobs were turned by hand, and one of them back."""
    path = tmp_path_factory.mktemp("requests") / "run"
    session = start(path, 8)
    for tick in session.run():
        if tick.step == 2:
            ask(path, "set", "prompts=3", by="ada")
            ask(path, "do", "reset-optimizer")
        if tick.step == 5:
            ask(path, "revert", "h1", by="ada")
            ask(path, "revert", "h2")
    return path


def test_a_knob_turned_by_hand_is_in_the_journal_before_and_after(turned) -> None:
    assert entries(turned) == [
        ("h1", "approved", 3), ("h1", "applied", 3), ("h2", "approved", 3), ("h2", "applied", 3),
        ("h3", "approved", 6), ("h3", "applied", 6), ("h1", "reverted", 6),
    ]  # fmt: skip
    made = newest(RunReader(turned).actions)["h3"]
    assert (made.remedy, made.data["by"], dict(made.change)) == ("by-hand", "ada", {"control/prompts": (3, 2)})
    assert not verify(turned / "actions.jsonl").broken
    assert list(RunReader(turned).history.view().series("control/prompts").values) == [2, 2, 2, 3, 3, 3, 2, 2]
    assert "request to revert h2 by cli: reset-optimizer, requested by cli can't be undone" in said(turned)
    assert not list((turned / "requests").iterdir())


def test_what_was_changed_is_told_wherever_the_run_is_shown(turned, tmp_path, capsys) -> None:
    text = "changed 3 times while it trained (3 by hand, 1 undone): not a plain run"
    assert summary(RunReader(turned).actions)["text"] == text
    assert run_line(turned, "run", 0.0).interventions == 3
    assert main(["runs", str(turned.parent)]) == 0 and "3×" in capsys.readouterr().out
    main(["diagnose", str(turned), "--json", "--fail-on", "never"])
    assert json.loads(capsys.readouterr().out)["interventions"] == {
        "count": 3, "by_hand": 3, "kept": 2, "undone": 1, "text": text,
    }  # fmt: skip
    main(["diagnose", str(turned), "--fail-on", "never"])
    assert "Intervened: changed 3 times" in capsys.readouterr().out
    assert main(["report", str(turned), "-o", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text()
    assert "After step 3, by ada (h1): prompts 2 → 3" in page.replace("\\", "")
    assert main(["export", str(turned), "--to", "csv", "-o", str(tmp_path / "rows.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["interventions"]["count"] == 3
    other = tmp_path / "plain"
    list(start(other, 8).run())
    assert main(["compare", str(other), str(turned), "--json"]) == 0
    cautions = json.loads(capsys.readouterr().out)["cautions"]
    assert any("run was changed 3 times" in caution and "no baseline" in caution for caution in cautions)
    assert not any("plain was changed" in caution for caution in cautions)


def test_every_kind_of_change_is_drawn_on_a_plot(turned) -> None:
    run = load(turned)
    made_by_remedies = [
        Action("a1", entry, "lower-lr", step, change={"control/lr_scale": (1.0, 0.5)})
        for entry, step in (("applied", 2), ("verified", 4), ("reverted", 5))
    ]
    actions = [*made_by_remedies, *run.actions]
    marks = story(["reward/mean"], 8, float, PALETTES["light"], (), run.history.events, actions)
    told = [text.split("<br>")[0] for text in marks.points["text"]]
    wanted = [
        "applied</b> lower-lr at step 2", "verified</b> lower-lr", "reverted</b> lower-lr",
        "applied</b> by-hand at step 3", "reverted</b> by-hand at step 6", "intervention</b> at step 4",
    ]  # fmt: skip
    assert [words for words in wanted if not any(words in line for line in told)] == []


def test_a_run_nobody_touched_says_nothing_of_it(tmp_path, capsys) -> None:
    list(start(tmp_path / "run", 3).run())
    main(["diagnose", str(tmp_path / "run"), "--fail-on", "never"])
    assert "Intervened" not in capsys.readouterr().out
    assert main(["runs", str(tmp_path)]) == 0 and "×" not in capsys.readouterr().out


def test_a_request_left_while_nobody_trained_is_heeded_after_the_restart(tmp_path) -> None:
    session = start(tmp_path / "run")
    for tick in session.run():
        if tick.step == 2:
            session.stop_reason = "SIGTERM"
    ask(tmp_path / "run", "set", "prompts=3")
    list(Session.resume(tmp_path / "run").run())
    assert list(RunReader(tmp_path / "run").history.view().series("control/prompts").values) == [2, 2, 2, 3, 3, 3]


def test_a_request_that_was_acted_on_and_not_taken_away_is_not_heeded_again(tmp_path) -> None:
    path = tmp_path / "run"
    session = start(path)
    for tick in session.run():
        if tick.step == 1:
            asked = ask(path, "do", "reset-optimizer")
            kept = (path / "requests" / f"{asked.id}.json").read_bytes()
        if tick.step == 3:
            session.stop_reason = "SIGTERM"
    (path / "requests" / f"{asked.id}.json").write_bytes(kept)  # as if it had died before taking it away
    list(Session.resume(path).run())
    assert entries(path) == [("h1", "approved", 2), ("h1", "applied", 2)]
    assert not list((path / "requests").iterdir())


def proposed(session: Session, name: str = "a1") -> Action:
    return session.host.journal(
        Action(name, "proposed", "lower-lr", session.trainer.step, 1, change={"control/lr_scale": (1.0, 0.5)})
    )


def test_an_approval_left_over_a_restart_is_answered_and_acts_on_nothing_else(tmp_path) -> None:
    """The proposal it answers ended with the old process; what is proposed anew is another question."""
    path = tmp_path / "run"
    session = start(path, mode="approve")
    for tick in session.run():
        if tick.step == 2:
            asked = proposed(session)
            session.stop_reason = "SIGTERM"
    ask(path, "approve", "a1", by="ada", proposal=asked.hash)
    list(Session.resume(path, "approve").run())
    assert [entry for name, entry, _ in entries(path) if name == "a1"] == ["proposed", "expired"]
    assert "request to approve a1 by ada: it has expired: the run was restarted" in said(path)
    assert not any(entry == "applied" for _, entry, _ in entries(path))
    assert not list((path / "requests").iterdir())


def test_an_answer_to_another_proposal_of_the_same_name_is_refused(tmp_path) -> None:
    path = tmp_path / "run"
    session = start(path, 4, "approve")
    for tick in session.run():
        if tick.step == 1:
            proposed(session)
            ask(path, "approve", "a1", by="ada", proposal="0" * 64)
    assert "request to approve a1 by ada: it answers another proposal" in said(path)


def test_an_approval_the_policy_has_not_heeded_yet_stays_for_the_next_process(tmp_path) -> None:
    path = tmp_path / "run"
    session = start(path, 5, "approve")
    session.arbiter.tick = lambda view, requests=(): None  # it waits for another trial to end
    for tick in session.run():
        if tick.step == 1:
            proposed(session)
            ask(path, "approve", "a1")
            ask(path, "reject", "a9")
        if tick.step == 3:
            assert len(list((path / "requests").iterdir())) == 1, "the approval waits, the rest is settled"


def test_what_lies_in_the_folder_and_is_no_request_is_told_once(tmp_path) -> None:
    path = tmp_path / "run"
    session = start(path, 4)
    (path / "requests").mkdir()
    (path / "requests/rubbish.json").write_text("{")
    (path / "requests/link.json").symlink_to("/etc/passwd")
    list(session.run())
    assert said(path).count("requests/rubbish.json is ignored: no request") == 1
    assert said(path).count("requests/link.json is ignored: a symbolic link") == 1


BAD_REQUESTS = {
    "deep-object.json": f'{{"kind": "set", "action": {nested(990)}, "by": "x", "t": 1}}',
    "deep-list.json": nested(990, "list"),
    "deeper.json": nested(5_000),
    "kind-is-a-list.json": '{"kind": ["pause"], "action": "", "by": "x", "t": 1}',
    "action-is-an-object.json": '{"kind": "set", "action": {"prompts": 3}, "by": "x", "t": 1}',
    "by-is-a-number.json": '{"kind": "pause", "action": "", "by": 7, "t": 1}',
    "t-is-text.json": '{"kind": "pause", "action": "", "by": "x", "t": "nan"}',
    "t-is-true.json": '{"kind": "pause", "action": "", "by": "x", "t": true}',
    "no-time.json": '{"kind": "pause", "action": "", "by": "x"}',
    "list.json": '["pause"]', "null.json": "null", "empty.json": "", "binary.json": "\0" * 100,
}  # fmt: skip


def test_a_bad_request_costs_only_itself(tmp_path) -> None:
    path = tmp_path / "run"
    session = start(path, 6)
    folder = path / "requests"
    for tick in session.run():
        if tick.step == 1:
            folder.mkdir()
            for name, text in BAD_REQUESTS.items():
                (folder / name).write_text(text)
            (folder / "folder.json").mkdir()
            with open(folder / "huge.json", "wb") as file:
                file.truncate(4 << 30)
            ask(path, "set", "prompts=3", by="ada")
    reader, told = RunReader(path), said(path)
    assert "monitor failed" not in told and reader.history.view().latest("batch/prompts") == 3
    for name in (*BAD_REQUESTS, "folder.json", "huge.json"):
        assert told.count(f"requests/{name} is ignored: ") == 1, name
    assert "folder.json is ignored: not a plain file" in told
    assert "huge.json is ignored: larger than 65536 bytes" in told
    assert "deep-list.json is ignored: no request: nested more than 100 levels deep" in told
    assert {file.name for file in folder.iterdir()} == {*BAD_REQUESTS, "folder.json", "huge.json"}


def test_a_flood_of_files_delays_a_request_by_a_few_looks_only(tmp_path) -> None:
    (tmp_path / "requests").mkdir()
    for number in range(5 * MAX_OPENED):
        (tmp_path / "requests" / f"{number:032x}.json").touch()
    asked, known = ask(tmp_path, "pause"), set()
    for _ in range(6):
        seen = look(tmp_path, known)
        assert len(seen.refused) <= MAX_OPENED
        known |= seen.refused.keys()
        if seen.requests:
            break
    assert [request.id for request in seen.requests] == [asked.id]


def test_of_many_requests_so_many_are_taken_at_once(tmp_path) -> None:
    asked = {ask(tmp_path, "pause").id for _ in range(MAX_TAKEN + 5)}
    first = look(tmp_path).requests
    for request in first:
        settle(tmp_path, request)
    assert len(first) == MAX_TAKEN and {request.id for request in (*first, *look(tmp_path).requests)} == asked


def test_a_bad_request_left_before_a_resume_costs_only_itself(tmp_path) -> None:
    path = tmp_path / "run"
    for tick in (session := start(path, 6)).run():
        if tick.step == 2:
            session.stop_reason = "SIGTERM"
    (path / "requests").mkdir()
    (path / "requests/deep.json").write_text(BAD_REQUESTS["deep-object.json"])
    ask(path, "set", "prompts=3")
    list(Session.resume(path).run())
    assert "monitor failed" not in said(path) and RunReader(path).history.view().latest("batch/prompts") == 3


def test_remedies_are_looked_after_while_requests_can_not_be_taken_in(tmp_path, monkeypatch) -> None:
    path = tmp_path / "run"
    session = start(path, 3)
    seen: list[int] = []
    monkeypatch.setattr(session.requests, "look", full_disk)
    monkeypatch.setattr(session.arbiter, "tick", lambda view, asked: seen.append(view.step))
    list(session.run())
    assert seen == [1, 2, 3] and "monitor failed: OSError" in said(path)


def test_a_knob_that_a_crash_left_elsewhere_is_put_where_the_journal_says(tmp_path) -> None:
    path = tmp_path / "run"
    session = start(path)
    for tick in session.run():
        if tick.step == 1:
            ask(path, "set", "beta=0.05")
        if tick.step == 3:
            session.trainer.controls.set("control/beta", 0.02)  # as an older checkpoint would hold it
            session.stop_reason = "SIGTERM"
    resumed = Session.resume(path)
    assert resumed.trainer.controls.get("control/beta") == 0.05
    assert "knobs reset to the journal: control/beta 0.05" in said(path)
    list(resumed.run())


def test_a_change_whose_state_can_not_be_saved_is_not_made(tmp_path, monkeypatch) -> None:
    path = tmp_path / "run"
    session = start(path, 5)
    for tick in session.run():
        if tick.step == 1:
            ask(path, "set", "prompts=3")
            monkeypatch.setattr(session.trainer, "save_checkpoint", full_disk)
        if tick.step == 3:
            monkeypatch.undo()
    assert entries(path) == [("h1", "approved", 2), ("h1", "failed", 2)]
    assert set(RunReader(path).history.view().series("control/prompts").values) == {2}


def full_disk(**_):
    raise OSError(28, "No space left on device")


def test_a_number_beyond_all_bounds_is_refused_and_holds_up_nobody(tmp_path) -> None:
    session = start(tmp_path / "run", 4)
    for tick in session.run():
        if tick.step == 1:
            ask(tmp_path / "run", "pause")
            ask(tmp_path / "run", "set", "prompts=1e999")
            ask(tmp_path / "run", "set", "prompts=6")
            ask(tmp_path / "run", "resume")
    reader = RunReader(tmp_path / "run")
    told = [event.text for event in reader.events]
    assert sum("prompts=1e999" in text and "refused" in text for text in told) == 1
    assert not any("monitor failed" in text for text in told)
    assert reader.history.view().latest("batch/prompts") == 6 and not list((tmp_path / "run/requests").iterdir())
    for value in ("inf", "-inf", "1e999", "nan"):
        with pytest.raises(ValueError, match="between 1 and 4096"):
            parse_turn(f"prompts={value}")


def test_a_request_that_fails_in_a_pause_ends_neither_the_run_nor_the_others(tmp_path, monkeypatch) -> None:
    path = tmp_path / "run"
    session = start(path, 3)

    def broken() -> None:
        raise RuntimeError("out of memory")

    for tick in session.run():
        if tick.step == 1:
            ask(path, "pause")
        if tick.step == 2:
            monkeypatch.setattr(session.trainer.controls, "reset_reference", broken)
            ask(path, "do", "reset-reference")
            ask(path, "resume")
    told = [event.text for event in RunReader(path).events]
    assert any("reset-reference" in text and "out of memory" in text for text in told)
    assert RunReader(path).status["state"] == "finished"


def test_a_request_that_can_not_be_taken_away_is_heeded_once(tmp_path, monkeypatch) -> None:
    path = tmp_path / "run"
    monkeypatch.setattr("stabilizer.live.requests.settle", lambda run, request: False)
    session = start(path, 4)
    for tick in session.run():
        if tick.step == 1:
            ask(path, "set", "prompts=0")
            (path / "requests" / ".json").write_text('{"kind": "set", "action": "prompts=0", "t": 1}')
    assert sum("refused" in event.text for event in RunReader(path).events) == 1
