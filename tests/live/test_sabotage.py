"""Training survives its monitor: any part of it may raise, hang or return junk, and the weights stay the same."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from bench.trust import parts
from stabilizer.live import bounded
from stabilizer.live.bounded import BoundedThread
from stabilizer.live.session import Session
from stabilizer.training.config import load_config

SILENT = ("writer: close", "writer: events", "the advice", "a detector leaks")
"""What leaves no trace: closing comes after the record, events are the record, advice is left out, a leak is no
failure."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[int, str, list[str]]:
    return parts.trained(tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.fixture(autouse=True)
def short_limit(monkeypatch) -> None:
    monkeypatch.setattr(bounded, "LIMIT_S", 0.3)


@pytest.mark.parametrize(("part", "how"), [pytest.param(p, h, id=f"{p} {h.__name__}") for p, h in parts.cases()])
def test_a_sabotaged_part_costs_training_nothing(tmp_path, undisturbed, part, how) -> None:
    step, weights, said = parts.trained(tmp_path / "run", part, how)
    assert (step, weights) == undisturbed[:2]
    words = ("sabotage", "SystemExit", "no answer within", "not a finding", "no valid")
    told = [text for text in said if any(word in text for word in words)]
    assert told or f"{part} {how.__name__}".startswith(SILENT)


def test_a_detector_that_hangs_is_asked_once_and_the_others_go_on(tmp_path) -> None:
    session = Session.start(load_config("addition", list(parts.SMALL), steps=6), tmp_path / "run")
    session.monitor.watch.detectors = (parts.Stand(),)
    parts.ATTACKS["a detector"][0](session, parts.sleeps)
    began = time.monotonic()
    ticks = list(session.run())
    found = [finding.id for tick in ticks for finding in tick.findings]
    assert found.count("system/detector-error") == 1 and "reward/plateau" in found
    assert time.monotonic() - began < 30
    assert "not asked again" in next(f for t in ticks for f in t.findings if f.id == "system/detector-error").summary


def test_sigterm_is_heeded_while_a_detector_hangs(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(bounded, "LIMIT_S", 0.5)
    session = Session.start(load_config("addition", list(parts.SMALL), steps=500), tmp_path / "run")
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    parts.ATTACKS["a detector"][0](session, parts.loops)
    last = [tick.step for tick in session.run()][-1]
    assert session.stop_reason == "SIGTERM" and last < 500


def test_calls_keep_their_order_and_a_slow_one_is_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(bounded, "LIMIT_S", 0.3)
    calls = BoundedThread()
    slow = [lambda n=n: (time.sleep(0.2), n)[1] for n in range(4)]
    assert calls.results(slow) == [0, 1, 2, 3]
    first, second, third = calls.results([lambda: 1, parts.sleeps, lambda: 3])
    assert (first, third) == (1, 3) and isinstance(second, TimeoutError)
    assert calls.results([lambda: 4]) == [4]
    calls.close()


def test_a_loop_that_was_given_up_ends(monkeypatch) -> None:
    monkeypatch.setattr(bounded, "LIMIT_S", 0.1)
    threads = threading.active_count()
    calls = BoundedThread()
    assert isinstance(calls.results([parts.loops])[0], TimeoutError)
    deadline = time.monotonic() + 5
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() == threads
