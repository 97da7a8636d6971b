"""MLflow: the folder of a run in its file store, `mlruns/<experiment>/<run>/`, with one file a metric.

A line of `metrics/<name>` is `timestamp value step`; a name's slashes are folders. Parameters are one file each in
`params/`. From 3.7 on MLflow writes a database by default (`mlflow_db`). Traps:

- MLflow refuses some characters, so trainers write `@` as `_at_`; the trainer's own names are restored.
- A step logged twice has two lines: the last one counts. A step that goes back within a metric is a restart.
- System metrics (`system/...`) count steps of their own, so they are left out.
- A folder of several runs: the largest one is read, and a note names the others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import MAX_NAMES, Row, number, step_number
from stabilizer.runs.reader import RunError

NAME = "mlflow"
WHAT = "a run's folder in MLflow's file store, mlruns/<experiment>/<run>"

MAX_BYTES = 256 * 2**20
MAX_RUNS = 1_000


def recognises(path: Path) -> bool:
    """By `meta.yaml` beside a folder of metrics, here or up to two folders below."""
    return path.is_dir() and bool(_runs(path))


def read(path: Path) -> NumberLog:
    """The numbers of the run in a folder, or of the largest run below it."""
    runs = sorted(_runs(path), key=lambda run: (-_size(run), str(run)))
    if not runs:
        raise RunError(f"{path}: no run of MLflow's file store; give mlruns/<experiment>/<run>")
    run = runs[0]
    notes = []
    if len(runs) > 1:
        notes.append(f"{len(runs) - 1} other runs not used, e.g. {runs[1].name}: {run.name} has the most in it")
    lines: list[tuple[float, int, str, float]] = []
    skipped = 0
    files = _metrics(run)
    if len(files) > MAX_NAMES:
        raise RunError(f"{run}: {len(files):,} metrics are more than the {MAX_NAMES:,} this reader takes")
    for file in files:
        name = theirs(file.relative_to(run / "metrics").as_posix())
        if name is None:
            continue
        if file.stat().st_size > MAX_BYTES:
            raise RunError(f"{file}: more than the {MAX_BYTES // 2**20} MiB this reader takes of one metric")
        for text in file.read_text("utf-8", "replace").splitlines():
            parts = text.split()
            numbers = [number(part) for part in parts[:3]]
            step = step_number(numbers[2]) if len(numbers) == 3 else 0
            if len(numbers) < 2 or step is None or numbers[0] is None or numbers[1] is None:
                skipped += 1
                continue
            lines.append((numbers[0], step, name, numbers[1]))
    if not lines:
        raise RunError(f"{run}: no metrics in it; was the trainer stopped before its first log?")
    if skipped:
        notes.append(f"{skipped} lines left out: not `timestamp value step`, or cut off")
    return NumberLog(
        name=_text(run / "tags" / "mlflow.runName") or run.name,
        rows=in_order(lines),
        format=NAME,
        files=[run],
        settings=_settings(run),
        skipped=skipped,
        notes=notes,
    )


def theirs(name: str) -> str | None:
    """A metric's name as the trainer wrote it; None for metrics of the machine."""
    return None if name.startswith("system/") else name.replace("_at_", "@")


def in_order(lines: list[tuple[float, int, str, float]]) -> list[Row]:
    """Rows ordered by time. The values of one call share their time and step."""
    rows: list[Row] = []
    for _, step, name, value in sorted(lines, key=lambda line: (line[0], line[1])):
        if not rows or rows[-1][0] != step:
            rows.append((step, {}))
        rows[-1][1][name] = value
    return rows


def setting(text: str) -> Any:
    """A parameter, which MLflow keeps as text."""
    value = number(text)
    return {"True": True, "False": False, "None": None}.get(text, text if value is None else value)


def _runs(path: Path) -> list[Path]:
    try:
        found = [path, *(run for pattern in ("*", "*/*", "mlruns/*/*") for run in path.glob(pattern))][:MAX_RUNS]
        return [run for run in found if (run / "meta.yaml").is_file() and (run / "metrics").is_dir()]
    except OSError:
        return []


def _metrics(run: Path) -> list[Path]:
    return sorted(Path(folder) / name for folder, _, names in os.walk(run / "metrics") for name in names)


def _size(run: Path) -> int:
    return sum(file.stat().st_size for file in _metrics(run))


def _settings(run: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for file in sorted((run / "params").glob("*"))[:2_000] if (run / "params").is_dir() else []:
        settings[file.name] = setting(_text(file))
    return settings


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(10_000).strip()
    except OSError:
        return ""
