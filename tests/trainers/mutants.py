"""Good logs of every format, and what can happen to one on its way: bits flip, lines go, numbers become nonsense.

Everything follows from a seed, so a sample that breaks a reader can be made again: `mutant(reader, number)`.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import ModuleType

from stabilizer.runs.writer import RunWriter
from stabilizer.trainers.reading import load
from stabilizer.trainers.stabilizer import log as own
from tests.trainers.test_bad_input import GOOD, OTHERS
from tests.trainers.test_mlflow_db import base
from tests.trainers.test_trackers import mlflow_run, trackio_base

HERE = Path(__file__).parent
NUMBERS = (
    b"NaN", b"nan", b"-inf", b"Infinity", b"1e999", b"-0", b"0x1F", b"1_000", b"1,5", b"9" * 400, b"1e-400", b"null",
    b"true",
    b'""', b'"high"', b"[]", b"{}", b"[1, 2]", b'{"a": {"b": 1}}', b"", b"18446744073709551616", b"-1", b"3.0000000001",
    b"\xff\xfe", "١".encode(), b"%", b"(", b"'",
)  # fmt: skip
"""What may stand where a number stood."""
TEXTS = (b"\n", b"\r", b"\r\n", b"\0", b"\x1b[31m", b"\xc3", b"\xef\xbb\xbf", b'"', b"'", b"{", b"}", b"]", b",",
         b":", b"Traceback (most recent call last):\n", b"ValueError: x\n", "\u202e".encode(), b"(pid=1) ",
         b"|" * 50)  # fmt: skip
"""What may be put anywhere."""

Files = dict[str, bytes]
"""A log by the paths of its files; one whose only path is a name is a file, the others are folders."""


@cache
def seeds() -> dict[str, list[Files]]:
    """Good logs by the format they are recognised as: all samples of this folder, and some made here."""
    found: dict[str, list[Files]] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        made = [_written(root / f"{place}", {file: raw}) for place, (file, raw) in enumerate(OTHERS.items())]
        made.append(_written(root / "trl", {"trainer_state.json": GOOD.encode()}))
        mlflow_run(root / "mlflow")
        made += [root / "mlflow", trackio_base(root / "base.db", {"one": 12, "two": 3}), _own(root / "own")]
        made += [base(root / "mlflow.db", {"a": 6, "b": 2}), HERE / "tool_samples" / "trl-1.16" / "completions"]
        for path in (*sorted((HERE / "samples").iterdir()), *sorted((HERE / "tool_samples").iterdir()), *made):
            if path.suffix not in (".md", ".py"):
                found.setdefault(load(path).source.format, []).append(_files(path))
    return found


def mutant(reader: ModuleType, number: int, where: Path) -> Path:
    """Sample `number` of a reader's damaged logs, written below `where`: a good log with one to six things wrong.

    Where no sample is of a reader's format, it is given those of the others.
    """
    good, harmed = damaged(reader, number)
    return _written(where, good | harmed)


def damaged(reader: ModuleType, number: int) -> tuple[Files, Files]:
    """A good log, and those of its files that sample `number` of a reader's damaged logs has otherwise."""
    rng = random.Random(f"{reader.name} {number}")
    known = seeds()
    good = rng.choice(known.get(reader.name) or [log for logs in known.values() for log in logs])
    harmed: Files = {}
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        name = rng.choice(sorted(good))
        harmed[name] = rng.choice(CHANGES)(harmed.get(name, good[name]), rng)
    return good, harmed


class Bench:
    """Good logs that lie below a folder, to be damaged one after another: only what changes is written."""

    def __init__(self, where: Path):
        self.where = where
        self._places: dict[int, Path] = {}
        self._undo: Callable[[], None] = lambda: None

    def mutant(self, reader: ModuleType, number: int) -> Path:
        """The same log as `mutant` writes; it lasts until the next one is asked for."""
        self._undo()
        good, harmed = damaged(reader, number)
        if id(good) not in self._places:
            self._places[id(good)] = _written(self.where / f"{len(self._places)}", good)
        path = self._places[id(good)]
        folder = path.parent
        put(folder, harmed)
        self._undo = partial(put, folder, {name: good[name] for name in harmed})
        return path


def put(folder: Path, files: Files) -> None:
    """Write files below a folder."""
    for name, raw in files.items():
        (folder / name).write_bytes(raw)


# --- changes ---------------------------------------------------------------------------------------------------------


def _flip(raw: bytes, rng: random.Random) -> bytes:
    data = bytearray(raw)
    for _ in range(rng.randint(1, 8)):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _cut(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def _hole(raw: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(raw) + 1)
    return raw[:place] + raw[place + rng.choice((1, 4, 40, 400)) :]


def _insert(raw: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(raw) + 1)
    return raw[:place] + rng.choice((rng.choice(TEXTS), rng.randbytes(rng.randint(1, 20)))) + raw[place:]


def _lines(raw: bytes, rng: random.Random) -> bytes:
    """A line moved, repeated or gone."""
    lines = raw.split(b"\n")
    line = lines.pop(rng.randrange(len(lines)))
    for _ in range(rng.choice((0, 1, 1, 2, 30))):
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def _number(raw: bytes, rng: random.Random) -> bytes:
    """A number, as far as digits show one, replaced."""
    places = [digit.start() for digit in re.finditer(rb"[0-9]", raw)]
    if not places:
        return raw
    start = end = rng.choice(places)
    while start and raw[start - 1 : start] in _OF_NUMBERS:
        start -= 1
    while end < len(raw) and raw[end : end + 1] in _OF_NUMBERS:
        end += 1
    return raw[:start] + rng.choice(NUMBERS) + raw[end:]


def _word(raw: bytes, rng: random.Random) -> bytes:
    """A name or a key exchanged for another of the same file."""
    words = sorted(set(raw.replace(b'"', b" ").replace(b"'", b" ").replace(b":", b" ").replace(b",", b" ").split()))
    return raw.replace(rng.choice(words), rng.choice(words), rng.choice((1, -1))) if words else raw


_OF_NUMBERS = {bytes([byte]) for byte in b"0123456789.eE+-"}
CHANGES = (_flip, _cut, _hole, _insert, _lines, _number, _number, _number, _word)


# --- files -----------------------------------------------------------------------------------------------------------


def _files(path: Path) -> Files:
    if path.is_file():
        return {path.name: path.read_bytes()}
    return {f"log/{file.relative_to(path)}": file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def _written(where: Path, files: Files) -> Path:
    shutil.rmtree(where, ignore_errors=True)
    for name, raw in files.items():
        file = where / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(raw)
    name = next(iter(files))
    return where / name.partition("/")[0]


def _own(path: Path) -> Path:
    """A small run of ours: what its own reader must survive."""
    writer = RunWriter.create(path, config={"policy": {"beta": 0.0}})
    for step in range(1, 13):
        writer.metrics(step, {"reward/mean": step / 20, "policy/loss": float("nan") if step == 3 else 0.1})
    writer.event(6, "note", "half of it")
    writer.begin_attempt(8, "rollback")
    writer.metrics(8, {"reward/mean": 0.5})
    writer.close()
    assert json.loads((path / "run.json").read_text()) and own.recognises(path)
    return path
