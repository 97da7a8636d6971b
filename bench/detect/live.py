"""Tier T2 of StabilityBench: tiny policies that really train, with faults injected into the process half-way.

    python -m bench.detect.live --half develop|report [--seed N] [--budget S] [--only KIND] [--jobs 2]
        [--effects]

A case is a run directory with its `truth.json`: a fault of `faults.py` that begins at a random step, or a healthy run
of `live_lookalikes.py`. Every faulty run has a clean twin of the same seed, equal bit for bit until the onset; the
twins are healthy cases too. No detector runs here: scoring replays what was logged.

The halves share nothing that a detector could be tuned to:

    develop   seeds 0-999       addition by GRPO and PPO, length     strengths `Fault.develop`
    report    seeds 1000-1999   sorting by GRPO and PPO              strengths `Fault.report`

Two tasks are in both, with other seeds and strengths: `search`, for no other has a tool to break, and `length`, in the
report half for one look-alike alone, whose answers rightly grow.

`--seed N` is another draw of a half: seeds 2000 N further on, onsets drawn anew.

Cases are kept in `~/.cache/stabilizer/bench/live` under a hash of their configuration and of the sources that made
them. One that was being made when the process died is made anew.

    reach.py          where a trainer can be reached from outside
    broken_*.py       what goes wrong, as functions that reach into a trainer
    faults.py         the faults: how badly, and what should be said of them
    live_lookalikes.py     healthy runs that look ill
    live_plan.py      which cases there are
    live_effects.py   a faulty run beside its twin
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import shutil
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from bench.detect import faults, live_lookalikes
from bench.detect.live_effects import falls_at, print_effects, rewards
from bench.detect.live_plan import HOSTS, Case, plan, sources
from bench.detect.truth import Truth
from stabilizer.runs.writer import RunWriter
from stabilizer.training.config import config_dict, load_config
from stabilizer.training.loop import Trainer
from stabilizer.training.model import Policy, build_model, build_tokenizer
from stabilizer.training.tasks import TASKS
from stabilizer.training.warm_start import held_out_accuracy, imitation_loss

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "stabilizer" / "bench" / "live"
IMITATION = {"addition": 3e-3, "sorting": 1e-3, "search": 3e-3}
"""Learning rates of the imitation that makes a starting policy."""
MOST_IMITATION = 2000
"""Steps after which a starting policy must be good enough."""


# --- many cases ---------------------------------------------------------------------------------------------------


def cases(
    half: str,
    *,
    draw: int = 0,
    folder: Path | None = None,
    budget_s: float | None = None,
    jobs: int = 2,
    only: str = "",
) -> list[Path]:
    """Make what is missing of a half; the run directories of all there are then, in the plan's order.

    No case is begun once `budget_s` seconds have passed; how many that left out is said on stderr. Runs of a plan that
    no longer holds are deleted.
    """
    folder = place(folder or CACHE, draw)
    deadline = math.inf if budget_s is None else time.monotonic() + budget_s
    wanted = plan(half, draw)
    _prune(folder, half, {case.name for case in wanted})
    if only:
        chosen = [case for case in wanted if case.kind == only]
        if not chosen:
            raise ValueError(f"no kind {only!r}; there are {', '.join(sorted({case.kind for case in wanted}))}")
        wanted = list(dict.fromkeys([*(case.twin for case in chosen if case.severity), *chosen]))
    missing = [case for case in wanted if not made(case, folder)]
    for task, accuracy in dict.fromkeys((case.task, case.start) for case in missing):
        if accuracy is not None and time.monotonic() < deadline:
            start(task, accuracy, folder)
    twins = {case.twin for case in missing if case.severity}
    for part in ([c for c in missing if c in twins], [c for c in missing if c not in twins]):
        _make_all(part, folder, jobs, deadline)
    there = []
    for case in wanted:
        if made(case, folder):
            there.append(path := folder / half / case.name)
            twin = folder / half / case.twin.name if case.severity else None
            truth(case, path, twin).save(path)  # by today's table, which is no part of how a run comes about
    left = f"; the budget left out {len(wanted) - len(there)}" if len(there) < len(wanted) else ""
    print(f"{half}: {len(there)} of {len(wanted)} cases{left}", file=sys.stderr)
    return there


def place(folder: Path, draw: int) -> Path:
    """Where the runs of a draw are kept."""
    return folder.expanduser() / (f"draw-{draw}" if draw else "")


def _make_all(wanted: list[Case], folder: Path, jobs: int, deadline: float) -> None:
    if not wanted:
        return
    waiting, running, failed = iter(wanted), dict[Future[Path], str](), list[str]()
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin) as pool:
        while True:
            while len(running) < jobs and time.monotonic() < deadline and (case := next(waiting, None)):
                running[pool.submit(make, case, folder)] = case.name
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                if error := future.exception():
                    failed.append(f"{name}: {type(error).__name__}: {error}")
                print(f"{'failed' if error else 'made'} {name}", file=sys.stderr, flush=True)
    if failed:
        raise RuntimeError("these cases could not be made:\n" + "\n".join(failed))


def _begin() -> None:
    """A process of the pool ends with the one that started it, however that one ends."""
    torch.set_num_threads(1)
    Thread(target=lambda: (parent_process().join(), os._exit(1)), daemon=True).start()


def _prune(folder: Path, half: str, names: set[str]) -> None:
    """Delete runs of a plan that no longer holds, and what dead processes left unfinished."""
    old = [path for path in _inside(folder / half) if path.name not in names]
    for path in [*old, *(path for path in _inside(folder / "unfinished") if not lives(path.name))]:
        shutil.rmtree(path)


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def lives(pid: str) -> bool:
    """Whether a process with this number is there."""
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


# --- one case -----------------------------------------------------------------------------------------------------


def made(case: Case, folder: Path) -> bool:
    """Whether the case is there, whole."""
    return (folder / case.half / case.name / "truth.json").exists()


def make(case: Case, folder: Path) -> Path:
    """The run directory of a case, trained unless it is there; a half-made one of a killed process is thrown away.

    A faulty case needs its twin to be there, or makes it.
    """
    path = folder / case.half / case.name
    if made(case, folder):
        return path
    twin = make(case.twin, folder) if case.severity else None
    making = folder / "unfinished" / f"{os.getpid()}" / case.name
    shutil.rmtree(making, ignore_errors=True)
    train(case, making, folder)
    truth(case, making, twin).save(making)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    making.rename(path)
    making.parent.rmdir()
    return path


def train(case: Case, path: Path, folder: Path) -> None:
    """Train one run into `path`, as `stabilizer train` writes it, with nobody watching."""
    look = live_lookalikes.BY_KIND.get(case.kind)
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
    fault, look = faults.BY_KIND.get(case.kind), live_lookalikes.BY_KIND.get(case.kind)
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
    for step in range(1, MOST_IMITATION):
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


def main() -> None:
    """Make a half, or look at what its faults did."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--half", choices=sorted(HOSTS), required=True)
    parser.add_argument("--seed", type=int, default=0, help="another draw of the half")
    parser.add_argument("--budget", type=float, help="seconds after which no case is begun")
    parser.add_argument("--only", default="", help="one kind of fault, with its twins, or of healthy run")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--folder", type=Path, default=CACHE, help="where cases are kept")
    parser.add_argument("--effects", action="store_true", help="show what the faults did in the cases that are there")
    args = parser.parse_args()
    if args.effects:
        print_effects(plan(args.half, args.seed), place(args.folder, args.seed), args.only)
        return
    try:
        cases(args.half, draw=args.seed, folder=args.folder, budget_s=args.budget, jobs=args.jobs, only=args.only)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
