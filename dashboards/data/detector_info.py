"""The data of a detector's page: its manual, its measured quality and the fixes it can lead to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from stabilizer.detectors import DETECTORS
from stabilizer.detectors.base import Detector
from stabilizer.detectors.manual import (
    Section,
    all_detectors,
    confirm_words,
    needs_words,
    option_texts,
    page,
    sections,
)
from stabilizer.detectors.measured import in_words, kept, quality
from stabilizer.remedies import REMEDIES


@dataclass(frozen=True)
class DetectorRow:
    """One detector in the list."""

    id: str
    title: str
    needs: str
    measured: str

    def matches(self, words: str) -> bool:
        """Whether every word of a search is in it."""
        text = f"{self.id} {self.title} {self.needs}".lower()
        return all(word in text for word in words.lower().split())


@dataclass(frozen=True)
class Measured:
    """One figure of the benchmark, with how many cases it rests on."""

    what: str
    value: str
    of: str


@dataclass(frozen=True)
class Fix:
    """A remedy that the page names."""

    id: str
    safety: str
    why: str


@dataclass(frozen=True)
class DetectorInfo:
    """The page of a detector."""

    id: str
    title: str
    sections: tuple[Section, ...]
    needs: str
    confirm: str
    options: tuple[tuple[str, str, str], ...]
    """(name, value, what it is) of every option."""
    measured: tuple[Measured, ...]
    source: str
    """Where the figures come from; empty when nothing was measured."""
    fixes: tuple[Fix, ...]


def detector_rows() -> tuple[DetectorRow, ...]:
    """All detectors, in the order in which they are asked."""
    return tuple(DetectorRow(d.id, page(d)["title"], needs_words(d), in_words(d.id)) for d in DETECTORS)


def detector_info(id: str) -> DetectorInfo | None:
    """One detector, looked up among those there are."""
    detector = all_detectors().get(id)
    if detector is None:
        return None
    known, texts = page(detector), option_texts(type(detector))
    found = sections(detector)
    return DetectorInfo(
        id=id,
        title=known["title"],
        sections=found,
        needs=needs_words(detector),
        confirm=confirm_words(detector),
        options=tuple((name, str(value), texts.get(name, "")) for name, value in known["options"].items()),
        measured=_measured(detector),
        source=source(),
        fixes=_fixes(found),
    )


def source() -> str:
    """The benchmark behind the figures: its date, version and command."""
    figures = kept()
    if not figures:
        return ""
    return f"{figures['half']} half, {figures['date']}, version {figures['version']}: {figures['command']}"


def _measured(detector: Detector) -> tuple[Measured, ...]:
    row = quality(detector.id)
    if row is None:
        return ()
    found = []
    if row["n"]:
        found.append(Measured("recall", _share(row["recall"], row["interval"]), f"of {row['n']} injected faults"))
    low, high = row["false interval"]
    rate = f"{row['false rate']:.2g} (95 % interval {low:.2g} to {high:.2g})"
    found.append(Measured("false alarms", rate, "per 1,000 healthy steps"))
    for fault in _faults(detector.id):
        delay = fault.get("delay") or {}
        if delay.get("n") and delay.get("median") is not None:
            words = f"median {delay['median']:g} steps"
            words += f", 9 of 10 within {delay['p90']:g}" if delay.get("p90") is not None else ""
            found.append(Measured(f"delay, {fault['fault']}", words, f"of {delay['n']} runs, by any accepted finding"))
    return tuple(found)


def _faults(id: str) -> list[dict[str, Any]]:
    """The faults of the benchmark for which this finding is a right answer."""
    faults = ((kept() or {}).get("methods") or {}).get("stabilizer", {}).get("faults")
    return [fault for fault in faults if id in fault.get("accept", ())] if isinstance(faults, list) else []


def _share(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.0%} (95 % interval {interval[0]:.0%} to {interval[1]:.0%})"


def _fixes(found: tuple[Section, ...]) -> tuple[Fix, ...]:
    texts = [p.text for section in found if section.title == "Remedies" for p in section.paragraphs]
    named = dict.fromkeys(name for text in texts for name in re.findall(r"`([^`]+)`", text))
    known = {remedy.id: remedy for remedy in REMEDIES}
    return tuple(Fix(id, known[id].safety, known[id].why) for id in named if id in known)
