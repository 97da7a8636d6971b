"""A plan as that trainer's users write it: a recipe, Hydra overrides, flags or TOML, and how to launch it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from stabilizer.core.settings import nested
from stabilizer.preflight.planner import Plan, Wanted


def paste(asked: Wanted, plan: Plan) -> str:
    """The plan's configuration with a first line that says what it is."""
    each, times = "s" * (plan.prompts > 1), "s" * (plan.updates > 1)
    comment = (
        f"# {plan.prompts} prompt{each} x {plan.group} = {plan.completions} completions per update, {plan.updates} "
        f"update{times} per rollout; about {plan.memory.total:.0f} GiB per GPU (estimate)"
    )
    return "\n".join([comment, *_FORMS[asked.planned.form](asked, plan)])


def _launch(asked: Wanted, plan: Plan) -> list[str]:
    """How TRL is started so that the processes are the planned ones."""
    count = plan.processes
    accelerate = asked.planned.accelerate_folder + _ACCELERATE[asked.sharding]
    launch = (
        f"accelerate launch --config_file {accelerate} --num_processes {count} {asked.planned.entry} --config THIS.yaml"
    )
    if asked.vllm != "server":
        return [f"# {launch}"]
    if asked.release < SERVER_SINCE:
        return [f"# {launch}", f"# all {asked.gpus} GPUs visible: vLLM takes cuda:{count} by itself"]
    size = f" --tensor_parallel_size {plan.vllm_gpus}" if plan.vllm_gpus > 1 else ""
    if count + plan.vllm_gpus > 8:
        return [
            f"# on GPUs of its own ({plan.vllm_gpus}): trl vllm-serve --model YOUR_MODEL{size}",
            f"# on the other {count}: {launch} --vllm_server_host THAT_MACHINE",
        ]
    served = ",".join(map(str, range(count, count + plan.vllm_gpus)))
    trained = ",".join(map(str, range(count)))
    return [
        f"# CUDA_VISIBLE_DEVICES={served} trl vllm-serve --model YOUR_MODEL{size}",
        f"# CUDA_VISIBLE_DEVICES={trained} {launch}",
    ]


SERVER_SINCE = (0, 16, 0)
"""First version of TRL whose vLLM runs as a server of its own."""
_ACCELERATE = {"zero3": "zero3.yaml", "zero2": "zero2.yaml", "none": "ddp.yaml"}


def _plain(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _scalar(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, str)) else str(value)


def _recipe(asked: Wanted, plan: Plan) -> list[str]:
    return [*(f"{key}: {_plain(value)}" for key, value in plan.config.items()), "", *_launch(asked, plan)]


def _hydra(asked: Wanted, plan: Plan) -> list[str]:
    words = [f"{key}={_plain(value)}" for key, value in plan.config.items()]
    return [" \\\n  ".join([asked.planned.entry, *words])]


def _flags(asked: Wanted, plan: Plan) -> list[str]:
    words = [f"--{key}" if value is True else f"--{key} {_plain(value)}" for key, value in plan.config.items()]
    return [" \\\n  ".join([asked.planned.entry, *words])]


def _nested_yaml(asked: Wanted, plan: Plan) -> list[str]:
    def lines(node: Mapping[str, Any], depth: int) -> list[str]:
        made = []
        for key, value in node.items():
            below = isinstance(value, dict)
            made.append("  " * depth + (f"{key}:" if below else f"{key}: {_plain(value)}"))
            made += lines(value, depth + 1) if below else []
        return made

    return lines(nested(plan.config), 0)


def _toml(asked: Wanted, plan: Plan) -> list[str]:
    tree = nested(plan.config)
    made = [f"{key} = {_scalar(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for section, node in tree.items():
        if isinstance(node, dict):
            made += ["", f"[{section}]", *(f"{key} = {_scalar(value)}" for key, value in node.items())]
    return made


_FORMS: dict[str, Callable[[Wanted, Plan], list[str]]] = {
    "recipe": _recipe,
    "hydra": _hydra,
    "flags": _flags,
    "yaml": _nested_yaml,
    "toml": _toml,
}
