"""A page inside of a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Embedded:
    """A page that a notebook shows in a frame of its own, without a server and cut off from the notebook."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(self.page)}" width="100%" height="{self.height:d}" '
            'style="border:0"></iframe>'
        )
