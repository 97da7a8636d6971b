"""`make sbom`: the parts of a release as a CycloneDX document, from the lock file and installed metadata.

It lists every locked package with its version, its hashes and its licence, so that a release can be checked against
lists of known holes without installing it.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from stabilizer.core.version import __version__

LOCK = Path(__file__).parents[1] / "requirements.lock"


def document() -> dict[str, Any]:
    """The document; a package that is not installed here has no licence in it."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "stabilizer", "version": __version__}},
        "components": [_component(*package) for package in locked()],
    }


def locked() -> list[tuple[str, str, list[str]]]:
    """(name, version, sha256 of its files) of every package in the lock file."""
    found: list[tuple[str, str, list[str]]] = []
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        if begins := re.match(r"([A-Za-z0-9_.-]+)==([^\s;\\]+)", line):
            found.append((begins[1], begins[2], []))
        if found:
            found[-1][2].extend(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return found


def _component(name: str, version: str, hashes: list[str]) -> dict[str, Any]:
    try:
        about = metadata.metadata(name)
        licence = about.get("License-Expression") or (about.get("License") or "").splitlines()[:1] or ""
    except metadata.PackageNotFoundError:
        licence = ""
    known = licence if isinstance(licence, str) else licence[0]
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name.lower()}@{version}",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in hashes],
        **({"licenses": [{"license": {"name": known[:100]}}]} if known else {}),
    }


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "dist/sbom.cdx.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document(), indent=1) + "\n", encoding="utf-8")
    print(f"{out}: {len(document()['components'])} packages")
