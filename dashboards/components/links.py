"""Addresses of the dashboard's own pages."""

from __future__ import annotations

from urllib.parse import urlencode


def address(path: str, **query: str) -> str:
    """A page's address. Values from a run are quoted."""
    return f"{path}?{urlencode(query)}" if query else path
