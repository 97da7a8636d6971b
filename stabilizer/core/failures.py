"""What a failure in a log means: its kind, what happened in plain words, and what to do next.

Trainers report failures in many ways; here they are sorted into a few kinds. Readers ask for the kind when they meet an
exception. The detectors `system/crashed` and `system/config-error` ask for the meaning at the end of a log.
"""

from __future__ import annotations

import re
from typing import NamedTuple

KINDS = {
    "oom": re.compile(
        r"OutOfMemoryError|(?:CUDA|HIP|NPU) out of memory|oom-kill|Out Of Memory|due to the node running low on memory",
        re.I,
    ),
    "config-error": re.compile(
        r"must be (?:evenly )?divisible|should be divisible|valid values for the number of generations|"
        r"requires at least 2 generations|can ?not be both configured|Please set at least one of|need `config\.|"
        r"must be >= |must be greater than 1|mutually exclusive|ConfigAttributeError|ConfigKeyError|ValidationError"
    ),
    "worker-death": re.compile(
        r"died unexpectedly|WorkerCrashedError|ActorDiedError|RayActorError|collective operation timeout|"
        r"SIGKILL|SIGSEGV|SIGTERM|Segmentation fault|unhandled cuda error|NCCL error"
    ),
}
"""Patterns of each kind in the message of a failure, tried in this order. Any other exception is a `traceback`."""


def kind_of(text: str) -> str:
    """The kind of failure that a message reports."""
    return next((kind for kind, sign in KINDS.items() if sign.search(text)), "traceback")


class Meaning(NamedTuple):
    """A failure in plain words. `cause` is the id of a cause in the diagnosis; `todo` is the advice by trainer."""

    sign: re.Pattern[str]
    cause: str
    what: str
    todo: dict[str, str]


_MEMORY_KEYS = {
    **dict.fromkeys(
        ("trl", "open-r1", "unsloth"),
        "halve per_device_train_batch_size and double gradient_accumulation_steps (the optimisation stays the same);"
        " with a colocated vLLM also lower vllm_gpu_memory_utilization, or shorten max_completion_length",
    ),
    "ms-swift": "halve --per_device_train_batch_size and double --gradient_accumulation_steps (the optimisation stays"
    " the same); with a colocated vLLM also lower --vllm_gpu_memory_utilization, or shorten --max_completion_length",
    "llama-factory": "halve per_device_train_batch_size and double gradient_accumulation_steps (the optimisation stays"
    " the same), or shorten max_new_tokens",
    "skyrl": "halve trainer.micro_train_batch_size_per_gpu and trainer.micro_forward_batch_size_per_gpu (they change"
    " memory and speed alone), or lower generator.inference_engine.gpu_memory_utilization",
    "nemo_rl": "halve policy.train_micro_batch_size and policy.logprob_batch_size (they change memory and speed alone),"
    " or lower policy.generation.vllm_cfg.gpu_memory_utilization",
    "prime_rl": "lower inference.gpu_memory_utilization if the traceback is vLLM's; in the trainer shorten seq_len,"
    " which is what one pass holds",
    "trl-ppo": "halve per_device_train_batch_size and double gradient_accumulation_steps (the optimisation stays the"
    " same), lower local_rollout_forward_batch_size, or shorten response_length",
    "trl-old-ppo": "halve mini_batch_size and double gradient_accumulation_steps (the optimisation stays the same)",
    "verl": "halve actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu and the two log_prob_micro_batch_size_per_gpu"
    " (with use_dynamic_bsz: ppo_max_token_len_per_gpu); they change memory and speed alone. If the traceback is"
    " vLLM's, lower actor_rollout_ref.rollout.gpu_memory_utilization",
    "search_r1": "halve actor_rollout_ref.actor.ppo_micro_batch_size and the log_prob_micro_batch_size of rollout and"
    " ref (they change memory and speed alone; not ppo_mini_batch_size, which changes the optimisation), or lower"
    " actor_rollout_ref.rollout.gpu_memory_utilization",
    "easyr1": "halve worker.actor.micro_batch_size_per_device_for_update and .._for_experience (they change memory and"
    " speed alone), or lower worker.rollout.gpu_memory_utilization",
    "openrlhf": "halve --train.micro_batch_size and --rollout.micro_batch_size (before April 2026"
    " --micro_train_batch_size, --micro_rollout_batch_size); they change memory and speed alone. If the traceback is"
    " vLLM's, lower --vllm.gpu_memory_utilization",
    "stabilizer": "set optim.micro_batch (rows in one pass; memory and speed alone) or gradient_checkpointing=true, and"
    " go on with --resume",
    "": "run fewer completions through the model at once (the trainer's micro-batch key, which changes memory and speed"
    " alone), switch gradient checkpointing on, or shorten the longest completion",
}

MEANINGS = (
    Meaning(
        re.compile(r"oom-kill|node running low on memory|Detected \d+ oom|(?<!CUDA )Out Of Memory(?!Error)"),
        "out-of-memory",
        "the machine ran out of main memory and a process was killed for it",
        {
            "": "give the job more memory, or use less: fewer data-loader and reward workers, no offloading of"
            " weights or"
            " optimizer to the CPU. `dmesg -T | grep -i oom` on that machine names the process that had most"
        },
    ),
    Meaning(
        KINDS["oom"],
        "out-of-memory",
        "a GPU ran out of memory",
        _MEMORY_KEYS,
    ),
    Meaning(
        re.compile(r"collective operation timeout|NCCL error|unhandled cuda error"),
        "infrastructure",
        "the GPUs lost one another: a collective operation waited for a process that never came",
        {
            "": "look for the process that failed first, further up in this log or in another rank's: its"
            " exception is the"
            " cause. If none failed, one was only slow (a long answer, a slow reward): raise the time limit"
            " (ddp_timeout in transformers, actor_rollout_ref.nccl_timeout in veRL). If it was the network,"
            " NCCL_DEBUG=INFO says which link. Then continue from the newest checkpoint"
        },
    ),
    Meaning(
        re.compile(r"SIGSEGV|Segmentation fault"),
        "infrastructure",
        "a process crashed inside compiled code (segmentation fault)",
        {
            "": "run once more from the newest checkpoint with PYTHONFAULTHANDLER=1, which prints where it was;"
            " twice in"
            " the same place points to a version of CUDA, torch or vLLM that does not fit the driver"
        },
    ),
    Meaning(
        KINDS["worker-death"],
        "infrastructure",
        "a worker process was killed or died",
        {
            "": "look at why on its machine: `dmesg -T | grep -i kill` (out of memory), the scheduler's record"
            " (preempted, time limit), the worker's own log (Ray: /tmp/ray/session_latest/logs). Then continue from"
            " the newest checkpoint"
        },
    ),
    Meaning(
        re.compile(r"No space left on device|disk full|Disk quota exceeded"),
        "infrastructure",
        "the disk is full",
        {
            "": "free space where checkpoints go, keep fewer of them (save_total_limit in TRL,"
            " trainer.max_actor_ckpt_to_keep in veRL), and continue from one that is whole: the newest may be"
            " cut off"
        },
    ),
    Meaning(
        re.compile(""),
        "program-error",
        "the program stopped with an exception",
        {
            "": "the line above names the exception and where it was raised; fix that, then continue from the newest"
            " checkpoint"
        },
    ),
)
"""Tried in this order; the last matches everything."""


def meaning(text: str) -> Meaning:
    """The meaning of a failure's message."""
    return next(known for known in MEANINGS if known.sign.search(text))


def todo(known: Meaning, trainer: str) -> str:
    """What to do next, with the keys of the trainer where they are known."""
    return known.todo.get(trainer) or known.todo[""]
