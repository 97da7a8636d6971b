"""What a failure in a log means: its kind, what happened in plain words, and what to do next.

Trainers report failures in many ways; here they are sorted into a few kinds. Readers ask for the kind when they meet an
exception. The detectors `system/crashed` and `system/config-error` ask for the meaning at the end of a log.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NO_ENTRY = "no known trouble has this message"
"""What is said of an exception that the catalogue does not know."""
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
        r"SIGKILL|SIGSEGV|(?<!closing signal )SIGTERM|Segmentation fault|unhandled cuda error|NCCL error"
    ),
}
"""Patterns of each kind in the message of a failure, tried in this order. Any other exception is a `traceback`."""


def kind_of(text: str) -> str:
    """The kind of failure that a message reports."""
    return next((kind for kind, sign in KINDS.items() if sign.search(text)), "traceback")


class Meaning(NamedTuple):
    """A failure in plain words. `cause` is the id of a cause in the diagnosis."""

    sign: re.Pattern[str]
    cause: str
    what: str
    todo: str
    """What to do next."""
    gpu_memory: bool = False
    """Whether a GPU's memory is short, for which each trainer has its own keys."""
    reported: bool = False
    """Whether the message reports what happened to a process, whose reason stands elsewhere."""


MEANINGS = (
    Meaning(
        re.compile(r"oom-kill|node running low on memory|Detected \d+ oom|(?<!CUDA )Out Of Memory(?!Error)"),
        "out-of-memory",
        "the machine ran out of main memory and a process was killed for it",
        "give the job more memory, or use less: fewer data-loader and reward workers, no offloading of weights or"
        " optimizer to the CPU. `dmesg -T | grep -i oom` on that machine names the process that had most",
    ),
    Meaning(
        KINDS["oom"],
        "out-of-memory",
        "a GPU ran out of memory",
        "run fewer completions through the model at once (the trainer's micro-batch key, which changes memory and speed"
        " alone), switch gradient checkpointing on, or shorten the longest completion",
        gpu_memory=True,
    ),
    Meaning(
        re.compile(r"collective operation timeout|NCCL error|unhandled cuda error"),
        "infrastructure",
        "the GPUs lost one another: a collective operation waited for a process that never came",
        "look for the process that failed first, further up in this log or in another rank's: its exception is the"
        " cause. If none failed, one was only slow (a long answer, a slow reward): raise the time limit"
        " (ddp_timeout in transformers, actor_rollout_ref.nccl_timeout in veRL). If it was the network,"
        " NCCL_DEBUG=INFO says which link. Then continue from the newest checkpoint",
        reported=True,
    ),
    Meaning(
        re.compile(r"SIGSEGV|Segmentation fault"),
        "infrastructure",
        "a process crashed inside compiled code (segmentation fault)",
        "run once more from the newest checkpoint with PYTHONFAULTHANDLER=1, which prints where it was; twice in"
        " the same place points to a version of CUDA, torch or vLLM that does not fit the driver",
        reported=True,
    ),
    Meaning(
        KINDS["worker-death"],
        "infrastructure",
        "a worker process was killed or died",
        "look at why on its machine: `dmesg -T | grep -i kill` (out of memory), the scheduler's record"
        " (preempted, time limit), the worker's own log (Ray: /tmp/ray/session_latest/logs). Then continue from the"
        " newest checkpoint",
        reported=True,
    ),
    Meaning(
        re.compile(r"No space left on device|disk full|Disk quota exceeded"),
        "infrastructure",
        "the disk is full",
        "free space where checkpoints go, keep fewer of them (save_total_limit in TRL,"
        " trainer.max_actor_ckpt_to_keep in veRL), and continue from one that is whole: the newest may be cut off",
    ),
    Meaning(
        re.compile(""),
        "program-error",
        NO_ENTRY,
        "the line above names the exception and where it was raised; fix that, then continue from the newest"
        " checkpoint",
    ),
)
"""Tried in this order; the last matches everything."""


def meaning(text: str) -> Meaning:
    """The meaning of a failure's message."""
    return next(known for known in MEANINGS if known.sign.search(text))


_VERBS = (
    "add|change|check|choose|configure|decrease|define|disable|downgrade|enable|ensure|give|increase|install|lower|"
    "make sure|pass|pip install|provide|raise|reduce|remove|run|set|specify|switch|update|upgrade|use"
)
_ASKED = re.compile(
    rf"(?:^|[.:;,!?()`] ?|\b(?:please|must|should|to|try|and|can) )"
    rf"((?:(?:{_VERBS})\b|(?:try|consider) \w{{2,20}}ing\b) ?[^\n]{{4,200}}?)"
    r"(?=\.(?:\s|$)|;|\)?$| and (?:is|are|was|will) |, (?:or|but|which|because) )",
    re.I,
)
"""A sentence of a message that says what to do. It begins with a verb and ends with the sentence."""
_SOUGHT = re.compile(
    r"(?:^|[:,] )([^\s:,][^:,\n]{1,80}?) (?:(?:was|were|is|are|could|can) )?not (?:be )?(?:found|installed|available)\b"
)
"""What a message says it did not find."""


def asked(text: str) -> str:
    """What the message itself asks for; "" where it only says what went wrong."""
    said = text.partition(": ")[2] or text
    if match := _ASKED.search(said):
        return match[1].strip()
    if match := _SOUGHT.search(said):
        return f"install or correct what it looked for: {match[1].strip()}"
    return ""
