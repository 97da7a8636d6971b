"""What a stalled rank waits for: observations become a kind, a sentence and the next action. Pure functions.

The order of `KINDS` is the order in which they are tried: a missing rank or a dead process explains everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from stabilizer.core.text import spoken
from stabilizer.runs.heartbeats import FRESH_S, Beat

BUSY_SHARE = 0.2
"""Share of one core from which on a process counts as busy. Idle processes of trainers that poll use below 0.05."""
COMPILERS = frozenset(
    ("cc1plus", "cc1", "g++", "gcc", "c++", "clang", "clang++", "nvcc", "cicc", "ptxas", "ninja", "ld", "as", "triton")
)
"""Names of programs that run while kernels are compiled."""
OWN_WAITS = ("queue", "thread", "event loop")
"""Waits for something that the process itself has to do."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen of one stalled rank."""

    phase: str
    wait: str = ""
    """What library code waits for (`stacks.WAITS`)."""
    call: str = ""
    """The system call that the thread waits in; empty while it computes."""
    cpu: float | None = None
    """CPU use of the loop's thread, in cores; None where it can't be measured."""
    process_cpu: float = 0.0
    """CPU use of the whole process, in cores."""
    children_cpu: float = 0.0
    """CPU use of its descendants, in cores."""
    busy_children: tuple[str, ...] = ()
    """Names of descendants that compute."""
    lost: tuple[str, ...] = ()
    """Descendants that ended since the phase began, or are dead and not collected: `name (pid)`."""
    stopped: tuple[str, ...] = ()
    """Descendants that are stopped by a signal."""
    state: str = ""
    """`Process.state` of the loop's thread."""
    gpu: str = ""
    frame: str = ""
    """The innermost frame of the user's code."""
    code: str = ""
    """Its line of source."""
    inner: str = ""
    """The innermost frame of all, where that is another one."""
    others: tuple[str, ...] = ()
    """The innermost frames of the user's code in other threads."""
    moves: bool | None = None
    """Whether the stack changed between looks."""
    behind: str = ""
    """Which other ranks are missing, in words; empty where none is."""

    @property
    def busy(self) -> bool:
        """Whether the process computes."""
        return max(self.cpu or 0.0, self.process_cpu) >= BUSY_SHARE


class Kind(NamedTuple):
    """One explanation of a stall."""

    id: str
    holds: Callable[[Look], bool]
    what: str
    next: str


KINDS: tuple[Kind, ...] = (
    Kind(
        "missing-rank", lambda see: bool(see.behind),
        "the ranks wait for each other, and {behind}",
        "look at the rank that is missing: its stacks are in heartbeats/, its last lines in its own log",
    ),
    Kind(
        "dead-engine", lambda see: bool(see.lost) and not see.busy and see.phase != "data",
        "it waits while a process that it started has ended: {lost}",
        "read the last lines of that process (out of memory, a signal) and restart the run: it will not come back",
    ),
    Kind(
        "stopped-process", lambda see: bool(see.stopped) and not see.busy,
        "a process that it started is stopped by a signal: {stopped}",
        "continue it (`kill -CONT PID`), or find out who stopped it: a debugger, a job control, a frozen container",
    ),
    Kind(
        "compiling", lambda see: see.wait == "compiler" or bool(COMPILERS & set(see.busy_children)),
        "code is compiled{children}",
        "wait: the first steps compile, and later ones when shapes change; pad to fixed lengths, or keep the cache of"
        " compiled kernels between runs",
    ),
    Kind(
        "waiting-in-collective", lambda see: see.wait == "collective",
        "it waits in a collective operation, and the heartbeats of the other ranks show no difference",
        "compare the stacks of all ranks in heartbeats/: one may have entered another collective",
    ),
    Kind(
        "slow-disk", lambda see: see.phase == "save" or see.wait == "save" or (see.state == "D" and not see.busy),
        "it writes or reads files{call}",
        "check the disk or the network file system: free space, quota, a mount that does not answer; save to a local"
        " disk and copy from there",
    ),
    Kind(
        "data-loading", lambda see: see.phase == "data" or see.wait == "data",
        "it waits for the next batch of data{lost_words}",
        "check the data loader: a worker that died or waits for a lock (num_workers=0 shows its error), a slow"
        " download, a stream without a time limit",
    ),
    Kind(
        "slow-reward", lambda see: see.phase == "reward",
        "the reward function {moves}",
        "give the reward function a time limit for each sample, and test it alone (`stabilizer preflight --rewards`)",
    ),
    Kind(
        "silent-engine", lambda see: see.phase in ("rollout", "sync") and not see.busy,
        "the generation engine does not answer{children}",
        "look at the engine's own log and health address; give requests a time limit; a busy engine still generates or"
        " compiles, an idle one is stuck",
    ),
    Kind(
        "no-answer", lambda see: see.wait == "network" or see.call in ("recvfrom", "recvmsg", "connect", "accept"),
        "it waits for an answer over the network",
        "give the request a time limit and a retry, and check the service at the other end",
    ),
    Kind(
        "waiting-for-child", lambda see: not see.busy and (see.wait == "child" or see.call in ("wait4", "waitid")),
        "it waits for a process that it started{children}",
        "look at that process; give the wait a time limit",
    ),
    Kind(
        "deadlock",
        lambda see: not see.busy and (see.wait in OWN_WAITS or see.call in ("futex", "epoll_wait")),
        "it waits for a lock, a queue or another thread of its own process",
        "look for a lock taken twice, or a queue whose producer ended; give `get` and `acquire` a time limit",
    ),
    Kind(
        "long-computation", lambda see: see.busy and see.moves is not False,
        "it computes and moves on, far more slowly than before",
        "profile it at the named frame (`py-spy top`); longer answers or a larger batch cost in proportion",
    ),
    Kind(
        "endless-computation", lambda see: see.busy,
        "it computes at one place and does not leave it",
        "look for a loop without an end, or a pattern that backtracks, at the named frame",
    ),
    Kind(
        "waiting", lambda see: True,
        "it does not compute{call}",
        "look at the named frame: it waits for something without a time limit",
    ),
)  # fmt: skip
"""Explanations in the order in which they are tried; the last one always holds."""
SEEN_FROM_OUTSIDE = ("ended-in-phase", "interpreter-held")
STALLS = (*(kind.id for kind in KINDS), *SEEN_FROM_OUTSIDE)
"""All explanations by id, as causes of `system/stalled`."""
WORDS = {
    "other": "the time between phases", "paused": "the pause", "trial": "the trial of a fix", "save": "saving",
    "data": "data loading", "sync": "the weight sync", "reward": "the reward", "rollout": "the rollout",
    "update": "the update", "validation": "validation",
}  # fmt: skip
"""Phases as sentences name them."""


def explained(see: Look) -> Kind:
    """The explanation of a stall, with its sentence filled in."""
    kind = next(kind for kind in KINDS if kind.holds(see))
    children = f" in {', '.join(sorted(set(see.busy_children))[:3])}" if see.busy_children else ""
    call = f" (system call {see.call})" if see.call else ""
    lost = ", ".join(see.lost[:3])
    moves = (
        "does not return" if see.moves is None else "is slow: its stack moves" if see.moves else "is stuck at one place"
    )
    if not see.busy and see.phase == "reward":
        moves = f"waits{_waits(see)} and does not return"
    what = kind.what.format(
        behind=see.behind, lost=lost, stopped=", ".join(see.stopped[:3]), children=children, call=call, moves=moves,
        lost_words=f"; a worker has ended: {lost}" if lost else "",
    )  # fmt: skip
    return kind._replace(what=what)


def _waits(see: Look) -> str:
    """What an idle thread waits for, as a part of a sentence."""
    calls = {"recvfrom": "network", "recvmsg": "network", "wait4": "child", "waitid": "child", "nanosleep": "sleep"}
    known = {
        "network": " for the network", "child": " for a process", "queue": " for a queue", "thread": " for a thread",
        "sleep": " in sleep()", "event loop": " in an event loop",
    }  # fmt: skip
    return known.get(see.wait or calls.get(see.call, ""), "")


def use_words(see: Look) -> str:
    """Busy or idle, with what was measured."""
    parts = []
    if see.cpu is not None:
        parts.append(f"its thread uses {see.cpu:.0%} of a core")
    parts.append(f"the process {see.process_cpu:.0%}")
    if see.children_cpu >= BUSY_SHARE:
        names = ", ".join(sorted(set(see.busy_children))[:3])
        parts.append(f"child processes {see.children_cpu:.0%}" + (f" ({names})" if names else ""))
    if see.gpu:
        parts.append(f"GPU {see.gpu}")
    return f"{'busy' if see.busy else 'idle'}: {', '.join(parts)}"


def stall_text(beat: Beat, kind: Kind, see: Look) -> str:
    """The sentence of a finding: rank, phase, how long against usual, why, where, busy or idle."""
    rank = f"rank {beat.rank}: " if beat.world > 1 else ""
    pending = f" ({beat.pending})" if beat.pending else ""
    at = "" if beat.step <= 0 else f" after step {beat.step}"
    where = f"; at {short_place(see.frame)}" if see.frame else ""
    where += f" `{see.code}`" if see.code and where else ""
    where += f"; another thread is at {short_place(see.others[0])}" if see.others else ""
    return (
        f"{rank}{WORDS.get(beat.phase, beat.phase)}{pending} has taken {spoken(beat.for_s)}{at}{usual_words(beat)}:"
        f" {kind.what}{where} ({use_words(see)})"
    )


def usual_words(beat: Beat) -> str:
    """How long the phase usually takes, for a sentence."""
    return f", usually {spoken(beat.usual_s)}" if beat.usual_s is not None else ", and never ended before"


def short_place(place: str) -> str:
    """A frame with the last two parts of its path."""
    path, _, function = place.rpartition(" ")
    return f"{'/'.join(PurePath(path).parts[-2:])} {function}"


# --- ranks ----------------------------------------------------------------------------------------------------------


def missing_ranks(beats: Sequence[Beat], now: float) -> str:
    """Which ranks keep the others waiting, in words: a dead one, a silent one, or one that is behind; else empty."""
    running = [beat for beat in beats if not beat.over]
    if len(beats) < 2 or not running:
        return ""
    if words := _unable(beats, now):
        return words
    if late := _behind(running):
        return _named(late, f"is elsewhere: {_doing(late[0])}, while {_doing(_most(running, late))}")
    world = max(beat.world for beat in beats)
    absent = sorted(set(range(world)) - {beat.rank for beat in beats})
    return f"{_ranks(absent)} wrote no heartbeat" if absent else ""


def _unable(beats: Sequence[Beat], now: float) -> str:
    """Which ranks can't go on, in words; empty where all can."""
    states = [(beat, beat.state) for beat in beats]
    gone = [beat for beat, state in states if beat.over or state in ("gone", "Z")]
    if gone:
        return _named(gone, "has ended" if len(gone) == 1 else "have ended")
    held = [beat for beat, state in states if state == "T"]
    if held:
        return _named(held, "is stopped by a signal")
    silent = [beat for beat in beats if beat.age(now) > FRESH_S]
    if 0 < len(silent) < len(beats):
        return _named(silent, f"has not answered for {spoken(max(beat.age(now) for beat in silent))}")
    return ""


def _behind(beats: Sequence[Beat]) -> list[Beat]:
    """The ranks whose step or phase differs from that of most; none where there is no majority or no difference."""
    oldest = min(beat.step for beat in beats)
    late = [beat for beat in beats if beat.step == oldest]
    if len(late) < len(beats):
        return late
    counts = Counter(beat.phase for beat in beats)
    phase, most = counts.most_common(1)[0]
    if len(beats) > most > len(beats) / 2:
        return [beat for beat in beats if beat.phase != phase]
    waiting = [beat for beat in beats if beat.stall.get("wait") == "collective" or beat.phase == "sync"]
    return [beat for beat in beats if beat not in waiting and (beat.stall or most < len(beats))] if waiting else []


def _most(beats: Sequence[Beat], late: Sequence[Beat]) -> Beat:
    return next(beat for beat in beats if beat not in late)


def _doing(beat: Beat) -> str:
    frame = beat.stall.get("frame")
    place = f" at {short_place(frame)}" if isinstance(frame, str) and frame else ""
    return f"{_ranks([beat.rank])} is in {WORDS.get(beat.phase, beat.phase)} after step {beat.step}{place}"


def _named(beats: Sequence[Beat], what: str) -> str:
    return f"{_ranks([beat.rank for beat in beats])} {what}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


# --- seen from outside ----------------------------------------------------------------------------------------------


def from_outside(
    beats: Sequence[Beat], now: float, held: Callable[[Beat], str] = lambda beat: ""
) -> dict[str, Any] | None:
    """What heartbeats alone say about a run that calls itself running: the evidence of a finding, or None.

    A process that is gone, is stopped or does not answer can't look at itself. `held` returns the place at which native
    code held the interpreter of a rank, if that was written.
    """
    running = [beat for beat in beats if not beat.over]
    states = [(beat, state) for beat in running if (state := beat.state) in ("gone", "Z", "T")]
    if states:
        beat, state = states[0]
        return _outside(beat, state, held=held(beat))
    silent = next((beat for beat in running if beat.here and beat.age(now) > FRESH_S), None)
    if silent is not None:
        return _outside(silent, "silent", silent.age(now), held(silent))
    stalled = next((beat for beat in running if beat.stall), None)
    return {**stalled.stall, "seconds": stalled.for_s} if stalled else None


_OUTSIDE: Mapping[str, tuple[str, str, str]] = {
    "gone": (
        "ended-in-phase", "process {pid} is gone; it ended during {phase}{pending}{after}, {for_s} after that began",
        "look for its end outside: the last lines of its console, `dmesg` for a process killed for memory, the job's"
        " own log; then resume the run",
    ),
    "T": (
        "stopped-process", "process {pid} is stopped by a signal during {phase}{pending}{after}",
        "continue it with `kill -CONT {pid}`, or find out who stopped it",
    ),
    "silent": (
        "interpreter-held",
        "process {pid} exists and its Python has not run another thread for {age}: native code holds the interpreter"
        " during {phase}{pending}{after}",
        "look at the place with `py-spy dump --native --pid {pid}`: a regular expression that backtracks, a tokenizer,"
        " a compiled extension",
    ),
}  # fmt: skip


def _outside(beat: Beat, state: str, age: float = 0.0, held: str = "") -> dict[str, Any]:
    kind, what, todo = _OUTSIDE["gone" if state == "Z" else state]
    words = {
        "pid": beat.pid, "phase": WORDS.get(beat.phase, beat.phase), "age": spoken(age),
        "pending": f" ({beat.pending})" if beat.pending else "",
        "after": f" after step {beat.step}" if beat.step > 0 else " before its first step ended",
        "for_s": spoken(beat.for_s),
    }  # fmt: skip
    rank = f"rank {beat.rank}: " if beat.world > 1 else ""
    said = rank + what.format(**words)
    if held:
        said += (
            f"; {'native code held the interpreter' if state != 'silent' else 'it was called'} at {short_place(held)}"
        )
    if beat.stall and state in ("gone", "Z"):
        return {**beat.stall, "text": f"{beat.stall.get('text', '')}; process {beat.pid} is gone now", "ended": True}
    return {
        "kind": kind, "rank": beat.rank, "phase": beat.phase, "seconds": beat.for_s + age, "usual_s": beat.usual_s,
        "text": said, "what": said, "next": todo.format(**words), "frame": held,
    }  # fmt: skip
