"""Tier T2 of StabilityBench: tiny policies that really train, with faults injected into the process half-way.

    python -m stabilizer.bench.detect.live --half develop|report [--budget S] [--only KIND] [--jobs 2] [--effects]

A case is a run directory with its `truth.json`: a fault of `faults.py` that begins at a random step, or a healthy run
of `lookalikes.py`. Every faulty run has a clean twin of the same seed, which it equals bit for bit until the onset; the
twins are healthy cases too. No detector runs here: scoring replays what was logged.

The halves share nothing that a detector could be tuned to:

    develop   seeds 0-999       addition by GRPO and PPO, length     strengths `Fault.develop`
    report    seeds 1000-1999   sorting by GRPO and PPO              strengths `Fault.report`

Two tasks are in both, with other seeds and strengths: `search`, for no other has a tool to break, and `length` for the
one look-alike whose answers rightly grow.

Cases are kept in `~/.cache/stabilizer/bench/live` under a hash of their configuration and of the sources that made
them. One that was being made when the process died is made anew.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import os
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from stabilizer.bench.detect import faults, inject, lookalikes
from stabilizer.bench.detect.truth import Truth
from stabilizer.runs.directory import RunWriter
from stabilizer.runs.history import History
from stabilizer.runs.loaded import load_own
from stabilizer.trainer.config import config_dict, load_config
from stabilizer.trainer.loop import Trainer
from stabilizer.trainer.model import Policy, build_model, build_tokenizer
from stabilizer.trainer.tasks import TASKS, random_bits
from stabilizer.trainer.warm_start import held_out_accuracy, imitation_loss

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "stabilizer" / "bench" / "live"
FIRST_ONSET = 60
"""The earliest step at which a fault begins: a run has to have a past by which it can be judged."""
LAST_ONSET = 0.6
"""Share of the run by which every fault has begun, so that there is time to see it."""
HEALTHY = 0.42
"""Share of the cases that are healthy."""
FIRST_SEED = {"develop": 0, "report": 1000}
IMITATION = {"addition": 3e-3, "sorting": 1e-3, "search": 3e-3}
"""Learning rates of the imitation that makes a starting policy."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """The run that a fault happens to."""

    task: str
    algorithm: str = "grpo"
    steps: int = 240
    start: float | None = 0.5
    """Held-out accuracy to which the starting policy imitated demonstrations; None for the one that is shipped."""
    settings: tuple[str, ...] = ()
    seeds: int = 6
    """Clean twins, over which the faults are spread."""


_SMALL = ("rollout.prompts=8", "rollout.group_size=6", "rollout.max_completion=10", "optim.lr=3e-4",
          "policy.entropy_coef=0")  # fmt: skip
_CRITIC = ("optim.lr=2e-4", "critic.warmup_steps=10")
_LENGTH = Host(task="length", steps=200, start=None, seeds=3, settings=("rollout.prompts=4", "rollout.group_size=6"))
_TOOL = Host(task="search", steps=150, start=0.7, seeds=2,
             settings=("rollout.prompts=4", "rollout.group_size=4", "optim.lr=2e-4"))  # fmt: skip

HOSTS: dict[str, dict[str, Host]] = {
    "develop": {
        "grpo": Host(task="addition", settings=_SMALL),
        "ppo": Host(task="addition", algorithm="ppo", settings=(*_SMALL, *_CRITIC), seeds=3),
        "length": _LENGTH,
        "tool": _TOOL,
    },
    "report": {
        "grpo": Host(task="sorting", settings=_SMALL),
        "ppo": Host(task="sorting", algorithm="ppo", settings=(*_SMALL, *_CRITIC), seeds=3),
        "length": Host(task="sorting", settings=_SMALL, seeds=3),
        "tool": _TOOL,
    },
}

_EVERYWHERE = ("device=cpu", "threads=1", "optim.schedule=constant", "validation.every=20", "validation.problems=64",
               "checkpoint.every=0", "checkpoint.best=false", "samples.every=20", "samples.count=2")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run to be made."""

    half: str
    kind: str
    task: str
    algorithm: str
    seed: int
    steps: int
    settings: tuple[str, ...]
    start: float | None
    severity: str | None = None
    strength: float | None = None
    onset: int | None = None
    """The first step that differs; of a healthy run, that at which its event happens."""

    @property
    def name(self) -> str:
        """What its folder is called."""
        words = (self.kind.replace("/", "-"), self.severity, self.task, self.algorithm, str(self.seed), self.key)
        return "-".join(word for word in words if word)

    @property
    def key(self) -> str:
        """A hash of all that decides what is logged."""
        text = json.dumps(asdict(self), sort_keys=True) + sources()
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def twin(self) -> Case:
        """The same run without the fault."""
        host = faults.BY_KIND[self.kind].hosts
        return replace(self, kind=_plain(self, host), severity=None, strength=None, onset=None)


# --- the plan -----------------------------------------------------------------------------------------------------


def plan(half: str) -> list[Case]:
    """Every case of a half, faults and healthy runs evenly mixed, so that any beginning of it is a fair sample."""
    ill = [case for severity in ("medium", "severe", "subtle") for case in _faulty(half, severity)]
    twins = list(dict.fromkeys(case.twin for case in ill))
    others = math.ceil(len(ill) * HEALTHY / (1 - HEALTHY)) - len(twins)
    looks = [look for look in lookalikes.LOOKALIKES if look.kind not in lookalikes.PLAIN.values()]
    well = [_healthy(half, look, i) for i in range(-(-others // len(looks))) for look in looks][:others]
    ranked = [((i + 0.5) / len(part), case) for part in (ill, well) for i, case in enumerate(part)]
    return twins + [case for _, case in sorted(ranked, key=lambda row: row[0])]


def _faulty(half: str, severity: str) -> Iterator[Case]:
    at = faults.SEVERITIES.index(severity)
    for fault in faults.FAULTS:
        strength = getattr(fault, half)[at]
        if strength is None:
            continue
        host = HOSTS[half][fault.hosts[at % len(fault.hosts)]]
        bits = random_bits(half, fault.kind, severity)
        last = int(LAST_ONSET * host.steps)
        yield Case(
            half=half, kind=fault.kind, task=host.task, algorithm=host.algorithm,
            seed=FIRST_SEED[half] + bits % host.seeds, steps=host.steps,
            settings=(*_EVERYWHERE, *host.settings), start=host.start,
            severity=severity, strength=float(strength),
            onset=FIRST_ONSET + bits // 1000 % (last - FIRST_ONSET + 1),
        )  # fmt: skip


def _healthy(half: str, look: lookalikes.LookAlike, i: int) -> Case:
    host = HOSTS[half][look.host]
    if look.host == "length":
        host = _LENGTH
    return Case(
        half=half, kind=look.kind, task=host.task, algorithm=host.algorithm,
        seed=FIRST_SEED[half] + 100 + i, steps=host.steps,
        settings=(*_EVERYWHERE, *host.settings, *look.settings),
        start=lookalikes.STRONG[host.task] if look.strong else host.start,
        onset=max(1, round(look.at * host.steps)) if look.act or look.resumes else None,
    )  # fmt: skip


def _plain(case: Case, hosts: Sequence[str]) -> str:
    """The kind of healthy run that a faulty case would have been."""
    for host in hosts:
        known = HOSTS[case.half][host]
        if (known.task, known.algorithm) == (case.task, case.algorithm):
            return lookalikes.PLAIN["grpo" if known == HOSTS[case.half]["grpo"] else host]
    raise ValueError(f"{case.kind}: no host of {hosts} trains {case.task} by {case.algorithm}")


@cache
def sources() -> str:
    """A hash of the code by which runs come about."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    package = here.parents[1]
    files = [here / "inject.py", here / "lookalikes.py", package / "remedies" / "controls.py"]
    for file in sorted([*files, *(package / "trainer").rglob("*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


# --- making one ---------------------------------------------------------------------------------------------------


def make(case: Case, folder: Path) -> Path:
    """The run directory of a case, trained unless it is there; a half-made one of a killed process is thrown away.

    A faulty case needs its twin to be there, or makes it.
    """
    path = folder / case.half / case.name
    if (path / "truth.json").exists():
        return path
    twin = make(case.twin, folder) if case.severity else None
    making = folder / "unfinished" / case.name
    shutil.rmtree(making, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)
    train(case, making, folder)
    truth(case, making, twin).save(making)
    path.parent.mkdir(parents=True, exist_ok=True)
    making.rename(path)
    return path


def train(case: Case, path: Path, folder: Path) -> None:
    """Train one run into `path`, as `stabilizer train` writes it, with nobody watching."""
    look = lookalikes.BY_KIND.get(case.kind)
    trainer = _trainer(case, path, folder)
    writer = RunWriter.create(
        path, config=config_dict(trainer.config), task=case.task, steps=case.steps,
        versions={"torch": torch.__version__}, argv=("bench", "detect"),
    )  # fmt: skip
    writer.status("running", 0)
    writer.metrics(0, trainer.validate())
    for step in range(1, case.steps + 1):
        if step == case.onset:
            trainer = _turn(case, trainer, writer, folder)
        result = trainer.train_step()
        if look is None or step % look.log_every == 0:
            writer.metrics(step, result.metrics)
        writer.samples(step, result.samples)
        writer.status("running", step)
    writer.status("finished", case.steps)
    writer.close()
    shutil.rmtree(path / "checkpoints", ignore_errors=True)


def _trainer(case: Case, path: Path, folder: Path, attempt: int = 0) -> Trainer:
    settings = list(case.settings)
    if case.start is not None:
        settings.append(f"model={start(case.task, case.start, folder)}")
    algorithm = [] if any(key.startswith("algorithm=") for key in settings) else [f"algorithm={case.algorithm}"]
    config = load_config(case.task, [*settings, *algorithm], steps=case.steps, seed=case.seed)
    trainer = Trainer(config, checkpoints=path / "checkpoints", attempt=attempt)
    trainer.task = trainer.collector._task = copy.copy(trainer.task)  # a fault may not reach the next run's task
    return trainer


def _turn(case: Case, trainer: Trainer, writer: RunWriter, folder: Path) -> Trainer:
    """Make the fault, or the event of a healthy run, happen before the next step; the trainer to go on with."""
    fault, look = faults.BY_KIND.get(case.kind), lookalikes.BY_KIND.get(case.kind)
    if (fault or look).resumes:
        trainer.save_checkpoint()
        attempt = writer.begin_attempt(case.onset, "resume")
        writer.event(case.onset, "resume", f"resumed from step {trainer.step}")
        trainer = _trainer(case, writer.path, folder, attempt)
        trainer.resume()
    if fault:
        fault.act(trainer, case.strength)
    elif look and look.act:
        look.act(trainer)
        if look.declares:
            writer.event(case.onset, look.declares, look.kind.removeprefix("healthy/"))
    return trainer


def start(task: str, accuracy: float, folder: Path) -> Path:
    """A starting policy that imitated demonstrations until it solved this share of the held-out problems."""
    path = folder / "starts" / f"{task}-{accuracy:g}-{sources()[:10]}"
    if path.exists():
        return path
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = build_tokenizer(TASKS[task].symbols)
    policy = Policy(build_model(tokenizer), tokenizer)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=IMITATION[task], betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(1, 3000):
        for group in optimizer.param_groups:
            group["lr"] = IMITATION[task] * min(1.0, step / 50)
        optimizer.zero_grad()
        imitation_loss(policy, TASKS[task], 0, step).backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        if step % 2 == 0 and held_out_accuracy(policy, TASKS[task]) >= accuracy:
            break
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    policy.model.save_pretrained(unfinished)
    policy.tokenizer.save_pretrained(unfinished)
    shutil.rmtree(path, ignore_errors=True)
    unfinished.rename(path)
    return path


# --- its truth ----------------------------------------------------------------------------------------------------


def truth(case: Case, path: Path, twin: Path | None) -> Truth:
    """What is known of a case that was made."""
    about: dict[str, Any] = {"tier": "T2", "kind": case.kind, "task": case.task, "algorithm": case.algorithm,
                             "seed": case.seed, "half": case.half, "steps": case.steps}  # fmt: skip
    if twin is None:
        return Truth(healthy=True, **about)
    fault = faults.BY_KIND[case.kind]
    return Truth(
        healthy=False, fault=fault.kind, accept=fault.accept, causes=fault.causes, onset_step=case.onset,
        severity=case.severity, speed=fault.speed,
        reward_falls_at=falls_at(rewards(path), rewards(twin), case.onset), **about,
    )  # fmt: skip


def history(path: Path) -> History:
    """What a run logged."""
    return load_own(path).history


def rewards(path: Path) -> dict[int, float]:
    """Mean reward by step; steps whose reward is no number are left out."""
    series = history(path).view().series("reward/mean").finite()
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


WINDOW = 10
"""Steps over which rewards of a run and of its twin are averaged before they are compared."""


def falls_at(ill: dict[int, float], twin: dict[int, float], onset: int) -> int | None:
    """The first step from which a run's reward stays below its twin's to the end, beyond what chance does; or None.

    The gap counts as chance below twice the standard error of a difference of two means over `WINDOW` steps, and as a
    fall when it passes four of them; the noise is that from one step of the twin to the next.
    """
    steps = [step for step in sorted(twin) if step >= onset and step in ill]
    values = [twin[step] for step in sorted(twin)]
    if len(steps) < 2 * WINDOW:
        return None
    noise = statistics.stdev(b - a for a, b in zip(values, values[1:], strict=False)) / math.sqrt(2)
    error = noise * math.sqrt(2 / WINDOW)
    gaps = [twin[step] - ill[step] for step in steps]
    means = [statistics.fmean(gaps[i : i + WINDOW]) for i in range(len(gaps) - WINDOW + 1)]
    first = next((i + 1 for i in reversed(range(len(means))) if means[i] < 2 * error), 0)
    if len(means) - first < WINDOW or max(means[first:]) < 4 * error:
        return None
    return steps[first]


# --- making many --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """What `cases` hands back: the run directories, and how much of the plan they are."""

    paths: list[Path]
    planned: int

    def __str__(self) -> str:
        left = self.planned - len(self.paths)
        return f"{len(self.paths)} of {self.planned} cases" + (f"; the budget left out {left}" if left else "")


def cases(
    half: str, *, folder: Path | None = None, budget_s: float | None = None, jobs: int = 2, only: str = ""
) -> Made:
    """Make what is missing of a half and return all there is, in the plan's order.

    No case is begun once `budget_s` seconds have passed. Runs of a plan that no longer holds are deleted.
    """
    folder, began = folder or CACHE, time.monotonic()
    wanted = plan(half)
    _prune(folder / half, {case.name for case in wanted})
    if only:
        ill = [case for case in wanted if case.kind == only]
        wanted = list(dict.fromkeys([*(case.twin for case in ill if case.severity), *ill]))
        if not wanted:
            known = [*faults.BY_KIND, *lookalikes.BY_KIND]
            raise ValueError(f"no kind {only!r}; there are {', '.join(known)}")
    missing = [case for case in wanted if not (folder / half / case.name / "truth.json").exists()]
    for task, accuracy in dict.fromkeys((case.task, case.start) for case in missing if case.start is not None):
        start(task, accuracy, folder)
    twins = {case.twin for case in missing if case.severity}
    for part in ([c for c in missing if c in twins], [c for c in missing if c not in twins]):
        left = None if budget_s is None else began + budget_s - time.monotonic()
        _make_all(part, folder, jobs, left)
    there = [folder / half / case.name for case in wanted]
    return Made([path for path in there if (path / "truth.json").exists()], len(wanted))


def _make_all(wanted: list[Case], folder: Path, jobs: int, left_s: float | None) -> None:
    deadline = math.inf if left_s is None else time.monotonic() + left_s
    waiting, running = iter(wanted), set[Future[Path]]()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        while True:
            while len(running) < jobs and time.monotonic() < deadline and (case := next(waiting, None)):
                running.add(pool.submit(make, case, folder))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                print(f"made {future.result().name}", flush=True)


def _prune(folder: Path, names: set[str]) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in names:
            shutil.rmtree(path)


# --- whether a fault shows ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """What a fault did to one metric."""

    metric: str
    before: float
    after: float
    twin: float
    """The clean twin over the same steps as `after`."""
    size: float
    """(after - twin) / the deviation of both."""


def effects(path: Path, twin: Path, onset: int) -> list[Effect]:
    """What differs from the twin after the onset, largest first; every metric but the times of day."""
    ill, well = history(path).view(), history(twin).view()
    found = []
    for name in sorted({*ill.names(), *well.names()}):
        if name.startswith("time/") and name != "time/scoring_s":
            continue
        before, after, clean = (
            view.series(name).between(first, last).values.tolist()
            for view, first, last in ((ill, 1, onset - 1), (ill, onset, 10**6), (well, onset, 10**6))
        )
        if not after:
            continue
        clean = clean or before or [0.0]
        found.append(Effect(name, _mean(before), _mean(after), _mean(clean), _distance(after, clean)))
    return sorted(found, key=lambda effect: -abs(effect.size))


def shows(fault: faults.Fault, found: Sequence[Effect]) -> bool:
    """Whether anything of what the fault should move has moved that way, by a third of a deviation at least."""
    sizes = {effect.metric: effect.size for effect in found}
    return any(sizes.get(name[:-1], 0.0) * (-1 if name[-1] == "-" else 1) > 1 / 3 for name in fault.shows)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return statistics.fmean(known) if known else math.nan


def _distance(after: Sequence[float], clean: Sequence[float]) -> float:
    a, b = ([v for v in values if math.isfinite(v)] for values in (after, clean))
    if not a or not b:
        return math.inf if len(a) != len(b) else 0.0
    spread = math.sqrt((statistics.pvariance(a) + statistics.pvariance(b)) / 2)
    gap = statistics.fmean(a) - statistics.fmean(b)
    return gap / spread if spread else math.copysign(math.inf, gap) if gap else 0.0


def print_effects(half: str, folder: Path, only: str = "") -> None:
    """A table of what every fault did, from the cases that are there."""
    for case in plan(half):
        path = folder / half / case.name
        if not (path / "truth.json").exists() or (only and case.kind != only):
            continue
        if not case.severity:
            known = list(rewards(path).values())
            print(f"{case.kind:20s} {case.task:9s} {case.seed:5d}  reward {_mean(known[:30]):8.3g} -> {_mean(known[-30:]):8.3g}")
            continue
        found = effects(path, folder / half / case.twin.name, case.onset)
        fault, told = faults.BY_KIND[case.kind], json.loads((path / "truth.json").read_text())
        wanted = [next((e for e in found if e.metric == name[:-1]), None) for name in fault.shows]
        seen = "shows " if shows(fault, found) else "HIDDEN"
        print(f"{seen} {case.kind:20s} {case.severity:6s} {case.strength:<7g} {case.algorithm:4s} onset {case.onset:3d}"
              f" reward falls at {told['reward_falls_at']}")  # fmt: skip
        for effect in dict.fromkeys([*(e for e in wanted if e), *found[:3]]):
            print(f"         {effect.metric:28s} {effect.before:9.3g} -> {effect.after:9.3g}, twin {effect.twin:9.3g} ({effect.size:+.1f} sd)")


def main() -> None:
    """Make a half, or look at what its faults did."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--half", choices=sorted(HOSTS), required=True)
    parser.add_argument("--budget", type=float, help="seconds after which no case is begun")
    parser.add_argument("--only", default="", help="one kind of fault or healthy run, with its twins")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--folder", type=Path, default=CACHE, help="where cases are kept")
    parser.add_argument("--effects", action="store_true", help="show what the faults did in the cases that are there")
    args = parser.parse_args()
    if args.effects:
        print_effects(args.half, args.folder, args.only)
        return
    print(cases(args.half, folder=args.folder, budget_s=args.budget, jobs=args.jobs, only=args.only))


if __name__ == "__main__":
    main()
