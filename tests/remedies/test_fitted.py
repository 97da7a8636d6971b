"""Advice fits the state of a run: nothing hard without harm, nothing for a process that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabilizer.analysis.analyse import analyse
from stabilizer.analysis.watching import advice as watching_advice
from stabilizer.core.records import Cause, Finding, RemedyAdvice, Severity
from stabilizer.incidents.watch import Watch
from stabilizer.remedies import advise, fitted
from stabilizer.runs.history import RunView
from stabilizer.trainers.reading import load
from tests.series import history

SAMPLES = Path(__file__).parents[2] / "sample_runs"
GOES_ON = "during the run"


def advice(*, ours: bool = True) -> tuple[RemedyAdvice, ...]:
    """What is advised against a learning rate that is too high."""
    rows = {"reward/mean": "0.5x40", "optim/lr": "1e-5x40"}
    rows |= {"control/lr_scale": "1x40", "control/epsilon_high": "0.28x40"} if ours else {}
    return advise((Cause("lr-too-high", 0.8, ""),), history(rows).view(), 20)


def test_a_live_run_in_trouble_is_told_what_may_be_done_while_it_goes_on() -> None:
    live = fitted(advice(), harm="critical", state="running", ours=True)
    assert live == advice() and {one.safety for one in live} >= {"hard", "soft"}
    assert all(GOES_ON in one.how for one in live)


@pytest.mark.parametrize(
    ("trainer", "said"),
    [
        ("stabilizer", "(--remedy auto-safe does it, --remedy approve asks first)"),
        ("trl", '(remedy="auto-safe" in attach() does it, remedy="approve" in attach() asks first)'),
        ("own loop", "yourself; stabilizer fix RUN set changes a knob that the loop offers"),
    ],
)
def test_a_live_run_is_told_how_its_own_trainer_lets_fixes_act(trainer: str, said: str) -> None:
    rows = history({"reward/mean": "0.5x40", "control/lr_scale": "1x40"})
    rows.about = {"trainer": trainer}
    (lower,) = [one for one in advise((Cause("lr-too-high", 0.8, ""),), rows.view(), 20) if one.id == "lower-lr"]
    assert lower.how.endswith(said)


@pytest.mark.parametrize("state", ["running", "finished"])
@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("harm", [None, "info"])
def test_without_harm_nothing_hard_is_advised(state: str, ours: bool, harm: Severity | None) -> None:
    fit = fitted(advice(), harm=harm, state=state, ours=ours)
    assert fit and not any(one.safety == "hard" or one.id == "roll-back" for one in fit)


@pytest.mark.parametrize("state", ["running", "finished", ""])
def test_a_warning_is_no_damage_so_nobody_is_told_to_go_back(state: str) -> None:
    rate = advise((Cause("learning-rate-too-low", 0.8, ""),), history({"reward/mean": "0.5x40"}).view(), 20)
    told = fitted((*advice(), *rate), harm="warn", state=state, ours=True)
    assert told and not any(one.id == "roll-back" or "damaged" in one.why for one in told)
    assert any(one.id == "roll-back" for one in fitted(advice(), harm="critical", state=state, ours=True))


@pytest.mark.parametrize(("state", "when"), [("finished", "in the next run: "), ("stopped", "when the run is resumed")])
def test_a_run_that_is_over_is_told_of_the_next_one(state: str, when: str) -> None:
    fit = fitted(advice(), harm="critical", state=state, ours=True)
    assert fit[0].id == "roll-back" and "start from a checkpoint from before the onset" in fit[0].how
    for one in fit:
        assert one.how.startswith(when) and GOES_ON not in one.how and one.safety != "hard"


def test_an_order_is_no_advice_to_a_process_that_is_gone() -> None:
    order = RemedyAdvice("reset-optimizer", "hard", {}, "its averages are wrong", "stabilizer fix RUN do ...")
    assert fitted([order], harm="critical", state="running", ours=True) == (order,)
    assert fitted([order], harm="critical", state="finished", ours=True) == ()


def test_nobody_tells_a_foreign_log_what_to_do_while_it_goes_on() -> None:
    foreign = advice(ours=False)
    assert foreign and not any(GOES_ON in one.how or "--remedy" in one.how for one in foreign)
    assert {one.safety for one in fitted(foreign, harm="critical", state="", ours=False)} <= {"soft", "advice"}


@pytest.mark.parametrize("sample", sorted(path.parent.name for path in SAMPLES.glob("*/run.json")))
def test_what_is_told_of_a_sample_run_fits_its_state(sample: str) -> None:
    found = analyse(load(SAMPLES / sample))
    assert found.state in ("finished", "stopped")
    told = [remedy for finding in found.findings for remedy in finding.remedies]
    assert not any(GOES_ON in one.how or one.safety == "hard" for one in told)
    if found.verdict in ("healthy", "info"):
        assert not any(one.id == "roll-back" for one in told)


@pytest.mark.parametrize(("severity", "trainer", "hard"), [
    ("critical", "stabilizer", True), ("info", "stabilizer", False), ("critical", "trl", False)
])  # fmt: skip
def test_a_watch_advises_something_hard_only_for_harm_to_a_run_of_ours(
    severity: Severity, trainer: str, hard: bool
) -> None:
    class Seen:
        """Sees the same at every tick."""

        id, confirm, at_end = "policy/kl-runaway", 1, False

        def check(self, view: RunView) -> Finding:
            return Finding(self.id, severity, "it ran away", 20, view.step, view.step)

    run = history({"reward/mean": "0.5x40", "control/lr_scale": "1x40"})
    run.about = {"trainer": trainer}
    watch = Watch(lambda found, view: (Cause("lr-too-high", 0.8, ""),), watching_advice, (Seen(),))
    watch.tick(run.view())
    (finding,) = watch.active()
    assert finding.remedies and any(one.safety == "hard" for one in finding.remedies) is hard


def finished_advice(rates: str, **config: object) -> RemedyAdvice:
    """The lower rate advised for a finished run with this factor of its learning rate."""
    run = history({"reward/mean": "0.5x40", "control/lr_scale": rates})
    run.about = {"trainer": "stabilizer", "config": {"optim": {"lr": 0.004}} | config}
    cause = Cause("lr-too-high", 0.8, "")
    told = fitted(advise((cause,), run.view(20), 10), harm=None, state="finished", ours=True, cause=cause.id,
                  view=run.view())  # fmt: skip
    return next(one for one in told if one.id == "lower-lr")


def test_the_next_run_is_told_from_what_it_starts_with() -> None:
    told = finished_advice("1x10 0.75x30")
    assert told.change == {"control/lr_scale": (1.0, 0.5)}
    assert told.how == "in the next run: set optim.lr 0.004 → 0.002"


def test_the_next_run_is_told_how_far_the_fixes_of_this_one_went() -> None:
    assert finished_advice("1x10 0.5x15 0.25x15").change == {"control/lr_scale": (1.0, 0.25)}


def test_a_fix_that_was_taken_back_is_no_value_for_the_next_run() -> None:
    assert finished_advice("1x10 0.5x15 1x15").change == {"control/lr_scale": (1.0, 0.5)}
