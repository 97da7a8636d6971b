"""What is compared: our watch, rows that any method must beat, and the tools of others in an environment of their own.

Every method sees the same rows in the same order and gives `score.Alarm`s. The others run with their defaults, are fed
the streams they know, and what they name is translated to our ids generously: a name that covers several failures
counts for all of them. Tools without a name for what they saw (ADWIN, Page-Hinkley) get the names of the stream.
"""

from __future__ import annotations

import json
import subprocess
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.detect.score import ANY, Alarm
from bench.environment import CACHE, install, python_of, says_yes
from stabilizer.analysis.watching import new_watch
from stabilizer.core.records import SEVERITIES
from stabilizer.runs.history import History, RunView

Rows = list[tuple[int, dict[str, float]]]

PEERS = {"rldoctor": "0.2.0", "rlwatch": "0.5.1", "river": "0.26.1"}
"""Packages of the other tools, pinned."""
PEER_METHODS = {"rl-doctor": "rldoctor", "rlwatch": "rlwatch", "ADWIN": "river", "Page-Hinkley": "river"}
"""Method: the package it comes from."""
EVERY = 100
"""Steps between the alarms of the method that always alarms, and between repeated alarms of one peer detector."""

_STREAMS = {
    "reward/mean": ("reward/collapse", "reward/plateau", "reward/oscillation", "reward/scale-shift", "reward/hacking"),
    "policy/entropy": ("policy/entropy-collapse", "policy/entropy-explosion"),
    "policy/kl_ref": ("policy/kl-runaway", "policy/kl-pinned", "policy/kl-estimator"),
    "optim/grad_norm": ("optim/grad-explosion", "optim/grad-spike", "optim/no-update"),
    "rollout/length_mean": ("rollout/length-explosion", "rollout/length-collapse"),
    "policy/clip_frac": ("policy/overstepping",),
    "reward/zero_std_frac": ("reward/no-signal", "reward/std-blowup"),
}
"""The streams that ADWIN and Page-Hinkley watch, and what a change in each is taken to name."""
_NAMES = {
    "rl-doctor": {
        "advantage_collapse": ("reward/no-signal", "reward/saturated", "reward/std-blowup"),
        "entropy_collapse": ("policy/entropy-collapse", "policy/entropy-explosion"),
        "reward_hacking": ("reward/hacking",),
        "length_pathology": ("rollout/length-explosion", "rollout/length-collapse", "rollout/truncation"),
        "clip_saturation": ("policy/overstepping",),
        "kl_drift": ("policy/kl-runaway", "policy/kl-pinned", "policy/kl-estimator"),
        "gradient_pathology": ("optim/grad-explosion", "optim/grad-spike", "optim/no-update", "numerics/non-finite"),
        "reward_composition": ("reward/component-dominance", "reward/scale-shift"),
        "plateau": ("reward/plateau", "reward/collapse", "reward/noise-floor", "optim/lr-too-low"),
    },
    "rlwatch": {
        "entropy_collapse": ("policy/entropy-collapse",),
        "kl_explosion": ("policy/kl-runaway", "policy/kl-estimator"),
        "reward_hacking": ("reward/hacking", "reward/scale-shift"),
        "advantage_variance": ("reward/std-blowup",),
        "loss_nan": ("numerics/non-finite",),
        "gradient_norm_spike": ("optim/grad-spike", "optim/grad-explosion"),
        "reward_mean_drift": ("reward/collapse", "reward/hacking"),
    },
    "ADWIN": _STREAMS,
    "Page-Hinkley": _STREAMS,
}


def views(run: History) -> Iterator[RunView]:
    """A run as a live watcher saw it, row by row."""
    steps = np.unique(np.concatenate([run.view().series(name).steps for name in run.names()]))
    return (run.view(int(step)) for step in steps)


def rows(run: History) -> Rows:
    """The same as (step, values)."""
    found: dict[int, dict[str, float]] = {}
    for name in run.names():
        series = run.view().series(name)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            found.setdefault(step, {})[name] = value
    return sorted(found.items())


def ours(seen: Iterable[RunView]) -> list[Alarm]:
    """Every finding as it opens, and again when it first becomes a warning; causes as they stand at the end."""
    watch = new_watch()
    said: dict[tuple[str, int, int], tuple[int, str]] = {}
    alarms: list[tuple[Alarm, tuple[str, int, int]]] = []
    for view in seen:
        for finding in watch.tick(view):
            key = (finding.id, finding.incident, finding.detected_step)
            before = said.get(key)
            if before is not None and not (before[1] == "info" and finding.severity != "info"):
                continue
            said[key] = (view.step, finding.severity)
            alarm = Alarm(view.step, (finding.id,), finding.severity, finding.onset_step, (), finding.summary)
            alarms.append((alarm, key))
    ends = {(f.id, f.incident, f.detected_step): f.causes for f in watch.findings()}
    found = [(alarm, ends.get(key, ())) for alarm, key in alarms]
    return [
        replace(alarm, causes=tuple(c.id for c in named), confidence=named[0].confidence if named else 0.0)
        for alarm, named in found
    ]


def always(run: Rows) -> list[Alarm]:
    """An alarm every 100 steps, taken to name every failure: what recall costs nothing to have."""
    first, last = run[0][0], run[-1][0]
    return [Alarm(step, (ANY,)) for step in range(first + EVERY - 1, last + 1, EVERY)]


def never(run: Rows) -> list[Alarm]:
    """Silence."""
    return []


def three_sigma(run: Rows) -> list[Alarm]:
    """Gradient norm above mean plus three standard deviations of the last 100 rows, as is often done by hand."""
    points = [(step, values["optim/grad_norm"]) for step, values in run if "optim/grad_norm" in values]
    alarms, last = [], -EVERY
    for i in range(25, len(points)):
        window = np.array([value for _, value in points[max(0, i - 100) : i]])
        window = window[np.isfinite(window)]
        step, value = points[i]
        if len(window) > 10 and not value <= window.mean() + 3 * window.std() and step - last >= EVERY:
            alarms.append(Alarm(step, _STREAMS["optim/grad_norm"]))
            last = step
    return alarms


NULLS: Mapping[str, Callable[[Rows], list[Alarm]]] = {
    "always": always, "never": never, "grad_norm > 3 sigma": three_sigma,
}  # fmt: skip


# --- the tools of others --------------------------------------------------------------------------------------------


def peers_python(tell: Callable[[str], None], folder: Path | None = None) -> tuple[Path, dict[str, str]]:
    """The Python of an environment that holds the other tools, and what could not be installed there, with why."""
    versions = "-".join(f"{name}{version}" for name, version in PEERS.items())
    folder = folder or CACHE / f"peers-{versions}"
    python = python_of(folder)
    if not python.exists():
        tell(f"making {folder} with {', '.join(f'{name} {version}' for name, version in PEERS.items())} (once)")
        venv.create(folder, with_pip=True, clear=True)
    missing = {}
    for name, version in PEERS.items():
        check = f"import importlib.metadata as m, sys; sys.exit(m.version({name!r}) != {version!r})"
        if says_yes(python, check):
            continue
        if (failed := install(python, f"{name}=={version}")) is not None:
            missing[name] = failed
    return python, missing


def ask_peers(python: Path, runs: Iterable[tuple[Mapping[str, Any], Rows]]) -> Iterator[dict[str, list[Alarm] | str]]:
    """What every peer says of every run, in order; for a peer that failed, the reason in words."""
    script = Path(__file__).with_name("peers.py")
    process = subprocess.Popen([python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdin and process.stdout
    try:
        for about, run in runs:
            request = {"config": about.get("config"), "rows": run, "streams": list(_STREAMS), "every": EVERY}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                raise ValueError(f"the process of the other tools ended with code {process.wait()}")
            yield {name: _understood(name, said) for name, said in json.loads(answer).items()}
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _understood(method: str, said: list[list[Any]] | str) -> list[Alarm] | str:
    """A peer's (step, its word for it, severity) as alarms."""
    if isinstance(said, str):
        return said
    names = _NAMES[method]
    assert all(severity in SEVERITIES for _, _, severity in said)
    return [Alarm(step, names.get(word, ()), severity, text=word) for step, word, severity in said]
