"""A daemon thread beside the training loop: it writes the rank's heartbeat and notices a phase that takes far too long.

It reads the loop's stack and its CPU time and touches nothing else. It survives its own errors. Time in which the
thread itself did not run (a laptop asleep, a stopped process) does not count. `STABILIZER_HANG_S=off` switches it off;
a number there is the limit of every phase in seconds.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stabilizer.core.text import spoken
from stabilizer.live import stacks
from stabilizer.live.announced import announce_to_supervisor
from stabilizer.live.heart import Heart, Segment
from stabilizer.live.monitor import Monitor
from stabilizer.live.outcry import Outcry
from stabilizer.runs.heartbeats import ALIVE_S, FOLDER, Beat, read_beats, write_beat
from stabilizer.runs.processes import Process, boot_id, descendants, gpu_use, process, system_call, thread
from stabilizer.runs.stalls import BUSY_SHARE, WORDS, Look, explained, missing_ranks, stall_text, use_words

SETTING = "STABILIZER_HANG_S"
"""The environment variable that switches the watchdog off (`off` or 0), or gives a limit for every phase in seconds."""
TICK_S = 0.25
"""Seconds between looks at the heart."""
CHANGED_S = 0.5
"""Shortest time between two heartbeats."""
ASLEEP_S = 2.0
"""A look this late means that the process or the machine slept: the time does not count."""
CHILDREN_S = 2.0
"""Seconds between looks at child processes."""
LOOK_S = 1.0
"""Seconds over which CPU time and the stack are watched when a phase is too long, in `LOOKS` parts."""
LOOKS = 5
AGAIN_S = 1.2
"""A phase that is not judged yet is looked at again when it has lasted so many times as long."""
FOR_OTHERS = AGAIN_S
"""A rank that waits for others gets so many times the limit: what holds another rank says more."""
MOST_STACKS = 20
"""Files of stacks that one rank writes."""
OTHERS_S = 5.0
"""Seconds between looks at the heartbeats of other ranks."""

Report = Callable[[str, Mapping[str, Any]], bool]
"""Puts a stall on record: its sentence and its evidence. False when that is not possible now; it is tried again."""


def wanted() -> tuple[bool, float | None]:
    """Whether the user wants a watchdog, and the limit given for every phase; from the environment."""
    text = os.environ.get(SETTING, "").strip().lower()
    if text in ("off", "0", "no", "false"):
        return False, None
    try:
        seconds = float(text) if text else None
    except ValueError:
        print(f"stabilizer: {SETTING}={text!r} is neither a number of seconds nor `off`; ignored", file=sys.stderr)
        return True, None
    return True, seconds if seconds is None or seconds > 0 else None


class Watchdog:
    """Watches the heart of one rank. `start` returns at once; `close` ends the thread and writes a last heartbeat."""

    def __init__(
        self, run: Path, heart: Heart, report: Report | None = None, *, rank: int = 0, world: int = 1,
        complain: Callable[[str, Exception], None] = lambda what, error: None,
    ):  # fmt: skip
        self._run, self._heart, self._report, self._complain = run, heart, report, complain
        own = process(os.getpid())
        self._beat = Beat(
            rank=rank, world=world, pid=os.getpid(), began=own.began if own else 0, host=socket.gethostname(),
            boot=boot_id(),
        )  # fmt: skip
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="stabilizer", daemon=True)
        self._outcry = Outcry(run / FOLDER / f"r{rank}-stacks-held.txt")
        self._number = -1
        """The segment that was seen last."""
        self._lost_s = 0.0
        """Seconds of it in which this thread did not run."""
        self._next_s = 0.0
        """Seconds in the segment before which it is not looked at again."""
        self._written = (-1, 0.0)
        self._children: dict[int, tuple[Process, float]] = {}
        """Descendants seen so far, and when each was last seen alive."""
        self._children_t = self._others_t = 0.0
        self._unreported: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=MOST_STACKS)
        self._told_ranks: set[tuple[int, float]] = set()
        self._stacks = sum(1 for _ in (run / FOLDER).glob(f"r{rank}-stacks-[0-9]*.txt"))
        """Files of stacks that this rank has written, in earlier attempts too."""

    def start(self) -> None:
        """Begin to watch, with a first heartbeat. Without a thread the run goes on unwatched."""
        self._outcry.put_off()
        first: Callable[[], object] = partial(write_beat, self._run, self._present(self._heart.now))
        for begin in (first, self._thread.start):
            try:
                begin()
            except Exception as error:  # a full disk, a system that refuses a thread
                self._complain("watchdog", error)

    def close(self, *, over: bool = True) -> None:
        """End the thread. `over` says that the loop ended in good order."""
        self._ending.set()
        self._outcry.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(2 * TICK_S)
        if self._thread.ident is None:
            return  # it never began: switched off
        with contextlib.suppress(Exception):  # the run ends: there is nobody left to tell
            write_beat(self._run, replace(self._present(self._heart.now), over=over))

    # --- the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        last = self._heart.clock()
        while not self._ending.wait(TICK_S):
            now = self._heart.clock()
            try:
                self._look(now, late=now - last - TICK_S)
            except Exception as error:  # a watchdog that fails must neither end nor reach the loop
                self._complain("watchdog", error)
            last = self._heart.clock()

    def _look(self, now: float, late: float) -> None:
        """One look at the heart, `late` seconds later than planned."""
        segment = self._heart.now
        self._outcry.put_off()
        if segment.number != self._number:
            self._begin(segment)
        elif late > ASLEEP_S:
            self._lost_s += late
        if now - self._children_t >= CHILDREN_S:
            self._children_t = now
            self._see_children(now)
        self._judge(segment)
        self._write(segment, now)
        while self._unreported and self._report is not None and self._report(*self._unreported[0]):
            self._unreported.popleft()
        if self._report is not None and self._beat.world > 1 and now - self._others_t >= OTHERS_S:
            self._others_t = now
            self._see_others()

    def _begin(self, segment: Segment) -> None:
        """Another phase: what was stalled goes on."""
        if self._beat.stall:
            spent = spoken(self._beat.for_s)
            where = WORDS.get(self._beat.phase, self._beat.phase)
            over = {"over": True, "rank": self._beat.rank, "phase": self._beat.phase, "seconds": self._beat.for_s}
            self._unreported.append((f"{where} went on after {spent}", over))
        self._beat = replace(self._beat, stall={})
        self._number, self._lost_s, self._next_s = segment.number, 0.0, 0.0

    def _write(self, segment: Segment, now: float) -> None:
        number, at = self._written
        if now - at < (ALIVE_S if number == segment.number else CHANGED_S):
            return
        self._written = segment.number, now
        self._beat = self._present(segment)
        write_beat(self._run, self._beat)

    def _present(self, segment: Segment) -> Beat:
        elapsed = max(0.0, self._heart.clock() - segment.since)
        spent = max(0.0, elapsed - (self._lost_s if segment.number == self._number else 0.0))
        limit = self._heart.limit(segment.phase)
        return replace(
            self._beat, phase=segment.phase, pending=segment.pending, since=time.time() - elapsed, for_s=spent,
            usual_s=self._heart.usual(segment.phase), limit_s=limit if limit < 1e9 else 0.0, step=self._heart.step,
        )  # fmt: skip

    # --- judging ----------------------------------------------------------------------------------------------------

    def _judge(self, segment: Segment) -> None:
        """Find out what holds a phase that is over its limit: once, and again when it has lasted twice as long."""
        beat = self._present(segment)
        if beat.for_s < max(self._heart.limit(segment.phase), self._next_s):
            return
        self._next_s = AGAIN_S * beat.for_s
        place = stacks.place(stacks.frames(segment.thread))
        if place.interactive:
            return
        see, place = self._observe(segment, place)
        if self._heart.now.number != segment.number:
            return  # it went on meanwhile
        limit = self._heart.limit(segment.phase, busy=see.busy)
        limit *= FOR_OTHERS if see.wait == "collective" and not see.behind else 1.0
        if beat.for_s < limit:
            return
        self._next_s = 2 * beat.for_s
        self._found(self._present(segment), see, again=bool(self._beat.stall))

    def _found(self, beat: Beat, see: Look, *, again: bool) -> None:
        """Put a stall into the heartbeat and on record."""
        kind = explained(see)
        text = stall_text(beat, kind, see)
        name = f"{FOLDER}/r{beat.rank}-stacks-{self._stacks + 1}.txt" if self._stacks < MOST_STACKS else ""
        if name:
            self._stacks += 1
            with contextlib.suppress(OSError):
                stacks.dump(self._run / name, text)
        evidence: dict[str, Any] = {
            "kind": kind.id, "rank": beat.rank, "phase": beat.phase, "pending": beat.pending, "seconds": beat.for_s,
            "usual_s": beat.usual_s, "limit_s": beat.limit_s, "use": use_words(see), "frame": see.frame,
            "code": see.code, "inner": see.inner, "wait": see.wait, "call": see.call, "stacks": name, "text": text,
            "what": kind.what, "next": kind.next, "again": again, "pid": beat.pid, "host": beat.host,
        }  # fmt: skip
        self._beat = replace(beat, stall=evidence)
        self._written = -1, 0.0
        self._unreported.append((text, evidence))
        print(f"stabilizer: {text}; stacks: {self._run / name}", file=sys.stderr, flush=True)

    def _observe(self, segment: Segment, place: stacks.Place) -> tuple[Look, stacks.Place]:
        """Watch the loop's thread, the process and its children for `LOOK_S`."""
        native = stacks.native_id(segment.thread)
        before, before_t = self._used(native), time.monotonic()
        seen, calls = set(), set()
        for _ in range(LOOKS):
            self._ending.wait(LOOK_S / LOOKS)
            stack = stacks.frames(segment.thread)
            place = stacks.place(stack)
            seen.add(tuple(stack))
            calls.add(system_call(native))
        after, spent = self._used(native), time.monotonic() - before_t
        cores = {pid: (used - before.get(pid, used)) / spent for pid, used in after.items()}
        alive = {child.pid: child for child in descendants(os.getpid())}
        own, frame = thread(native), place.frame
        see = Look(
            phase=segment.phase, wait=place.wait, call=calls.pop() if len(calls) == 1 else "",
            cpu=cores.get(0), process_cpu=cores.get(-1, 0.0),
            children_cpu=sum(share for pid, share in cores.items() if pid > 0),
            busy_children=tuple(c.name for c in alive.values() if cores.get(c.pid, 0.0) >= BUSY_SHARE),
            lost=self._lost_children(segment, alive),
            stopped=tuple(f"{child.name} ({child.pid})" for child in alive.values() if child.state == "T"),
            state=own.state if own else "", gpu=gpu_use(), moves=len(seen) > 1,
            behind=self._behind(segment, place.wait),
        )  # fmt: skip
        if frame is not None:
            inner = place.inner.place if place.inner and place.inner != frame else ""
            see = replace(see, frame=frame.place, code=frame.code, inner=inner)
        return replace(see, others=self._other_places(segment) if place.wait == "thread" else ()), place

    @staticmethod
    def _used(native: int) -> dict[int, float]:
        """CPU seconds used or waited for: 0 is the loop's thread, -1 the whole process, others are descendants."""
        used = {child.pid: child.wanted_s for child in descendants(os.getpid())}
        own = thread(native)
        if own is None:
            return used | {-1: time.process_time()}
        return used | {-1: time.process_time() + own.queued_s, 0: own.wanted_s}

    @staticmethod
    def _other_places(segment: Segment) -> tuple[str, ...]:
        return tuple(frame.place for frame in stacks.other_places(segment.thread))

    # --- other processes --------------------------------------------------------------------------------------------

    def _see_children(self, now: float) -> None:
        for child in descendants(os.getpid()):
            if child.state != "Z":
                self._children[child.pid] = (child, now)

    def _lost_children(self, segment: Segment, alive: Mapping[int, Process]) -> tuple[str, ...]:
        """Descendants that are dead and not collected, or that ended since just before the phase began."""
        since = segment.since - 2 * CHILDREN_S
        lost = {pid: child for pid, (child, seen) in self._children.items() if seen >= since and pid not in alive}
        lost |= {pid: child for pid, child in alive.items() if child.state == "Z" and pid in self._children}
        return tuple(f"{child.name} ({pid})" for pid, child in lost.items())

    def _behind(self, segment: Segment, wait: str) -> str:
        """Which ranks are missing, where this one waits for others."""
        if self._beat.world < 2:
            return ""
        others = [beat for beat in read_beats(self._run) if beat.rank != self._beat.rank]
        present = replace(self._present(segment), stall={"wait": wait})
        mine = replace(present, t=time.time(), clock=time.monotonic())
        words = missing_ranks([*others, mine], time.time())
        me = f"rank {self._beat.rank} "
        return "" if words.startswith(me) else words

    def _see_others(self) -> None:
        """Report stalls of other ranks, which have no records of their own."""
        for beat in read_beats(self._run):
            found = (beat.rank, float(beat.stall.get("seconds", 0.0))) if beat.stall else None
            if beat.rank == self._beat.rank or found is None or found in self._told_ranks:
                continue
            if self._beat.stall and beat.stall.get("wait") == "collective":
                continue  # it waits for this rank or another one, whose own finding says more
            if self._report is not None and self._report(str(beat.stall.get("text", "")), beat.stall):
                self._told_ranks.add(found)


def watched(run: Path, monitor: Monitor, **options: Any) -> tuple[Heart, Watchdog]:
    """A heart and its watchdog, which reports to the monitor of the run; started unless the user switched it off."""
    on, fixed_s = wanted()
    heart = Heart(fixed_s=fixed_s)
    announce_to_supervisor(run, lambda text: monitor.writer.event(max(monitor.history.step, 0), "note", text))
    watchdog = Watchdog(run, heart, monitor.note_stall, **options)
    if on:
        watchdog.start()
    return heart, watchdog
