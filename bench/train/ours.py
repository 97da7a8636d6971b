"""This project's side of `bench train`: a whole session, with its logging and every detector, one job after another."""

from __future__ import annotations

import dataclasses
import platform
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
import transformers

from bench.train.line import Line, peak_memory, serve
from bench.train.sides import BEFORE, Row
from stabilizer.core.version import __version__
from stabilizer.live.session import Session
from stabilizer.live.tick import Tick
from stabilizer.training.config import load_config
from stabilizer.training.tasks import Problem, Score, Task

MISMATCH = {"mismatch_kl": "policy/mismatch_kl", "ratio_error": "policy/ratio_first_error"}
"""How far the learner's log-probabilities are from the sampler's, by key of a row."""


def overrides(job: dict[str, Any]) -> list[str]:
    """The job as configuration: one update per batch, no KL, nothing on a schedule; TRL's side says the same to TRL."""
    return [
        f"model={job['model']}", f"threads={job['threads']}", f"seed={job['seed']}", f"steps={job['steps']}",
        f"rollout.prompts={job['prompts']}", f"rollout.group_size={job['group_size']}",
        f"rollout.max_completion={job['max_completion']}", "rollout.temperature=1.0",
        f"optim.lr={job['lr']}", "optim.schedule=constant", "optim.warmup_steps=0", "optim.betas=[0.9, 0.99]",
        "optim.weight_decay=0.0", "optim.max_grad_norm=1.0",
        "policy.beta=0.0", "policy.entropy_coef=0.0", "policy.inner_epochs=1", "policy.minibatches=1",
        "policy.epsilon_low=0.2", "policy.epsilon_high=0.28", f"device={job.get('device', 'cpu')}",
        "validation.every=0", "validation.problems=1", "checkpoint.every=0", "samples.every=0",
        f"fast={job.get('fast', 'auto')}", f"optim.micro_batch={job.get('micro_batch', 0)}", *job.get("settings", ()),
    ]  # fmt: skip


def run(job: dict[str, Any], line: Line) -> None:
    """Make steps as they are asked for, until told to stop."""
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(job["task"], overrides(job))
        session = Session.start(config, Path(folder) / "run", mode="suggest")
        scoring = 0.0
        score_all = session.trainer.task.score_all

        def timed(*args: Any) -> Any:
            nonlocal scoring
            began = perf_counter()
            scores = random_scores(*args) if job.get("reward") == "random" else score_all(*args)
            scoring += perf_counter() - began
            return scores

        session.trainer.task.score_all = timed
        if job.get("before"):
            _lengthen(session.trainer.task, BEFORE * job["before"])
        ticks = session.run()
        model = session.trainer.policy.model
        line.answer({"versions": versions(), "parameters": sum(p.numel() for p in model.parameters())})
        try:
            while steps := (line.ask() or {}).get("steps"):
                rows = []
                for _ in range(steps):
                    scoring, began, cpu = 0.0, perf_counter(), process_time()
                    tick = next(ticks)
                    monitor_s = session.monitor.seconds + tick.metrics["time/metrics_s"]
                    step_s = perf_counter() - began
                    rollout_s = tick.metrics["time/rollout_s"] - scoring
                    rows.append({
                        "step_s": step_s, "cpu_s": process_time() - cpu, "rollout_s": rollout_s, "scoring_s": scoring,
                        "update_s": step_s - rollout_s - scoring, "monitor_s": monitor_s,
                    } | peak_memory() | _said_of(tick, job["prompts"] * job["group_size"]))  # fmt: skip
                line.answer(rows)
        finally:
            ticks.close()
            vars(session.trainer.task).pop("score_all")
            vars(session.trainer.task).pop("encode", None)


def _lengthen(task: Task, before: str) -> None:
    """Put text before every prompt that the policy reads."""
    encode = task.encode
    task.encode = lambda problems, tokenizer: encode(  # type: ignore[method-assign]
        [dataclasses.replace(problem, prompt=before + problem.prompt) for problem in problems], tokenizer
    )


def random_scores(problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
    """A random reward for every completion: every group has a gradient, whatever the model writes."""
    return [Score(random.random(), False, {}) for _ in zip(problems, completions, strict=True)]  # noqa: S311


def _said_of(tick: Tick, completions: int) -> Row:
    """What a step's completions were like."""
    metrics = tick.metrics
    return {
        "tokens": round(metrics["rollout/length_mean"] * completions),
        "reward": metrics["reward/mean"], "idle": metrics["reward/zero_std_frac"],
    } | {key: metrics[name] for key, name in MISMATCH.items() if name in metrics}  # fmt: skip


def versions() -> dict[str, str]:
    """What this side runs on."""
    return {
        "stabilizer": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    serve(run)
