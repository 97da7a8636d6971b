"""How often the detectors are right about runs whose truth is known, beside other methods on the same runs.

Runs are generated (T1: healthy look-alikes, and faults injected in mid-run at three severities), trained for real with
a fault injected (T2, where there are any), one's own (`--extra`), or thin: short, sparse and rounded, as other trainers
log theirs, with slow failures from early on (a row of its own, where information counts as naming). The scorer alone
knows the truth of a run. A false incident is one that opens in a healthy run or before the onset; a hit is a finding
that names the fault, opened at the onset or later. Intervals are 95 %: exact Poisson for rates, Wilson for shares.
Misses count as infinite delays. All methods see the same rows, and their alarms are merged alike: 50 steps without an
alarm end an incident. Peers run with their defaults on a sample of the runs. Generated streams flatter methods that
look for shifts: read T1 beside T2.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench.detect import methods, score, thin
from bench.detect.score import Alarm, Judged, judge
from bench.detect.streams import REPORT_SEEDS, SEVERITIES, Case, build, kinds
from bench.detect.truth import Truth, beside
from stabilizer.core.version import __version__
from stabilizer.runs.history import History, RunView
from stabilizer.trainers.reading import load

OURS = "stabilizer"
AS_LOGGED = "stabilizer, as other trainers log it"
"""Ours on thin logs, which count towards no other row."""
ON_SAMPLE = "stabilizer, peers' runs"
"""Ours on the very runs the peers were given."""
SEED_STEP = 1000
"""Distance between the case seeds of one `--seed` and the next."""


class Amount(NamedTuple):
    """Generated cases per kind."""

    healthy: int
    faulty: int
    """Per severity."""


FULL, QUICK = Amount(5, 3), Amount(2, 1)
THIN, THIN_QUICK = Amount(5, 6), Amount(1, 1)


class Item(NamedTuple):
    """A case to be judged: a generated one, or a path with its truth."""

    case: Case | None
    path: Path | None = None
    truth: Truth | None = None

    @property
    def thin(self) -> bool:
        """Whether it is a generated log of another trainer."""
        return self.kind.startswith(thin.PREFIX)

    @property
    def kind(self) -> str:
        """The kind of the case, wherever it comes from."""
        return self.case.kind if self.case else self.truth.kind if self.truth else ""


def measure(
    *,
    seed: int = 0,
    quick: bool = False,
    half: str = "report",
    extra: Path | None = None,
    live: Path | None = None,
    peers: bool = True,
    only: str | None = None,
    tell: Callable[[str], None] = print,
) -> tuple[dict[str, Any], list[Judged]]:
    """Every figure, as JSON's own types, and our judged cases. `tell` hears what is going on."""
    generated = cases(half, seed, QUICK if quick else FULL)
    generated += thin.cases(half, seed * SEED_STEP, *(THIN_QUICK if quick else THIN))
    items = [Item(case) for case in generated]
    trained = _live(live, half, seed, tell)
    items += [Item(None, path, truth) for path, truth in [*trained, *(beside(extra) if extra else ())]]
    if only:
        items = [item for item in items if item.kind == only or item.kind.startswith(f"{only}/")]
        if not items:
            known = sum((*kinds(half), *thin.kinds(half)), [])
            raise ValueError(f"--only {only}: no such kind; the {half} half has {', '.join(known)}")
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        judged = _collect(pool.map(judge_item, items, chunksize=4), len(items), tell)
        heard: dict[str, list[Judged]] = {}
        missing: dict[str, str] = {}
        if peers:
            sample = _sample([item for item in items if not item.thin])
            theirs, missing = _peers(pool, sample, tell)
            shared = {(case.kind, case.seed, case.severity) for case in (item.case or item.truth for item in sample)}
            ours = [j for j in judged[OURS] if (j.truth.kind, j.truth.seed, j.truth.severity) in shared]
            heard = theirs | {ON_SAMPLE: ours}
    all_ours = judged[OURS]
    logged = [j for j in all_ours if j.truth.tier == "thin"]
    apart = 0 < len(logged) < len(all_ours)
    if apart:
        judged = {name: [j for j in part if j.truth.tier != "thin"] for name, part in judged.items()}
    rows = [*_tiers(judged), *heard.items(), *([(AS_LOGGED, logged)] if apart else [])]
    tables = {name: score.summary(part) for name, part in rows}
    result = {
        "schema": 1,
        "command": _command(half, seed, quick, extra, live),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "version": __version__,
        "half": half,
        "seed": seed,
        "quick": quick,
        "methods": tables,
        "detectors": score.detectors(judged[OURS]),
        "missing peers": missing,
    }
    return result, all_ours


def _command(half: str, seed: int, quick: bool, extra: Path | None, live: Path | None) -> str:
    """What repeats the measurement, without the names of this machine's folders."""
    words = [f"stabilizer bench detect --half {half} --seed {seed}", "--quick" if quick else ""]
    return " ".join(word for word in (*words, "--live DIR" if live else "", "--extra DIR" if extra else "") if word)


def cases(half: str, seed: int, amount: Amount) -> list[Case]:
    """The generated cases of a half."""
    healthy, faults = kinds(half)
    first = seed * SEED_STEP + (REPORT_SEEDS if half == "report" else 0)
    out = [Case(kind, first + i) for kind in healthy for i in range(amount.healthy)]
    return out + [Case(kind, first + i, s) for kind in faults for s in SEVERITIES for i in range(amount.faulty)]


def judge_item(item: Item) -> dict[str, Judged]:
    """One case by every method that lives in this process."""
    views, rows, _, truth = _open(item)
    said = {OURS: methods.ours(views)} | {name: method(rows) for name, method in methods.NULLS.items()}
    return {name: judge(truth, alarms) for name, alarms in said.items()}


def ask_peers(task: tuple[Path, Sequence[Item]]) -> list[dict[str, Judged | str]]:
    """Some cases by every peer; where a peer failed, its reason."""
    python, items = task
    truths: list[Truth] = []

    def runs() -> Iterator[tuple[Mapping[str, Any], methods.Rows]]:
        for item in items:
            _, rows, about, truth = _open(item)
            truths.append(truth)
            yield about, rows

    return [
        {name: said if isinstance(said, str) else judge(truths[i], said) for name, said in answer.items()}
        for i, answer in enumerate(methods.ask_peers(python, runs()))
    ]


def _open(item: Item) -> tuple[Iterable[RunView], methods.Rows, Mapping[str, Any], Truth]:
    if item.case is not None:
        run, truth = thin.build(item.case) if item.thin else build(item.case)
        return methods.views(run), methods.rows(run), run.about, truth
    assert item.path is not None and item.truth is not None
    loaded = load(item.path)
    if item.truth.tier == "T2" and "system/slowdown" not in item.truth.accept:
        # A shared machine's pace is real and nobody's injection: steps that slow down count where that was the fault.
        loaded = replace(loaded, histories={n: run.without("time/") for n, run in loaded.histories.items()})
    history: History = loaded.history
    return loaded.views(), methods.rows(history), history.about, item.truth


def _collect(results: Iterable[dict[str, Judged]], count: int, tell: Callable[[str], None]) -> dict[str, list[Judged]]:
    judged: dict[str, list[Judged]] = {}
    for i, result in enumerate(results, 1):
        for name, one in result.items():
            judged.setdefault(name, []).append(one)
        if i % 50 == 0 or i == count:
            tell(f"{i} of {count} runs")
    return judged


def _tiers(judged: Mapping[str, list[Judged]]) -> list[tuple[str, list[Judged]]]:
    """Every method over all tiers, and ours by tier where there are several."""
    tiers = sorted({j.truth.tier for j in judged[OURS]})
    split = [(f"{OURS}, {tier} alone", [j for j in judged[OURS] if j.truth.tier == tier]) for tier in tiers]
    return [*judged.items(), *(split if len(tiers) > 1 else ())]


def _sample(items: Sequence[Item]) -> list[Item]:
    """What the peers are asked about: of every kind one run, of faults one severity in turn; all that was brought."""
    chosen: dict[object, Item] = {}
    faults = list(dict.fromkeys(item.kind for item in items))
    for item in items:
        about = item.case or item.truth
        tier = item.truth.tier if item.truth else "T1"
        if tier == "extra":
            chosen[item.path] = item
        elif about.severity in (None, SEVERITIES[faults.index(item.kind) % 3]):
            chosen.setdefault((tier, item.kind), item)
    return list(chosen.values())


def _peers(
    pool: ProcessPoolExecutor, sample: Sequence[Item], tell: Callable[[str], None]
) -> tuple[dict[str, list[Judged]], dict[str, str]]:
    """What every peer said of the sample, and which of them could not say anything, with the reason."""
    python, absent = methods.peers_python(tell)
    workers = os.cpu_count() or 1
    judged: dict[str, list[Judged]] = {name: [] for name in methods.PEER_METHODS}
    missing = {name: absent[package] for name, package in methods.PEER_METHODS.items() if package in absent}
    parts = [(python, sample[i :: workers * 4]) for i in range(workers * 4)]
    done = 0
    for answers in pool.map(ask_peers, [part for part in parts if part[1]]):
        for answer in answers:
            for name, one in answer.items():
                if isinstance(one, str):
                    missing.setdefault(name, one)
                else:
                    judged[name].append(one)
        done += len(answers)
        tell(f"peers: {done} of {len(sample)} runs")
    for name, reason in missing.items():
        tell(f"NOT COMPARED with {name}: {reason}")
    return {name: part for name, part in judged.items() if name not in missing}, missing


def _live(folder: Path | None, half: str, seed: int, tell: Callable[[str], None]) -> list[tuple[Path, Truth]]:
    """Runs trained with a fault, of this half: those of a folder, else those that are in the cache already."""
    if folder is not None:
        found = beside(folder)
    else:
        try:
            live = importlib.import_module("bench.detect.live")
        except ModuleNotFoundError:
            found = []
        else:
            found = [pair for path in live.cases(half, draw=seed, budget_s=0) for pair in beside(Path(path))]
    chosen = [(path, truth) for path, truth in found if truth.half == half]
    tell(f"{len(chosen)} runs trained with injected faults" if chosen else "no runs trained with injected faults (T2)")
    return chosen


# --- one by one -----------------------------------------------------------------------------------------------------


def complaints(judged: Iterable[Judged]) -> list[str]:
    """Every false alarm and every miss with what makes the case again."""
    lines = []
    for j in judged:
        t = j.truth
        case = f"{t.kind}{f' {t.severity}' if t.severity else ''} seed {t.seed} ({t.steps} steps)"
        lines += [f"FALSE {case}: {_said(alarm)}" for alarm in j.false]
        if not t.healthy and j.hit is None:
            late = "; ".join(_said(alarm) for alarm in j.late) or "nothing"
            lines.append(f"MISS {case}: onset {t.onset_step}, wanted {' or '.join(t.accept)}; said {late}")
    return lines


def _said(alarm: Alarm) -> str:
    return f"step {alarm.step} {alarm.severity} {' '.join(alarm.ids)}: {alarm.text}"
