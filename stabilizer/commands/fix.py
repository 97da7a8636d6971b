"""`stabilizer fix RUN …`: list and answer the proposals of a live run, or change its knobs."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stabilizer.control.cost import cost
from stabilizer.core.knobs import KNOBS, ORDERS, Knob, parse_order, parse_turn, turned
from stabilizer.core.records import Action, as_json
from stabilizer.core.text import plain
from stabilizer.output.screen import console
from stabilizer.runs.asking import idle, leave, misplaced, over, over_and_on
from stabilizer.runs.history import History
from stabilizer.runs.journal import newest, verify
from stabilizer.runs.reader import RunReader

MAX_UNCHANGED = 20
"""Number of listed requests that changed nothing; events.jsonl has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument("run_directory", type=Path, metavar="RUN", help="run directory")
    parser.add_argument(
        "what",
        choices=("list", "approve", "reject", "revert", "pause", "resume", "set", "do", "verify"),
        help="list the journal; answer a proposal; pause or resume the run; set knobs; give an order (do); or verify"
        " that the journal was not changed",
    )
    parser.add_argument(
        "ids",
        metavar="id",
        nargs="*",
        help="for approve, reject and revert: an action as `list` shows it (a1, a2, … of remedies, h1, h2, … of users);"
        " for set: knobs and values, set in this order (beta=0.01 filter_groups=drop);"
        f" for do: one of {', '.join(ORDERS)} (restore:120 returns to the state after step 120)",
    )
    parser.epilog = "Knobs: " + ", ".join(_words(knob) for knob in KNOBS.values()) + "."


def run(args: argparse.Namespace) -> int:
    """List or verify the journal, or leave a request for the training process."""
    reader = RunReader(args.run_directory)
    if args.ids and args.what in ("list", "verify", "pause", "resume"):
        raise ValueError(f"{args.what} takes no argument, but {args.ids[0]!r} was given")
    if len(args.ids) > 1 and args.what != "set":
        raise ValueError(f"{args.what} takes one argument, but {len(args.ids)} were given: {', '.join(args.ids)}")
    if args.what == "verify":
        return _verify(args.run_directory, as_object=args.json)
    latest = newest(reader.actions)
    if args.what == "list":
        _list(latest, reader, as_object=args.json)
        return 0
    asked = args.ids or [""]
    _check_alive(args, reader)
    for what in asked:
        _check_request(args.what, what, latest, reader)
    for what in asked:
        _ask(args, what, latest, reader)
    if not args.json:
        words = f"request sent: {args.what} {' '.join(asked)}".rstrip()
        when = "the run answers after its current step, or when it resumes"
        print(f"{words}; {when}; see `stabilizer fix {args.run_directory} list`")
    return 0


def _check_alive(args: argparse.Namespace, reader: RunReader) -> None:
    """Refuse a request that no process would answer, or that the remedy mode rules out."""
    if why := over_and_on(reader.status, time.time(), args.run_directory, reader.about.get("trainer")):
        hint = "; see `fix RUN list`" if reader.status.get("state") == "finished" else ""
        raise ValueError(f"{args.run_directory}: {why}{hint}")
    if args.what == "approve" and (why := _idle(reader)):
        raise ValueError(f"{args.run_directory}: {why}")


def _idle(reader: RunReader) -> str:
    return idle(reader.status, reader.path, reader.about.get("trainer"))


def _check_request(kind: str, what: str, latest: Mapping[str, Action], reader: RunReader) -> None:
    """Refuse a request that the training process would have to refuse."""
    if kind == "set":
        _check_knob(what, reader.history)
    elif kind == "do":
        _check_order(what, reader)
    elif kind not in ("pause", "resume") and (why := misplaced(kind, what, latest)):
        raise ValueError(why)


def _ask(args: argparse.Namespace, what: str, latest: Mapping[str, Action], reader: RunReader) -> None:
    """Leave one request, and print what an approval would cost."""
    answered = latest[what].hash if args.what in ("approve", "reject", "revert") else ""
    request = leave(args.run_directory, args.what, what, proposal=answered)
    price = _cost(latest[what], reader) if args.what == "approve" else ()
    if args.json:
        row = {"request": request.id, "kind": request.kind, "action": request.action}
        print(json.dumps(row | ({"cost": price} if price else {})))
        return
    for sentence in price:
        print(plain(sentence))


def _verify(run: Path, *, as_object: bool) -> int:
    """Check that the journal was not changed; exit code 1 when it was."""
    chain = verify(run / "actions.jsonl")
    if as_object:
        print(
            json.dumps({"ok": not chain.broken, "entries": chain.entries, "torn": chain.torn, "broken": chain.broken})
        )
    elif chain.broken:
        print(f"{run / 'actions.jsonl'}: the chain is broken after {chain.entries} entries: {chain.broken}")
    else:
        torn = f"; {chain.torn} incomplete lines of a crash, which lost no entry" if chain.torn else ""
        print(f"the journal is intact: {chain.entries} entries in an unbroken chain{torn}")
    return int(bool(chain.broken))


def _words(knob: Knob) -> str:
    name = knob.name.removeprefix("control/")
    return f"{name} ({'|'.join(knob.choices)})" if knob.choices else f"{name} ({knob.low:g} to {knob.high:g})"


def _check_knob(turn: str, history: History) -> None:
    """Refuse an unknown knob or value; a run logs the knobs it has."""
    name, _ = parse_turn(turn)
    present = [knob.removeprefix("control/") for knob in KNOBS if knob in history.names()]
    if present and name not in history.names():
        raise ValueError(f"{name} has no effect in this run; its knobs are {', '.join(present)}")


def _check_order(order: str, reader: RunReader) -> None:
    """Refuse an unknown order, or a return to a checkpoint that does not exist."""
    _, step = parse_order(order)
    there = sorted({state.step for state in reader.checkpoints() if state.step < reader.history.step})
    if step is not None and step not in there:
        steps = ", ".join(map(str, there)) or "none yet"
        raise ValueError(f"no checkpoint of step {step} to return to; available: {steps}")


def _cost(action: Action, reader: RunReader) -> tuple[str, ...]:
    """What approving the action would cost now; empty when it does not wait for approval."""
    if action.entry != "proposed" or action.safety == "advice":
        return ()
    view = reader.history.view()
    return cost(action, view, view.step)


def _list(latest: dict[str, Action], reader: RunReader, *, as_object: bool) -> None:
    refused = over(reader.status, time.time()) or _idle(reader)
    costs = {name: () if refused else _cost(action, reader) for name, action in latest.items()}
    if as_object:
        rows = [as_json(action) | ({"cost": costs[name]} if costs[name] else {}) for name, action in latest.items()]
        print(json.dumps(rows))
        return
    out = console()
    events = reader.history.events
    by_users = [event for event in events if event.data.get("by") and event.data.get("action") not in latest]
    if by_users:
        out.print("User requests that changed nothing:")
        for event in by_users[-MAX_UNCHANGED:]:
            out.print(Text(f"  step {event.step}: {plain(event.text)}"))
    if not latest:
        known = f": an imported log takes no orders; see `stabilizer diagnose {plain(reader.path)}`"
        out.print(Text(f"the journal is empty{known if reader.about.get('imported') else ''}"))
    for name, action in latest.items():
        _print_action(out, action, costs[name])
    if refused and any(action.entry == "proposed" for action in latest.values()):
        out.print(Text(f"No proposal can be approved: {plain(refused)}"))


def _print_action(out: Console, action: Action, price: tuple[str, ...]) -> None:
    about = f" · incident {action.incident}" if action.incident else ""
    out.print(Text(plain(f"{action.action}  {action.remedy}  {action.entry} at step {action.step:,}{about}")))
    change = ", ".join(_turned(knob, before, after) for knob, (before, after) in action.change.items())
    costs = f"Cost of approval: {' '.join(price)}" if price else ""
    for line in ("" if change in action.text else change, action.text, costs):
        if line:
            out.print(Padding(Text(plain(line)), (0, 0, 0, 4), expand=False))


def _turned(knob: str, before: float | None, after: float | None) -> str:
    if before == after:
        return f"{knob} warmed up again to {after:g}" if after is not None else knob
    return turned(knob, before, after)
