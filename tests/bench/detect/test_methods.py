"""Every method's adapter on a tiny stream, and the peers' process with tools that are not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.detect import methods
from bench.detect.methods import always, ask_peers, never, ours, rows, three_sigma, views
from bench.detect.score import ANY
from tests.series import history

CALM = {"reward/mean": "0.2+0.002~0.03x200", "optim/grad_norm": "1.0%0.1x200", "policy/loss": "0~0.01x200"}


def test_ours_says_when_a_finding_opens_and_with_what_onset() -> None:
    run = history(CALM | {"policy/loss": "0~0.01x120 nanx30 0~0.01x50"})
    (alarm,) = [a for a in ours(views(run)) if a.ids == ("numerics/non-finite",)]
    assert alarm.step == 121 and alarm.onset == 121 and alarm.loud and "numeric-overflow" in alarm.causes
    assert not ours(views(history(CALM)))


def test_a_view_is_made_of_every_row_and_no_later_one() -> None:
    run = history({"reward/mean": "1x3 _x1 1x2", "accuracy/val": "_x3 0.5x1"}, every=2)
    assert [view.step for view in views(run)] == [1, 3, 5, 7, 9, 11]
    assert rows(run)[3] == (7, {"accuracy/val": 0.5})


def test_null_rows() -> None:
    run = rows(history(CALM | {"optim/grad_norm": "1.0%0.1x150 30x1 1.0%0.1x49"}))
    assert [a.step for a in always(run)] == [100, 200] and always(run)[0].ids == (ANY,)
    assert never(run) == []
    assert 151 in [a.step for a in three_sigma(run)]


def test_a_peer_that_is_not_there_says_so() -> None:
    (answer,) = ask_peers(Path(sys.executable), [({"config": {"beta": 0.0}}, rows(history(CALM)))])
    assert set(answer) == set(methods.PEER_METHODS)
    for name, package in methods.PEER_METHODS.items():
        try:
            __import__({"rldoctor": "rl_doctor"}.get(package, package))
        except ModuleNotFoundError:
            assert str(answer[name]).startswith("ModuleNotFoundError"), name


def test_what_cannot_be_installed_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(methods.venv, "create", lambda *args, **named: None)
    monkeypatch.setattr(methods, "says_yes", lambda *args: False)
    monkeypatch.setattr(methods, "install", lambda python, package: "no network" if "river" in package else None)
    told: list[str] = []
    _, missing = methods.peers_python(told.append, tmp_path / "env")
    assert missing == {"river": "no network"} and "making" in told[0]


def test_peers_words_are_translated_or_name_nothing() -> None:
    alarms = methods._understood("rlwatch", [[7, "loss_nan", "critical"], [9, "unheard_of", "warn"]])
    assert [(a.step, a.ids, a.severity) for a in alarms] == [(7, ("numerics/non-finite",), "critical"), (9, (), "warn")]
