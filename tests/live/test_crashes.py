"""kill -9 between any two durable operations of a change: afterwards it is done or undone, and the journal says which.

The operations are counted where Python hands them to the kernel (`crash_server.py`), so nothing of the program takes
part in choosing the moment, and no moment is left out: whatever is written between a proposal and its verdict has a
number.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stabilizer.live.replay import Plan, replay
from stabilizer.runs.journal import newest, verify
from stabilizer.runs.reader import RunReader
from stabilizer.training.checkpoint import scan
from stabilizer.training.config import config_from_dict
from stabilizer.training.knobs import starting_knobs
from tests.live.crash_server import SCENARIOS, STEPS

Server = subprocess.Popen


def crash_server() -> Iterator[Server]:
    """The process that forks runs and kills them."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.live.crash_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        yield process
        process.stdin.close()


server = pytest.fixture(crash_server, scope="module", name="server")


def live(server: Server, path: Path, scenario: str, die_before: int | None = None) -> bool:
    """One life of a run; whether it was killed."""
    order = {"path": str(path), "scenario": scenario, "steps": STEPS, "die_before": die_before}
    server.stdin.write(json.dumps(order) + "\n")
    server.stdin.flush()
    ended = json.loads(server.stdout.readline())
    assert ended["killed"] or ended["code"] == 0, f"it failed by itself, see stderr: {order}"
    return ended["killed"]


def operations(server: Server, folder: Path, scenario: str) -> list[str]:
    """What a run that nobody kills asks of the kernel, in order."""
    live(server, folder / scenario, scenario)
    check(folder / scenario)
    assert any(entry.entry == "applied" for entry in RunReader(folder / scenario).actions), "nothing to cut off"
    return (folder / f"{scenario}.operations").read_text().split("\n")


def killed(server: Server, path: Path, scenario: str, *moments: int) -> None:
    """Lives that end before the given operations, then one that ends by itself, and what must hold then."""
    for moment in moments:
        live(server, path, scenario, moment)
    live(server, path, scenario)
    check(path)


def check(path: Path) -> None:
    """Every action is done or undone, the journal is whole and says which, and every knob is where it says."""
    reader = RunReader(path)
    chain = verify(path / "actions.jsonl")
    assert not chain.broken and not chain.torn
    acknowledged = Path(f"{path}.acknowledged").read_text().split()
    assert set(acknowledged) <= {entry.hash for entry in reader.actions}, "an entry that was written is gone"
    running = {name for name, entry in newest(reader.actions).items() if entry.entry == "applied"}
    for name, entry in newest(reader.actions).items():
        assert entry.entry != "approved", f"{name} was begun and never ended"
        lives = [other.entry for other in reader.actions if other.action == name]
        assert lives.count("applied") <= 1 and lives.count("verified") <= 1, f"{name} was done twice"
        if name in running and entry.remedy != "by-hand":
            assert entry.attempt == reader.actions[-1].attempt, f"{name} was left on trial by an earlier life"
    plan = Plan(reader)
    told = plan.knobs(starting_knobs(config_from_dict(reader.about["config"])))
    for attempt, rows in plan.rows.items():
        for step, row in rows.items():
            if step > 0:
                knobs = told[attempt, step]
                assert {knob: row[knob] for knob in knobs} == knobs, f"attempt {attempt}, step {step}"
    saved = json.loads((scan(path / "checkpoints")[-1].path / "state.json").read_text())["knobs"]
    assert saved == list(told.values())[-1]
    asked = Path(f"{path}.asked")
    for request in [line for line in asked.read_text().split() if len(line) == 32] if asked.exists() else []:
        ends = [e for e in reader.actions if e.data.get("request") == request and e.entry in ("applied", "failed")]
        refused = [event for event in reader.events if "refused" in event.text]
        assert len(ends) == 1 or refused, "a request was lost, or heeded twice"
        assert not (path / "requests" / f"{request}.json").exists()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_change_cut_off_at_any_moment_is_done_or_undone(server, tmp_path, scenario) -> None:
    count = len(operations(server, tmp_path, scenario))
    dice = random.Random(scenario)
    for number in range(2):
        killed(server, tmp_path / f"run{number}", scenario, dice.randrange(count))


def test_a_run_that_was_killed_twice_replays_to_the_same_numbers(server, tmp_path) -> None:
    killed(server, tmp_path / "run", "hands", 90, 40)
    done = replay(tmp_path / "run", tmp_path / "again")
    assert done.first is None and done.rows >= STEPS and done.interventions


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_moment_of_the_protocol(server, tmp_path, scenario) -> None:
    done = operations(server, tmp_path, scenario)
    own = [number for number, what in enumerate(done) if not what.endswith(("r0-a0.jsonl", "r0-a1.jsonl"))]
    for number in own:
        killed(server, tmp_path / f"run{number}", scenario, number)


@pytest.mark.slow
def test_two_hundred_random_moments(server, tmp_path) -> None:
    counts = {scenario: len(operations(server, tmp_path, scenario)) for scenario in SCENARIOS}
    dice = random.Random(1)
    for number in range(200):
        scenario = dice.choice(sorted(SCENARIOS))
        moments = [dice.randrange(counts[scenario]) for _ in range(dice.choice((1, 1, 2)))]
        killed(server, tmp_path / f"run{number}", scenario, *moments)
