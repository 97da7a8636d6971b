"""`python -m bench.lowest`: the lowest versions that pyproject.toml allows, as arguments for pip.

python3.11 -m venv /tmp/lowest && /tmp/lowest/bin/pip install $(python -m bench.lowest)
STABILIZER_LOWEST=/tmp/lowest/bin/python python -m bench trust --only lowest
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
FOR_TESTS = ("pytest", "hypothesis", "playwright", "axe-playwright-python", "pandas", "pyarrow")
"""What the tests themselves need."""


def lowest(extras: Iterable[str] = ()) -> dict[str, str]:
    """Package -> the lowest version that is allowed, of the dependencies and of some groups of optional ones."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    tests = [line for line in project["optional-dependencies"]["dev"] if line.split(">")[0] in FOR_TESTS]
    return {found[1]: found[2] for line in [*wanted, *tests] if (found := re.match(r"([\w.-]+)>=([\w.]+)", line))}


if __name__ == "__main__":
    print(" ".join(f"{name}=={version}" for name, version in lowest(sys.argv[1:]).items()))
