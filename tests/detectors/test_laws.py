"""Laws that hold for every detector."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from stabilizer.analysis.watching import new_watch
from stabilizer.core.metrics import VOCABULARY
from stabilizer.detectors import DETECTORS
from stabilizer.runs.history import REACH, History
from tests.series import history

SECTIONS = ("Signature", "Why it matters", "Look-alikes", "False alarms", "Remedies", "References")

BROKEN = {
    "reward/mean": "0.2+0.004~0.03x100 0.6+-0.05~0.03x12 0.0~0.005x60",
    "reward/all_fail_frac": "0.3~0.05x100 0.3+0.06~0.03x12 0.99~0.01x60",
    "reward/zero_std_frac": "0.4~0.05x100 0.4+0.05~0.03x12 0.99~0.01x60",
    "policy/kl_ref": "0.01+0.001%0.1x100 0.1*1.4%0.1x12 6%0.1x60",
    "policy/kl_old": "0.002%0.3x100 0.2%0.3x12 0.01%0.3x60",
    "policy/entropy": "1.0+-0.003~0.02x100 0.7*0.7~0.01x12 0.01~0.002x60",
    "optim/grad_norm": "0.5%0.3x100 0.6*1.3%0.3x12 0.05%0.3x60",
    "policy/loss": "0.0~0.01x140 nanx2 0.0~0.01x30",
    "reward/failed_frac": "0x165 0.8~0.05x7",
    "control/beta": "0.0x172",
    "control/lr_scale": "1x172",
}
"""A run with most failures one after another, so that every detector fires somewhere."""

each = pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.id)


def failing(detector) -> History:
    """A run that shows a detector its failure: the first firing case of its own, amid the metrics of a broken run."""
    file = detector.id.replace("/", "__").replace("-", "_")
    cases = tomllib.loads((Path(__file__).parent / f"cases/{file}.toml").read_text())
    case = next(case for name, case in cases.items() if name.startswith("fires"))
    others = {} if case.get("alone") else BROKEN
    about, events = case.get("about"), case.get("events", ())
    return history(others | case["series"], every=case.get("every", 1), about=about, events=events)


def rows(run: History) -> list[tuple[int, dict[str, float]]]:
    """A run as it was logged, step by step."""
    logged: dict[int, dict[str, float]] = {}
    for name in run.names():
        series = run.view().series(name)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            logged.setdefault(step, {})[name] = value
    return sorted(logged.items())


@each
def test_a_failing_run_triggers_the_detector(detector) -> None:
    run = failing(detector)
    assert any(detector.check(run.view(step)) for step, _ in rows(run))


@each
def test_the_past_cannot_change(detector) -> None:
    whole = failing(detector)
    growing = History(whole.about)
    growing.events += whole.events
    for step, row in rows(whole):
        growing.append(step, row)
        assert detector.check(growing.view()) == detector.check(whole.view(step)), step


@each
def test_memoised_signals_equal_recomputed_ones(detector) -> None:
    warm = failing(detector)
    steps = [step for step, _ in rows(warm)]
    for step in steps:
        detector.check(warm.view(step))
    for step in (30, 90, 105, 120, *steps[-2:]):
        assert detector.check(warm.view(step)) == detector.check(failing(detector).view(step))


@each
def test_no_run_is_too_long(detector) -> None:
    """Signals let go of what is old: who was asked all along, and who is asked for the first time, say the same."""
    once, about, events = rows(failing(detector)), failing(detector).about, failing(detector).events
    asked, fresh = History(about, events=list(events)), History(about, events=list(events))
    last = once[-1][0]
    times = 3 * REACH // len(once) + 1
    for turn in range(times):
        for step, row in once:
            asked.append(turn * last + step, row)
            fresh.append(turn * last + step, row)
        detector.check(asked.view())
    for step, _ in once[:: max(1, len(once) // 40)]:
        at = (times - 1) * last + step
        assert detector.check(asked.view(at)) == detector.check(fresh.view(at))


@each
def test_silent_on_empty_short_and_constant_runs(detector) -> None:
    assert detector.check(History().view(0)) is None
    assert detector.check(history({name: "0.5x3" for name in BROKEN}).view()) is None
    constant = history(
        {
            name: "0.5x300"
            for name in BROKEN
            if name not in ("reward/all_fail_frac", "reward/zero_std_frac", "reward/failed_frac")
        }
    )
    assert all(detector.check(constant.view(step)) is None for step in range(1, 301))


@each
def test_ignores_metrics_it_does_not_need(detector) -> None:
    plain, noisy = failing(detector), failing(detector)
    logged = [step for step, _ in rows(plain)]
    for step in logged:
        noisy.append(step, {"trl/whatever": 1.5 ** (step % 50), "rank/loss": math.nan})
    for step in logged[::3]:
        assert detector.check(plain.view(step)) == detector.check(noisy.view(step))


@each
@pytest.mark.parametrize("metric", ["reward/mean", "optim/grad_norm"])
def test_the_unit_of_reward_and_gradient_does_not_matter(detector, metric: str) -> None:
    if detector.id == "numerics/non-finite":
        return
    plain = failing(detector)
    scaled = History(plain.about)
    scaled.events += plain.events
    rewards = ("reward/mean", "reward/std", "reward/std_group") if metric == "reward/mean" else (metric,)
    for step, row in rows(plain):
        scaled.append(step, row | {name: row[name] * 1000 for name in rewards if name in row})
    for step, _ in rows(plain):
        ours, theirs = detector.check(plain.view(step)), detector.check(scaled.view(step))
        assert (ours is None) == (theirs is None), step
        assert ours is None or (ours.severity, ours.onset_step) == (theirs.severity, theirs.onset_step)


@each
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_nan_inf_gaps_duplicates_and_disorder_do_not_break_it(detector, seed: int) -> None:
    rng = np.random.default_rng(seed)
    run = History()
    names = [*BROKEN, "accuracy/train", "accuracy/val", "optim/lr", "policy/clip_frac", "batch/prompts"]
    for _ in range(300):
        row = {n: float(rng.normal()) * 10.0 ** rng.integers(-12, 12) for n in names if rng.random() < 0.8}
        for name in row:
            if rng.random() < 0.05:
                row[name] = rng.choice([math.nan, math.inf, -math.inf, 0.0])
        run.append(int(rng.integers(0, 200)), row)
    for step in range(0, 201, 5):
        detector.check(run.view(step))


@each
def test_page_has_its_sections_and_id_matches_file_and_class(detector) -> None:
    page = type(detector).__doc__ or ""
    assert [s for s in SECTIONS if f"\n    {s}\n" not in page] == []
    family, failure = detector.id.split("/")
    assert type(detector).__module__ == f"stabilizer.detectors.{family}.{failure.replace('-', '_')}"
    assert type(detector).__name__ == "".join(word.title() for word in failure.split("-"))


def test_every_remedy_a_page_names_exists() -> None:
    from stabilizer.remedies import REMEDIES

    known = {remedy.id for remedy in REMEDIES}
    for detector in DETECTORS:
        section = (type(detector).__doc__ or "").split("\n    Remedies\n")[1].split("\n    References\n")[0]
        named = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", section))
        assert named and named <= known, f"{detector.id}: {named - known}"


def test_an_early_harmless_creep_does_not_swallow_a_late_collapse() -> None:
    run = history(
        {
            "optim/grad_norm": "0.5%0.2x100 0.5*1.02%0.2x60 1.6%0.2x340",
            "reward/mean": "0.1+0.001~0.02x400 0.5+-0.03~0.02x17 0.0~0.01x83",
            "policy/kl_ref": "0.01+0.0005%0.1x400 0.2*1.2%0.1x17 5%0.1x83",
        }
    )
    watch = new_watch()
    for step in range(1, 501):
        watch.tick(run.view(step))
    collapse = next(f for f in watch.findings() if f.id == "policy/kl-runaway" and f.severity == "critical")
    assert watch.incident(collapse.incident).onset_step >= 380


@each
def test_a_forked_history_answers_as_one_that_never_had_the_other_branch(detector) -> None:
    warm = history(BROKEN)
    for step in range(1, 173):
        detector.check(warm.view(step))
    forked, fresh = warm.fork(90, 1), History(attempt=1)
    for step in range(1, 90):
        fresh.append(
            step, {n: s.values[-1] for n in warm.names() if (s := warm.view(step).series(n)).steps[-1] == step}
        )
    for step in range(90, 150):
        row = {
            "reward/mean": 0.5,
            "policy/kl_ref": 0.1 * 1.1 ** (step - 90),
            "optim/grad_norm": 0.6,
            "policy/entropy": 0.7,
        }
        forked.append(step, row)
        fresh.append(step, row)
        assert detector.check(forked.view()) == detector.check(fresh.view()), step


def test_a_failing_detector_is_a_finding_and_the_others_continue() -> None:
    class Broken(type(DETECTORS[0])):
        id = "policy/broken"

        def check(self, view):
            raise KeyError("no such thing")

    watch = new_watch((Broken(), *DETECTORS))
    run = history(BROKEN)
    for step in range(1, 173):
        watch.tick(run.view(step))
    ids = [finding.id for finding in watch.findings()]
    assert ids.count("system/detector-error") == 1
    assert "policy/kl-runaway" in ids


def odd(shape: int, size: float, step: int, rng: np.random.Generator) -> float:
    """A value of a series of some shape: constant, noisy, rising, holed, spread over a range, or late."""
    return (
        size,
        size * (1 + 0.1 * rng.standard_normal()),
        size * (1 + step / 100),
        math.nan if rng.random() < 0.3 else size,
        size * rng.random(),
        0.0 if step < 90 else size,
    )[shape]


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 24))])
def test_no_detector_fails_on_numbers_of_any_size(seed: int) -> None:
    """Values no trainer means, beside ones it does: a detector may say what it likes, and breaks on none of them."""
    rng = np.random.default_rng(seed)
    for trainer in ("trl", "verl", "stabilizer"):
        names = [*rng.choice(list(VOCABULARY), 25, replace=False), "reward/mean", "reward/correct/mean"]
        sizes = {name: rng.choice([0.0, 1e-12, 0.3, 1.0, 1e6, 1e300, -1.0, -1e9]) for name in names}
        shapes = {name: int(rng.integers(6)) for name in names}
        run, watch = History({"trainer": trainer, "config": {}}), new_watch(DETECTORS)
        for step in range(1, 181):
            logged = [name for name in names if rng.random() > 0.05]
            run.append(step, {name: odd(shapes[name], sizes[name], step, rng) for name in logged})
            with np.errstate(all="ignore"):
                watch.tick(run.view())
        assert [f.summary for f in watch.findings() if f.id == "system/detector-error"] == []
