"""W&B's own file, whole, torn and damaged."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load
from tests.trainers.event_files import part, varint

SAMPLE = Path(__file__).parent / "tool_samples" / "run-small.wandb"


def records(messages: list[bytes]) -> bytes:
    """A `.wandb` file: LevelDB's log format, 32 KiB blocks, a message in pieces where it does not fit."""
    out = b":W&B\xe1\xbe\x00"
    for message in messages:
        first = True
        while message or first:
            left = 32768 - len(out) % 32768
            if left < 7:
                out += b"\0" * left
                continue
            piece, message = message[: left - 7], message[left - 7 :]
            kind = (1 if first else 4) if not message else (2 if first else 3)
            out += struct.pack("<IHB", zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind) + piece
            first = False
    return out


def history(step: int, **values: str) -> bytes:
    """One call of log() with values as JSON text."""
    items = [part(1, part(1, key.encode()) + part(16, text.encode())) for key, text in values.items()]
    return part(2, b"".join(items) + part(2, b"\x08" + varint(step)))


def test_a_file_of_wandb_is_read_with_its_configuration_and_the_trainers_own_steps() -> None:
    run = load(SAMPLE)
    assert (run.name, run.source.format, run.source.trainer) == ("small", "wandb", "trl")
    rewards = run.history.view().series("reward/mean")
    assert rewards.steps.tolist() == list(range(5, 65, 5))  # train/global_step, not W&B's count of calls, 1, 3, 5 ...
    assert rewards.values == pytest.approx([0.4 + step / 100 for step in range(1, 13)])
    assert np.isnan(run.history.view().series("policy/loss").values).tolist() == [k == 2 for k in range(12)]
    assert run.history.about["config"] == {"beta": 0.04, "learning_rate": 1e-6}


def test_a_run_folder_and_a_wandb_folder_are_read_as_their_file(tmp_path: Path) -> None:
    folder = tmp_path / "wandb" / "offline-run-20260101_000000-abcd"
    folder.mkdir(parents=True)
    (folder / "run-abcd.wandb").write_bytes(SAMPLE.read_bytes())
    for path in (folder, tmp_path / "wandb", tmp_path):
        assert load(path).source.steps >= 12


def test_records_longer_than_a_block_are_joined(tmp_path: Path) -> None:
    long = {f"m{k}": str(float(k)) for k in range(5_000)}
    path = tmp_path / "x.wandb"
    path.write_bytes(records([history(s, reward="0.5", **long) for s in range(3)]))
    run = load(path)
    assert run.history.view().series("reward/mean").steps.tolist() == [0, 1, 2]
    assert run.history.view().latest("m4999") == 4999.0


def test_every_truncation_gives_a_prefix_or_a_message(tmp_path: Path) -> None:
    data, path = SAMPLE.read_bytes(), tmp_path / "cut.wandb"
    whole = load(SAMPLE).history.view().series("reward/mean").values.tolist()
    lengths = set()
    for cut in range(4, len(data), 97):
        path.write_bytes(data[:cut])
        try:
            values = load(path).history.view().series("reward/mean").values.tolist()
        except RunError as error:
            assert "cut.wandb" in str(error)
            continue
        assert values == whole[: len(values)]
        lengths.add(len(values))
    assert len(lengths) > 5


def test_a_damaged_record_loses_its_block_and_is_counted(tmp_path: Path) -> None:
    messages = [history(s, reward=f"{s / 100}", pad='"' + "x" * 300 + '"') for s in range(400)]
    data = bytearray(records(messages))
    data[40_000] ^= 0xFF  # in the second block of 32,768 bytes
    path = tmp_path / "x.wandb"
    path.write_bytes(bytes(data))
    run = load(path)
    steps = run.history.view().series("reward/mean").steps.tolist()
    assert run.source.skipped_lines == 1 and steps[0] == 0 and steps[-1] == 399 and 280 < len(steps) < 400


def test_typed_values_are_read_like_those_in_json(tmp_path: Path) -> None:
    typed = part(1, part(1, b"reward") + varint(6 << 3 | 1) + struct.pack("<d", 0.25))
    whole = part(1, part(1, b"accuracy") + varint(5 << 3) + varint(1))
    path = tmp_path / "x.wandb"
    path.write_bytes(records([part(2, typed + whole + part(2, b"\x08" + varint(s))) for s in (1, 2)]))
    view = load(path).history.view()
    assert view.latest("reward/mean") == 0.25 and view.latest("accuracy/train") == 1.0


def test_a_file_without_history_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.wandb").write_bytes(records([part(17, part(1, b"abcd"))]))
    with pytest.raises(RunError, match="no history"):
        load(tmp_path / "x.wandb")
