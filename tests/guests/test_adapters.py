"""Inside the real libraries: rows are on record, knobs and a stop act, our failures stay ours, the examples run."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from stabilizer.runs.reader import RunReader

DOCS = Path(__file__).parents[2] / "docs" / "integrations"


def needs(*packages):
    missing = [name for name in packages if find_spec(name) is None]
    reason = f"needs {', '.join(missing)}: make test-guests runs these in an environment of their own"
    return pytest.mark.skipif(bool(missing), reason=reason)


def series(run, name):
    return RunReader(run.path).history.view().series(name)


def status(run):
    return json.loads((run.path / "status.json").read_text())["state"]


def at(guest, step, **knobs):
    """Set knobs of ours when the row of a step is logged, as a request would, or ask the run to stop."""
    plain = guest.log

    def log(metrics, now=None):
        run = guest.run
        if now == step:
            for name, value in knobs.items():
                if name == "stop":
                    run._host.ended_by = "a test"
                else:
                    run._controls.set(f"control/{name}", value)
        return plain(metrics, now)

    guest.log = log


class Unwritable:
    """A run that cannot be made, and one whose every call fails."""

    def __init__(self, *args, **named):
        raise OSError("no space left")


# --- Lightning ------------------------------------------------------------------------------------------------------


def boring(**changes):
    import torch
    from lightning.pytorch.demos.boring_classes import BoringModel

    class Module(BoringModel):
        entropy_coef = 0.01

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)["loss"]
            self.log("reward", -loss.detach())
            return loss

        def validation_step(self, batch, batch_idx):
            self.log("val_accuracy", 0.25 + 0.001 * self.global_step)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.manual_seed(0)
    return Module()


def fit(callback, steps=8, module=None, **settings):
    from lightning.pytorch import Trainer

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = Trainer(
        max_steps=steps, accelerator="cpu", devices=1, callbacks=[callback] if callback else [], **quiet | settings
    )
    module = module or boring()
    trainer.fit(module)
    return trainer, module


@needs("lightning")
def test_lightning_makes_a_row_of_every_optimizer_step(tmp_path):
    from stabilizer.guests import lightning

    callback = lightning.callback(runs=tmp_path)
    trainer, _ = fit(callback, accumulate_grad_batches=2)
    run = callback.guest.run
    assert series(run, "reward/mean").steps.tolist() == list(range(1, trainer.global_step + 1)) == list(range(1, 9))
    assert all(value > 0 for value in series(run, "optim/grad_norm").values)
    assert set(series(run, "optim/lr").values) == {0.1}
    assert status(run) == "finished"


@needs("lightning")
def test_lightning_validations_are_rows_at_their_own_steps_alone(tmp_path):
    from stabilizer.guests import lightning

    callback = lightning.callback(runs=tmp_path)
    fit(callback, val_check_interval=3, limit_val_batches=1)
    found = series(callback.guest.run, "accuracy/val")
    assert found.steps.tolist() == [3, 6]
    assert found.values.tolist() == pytest.approx([0.253, 0.256])


@needs("lightning")
def test_lightnings_phases_are_told_apart(tmp_path):
    from stabilizer.guests import lightning

    callback = lightning.callback(runs=tmp_path)
    fit(callback, val_check_interval=4, limit_val_batches=1)
    durations = callback.guest.run.heart._durations
    assert all(len(durations[phase]) for phase in ("data", "update", "validation"))


@needs("lightning")
def test_lightning_weights_are_the_same_with_and_without_us(tmp_path):
    import torch

    from stabilizer.guests import lightning

    _, alone = fit(None)
    _, watched = fit(lightning.callback(runs=tmp_path))
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), watched.parameters(), strict=True))


@needs("lightning")
def test_lightning_knobs_and_a_stop_act(tmp_path):
    from stabilizer.guests import lightning

    callback = lightning.callback(runs=tmp_path, knobs=["entropy_coef"])
    at(callback.guest, 3, lr_scale=0.5, entropy_coef=0.02, max_grad_norm=0.5)
    at(callback.guest, 6, stop=True)
    trainer, module = fit(callback, gradient_clip_val=1.0)
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.05
    assert (module.entropy_coef, trainer.gradient_clip_val, trainer.global_step) == (0.02, 0.5, 6)


@needs("lightning")
def test_a_lightning_training_that_raises_is_on_record_as_failed(tmp_path):
    from stabilizer.guests import lightning

    callback, module = lightning.callback(runs=tmp_path), boring()
    module.on_train_batch_start = lambda batch, number: 1 / (3 - number)
    with pytest.raises(ZeroDivisionError):
        fit(callback, module=module)
    assert status(callback.guest.run) == "failed"


@needs("lightning")
def test_a_run_that_cannot_be_written_costs_lightning_nothing(tmp_path, monkeypatch, capsys):
    from stabilizer.guests import adapter, lightning

    monkeypatch.setattr(adapter, "GuestRun", Unwritable)
    trainer, _ = fit(lightning.callback(runs=tmp_path))
    assert trainer.global_step == 8
    assert capsys.readouterr().err.count("no space left; the training goes on unwatched") == 1


# --- Stable-Baselines3 ----------------------------------------------------------------------------------------------


def ppo(**settings):
    from stable_baselines3 import PPO

    return PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu", **settings)


@needs("stable_baselines3")
def test_sb3_makes_a_row_of_every_iteration(tmp_path):
    from stabilizer.guests import sb3

    callback = sb3.callback(runs=tmp_path)
    ppo(ent_coef=0.01).learn(640, callback=callback)
    run = callback.guest.run
    assert series(run, "reward/mean").steps.tolist() == list(range(1, 11))
    assert all(0 < value < 0.70 for value in series(run, "policy/entropy").values)  # two actions: at most ln 2
    about = json.loads((run.path / "run.json").read_text())
    assert about["trainer"] == "stable-baselines3" and about["config"]["clip_range"] == pytest.approx(0.2)
    assert status(run) == "finished"


@needs("stable_baselines3")
def test_sb3s_phases_are_told_apart(tmp_path):
    from stabilizer.guests import sb3

    callback = sb3.callback(runs=tmp_path)
    ppo().learn(256, callback=callback)
    durations = callback.guest.run.heart._durations
    assert len(durations["rollout"]) >= 3 and len(durations["update"]) >= 3


@needs("stable_baselines3")
def test_sb3_weights_are_the_same_with_and_without_us(tmp_path):
    import torch

    from stabilizer.guests import sb3

    alone = ppo()
    alone.learn(256)
    watched = ppo()  # seeds everything again
    watched.learn(256, callback=sb3.callback(runs=tmp_path))
    pairs = zip(alone.policy.parameters(), watched.policy.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@needs("stable_baselines3")
def test_sb3_knobs_act_and_the_model_still_saves(tmp_path):
    from stable_baselines3 import PPO

    from stabilizer.guests import sb3

    callback = sb3.callback(runs=tmp_path)
    at(callback.guest, 3, lr_scale=0.5, epsilon_low=0.1, inner_epochs=1, max_grad_norm=0.25, entropy_coef=0.001)
    model = ppo(learning_rate=lambda progress: 1e-3 * progress)
    model.learn(640, callback=callback)
    assert model.lr_schedule(0.5) == pytest.approx(0.25e-3) and model.clip_range(0.3) == pytest.approx(0.1)
    assert (model.n_epochs, model.max_grad_norm, model.ent_coef) == (1, 0.25, 0.001)
    assert series(callback.guest.run, "train/clip_range").values[-1] == pytest.approx(0.1)
    model.save(tmp_path / "model")
    assert PPO.load(tmp_path / "model", device="cpu").clip_range(1.0) == pytest.approx(0.1)


@needs("stable_baselines3")
def test_sb3_stops_when_asked(tmp_path):
    from stabilizer.guests import sb3

    callback = sb3.callback(runs=tmp_path)
    at(callback.guest, 2, stop=True)
    model = ppo()
    model.learn(640, callback=callback)
    assert model.num_timesteps < 640


@needs("stable_baselines3")
def test_sb3_algorithms_without_some_knobs_are_watched(tmp_path, capsys):
    from stable_baselines3 import DQN

    from stabilizer.guests import sb3

    callback = sb3.callback(runs=tmp_path)
    DQN("MlpPolicy", "CartPole-v1", learning_starts=20, seed=0, device="cpu").learn(400, callback=callback)
    assert len(series(callback.guest.run, "reward/mean")) > 2
    assert "knobs: lr, max_grad_norm" in capsys.readouterr().err


@needs("stable_baselines3")
def test_the_sb3_writer_alone_makes_rows(tmp_path):
    from stable_baselines3.common.logger import configure

    from stabilizer.guests import sb3

    rows, model = sb3.writer(runs=tmp_path), ppo()
    model.set_logger(configure(None, []))
    model.logger.output_formats.append(rows)
    model.learn(192)
    model.logger.close()
    assert series(rows.guest.run, "reward/mean").steps.tolist() == [1, 2, 3]


# --- accelerate -----------------------------------------------------------------------------------------------------


@needs("accelerate")
def test_accelerate_logs_offers_knobs_and_stops(tmp_path):
    import torch
    from accelerate import Accelerator

    from stabilizer.guests import accelerate

    accelerate.register(runs=tmp_path)
    accelerator = Accelerator(log_with="stabilizer", cpu=True)
    accelerator.init_trackers("mine", config={"lr": 0.1})
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    _, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    tracker = accelerator.get_tracker("stabilizer")
    tracker.run.rates(optimizer, schedule)
    at(tracker.guest, 2, lr_scale=0.5)
    at(tracker.guest, 4, stop=True)
    rates = []
    for step in range(1, 10):
        optimizer.step()
        schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
        accelerator.log({"reward": 0.1 * step}, step)
        if accelerate.stop_asked(accelerator):
            break
    accelerator.end_training()
    assert rates == [0.1, 0.1, 0.05, 0.05]
    assert series(tracker.run, "reward/mean").steps.tolist() == [1, 2, 3, 4]
    assert json.loads((tracker.run.path / "run.json").read_text())["config"] == {"lr": 0.1}
    assert status(tracker.run) == "stopped"


# --- transformers ---------------------------------------------------------------------------------------------------


def reporting(folder, steps=6, **settings):
    from stabilizer.guests import transformers
    from tests.guests.tiny_trl import trainer

    transformers.register(runs=folder / "runs")
    made = trainer(folder / "out", steps=steps, report_to="stabilizer", **settings)
    callback = next(c for c in made.callback_handler.callbacks if type(c).__name__ == "Stabilizer")
    return made, callback


@needs("trl", "peft")
def test_report_to_stabilizer_records_what_trl_logs(tmp_path):
    made, callback = reporting(tmp_path)
    made.train()
    run = callback.guest.run
    logged = [row["reward"] for row in made.state.log_history if "reward" in row]
    assert series(run, "reward/mean").values.tolist() == pytest.approx(logged) and len(logged) == 6
    assert len(series(run, "optim/grad_norm")) == 6 and status(run) == "finished"
    assert json.loads((run.path / "run.json").read_text())["trainer"] == "trl"


@needs("trl", "peft")
def test_report_to_stabilizer_changes_the_rate_and_stops(tmp_path):
    made, callback = reporting(tmp_path)
    begin = callback.on_train_begin

    def begun(args, state, control, **given):
        begin(args, state, control, **given)
        at(callback.guest, 2, lr_scale=0.5, max_grad_norm=0.1)
        at(callback.guest, 4, stop=True)

    callback.on_train_begin = begun
    made.train()
    assert made.state.global_step == 4 and made.args.max_grad_norm == 0.1
    assert [group["lr"] for group in made.optimizer.param_groups] == pytest.approx([5e-4, 5e-4])


# --- pages ----------------------------------------------------------------------------------------------------------


def example(page):
    (code,) = re.findall(r"```py\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    return code


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("lightning", marks=needs("lightning")),
        pytest.param("stable-baselines3", marks=needs("stable_baselines3")),
        pytest.param("accelerate", marks=needs("accelerate")),
        pytest.param("transformers", marks=needs("trl", "peft")),
    ],
)
def test_the_example_of_the_page_runs_and_leaves_a_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {}
    if page == "transformers":
        from tests.guests import tiny_trl

        made = tiny_trl.trainer(tmp_path / "unused")
        given = {
            "model": tiny_trl.model(), "reward": tiny_trl.reward, "tokenizer": tiny_trl.tokenizer(),
            "data": made.train_dataset,
            "settings": {"use_cpu": True, "bf16": False, "num_generations": 4, "max_completion_length": 8},
        }  # fmt: skip
    exec(compile(example(page), page, "exec"), given)  # noqa: S102 (our own documentation)
    (run,) = (tmp_path / "runs").iterdir()
    assert len(list(RunReader(run).history.view().names())) > 1


# --- failures of ours -----------------------------------------------------------------------------------------------


def sb3_training(folder):
    from stabilizer.guests import sb3

    model = ppo()
    model.learn(192, callback=sb3.callback(runs=folder))
    return model.num_timesteps == 192


def accelerate_training(folder):
    from accelerate import Accelerator

    from stabilizer.guests import accelerate

    accelerate.register(runs=folder)
    accelerator = Accelerator(log_with="stabilizer", cpu=True)
    accelerator.init_trackers("mine", config={"lr": 0.1})
    accelerator.log({"reward": 0.5}, 1)
    stopped = accelerate.stop_asked(accelerator)
    accelerator.end_training()
    return not stopped


def transformers_training(folder):
    made, _ = reporting(folder, steps=2)
    made.train()
    return made.state.global_step == 2


@pytest.mark.parametrize("broken", ["making a run", "logging a row"])
@pytest.mark.parametrize(
    "training",
    [
        pytest.param(sb3_training, marks=needs("stable_baselines3")),
        pytest.param(accelerate_training, marks=needs("accelerate")),
        pytest.param(transformers_training, marks=needs("trl", "peft")),
    ],
)
def test_what_fails_in_us_is_reported_and_the_training_goes_on(training, broken, tmp_path, monkeypatch, capsys):
    from stabilizer.guests import adapter
    from stabilizer.guests.own_loop import GuestRun

    if broken == "making a run":
        monkeypatch.setattr(adapter, "GuestRun", Unwritable)
    else:
        monkeypatch.setattr(GuestRun, "log", Unwritable)
    assert training(tmp_path)
    assert "no space left" in capsys.readouterr().err
