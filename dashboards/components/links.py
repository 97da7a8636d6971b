"""Addresses of the dashboard's own pages."""

from __future__ import annotations

from urllib.parse import urlencode


def address(path: str, **query: str) -> str:
    """A page's address. What comes from a run is quoted, so that it stays a value."""
    return f"{path}?{urlencode(query)}" if query else path
