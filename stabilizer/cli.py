"""The command `stabilizer`: the list of its verbs, and how errors are reported.

A verb's module is imported only when that verb is used, so `stabilizer --help` stays quick and nothing post-hoc
ever imports torch. Error messages name the problem, the place and the next step; only `--debug` shows a traceback.
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
    "train": "train a model with detectors, remedies and an optional dashboard",
    "demo": "train the built-in task in about two minutes and show the result",
    "supervise": "run a training command and restart it after a crash or a located hang",
    "preflight": "check a trainer's configuration for problems before the first step",
    "plan": "list the valid batch settings for a trainer and a number of GPUs, ready to paste",
    "diagnose": "report what went wrong in a run, when it began and what to change",
    "watch": "follow a live run or a growing log in the terminal, with the same detectors",
    "report": "write a self-contained page about a run",
    "import": "convert another trainer's log to a run directory",
    "compare": "explain how a run differs from a reference, and what to change first",
    "dashboard": "show runs in the browser",
    "runs": "list runs with their state and verdict",
    "fix": "answer the proposals of a live run, or change its knobs manually",
    "replay": "train a run again with its interventions and check that the numbers agree",
    "webhook": "accept signed answers to proposals over the network, for a folder of runs",
    "mcp": "let an agent read a folder of runs, through the Model Context Protocol",
    "export": "export a run's model with a model card, or its metrics",
    "detectors": "list the detectors, or explain one",
    "bench": "measure this installation: monitoring cost, log reading, training speed, detection quality",
    "doctor": "check this installation",
}


class UsageError(ValueError):
    """A mistake in the command line: shown as one line, exit code 2."""


class _Parser(argparse.ArgumentParser):
    """With `--json`, also prints errors as JSON on stdout."""

    as_json = False
    chosen: _Parser | None = None
    """The parser of the verb that was called: it reports unknown arguments."""

    def error(self, message: str) -> NoReturn:
        if self.as_json:
            print(json.dumps({"error": message}))
        super().error(message)

    def unknown(self, word: str) -> NoReturn:
        """Report an unknown argument, with the nearest known one."""
        known = [name for action in self._actions for name in action.option_strings]
        near = difflib.get_close_matches(word.partition("=")[0], known, 1) if word.startswith("-") else []
        hint = f"did you mean {near[0]}?" if near else f"see `{self.prog} --help`"
        self.error(f"unrecognized argument {word}; {hint}")


def build_parser(verb: str | None = None, *, as_json: bool = False) -> _Parser:
    """The parser. Only the chosen verb's module is imported."""
    parser = _Parser(
        prog="stabilizer",
        description="Keeps GRPO/PPO training of language models stable: trains, monitors, explains and repairs runs.",
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
        sub.add_argument("--json", action="store_true", help="print only JSON on stdout")
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
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
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(VERBS)}"
        parser.error(f"unknown verb {verb!r}; {hint}")
    args, unknown = parser.parse_known_args(words)
    if unknown:
        (parser.chosen or parser).unknown(unknown[0])
    return args


def _module(verb: str) -> ModuleType:
    """A verb's module; `import` is a Python keyword, so its module is `import_`."""
    return importlib.import_module(f"stabilizer.commands.{'import_' if verb == 'import' else verb}")


def _fail(error: Exception, args: argparse.Namespace) -> int:
    expected = isinstance(error, (ValueError, OSError, ImportError))
    message = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename:
        rights = "; check the path and its permissions" if isinstance(error, PermissionError) else ""
        message = f"{error.filename}: {error.strerror}{rights}"
    if not expected:
        message = f"{type(error).__name__}: {message} (this is a bug in stabilizer; --debug shows where)"
    if args.json:
        print(json.dumps({"error": message}))
    print(error_line(args.verb, message), file=sys.stderr)
    return 2


def error_line(verb: str, message: object) -> str:
    """An error as stderr shows it, without the control characters that quoted file content may hold."""
    from stabilizer.core.text import plain  # imports rich, which `--help` need not wait for

    return f"stabilizer {verb}: {plain(message, 4000)}"
