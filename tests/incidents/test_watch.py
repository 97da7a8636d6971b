"""The life of incidents, with scripted detectors: one cause, one incident."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from stabilizer.analysis.watching import new_watch
from stabilizer.core.records import Cause, Event, Finding
from stabilizer.detectors.base import Detector
from stabilizer.incidents.watch import BUDGET, FOLLOW, MERGE, RECOVERING, REOPEN, RESOLVED, Watch
from stabilizer.runs.history import History, RunView
from tests.series import history


class Says(Detector):
    """Raises its finding at the given rows, from `onset` on (the first row of each stretch when not given)."""

    needs = ()

    def __init__(self, id: str, *rows: range, severity="warn", confirm: int = 3, onset: int | None = None, every=1):
        self.id, self.rows, self.severity, self.confirm = id, rows, severity, confirm
        self.onset, self.every = onset, every

    def check(self, view) -> Finding | None:
        row = view.step // self.every
        stretch = next((rows for rows in self.rows if row in rows), None)
        if stretch is None:
            return None
        severity = self.severity(row) if callable(self.severity) else self.severity
        onset = self.every * (stretch.start if self.onset is None else self.onset)
        return self.finding(view, severity, onset, f"{self.id} at {view.step}", metric="x")


def watched(rows: int, *detectors: Says, every: int = 1, events: tuple[Event, ...] = ()) -> Watch:
    run, watch = History(), new_watch(detectors)
    for row in range(1, rows + 1):
        run.append(row * every, {"reward/mean": 0.5})
        run.events += [event for event in events if event.step == row * every]
        watch.tick(run.view())
    return watch


def told(watch: Watch) -> list[tuple[int, str, str]]:
    return [(f.incident, f.id, f.severity) for f in watch.findings()]


def test_a_harmless_message_is_no_part_of_what_was_measured() -> None:
    measured = Says("reward/plateau", range(40, 100), severity="info")
    harmless = watched(99, measured, Says("system/known-trouble", range(40, 100), severity="info"))
    assert {f.id: f.incident for f in harmless.findings()} == {"reward/plateau": 1, "system/known-trouble": 2}
    harmful = watched(99, measured, Says("system/known-trouble", range(40, 100), severity="warn"))
    assert {f.incident for f in harmful.findings()} == {1}


class AtTheEnd(Says):
    at_end = True

    def ends(self, view) -> list[Finding]:
        return [self.finding(view, "warn", 1, "proved by all rows", metric="x")]


def test_what_the_end_proves_needs_no_row_to_confirm_it() -> None:
    suspects = Says("rollout/truncation", range(10, 11))
    watch = watched(10, suspects, AtTheEnd("rollout/truncation", confirm=1))
    assert not watch.findings(), "one row suspects"
    watch.end(watch._view)
    assert told(watch) == [(1, "rollout/truncation", "warn")]


def test_a_few_rows_prove_each_failure_under_its_own_name_and_give_one_cause() -> None:
    run, watch = History(), new_watch()
    for step in range(1, 8):
        run.append(step, {"reward/mean": 0.0, "optim/grad_norm": 0.0, "rollout/truncated_frac": 0.5})
        watch.tick(run.view())
    proved = [found for found in watch.end(run.view()) if "facts" in found.evidence]
    assert {found.id: found.incident for found in proved} == {"reward/no-signal": 1, "optim/no-update": 1}
    assert {found.id for found in proved if "cause" in found.evidence} == {"optim/no-update"}
    assert proved[-1].evidence["cause"] == "reward-fault"  # the reward of 0 explains the gradient of 0


# --- the life of one finding ---------------------------------------------------------------------------------------


def test_a_finding_opens_after_consecutive_ticks_and_not_after_scattered_ones() -> None:
    scattered = [range(row, row + 2) for row in range(10, 40, 4)]
    assert watched(60, Says("optim/grad-explosion", *scattered)).findings() == []
    opened = watched(60, Says("optim/grad-explosion", range(10, 60))).findings()
    assert [(f.onset_step, f.detected_step) for f in opened] == [(10, 12)]
    assert watched(11, Says("reward/outage", range(10, 60), confirm=1)).findings()[0].detected_step == 10


@pytest.mark.parametrize(
    ("quiet", "state"),
    [(RECOVERING - 1, "open"), (RECOVERING, "recovering"), (RESOLVED, "resolved")],
)
def test_a_finding_stays_open_through_gaps_then_recovers_then_resolves(quiet: int, state: str) -> None:
    watch = watched(30 + quiet, Says("optim/grad-explosion", range(10, 31)))
    assert [f.state for f in watch.findings()] == [state]


def test_a_finding_that_returns_while_recovering_reopens() -> None:
    watch = watched(45, Says("optim/grad-explosion", range(10, 31), range(40, 50)))
    assert [(f.state, f.onset_step) for f in watch.findings()] == [("open", 10)]


def test_an_early_return_reopens_the_incident_and_a_late_one_is_new() -> None:
    end = 30 + RESOLVED
    soon = watched(end + REOPEN, Says("rollout/truncation", range(10, 31), range(end + 60, 400)))
    assert [(f.incident, f.state) for f in soon.findings()] == [(1, "resolved"), (1, "open")]
    assert soon.incident(1).findings == ["rollout/truncation"]
    late = watched(end + 200, Says("rollout/truncation", range(10, 31), range(end + REOPEN + 10, 400)))
    assert [(f.incident, f.state) for f in late.findings()] == [(1, "resolved"), (2, "open")]


# --- one cause, one incident ---------------------------------------------------------------------------------------


def test_a_cascade_is_one_incident_with_the_onset_of_its_first_finding() -> None:
    watch = watched(
        500,
        Says("policy/mismatch", range(100, 500)),
        Says("optim/grad-explosion", range(180, 500)),
        Says("policy/entropy-explosion", range(260, 500)),
        Says("reward/collapse", range(330, 500), severity="critical"),
        Says("rollout/length-explosion", range(480, 500)),
    )
    assert {incident for incident, *_ in told(watch)} == {1} and len(told(watch)) == 5
    assert watch.incident(1).onset_step == 100


def test_trouble_does_not_spread_upstream() -> None:
    """A plateau makes no engine disagree with its trainer: what is upstream and not near is a problem of its own."""
    gap = MERGE + 30
    plateau = Says("reward/plateau", range(100, 400))
    up = watched(400, plateau, Says("policy/mismatch", range(100 + gap, 400), severity="critical"))
    down = watched(400, plateau, Says("rollout/truncation", range(100 + gap, 400), severity="critical"))
    assert {f.incident for f in up.findings()} == {1, 2}
    assert {f.incident for f in down.findings()} == {1, 2}
    same = watched(400, plateau, Says("reward/no-signal", range(100 + gap, 400)))
    assert {f.incident for f in same.findings()} == {1}


def test_near_onsets_are_one_incident_in_either_order() -> None:
    up, down = Says("policy/mismatch", range(100 + MERGE - 5, 400)), Says("reward/plateau", range(100, 400))
    assert {f.incident for f in watched(400, up, down).findings()} == {1}
    late = Says("policy/mismatch", range(300, 400), onset=100 - MERGE + 5)
    assert {f.incident for f in watched(400, late, down).findings()} == {1}


def test_a_consequence_of_a_warning_must_begin_soon() -> None:
    lead = Says("policy/mismatch", range(100, 500))
    soon = watched(500, lead, Says("reward/collapse", range(100 + FOLLOW - 5, 500), severity="critical"))
    late = watched(500, lead, Says("reward/collapse", range(100 + FOLLOW + 5, 500), severity="critical"))
    assert [f.incident for f in soon.findings()] == [1, 1]
    assert [f.incident for f in late.findings()] == [1, 2]


@pytest.mark.parametrize("lead", ["reward/outage", "numerics/non-finite", "system/invariant"])
def test_consequences_of_a_broken_fact_belong_to_it_at_any_distance(lead: str) -> None:
    watch = watched(
        700,
        Says(lead, range(100, 700), confirm=1),
        Says("policy/mismatch", range(400, 700)),
        Says("reward/collapse", range(600, 700), severity="critical"),
    )
    assert {f.incident for f in watch.findings()} == {1}


def test_a_ruined_run_gets_a_second_incident_only_for_a_broken_fact() -> None:
    ruin = Says("reward/collapse", range(100, 700), severity="critical")
    watch = watched(
        700, ruin, Says("policy/mismatch", range(500, 700)), Says("reward/outage", range(600, 700), confirm=1)
    )
    assert [(f.incident, f.id) for f in watch.findings()] == [
        (1, "reward/collapse"), (1, "policy/mismatch"), (2, "reward/outage"),
    ]  # fmt: skip


def test_information_does_not_absorb_a_later_incident() -> None:
    creep = Says("optim/grad-explosion", range(100, 700), severity="info")
    watch = watched(700, creep, Says("reward/collapse", range(100 + MERGE + 10, 700), severity="critical"))
    assert told(watch) == [(1, "optim/grad-explosion", "info"), (2, "reward/collapse", "critical")]


def test_a_recovering_incident_absorbs_only_near_onsets() -> None:
    lead = Says("policy/mismatch", range(100, 150))
    watch = watched(165, lead, Says("reward/collapse", range(156, 200), severity="critical"))
    assert [f.incident for f in watch.findings()] == [1, 2]


def test_a_run_logged_every_ten_steps_has_the_same_incidents_as_one_logged_at_each() -> None:
    def incidents(every: int) -> list[tuple[int, str, int]]:
        watch = watched(
            500,
            Says("policy/mismatch", range(100, 500), every=every),
            Says("reward/collapse", range(220, 500), every=every, severity="critical"),
            Says("reward/outage", range(400, 500), every=every, confirm=1),
            every=every,
        )
        return [(f.incident, f.id, f.onset_step // every) for f in watch.findings()]

    assert incidents(10) == incidents(1) and len({number for number, *_ in incidents(1)}) == 2


# --- how often a run's owner is warned -----------------------------------------------------------------------------

FIRST = Says("value/critic-failure", range(100, 3000))


def test_a_second_warning_beside_an_open_one_is_held_back() -> None:
    watch = watched(600, FIRST, Says("rollout/truncation", range(400, 600)))
    second = watch.findings()[1]
    assert (second.incident, second.severity, second.evidence["held_back"]) == (2, "info", "warn")
    assert "held back because of incident 1" in second.summary


def test_a_held_back_warning_is_raised_once_the_budget_is_free() -> None:
    watch = watched(100 + BUDGET + 20, FIRST, Says("rollout/truncation", range(400, 3000)))
    assert told(watch)[1] == (2, "rollout/truncation", "warn")
    assert "held back" not in watch.findings()[1].summary


def test_a_held_back_warning_is_raised_when_it_becomes_critical() -> None:
    grows = Says("rollout/truncation", range(400, 600), severity=lambda row: "critical" if row > 450 else "warn")
    assert told(watched(440, FIRST, grows))[1][2] == "info"
    assert told(watched(460, FIRST, grows))[1][2] == "critical"


@pytest.mark.parametrize(
    "second",
    [
        Says("rollout/truncation", range(400, 600), severity="critical"),
        Says("reward/outage", range(400, 600), confirm=1),
    ],
    ids=["critical", "proof"],
)
def test_critical_findings_and_proof_are_never_held_back(second: Says) -> None:
    assert told(watched(600, FIRST, second))[1][2] == second.severity


def test_an_upstream_warning_is_not_held_back() -> None:
    """A run that has stopped learning may still begin to diverge, and that is the graver of the two."""
    plateau, drift = Says("reward/plateau", range(100, 600)), Says("policy/kl-runaway", range(400, 600))
    assert told(watched(600, plateau, drift)) == [(1, "reward/plateau", "warn"), (2, "policy/kl-runaway", "warn")]


def test_a_recurring_failure_warns_once() -> None:
    flaps = [range(row, row + 10) for row in range(100, 1000, 150)]
    watch = watched(1000, Says("reward/oscillation", *flaps))
    assert len(flaps) == 6 and [severity for *_, severity in told(watch)] == ["warn"] + 5 * ["info"]


def test_another_failure_warns_after_the_first_is_over() -> None:
    watch = watched(600, Says("optim/grad-spike", range(100, 130)), Says("reward/plateau", range(400, 600)))
    assert [severity for *_, severity in told(watch)] == ["warn", "warn"]


def test_a_declared_change_frees_the_budget() -> None:
    event = Event(350, "data-stage", "harder prompts")
    watch = watched(600, FIRST, Says("rollout/truncation", range(400, 600)), events=(event,))
    assert told(watch)[1][2] == "warn"


# --- the laws ------------------------------------------------------------------------------------------------------


def lively(seed: int) -> tuple[Says, ...]:
    """Detectors that come and go at random."""
    rng = np.random.default_rng(seed)
    ids = ("policy/mismatch", "optim/grad-spike", "policy/entropy-collapse", "reward/collapse", "reward/outage")

    def one(id: str) -> Says:
        starts, cut = sorted(rng.integers(1, 600, size=5)), int(rng.integers(0, 600))
        rows = (range(start, start + int(rng.integers(1, 60))) for start in starts)
        worsens = lambda row: "critical" if row > cut else "warn"  # noqa: E731
        return Says(id, *rows, severity=worsens, confirm=int(rng.integers(1, 5)))

    return tuple(one(id) for id in ids)


@pytest.mark.parametrize("seed", range(8))
def test_live_replay_and_resumed_midway_hold_the_same_incidents(seed: int) -> None:
    detectors = lively(seed)
    run, live = History(), new_watch(detectors)
    for step in range(1, 601):
        run.append(step, {"reward/mean": float(np.random.default_rng([seed, step]).normal())})
        if step == 300:
            run.events.append(Event(step, "schedule", "lr halved"))
        live.tick(run.view())
    replay = new_watch(detectors)
    for step in range(1, 601):
        replay.tick(run.view(step))
    resumed = new_watch(detectors)
    for step in range(1, 251):
        resumed.tick(run.fork(251, 0).view(step))
    for step in range(251, 601):
        resumed.tick(run.view(step))
    assert len(live.findings()) > 4
    assert live.findings() == replay.findings() == resumed.findings()
    assert live.incidents == replay.incidents == resumed.incidents


@pytest.mark.parametrize("seed", range(4))
def test_every_warning_counts_once_and_no_critical_finding_is_hidden(seed: int) -> None:
    """Whatever comes and goes: what a detector called critical for its ticks in a row is critical."""
    detectors = lively(seed)
    run, watch = History(), new_watch(detectors)
    in_a_row: dict[str, int] = {}
    for step in range(1, 601):
        run.append(step, {"reward/mean": 0.0})
        view = run.view()
        watch.tick(view)
        for detector in detectors:
            said = detector.check(view)
            critical = said is not None and said.severity == "critical"
            in_a_row[detector.id] = in_a_row.get(detector.id, 0) + 1 if critical else 0
            if critical and in_a_row[detector.id] >= detector.confirm:
                stands = [f for f in watch.active() if f.id == detector.id]
                assert len(stands) == 1 and stands[0].severity == "critical"


def test_the_recorded_changes_end_in_the_present_state() -> None:
    """A record kept of every change (findings.jsonl) ends at what a replay finds, causes and remedies included."""
    series = {
        "reward/mean": "0.2+0.002~0.02x158 0.5+-0.04~0.02x12 0.02~0.01x30",
        "policy/kl_old": "0.002%0.2x154 0.08%0.3x46",
        "policy/kl_ref": "0.01+0.0003%0.1x150 0.06*1.3%0.1x15 3%0.1x35",
        "control/entropy_coef": "0x149 0.05x51",
        "policy/entropy": "1.0~0.02x160 1.0*1.03~0.02x40",
    }
    run, watch, record = history(series), new_watch(), {}
    for step in range(1, 201):
        for finding in watch.tick(run.view(step)):
            record[finding.incident, finding.id, finding.detected_step] = finding
    stands = {(f.incident, f.id, f.detected_step): f for f in watch.findings()}
    assert record.keys() == stands.keys() and len(stands) >= 2
    for key, finding in stands.items():
        told = record[key]
        assert (told.severity, told.state, told.causes, told.remedies) == (
            finding.severity, finding.state, finding.causes, finding.remedies,
        )  # fmt: skip


def test_a_failed_explanation_costs_only_the_causes() -> None:
    def broken(*_: object) -> tuple[Cause, ...]:
        raise ZeroDivisionError

    run = history({"reward/mean": "0.5x20"})
    watch = Watch(broken, lambda *_: (), (Says("numerics/non-finite", range(5, 20), confirm=1),))
    for step in range(1, 12):
        watch.tick(run.view(step))
    assert told(watch) == [(1, "numerics/non-finite", "warn")]
    cause = watch.incident(1).causes[0]
    assert cause.id == "undetermined" and cause.why.startswith("the diagnosis failed: ZeroDivisionError")


def test_real_detectors_agree_live_and_in_replay_on_a_run_that_breaks() -> None:
    series = {
        "reward/mean": "0.2+0.004~0.03x100 0.6+-0.05~0.03x12 0.0~0.005x60",
        "policy/kl_ref": "0.01+0.001%0.1x100 0.1*1.4%0.1x12 6%0.1x60",
        "optim/grad_norm": "0.5%0.3x100 0.6*1.3%0.3x12 0.05%0.3x60",
    }
    whole, growing = history(series), History()
    live, replay = new_watch(), new_watch()
    for step in range(1, 173):
        growing.append(step, {name: float(whole.view(step).latest(name)) for name in whole.names()})
        live.tick(growing.view())
        replay.tick(whole.view(step))
    assert live.findings() and live.findings() == replay.findings() and live.incidents == replay.incidents


def test_a_watch_keeps_nothing_of_a_view_but_the_newest() -> None:
    """What detectors share refers back to its view: a circle, whose arrays only the garbage collector would free."""
    run, watch = History({}), new_watch()
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(known, RunView) for known in gc.get_objects())
        for step in range(60):
            run.append(step, {"reward/mean": 0.5 + 0.01 * (step % 7), "optim/grad_norm": 1 + 0.1 * (step % 5)})
            watch.tick(run.view())
        assert sum(isinstance(known, RunView) for known in gc.get_objects()) - before <= 3
    finally:
        gc.enable()
