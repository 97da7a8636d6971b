"""prime-rl's printed lines: what each says, and what can't be told from it."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from stabilizer.runs.reader import RunError
from stabilizer.trainers.places import find
from stabilizer.trainers.prime_rl import console
from stabilizer.trainers.reading import load

SAMPLE = Path(__file__).parent / "samples" / "prime-rl-logs"
TRAINER = "Step {step} | 12.3s | Loss {loss} | Entropy 0.3100 | Mismatch KL {kl} | Grad. Norm 0.1200 | LR 1.00e-06\n"


def log(tmp_path: Path, *lines: str, name: str = "trainer.log") -> Path:
    path = tmp_path / name
    path.write_text("".join(lines))
    return path


def line(step: int = 1, loss: str = "0.0012", kl: str = "0.0003") -> str:
    return TRAINER.format(step=step, loss=loss, kl=kl)


def test_both_logs_of_a_training_are_one_run():
    run = load(SAMPLE)
    view = run.history.view()
    assert len(run.source.files) == 2 and view.latest("reward/mean") == 0.4312 and view.latest("optim/lr") == 1e-6
    assert view.latest("time/step_s") == 125.0  # the trainer's, 2m 5s
    assert view.latest("rollout/truncated_frac") == pytest.approx(0.062) and view.latest("prime_rl/Trainable") == 0.75
    assert view.latest("accuracy/val") == 0.52 and run.history.about["clock"] == "optimizer_step"


def test_the_folder_of_a_run_holds_its_logs(tmp_path):
    shutil.copytree(SAMPLE, tmp_path / "run" / "logs")
    assert load(tmp_path / "run").source.steps == 3
    assert [place.format for place in find(tmp_path)] == ["prime_rl_console"]


def test_metrics_jsonl_and_the_logs_of_one_training_count_once(tmp_path):
    shutil.copytree(SAMPLE.parent / "prime-rl", tmp_path / "run")
    shutil.copytree(SAMPLE, tmp_path / "run" / "logs")
    run = load(tmp_path / "run")
    assert any("not used" in note and "prime_rl" in note for note in run.source.notes) and run.source.steps <= 3


def test_a_number_too_small_to_be_printed_is_missing_and_an_entropy_of_zero_is_not(tmp_path):
    text = line(1) + line(2, loss="0.0000", kl="0.0000").replace("0.3100", "0.0000")
    view = load(log(tmp_path, text)).history.view()
    assert view.series("policy/loss").steps.tolist() == [1] and view.series("policy/mismatch_kl").steps.tolist() == [1]
    assert view.latest("policy/entropy") == 0.0


def test_nan_and_infinity_are_printed_and_read(tmp_path):
    view = load(log(tmp_path, line(1, "nan", "inf"), line(2, "-inf", "0.0003"))).history.view()
    assert math.isnan(view.series("policy/loss").values[0]) and view.latest("policy/loss") == -math.inf
    assert view.series("policy/mismatch_kl").values.tolist() == [math.inf, 0.0003]


@pytest.mark.parametrize(
    "text,seconds",
    [("  850ms", 0.85), ("12.3s", 12.3), (" 2m 5s", 125), ("1h 3m", 3780), ("2d 1h", 176400), ("Time: 12.30s", 12.3)],
)
def test_durations_as_they_are_printed(tmp_path, text, seconds):
    view = load(log(tmp_path, line().replace("12.3s", text))).history.view()
    assert view.latest("time/step_s") == pytest.approx(seconds)


def test_parts_of_a_step_and_of_its_environments_are_not_steps(tmp_path):
    text = "Micro Step 1/4 | Loss 9.0 | Entropy 9.0\n" + line() + "\t\t ╰─ math | Ratio 50.0% | Reward 0.9\n"
    view = load(log(tmp_path, text)).history.view()
    assert view.latest("policy/loss") == 0.0012 and "reward/mean" not in view.names()


def test_the_last_number_of_a_line_that_was_cut_off_is_none(tmp_path):
    cut = line(2)[: line(2).index("Norm") + 7]
    run = load(log(tmp_path, line(1), cut))
    assert run.history.view().series("optim/grad_norm").steps.tolist() == [1] and run.source.skipped_lines == 1


def test_a_restart_in_one_log_is_an_attempt(tmp_path):
    assert load(log(tmp_path, *(line(step) for step in (1, 2, 3, 2, 3)))).ticks[-1] == (1, 3)


def test_of_several_environments_none_is_the_accuracy(tmp_path):
    tests = [f"Evaluated {name} (Step 1) | Policy v1 | 1.0s | Reward 0.5 | Turns 1.0\n" for name in ("math", "code")]
    run = load(log(tmp_path, line(), *tests))
    assert "accuracy/val" not in run.history.names() and any("2 environments" in note for note in run.source.notes)
    one = load(log(tmp_path, line(), *tests), mapping={"accuracy/val": "eval/code/Reward"})
    assert one.history.view().latest("accuracy/val") == 0.5


def test_a_failure_is_an_event_at_the_step_reached(tmp_path):
    run = load(log(tmp_path, line(1), line(2), "torch.OutOfMemoryError: CUDA out of memory\n"))
    assert [(event.step, event.data["failure"]) for event in run.history.events] == [(2, "oom")]


def test_its_supervised_trainer_is_no_rl(tmp_path):
    text = "Step 1 | 12.3s | Loss 1.2000 | Grad. Norm 0.1200 | LR 1.00e-06 | Throughput 9 tokens/s\n"
    assert not console.recognises(log(tmp_path, text * 3))


def test_a_folder_without_the_logs_says_what_to_give(tmp_path):
    with pytest.raises(RunError, match="folder of logs"):
        load(tmp_path, format="prime_rl_console")
