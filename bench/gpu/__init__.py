"""Training of a model of 0.5 billion parameters on one GPU: memory, time by part, agreement of sampler and learner, and
the same work in TRL.

The model has the shape of Qwen2.5-0.5B and random weights. It hardly ever writes its end token, one of 151,936, so both
trainers write nearly the same number of tokens. Rewards are random numbers: every completion has a gradient. Each row
is a process of its own: its first step is left out, the others are averaged. TRL generates with `transformers`, as our
built-in sampler does; vLLM is not part of this comparison.
"""

from __future__ import annotations

import contextlib
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from bench.gpu import head
from bench.train.sides import Row, Side

QWEN_05B = {
    "vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4_864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32_768, "rope_theta": 1e6,
    "tie_word_embeddings": True, "initializer_range": 0.04,
}  # fmt: skip
SMALL = QWEN_05B | {"hidden_size": 448, "intermediate_size": 1_216, "num_hidden_layers": 4, "num_attention_heads": 7,
                    "num_key_value_heads": 1}  # fmt: skip
SHAPE = {"prompts": 8, "group_size": 8, "max_completion": 128}
MICRO_BATCH = 16
"""Completions per pass, on both sides."""
STEPS = 3
GB = 1e9


class Case(NamedTuple):
    """One row of the table."""

    name: str
    side: str
    settings: tuple[str, ...] = ()


CASES = (
    Case("GRPO, mixed", "ours", ("precision=mixed",)),
    Case("GRPO, mixed (TRL)", "trl"),
    Case("GRPO, bfloat16", "ours", ("precision=bfloat16",)),
    Case("GRPO, bfloat16, reference", "ours", ("precision=bfloat16", "policy.beta=0.01")),
    Case("GRPO, bfloat16, recomputed activations", "ours", ("precision=bfloat16", "gradient_checkpointing=true")),
    Case("GRPO, bfloat16, LoRA 16", "ours", ("precision=bfloat16", "lora.rank=16")),
    Case("PPO, bfloat16, separate critic", "ours", ("precision=bfloat16", "algorithm=ppo", "policy.minibatches=1")),
)


def measure(*, seed: int = 0, quick: bool = False, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """All rows that the machine can make, as JSON's own types."""
    import torch

    if not torch.cuda.is_available():
        raise ValueError("this machine has no CUDA device that torch can use; on a CPU use: python -m bench train")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "model", SMALL if quick else QWEN_05B, seed)
        shape = SHAPE | ({"max_completion": 64} if quick else {})
        for case in CASES:
            began = perf_counter()
            rows.append({"case": case.name, **_case(case, {**shape, "model": str(model), "seed": seed})})
            tell(f"{' '.join(_printed(rows[-1]).values())}  ({perf_counter() - began:.0f} s with its start)")
        tell("the head: log-probabilities and gradients of one pass")
        tables = head.measure(quick=quick)
    return {"machine": machine(), "shape": {**shape, "micro_batch": MICRO_BATCH}, "rows": rows, "head": tables}


def machine() -> dict[str, Any]:
    """The device and the versions."""
    import torch
    import transformers

    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name, "memory_gb": round(properties.total_memory / GB, 1), "torch": torch.__version__,
        "cuda": torch.version.cuda, "transformers": transformers.__version__, "python": platform.python_version(),
    }  # fmt: skip


def make_model(folder: Path, shape: dict[str, Any], seed: int) -> Path:
    """A Qwen2 with random weights and the built-in tokenizer, which names few of the vocabulary's tokens."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from stabilizer.training.model import build_tokenizer

    torch.manual_seed(seed)
    tokenizer = build_tokenizer()
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(Qwen2Config(bos_token_id=None, eos_token_id=None, pad_token_id=None, **shape))
    model.bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _case(case: Case, base: dict[str, Any]) -> dict[str, Any]:
    """Measurements of one row, or why it has none."""
    job = {
        **base, "task": "sorting", "threads": 4, "lr": 1e-6, "steps": STEPS, "device": "cuda", "reward": "random",
        "micro_batch": MICRO_BATCH, "settings": list(case.settings),
    }  # fmt: skip
    try:
        with _side(case.side) as side:
            about = side.start(job)
            rows = side.steps(STEPS)[1:]
            side.stop()
    except ValueError as error:
        return {"failed": str(error).splitlines()[-1]}
    return {"versions": about["versions"], **_means(rows)}


@contextlib.contextmanager
def _side(name: str) -> Iterator[Side]:
    side = Side(name, Path(sys.executable), 4)
    try:
        yield side
    finally:
        side.close()


def _means(rows: list[Row]) -> Row:
    means = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}
    return means | {"peak_gb": max(row["peak_gb"] for row in rows)}


def tables(result: dict[str, Any]) -> list[tuple[str, list[dict[str, str]]]]:
    """The figures as tables, each with a title."""
    shape = result["shape"]
    about = result["machine"]
    title = (
        f"{about['device']}, torch {about['torch']}: {shape['prompts']} x {shape['group_size']} x"
        f" {shape['max_completion']} tokens, {shape['micro_batch']} completions a pass"
    )
    return [
        (title, [_printed(row) for row in result["rows"]]),
        ("the last layer, forward and backward", [
            {"way": row["way"], "ms": f"{row['ms']:.1f}", "peak GB": f"{row['peak_gb']:.2f}",
             "mean error, nats": f"{row['error_mean']:.1e}", "largest": f"{row['error_max']:.1e}"}
            for row in result["head"]
        ]),
    ]  # fmt: skip


def _printed(row: dict[str, Any]) -> dict[str, str]:
    if "failed" in row:
        return {"case": row["case"], "step s": row["failed"]}
    mismatch = f"{row['mismatch_kl']:.1e}" if "mismatch_kl" in row else "-"
    return {
        "case": row["case"], "step s": f"{row['step_s']:.2f}", "generate s": f"{row['rollout_s']:.2f}",
        "update s": f"{row['update_s']:.2f}", "peak GB": f"{row['peak_gb']:.1f}", "tokens": f"{row['tokens']:,.0f}",
        "mismatch, nats/token": mismatch,
    }  # fmt: skip


def statements(result: dict[str, Any]) -> list[str]:
    """What the figures say about targets."""
    by_name = {row["case"]: row for row in result["rows"] if "failed" not in row}
    ours, trl = by_name.get("GRPO, mixed"), by_name.get("GRPO, mixed (TRL)")
    if not ours or not trl:
        return ["TRL is not installed beside this Python, or failed: there is nothing to compare with"]
    step, update, peak = (trl[name] / ours[name] for name in ("step_s", "update_s", "peak_gb"))
    return [
        f"TRL / ours: {step:.2f} in the time of a step, {update:.2f} in that of its update, {peak:.2f} in peak memory"
    ]
