"""How long reading takes, and what it takes of memory, with other readers of the same file beside it.

1M points are 100 metrics x 10,000 steps. Each file is written anew and read in turns: ours, the other, ours again.
Seconds are those of the processor (every reader here has one thread), the best of three, so that a busy machine changes
little; of whole processes they are those of the clock. `times` says how many times as long as ours the other takes
(below 1: it is faster). orjson alone only makes Python objects of the text. TensorBoard's EventAccumulator and tbparse
are compared with "event file into columns", which yields what they do: the steps and values of each tag; a run is more
than that. They read in an environment of their own, once, because they are slow; its making is no part of the time.
`peak MB` is that of a whole process that reads the file. `diagnose` is the command from its start to its answer,
interpreter included.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench.environment import CACHE, install, python_of, says_yes
from stabilizer.formats import tensorboard
from stabilizer.formats.event_frames import masked_crc
from stabilizer.runs.reader import RunReader
from stabilizer.runs.writer import RunWriter
from stabilizer.trainers.trl import state

PEERS = ("tensorboard==2.20.0", "tbparse==0.0.9", "setuptools<81")
METRICS = 100

Row = dict[str, Any]


def measure(*, seed: int = 0, quick: bool = False) -> list[Row]:
    """A row per reader; the target stands beside what was measured."""
    steps = 1_000 if quick else 10_000
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [*_own(folder, steps, rng), *_state(folder, steps, rng), *_events(folder, steps, rng)]
        return [*rows, _memory(folder, 10 * steps, rng), *_diagnose(folder, rng)]


def _row(what: str, points: int, seconds: float | None = None, target: str = "", **more: float) -> Row:
    return {
        "what": what,
        "points": points,
        "seconds": seconds,
        "times": None,
        "peak MB": None,
        "target": target,
        **more,
    }


# --- what is read -----------------------------------------------------------------------------------------------------


def _own(folder: Path, steps: int, rng: np.random.Generator) -> list[Row]:
    path = _run(folder / "run", steps, rng)
    lines = path / "metrics" / "r0-a0.jsonl"
    ours, floor = _in_turns(lambda: RunReader(path), lambda: _loads(lines))
    return [
        _row("run directory into columns", steps * METRICS, ours, "0.6 s"),
        _row("... orjson alone on its lines", steps * METRICS, floor, times=floor / ours),
    ]


def _run(path: Path, steps: int, rng: np.random.Generator) -> Path:
    writer = RunWriter.create(path, config={})
    names = [f"trl/metric_{place}" for place in range(METRICS)]
    for step in range(1, steps + 1):
        writer.metrics(step, dict(zip(names, rng.normal(size=METRICS).tolist(), strict=True)))
    writer.close()
    return path


def _loads(lines: Path) -> None:
    for line in lines.read_bytes().splitlines():
        orjson.loads(line)


def _state(folder: Path, steps: int, rng: np.random.Generator) -> list[Row]:
    """A trainer_state.json, all of whose records are as wide as the run directory's."""
    names = ["reward", "kl", "loss", "grad_norm", *(f"rewards/part_{place}/mean" for place in range(METRICS - 4))]
    rows = [
        {**dict(zip(names, rng.random(METRICS).tolist(), strict=True)), "step": step} for step in range(1, steps + 1)
    ]
    file = folder / "trainer_state.json"
    file.write_bytes(orjson.dumps({"global_step": steps, "log_history": rows}))
    ours, floor = _in_turns(lambda: state.read(file, mapping={}, config=None), lambda: orjson.loads(file.read_bytes()))
    return [
        _row("TRL's trainer_state.json as a run", steps * METRICS, ours, "2 s"),
        _row("... orjson alone", steps * METRICS, floor, times=floor / ours),
    ]


def _events(folder: Path, steps: int, rng: np.random.Generator) -> list[Row]:
    """An event file with one event a value, as PyTorch's SummaryWriter writes it."""
    file = folder / "events.out.tfevents.1700000000.bench"
    with file.open("wb") as out:
        for step in range(1, steps + 1):
            for place, value in enumerate(rng.normal(size=METRICS).tolist()):
                out.write(_event(step, f"train/metric_{place}".encode(), value))
    ours, whole = _in_turns(lambda: tensorboard.columns(file), lambda: tensorboard.read(file, mapping={}, config=None))
    points = steps * METRICS
    rows = [_row("event file into columns", points, ours, "1.5 s"), _row("event file as a run", points, whole)]
    python, problem = _peers()
    for name, code in () if problem else _PEERS.items():
        seconds = float(_output([python, "-c", _CLOCK + code, str(file)]))
        target = "35 x ours" if "EventAccumulator" in name else ""
        rows.append(_row(f"... {name}", points, seconds, target, times=seconds / ours))
    return rows if not problem else [*rows, _row(f"... EventAccumulator and tbparse: {problem}", points)]


def _memory(folder: Path, steps: int, rng: np.random.Generator) -> Row:
    """Peak of a process that reads a run directory of ten times the size."""
    path = _run(folder / "large", steps, rng)
    seconds, peak = json.loads(_output([sys.executable, "-c", _PEAK, str(path)]))
    return _row("run directory into columns, a process", steps * METRICS, seconds, "500 MB", **{"peak MB": peak})


def _diagnose(folder: Path, rng: np.random.Generator) -> list[Row]:
    """The whole command on a log of 1,000 steps with the metrics TRL's GRPO logs, beside an interpreter that only
    imports numpy."""
    names = ("kl", "loss", "grad_norm", "entropy", "reward_std", "step_time", "clip_ratio/region_mean")
    level = 0.3 + 0.2 * rng.random(1000).cumsum() / 500
    rows = [
        {"step": place + 1, "reward": float(reward), "learning_rate": 1e-6, "frac_reward_zero_std": 0.1}
        | {"completions/mean_length": 200 + float(rng.normal())}
        | {name: 0.05 + 0.01 * float(rng.random()) for name in names}
        for place, reward in enumerate(level + rng.normal(0, 0.03, 1000))
    ]
    file = folder / "log" / "trainer_state.json"
    file.parent.mkdir()
    file.write_bytes(orjson.dumps({"global_step": 1000, "log_history": rows}))
    command = [sys.executable, "-m", "stabilizer", "diagnose", "--fail-on", "never", str(file)]
    bare = [sys.executable, "-c", "import numpy; print()"]
    whole, least = _in_turns(lambda: _output(command), lambda: _output(bare), clock=time.perf_counter)
    return [
        _row("stabilizer diagnose of 1,000 steps, start-up included", len(rows) * len(rows[0]), whole, "1.5 s"),
        _row("... Python that imports numpy and ends", 0, least, times=least / whole),
    ]


# --- how it is timed --------------------------------------------------------------------------------------------------


def _in_turns(*jobs: Callable[[], object], clock: Callable[[], float] = time.process_time) -> list[float]:
    """Seconds of each, the best of three rounds."""
    rounds = [[_timed(job, clock) for job in jobs] for _ in range(3)]
    return [min(times) for times in zip(*rounds, strict=True)]


def _timed(job: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    job()
    return clock() - began


def _output(words: list[Any]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1]  # noqa: S603


_PEAK = """
import json, resource, sys, time
from pathlib import Path
from stabilizer.runs.reader import RunReader
began = time.perf_counter()
run = RunReader(Path(sys.argv[1]))
took = time.perf_counter() - began
unit = 2**20 if sys.platform == "darwin" else 2**10
print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit]))
"""
_CLOCK = "import sys, time\npath = sys.argv[1]\n"
_PEERS = {
    "TensorBoard's EventAccumulator": """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
began = time.process_time()
EventAccumulator(path, {"scalars": 0}).Reload()
print(time.process_time() - began)
""",
    "tbparse": """
from tbparse import SummaryReader
began = time.process_time()
SummaryReader(path).scalars
print(time.process_time() - began)
""",
}


def _peers() -> tuple[Path, str]:
    """The Python of an environment with the other readers, made once, and what went wrong with that."""
    folder = CACHE / f"readers-{'-'.join(PEERS[:2])}".replace("==", "-")
    python = python_of(folder)
    if says_yes(python, "import tensorboard, tbparse"):
        return python, ""
    print(f"making {folder} with {', '.join(PEERS)} (once)", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    return python, install(python, *PEERS) or ""


def _event(step: int, tag: bytes, value: float) -> bytes:
    """One scalar in its frame; the event's own checksum is right as well, since other readers verify it."""
    number = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(number)]) + number
    steps = bytes([0x80 | (step >> 7 * k & 0x7F) for k in range(3)]) + bytes([step >> 21 & 0x7F])
    event = b"\x09" + struct.pack("<d", 1.7e9 + step) + b"\x10" + steps + b"\x2a" + bytes([len(summary)]) + summary
    length = struct.pack("<Q", len(event))
    return length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event))
