"""Viewer settings of a run's page: the same words in the address and in the browser's store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stabilizer.figures import FAMILIES, Theme
from stabilizer.figures.axes import XS, X
from stabilizer.figures.plan import YS, Y
from stabilizer.figures.thinning import Window

SMOOTHS = (0, 5, 20, 50, 200)
"""Steps a line can be averaged over."""
SMOOTH = 5
"""The usual choice: it removes most noise and shifts no rise or fall. The logged values stay behind it, faint."""
MAX_PINS = 40
KEYS = ("x", "y", "smooth", "find", "open", "pin", "link", "zoom", "marks")


@dataclass(frozen=True)
class ViewerSettings:
    """A run, and how its page shows it."""

    run: str
    theme: Theme = "light"
    x: X = "step"
    y: Y = "auto"
    smooth: int = SMOOTH
    find: str = ""
    """The search in the names of metrics."""
    open: tuple[str, ...] = ()
    """Families that are unfolded."""
    pins: tuple[str, ...] = ()
    """Charts that come first."""
    linked: bool = False
    """Whether zooming one chart zooms all."""
    marks: bool = True
    """Whether incidents, fixes and events are drawn on the charts."""
    zooms: Mapping[str, Window] = field(default_factory=dict)
    """Chart -> the range of its axes that is shown; when linked, one of the x axis of all charts, under ""."""

    @classmethod
    def read(cls, run: str, theme: str, query: Mapping[str, Any]) -> ViewerSettings:
        """The settings in an address; missing or invalid ones get their defaults."""
        said = {key: str(query.get(key) or "")[:2000] for key in KEYS}
        linked = said["link"] == "1"
        return cls(
            run,
            "dark" if theme == "dark" else "light",
            next((x for x in XS if x == said["x"]), "step"),
            next((y for y in YS if y == said["y"]), "auto"),
            next((smooth for smooth in SMOOTHS if said["smooth"] == str(smooth)), SMOOTH),
            said["find"],
            tuple(id for id in FAMILIES if id in said["open"].split(",")),
            tuple(dict.fromkeys(filter(None, said["pin"].split(","))))[:MAX_PINS],
            linked,
            said["marks"] != "0",
            dict(_zooms(said["zoom"], linked)),
        )

    def words(self) -> dict[str, str]:
        """The settings as words of an address, without the defaults."""
        said = {
            "x": self.x if self.x != "step" else "",
            "y": self.y if self.y != "auto" else "",
            "smooth": str(self.smooth) if self.smooth != SMOOTH else "",
            "find": self.find,
            "open": ",".join(self.open),
            "pin": ",".join(self.pins),
            "link": "1" if self.linked else "",
            "marks": "" if self.marks else "0",
            "zoom": "~".join(":".join(filter(None, (id, *map(_number, span)))) for id, span in self.zooms.items()),
        }
        return {key: value for key, value in said.items() if value}

    @property
    def axes(self) -> dict[str, Any]:
        """How the figures with these settings are drawn."""
        return {"x": self.x, "y": self.y, "smooth": float(self.smooth)}

    def window(self, chart: str) -> Window | None:
        """The range that a chart shows; None for all of it."""
        return self.zooms.get("" if self.linked else chart)


def _zooms(words: str, linked: bool) -> Iterator[tuple[str, Window]]:
    for part in words.split("~")[:MAX_PINS]:
        id, *numbers = ["", *part.split(":")] if linked else part.split(":")
        span = _span(numbers)
        if span and (id or linked):
            yield id, span


def _span(numbers: Sequence[str]) -> Window | None:
    """Start and end of the x axis and, where both axes were zoomed, of the y axis."""
    try:
        span = tuple(map(float, numbers))
    except ValueError:
        return None
    ordered = all(start < end for start, end in zip(span[::2], span[1::2], strict=False))
    return span if len(span) in (2, 4) and all(map(math.isfinite, span)) and ordered else None


def _number(value: float) -> str:
    return f"{value:.10g}"
