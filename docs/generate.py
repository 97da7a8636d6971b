"""Pages generated from docstrings: detectors, preflight rules, remedies, metrics and configuration keys."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterable
from pathlib import Path

from stabilizer.core.metrics import VOCABULARY
from stabilizer.detectors import DETECTORS
from stabilizer.detectors.manual import page, paragraphs
from stabilizer.detectors.measured import in_words
from stabilizer.preflight.rules import RULES
from stabilizer.remedies import REMEDIES
from stabilizer.troubles.all import TROUBLES


def write(folder: Path) -> None:
    """Write all generated pages into a folder; what it held before is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pages = {
        "detectors": detectors(),
        "remedies": remedies(),
        "rules": rules(),
        "metrics": metrics(),
        "troubles": troubles(),
    }
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def troubles() -> str:
    """One row per known trouble."""
    parts = ["# Known troubles", "", f"{len(TROUBLES)} messages of trainers and engines, with cause and source.", ""]
    parts += ["| id | the log says | cause | source |", "|---|---|---|---|"]
    for trouble in sorted(TROUBLES, key=lambda trouble: trouble.id):
        message = trouble.shows[0].replace("`", "'")
        cells = (f"`{trouble.id}`", f"`{message}`", trouble.cause.replace("`", "'"), trouble.source)
        parts.append("| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |")
    return "\n".join([*parts, ""])


def detectors() -> str:
    """One section per detector, after the table that the command line prints."""
    parts = ["# Detectors", "", "Generated from the docstrings; `stabilizer detectors ID` prints the same.", ""]
    parts += ["| id | fires when | measured: recall; false alarms per 1,000 healthy steps |", "|---|---|---|"]
    for detector in DETECTORS:
        parts.append(
            f"| [`{detector.id}`](#{_anchor(detector.id)}) | {page(detector)['title']} | {in_words(detector.id)} |"
        )
    for detector in DETECTORS:
        parts += ["", f"## {detector.id}", "", *_markdown(inspect.getdoc(type(detector)) or "")]
    return "\n".join(parts) + "\n"


def remedies() -> str:
    """One section per remedy, in the order in which they are tried."""
    parts = ["# Remedies, one by one", "", "Generated from the docstrings, in the order in which they are tried.", ""]
    for remedy in REMEDIES:
        safety = getattr(remedy, "safety", "")
        parts += [
            "",
            f"## {remedy.id}",
            "",
            f"Safety class: `{safety}`.",
            "",
            *_markdown(inspect.getdoc(type(remedy)) or ""),
        ]
    return "\n".join(parts) + "\n"


def rules() -> str:
    """One section per preflight rule."""
    parts = ["# Preflight rules", "", "Generated from the docstrings of the rules.", ""]
    for rule in RULES:
        parts += ["", f"## {rule.ID}", "", *_markdown(inspect.cleandoc(rule.__doc__ or ""))]
    return "\n".join(parts) + "\n"


def metrics() -> str:
    """The vocabulary as a table."""
    parts = ["# Metrics", "", "The canonical names, with unit, estimator and meaning.", ""]
    parts += ["| name | unit | estimator | meaning |", "|---|---|---|---|"]
    for name, metric in sorted(VOCABULARY.items()):
        cells = (f"`{name}`", metric.unit or "1", metric.estimator, metric.meaning)
        parts.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(parts) + "\n"


def _markdown(doc: str) -> Iterable[str]:
    """A docstring page as Markdown: a flush line without a full stop opens a section."""
    for number, (indent, text) in enumerate(paragraphs(doc)):
        if number and indent == 0 and text and not text.endswith((".", ":")) and len(text) < 40:
            yield from ("", f"### {text}", "")
        elif text:
            yield from ((text, "") if not text.startswith("- ") else (text,))


def _anchor(id: str) -> str:
    return id.replace("/", "").replace(" ", "-").lower()
