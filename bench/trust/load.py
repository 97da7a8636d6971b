"""Long runs and hostile input: memory, pauses, and the time that any text may take."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench import read
from bench.trust.row import Attack, Effort, Measured
from stabilizer.analysis.watching import new_watch
from stabilizer.configs.config import ConfigError
from stabilizer.formats import tensorboard
from stabilizer.live.follow import FollowedRun
from stabilizer.runs.history import History
from stabilizer.runs.reader import RunError, RunReader
from stabilizer.runs.writer import RunWriter

SOAK_S = 1500.0
"""Most seconds of the soak of a million rows."""
PAUSES_S = 300.0
"""Seconds of the search for pauses, in which the watch sees every row."""
MUTANTS_S = 1500.0
"""Most seconds of the full search among damaged logs; each processor searches."""
WARM = 1_000
"""Rows before pauses are measured: signals and caches fill up."""
MILLION = 1_000_000
FULL = 10_000
"""Rows before memory is measured: what is kept of the newest rows is full."""
SELDOM = 20
"""The soak that measures memory shows every so manieth row to the watch: signals still take in all of them."""
MOST_MB = 50
"""Megabytes that a million rows may add."""
LONGEST_PAUSE_S = 0.25
ROW_S = 0.0003
"""Processor time that writing a row of 100 metrics may take."""
MILLION_S = 1.0
"""Processor time that reading a million numbers of a run directory may take."""
EVENTS_S = 5.0
"""The same for an event file with one event a number: 200,000 numbers a second."""
SECONDS_A_MB = 2.0
"""Processor time that a reader may take for a megabyte."""
SUSPECT_S = 0.1
"""Seconds for a damaged log, of at most some 100 kB, after which it is read again and its processor time measured."""
LONGEST_BOMB_S = 20.0
"""Processor time for one bomb of at most 48 MB."""
MOST_READ_MB = 1024
"""Memory that reading one of these logs may take."""
METRICS = (
    "reward/mean", "reward/std_group", "policy/entropy", "policy/kl_ref", "policy/kl_old", "policy/clip_frac",
    "optim/grad_norm", "optim/lr", "optim/update_ratio", "policy/loss", "rollout/length_mean",
    "rollout/truncated_frac", "accuracy/train", "time/step_s", "reward/zero_std_frac", "tokens/total",
)  # fmt: skip


def _resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@cache
def _soak(rows: int, seed: int, most_s: float, shown: int = 1) -> tuple[int, float, float, float, float, float]:
    """Rows of a healthy run through writer, history and watch, with a follower that looks on, in a process of its own:
    rows made within the time, MB grown and those that each row of the second half added, the longest pause, and what a
    row costs at the end and at the beginning, in seconds. Every `shown`-th row is shown to the watch."""
    code = f"from bench.trust.load import soaked; soaked({rows}, {seed}, {most_s}, {shown})"
    made, grown, slope, pause, late, early = map(float, _python(code, timeout=2 * most_s + 60).split())
    return int(made), grown, slope, pause, late, early


def pauses(effort: Effort) -> Measured:
    rows, _, _, pause, late, early = _soak(effort.times(2000, MILLION), effort.seed, PAUSES_S * effort.share)
    words = f"{rows:,} rows: longest pause {1e3 * pause:.0f} ms, a row {1e3 * early:.1f} ms at first and"
    return Measured(pause <= LONGEST_PAUSE_S and late < 2 * early + 0.001, f"{words} {1e3 * late:.1f} ms at last")


def memory(effort: Effort) -> Measured:
    rows, grown, slope, *_ = _soak(effort.times(2000, MILLION), effort.seed, SOAK_S * effort.share, SELDOM)
    if rows < 4 * FULL:
        return Measured(None, f"only {rows:,} rows were made in the time")
    added = grown + max(0.0, slope) * (MILLION - rows)
    words = f"{rows:,} rows of {len(METRICS)} metrics: {grown:,.0f} MB after the first {FULL:,}, at last"
    words += f" {1e6 * slope:,.0f} MB per million rows: {added:,.0f} MB at a million"
    return Measured(added <= MOST_MB, words)


def soaked(rows: int, seed: int, most_s: float, shown: int = 1) -> None:
    """One soak: prints rows, MB grown, MB a row of the second half, the longest pause, and the cost of a row late and
    early."""
    draw, longest, part = random.Random(seed), 0.0, max(1, min(1000, (rows - WARM) // 3))
    resident: list[float] = []  # MB every `FULL` rows
    early: list[float] = []
    late: deque[float] = deque(maxlen=part)  # a list of all costs would be growth of its own
    with tempfile.TemporaryDirectory() as name:
        writer = RunWriter.create(Path(name) / "run", config={}, task="soak", steps=rows)
        history, watch = History(writer.about, spills=True), new_watch()
        follower = FollowedRun(Path(name) / "run")
        until = time.monotonic() + most_s
        for step in range(1, rows + 1):
            if step > 2 * WARM and time.monotonic() > until:
                break
            values = {metric: 1 + 0.05 * draw.gauss(0, 1) for metric in METRICS}
            began = time.perf_counter()
            writer.metrics(step, values)
            writer.status("running", step)
            history.append(step, values)
            if step % shown == 0 and (changed := watch.tick(history.view())):
                writer.finding(*changed)
            cost = time.perf_counter() - began
            if step > WARM:
                longest = max(longest, cost)
                late.append(cost)
                early += [cost] if len(early) < part else []
            if step % 100 == 0:
                follower.look()
            if step % FULL == 0:
                resident.append(_resident() / 1e6)
        writer.close()
    grown = resident[-1] - resident[0] if resident else 0.0
    half = np.array(resident[len(resident) // 2 :])
    slope = float(np.polyfit(FULL * np.arange(len(half)), half, 1)[0]) if len(half) > 1 else 0.0
    print(history.step, grown, slope, longest, sum(late) / len(late), sum(early) / len(early))


def writing(effort: Effort) -> Measured:
    """The median row, in processor time of the process: its thread that writes is included."""
    writer = RunWriter.create(effort.folder / "run", config={}, task="attack")
    values, costs = {f"optim/metric_{number}": number / 7 for number in range(100)}, []
    for step in range(effort.times(500, 5000)):
        began = time.process_time()
        writer.metrics(step, values)
        costs.append(time.process_time() - began)
    writer.close()
    cost = sorted(costs)[len(costs) // 2]
    return Measured(
        cost <= ROW_S, f"{len(costs):,} rows of {len(values)} metrics: the median takes {1e3 * cost:.2f} ms"
    )


def reading(effort: Effort) -> Measured:
    """Processor seconds for a run directory and for an event file, the better of two."""
    steps = effort.times(500, 10_000)
    rng, points = np.random.default_rng(effort.seed), steps * read.METRICS
    path, events = read._run(effort.folder / "run", steps, rng), effort.folder / "events.out.tfevents.1.attack"
    with events.open("wb") as out:
        for step in range(1, steps + 1):
            for place, value in enumerate(rng.normal(size=read.METRICS).tolist()):
                out.write(read._event(step, f"train/metric_{place}".encode(), value))
    spent = []
    for job in (lambda: RunReader(path), lambda: tensorboard.columns(events)):
        times = []
        for _ in range(2):
            began = time.process_time()
            job()
            times.append(time.process_time() - began)
        spent.append(1e6 * min(times) / points)
    words = f"{points:,} numbers: {spent[0]:.2f} s per million from a run, {spent[1]:.2f} s from an event file"
    return Measured(spent[0] <= MILLION_S and spent[1] <= EVENTS_S, words)


def slow_inputs(effort: Effort) -> Measured:
    from tests.trainers.test_linear import INPUTS

    names = sorted(INPUTS)[: 2 if effort.quick else None]
    for name in names:
        (effort.folder / name).write_text(INPUTS[name])
    spent, peak = _read_apart([effort.folder / name for name in names])
    rates = {name: spent[name] / max((effort.folder / name).stat().st_size / 1e6, 0.1) for name in names}
    worst = max(rates, key=lambda name: rates[name])
    words = f"{len(names)} texts made to be slow: at most {rates[worst]:.1f} s of processor per MB ({worst})"
    return Measured(rates[worst] <= SECONDS_A_MB and peak <= MOST_READ_MB, f"{words}, {peak:,} MB")


def mutants(effort: Effort) -> Measured:
    """Damaged logs of every format: none may raise anything but an error in words."""
    count, most_s = effort.times(60, MILLION), 6.0 if effort.quick else MUTANTS_S * effort.share
    jobs, began = 1 if effort.quick else os.cpu_count() or 1, time.perf_counter()
    if effort.quick:
        parts = [mutated(count, effort.seed, most_s, effort.folder)]
    else:
        code = "from bench.trust.load import *; print(json.dumps(mutated({}, {}, {}, Path({!r}))))"
        codes = [
            code.format(count // jobs, effort.seed + job, most_s, str(effort.folder / f"{job}")) for job in range(jobs)
        ]
        with ThreadPoolExecutor(jobs) as pool:
            parts = [json.loads(printed) for printed in pool.map(lambda code: _python(code, most_s + 120), codes)]
    tried, broken = sum(part["tried"] for part in parts), [name for part in parts for name in part["broken"]]
    slowest = max(part["slowest"] for part in parts)
    named = f": {broken[0]}" if broken else ""
    rate = f"{jobs} at a time, {tried / (time.perf_counter() - began):,.0f} a second"
    words = f"{tried:,} damaged logs ({rate}): {len(broken)} tracebacks{named}; at most {slowest:.1f} s per MB"
    return Measured(not broken and slowest <= SECONDS_A_MB, words)


def mutated(count: int, seed: int, most_s: float, folder: Path) -> dict[str, Any]:
    """Read damaged logs one after another: how many, those that raised, and the most processor seconds per MB."""
    from stabilizer.trainers.reading import READERS
    from tests.trainers.mutants import Bench

    draw, broken, slowest, tried, bench = random.Random(seed), [], 0.0, 0, Bench(folder)
    until = time.monotonic() + most_s
    while tried < count and time.monotonic() < until:
        reader, number = draw.choice(READERS), draw.randrange(1_000_000_000)
        path, began, tried = bench.mutant(reader, number), time.perf_counter(), tried + 1
        if problem := _refused(path):
            broken.append(f"mutant({reader.name}, {number}): {problem}")
        if time.perf_counter() - began > SUSPECT_S:  # it may have waited: measured again, by processor time
            slowest = max(slowest, _processor(path))
    return {"tried": tried, "broken": broken, "slowest": slowest}


def _refused(path: Path) -> str:
    """What a reader says of a log otherwise than in words; empty where all is well."""
    from stabilizer.trainers.reading import load

    try:
        load(path)
    except RunError:
        return ""
    except Exception as error:
        return type(error).__name__
    return ""


def _processor(path: Path) -> float:
    """Processor seconds per MB of reading a log."""
    began = time.process_time()
    _refused(path)
    size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
    return (time.process_time() - began) / max(size / 1e6, 0.5)


def bombs(effort: Effort) -> Measured:
    """Texts that expand: aliases, merges, nesting, many small values."""
    laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    merges = "m0: &m0 {a: 1}\n" + "".join(
        f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
    )
    texts = {
        "laughs.yaml": laughs,
        "merges.yaml": merges,
        "nested.yaml": "[" * 50_000,
        "nested.jsonl": '{"a":' * 100_000 + "\n",
        "values.jsonl": "[" + "[]," * 4_000_000 + "[]]\n",
        "row.jsonl": '{"step": 1, "x": [' + "[]," * 16_000_000 + "[]]}\n",
        "digits.jsonl": '{"step": ' + "9" * 3_000_000 + "}\n",
        "deep.toml": "a = " + "[" * 50_000 + "\n",
    }
    names = list(texts)[: 3 if effort.quick else None]
    for name in names:
        (effort.folder / name).write_text(texts[name])
    spent, peak = _read_apart([effort.folder / name for name in names])
    worst = max(spent, key=lambda name: spent[name])
    words = f"{len(names)} bombs: at most {spent[worst]:.1f} s of processor ({worst}) and {peak:,} MB"
    return Measured(spent[worst] <= LONGEST_BOMB_S and peak <= MOST_READ_MB, words)


def _python(code: str, timeout: float) -> str:
    """What a new process of Python prints; OSError when it fails."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, timeout=timeout)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["nothing said"]
        raise OSError(f"exit code {done.returncode}: {last[0][:150]}")
    return done.stdout


def _read_apart(files: Sequence[Path]) -> tuple[dict[str, float], int]:
    """Processor seconds of each file, and the peak of memory in MB, in a process that reads them one after another."""
    code = f"from bench.trust.load import read_all; read_all({[str(file) for file in files]!r})"
    result = json.loads(_python(code, timeout=60.0 * len(files)))
    return result["seconds"], result["peak"]


def read_all(names: Sequence[str]) -> None:
    """Read logs and configurations; prints processor seconds by name, and the peak of memory in MB."""
    from stabilizer.configs.reading import read as read_configuration
    from stabilizer.trainers.reading import load

    seconds = {}
    for path in map(Path, names):
        began = time.process_time()
        reader: Callable[[Path], Any] = read_configuration if path.suffix in (".yaml", ".toml") else load
        with contextlib.suppress(RunError, ConfigError):
            reader(path)
        seconds[path.name] = time.process_time() - began
    print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


ATTACKS = (
    Attack("long runs", "No pause above 250 ms, and a row costs the same at the end",
           "rows through writer, history, watch and follower", pauses),
    Attack("long runs", f"A million rows add at most {MOST_MB} MB", f"the same; the watch sees every {SELDOM}th row",
           memory, quick=False),
    Attack("long runs", "Writing 100 metrics takes at most 0.3 ms", "rows of 100 metrics, one after another", writing),
    Attack("long runs", "A million numbers are read in a second", "a run directory, and an event file", reading),
    Attack("input", f"A reader takes at most {SECONDS_A_MB:g} s per MB", "texts that quadratic patterns are slow on",
           slow_inputs),
    Attack("input", "A damaged log is read or refused in words", "bits, lines and numbers changed, every format",
           mutants),
    Attack("input", "Nothing that is read expands without bound", "alias, merge, nesting and value bombs", bombs),
)  # fmt: skip
