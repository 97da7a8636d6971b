"""The manual page of a detector: its docstring by section, needed metrics, options, and measured quality."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any, NamedTuple

from stabilizer.detectors import DETECTORS
from stabilizer.detectors.base import Detector
from stabilizer.detectors.measured import quality
from stabilizer.detectors.system.detector_error import DetectorError

SECTIONS = ("Signature", "Why it matters", "Look-alikes", "False alarms", "Remedies", "References")
"""The sections of a page, in order."""


class Paragraph(NamedTuple):
    """A paragraph of a section, or one point of a list."""

    text: str
    point: bool


@dataclass(frozen=True)
class Section:
    """A heading and the paragraphs under it."""

    title: str
    paragraphs: tuple[Paragraph, ...]


def all_detectors() -> dict[str, Detector]:
    """Every detector by its id, including the one that reports failures of the others."""
    return {detector.id: detector for detector in (*DETECTORS, DetectorError())}


def page(detector: Detector) -> dict[str, Any]:
    """The page of a detector: its text, what it needs, and its options with their present values."""
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


def sections(detector: Detector) -> tuple[Section, ...]:
    """The page in its sections, with the lines of a paragraph joined."""
    found: list[tuple[str, list[Paragraph]]] = []
    for indent, text in paragraphs(inspect.getdoc(type(detector)) or "")[1:]:
        if indent == 0 and text in SECTIONS:
            found.append((text, []))
        elif text and found:
            found[-1][1].append(Paragraph(text.removeprefix("- "), text.startswith("- ")))
    return tuple(Section(title, tuple(under)) for title, under in found)


def needs_words(detector: Detector) -> str:
    """The metrics that must be logged, in words."""
    return ", ".join(need.replace("|", " or ") for need in detector.needs) or "no particular metric"


def confirm_words(detector: Detector) -> str:
    """How long a finding must last before it opens, in words."""
    return "1 row is proof" if detector.confirm == 1 else f"it must last for {detector.confirm} rows before it opens"


def paragraphs(page: str) -> list[tuple[int, str]]:
    """(indent, text) of each paragraph, with its lines joined so that readers can wrap them to their own width."""
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


def option_texts(kind: type) -> dict[str, str]:
    """The docstring under each field, which Python keeps only in the source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, SyntaxError):  # the source is not installed: names and values are shown without texts
        return {}
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    texts = {}
    for field, below in zip(body, body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            if isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
                texts[field.target.id] = inspect.cleandoc(below.value.value)
    return texts


def _options(detector: Detector) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(detector) if dataclasses.is_dataclass(detector) else ()
