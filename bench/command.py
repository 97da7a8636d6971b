"""`stabilizer bench`: measure this installation; every table says how its figures were taken."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

BENCHES = ("cost", "read", "train", "detect", "rescue", "dashboard", "field", "gpu", "cases", "hangs", "trust")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure."""
    parser.add_argument(
        "which",
        choices=BENCHES,
        help="cost: monitoring per step; read: loading a run of 1M points; train: a training step beside TRL's; "
        "detect: false alarms and recall of the detectors, beside other methods; "
        "rescue: what the remedies save and harm, beside simpler ways of acting; dashboard: what a viewer waits for; "
        "field: answers to texts from public issue trackers; gpu: a model of 0.5B on a CUDA device, beside TRL's; "
        "cases: the case studies, trained again; hangs: recall and false alarms of the watchdog in real processes; "
        "trust: what is promised, attacked",
    )
    parser.add_argument("name", nargs="?", help="cases: one case, e.g. case-search-r1 (default: all)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--seed", type=_seed, default=0, help="seed of what is generated; detect: another draw")
    only = parser.add_argument_group("train")
    only.add_argument("--threads", type=int, default=2, help="threads of either side (default 2)")
    only.add_argument("--env", type=Path, help="environment with TRL in it; made there if there is none")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help="train, detect: write the report here (.html; detect: or .md); gpu, trust: JSON",
    )
    detect = parser.add_argument_group("detect, rescue, field")
    detect.add_argument(
        "--half",
        choices=("develop", "report", "open", "unseen"),
        help="detect, rescue: report, what is published (default), or develop, what detectors and remedies may be made "
        "on; field: open, what may be looked at, or unseen, what is only counted (default: both)",
    )
    detect.add_argument("--extra", type=Path, metavar="DIR", help="also runs or logs of your own, with truth.json")
    detect.add_argument(
        "--live", type=Path, metavar="DIR", help="runs trained with injected faults (default: the cache)"
    )
    detect.add_argument("--no-peers", action="store_true", help="leave out the other tools and their environment")
    detect.add_argument(
        "--only", metavar="KIND",
        help="one kind, e.g. entropy-collapse, healthy/solved or healthy; field: a kind, trainer or reference; "
        "train: a race, e.g. '30M, dense'",
    )  # fmt: skip
    detect.add_argument(
        "--show", action="store_true",
        help="list each false alarm and each miss, each run and what was done about it (develop half only), or each "
        "thread that is not solved (open half only)",
    )  # fmt: skip
    detect.add_argument(
        "--keep", action="store_true", help="keep the figures, for `stabilizer detectors` and the README"
    )
    cases = parser.add_argument_group("cases")
    cases.add_argument("--pages", action="store_true", help="write the pages alone, from the figures that are there")
    rescue = parser.add_argument_group("rescue, trust")
    rescue.add_argument("--jobs", type=int, default=2, help="rescue, field: processes (default 2)")
    rescue.add_argument(
        "--budget",
        type=float,
        metavar="S",
        help="rescue: seconds after which no further case is begun; trust: minutes for the full tier",
    )
    rescue.add_argument(
        "--trainer", choices=("stabilizer", "trl"), default="stabilizer",
        help="rescue: whose trainings; trl: five seeds in TRL's own trainer, in the environment --env",
    )  # fmt: skip
    rescue.add_argument("--rounds", type=int, default=1, help="cases per fault and severity (default 1)")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed; give a whole number from 0 on")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Measure and print the tables, with how they were taken."""
    module = importlib.import_module(f"bench.{args.which}")
    if args.name and args.which != "cases":
        raise ValueError(f"{args.name}: only `bench cases` takes a name")
    if args.which == "cases":
        return _cases(args, module)
    if args.which == "field":
        return _field(args)
    if args.which == "trust":
        return _trust(args, module)
    _check_half(args, ("develop", "report"))
    if args.which == "gpu":
        return _gpu(args, module)
    if args.which == "hangs":
        return _hangs(args)
    if args.which == "train":
        return _train(args, module)
    if args.which == "detect":
        return _detect(args)
    if args.which == "rescue":
        return _rescue_trl(args) if args.trainer == "trl" else _rescue(args)
    rows = module.measure(seed=args.seed, quick=args.quick)
    if args.json:
        print(json.dumps(rows))
        return 0
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    console.print(_table(rows))
    console.print(_how(module))
    return 0


def _hangs(args: argparse.Namespace) -> int:
    from bench.hangs import measure

    rows = measure.measure(quick=args.quick)
    if args.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        good = (row["located"] if row["hangs"] else not row["found"] and row["located"]) and "right" or "WRONG"
        print(f"{'hang ' if row['hangs'] else 'quiet'}  {good}  {row['scene']}: {row['kind']}  {row['text']}")
    print(measure.summary(rows))
    print(_how(measure).plain)
    return 0


def _cases(args: argparse.Namespace, module: Any) -> int:
    names = module.chosen(args.name)
    if not args.pages:
        module.measure(names, quick=args.quick, tell=_tell)
    for path in module.write_pages(names):
        _tell(f"written: {path}")
    if args.json:
        print(json.dumps({name: module.kept(name) for name in names}))
    return 0


def _train(args: argparse.Namespace, module: Any) -> int:
    _check_output(args.output)
    result = module.measure(
        seed=args.seed, quick=args.quick, threads=args.threads, env=args.env, only=args.only, tell=_tell
    )
    if args.output and not args.only:
        page = importlib.import_module("bench.train.page")
        args.output.write_text(page.html(result), encoding="utf-8")
    if args.json:
        print(json.dumps(result))
        return 0
    _print(module.tables(result), module.statements(result), module, args.output)
    return 0


def _gpu(args: argparse.Namespace, module: Any) -> int:
    _check_output(args.output)
    result = module.measure(seed=args.seed, quick=args.quick, tell=_tell)
    if args.output:
        args.output.write_text(json.dumps(result, indent=1), encoding="utf-8")
    if args.json:
        print(json.dumps(result))
        return 0
    _print(module.tables(result), module.statements(result), module, args.output)
    return 0


def _detect(args: argparse.Namespace) -> int:
    from bench.detect import measure, tables
    from stabilizer.detectors import measured

    _check_output(args.output)
    if args.show and args.half != "develop":
        raise ValueError("--show needs --half develop: cases of the report half are not to be looked at one by one")
    if args.keep and args.only:
        raise ValueError("--keep keeps the figures of all kinds: leave out --only")
    result, judged = measure.measure(
        seed=args.seed, quick=args.quick, half=args.half, extra=args.extra, live=args.live,
        peers=not args.no_peers and not args.only, only=args.only, tell=_tell,
    )  # fmt: skip
    how = _how(measure).plain
    if args.output:
        tables.write(result, how, args.output)
    if args.keep:
        _tell(f"kept in {measured.keep(result)}; `stabilizer detectors` shows them")
    if args.json:
        print(json.dumps(result))
        return 0
    _print(tables.tables(result), tables.statements(result), measure, args.output)
    if args.show:
        for line in measure.complaints(judged):
            print(line)
        print("bench.detect.streams.make(kind, seed, severity) gives the run of a case")
    return 0


def _rescue_trl(args: argparse.Namespace) -> int:
    from bench.rescue_trl import measure

    if args.keep and args.only:
        raise ValueError("--keep keeps the figures of all kinds: leave out --only")
    result = measure.measure(
        seed=args.seed, seeds=1 if args.quick else measure.SEEDS, only=args.only, jobs=args.jobs, budget_s=args.budget,
        env=args.env, tell=_tell,
    )  # fmt: skip
    if args.keep:
        _tell(f"kept in {measure.keep(result)}")
    if args.json:
        print(json.dumps(result))
        return 0
    _print(measure.tables(result), measure.statements(result), measure, None)
    return 0


def _rescue(args: argparse.Namespace) -> int:
    from bench.rescue import measure, results, tables

    if args.show and args.half != "develop" and not args.quick:
        raise ValueError("--show needs --half develop: cases of the report half are not to be looked at one by one")
    if args.keep and (args.only or args.quick):
        raise ValueError("--keep keeps the figures of all kinds: leave out --only and --quick")
    result, judged = measure.measure(
        half=args.half, quick=args.quick, seed=args.seed, rounds=args.rounds, only=args.only, jobs=args.jobs,
        budget_s=args.budget, tell=_tell,
    )  # fmt: skip
    if args.keep:
        _tell(f"kept in {results.keep(result)}")
    if args.json:
        print(json.dumps(result))
        return 0
    _print(tables.tables(result), tables.statements(result), measure, None)
    if args.show:
        for line in measure.complaints(judged, args.seed, args.rounds):
            print(line)
    return 0


def _trust(args: argparse.Namespace, module: Any) -> int:
    _check_output(args.output)
    result = module.measure(seed=args.seed, quick=args.quick, budget_min=args.budget, only=args.only, tell=_tell)
    if args.output:
        args.output.write_text(json.dumps(result, indent=1, ensure_ascii=False), encoding="utf-8")
    if args.keep:
        _tell(f"kept in {' and '.join(map(str, module.keep(result)))}")
    if args.json:
        print(json.dumps(result))
    else:
        _print(module.tables(result), module.statements(result), module, None)
    return int(bool(module.broken(result)))


def _field(args: argparse.Namespace) -> int:
    from bench.field import measure

    _check_half(args, ("open", "unseen"))
    if args.show and args.half != "open":
        raise ValueError("--show needs --half open: answers to the half `unseen` are counted, never looked at")
    scored = measure.measure(half=args.half, only=args.only, jobs=args.jobs, tell=_tell)
    if args.json:
        print(json.dumps(measure.as_json(scored)))
        return 0
    _print(measure.tables(scored), [measure.TARGETS], measure, None)
    if args.show:
        print("\n".join(measure.details(scored)))
    return 0


def _check_half(args: argparse.Namespace, known: tuple[str, ...]) -> None:
    if args.half not in (None, *known):
        raise ValueError(f"--half {args.half}: `bench {args.which}` has the halves {' and '.join(known)}")
    if args.half is None and args.which in ("detect", "rescue"):
        args.half = "report"


def _check_output(path: Path | None) -> None:
    if path and not path.resolve().parent.is_dir():
        raise ValueError(f"{path}: the folder {path.resolve().parent} does not exist; make it first")


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _print(tables: list[tuple[str, list[dict[str, Any]]]], said: list[str], module: Any, output: Path | None) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:  # in a file or a pipe nothing is gained by breaking the tables
        console.width = 200
    for title, rows in tables:
        console.print(Text(f"\n{title}", style="bold"))
        console.print(_table(rows))
    console.print()
    for line in said:
        console.print(Text(f"- {line}"))
    console.print(_how(module))
    if output:
        console.print(Text(f"report: {output}"))


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(*rows[0], box=None, padding=(0, 3, 0, 0), header_style="bold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else f"{value}"


def _how(module: Any) -> Text:
    return Text(" ".join((module.__doc__ or "").split("\n\n", 1)[-1].split()), style="dim")
