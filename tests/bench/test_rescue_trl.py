"""The figures of the rescue bench inside TRL: what counts as damaged, saved and harmed."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from bench.rescue_trl import measure
from bench.rescue_trl.faults import FAULTS, inject
from bench.rescue_trl.measure import AUTO, OFF, Case


def went(folder, case, arm, final, findings=(), actions=(), alone=()):
    row = {"final": final, "findings": list(findings), "actions": list(actions), "alone": list(alone), "cpu_s": 1.0}
    (folder / f"{case.name}-{arm}.json").write_text(json.dumps(row))


def test_every_fault_meets_every_seed_once_and_the_first_half_is_spread_over_all_seeds():
    cases = measure.cases(0, 5)
    met = Counter((case.kind, case.seed) for case in cases if not case.kind.startswith("healthy"))
    assert set(met.values()) == {1} and len(met) == 5 * len(FAULTS)
    half = cases[: len(cases) // 2]
    assert {case.seed for case in half} == {case.seed for case in cases}
    assert {case.kind for case in half} >= {fault.kind for fault in FAULTS}
    assert all(measure.FIRST_ONSET <= case.onset <= measure.LAST_ONSET for case in cases if case.onset)


@pytest.mark.parametrize(
    ("off", "auto", "damaged", "saved", "harmed"),
    [
        (0.50, 0.96, True, True, False),
        (0.50, 0.90, True, False, False),
        (0.96, 0.93, False, False, True),
        (0.96, 0.95, False, True, False),
        (0.80, 0.70, True, False, True),
    ],
)
def test_saved_is_near_the_twin_and_harmed_is_below_no_action(tmp_path, off, auto, damaged, saved, harmed):
    case = Case("lr-jump", 1000, 6.0, 50)
    went(tmp_path, case.twin, OFF, 1.0)
    went(tmp_path, case, OFF, off, [(50, "reward/collapse", "lr-too-high")])
    went(tmp_path, case, AUTO, auto)
    found = measure.judged(case, tmp_path)
    assert (found["damaged"], found["saved"], found["harmed"]) == (damaged, saved, harmed)


def test_a_run_of_which_nothing_was_said_counts_as_it_ended(tmp_path):
    case = Case("too-cold", 1000, 0.15, 50)
    went(tmp_path, case.twin, OFF, 1.0)
    went(tmp_path, case, OFF, 0.7, [(3, "system/stalled", "undetermined")])  # the machine was busy
    found = measure.judged(case, tmp_path)
    assert not found["heard"] and found["damaged"] and not found["saved"] and not found["harmed"]


@pytest.mark.parametrize(
    ("alone", "named", "early"),
    [
        ([], False, False),
        ([(60, "reward/collapse", "")], True, False),
        ([(40, "reward/collapse", "")], False, True),
        ([(60, "system/slowdown", "")], False, False),  # the machine was busy
    ],
)
def test_a_log_without_settings_is_named_only_after_the_fault(tmp_path, alone, named, early):
    case = Case("lr-jump", 1000, 6.0, 50)
    went(tmp_path, case.twin, OFF, 1.0)
    went(tmp_path, case, OFF, 0.5, alone=alone)
    found = measure.judged(case, tmp_path)
    assert (found["alone"], found["early"]) == (named, early)


def test_what_is_not_made_yet_is_left_out_and_said(tmp_path):
    case = Case("lr-jump", 1000, 6.0, 50)
    went(tmp_path, case.twin, OFF, 1.0)
    result = measure.figures([case.twin, case], tmp_path)
    assert result["left out"] == 1 and result["faults"] == 0 and result["healthy"] == 1
    assert any("NOT COMPLETE: 1 cases" in line for line in measure.statements(result))


def test_a_step_that_begins_twice_is_harmed_once():
    turned = []
    callback = inject(None, "batch-shrunk", 3, 5, lambda name, value: turned.append((name, value)))
    for step in (4, 4, 5):  # the step before the onset is state 4: its second micro-batch begins it again
        callback.on_step_begin(None, SimpleNamespace(global_step=step), None)
        if step == 5:
            callback.on_step_end(None, SimpleNamespace(global_step=step), None)
    assert turned == [("prompts", 3), ("lr", 2.0)]
