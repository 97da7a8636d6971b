"""Long runs and hostile input: memory, pauses, and the time that any text may take."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bench.trust.row import Attack, Effort, Measured
from stabilizer.analysis.watching import new_watch
from stabilizer.configs.config import ConfigError
from stabilizer.live.follow import FollowedRun
from stabilizer.runs.history import History
from stabilizer.runs.reader import RunError
from stabilizer.runs.writer import RunWriter

SOAK_S = 1500.0
"""Seconds of the full soak."""
MUTANTS_S = 600.0
"""Seconds of the full search among damaged logs."""
WARM = 1_000
"""Rows before memory and pauses are measured: signals and caches fill up."""
MOST_MB = 50
"""Megabytes that a million rows may add."""
LONGEST_PAUSE_S = 0.25
SECONDS_A_MB = 2.0
"""Processor time that a reader may take for a megabyte."""
LONGEST_BOMB_S = 20.0
"""Processor time for one bomb of at most 16 MB."""
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
def _soak(rows: int, seed: int, most_s: float) -> tuple[int, float, float, float, float]:
    """Rows of a healthy run through writer, history and watch, with a follower that looks on, in a process of its own:
    rows made within the time, bytes grown, the longest pause, and what a row costs at the end and at the beginning, in
    seconds."""
    code = f"from bench.trust.load import soaked; soaked({rows}, {seed}, {most_s})"
    made, grown, pause, late, early = map(float, _python(code, timeout=2 * most_s + 60).split())
    return int(made), grown, pause, late, early


def pauses(effort: Effort) -> Measured:
    rows, _, pause, late, early = _soak(effort.times(2000, 1_000_000), effort.seed, SOAK_S * effort.share)
    words = f"{rows:,} rows: longest pause {1e3 * pause:.0f} ms, a row {1e3 * early:.1f} ms at first and"
    return Measured(pause <= LONGEST_PAUSE_S and late < 2 * early + 0.001, f"{words} {1e3 * late:.1f} ms at last")


def memory(effort: Effort) -> Measured:
    rows, grown, *_ = _soak(effort.times(2000, 1_000_000), effort.seed, SOAK_S * effort.share)
    per_million = grown / (rows - WARM)
    words = f"{rows:,} rows of {len(METRICS)} metrics: {per_million:,.0f} MB per million rows"
    return Measured(per_million <= MOST_MB, words)


def soaked(rows: int, seed: int, most_s: float) -> None:
    """One soak: prints rows, bytes grown, the longest pause, and the cost of a row late and early."""
    draw, costs, resident = random.Random(seed), [], 0
    with tempfile.TemporaryDirectory() as name:
        writer = RunWriter.create(Path(name) / "run", config={}, task="soak", steps=rows)
        history, watch = History(writer.about), new_watch()
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
            changed = watch.tick(history.view())
            if changed:
                writer.finding(*changed)
            costs.append(time.perf_counter() - began)
            if step % 100 == 0:
                follower.look()
            if step == WARM:
                resident = _resident()
        grown = _resident() - resident
        writer.close()
    part = max(1, min(1000, (len(costs) - WARM) // 3))
    late, early = sum(costs[-part:]) / part, sum(costs[WARM : WARM + part]) / part
    print(len(costs), grown, max(costs[WARM:]), late, early)


def slow_inputs(effort: Effort) -> Measured:
    from tests.trainers.test_linear import INPUTS

    names = sorted(INPUTS)[: effort.times(4, len(INPUTS))]
    for name in names:
        (effort.folder / name).write_text(INPUTS[name])
    spent, peak = _read_apart([effort.folder / name for name in names])
    rates = {name: spent[name] / max((effort.folder / name).stat().st_size / 1e6, 0.1) for name in names}
    worst = max(rates, key=lambda name: rates[name])
    words = f"{len(names)} texts made to be slow: at most {rates[worst]:.1f} s of processor per MB ({worst})"
    return Measured(rates[worst] <= SECONDS_A_MB and peak <= MOST_READ_MB, f"{words}, {peak:,} MB")


def mutants(effort: Effort) -> Measured:
    """Damaged logs of every format, in this process: none may raise anything but an error in words."""
    from stabilizer.trainers.reading import READERS, load
    from tests.trainers.mutants import mutant

    draw, count, broken, slowest = random.Random(effort.seed), effort.times(60, 1_000_000), [], 0.0
    until = time.monotonic() + (6 if effort.quick else MUTANTS_S * effort.share)
    tried = 0
    for _ in range(count):
        if time.monotonic() > until:
            break
        reader, seed = draw.choice(READERS), draw.randrange(1_000_000_000)
        path = mutant(reader, seed, effort.folder / "mutant")
        began, tried = time.process_time(), tried + 1
        try:
            load(path)
        except RunError:
            pass
        except Exception as error:
            broken.append(f"mutant({reader.name}, {seed}): {type(error).__name__}")
        size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
        slowest = max(slowest, (time.process_time() - began) / max(size / 1e6, 0.5))
    named = f": {broken[0]}" if broken else ""
    words = f"{tried:,} damaged logs: {len(broken)} tracebacks{named}; at most {slowest:.1f} s per MB"
    return Measured(not broken and slowest <= SECONDS_A_MB, words)


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
        "digits.jsonl": '{"step": ' + "9" * 3_000_000 + "}\n",
        "deep.toml": "a = " + "[" * 50_000 + "\n",
    }
    names = list(texts)[: effort.times(5, len(texts))]
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
    from stabilizer.configs.reading import read
    from stabilizer.trainers.reading import load

    seconds = {}
    for path in map(Path, names):
        began = time.process_time()
        reader: Callable[[Path], Any] = read if path.suffix in (".yaml", ".toml") else load
        with contextlib.suppress(RunError, ConfigError):
            reader(path)
        seconds[path.name] = time.process_time() - began
    print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


ATTACKS = (
    Attack("long runs", "No pause above 250 ms, and a row costs the same at the end",
           "rows through writer, history, watch and follower", pauses),
    Attack("long runs", f"A million rows add at most {MOST_MB} MB", "the same", memory, quick=False),
    Attack("input", f"A reader takes at most {SECONDS_A_MB:g} s per MB", "texts that quadratic patterns are slow on",
           slow_inputs),
    Attack("input", "A damaged log is read or refused in words", "bits, lines and numbers changed, every format",
           mutants),
    Attack("input", "Nothing that is read expands without bound", "alias, merge, nesting and value bombs", bombs),
)  # fmt: skip
