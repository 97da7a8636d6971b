"""Reading on where the last look stopped: at every moment the same run as reading the whole."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from stabilizer.formats.console import ConsoleParser
from stabilizer.formats.tailing import Tails
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load
from stabilizer.trainers.verl import console

SAMPLES = Path(__file__).parent / "samples"
FOLDERS = SAMPLES, SAMPLES.parent / "tool_samples"
LOGS = sorted(path for folder in FOLDERS for path in folder.rglob("*") if path.suffix in (".log", ".jsonl"))
FAILURE = 'Traceback (most recent call last):\n  File "verl/a.py", line 3, in f\nValueError: no\nValueError: yes\n'


def told(path: Path) -> object:
    """All of a run that can be compared, or what is said in its place."""
    try:
        run = load(path)
    except RunError as error:
        return str(error)
    held = {
        (attempt, name): [array.tolist() for array in history.view().series(name)]
        for attempt, history in run.histories.items()
        for name in history.names()
    }
    events = [history.events for history in run.histories.values()]
    return repr((run.source, run.ticks, held, events, dict(run.history.about)))


def write(path: Path, raw: bytes) -> None:
    with path.open("ab") as file:
        file.write(raw)


@pytest.mark.parametrize("sample", LOGS, ids=lambda path: str(path.relative_to(SAMPLES.parent)))
def test_a_log_read_in_pieces_is_the_log_read_whole(sample: Path, tmp_path: Path) -> None:
    rng = random.Random(sample.name)
    raw = sample.read_bytes()
    half = raw.rfind(b"\n", 0, len(raw) // 2) + 1
    whole = raw[:half] + FAILURE.encode() + raw[half:] + FAILURE.encode()[:-1]
    path, tails = tmp_path / sample.name, Tails()
    cuts = sorted({rng.randrange(len(whole)) for _ in range(12)} | {len(whole)})
    for first, last in zip([0, *cuts], cuts, strict=False):
        write(path, whole[first:last])
        with tails:
            read_on = told(path)
        assert read_on == told(path), f"after byte {last}"


@pytest.mark.parametrize("text", ["\ufeff{}", "\r\n", "é€\n", "\x1b[36m(main pid=3)\x1b[0m "])
def test_marks_line_ends_and_letters_of_several_bytes_may_be_cut_anywhere(text: str, tmp_path: Path) -> None:
    raw = "".join(
        f'{text if place % 3 else ""}{{"step": {place}, "reward": 0.5, "é": 1}}\n' for place in range(6)
    ).encode()
    raw = text.encode().removesuffix(b"{}") + raw
    path, tails = tmp_path / "log.jsonl", Tails()
    for place in range(0, len(raw), 3):
        write(path, raw[place : place + 3])
        with tails:
            read_on = told(path)
        assert read_on == told(path), place


def test_lines_that_were_read_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, tails, seen = tmp_path / "train.log", Tails(), []
    parse = console._Parser.see
    monkeypatch.setattr(console._Parser, "see", lambda self, line: (seen.append(line.number), parse(self, line)))
    for step in range(1, 30):
        write(path, f"step:{step} - actor/pg_loss:0.1 - critic/score/mean:0.5\n".encode())
        with tails:
            assert load(path).source.steps == step
    assert seen == list(range(1, 30))


@pytest.mark.parametrize("how", ["rotated", "cut", "cut and longer than before", "written over"])
def test_a_log_whose_beginning_changed_is_read_from_its_beginning(how: str, tmp_path: Path) -> None:
    path, tails = tmp_path / "train.log", Tails()
    line = "step:{} - actor/pg_loss:{:.3f} - critic/score/mean:0.500\n"
    path.write_text("".join(line.format(step, 0.1) for step in range(1, 20)))
    with tails:
        load(path)
    if how == "rotated":
        path.rename(tmp_path / "train.log.1")
    rows = {"rotated": 19, "cut": 5, "cut and longer than before": 40, "written over": 19}[how]
    path.write_text("".join(line.format(step, 0.2) for step in range(1, rows + 1)))
    with tails:
        read_on = told(path)
    assert read_on == told(path) and load(path).source.steps == rows


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
def test_a_log_that_cannot_be_continued_is_read_again(encoding: str, tmp_path: Path) -> None:
    path, tails = tmp_path / "train.log", Tails()
    lines = [f"step:{step} - actor/pg_loss:0.1 - critic/score/mean:0.5\n" for step in range(1, 9)]
    if encoding == "utf-8":  # the console as a service keeps it
        lines = [
            f'{"[" if place == 0 else ","}{{"stream_name": "stdout", "data": "{line[:-1]}\\n"}}\n'
            for place, line in enumerate(lines)
        ]
    for place in range(1, 9):
        path.write_text("".join(lines[:place]), encoding=encoding)
        with tails:
            read_on = told(path)
            assert load(path).source.steps == place
        assert read_on == told(path)


def test_a_file_removed_between_reads_gives_a_message(tmp_path: Path) -> None:
    path, tails = tmp_path / "train.log", Tails()
    path.write_text("step:1 - actor/pg_loss:0.1 - critic/score/mean:0.5\n")
    with tails:
        load(path)
    os.remove(path)
    with tails, pytest.raises(RunError, match="no such file"):
        load(path)


def test_asking_a_parser_changes_nothing() -> None:
    parser = ConsoleParser()
    assert parser.ended() == parser.ended() == ([], [])
    assert np.array_equal(parser.fork().ended()[0], [])
