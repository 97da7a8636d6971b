"""`stabilizer detectors`: the list of detectors, and the page of each."""

from __future__ import annotations

import argparse
import difflib
import inspect
import json

from rich.padding import Padding
from rich.text import Text

from stabilizer.cli import UsageError
from stabilizer.detectors import DETECTORS
from stabilizer.detectors.base import Detector
from stabilizer.detectors.manual import all_detectors, confirm_words, needs_words, option_texts, page, paragraphs
from stabilizer.detectors.measured import in_words, kept
from stabilizer.output.screen import console
from stabilizer.remedies import REMEDIES
from stabilizer.remedies.base import SECTIONS, Remedy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="ID",
        help="detector to explain, e.g. policy/entropy-collapse, or remedy, e.g. roll-back (default: list all)",
    )


def run(args: argparse.Namespace) -> int:
    """List all detectors, or print the page of one."""
    id = _asked(args.words)
    if not id:
        _list(args.json)
    elif remedy := next((remedy for remedy in REMEDIES if remedy.id == id), None):
        _explain_remedy(remedy, args.json)
    else:
        _explain(_named(id), args.json)
    return 0


def _asked(words: list[str]) -> str:
    """The id in `ID` or `explain ID`; empty for `list` or nothing."""
    verb, ids = (words[0], words[1:]) if words[:1] in (["list"], ["explain"]) else ("", words)
    if len(ids) > 1 or (verb == "list" and ids):
        raise UsageError(f"one page at a time: `stabilizer detectors {ids[0]}`")
    if verb == "explain" and not ids:
        raise UsageError(f"explain needs an id: `stabilizer detectors {DETECTORS[0].id}`")
    return ids[0] if ids else ""


def _named(id: str) -> Detector:
    by_id = all_detectors()
    if id in by_id:
        return by_id[id]
    endings = [known for known in by_id if known.rpartition("/")[2] == id.rpartition("/")[2]]
    near = endings or difflib.get_close_matches(id, (*by_id, *(remedy.id for remedy in REMEDIES)), 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(f"unknown detector or remedy {id!r}; {hint}`stabilizer detectors` lists all")


def _list(as_json: bool) -> None:
    if as_json:
        print(json.dumps([page(detector) for detector in DETECTORS], indent=2))
        return
    out = console()
    for detector in DETECTORS:  # one below the other: columns would break metric names
        known = page(detector)
        out.print(Text(known["id"], "bold"))
        out.print(Text(known["title"]))
        out.print(Text(f"needs {needs_words(detector)}", "dim"))
        out.print(Text(f"recall; false alarms: {in_words(detector.id)}", "dim"))
    if measured := kept():
        source = f"{measured['half']} half, {measured['date']}, version {measured['version']}"
        out.print(
            Text(
                f"\nrecall: share of its faults found (95 % interval) and their number; false alarms per 1,000"
                f" healthy steps; {source}: {measured['command']}",
                "dim",
            )
        )
    out.print(Text("\n`stabilizer detectors ID` prints the page of a detector.", "dim"))


def _explain(detector: Detector, as_json: bool) -> None:
    if as_json:
        print(json.dumps(page(detector), indent=2))
        return
    out = console()
    known = page(detector)
    out.print(Text(known["id"], "bold"))
    for indent, text in paragraphs(known["page"]):
        heading = indent == 0 and len(text) < 40 and not text.endswith(".")
        out.print(Padding(Text(text, "bold" if heading else ""), (0, 0, 0, indent), expand=False))
    out.print(Text("\nNeeds", "bold"))
    out.print(Padding(Text(needs_words(detector)), (0, 0, 0, 4), expand=False))
    out.print(Text("\nConfirm", "bold"))
    out.print(Padding(Text(confirm_words(detector)), (0, 0, 0, 4), expand=False))
    if known["options"]:
        out.print(Text("\nOptions", "bold"))
    explained = option_texts(type(detector))
    for name, value in known["options"].items():
        out.print(Padding(Text.assemble((f"{name} = {value}", "cyan")), (0, 0, 0, 4), expand=False))
        if explanation := explained.get(name):
            out.print(Padding(Text(explanation), (0, 0, 0, 8), expand=False))


def _explain_remedy(remedy: Remedy, as_json: bool) -> None:
    """The page of a remedy."""
    short = remedy.by_hand or f"{remedy.why}; expected: {remedy.expects}"
    text = short if remedy.safety == "advice" else inspect.getdoc(type(remedy)) or short
    if as_json:
        known = {"id": remedy.id, "safety": remedy.safety, "answers": list(remedy.answers), "page": text}
        print(json.dumps(known, indent=2))
        return
    out = console()
    out.print(Text(f"{remedy.id} ({remedy.safety})", "bold"))
    for indent, paragraph in paragraphs(text):
        heading = indent == 0 and paragraph in SECTIONS
        out.print(Padding(Text(paragraph, "bold" if heading else ""), (0, 0, 0, indent), expand=False))
    out.print(Text("\nAnswers", "bold"))
    out.print(Padding(Text(", ".join(remedy.answers)), (0, 0, 0, 4), expand=False))
