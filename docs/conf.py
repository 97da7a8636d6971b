"""Sphinx configuration: Markdown through MyST, no network while building."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(Path(__file__).parent))

import generate  # noqa: E402

from stabilizer import __version__  # noqa: E402

generate.write(Path(__file__).parent / "reference")

project = "stabilizer"
author = "the stabilizer authors"
copyright = "2026, the stabilizer authors"  # noqa: A001 (Sphinx's name)
release = __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"stabilizer {release}"
nitpicky = True
