"""Viewer settings of a run's page: the same words in the address and in the browser's store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stabilizer.figures import FAMILIES, Theme
from stabilizer.figures.axes import XS, X
from stabilizer.figures.plan import YS, Y

SMOOTHS = (0, 5, 20, 50, 200)
"""Steps a line can be averaged over."""
MAX_PINS = 40
KEYS = ("x", "y", "smooth", "find", "open", "pin", "link", "zoom")


@dataclass(frozen=True)
class ViewerSettings:
    """A run, and how its page shows it."""

    run: str
    theme: Theme = "light"
    x: X = "step"
    y: Y = "auto"
    smooth: int = 0
    find: str = ""
    """The search in the names of metrics."""
    open: tuple[str, ...] = ()
    """Families that are unfolded."""
    pins: tuple[str, ...] = ()
    """Charts that come first."""
    linked: bool = False
    """Whether zooming one chart zooms all."""
    zoom: tuple[float, float] | None = None
    """The range of the x axis of all charts, when linked."""

    @classmethod
    def read(cls, run: str, theme: str, query: Mapping[str, Any]) -> ViewerSettings:
        """The settings in an address; missing or invalid ones get their defaults."""
        said = {key: str(query.get(key) or "")[:2000] for key in KEYS}
        smooth = int(said["smooth"]) if said["smooth"].isascii() and said["smooth"].isdigit() else 0
        linked = said["link"] == "1"
        return cls(
            run,
            "dark" if theme == "dark" else "light",
            next((x for x in XS if x == said["x"]), "step"),
            next((y for y in YS if y == said["y"]), "auto"),
            smooth if smooth in SMOOTHS else 0,
            said["find"],
            tuple(id for id in FAMILIES if id in said["open"].split(",")),
            tuple(dict.fromkeys(filter(None, said["pin"].split(","))))[:MAX_PINS],
            linked,
            _span(said["zoom"]) if linked else None,
        )

    def words(self) -> dict[str, str]:
        """The settings as words of an address, without the defaults."""
        said = {
            "x": self.x if self.x != "step" else "",
            "y": self.y if self.y != "auto" else "",
            "smooth": str(self.smooth or ""),
            "find": self.find,
            "open": ",".join(self.open),
            "pin": ",".join(self.pins),
            "link": "1" if self.linked else "",
            "zoom": "{:g}:{:g}".format(*self.zoom) if self.zoom else "",
        }
        return {key: value for key, value in said.items() if value}

    @property
    def axes(self) -> dict[str, Any]:
        """How the figures with these settings are drawn."""
        return {"x": self.x, "y": self.y, "smooth": float(self.smooth)}


def _span(words: str) -> tuple[float, float] | None:
    try:
        start, end = (float(part) for part in words.split(":"))
    except ValueError:
        return None
    return (start, end) if math.isfinite(start) and math.isfinite(end) and start < end else None
