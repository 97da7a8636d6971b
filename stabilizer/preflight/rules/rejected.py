"""What the trainer itself would refuse.

What it checks
    Every check that this version of the trainer makes on its own configuration, before the run is queued for a night.
Why it matters
    A run that fails in its first minute after a day in the queue costs that day. Trainers' messages name the rule, but
    seldom the settings that would be accepted.
Exceptions
    Rules about a number that is not known (the processes of a launcher, a variable) stay silent. Where no version is
    given, the one that fits the keys is assumed, and the page states it.
Fix
    The nearest values that this trainer and version accept, one key at a time. A group of one answer is never among
    them: its advantage is always 0. With a vLLM server, one GPU is the server's, so eight GPUs train with seven
    processes.
References
    The source that the finding names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.constraints import Violation
from stabilizer.trainers.quantities import View
from stabilizer.trainers.trl.config import algorithm
from stabilizer.trainers.validity import TRAINERS, violations

ID = "trainer/rejects"
USUAL_GROUP = 8
TRIES = 2000
"""Nearest values of a key that are tried."""
MOST_OFFERED = 6
"""Accepted values of a key that are listed."""
LARGEST = 4096
"""Values up to this are tried as a replacement."""


def check(view: View) -> Iterator[Finding]:
    """One finding for every check that fails."""
    if view.config.guessed:  # the program is as likely another one
        return
    config = view.config.plain()
    for violation in asked(view, config):
        change, others = remedies(view, config, violation)
        yield found(
            view,
            "critical",
            violation.key,
            f"{view.config.trainer.title} {_version(view)} refuses this: {violation.message.rstrip('.')}",
            why=_why(view, violation),
            how=_how(change, violation),
            change=change,
            alternatives=others,
            sure="certain",
            source=violation.source,
        )


def asked(view: View, config: dict[str, Any]) -> list[Violation]:
    """What the trainer objects to in these settings; nothing where its checks are not known."""
    name = view.config.trainer.name
    if name == "trl":
        name = {"rloo": "trl-rloo", "ppo": "trl-ppo"}.get(algorithm(view.config), name)
    if name not in TRAINERS:
        return []
    return violations(name, view.config.version_used, config, processes=view.config.processes, gpus=view.config.gpus)


def remedies(view: View, config: dict[str, Any], violation: Violation) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The nearest change of the key at fault that the trainer accepts, and other single changes that would do."""
    if violation.choose:
        return {}, ()
    first: dict[str, Any] = {}
    others: list[str] = []
    for key in _turnable(view, config, violation.key):
        good = _accepted(view, config, violation, key)
        if good and key == violation.key:
            first = {key: good[0]}
            good = good[1:] if key in view.config.trainer.together else []
        if good:
            others.append(f"{key} {', '.join(map(str, good))}")
    return first, tuple(others) or ((violation.expected,) if first else ())


def _accepted(view: View, config: dict[str, Any], violation: Violation, key: str) -> list[Any]:
    """The nearest values of a key that end a violation and bring no other."""
    before = {v.rule for v in asked(view, config)}

    def mends(value: Any) -> bool:
        after = {v.rule for v in asked(view, {**config, key: value})}
        return violation.rule not in after and after <= before

    tried = islice(_candidates(_wanted(view, key)), TRIES)
    return list(islice(filter(mends, tried), MOST_OFFERED))


def _turnable(view: View, config: dict[str, Any], at_fault: str) -> Iterator[str]:
    """The key at fault, and those that this version knows and that a person may turn instead."""
    yield at_fault
    known = view.config.trainer.keys
    for key in view.config.trainer.together.get(at_fault, ()):
        unused = key == "steps_per_generation" and key not in config
        if not unused and (not known or key in known):
            yield key


def _wanted(view: View, key: str) -> Any:
    """What to stay near to: the value itself, but for a group of one answer the usual eight."""
    now = view.ask.raw(key)
    return USUAL_GROUP if key == view["group_size"].key and isinstance(now, int) and now < 2 else now


def _candidates(now: Any) -> Iterable[Any]:
    if isinstance(now, bool):
        return (not now,)
    if not isinstance(now, (int, float)):
        return ()
    return sorted(range(1, min(LARGEST, int(8 * abs(now)) + 65)), key=lambda n: (abs(n - now), -n))


def _version(view: View) -> str:
    return f"(TRL {view.config.version_used})" if view.config.trainer.name == "open-r1" else view.config.version_used


def _why(view: View, violation: Violation) -> str:
    why = "The trainer checks this itself and stops before the first step."
    if view.config.processes == 7 and "num_generations" in violation.key:
        why += (
            " Seven processes on a machine of eight GPUs: vLLM's server has taken the eighth, so the batch is a"
            " multiple of 7. 1 is not a valid number of generations: a single answer has nothing to be"
            " compared with."
        )
    return why


def _how(change: dict[str, Any], violation: Violation) -> str:
    pairs = ", ".join(f"{key}: {value}" for key, value in change.items())
    return f"{pairs}, the nearest that is accepted" if pairs else violation.expected
