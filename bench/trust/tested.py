"""Attacks that are tests of the suite already: the full tier runs them again and counts them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from bench.trust.row import USED_UP, Attack, Effort, Measured, counts

MOST_S = 1800.0
"""Seconds that the tests of one row may take."""
ROOT = Path(__file__).parents[2]


def _passed(files: tuple[str, ...], which: str, effort: Effort) -> Measured:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=line", "-rN", *files]
    command += ["-k", which] if which else []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    left_s = min(MOST_S, max(1.0, effort.until - time.monotonic()))
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=left_s)
    except subprocess.TimeoutExpired:
        return Measured(None if left_s < MOST_S else False, USED_UP if left_s < MOST_S else f"not done in {MOST_S:g} s")
    good, bad = counts(done.stdout)
    if not good and not bad:
        return Measured(False, f"no test ran: {done.stdout.strip()[-150:]}")
    return Measured(not bad, f"{good} tests pass, {bad} fail")


def _tests(group: str, promise: str, how: str, *files: str, which: str = "") -> Attack:
    return Attack(group, promise, how, partial(_passed, files, which), quick=False)


ATTACKS = (
    _tests("server", "Text of a run is only ever text", "script payloads on every page and table",
           "tests/dashboards/test_security.py", which="text or formula or capped"),
    _tests("server", "Host, Origin, token and headers guard every request", "other sites, names, methods, cookies",
           "tests/dashboards/test_security.py",
           which="token or cookie or site or header or address or policy or host or debugging"),
    _tests("server", "Nothing outside the runs is read", "traversal strings, ids, links",
           "tests/dashboards/test_security.py", "tests/dashboards/test_no_500.py",
           which="hostile or files_of or looked_up or link"),
    _tests("server", "A damaged run costs only itself", "nesting, pipes, loops, wrong types, on every page",
           "tests/dashboards/test_no_500.py", "tests/dashboards/test_damaged_runs.py"),
    _tests("server", "Viewers write nothing but requests, and connect to nothing", "audit hooks over a whole session",
           "tests/dashboards/test_security.py", which="write or connect or lock"),
    _tests("input", "Packed files do not expand without bound", "Parquet and JSON bombs, configurations",
           "tests/trainers/test_parquet_bombs.py", "tests/configs/test_config_bombs.py", "tests/runs/test_too_much.py"),
    _tests("input", "Databases of others are read within bounds", "endless views, WAL, wrong tables",
           "tests/trainers/test_database.py"),
    _tests("data", "Numbers come back as they were written", "NaN, Inf, denormals, -0, 1e308, 2^53 + 1, any text",
           "tests/core/test_records.py", which="survives or round_trip"),
    _tests("data", "Runs of earlier versions stay readable", "the sample runs, whose files are never rewritten",
           "tests/test_sample_runs.py"),
    _tests("training", "A copy for another tracker that fails or hangs harms nothing", "raises, exits, hangs",
           "tests/live/test_mirror.py"),
    _tests("training", "Remedies change only knobs within their bounds", "every remedy, and knobs beyond their bounds",
           "tests/remedies/test_catalogue.py", "tests/control/test_engine.py", which="bounds"),
    _tests("secrets", "Secrets are not recorded", "keys, flags, addresses, headers", "tests/runs/test_secrets.py"),
    _tests("network", "Notifications and answers are guarded", "drips, redirects, forged and replayed messages",
           "tests/live/test_notify.py", "tests/live/test_webhook.py"),
    _tests("training", "Nothing a reward function starts outlives the run", "sessions of its own, kills",
           "tests/training/rewards/test_runner.py", which="sessions_of_its_own"),
    _tests("training", "SIGTERM is heeded while the monitor hangs", "a detector that loops",
           "tests/live/test_sabotage.py", which="sigterm or hangs"),
)  # fmt: skip
