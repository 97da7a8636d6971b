"""How many damaged TRL trainings `attach(trainer, remedy="auto-full")` saves, and how many trainings it harms.

Tiny policies really train in TRL's GRPOTrainer, and in the second quarter of a run somebody turns a setting, without a
word to stabilizer. Every case runs without any action and under auto-full, for equally many steps of TRL: those that a
return throws away count. The definitions are those of `bench rescue`: a case is damaged when it ends below 95 % of its
clean twin without any action, saved by ending at 95 % or above, harmed by ending more than two points below the run
without any action. A run in which no detector said anything is not trained again, for it ends as it did. Healthy runs
count for harm alone. Intervals are 95 % (Wilson). Seeds from 1000 on were never looked at while the remedies were made.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.detect.score import wilson
from bench.environment import CACHE as CACHES
from bench.rescue_trl.faults import BY_KIND, FAULTS
from bench.train.sides import TRL_CACHE, TRL_VERSION, environment, trl_python
from stabilizer.core.version import __version__

CACHE = CACHES / "bench" / "rescue-trl"
KEPT = Path(__file__).with_name("kept.json")
SEEDS, FIRST_SEED = 5, 1000
FIRST_ONSET, LAST_ONSET = 45, 72
"""Steps of 180 between which faults begin."""
ENOUGH, HARM = 0.95, 0.02
OFF, AUTO = "off", "auto-full"
HEALTHY = "healthy"
HALVED = {"per_device_train_batch_size": 24, "gradient_accumulation_steps": 2}
"""The same batch in two micro-batches, of which one can be lost."""

Outcome = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One run that something happens to, or a healthy one."""

    kind: str
    seed: int
    strength: float = 0.0
    onset: int = 0

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.kind}-{self.strength:g}-{self.seed}-{self.onset}"

    @property
    def twin(self) -> Case:
        """The same run without the fault."""
        return Case(f"{HEALTHY}-halved" if self.kind == "batch-shrunk" else HEALTHY, self.seed)

    def job(self, arm: str) -> dict[str, Any]:
        """What `play` is given."""
        halved = {"settings": HALVED} if self.kind in ("batch-shrunk", f"{HEALTHY}-halved") else {}
        kind = HEALTHY if self.kind.startswith(HEALTHY) else self.kind
        return {"kind": kind, "seed": self.seed, "strength": self.strength, "onset": self.onset, "arm": arm, **halved}


def cases(seed: int, seeds: int) -> list[Case]:
    """Every other fault for each seed in turn, then the rest: the first half is a fair sample of all seeds."""
    halves: tuple[list[Case], list[Case]] = ([], [])
    for number in range(seeds):
        at = FIRST_SEED + 100 * seed + number
        halves[0].append(Case(HEALTHY, at))
        for turn, fault in enumerate(FAULTS):
            bits = int(hashlib.sha256(f"{fault.kind}/{at}".encode()).hexdigest()[:8], 16)
            onset = FIRST_ONSET + bits % (LAST_ONSET - FIRST_ONSET + 1)
            case = Case(fault.kind, at, fault.strengths[(number // 2 + turn) % 2], onset)
            half = halves[(number + turn) % 2]
            half += [case.twin] if case.twin.kind != HEALTHY else []
            half.append(case)
    return [*halves[0], *halves[1]]


def measure(
    *, seed: int = 0, seeds: int = SEEDS, only: str | None = None, jobs: int = 2, budget_s: float | None = None,
    env: Path | None = None, folder: Path = CACHE, tell: Callable[[str], None] = print,
) -> dict[str, Any]:  # fmt: skip
    """Every figure, as JSON's own types."""
    wanted = cases(seed, seeds)
    if only:
        if only not in BY_KIND:
            raise ValueError(f"--only {only}: no such kind; there are {', '.join(BY_KIND)}")
        wanted = [case for case in wanted if case.kind in (only, HEALTHY, f"{HEALTHY}-halved")]
    place = folder / sources()
    place.mkdir(parents=True, exist_ok=True)
    deadline = None if budget_s is None else time.monotonic() + budget_s
    python = trl_python(env or TRL_CACHE, tell)
    make(wanted, place, python, jobs, deadline, tell)
    return figures(wanted, place) | {"command": f"python -m bench rescue --trainer trl --seed {seed}", "only": only}


def outcome(case: Case, arm: str, place: Path) -> Outcome | None:
    """How a run went, if it was made."""
    path = place / f"{case.name}-{arm}.json"
    return json.loads(path.read_text()) if path.exists() else None


def make(
    wanted: Sequence[Case], place: Path, python: Path, jobs: int, deadline: float | None, tell: Callable[[str], None]
) -> None:
    """Train what is missing, in so many processes that each load TRL once."""
    missing = iter([case for case in wanted if _needs(case, place)])
    lock, failed = threading.Lock(), list[str]()

    def work() -> None:
        with subprocess.Popen(  # noqa: S603
            [python, "-m", "bench.rescue_trl.play"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=environment(1),
        ) as side:  # fmt: skip
            assert side.stdin is not None and side.stdout is not None
            while deadline is None or time.monotonic() < deadline:
                with lock:
                    case = next(missing, None)
                if case is None:
                    break
                while arm := _needs(case, place):
                    side.stdin.write(json.dumps(case.job(arm) | {"starts": str(place)}) + "\n")
                    side.stdin.flush()
                    if not (line := side.stdout.readline()):
                        failed.append(case.name)
                        return
                    (place / f"{case.name}-{arm}.json").write_text(line)
                    tell(f"made {case.name} {arm}: {json.loads(line)['final']:.3f}")
            side.stdin.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise ValueError(f"these trainings could not be made: {', '.join(failed)}")


def _needs(case: Case, place: Path) -> str:
    """The arm that is not made yet; empty if there is none."""
    off = outcome(case, OFF, place)
    if off is None:
        return OFF
    return AUTO if _heard(off) and outcome(case, AUTO, place) is None else ""


def _heard(off: Outcome) -> bool:
    """Whether a detector said anything about the training; a stall is about the machine."""
    return any(id != "system/stalled" for _, id, _ in off["findings"])


def figures(wanted: Sequence[Case], place: Path) -> dict[str, Any]:
    """What the outcomes that are there say."""
    rows = [row for case in wanted if (row := judged(case, place))]
    faults = [row for row in rows if not row["healthy"]]
    damaged = [row for row in faults if row["damaged"]]
    return {
        "schema": 1, "date": datetime.now(UTC).strftime("%Y-%m-%d"), "version": __version__, "trl": TRL_VERSION,
        "seeds": sorted({row["seed"] for row in rows}), "left out": len(wanted) - len(rows),
        "faults": len(faults), "damaged": len(damaged), "healthy": len(rows) - len(faults),
        "heard": share(sum(row["heard"] for row in damaged), len(damaged)),
        "named alone": share(sum(row["alone"] for row in damaged), len(damaged)),
        "early alone": share(sum(row["early"] for row in rows), len(rows)),
        "saved": share(sum(row["saved"] for row in damaged), len(damaged)),
        "harmed": share(sum(row["harmed"] for row in rows), len(rows)),
        "reached_off": _mean(row["off"] / row["clean"] for row in damaged),
        "reached_auto": _mean(row["auto"] / row["clean"] for row in damaged),
        "kinds": [_kind(fault.kind, faults) for fault in FAULTS],
        "cpu_s": round(sum(row["cpu_s"] for row in rows)), "cases": rows,
    }  # fmt: skip


def judged(case: Case, place: Path) -> dict[str, Any] | None:
    """One case with what it is worth; None while something is missing."""
    off, clean = outcome(case, OFF, place), outcome(case.twin, OFF, place)
    auto = outcome(case, AUTO, place) if off and _heard(off) else off
    if not off or not clean or not auto:
        return None
    healthy, good = case.kind.startswith(HEALTHY), ENOUGH * clean["final"]
    told = [row for row in off["alone"] if not row[1].startswith("system/")]
    return {
        "name": case.name, "kind": case.kind, "seed": case.seed, "healthy": healthy, "clean": clean["final"],
        "off": off["final"], "auto": auto["final"], "heard": _heard(off),
        "alone": any(at >= case.onset for at, *_ in told), "early": any(healthy or at < case.onset for at, *_ in told),
        "damaged": not healthy and off["final"] < good, "saved": auto["final"] >= good,
        "harmed": auto["final"] < off["final"] - HARM,
        "applied": [action[2] for action in auto["actions"] if action[1] == "applied"],
        "cpu_s": off["cpu_s"] + (auto["cpu_s"] if auto is not off else 0.0),
    }  # fmt: skip


def share(hits: int, n: int) -> dict[str, Any]:
    """A share with its n and its 95 % interval."""
    return {"hits": hits, "n": n, "interval": wilson(hits, n)}


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _kind(kind: str, faults: Sequence[dict[str, Any]]) -> dict[str, Any]:
    part = [row for row in faults if row["kind"] == kind]
    hurt = [row for row in part if row["damaged"]]
    return {
        "kind": kind, "n": len(part), "damaged": len(hurt), "heard": sum(row["heard"] for row in hurt),
        "saved": sum(row["saved"] for row in hurt), "harmed": sum(row["harmed"] for row in part),
        "off": _mean(row["off"] / row["clean"] for row in hurt),
        "auto": _mean(row["auto"] / row["clean"] for row in hurt),
    }  # fmt: skip


def tables(result: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """(title, rows) of everything measured."""
    whole = [
        {"": "damaged runs heard by a detector", "share": _of(result["heard"])},
        {"": "damaged runs named by diagnose from a log without the settings", "share": _of(result["named alone"])},
        {"": "all runs in which it named something before the fault, healthy ones too",
         "share": _of(result["early alone"])},
        {"": "damaged runs saved by auto-full", "share": _of(result["saved"])},
        {"": "all runs harmed by auto-full, healthy ones too", "share": _of(result["harmed"])},
        {"": "reward reached in damaged runs, of the twin's", "share": f"{result['reached_off']:.0%} without action,"
         f" {result['reached_auto']:.0%} with auto-full"},
    ]  # fmt: skip
    kinds = [
        {"setting": row["kind"], "runs": row["n"], "damaged": row["damaged"], "heard": row["heard"],
         "saved": row["saved"], "harmed": row["harmed"],
         "reached without action": f"{row['off']:.0%}" if row["damaged"] else "-",
         "with auto-full": f"{row['auto']:.0%}" if row["damaged"] else "-"}
        for row in result["kinds"] if row["n"]
    ]  # fmt: skip
    return [("Rescue inside TRL", whole), ("By setting", kinds)]


def statements(result: dict[str, Any]) -> list[str]:
    """What the numbers are of."""
    said = [
        f"{result['faults']} runs with a fault, of which {result['damaged']} were damaged, and {result['healthy']}"
        f" healthy ones; seeds {', '.join(map(str, result['seeds']))}; {result['cpu_s'] / 60:.0f} minutes of one core;"
        f" TRL {result['trl']}, version {result['version']}, {result['date']}"
    ]
    if result["left out"]:
        said.append(f"NOT COMPLETE: {result['left out']} cases were not made yet; the same command goes on with them")
    return said


def keep(result: dict[str, Any]) -> Path:
    """Keep these figures in place of the last ones."""
    KEPT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return KEPT


def _of(row: dict[str, Any]) -> str:
    if not row["n"]:
        return "-"
    low, high = row["interval"]
    return f"{row['hits']} of {row['n']}: {row['hits'] / row['n']:.0%} ({100 * low:.0f}-{100 * high:.0f})"


def sources() -> str:
    """A hash of the code by which a run ends as it does."""
    here = Path(__file__).parent
    package = here.parents[1] / "stabilizer"
    files = [here / name for name in ("host.py", "faults.py", "play.py")]
    for part in ("core", "detectors", "incidents", "remedies", "control", "guests"):
        files += (package / part).rglob("*.py")
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    print(json.dumps(measure(tell=lambda line: print(line, file=sys.stderr)), indent=1))
