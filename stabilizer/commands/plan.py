"""`stabilizer plan`: the valid batch settings for a number of GPUs, nearest to the wanted ones first."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stabilizer.cli import UsageError
from stabilizer.output.screen import console
from stabilizer.preflight import planner
from stabilizer.preflight.memory import SHARDINGS
from stabilizer.preflight.paste import paste
from stabilizer.preflight.planner import Plan, Wanted

_SIZES = ("group", "prompts", "memory", "prompt_length", "completion_length", "processes", "per_device", "accumulation")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.epilog = (
        "Plans come as near as possible to the group size and the prompts per update. --processes, --per-device, "
        "--accumulation and --vllm are kept exactly. Exit code 1: no valid plan fits."
    )
    add = parser.add_argument
    add("--trainer", required=True, metavar="NAME", help=", ".join(planner.TRAINERS))
    add("--gpus", required=True, type=int, metavar="N", help="number of GPUs, including those for vLLM")
    add("--version", metavar="V", help="version of the trainer (for open-r1: of its TRL); default: the newest known")
    add("--model-size", default="7B", metavar="S", help="number of parameters, e.g. 7B or 500M (default 7B)")
    add("--num-generations", dest="group", type=int, metavar="G", help="completions per prompt (default 8)")
    add("--prompts-per-update", dest="prompts", type=int, metavar="P", help="prompts per optimizer update (default 32)")
    add("--memory", type=float, metavar="GIB", help="memory of one GPU (default 80)")
    add("--prompt-length", type=int, metavar="L", help="tokens per prompt (default 512)")
    add("--completion-length", type=int, metavar="L", help="tokens per completion (default 1024)")
    add("--vllm", choices=planner.PLACEMENTS, help="where generation runs (default: the trainer's usual place)")
    add(
        "--processes",
        type=int,
        metavar="N",
        help="training processes, for TRL (default: all remaining GPUs, or slightly fewer)",
    )
    add("--per-device", type=int, metavar="B", help="completions per forward pass on one GPU")
    add("--accumulation", type=int, metavar="A", help="forward passes per optimizer update")
    add(
        "--sharding", choices=SHARDINGS, default="zero3", help="sharding assumed by the memory estimate (default zero3)"
    )
    add("--limit", type=int, default=8, metavar="K", help="number of plans to show (default 8)")
    add(
        "--paste",
        type=int,
        default=1,
        metavar="K",
        help="number of the plan whose configuration is printed (default 1)",
    )


def run(args: argparse.Namespace) -> int:
    """Find the plans and show them."""
    if args.limit < 1:
        raise UsageError(f"--limit {args.limit}: must be at least 1")
    asked = planner.wanted(
        args.trainer,
        args.gpus,
        version=args.version,
        model_size=args.model_size,
        vllm=args.vllm,
        sharding=args.sharding,
        **{name: getattr(args, name) for name in _SIZES},
    )
    found = planner.plans(asked)
    if found and not 1 <= args.paste <= len(found):
        raise UsageError(f"--paste {args.paste}: must be from 1 to {len(found)}")
    trouble = _trouble(asked, found)
    if args.json:
        print(json.dumps(_as_json(args, asked, found, trouble), indent=2))
    else:
        _show(args, asked, found, trouble)
    return 0 if found and found[0].fits else 1


def _trouble(asked: Wanted, found: list[Plan]) -> dict[str, str] | None:
    """Why the request can't be met exactly, and the nearest change that would allow it."""
    if not found:
        why, change = planner.impossible(asked)
        return {"why": why, "change": change}
    if not found[0].fits:
        why, change = planner.too_small(asked, found[0])
        return {"why": why, "change": change}
    if refused := planner.exactly(asked):
        return {"why": refused.message, "change": refused.expected}
    return None


def _as_json(args: argparse.Namespace, asked: Wanted, found: list[Plan], trouble: dict[str, str] | None) -> Any:
    def one(plan: Plan) -> dict[str, Any]:
        memory = dataclasses.asdict(plan.memory)
        memory = {name: value if name == "vllm_sleeps" else round(value, 2) for name, value in memory.items()}
        named = {"completions": plan.completions, "memory_gib": memory | {"total": round(plan.memory.total, 2)}}
        return {key: value for key, value in dataclasses.asdict(plan).items() if key != "memory"} | named

    return {
        "schema": 1,
        "asked": dataclasses.asdict(asked),
        "valid": len(found),
        "plans": [one(plan) for plan in found[: args.limit]],
        "trouble": trouble,
        "paste": paste(asked, found[args.paste - 1]) if found else None,
    }


def _show(args: argparse.Namespace, asked: Wanted, found: list[Plan], trouble: dict[str, str] | None) -> None:
    out = console()
    out.print(Text(_title(args, asked, found), "bold"))
    out.print(Padding(Text(_asked(args, asked), "dim"), (0, 0, 0, 2), expand=False))
    if trouble:
        _show_trouble(out, found, trouble)
    if not found:
        return
    out.print()
    out.print(_table(asked, found, args.limit))
    if len(found) > args.limit:
        out.print(Text(f"{len(found):,} valid plans, nearest first; --limit shows more.", "dim"))
    for note in _notes(asked, found[args.paste - 1]):
        out.print(Text(note, "dim"))
    out.print()
    tight = "" if found[args.paste - 1].fits else f" (too large for {asked.memory:g} GiB by this estimate)"
    out.print(Text(f"Plan {args.paste}, ready to paste{tight}", "bold"))
    print(paste(asked, found[args.paste - 1]))


def _show_trouble(out: Console, found: list[Plan], trouble: dict[str, str]) -> None:
    heading, style = "No valid plan", "bold red"
    if found:
        heading, style = ("Not as asked", "yellow") if found[0].fits else ("Nothing fits", "bold red")
    out.print()
    out.print(Text.assemble((f"{heading}: ", style), trouble["why"]))
    out.print(Padding(Text.assemble(("Nearest change: ", "bold"), trouble["change"]), (0, 0, 0, 2), expand=False))


def _title(args: argparse.Namespace, asked: Wanted, found: list[Plan]) -> str:
    version = f"TRL {asked.version}" if asked.trainer == "open-r1" else asked.version
    version = f"source of {version}" if version.startswith("20") else version
    title = f"{asked.trainer} ({version}), {args.model_size} on {asked.gpus} GPU{'s' if asked.gpus > 1 else ''}"
    if found and asked.vllm == "server":
        plan = found[0]
        return (
            f"{title}: the vLLM server takes {plan.vllm_gpus}, which leaves {asked.gpus - plan.vllm_gpus} for training"
        )
    where = {"none": "the trainer generates itself", "colocate": "vLLM shares them", "server": "vLLM on a server"}
    return f"{title}: {where[asked.vllm]}"


def _asked(args: argparse.Namespace, asked: Wanted) -> str:
    sharding = {"zero3": "everything sharded (ZeRO-3, FSDP)", "zero2": "gradients and optimizer sharded (ZeRO-2)"}
    kept = [
        f"--{name.replace('_', '-')} {value}"
        for name in ("processes", "per_device", "accumulation")
        if (value := getattr(asked, name)) is not None
    ]
    group = "" if args.group else " (default)"
    prompts = "" if args.prompts else " (default)"
    return ", ".join(
        [
            f"near: {asked.group} generations{group}, {asked.prompts} prompts per update{prompts}",
            f"{asked.prompt_length} + {asked.completion_length} tokens",
            f"{asked.memory:g} GiB GPUs",
            sharding.get(asked.sharding, "nothing sharded"),
            *kept,
        ]
    )


def _table(asked: Wanted, found: list[Plan], limit: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    headings = ("", "processes", "per\ndevice", "accumu-\nlation", "gene-\nrations", "prompts\nper update")
    for heading in (*headings, "completions\nper update", "updates\nper rollout", "GiB per GPU\n(estimate)", ""):
        table.add_column(heading, header_style="bold", justify="left" if heading == "" else "right")
    for place, plan in enumerate(found[:limit], start=1):
        numbers = (
            plan.processes,
            plan.per_device,
            plan.accumulation,
            plan.group,
            plan.prompts,
            plan.completions,
            plan.updates,
        )
        fits = Text("fits", "green") if plan.fits else Text("too large", "red")
        table.add_row(str(place), *map(str, numbers), f"{plan.memory.total:.0f}", fits)
    return table


def _notes(asked: Wanted, plan: Plan) -> list[str]:
    memory = plan.memory
    state = memory.weights + memory.gradients + memory.optimizer + memory.reference + memory.other
    parts = [f"model state {state:.0f}", f"training pass {memory.activations + memory.logits:.0f}"]
    parts += [f"generation {memory.generation:.0f}"] if memory.generation else []
    parts += (
        [f"vLLM {memory.vllm:.0f}{' (asleep while training)' if memory.vllm_sleeps else ''}"] if memory.vllm else []
    )
    notes = [
        f"GiB per GPU, plan below: {', '.join(parts)}; full fine-tuning with AdamW, 16 bytes a parameter, checkpointed "
        f'activations. "Fits" keeps {1 - planner.MARGIN:.0%} free; the estimate is within 20 %.'
    ]
    if asked.planned.per_process:
        notes.insert(0, "1 is never a valid number of generations: an answer needs others to be compared with.")
    asked_for = asked.prompts * asked.group
    if plan.group == asked.group and asked_for % plan.processes:
        step = plan.processes // math.gcd(plan.processes, plan.group)
        notes.insert(
            0,
            f"{asked.prompts} x {asked.group} = {asked_for} completions can't be divided among {plan.processes} "
            f"processes: the prompts per update must be a multiple of {step}.",
        )
    return notes
