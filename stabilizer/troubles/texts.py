"""What a text is that holds no metrics, no error and no settings, and what to paste with it."""

from __future__ import annotations

from stabilizer.troubles.arithmetic import whole
from stabilizer.troubles.trouble import Trouble, Values

LINE = "a line of the text: ..."
"""The sentence that is looked up for such a text, before a part of one of its lines."""
IDLE = 5
"""Percent up to which a GPU computes nothing."""


def _gpu(values: Values) -> dict[str, object]:
    held = f"{whole(values['used']):,} of {whole(values['total']):,} MiB"
    if whole(values["busy"]) > IDLE:
        return {
            "held": held,
            "why": "it computes. On all GPUs at 100 % without progress it is a collective in which one rank is missing",
        }
    return {"held": held, "why": "it waits for something else: a reward function, data, a server, or another process; or a job that ended left it"}  # fmt: skip


def _text(what: str, signs: tuple[str, ...], cause: str, fix: str, line: str, **more: object) -> Trouble:
    """A kind of text, known by one of these signs in a line."""
    return Trouble(
        id=f"text/{what}", shows=tuple(f"{LINE}{sign}" for sign in signs), cause=cause, fix=fix, severity="info",
        certainty="possible", source="the text itself", example=LINE.replace("...", "") + line, **more,  # type: ignore[arg-type]
    )  # fmt: skip


_STACKS = "py-spy dump --pid PID of every rank side by side: the one that stands elsewhere has the cause"

TROUBLES = (
    _text(
        "gpu", ("{used}MiB /{blank:t}{total}MiB |{between:t}{busy}%",),
        "a GPU holds {held} and was at {busy} % when this was printed: {why}",
        f"paste the last lines of the training's log; {_STACKS}. A job that ended: kill the processes that nvidia-smi lists",
        "| 30%   41C    P8             18W /  230W |   18528MiB /  24564MiB |      0%      Default |", work=_gpu,
    ),
    _text(
        "weight-group", ("init_process_group: master_address={host:w} master_port={port} ... world_size={n}, group_name={name:w}",
                         "init_process_group: master_address={host:w}, master_port={port}, ... world_size={n}, group_name={name:w}"),
        "an engine joins the group {name} of {n} processes, over which the trainer sends its weights, and nothing after it shows that the group formed",
        "count these lines: each engine process prints one, and the trainer is rank 0. If all are there, the releases differ: install the vLLM "
        "that the trainer's requirements name; then NCCL_SOCKET_IFNAME and an open port {port} between nodes, NCCL_CUMEM_ENABLE=0 on both sides",
        "init_process_group: master_address=10.0.0.3, master_port=44871,  rank=1, world_size=3, group_name=openrlhf",
    ),
    _text(
        "stack-collective", ("(torch/distributed/", "(torch\\distributed\\"),
        "this rank stands in a collective operation (torch.distributed) and waits for a rank that has not come",
        _STACKS, "    all_gather (torch/distributed/distributed_c10d.py:3346)",
    ),
    _text(
        "stack-request", ("(requests/", "(urllib3/", "(httpx/", "(aiohttp/", "(openai/", "(http/client.py"),
        "this process waits for the answer of a server",
        "look into that server's log (vLLM, SGLang, a judge): is it up, loading, or full? Give each request a time limit",
        "    read (http/client.py:1052)",
    ),
    _text(
        "stack", ('(idle): "MainThread"', '(active): "MainThread"', '(active+gil): "MainThread"'),
        "a stack of one process: the topmost frame is what it does now", _STACKS, 'Thread 88123 (idle): "MainThread"',
    ),
    _text(
        "packages", ("Package ...Version$", "torch=={version:w}", "transformers=={version:w}", "TRL version: {version:w}", "Transformers version: {version:w}"),
        "a list of packages: by itself it is no trouble",
        "paste the error or the settings with it: both are then judged by these releases. `stabilizer doctor` looks at an installation",
        "transformers==4.57.1",
    ),
    _text(
        "processes", ("PID ...COMMAND", "USER ...PID ", "Active Memory Usage"),
        "a list of processes: it shows what runs and what memory it takes, not why",
        f"paste the last lines of the training's log; {_STACKS}", "    PID USER      PR  NI    VIRT    RES COMMAND",
    ),
    _text(
        "change", ("diff --git ", "^+++ "), "a change of a program or of its settings",
        "paste the settings as they are after it, with the command that starts the training, or a log of before and one of after "
        "(`stabilizer compare BEFORE AFTER`)", "diff --git a/train.py b/train.py",
    ),
    _text(
        "answers", ("Completion: ", "<think>", "<answer>", "Response: "), "answers of a model, without metrics of the training",
        "`stabilizer preflight --rewards FILE.py:FUNCTION` tries the reward function on right, wrong, empty and cut answers; paste rows of metrics too",
        "Completion: <think> 2 + 2 </think>",
    ),
    _text(
        "link", ("https://", "http://"), "a link: nothing is fetched",
        "download the run and give its file or folder (`stabilizer diagnose PATH`); of W&B the export as CSV or the folder wandb/run-*",
        "https://wandb.ai/me/grpo/runs/abc123",
    ),
    _text(
        "words", ("{words:t}$",), "the text holds no metrics with names, no error message and no settings of a known trainer",
        "paste what was printed: rows of metrics with their names (above numbers a line of names, as step,reward,kl,loss), the traceback or warning, the "
        "last lines before it stood still, and the command or the settings that started the training", "what can I do?", general=True,
    ),
)  # fmt: skip
