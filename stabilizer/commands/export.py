"""`stabilizer export RUN --to model|csv|TRACKER`: what a run made, in a form that other programs take."""

from __future__ import annotations

import argparse
import csv
import json
import shlex
from pathlib import Path

from stabilizer.commands.missing import need_train_extra
from stabilizer.figures.table import heading
from stabilizer.output.trackers import TRACKERS, export, rows_of
from stabilizer.runs.history import RunView
from stabilizer.runs.reader import run_around
from stabilizer.runs.story import summary
from stabilizer.trainers.reading import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument(
        "run_directory", type=Path, metavar="RUN", help="run directory; for all but model any readable log"
    )
    parser.add_argument(
        "--to",
        choices=("model", "csv", *TRACKERS),
        default="model",
        help="model: a folder that transformers and vLLM load, with a model card; csv: all metrics, a row a step; "
        + "; ".join(f"{name}: {tracker.what}" for name, tracker in TRACKERS.items())
        + ". Nothing is sent anywhere",
    )
    parser.add_argument("-o", "--out", type=Path, help="folder, or file (csv); beside the run unless told")
    parser.add_argument("--checkpoint", default="best", help="for model: best (by validation), last, or a step")


def run(args: argparse.Namespace) -> int:
    """Export, and say where to."""
    path: Path = args.run_directory
    path = path if path.name.strip(".") else path.resolve()
    beside = path.name if path.is_dir() else path.stem
    if args.out and (inside := run_around(args.out)):
        raise ValueError(f"{args.out}: lies inside the run directory {inside}, which only training writes to")
    if args.to == "csv":
        out = args.out or path.with_name(f"{beside}.csv")
        run = load(path)
        rows = _write_csv(run.history.view(), out)
        made = summary(run.actions)
        told = {"out": str(out), "rows": rows, "interventions": made}
        words = f"{rows} steps written to {out}" + (f"; the run was {made['text']}" if made["count"] else "")
    elif args.to in TRACKERS:
        out = args.out or path.with_name(f"{beside}-{args.to}")
        run = load(path)
        rows, made = export(run, args.to, out), summary(run.actions)
        told = {"out": str(out), "steps": rows, "interventions": made}
        words = (
            f"{rows} steps written to {out}; to see them: {TRACKERS[args.to].look.format(out=shlex.quote(str(out)))}"
        )
        words += f"\nthe run was {made['text']}" if made["count"] else ""
    else:
        need_train_extra()
        from stabilizer.output.export_model import export_model

        if path.exists() and not (path / "run.json").is_file():
            raise ValueError(f"{path}: no run of `stabilizer train`, so no policy; --to csv writes its metrics")
        out = args.out or path.with_name(f"{path.name}-model")
        step, note = export_model(path, out, args.checkpoint)
        told = {"out": str(out), "step": step} | ({"note": note} if note else {})
        words = f"the policy of step {step} written to {out}: weights, tokenizer, README.md (model card), training.svg"
        words += f"\n{note}" if note else ""
    print(json.dumps(told) if args.json else words)
    return 0


def _write_csv(view: RunView, out: Path) -> int:
    """One row a step, a column a metric; empty where a metric was not logged, nan and inf as they are."""
    if out.exists():
        raise ValueError(f"{out}: exists already; remove it, or name another file with -o")
    out.parent.mkdir(parents=True, exist_ok=True)
    names, rows = sorted(view.names()), rows_of(view)
    with out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow(["step", *map(heading, names)])
        writer = csv.DictWriter(file, ["step", *names])
        writer.writerows({"step": row.step, **row.values} for row in rows)
    return len(rows)
