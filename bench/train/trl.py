"""TRL's side of `bench train`: its GRPOTrainer with the same model, prompts, rewards and settings, run by the Python of
an environment that holds TRL and not this project's dependencies.

TRL's trainer runs its own loop, so a callback stops it between two steps until more are asked for. Steps are timed from
the end of one to the end of the next, the wait left out. `_generate` and `_calculate_rewards` are timed from outside.
"""

from __future__ import annotations

import platform
import random
import tempfile
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from bench.train.line import Line, peak_memory, serve
from bench.train.sides import BEFORE
from stabilizer.training.tasks import TASKS


class OnRequest(TrainerCallback):
    """Lets the trainer make as many steps as the benchmark asks for, and reports them."""

    def __init__(self, line: Line, measured: dict[str, float]):
        self._line, self._measured = line, measured
        self._rows: list[dict[str, float]] = []
        self._left = 0
        self._began = self._cpu = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Wait for the first request."""
        self._next(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Note the step; answer, and wait, when it was the last one asked for."""
        m, step_s = self._measured, perf_counter() - self._began
        self._rows.append(
            {
                **m,
                **peak_memory(),
                "step_s": step_s,
                "cpu_s": process_time() - self._cpu,
                "update_s": step_s - m["rollout_s"] - m["scoring_s"],
            }
        )
        m.update(rollout_s=0.0, scoring_s=0.0)
        self._left -= 1
        if self._left == 0:
            self._line.answer(self._rows)
            self._next(control)
        else:
            self._began, self._cpu = perf_counter(), process_time()

    def _next(self, control: Any) -> None:
        self._rows, self._left = [], (self._line.ask() or {}).get("steps", 0)
        if not self._left:
            control.should_training_stop = True
        self._began, self._cpu = perf_counter(), process_time()


def settings(job: dict[str, Any], folder: str) -> trl.GRPOConfig:
    """The job as TRL's configuration, with everything switched off that this project's side does not do either."""
    rows = job["prompts"] * job["group_size"]
    micro, cuda = job.get("micro_batch") or rows, job.get("device") == "cuda"
    return trl.GRPOConfig(
        output_dir=folder, max_steps=job["steps"], seed=job["seed"], use_cpu=not cuda, bf16=cuda,
        per_device_train_batch_size=micro, gradient_accumulation_steps=rows // micro, num_iterations=1,
        steps_per_generation=rows // micro,
        num_generations=job["group_size"], max_completion_length=job["max_completion"],
        temperature=1.0, top_p=1.0, top_k=0, beta=0.0, loss_type="bnpo", scale_rewards="group",
        epsilon=0.2, epsilon_high=0.28, learning_rate=job["lr"], lr_scheduler_type="constant", warmup_steps=0,
        optim="adamw_torch_fused", adam_beta1=0.9, adam_beta2=0.99, weight_decay=0.0, max_grad_norm=1.0,
        gradient_checkpointing=False, shuffle_dataset=False, save_strategy="no", report_to="none",
        logging_steps=1, disable_tqdm=True, log_completions=False, remove_unused_columns=False,
    )  # fmt: skip


def run(job: dict[str, Any], line: Line) -> None:
    """Make steps as they are asked for, until told to stop."""
    torch.set_num_threads(job["threads"])
    task = TASKS[job["task"]]
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(job["model"], padding_side="left")
    problems = task.training(job["steps"] * job["prompts"], seed=job["seed"], salt=0, cursor=0)
    before = BEFORE * job.get("before", 0)
    data = Dataset.from_dict({"prompt": [before + p.prompt for p in problems], "index": [p.index for p in problems]})
    measured = {"rollout_s": 0.0, "scoring_s": 0.0, "tokens": 0, "reward": 0.0}

    def reward(completion_ids: list[list[int]], index: list[int], **others: Any) -> list[float]:
        kept = [ids[:-1] if ids and ids[-1] == tokenizer.eos_token_id else ids for ids in completion_ids]
        texts = tokenizer.batch_decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if job.get("reward") == "random":
            measured.update(tokens=sum(map(len, completion_ids)))
            return [random.random() for _ in completion_ids]  # noqa: S311
        rewards = [task.score(task.problem(i), text).reward for i, text in zip(index, texts, strict=True)]
        measured.update(tokens=sum(map(len, completion_ids)), reward=sum(rewards) / len(rewards))
        return rewards

    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.GRPOTrainer(
            model=model, processing_class=tokenizer, reward_funcs=reward, train_dataset=data, args=settings(job, folder)
        )
        trainer._generate = _timed(trainer._generate, measured, "rollout_s")
        trainer._calculate_rewards = _timed(trainer._calculate_rewards, measured, "scoring_s")
        trainer.add_callback(OnRequest(line, measured))
        line.answer({"versions": versions(), "parameters": sum(p.numel() for p in model.parameters())})
        trainer.train()


def _timed(function: Callable[..., Any], measured: dict[str, float], name: str) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        began = perf_counter()
        result = function(*args, **named)
        measured[name] += perf_counter() - began
        return result

    return call


def versions() -> dict[str, str]:
    """What this side runs on."""
    return {
        "trl": trl.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    serve(run)
