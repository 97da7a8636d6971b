"""What is made of observations: which rank is missing, which cause, and what real hanging processes show."""

from __future__ import annotations

import os
import time

import pytest

from bench.hangs.measure import calmly, hang
from stabilizer.runs.heartbeats import Beat
from stabilizer.runs.processes import gpu_use
from stabilizer.runs.stalls import KINDS, STALLS, Look, explained, missing_ranks

NOW = time.time()


def beat(rank: int, phase: str = "update", step: int = 5, age: float = 0.0, **more) -> Beat:
    return Beat(rank=rank, world=4, pid=1, host="elsewhere", phase=phase, step=step, t=NOW - age, **more)


@pytest.mark.parametrize(
    ("beats", "words"),
    [
        ([beat(0), beat(1), beat(2), beat(3)], ""),
        ([beat(0), beat(1), beat(2), beat(3, "reward")], "rank 3 is elsewhere: rank 3 is in the reward after step 5"),
        ([beat(0), beat(1, step=4), beat(2), beat(3)], "rank 1 is elsewhere"),
        ([beat(0), beat(1), beat(2, age=90.0), beat(3)], "rank 2 has not answered for 90"),
        ([beat(0), beat(1, over=True), beat(2), beat(3)], "rank 1 has ended"),
        ([beat(0, stall={"wait": "collective"}), beat(1, "reward")], "rank 1 is elsewhere"),
        (
            [beat(0, stall={"wait": "collective"}), beat(1, stall={"wait": "", "frame": "/a/b.py:7 own"})],
            "a/b.py:7 own",
        ),
        ([beat(0), beat(1), beat(2)], "rank 3 wrote no heartbeat"),
        ([beat(0)], ""),
    ],
    ids=["none", "elsewhere", "behind", "silent", "ended", "two ranks", "two in one phase", "absent", "alone"],
)
def test_the_missing_rank_is_named(beats, words):
    found = missing_ranks(beats, NOW)
    assert words in found and bool(words) == bool(found)


@pytest.mark.parametrize(
    ("see", "kind"),
    [
        (Look(phase="reward", cpu=1.0, moves=True), "slow-reward"),
        (Look(phase="rollout", cpu=0.0, busy_children=("ptxas",), children_cpu=1.0), "compiling"),
        (Look(phase="update", cpu=0.0, lost=("vllm (7)",)), "dead-engine"),
        (Look(phase="update", cpu=1.0, lost=("sh (7)",), moves=True), "long-computation"),
        (Look(phase="update", cpu=1.0, moves=False), "endless-computation"),
        (Look(phase="update", cpu=0.0, behind="rank 3 has ended", lost=("a (7)",)), "missing-rank"),
        (Look(phase="other", cpu=0.0, state="D"), "slow-disk"),
        (Look(phase="sync", cpu=0.0), "silent-engine"),
        (Look(phase="update", cpu=0.0, wait="collective"), "waiting-in-collective"),
        (Look(phase="update", cpu=0.0), "waiting"),
    ],
)
def test_observations_become_the_cause(see, kind):
    assert explained(see).id == kind


def test_every_explanation_has_words_and_an_action():
    assert len({kind.id for kind in KINDS}) == len(KINDS) < len(STALLS)
    assert all(kind.what and kind.next for kind in KINDS)


def test_the_use_of_gpus_is_read_where_nvidia_smi_answers(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu_use() == "" or program
    program.write_text("#!/bin/sh\necho 97\necho 3\n")
    program.chmod(0o755)
    assert gpu_use() == "97 %, 3 %"
    program.write_text("#!/bin/sh\nexit 9\n")
    assert gpu_use() == ""


@pytest.mark.parametrize("name", ["an engine that was killed", "native code that holds Python"])
def test_a_real_hang_is_located(tmp_path, name):
    row = hang(name, tmp_path)
    assert row["located"], row


def test_a_machine_that_sleeps_is_no_hang(tmp_path):
    row = calmly("a machine that sleeps", tmp_path)
    assert row["located"] and not row["found"], row
