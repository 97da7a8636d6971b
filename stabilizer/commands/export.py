"""`stabilizer export RUN --to model|csv|parquet|TRACKER`: a run's model or metrics for other programs."""

from __future__ import annotations

import argparse
import csv
import json
import shlex
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stabilizer.commands.shared import need_train_extra
from stabilizer.figures.table import heading
from stabilizer.output.trackers import TRACKERS, export, rows_of
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import run_around
from stabilizer.runs.story import summary
from stabilizer.trainers.reading import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument(
        "run_directory", type=Path, metavar="RUN", help="run directory; for metrics also any readable log"
    )
    parser.add_argument(
        "--to",
        choices=("model", *TABLES, *TRACKERS),
        default="model",
        help="model: a folder that transformers and vLLM load, with a model card; "
        "csv, parquet: all metrics, one row per step; "
        + "; ".join(f"{name}: {tracker.what}" for name, tracker in TRACKERS.items())
        + ". Nothing is sent over the network",
    )
    parser.add_argument("-o", "--out", type=Path, help="folder, or file for csv and parquet (default: beside the run)")
    parser.add_argument(
        "--checkpoint", default="best", help="for model: best (by validation), last, or a step (default: best)"
    )


def run(args: argparse.Namespace) -> int:
    """Export and print the path."""
    path: Path = args.run_directory
    path = path if path.name.strip(".") else path.resolve()
    if args.out and (inside := run_around(args.out)):
        raise ValueError(f"{args.out}: is inside the run directory {inside}, where only training may write")
    if args.to == "model":
        row, words = _model(path, args.out, args.checkpoint)
    else:
        row, words = _metrics(path, args.out, args.to)
    print(json.dumps(row) if args.json else words)
    return 0


def _model(path: Path, out: Path | None, checkpoint: str) -> tuple[dict[str, Any], str]:
    """Write the policy of a checkpoint; the result as JSON and in words."""
    need_train_extra()
    from stabilizer.output.export_model import export_model  # imports torch

    if path.exists() and not (path / "run.json").is_file():
        raise ValueError(f"{path}: not a run of `stabilizer train`, so it has no model; --to csv exports its metrics")
    out = out or path.with_name(f"{path.name}-model")
    step, note = export_model(path, out, checkpoint)
    words = f"model of step {step} written to {out}: weights, tokenizer, README.md (model card), training.svg"
    return {"out": str(out), "step": step} | ({"note": note} if note else {}), words + (f"\n{note}" if note else "")


def _metrics(path: Path, out: Path | None, to: str) -> tuple[dict[str, Any], str]:
    """Write all metrics as a table or for a tracker; the result as JSON and in words."""
    name = path.name if path.is_dir() else path.stem
    run = load(path)
    made = summary(run.actions)
    if write := TABLES.get(to):
        out = out or path.with_name(f"{name}.{to}")
        if out.exists():
            raise ValueError(f"{out}: already exists; remove it, or choose another file with -o")
        out.parent.mkdir(parents=True, exist_ok=True)
        rows = write(run, out)
        words = f"{rows} steps written to {out}" + (f"; the run was {made['text']}" if made["count"] else "")
        return {"out": str(out), "rows": rows, "interventions": made}, words
    out = out or path.with_name(f"{name}-{to}")
    rows = export(run, to, out)
    words = f"{rows} steps written to {out}; open it with: {TRACKERS[to].look.format(out=shlex.quote(str(out)))}"
    words += f"\nthe run was {made['text']}" if made["count"] else ""
    return {"out": str(out), "steps": rows, "interventions": made}, words


def _write_csv(run: LoadedRun, out: Path) -> int:
    """One row per step, one column per metric; empty where a metric was not logged, nan and inf as they are."""
    view = run.history.view()
    names, rows = sorted(view.names()), rows_of(view)
    with out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow(["step", *map(heading, names)])
        writer = csv.DictWriter(file, ["step", *names])
        writer.writerows({"step": row.step, **row.values} for row in rows)
    return len(rows)


def _write_parquet(run: LoadedRun, out: Path) -> int:
    """The table of `LoadedRun.frame()`, with `step` as its index."""
    if absent := [name for name in ("pandas", "pyarrow") if find_spec(name) is None]:
        raise ImportError(f"--to parquet needs {' and '.join(absent)}: pip install {' '.join(absent)}")
    frame = run.frame()
    frame.to_parquet(out, engine="pyarrow")
    return len(frame)


TABLES: dict[str, Callable[[LoadedRun, Path], int]] = {"csv": _write_csv, "parquet": _write_parquet}
"""Files with all metrics of a run. Neither overwrites a file; csv needs no further package."""
