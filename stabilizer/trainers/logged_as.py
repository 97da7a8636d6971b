"""Trainers' names of our metrics, for messages: users of TRL know `policy/kl_ref` as `kl`, logged with a beta."""

from __future__ import annotations

from collections.abc import Iterable

from stabilizer.trainers.all import find


def logged_as(trainer: str, ours: str) -> str:
    """The name under which a trainer logs a metric of ours, and the setting that enables it; "" where none is known."""
    known = find(trainer)
    if known is None:
        return ""
    theirs = next((key for table in known.metrics for key, name in table.items() if name == ours), "")
    switch = known.switches.get(ours, "")
    return f"{theirs}, {switch}" if theirs and switch else theirs


def asked_for(needs: Iterable[str], trainer: str) -> str:
    """Missing metrics, each with the trainer's name for it; `a|b` is either."""
    return ", ".join(" or ".join(_with_theirs(name, trainer) for name in need.split("|")) for need in needs)


def _with_theirs(ours: str, trainer: str) -> str:
    theirs = logged_as(trainer, ours)
    return f"{ours} ({theirs})" if theirs else ours
