"""The confidence of a cause: what raises it, and what may not be claimed at all."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stabilizer.control.choose import left_to_people
from stabilizer.core.records import Finding
from stabilizer.incidents.diagnosis import causes
from stabilizer.incidents.diagnosis.confidence import SUSPICION, confidences
from stabilizer.incidents.diagnosis.graph import METRICS
from stabilizer.remedies import LOWER_LR
from tests.incidents.test_causes import BREAKS, DRIFT, told
from tests.series import history

LITTLE = history({"reward/mean": "0.4~0.03x60"}).view()
MUCH = history({name: "0.4~0.03x60" for name, _, _ in METRICS}).view()


def test_a_larger_lead_and_more_metrics_raise_confidence():
    by_lead = [confidences([0.7, other], LITTLE)[0] for other in (0.7, 0.55, 0.35)]
    assert all(less < more for less, more in pairwise(by_lead))
    assert confidences([0.7, 0.35], LITTLE)[0] < confidences([0.7, 0.35], MUCH)[0]


@pytest.mark.parametrize("scores", [[0.9, 0.9, 0.9], [0.7, 0.35], [0.95, 0.55, 0.1], [0.55], [0.3, 0.3]])
@pytest.mark.parametrize("view", [LITTLE, MUCH])
def test_all_causes_together_are_no_more_than_certain(scores, view):
    sure = confidences(scores, view)
    assert sum(sure) <= 1 and sure[0] <= 0.95 and all(0 <= one <= sure[0] for one in sure[1:])


def test_two_causes_that_fit_a_sparse_log_alike_are_undetermined():
    both = {"batch/prompts": "8x200", "policy/entropy": "_x200"}
    assert confidences([0.55, 0.55], LITTLE)[0] < 0.4
    assert told({"reward/plateau": 100}, both)[0].id != "undetermined", "one cause alone is named"


def test_a_proof_needs_no_other_metric_and_a_suspicion_stays_one():
    assert confidences([0.95], LITTLE) == [0.95]
    assert confidences([0.45], MUCH) == [SUSPICION]


def test_slower_learning_is_left_to_people_while_the_cause_is_only_suspected():
    suspected = told(DRIFT, BREAKS | {"policy/kl_old": "_x200", "optim/update_ratio": "_x200"})[0]
    measured = told(DRIFT, BREAKS)[0]
    assert suspected.id == measured.id == "lr-too-high"
    assert suspected.doubt and suspected.doubt in left_to_people(LOWER_LR, suspected)
    assert not measured.doubt and not left_to_people(LOWER_LR, measured)


def test_a_message_that_ended_nothing_explains_no_measurement():
    run = history({"reward/mean": "0.4~0.03x200"})
    flat = Finding("reward/plateau", "warn", "flat since step 80", 80, 120, 200)
    message = Finding("system/known-trouble", "info", "a package is too old", 0, 0, 200, {"cause": "config-error"})
    assert "config-error" not in [cause.id for cause in causes([message, flat], run.view())]
    assert causes([message], run.view())[0].id == "config-error"


def test_a_reference_that_is_not_the_start_is_no_broken_optimizer():
    differs = Finding("system/resume-mismatch", "info", "KL is 0.8 at step 1", 1, 3, 200, {"metric": "policy/kl_ref"})
    resumed = Finding("system/resume-mismatch", "warn", "resumed", 100, 106, 200, {"signs": ["policy/entropy"]})
    run = history({"reward/mean": "0.4~0.03x200"})
    assert "optimizer-state" not in [cause.id for cause in causes([differs], run.view())]
    assert causes([resumed], run.view())[0].id == "optimizer-state"


def test_a_sparse_log_earns_no_sure_reason_for_a_flat_reward():
    few = history({name: "0.4~0.03x60" for name, _, _ in METRICS[:7]}).view()
    assert confidences([0.7], few, flat=True)[0] < 0.5 < 0.6 < confidences([0.7], MUCH, flat=True)[0]
    assert confidences([0.7], few)[0] > 0.6, "what changed in mid-run has fewer reasons"
    assert confidences([0.8], few, flat=True)[0] > 0.6, "what was measured itself needs no alternatives"


def test_a_check_at_the_end_explains_no_measurement_before_it():
    silent = Finding("reward/no-signal", "info", "80 % of groups are silent", 29, 60, 200)
    check = Finding("system/config-error", "critical", "unrecognized arguments", 200, 200, 200)
    run = history({"reward/mean": "0.4~0.03x200"})
    assert causes([check], run.view())[0].id == "config-error"
    assert "config-error" not in [cause.id for cause in causes([silent, check], run.view())]


def test_a_share_of_cut_answers_that_was_measured_from_the_first_row_is_a_sure_cause():
    def told_of(shares: str, **others: str):
        run = history({"reward/mean": "0.4~0.03x60", "rollout/truncated_frac": shares, **others})
        cut = Finding("rollout/truncation", "warn", "answers are cut", 1, 3, 60)
        later = Finding("policy/entropy-explosion", "warn", "entropy doubled", 40, 43, 60)
        return causes([cut, later], run.view())[0]

    most, some = told_of("0.95~0.02x60"), told_of("0.3~0.02x60")
    assert most.id == some.id == "capped-length", "what came later explains nothing"
    assert 0.6 < some.confidence + 0.1 < most.confidence
