"""The command `stabilizer`: a list of verbs, and what happens when one of them can't go on.

A verb's module is imported only when that verb is used, so `stabilizer --help` stays quick and nothing post-hoc
ever imports torch. Errors say what, where and what to do next; a traceback is shown only under `--debug`.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import sys
import warnings
from types import ModuleType
from typing import NoReturn

from stabilizer.core.version import __version__

VERBS = {
    "train": "train a model, with detectors, remedies and a dashboard beside it",
    "demo": "train the built-in task in about two minutes and look at it",
    "preflight": "say what will hurt in a trainer's configuration, before the first step",
    "plan": "list every valid batch for a trainer and a number of GPUs, ready to paste",
    "diagnose": "say what went wrong in finished or running runs, when it began and what to change",
    "watch": "follow a live run or a growing log, with the same detectors, in the terminal",
    "report": "write one self-contained page about a run",
    "import": "make a run directory of another trainer's log, for the dashboard",
    "compare": "say how a run differs from a reference, why, and what to change first",
    "dashboard": "look at runs in the browser",
    "runs": "list runs, their state and verdict",
    "fix": "answer the remedies of a running run, or turn its knobs by hand",
    "replay": "train a run again with its interventions, and say whether the numbers agree",
    "webhook": "take signed answers to proposals over the network, for the runs of a folder",
    "export": "write a run's policy as a folder with a model card, or its metrics as CSV",
    "detectors": "list the detectors, or explain one",
    "bench": "measure this installation: cost of monitoring, reading, training, quality of detection",
    "doctor": "check this installation",
}


class UsageError(ValueError):
    """Something the user can mend: shown as one line, exit code 2."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the words on stdout as well, where `--json` is one of them."""

    as_json = False
    chosen: _Parser | None = None
    """The parser of the verb that was called: what it does not know is told in its words."""

    def error(self, message: str) -> NoReturn:
        if self.as_json:
            print(json.dumps({"error": message}))
        super().error(message)

    def unknown(self, word: str) -> NoReturn:
        """Say that there is no such argument, and which one may have been meant."""
        known = [name for action in self._actions for name in action.option_strings]
        near = difflib.get_close_matches(word.partition("=")[0], known, 1) if word.startswith("-") else []
        hint = f"did you mean {near[0]}?" if near else f"`{self.prog} --help` explains what it takes"
        self.error(f"unrecognized argument {word}; {hint}")


def build_parser(verb: str | None = None, *, as_json: bool = False) -> _Parser:
    """The parser; only the chosen verb's module is imported to fill in its arguments."""
    parser = _Parser(
        prog="stabilizer",
        description="Keeps GRPO/PPO training of language models stable: trains, watches, explains and repairs runs.",
        epilog="`stabilizer VERB --help` explains a verb. Start with `stabilizer demo` or `stabilizer diagnose PATH`.",
    )
    parser.as_json = as_json
    parser.add_argument("--version", action="version", version=f"stabilizer {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, line in VERBS.items():
        sub = verbs.add_parser(name, help=line, description=line[0].upper() + line[1:] + ".")
        sub.as_json = as_json
        if name == verb:
            _module(name).add_arguments(sub)
            parser.chosen = sub
        sub.add_argument("--json", action="store_true", help="print JSON on stdout and nothing else")
        sub.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a verb; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    if not words:
        build_parser().print_help()
        return 2
    args = _parse(words)
    if argv is None and not args.debug:  # numbers too large to compute with are reported as findings instead
        warnings.filterwarnings("ignore", category=RuntimeWarning)
    try:
        return int(_module(args.verb).run(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `stabilizer … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as error:
        if args.debug:
            raise
        return _fail(error, args)


def _parse(words: list[str]) -> argparse.Namespace:
    """The arguments of a verb; an unknown verb or argument is answered with the nearest known one."""
    verb = next((word for word in words if not word.startswith("-")), None)
    parser = build_parser(verb, as_json="--json" in words)
    if verb is not None and verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(VERBS)}"
        parser.error(f"no verb {verb!r}; {hint}")
    args, unknown = parser.parse_known_args(words)
    if unknown:
        (parser.chosen or parser).unknown(unknown[0])
    return args


def _module(verb: str) -> ModuleType:
    """A verb's module: that of `import` has an underscore more, because the word is Python's."""
    return importlib.import_module(f"stabilizer.commands.{'import_' if verb == 'import' else verb}")


def _fail(error: Exception, args: argparse.Namespace) -> int:
    expected = isinstance(error, (ValueError, OSError, ImportError))
    message = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename:
        rights = "; check the path and its rights" if isinstance(error, PermissionError) else ""
        message = f"{error.filename}: {error.strerror}{rights}"
    if not expected:
        message = f"{type(error).__name__}: {message} (this is a bug in stabilizer; --debug shows where)"
    if args.json:
        print(json.dumps({"error": message}))
    print(error_line(args.verb, message), file=sys.stderr)
    return 2


def error_line(verb: str, message: object) -> str:
    """What is said on stderr. Messages quote files and names in them, so they are shown without control characters."""
    from stabilizer.core.text import plain  # only now: `--help` must not wait for what the reports need

    return f"stabilizer {verb}: {plain(message, 4000)}"
