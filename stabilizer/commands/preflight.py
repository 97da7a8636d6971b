"""`stabilizer preflight CONFIG`: problems of a configuration, before the first step.

Exit codes are those of `diagnose`: 0 for a verdict below `--fail-on`, 1 at or above it, 2 when the configuration can't
be read. `--fix` writes a corrected copy; the verdict is still that of CONFIG.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
from pathlib import Path
from typing import Any

from stabilizer.commands.sources import add_fail_on_argument
from stabilizer.configs.config import ConfigError
from stabilizer.core.severity import reached
from stabilizer.output.preflight_terminal import show
from stabilizer.output.screen import console
from stabilizer.preflight.check import Options, Preflight, as_json, finding_json, preflight
from stabilizer.preflight.fix import Fixed, corrected, default_target, write
from stabilizer.preflight.rules import RULES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument(
        "config",
        type=Path,
        nargs="?",
        metavar="CONFIG",
        help="a YAML, JSON, TOML or shell file, or a Python script with GRPOConfig(...); it is read, never run",
    )
    parser.add_argument("--trainer", metavar="NAME", help="the trainer, if it is not recognised")
    parser.add_argument("--version", dest="trainer_version", metavar="V", help="the trainer's version, e.g. 0.18.0")
    parser.add_argument("--processes", type=_count, metavar="N", help="training processes")
    parser.add_argument("--gpus", type=_count, metavar="N", help="GPUs, including those of a vLLM server")
    parser.add_argument("--model-size", type=_billions, metavar="SIZE", help="number of parameters, e.g. 7B or 500M")
    parser.add_argument(
        "--prompts", type=_count, metavar="N", help="prompts in the data set; they determine the length of the run"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting that is not in CONFIG, e.g. one given on the command line; may be repeated",
    )
    parser.add_argument(
        "--fix",
        nargs="?",
        const="",
        metavar="OUT",
        help="write a corrected copy to OUT (default: CONFIG with .fixed before its suffix)",
    )
    parser.add_argument(
        "--rewards",
        action="append",
        default=[],
        metavar="FILE.py[:FUNCTION]",
        help="attack a reward function, or all of a file, in a process of its own, instead of checking CONFIG; may be"
        " repeated",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="the data set (JSON lines, JSON, CSV, Parquet): which prompts and answers are above the caps; with"
        " --rewards the questions and answers to attack with",
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help="with --data: a model's folder or tokenizer.json, to count tokens",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="print how much memory a training of this project's own trainer needs, instead of checking CONFIG",
    )
    parser.add_argument(
        "--prompt-length", type=_count, default=512, metavar="N", help="with --memory: tokens of a prompt (default 512)"
    )
    parser.add_argument("--only", metavar="RULE", help="with --fix: apply only the fixes of this rule")
    add_fail_on_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Check, correct if asked, print."""
    if args.rewards:
        from stabilizer.commands import reward_check

        return reward_check.run(args.rewards, args.data, as_json=args.json, fail_on=args.fail_on)
    if args.tokenizer and not args.data:
        raise ConfigError("--tokenizer: counts the tokens of a data set; give it with --data FILE")
    if args.config is None:
        raise ConfigError("no configuration given: stabilizer preflight CONFIG, or --rewards FILE.py:FUNCTION")
    if args.memory:
        from stabilizer.commands import memory_check

        return memory_check.run(
            str(args.config),
            args.set,
            prompt_length=args.prompt_length,
            processes=args.processes or 1,
            as_json=args.json,
        )
    options = Options(
        trainer=args.trainer,
        version=args.trainer_version,
        processes=args.processes,
        gpus=args.gpus,
        model_size=args.model_size,
        prompts=args.prompts,
        overrides=tuple(args.set),
        data=args.data,
        tokenizer=args.tokenizer,
    )
    _check_only(args)
    result = preflight(args.config, options)
    fixed, target = None, None
    if args.fix is not None:
        fixed = corrected(result, options, args.only)
        target = Path(args.fix) if args.fix else default_target(args.config)
        if fixed.applied:
            write(target, fixed.text, args.config)
    answer = as_json(result) | _fixed_json(fixed, target) if args.json else None
    print_result(result, answer, fixed, target)
    return int(reached(result.verdict, args.fail_on))


def print_result(
    result: Preflight, answer: dict[str, Any] | None, fixed: Fixed | None = None, target: Path | None = None
) -> None:
    """Print the page, or the JSON if there is one."""
    if answer is not None:
        print(json.dumps(answer, indent=2, allow_nan=False))
    else:
        show(result, console(), fixed, target)


def _check_only(args: argparse.Namespace) -> None:
    if args.only is None:
        return
    if args.fix is None:
        raise ConfigError(f"--only {args.only}: requires --fix")
    ids = [rule.ID for rule in RULES]
    if args.only not in ids:
        near = difflib.get_close_matches(args.only, ids, 1, 0.3)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"--only {args.only}: unknown rule; {hint}The rules are {', '.join(ids)}")


def _fixed_json(fixed: Fixed | None, target: Path | None) -> dict[str, Any]:
    if fixed is None:
        return {}
    changes = [finding_json(finding) for finding in fixed.applied]
    done = {
        "written": str(target) if fixed.applied else None,
        "applied": changes,
        "left": [finding_json(finding) | {"not_applied": fixed.why_left(finding)} for finding in fixed.left],
        "verdict_after": fixed.after.verdict,
    }
    return {"fix": done}


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 10**12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of 1 or more")
    return value


def _billions(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bmk]?)", text.strip().lower())
    if not match or float(match.group(1)) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write it as 7B, 1.5B or 500M")
    return float(match.group(1)) * {"b": 1.0, "": 1.0, "m": 1e-3, "k": 1e-6}[match.group(2)]
