"""Against the real classes of veRL, EasyR1, SkyRL and NeMo-RL, on a CPU: rows, names, knobs, a stop, failures of ours.

veRL and SkyRL come from the package index; EasyR1 and NeMo-RL are source trees in the folder `STABILIZER_SOURCES`,
as EasyR1/ and NeMo-RL/. No training of theirs runs here: that needs GPUs.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from stabilizer.runs.reader import RunReader

ROOT = Path(__file__).parents[2]
SOURCES = Path(os.environ.get("STABILIZER_SOURCES") or "/nowhere").resolve()
ENVIRONMENT = "make test-rl-trainers runs these in an environment of their own"


def needs(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs {package}: {ENVIRONMENT}")


def needs_source(name):
    reason = f"needs the source of {name} in STABILIZER_SOURCES/{name}: {ENVIRONMENT}"
    return pytest.mark.skipif(not (SOURCES / name).is_dir(), reason=reason)


def series(run, name):
    return RunReader(run.path).history.view().series(name)


def asked(guest, step, **knobs):
    """Set knobs of ours when the row of a step is logged, as a request would, or ask the run to stop."""
    plain = guest.log

    def log(metrics, now=None):
        if now == step:
            for name, value in knobs.items():
                if name == "stop":
                    guest.run._host.ended_by = "a test"
                else:
                    guest.run._controls.set(f"control/{name}", value)
        return plain(metrics, now)

    guest.log = log


def in_its_own_process(code, folder, source):
    """Run code with a trainer's source first on the path: two of them call their package `verl`."""
    environment = {**os.environ, "PYTHONPATH": f"{SOURCES / source}:{ROOT}", "STABILIZER_RUNS": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, cwd=folder, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done


# --- veRL -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def verl(monkeypatch, tmp_path):
    monkeypatch.setenv("STABILIZER_RUNS", str(tmp_path))
    from stabilizer.guests import verl

    verl.install()
    return verl


class Workers:
    """What the driver calls of its group of actors, with the dispatch of veRL left out."""

    def __init__(self):
        self.losses = []
        self.factors = []

    def set_loss_fn(self, loss_fn):
        self.losses.append(loss_fn)

    def execute_with_func_generator(self, function):
        self.factors.append(function)


def settings(*overrides):
    """veRL's own configuration, as its main composes it."""
    from hydra import compose, initialize_config_module

    needed = ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1", "actor_rollout_ref.model.path=/nowhere"]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", [*needed, *overrides])


class Trainer:
    """The driver as the plugin sees it: it builds veRL's own `Tracking` inside `fit`."""

    def __init__(self, logger="stabilizer", kl=True):
        self.config = settings(f"trainer.logger=[{logger}]", f"actor_rollout_ref.actor.use_kl_loss={kl}")
        self.actor_rollout_wg = Workers()
        self.total_training_steps = 10
        self.global_steps = 1

    def fit(self, before=lambda logger: None):
        from omegaconf import OmegaConf
        from verl.utils.tracking import Tracking

        self.logger = Tracking(
            project_name="p", experiment_name="e", default_backend=self.config.trainer.logger,
            config=OmegaConf.to_container(self.config, resolve=True),
        )  # fmt: skip
        before(self.logger)
        while self.global_steps <= self.total_training_steps:
            row = {"actor/grad_norm": 0.5, "actor/entropy": 1.0, "critic/score/mean": 0.1 * self.global_steps, "x/y": 1}
            self.logger.log(data=row, step=self.global_steps)
            self.global_steps += 1
        return self.logger


@needs("verl")
def test_the_entry_point_of_verl_names_a_module_that_registers_the_logger():
    import tomllib

    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["verl.plugins"]
    code = "import importlib, verl; importlib.import_module({!r}); from verl.utils.tracking import Tracking; "
    code += "print('stabilizer' in Tracking.supported_backend)"
    done = subprocess.run(
        [sys.executable, "-c", code.format(points["stabilizer"])], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.split()[-1] == "True"
    assert done.stderr.count("stabilizer: loaded as a plugin of veRL") == 1


@needs("verl")
def test_verl_rows_carry_our_names_and_the_configuration(verl, tmp_path):
    trainer = Trainer()
    logger = trainer.fit()
    run = logger.logger["stabilizer"].guest.run
    logger.finish()
    assert series(run, "reward/mean").steps.tolist() == list(range(1, 11))
    assert set(series(run, "policy/entropy").values) == {1.0} and set(series(run, "verl/x/y").values) == {1.0}
    about = json.loads((run.path / "run.json").read_text())
    assert about["config"]["actor_rollout_ref"]["actor"]["kl_loss_coef"] == 0.001 and about["trainer"] == "verl"
    assert about["clock"] == "rollout_batch"
    assert json.loads((run.path / "status.json").read_text())["state"] == "finished"


@needs("verl")
def test_verl_without_our_name_among_its_loggers_gets_no_run(verl, tmp_path):
    Trainer(logger="console").fit()
    assert list(tmp_path.iterdir()) == []


@needs("verl")
def test_a_training_of_verl_that_fails_is_on_record_as_failed(verl):
    logger = Trainer().fit()
    run = logger.logger["stabilizer"].guest.run
    logger.finish(exit_code=1)
    assert json.loads((run.path / "status.json").read_text())["state"] == "failed"


@needs("verl")
def test_verl_actors_get_a_new_loss_with_the_changed_setting(verl):
    trainer = Trainer()
    change = {"epsilon_high": 0.28, "beta": 0.01, "entropy_coef": 0.001, "inner_epochs": 2}
    logger = trainer.fit(lambda logger: asked(logger.logger["stabilizer"].guest, 3, **change))
    logger.finish()
    loss = trainer.actor_rollout_wg.losses[-1]
    from verl.workers.utils.losses import ppo_loss

    assert loss.func is ppo_loss
    config = loss.keywords["config"]
    assert (config.clip_ratio_low, config.clip_ratio_high) == (0.2, 0.28)
    assert (config.kl_loss_coef, config.entropy_coeff) == (0.01, 0.001)
    assert trainer.config.actor_rollout_ref.actor.entropy_coeff == 0.001  # by which the driver asks for entropies
    assert trainer.config.actor_rollout_ref.actor.ppo_epochs == 2
    assert len(trainer.actor_rollout_wg.losses) == 3


@needs("verl")
def test_verl_offers_no_temperature_and_no_beta_without_a_reference(verl):
    logger = Trainer(kl=False).fit()
    knobs = set(logger.logger["stabilizer"].guest.run._controls.values())
    logger.finish()
    assert {"control/lr_scale", "control/epsilon_low"} <= knobs
    assert not {"control/beta", "control/temperature"} & knobs


@needs("verl")
def test_a_setting_that_the_workers_refuse_is_put_back(verl, capsys):
    trainer = Trainer()
    trainer.actor_rollout_wg.set_loss_fn = lambda loss_fn: 1 / 0
    logger = trainer.fit(lambda logger: asked(logger.logger["stabilizer"].guest, 3, epsilon_high=0.28))
    run = logger.logger["stabilizer"].guest.run
    logger.finish()
    assert trainer.config.actor_rollout_ref.actor.clip_ratio_high == 0.2
    assert set(series(run, "control/epsilon_high").values[4:]) == {0.2}
    assert "ZeroDivisionError" in capsys.readouterr().err


@needs("verl")
def test_a_training_of_verl_stops_after_the_step_when_asked(verl):
    trainer = Trainer()
    trainer.fit(lambda logger: asked(logger.logger["stabilizer"].guest, 4, stop=True)).finish()
    assert trainer.global_steps == 5


@needs("verl")
def test_every_worker_of_a_real_ray_group_scales_its_rate_and_its_schedule(verl):
    import ray
    import torch
    from verl.single_controller.base import Worker
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

    class Actor(Worker):
        def __init__(self):
            super().__init__()
            parameter = torch.nn.Parameter(torch.zeros(1))
            self.actor = self.engine = self
            self.optimizer = torch.optim.AdamW([parameter], lr=1e-3)
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step))

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        pool = RayResourcePool(process_on_nodes=[2], use_gpu=False, max_colocate_count=1)
        group = RayWorkerGroup(pool, RayClassWithInitArgs(ray.remote(Actor)))
        rate = verl._Rate(group, 1e-3)
        rate.set(5e-4)
        assert rate.get() == 5e-4
        answer = group.execute_with_func_generator(verl._scaling(0.5))
        assert answer["rate"].tolist() == pytest.approx([2.5e-4, 2.5e-4])
    finally:
        ray.shutdown()


def test_an_engine_whose_schedule_would_overwrite_the_rate_is_refused():
    from types import SimpleNamespace

    from stabilizer.guests.verl import scale_engine

    engine = SimpleNamespace(lr_scheduler=object(), optimizer=None)
    with pytest.raises(ValueError, match="cannot be changed live"):
        scale_engine(engine, 0.5)


# --- SkyRL ----------------------------------------------------------------------------------------------------------


class Dispatch:
    def __init__(self):
        self.calls = []

    def set_lr(self, model, learning_rate, model_id=None):
        self.calls.append(("set_lr", model, learning_rate))

    def set_algorithm_config(self, model, **settings):
        self.calls.append(("set_algorithm_config", model, settings))


def skyrl_trainer(callback, steps=6, **optimizer):
    """SkyRL's own dispatcher of events and its own parts of a configuration, with the training left out.

    The whole configuration imports engines when it is made.
    """
    from dataclasses import make_dataclass
    from types import SimpleNamespace

    from skyrl.train.config.config import AlgorithmConfig, OptimizerConfig
    from skyrl.train.utils.callbacks import CallbackHandler, CallbackInput, TrainingControl

    def made(name, **fields):
        return make_dataclass(name, fields)(**fields)

    policy = made("Policy", optimizer_config=OptimizerConfig(**optimizer))
    config = made("Config", trainer=made("Trainer", algorithm=AlgorithmConfig(), policy=policy))
    trainer = SimpleNamespace(cfg=config, dispatch=Dispatch(), global_step=0)
    events, control = CallbackHandler([callback]), TrainingControl()

    def fire(name, **fields):
        given = CallbackInput(trainer.global_step, 0, steps, steps, **fields)
        getattr(events, name)(trainer, given, control)

    fire("on_train_start")
    for trainer.global_step in range(1, steps + 1):
        fire("on_step_start", batch={})
        fire("on_step_end", batch={}, metrics={})
        fire("on_log", logs={"reward/avg_raw_reward": 0.5, "policy/policy_lr": 1e-6, "timing/generate": 1.0})
    fire("on_train_end")
    return trainer


@needs("skyrl")
def test_skyrl_rows_carry_our_names_and_the_configuration(tmp_path):
    from stabilizer.guests import skyrl

    callback = skyrl.callback(runs=tmp_path)
    skyrl_trainer(callback)
    run = callback.guest.run
    assert series(run, "reward/mean").steps.tolist() == [1, 2, 3, 4, 5, 6]
    about = json.loads((run.path / "run.json").read_text())
    assert about["config"]["trainer"]["algorithm"]["eps_clip_low"] == 0.2 and about["steps"] == 6
    assert json.loads((run.path / "status.json").read_text())["state"] == "finished"


@needs("skyrl")
def test_skyrl_workers_get_the_clip_range_once_and_the_rate_before_every_step(tmp_path):
    from stabilizer.guests import skyrl

    callback = skyrl.callback(runs=tmp_path)
    asked(callback.guest, 3, epsilon_high=0.28, lr_scale=0.5)
    trainer = skyrl_trainer(callback)
    assert trainer.dispatch.calls == [
        ("set_algorithm_config", "policy", {"eps_clip_high": 0.28}), *[("set_lr", "policy", 5e-7)] * 3,
    ]  # fmt: skip
    assert trainer.cfg.trainer.algorithm.eps_clip_high == 0.28


@needs("skyrl")
def test_skyrl_offers_no_rate_where_its_schedule_would_overwrite_it(tmp_path):
    from stabilizer.guests import skyrl

    callback = skyrl.callback(runs=tmp_path)
    skyrl_trainer(callback, scheduler="cosine")
    assert "control/lr_scale" not in callback.guest.run._controls.values()
    assert "control/beta" in callback.guest.run._controls.values()


# --- EasyR1 ---------------------------------------------------------------------------------------------------------


@needs_source("EasyR1")
def test_easyr1_builds_our_logger_and_its_kl_weight_and_end_can_be_changed(tmp_path):
    done = in_its_own_process(
        """
        from types import SimpleNamespace
        from stabilizer.guests import easyr1
        easyr1.register()
        from verl.utils.logger import Tracker
        from verl.trainer.core_algos import FixedKLController

        class Trainer:
            actor_rollout_ref_wg, use_reference_policy, training_steps, global_step = object(), True, 9, 0
            kl_ctrl = FixedKLController(0.01)
            config = SimpleNamespace(algorithm=SimpleNamespace(use_kl_loss=False))

            def fit(self):
                settings = {"trainer": {"experiment_name": "mine"}, "algorithm": {"kl_penalty": "low_var_kl"}}
                self.logger = Tracker(loggers=["stabilizer"], config=settings)
                guest = self.logger.loggers[0]._rows.guest
                while self.global_step < self.training_steps:
                    self.global_step += 1
                    if self.global_step == 3:
                        guest.run._controls.set("control/beta", 0.02)
                    if self.global_step == 5:
                        guest.run._host.ended_by = "a test"
                    self.logger.log(data={"reward/overall": 0.5, "reward/format": 1.0}, step=self.global_step)

        trainer = Trainer()
        trainer.fit()
        print(trainer.kl_ctrl.kl_coef, trainer.global_step)
        for logger in trainer.logger.loggers:
            logger.finish()
        """,
        tmp_path, "EasyR1",
    )  # fmt: skip
    assert done.stdout.split()[-2:] == ["0.02", "5"]
    (run,) = tmp_path.iterdir()
    view = RunReader(run).history.view()
    assert view.series("reward/mean").steps.tolist() == [1, 2, 3, 4, 5]
    assert len(view.series("reward/format/mean")) == 5


@needs_source("EasyR1")
def test_easyr1_is_started_in_a_ray_whose_processes_know_the_logger(tmp_path):
    done = in_its_own_process(
        """
        import ray, sys, types
        from stabilizer.guests import easyr1

        @ray.remote
        def loggers():
            from verl.utils.logger.logger import LOGGERS
            return sorted(LOGGERS)

        def main():
            ray.init(num_cpus=1, include_dashboard=False, runtime_env={"env_vars": {"A": "1"}})
            print(ray.get(loggers.remote()))

        sys.modules["verl.trainer.main"] = types.SimpleNamespace(main=main)  # the real one imports engines
        easyr1.main()
        """,
        tmp_path, "EasyR1",
    )  # fmt: skip
    assert "'stabilizer'" in done.stdout


# --- NeMo-RL --------------------------------------------------------------------------------------------------------


@needs_source("NeMo-RL")
def test_nemo_rl_calls_of_a_step_become_one_row_and_its_loss_can_be_changed(tmp_path):
    done = in_its_own_process(
        f"""
        from types import SimpleNamespace
        from nemo_rl.utils.logger import Logger
        from stabilizer.guests import nemo_rl

        off = {{f"{{name}}_enabled": False for name in ("wandb", "swanlab", "tensorboard", "mlflow")}}
        logger = Logger({{"log_dir": {str(tmp_path / "logs")!r}, "monitor_gpus": False, **off}})
        loss = SimpleNamespace(ratio_clip_min=0.2, ratio_clip_max=0.2, reference_policy_kl_penalty=0.01)
        made = nemo_rl.attach(logger, loss, {{"grpo": {{"max_num_steps": 4}}}}, runs={str(tmp_path / "runs")!r})
        for step in range(1, 5):
            if step == 2:
                made.guest.run._controls.set("control/epsilon_high", 0.28)
                made.guest.run._controls.set("control/beta", 0.02)
            logger.log_metrics({{"reward": 0.5, "grad_norm": 1.0}}, step, prefix="train")
            logger.log_metrics({{"accuracy": 0.25}}, step, prefix="validation")
            logger.log_metrics({{"gpu": 9.0}}, step * 100, prefix="ray", step_metric="ray/ray_step")
            logger.log_metrics({{"total_step_time": 2.0}}, step, prefix="timing/train", step_finished=True)
        logger.finish()
        print(loss.ratio_clip_max, loss.reference_policy_kl_penalty)
        """,
        tmp_path, "NeMo-RL",
    )  # fmt: skip
    assert done.stdout.split()[-2:] == ["0.28", "0.02"]
    (run,) = (tmp_path / "runs").iterdir()
    reader = RunReader(run)
    view = reader.history.view()
    assert view.series("reward/mean").steps.tolist() == view.series("accuracy/val").steps.tolist() == [1, 2, 3, 4]
    assert len(reader.ticks) == 4 and "nemo_rl/ray/gpu" not in view.names()


@needs_source("NeMo-RL")
def test_nemo_rl_reads_the_attributes_of_its_loss_at_every_call_and_ships_it_with_every_step():
    """By its source: a real loss needs tensors of a GPU batch."""
    loss = (SOURCES / "NeMo-RL" / "nemo_rl" / "algorithms" / "loss" / "loss_functions.py").read_text()
    body = loss[loss.index("class ClippedPGLossFn") :]
    called = body[body.index("def __call__") :]
    for name in ("ratio_clip_min", "ratio_clip_max", "reference_policy_kl_penalty"):
        assert f"self.{name} = " in body and f"self.{name}" in called, name
    policy = (SOURCES / "NeMo-RL" / "nemo_rl" / "models" / "policy" / "lm_policy.py").read_text()
    assert '"loss_fn": loss_fn' in policy[policy.index("def train(") :]


@pytest.mark.parametrize("package,version", [("verl", "0.9"), ("skyrl", "0.")])
def test_the_release_under_test_is_one_the_pages_name(package, version):
    if find_spec(package) is None:
        pytest.skip(f"needs {package}: {ENVIRONMENT}")
    assert importlib.metadata.version(package).startswith(version)
