"""A case inside TRL: its GRPOTrainer on a built-in task with `attach`, run by the Python of an environment with TRL.

    python bench/cases/trl_side.py JOB.json

The job names the task, the model folder, the seed, GRPOConfig's settings and the folder for what comes out: the run of
`attach`, and TRL's own `trainer_state.json`. Answers, losses, updates and logs are TRL's, and so is generation unless
the settings ask for vLLM.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from stabilizer import attach
from stabilizer.training.tasks import TASKS

SETTINGS = {
    "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no", "disable_tqdm": True,
    "logging_steps": 1, "lr_scheduler_type": "constant", "shuffle_dataset": False, "remove_unused_columns": False,
    "top_k": 0,
}  # fmt: skip
"""What every job has in common; a job's own settings come after."""


class SpreadOnly(trl.GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose updates leave out the answers of groups without any spread, as dynamic sampling does."""

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        made = super()._generate_and_score_completions(inputs)
        advantages = made["advantages"]
        taught = advantages.abs() > 0
        if not taught.any() or taught.all():
            return dict(made)
        rows = len(advantages)
        kept = {
            key: value[taught] if isinstance(value, torch.Tensor) and value.dim() and len(value) == rows else value
            for key, value in made.items()
        }
        kept["num_items_in_batch"] = kept["completion_mask"].sum()
        return kept


def main(path: str) -> None:
    """Train the job and write what came of it beside it."""
    job = json.loads(Path(path).read_text())
    out = Path(path).parent
    torch.set_num_threads(1)
    transformers.set_seed(job["seed"])
    task = TASKS[job["task"]]
    reads = AutoTokenizer.from_pretrained(job["model"], padding_side="left")
    settings = SETTINGS | job["settings"]
    prompts = settings["per_device_train_batch_size"] // settings["num_generations"]
    problems = task.training(settings["max_steps"] * prompts, seed=job["seed"], salt=0, cursor=0)
    data = Dataset.from_dict({"prompt": [p.prompt for p in problems], "index": [p.index for p in problems]})

    def score(completion_ids: list[list[int]], index: list[int], **others: Any) -> list[float]:
        kept = [ids[:-1] if ids and ids[-1] == reads.eos_token_id else ids for ids in completion_ids]
        texts = reads.batch_decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return [task.score(task.problem(i), text).reward for i, text in zip(index, texts, strict=True)]

    score.__name__ = job["task"]
    kind = SpreadOnly if job.get("spread_only") else trl.GRPOTrainer
    trainer = kind(
        model=AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32), processing_class=reads,
        reward_funcs=score, train_dataset=data, args=trl.GRPOConfig(output_dir=str(out), seed=job["seed"], **settings),
    )  # fmt: skip
    run = attach(trainer, runs=out / "runs", name="run")
    began = process_time()
    trainer.train()
    trainer.save_state()
    versions = {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    (out / "done.json").write_text(
        json.dumps({"run": str(run.path) if run else "", "cpu_s": process_time() - began, "versions": versions})
    )


if __name__ == "__main__":
    main(sys.argv[1])
