"""`stabilizer detectors`: what is looked for, and the page of each detector."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import inspect
import json
from typing import Any

from stabilizer.bench.detect.results import in_words, kept, quality
from stabilizer.cli import UsageError
from stabilizer.detectors import DETECTORS
from stabilizer.detectors.base import Detector
from stabilizer.detectors.system.detector_error import DetectorError
from stabilizer.remedies import REMEDIES
from stabilizer.remedies.base import SECTIONS, Remedy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument("action", nargs="?", choices=("list", "explain"), default="list", help="default: list")
    parser.add_argument("--markdown", action="store_true", help="the list as the README's table")
    parser.add_argument(
        "id", nargs="?", help="the detector to explain, e.g. policy/entropy-collapse, or a remedy, e.g. roll-back"
    )


def run(args: argparse.Namespace) -> int:
    """List all detectors, or print the page of one."""
    if args.action == "list":
        if args.id:
            raise UsageError(f"list takes no id; for one detector's page: stabilizer detectors explain {args.id}")
        print(markdown()) if args.markdown else _list(args.json)
    elif remedy := next((remedy for remedy in REMEDIES if remedy.id == args.id), None):
        _explain_remedy(remedy, args.json)
    else:
        _explain(_named(args.id), args.json)
    return 0


def page(detector: Detector) -> dict[str, Any]:
    """What is known of a detector: its page, what it needs, and its options with their present values."""
    text = inspect.getdoc(type(detector)) or ""
    return {
        "id": detector.id,
        "title": text.partition("\n")[0],
        "needs": list(detector.needs),
        "confirm": detector.confirm,
        "options": {field.name: getattr(detector, field.name) for field in _options(detector)},
        "measured": quality(detector.id),
        "page": text,
    }


def markdown() -> str:
    """The README's table: what is looked for, what must be logged for it, and how good it was when last measured."""
    rows = [f"| `{d.id}` | {page(d)['title']} | {_needs(d)} | {in_words(d.id)} |" for d in DETECTORS]
    return "\n".join(["| id | fires when | needs | recall; false alarms |", "|---|---|---|---|", *rows])


def _named(id: str | None) -> Detector:
    by_id = {detector.id: detector for detector in (*DETECTORS, DetectorError())}
    if id is None:
        raise UsageError(f"explain needs an id: stabilizer detectors explain {DETECTORS[0].id}")
    if id in by_id:
        return by_id[id]
    endings = [known for known in by_id if known.rpartition("/")[2] == id.rpartition("/")[2]]
    near = endings or difflib.get_close_matches(id, by_id, 1, 0.0)
    raise UsageError(f"no detector {id!r}; did you mean {near[0]!r}? `stabilizer detectors` lists all {len(by_id)}")


def _list(as_json: bool) -> None:
    if as_json:
        print(json.dumps([page(detector) for detector in DETECTORS], indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    from stabilizer.terminal import console

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("detector", "looks for", "needs", "recall; false alarms"):
        table.add_column(heading, header_style="bold", overflow="fold", no_wrap=heading == "detector")
    for detector in DETECTORS:
        known = page(detector)
        table.add_row(
            Text(known["id"], "bold"), Text(known["title"]), Text(_needs(detector), "dim"), Text(in_words(detector.id))
        )
    out = console()
    out.print(table)
    if measured := kept():
        said = f"{measured['half']} half, {measured['date']}, version {measured['version']}"
        out.print(Text(f"\nrecall: share of the faults made for it (95 % interval) of how many; false alarms per 1,000"
                       f" healthy steps; {said}: {measured['command']}", "dim"))  # fmt: skip
    out.print(Text("\nstabilizer detectors explain ID prints a detector's page.", "dim"))


def _explain(detector: Detector, as_json: bool) -> None:
    if as_json:
        print(json.dumps(page(detector), indent=2))
        return
    from rich.padding import Padding
    from rich.text import Text

    from stabilizer.terminal import console

    out = console()
    known = page(detector)
    out.print(Text(known["id"], "bold"))
    for indent, text in _paragraphs(known["page"]):
        heading = indent == 0 and len(text) < 40 and not text.endswith(".")
        out.print(Padding(Text(text, "bold" if heading else ""), (0, 0, 0, indent), expand=False))
    out.print(Text("\nNeeds", "bold"))
    out.print(Padding(Text(_needs(detector)), (0, 0, 0, 4), expand=False))
    out.print(Text("\nConfirm", "bold"))
    ticks = "1 row is proof" if detector.confirm == 1 else f"it must stand for {detector.confirm} rows before it opens"
    out.print(Padding(Text(ticks), (0, 0, 0, 4), expand=False))
    if known["options"]:
        out.print(Text("\nOptions", "bold"))
    says = _option_texts(type(detector))
    for name, value in known["options"].items():
        out.print(Padding(Text.assemble((f"{name} = {value}", "cyan")), (0, 0, 0, 4), expand=False))
        if text := says.get(name):
            out.print(Padding(Text(text), (0, 0, 0, 8), expand=False))


def _explain_remedy(remedy: Remedy, as_json: bool) -> None:
    """The page of a fix, under the id that findings, the journal and other pages call it by."""
    said = remedy.by_hand or f"{remedy.why}; expected: {remedy.expects}"
    text = said if remedy.safety == "advice" else inspect.getdoc(type(remedy)) or said
    if as_json:
        known = {"id": remedy.id, "safety": remedy.safety, "answers": list(remedy.answers), "page": text}
        print(json.dumps(known, indent=2))
        return
    from rich.padding import Padding
    from rich.text import Text

    from stabilizer.terminal import console

    out = console()
    out.print(Text(f"{remedy.id} ({remedy.safety})", "bold"))
    for indent, paragraph in _paragraphs(text):
        heading = indent == 0 and paragraph in SECTIONS
        out.print(Padding(Text(paragraph, "bold" if heading else ""), (0, 0, 0, indent), expand=False))
    out.print(Text("\nAnswers", "bold"))
    out.print(Padding(Text(", ".join(remedy.answers)), (0, 0, 0, 4), expand=False))


def _paragraphs(page: str) -> list[tuple[int, str]]:
    """(indent, text) of each paragraph: lines broken for the source are joined for the reader's own width."""
    found: list[tuple[int, str]] = []
    for line in page.splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        joins = bool(
            found and found[-1][1] and text and found[-1][0] == indent and indent and not text.startswith("- ")
        )
        if joins:
            found[-1] = (indent, f"{found[-1][1]} {text}")
        else:
            found.append((indent, text))
    return found


def _needs(detector: Detector) -> str:
    return ", ".join(need.replace("|", " or ") for need in detector.needs) or "nothing in particular"


def _options(detector: Detector) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(detector) if dataclasses.is_dataclass(detector) else ()


def _option_texts(kind: type) -> dict[str, str]:
    """The docstring under each field, which Python keeps only in the source."""
    import ast
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, SyntaxError):  # no source beside the installed program: the names and values still stand
        return {}
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    texts = {}
    for field, below in zip(body, body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            if isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
                texts[field.target.id] = inspect.cleandoc(below.value.value)
    return texts
