"""Every part of the monitor, made to fail in every way, in a run whose weights are compared with an undisturbed one.

`sabotage(session, part, how)` replaces one part of a live session. The run must reach its last step with the same
weights, bit for bit, and say what failed.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.live.session import Session
from stabilizer.runs.reader import RunReader
from stabilizer.runs.requests import ask
from stabilizer.training.config import load_config

STEPS = 4
SMALL = (
    "rollout.prompts=4", "rollout.group_size=4", "validation.problems=8", "validation.every=2", "checkpoint.every=2",
    "rollout.max_completion=6", "samples.every=1",
)  # fmt: skip


class Stand(Detector):
    """Fires at every row, so that the diagnosis, the advice and the records of findings have work to do."""

    id = "reward/plateau"
    needs = ()
    confirm = 1

    def check(self, view: Any) -> Finding:
        return self.finding(view, "warn", 1, "the reward stands")


def raises(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("sabotage")


def ends_the_process(*_: Any, **__: Any) -> NoReturn:
    raise SystemExit("sabotage")


def loops(*_: Any, **__: Any) -> NoReturn:
    for _ in itertools.count():
        pass
    raise AssertionError


def sleeps(*_: Any, **__: Any) -> NoReturn:
    time.sleep(10_000)
    raise AssertionError


def junk(*_: Any, **__: Any) -> Any:
    return {"severity": "banana", "step": [None]}


def junk_finding(*_: Any, **__: Any) -> Any:
    return Finding("reward/plateau", "banana", None, "x", None, -1, "none")  # type: ignore[arg-type]


def leaks(*_: Any, **__: Any) -> None:
    """Keep 2 MB of every call."""
    _LEAKED.append(bytearray(2_000_000))


_LEAKED: list[bytearray] = []


def _detector(session: Session, bad: Callable[..., Any]) -> None:
    class Bad(Stand):
        id = "reward/collapse"
        check = staticmethod(bad)

    session.monitor.watch.detectors = (Bad(), *session.monitor.watch.detectors)


def _method(path: str) -> Callable[[Session, Callable[..., Any]], None]:
    """Replace a method of a part of the session."""

    def replace(session: Session, bad: Callable[..., Any]) -> None:
        *way, name = path.split(".")
        owner: Any = session
        for step in way:
            owner = getattr(owner, step)
        setattr(owner, name, bad)

    return replace


CALLED = (raises, ends_the_process, loops, sleeps, junk)
"""Ways to fail of what is called with a time limit."""
IN_LINE = (raises,)
"""Ways to fail of our own code that runs between two steps."""

ATTACKS: Mapping[str, tuple[Callable[[Session, Callable[..., Any]], None], tuple[Callable[..., Any], ...]]] = {
    "a detector": (_detector, (*CALLED, junk_finding, leaks)),
    "the diagnosis": (_method("monitor.watch.explain"), (raises, ends_the_process, loops, sleeps)),
    "the advice": (_method("monitor.watch.advise"), (raises, ends_the_process, loops, sleeps)),
    "the watch": (_method("monitor.watch.tick"), IN_LINE),
    "the verdict": (_method("monitor.watch.verdict"), IN_LINE),
    "the history": (_method("monitor.history.append"), IN_LINE),
    "requests": (_method("requests.look"), IN_LINE),
    "answers": (_method("requests.answers"), IN_LINE),
    "remedies": (_method("arbiter.tick"), IN_LINE),
    "writer: rows": (_method("writer.metrics"), IN_LINE),
    "writer: samples": (_method("writer.samples"), IN_LINE),
    "writer: events": (_method("writer.event"), IN_LINE),
    "writer: findings": (_method("writer.finding"), IN_LINE),
    "writer: journal": (_method("writer.action"), IN_LINE),
    "writer: status": (_method("writer.status"), IN_LINE),
    "writer: summary": (_method("writer.summary"), IN_LINE),
    "writer: close": (_method("writer.close"), IN_LINE),
}
"""Part -> how it is replaced, and the ways in which it is made to fail."""


def cases() -> list[tuple[str, Callable[..., Any]]]:
    """Every part with every way to fail."""
    return [(part, how) for part, (_, ways) in ATTACKS.items() for how in ways]


def trained(path: Path, part: str = "", how: Callable[..., Any] = raises) -> tuple[int, str, list[str]]:
    """Train a small run with a sabotaged part; returns its last step, a digest of its weights, and what it said."""
    session = Session.start(load_config("addition", list(SMALL), steps=STEPS), path, "auto-full")
    session.monitor.watch.detectors = (Stand(),)
    if part:
        ATTACKS[part][0](session, how)
    ask(path, "set", "validate_every=4", "attack")  # a journaled change that no weight depends on
    said: list[str] = []
    for tick in session.run():
        said += tick.troubles
        said += [finding.summary for finding in tick.findings if finding.id == "system/detector-error"]
    said += [event.text for event in RunReader(path).events]
    said += [cause.why for finding in session.monitor.watch.findings() for cause in finding.causes]
    _LEAKED.clear()
    return session.trainer.step, weights_digest(path), said


def weights_digest(path: Path) -> str:
    """A digest of the newest weights and of the optimizer's state."""
    newest = max((path / "checkpoints").iterdir(), key=lambda folder: int(folder.name.split("-")[1]))
    files = (newest / name for name in ("model.safetensors", "optimizer.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
