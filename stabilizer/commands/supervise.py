"""`stabilizer supervise -- CMD ...`: run a training command, and restart it after a crash, a located hang or a plan."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from stabilizer.cli import UsageError
from stabilizer.live.announced import ATTEMPT
from stabilizer.live.supervise import GRACE_S, HUNG, Plan, Supervisor

EPILOG = f"""\
Examples:
  stabilizer supervise -- stabilizer train addition
  stabilizer supervise --restarts 5 --hang 900 -- accelerate launch train.py

A run of `stabilizer train` is resumed from its newest checkpoint. Another script resumes by itself, e.g. with TRL
  trainer.train(resume_from_checkpoint=transformers.trainer_utils.get_last_checkpoint(args.output_dir))
The environment variable {ATTEMPT} is 1 at first and higher after a restart.

A change that `attach` cannot make in a running training, such as the group size, is a restart plan: the training saves
its state and ends, and the next attempt has the changed argument in its command (--num_generations 16) and in
`stabilizer.changed_arguments()`, for a script: GRPOConfig(**settings | stabilizer.changed_arguments()).

Not restarted: configuration and import errors, the same failure at the same step twice, and what SIGTERM or Ctrl-C
ended. Signals are forwarded; one that comes again after {GRACE_S:g} seconds ends the command and all it started. The
exit code is that of the command, {HUNG} for a hang that is not restarted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("--restarts", type=int, default=3, metavar="N", help="most restarts (default: %(default)s)")
    parser.add_argument(
        "--hang", type=float, metavar="SECONDS",
        help="a phase that takes longer is a hang; 0 never restarts one. Default: a located hang that lasts twice the"
        " limit of its phase, which comes from the phase's own history (`stabilizer detectors system/stalled`)",
    )  # fmt: skip
    parser.add_argument(
        "--pause", type=float, default=5.0, metavar="SECONDS",
        help="pause before the first restart, doubled for each further one (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument("command", nargs="+", metavar="-- CMD", help="the training command, after --")


def run(args: argparse.Namespace) -> int:
    """Run the command to its end."""
    for name, value in (("--restarts", args.restarts), ("--hang", args.hang or 0), ("--pause", args.pause)):
        if not value >= 0:
            raise UsageError(f"{name} {value}: must be 0 or more")
    plan = Plan(args.command, args.restarts, args.hang, args.pause)

    def say(text: str, data: Mapping[str, Any]) -> None:
        if args.json:
            print(json.dumps({"kind": "supervise", "text": text, **data}, default=str), flush=True)
        else:
            print(f"stabilizer supervise: {text}", file=sys.stderr, flush=True)

    return Supervisor(plan, say, stdout=sys.stderr if args.json else None).run()
