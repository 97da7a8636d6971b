"""Training loops that hang, and loops that only look so: `python -m bench.hangs.scenes NAME FOLDER` runs one.

Each is a process with the real watchdog. Its limits are 1/60 of the real ones, so a minute is a second: the limit of a
step is 2 s instead of 2 min. A step takes 30 ms before the hang.
"""

from __future__ import annotations

import code
import multiprocessing
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from stabilizer.guests.own_loop import GuestRun
from stabilizer.live import heart, outcry
from stabilizer.live.rank_watch import RankWatch

SCALE = 1 / 60
"""Real limits are multiplied by this."""
WARM = 10
"""Steps before something happens."""
FOR_EVER = 3600.0


class Truth(NamedTuple):
    """What a good answer to a hang says."""

    kinds: tuple[str, ...]
    phase: str
    words: str
    """A word of the finding: the function that hangs, or the rank."""


class Loop:
    """A loop of ordinary steps with a run."""

    def __init__(self, folder: Path, world: int = 1):
        self.folder = folder
        self.run = GuestRun("scene", runs=folder / "runs", world=world, steps=None)
        self.heart = self.run.heart
        self.count = 0

    def step(self, **longer: Any) -> None:
        """One step; `longer` gives the work of a phase, as seconds or as a function."""
        self.count += 1
        for phase in ("data", "rollout", "reward", "update", *(set(longer) - {"data", "rollout", "reward", "update"})):
            with self.run.phase(phase, f"{phase} of step {self.count}"):
                work = longer.get(phase, 0.005)
                work() if callable(work) else time.sleep(work)
        self.run.log({"reward/mean": 0.3, "policy/kl_ref": 0.01}, self.count)

    def warm(self, **work: Any) -> Loop:
        for _ in range(WARM):
            self.step(**work)
        return self


def compute(seconds: float) -> None:
    """Keep one core busy in Python."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


# --- hangs ------------------------------------------------------------------------------------------------------------


def sleeping_reward(folder: Path) -> None:
    def judge_slowly() -> None:
        time.sleep(FOR_EVER)

    Loop(folder).warm().step(reward=judge_slowly)


def busy_reward(folder: Path) -> None:
    def judge_for_ever() -> None:
        while True:
            pass

    Loop(folder).warm().step(reward=judge_for_ever)


def reward_in_a_thread(folder: Path) -> None:
    def judge_in_thread() -> None:
        time.sleep(FOR_EVER)

    def judge() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(judge_in_thread).result()

    Loop(folder).warm().step(reward=judge)


def lock_taken_twice(folder: Path) -> None:
    lock = threading.Lock()

    def update_weights() -> None:
        with lock, lock:
            pass

    Loop(folder).warm().step(update=update_weights)


def queue_nobody_fills(folder: Path) -> None:
    def next_batch() -> None:
        queue.Queue().get()

    Loop(folder).warm().step(other=next_batch)


def event_loop_that_waits(folder: Path) -> None:
    import asyncio

    async def forever() -> None:
        await asyncio.Event().wait()

    def play_episode() -> None:
        asyncio.run(forever())

    Loop(folder).warm().step(other=play_episode)


def child_that_never_returns(folder: Path) -> None:
    def convert_checkpoint() -> None:
        subprocess.run(["sleep", str(FOR_EVER)], check=False)  # noqa: S603, S607

    Loop(folder).warm().step(other=convert_checkpoint)


def engine_that_does_not_answer(folder: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def ask_engine() -> None:
        with socket.create_connection(server.getsockname()) as asked:
            asked.recv(1)

    Loop(folder).warm().step(rollout=ask_engine)


def judge_behind_a_network(folder: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def ask_judge() -> None:
        import urllib.request

        host, port = server.getsockname()
        urllib.request.urlopen(f"http://{host}:{port}/score")

    Loop(folder).warm().step(other=ask_judge)


def _never(index: int) -> int:
    time.sleep(FOR_EVER)
    return index


def _engine(asked: Any, answers: Any) -> None:
    while True:
        answers.put(asked.get())


def dead_engine(folder: Path) -> None:
    asked, answers = multiprocessing.Queue(), multiprocessing.Queue()
    engine = multiprocessing.Process(target=_engine, args=(asked, answers), daemon=True)
    engine.start()

    def generate() -> None:
        asked.put("prompt")
        answers.get()

    def generate_without_engine() -> None:
        os.kill(engine.pid or 0, signal.SIGKILL)
        time.sleep(0.2)
        generate()

    loop = Loop(folder).warm(rollout=generate)
    time.sleep(2.5 * SCALE * 60)  # the watchdog has seen the engine
    loop.step(rollout=generate_without_engine)


def stopped_engine(folder: Path) -> None:
    asked, answers = multiprocessing.Queue(), multiprocessing.Queue()
    engine = multiprocessing.Process(target=_engine, args=(asked, answers), daemon=True)
    engine.start()

    def generate() -> None:
        os.kill(engine.pid or 0, signal.SIGSTOP)
        asked.put("prompt")
        answers.get()

    Loop(folder).warm().step(rollout=generate)


def compiler_at_work(folder: Path) -> None:
    compiler = folder / "cc1plus"
    shutil.copy(shutil.which("sh") or "/bin/sh", compiler)

    def first_forward() -> None:
        child = subprocess.Popen([str(compiler), "-c", "while :; do :; done"])  # noqa: S603
        child.wait()

    Loop(folder).warm().step(update=first_forward)


def native_code_that_holds_python(folder: Path) -> None:
    def judge_by_pattern() -> None:
        re.match(r"(a+)+$", "a" * 60 + "b")

    Loop(folder).warm().step(reward=judge_by_pattern)


class _Stuck:
    """A data set whose eleventh batch never comes."""

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> int:
        return _never(index) if index >= 2 * WARM else index


def data_loader_stuck(folder: Path) -> None:
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(_Stuck(), batch_size=2, num_workers=1, prefetch_factor=2))  # type: ignore[arg-type]

    def fetch_batch() -> None:
        next(batches)

    loop = Loop(folder)
    while True:
        loop.step(data=fetch_batch)


def save_on_a_blocked_disk(folder: Path) -> None:
    os.mkfifo(folder / "disk")

    def save_checkpoint() -> None:
        (folder / "disk").write_bytes(b"weights")

    Loop(folder).warm(save=0.01).step(save=save_checkpoint)


def stopped_process(folder: Path) -> None:
    Loop(folder).warm().step(update=lambda: os.kill(os.getpid(), signal.SIGSTOP))


def killed_in_a_save(folder: Path) -> None:
    def save_and_die() -> None:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)

    Loop(folder).warm(save=0.01).step(save=save_and_die)


def first_step_never_ends(folder: Path) -> None:
    def first_judgement() -> None:
        time.sleep(FOR_EVER)

    Loop(folder).step(reward=first_judgement)


def _two_ranks(folder: Path, last: Callable[[int], None]) -> None:
    """Two processes over gloo; `last` is what a rank does in its last update."""
    file = folder / "store"
    if os.environ.get("SCENE_RANK") is None:
        for rank in ("0", "1"):
            command = [sys.executable, "-m", "bench.hangs.scenes", sys.argv[1], str(folder)]
            subprocess.Popen(command, env={**os.environ, "SCENE_RANK": rank})  # noqa: S603
        time.sleep(FOR_EVER)
    import torch
    from torch import distributed as dist

    rank = int(os.environ["SCENE_RANK"])
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)

    def all_reduce_gradients() -> None:
        dist.all_reduce(torch.ones(1))

    if rank == 0:
        loop = Loop(folder, world=2).warm(update=all_reduce_gradients)
        time.sleep(3)
        loop.step(update=lambda: last(0) or all_reduce_gradients())
    else:
        watch = RankWatch(1, 2)
        for step in range(1, WARM + 1):
            with watch.heart.phase("update"):
                all_reduce_gradients()
            watch.heart.beat(step)
        time.sleep(3)
        with watch.heart.phase("update"):
            last(1)
            all_reduce_gradients()


def one_rank_elsewhere(folder: Path) -> None:
    def check_own_shard() -> None:
        time.sleep(FOR_EVER)

    _two_ranks(folder, lambda rank: check_own_shard() if rank == 1 else None)


def one_rank_stopped(folder: Path) -> None:
    _two_ranks(folder, lambda rank: os.kill(os.getpid(), signal.SIGSTOP) if rank == 1 else None)


def one_rank_killed(folder: Path) -> None:
    """The process is gone, and the collective waits on the file store of a barrier that cannot complete."""

    def wait_for_the_others(rank: int) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            time.sleep(0.05)

    _two_ranks(folder, wait_for_the_others)


HANGS: dict[str, tuple[Callable[[Path], None], Truth]] = {
    "a reward that sleeps": (sleeping_reward, Truth(("slow-reward",), "reward", "judge_slowly")),
    "a reward in an endless loop": (busy_reward, Truth(("slow-reward",), "reward", "judge_for_ever")),
    "a reward that sleeps in a thread": (reward_in_a_thread, Truth(("slow-reward",), "reward", "judge_in_thread")),
    "a lock taken twice": (lock_taken_twice, Truth(("deadlock",), "update", "update_weights")),
    "a queue that nobody fills": (queue_nobody_fills, Truth(("deadlock",), "other", "next_batch")),
    "an event loop that waits": (event_loop_that_waits, Truth(("deadlock",), "other", "play_episode")),
    "a child that never returns": (
        child_that_never_returns, Truth(("waiting-for-child",), "other", "convert_checkpoint"),
    ),
    "an engine that does not answer": (
        engine_that_does_not_answer, Truth(("silent-engine", "no-answer"), "rollout", "ask_engine"),
    ),
    "a judge behind a network": (judge_behind_a_network, Truth(("no-answer",), "other", "ask_judge")),
    "an engine that was killed": (dead_engine, Truth(("dead-engine",), "rollout", "generate")),
    "an engine stopped by a signal": (stopped_engine, Truth(("stopped-process",), "rollout", "generate")),
    "a compiler at work": (compiler_at_work, Truth(("compiling",), "update", "first_forward")),
    "native code that holds Python": (
        native_code_that_holds_python, Truth(("interpreter-held",), "", "judge_by_pattern"),
    ),
    "a data loader whose worker is stuck": (data_loader_stuck, Truth(("data-loading",), "data", "fetch_batch")),
    "a save on a blocked disk": (save_on_a_blocked_disk, Truth(("slow-disk",), "save", "save_checkpoint")),
    "the process stopped by a signal": (stopped_process, Truth(("stopped-process",), "", "")),
    "the process killed in a save": (killed_in_a_save, Truth(("ended-in-phase",), "save", "saving")),
    "a first step that never ends": (first_step_never_ends, Truth(("slow-reward",), "reward", "first_judgement")),
    "one of two ranks is elsewhere": (
        one_rank_elsewhere, Truth(("missing-rank", "waiting"), "update", "check_own_shard"),
    ),
    "one of two ranks is stopped": (one_rank_stopped, Truth(("missing-rank", "stopped-process"), "", "rank 1")),
    "one of two ranks was killed": (one_rank_killed, Truth(("missing-rank", "ended-in-phase"), "", "rank 1")),
}  # fmt: skip


# --- quiet ------------------------------------------------------------------------------------------------------------


def long_validation(folder: Path) -> None:
    loop = Loop(folder).warm(validation=0.2)
    loop.step(validation=10.0)  # ten minutes after twelve seconds
    loop.warm()


def first_step_compiles(folder: Path) -> None:
    loop = Loop(folder)
    loop.step(update=20.0)  # twenty minutes
    loop.warm()


def one_more_compilation(folder: Path) -> None:
    loop = Loop(folder).warm()
    loop.step(update=lambda: compute(4.0))  # four minutes at full use
    loop.warm()


def slow_checkpoint(folder: Path) -> None:
    loop = Loop(folder).warm(save=0.1)
    loop.step(save=8.0)  # eight minutes after six seconds
    loop.warm()


def machine_asleep(folder: Path) -> None:
    loop = Loop(folder).warm()
    real, slept = loop.heart.clock, [0.0]
    loop.heart.clock = lambda: real() + slept[0]

    def nap() -> None:
        time.sleep(0.5)
        slept[0] = 8 * 3600.0
        time.sleep(1.0)

    loop.step(update=nap)
    loop.warm()


def steps_that_grow(folder: Path) -> None:
    loop, seconds = Loop(folder).warm(), 0.05
    while seconds < 4:
        loop.step(update=seconds)
        seconds *= 1.25


def paused_for_long(folder: Path) -> None:
    loop = Loop(folder).warm()
    loop.run._host.hold(True)
    threading.Timer(8.0, loop.run._host.hold, [False]).start()
    loop.run.wait()
    loop.warm()


def stopped_and_continued(folder: Path) -> None:
    loop = Loop(folder).warm()
    pid = os.getpid()
    subprocess.Popen(["sh", "-c", f"kill -STOP {pid}; sleep 6; kill -CONT {pid}"])  # noqa: S603, S607
    loop.step(update=1.0)
    loop.warm()


def uneven_rewards(folder: Path) -> None:
    loop = Loop(folder)
    for number in range(60):
        loop.step(reward=0.01 * (1 + number * number % 97))


def a_long_tail(folder: Path) -> None:
    loop = Loop(folder).warm(rollout=0.15)
    for number in range(20):
        loop.step(rollout=1.7 if number % 7 == 3 else 0.15)


def slow_start(folder: Path) -> None:
    loop = Loop(folder)
    time.sleep(15.0)  # a model that takes fifteen minutes to load
    loop.warm()


def person_at_a_prompt(folder: Path) -> None:
    Loop(folder).warm()
    read, write = os.pipe()
    os.dup2(read, 0)
    threading.Timer(8.0, os.close, [write]).start()
    code.interact(banner="", exitmsg="")


def evaluation_at_the_end(folder: Path) -> None:
    loop = Loop(folder).warm()
    with loop.run.phase("validation"):
        time.sleep(12.0)
    loop.run.finish()


def thousands_of_short_steps(folder: Path) -> None:
    loop = Loop(folder)
    for _ in range(250):
        loop.step()


QUIET: dict[str, Callable[[Path], None]] = {
    "a long validation": long_validation,
    "a first step that compiles": first_step_compiles,
    "one more compilation": one_more_compilation,
    "a slow checkpoint": slow_checkpoint,
    "a machine that sleeps": machine_asleep,
    "steps that grow": steps_that_grow,
    "a pause that a person asked for": paused_for_long,
    "a process stopped and continued": stopped_and_continued,
    "rewards of uneven length": uneven_rewards,
    "rollouts with a long tail": a_long_tail,
    "a slow start": slow_start,
    "a person at a prompt": person_at_a_prompt,
    "an evaluation at the end": evaluation_at_the_end,
    "many short steps": thousands_of_short_steps,
}
SCENES = {name: hang for name, (hang, _) in HANGS.items()} | QUIET


def _scale() -> None:
    """Make all limits shorter: a minute becomes a second."""
    heart.FLOOR_S.update({phase: seconds * SCALE for phase, seconds in heart.FLOOR_S.items()})
    heart.OTHERS_S *= SCALE
    heart.FIRST_S *= SCALE
    heart.FIRST_LONG_S *= SCALE
    outcry.AFTER_S = 5


if __name__ == "__main__":
    _scale()
    SCENES[sys.argv[1]](Path(sys.argv[2]))
