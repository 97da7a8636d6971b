"""What is installed: hashes, licences, known holes."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec

from bench import sbom
from bench.trust.row import Attack, Effort, Measured

FREE = re.compile(
    r"\b(MIT|BSD|Apache|Python|PSF|ISC|MPL|Mozilla|Zlib|Unlicense|Public Domain|HPND|Historical|CC0|0BSD|ZPL|Zope)",
    re.IGNORECASE,
)
"""Licences that allow any use of a program that merely depends on the package."""


def hashes(_: Effort) -> Measured:
    packages = {name: hashes for name, _, hashes in sbom.locked()}
    bare = [name for name, hashes in packages.items() if not hashes]
    torch = "" if "torch" in packages else "; torch itself is pinned by the Makefile, without a hash"
    return Measured(bool(packages) and not bare, f"{len(packages)} packages, {len(bare)} without a hash{torch}")


def licences(_: Effort) -> Measured:
    seen, odd = 0, []
    for name, *_ in sbom.locked():
        try:
            about = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue  # of another platform or Python
        seen += 1
        said = [about.get("License-Expression") or "", (about.get("License") or "")[:200]]
        said += [line for line in about.get_all("Classifier") or [] if line.startswith("License")]
        if not FREE.search(" ".join(said)) and not FREE.search(_licence_text(name)):
            odd.append(name)
    named = f": {', '.join(odd[:5])}" if odd else ""
    return Measured(
        not odd and seen > 20, f"{seen} installed packages, {len(odd)} without a free licence in words{named}"
    )


def _licence_text(name: str) -> str:
    """The beginning of the licence file of an installed package, for those that name none in their metadata."""
    for file in metadata.files(name) or ():
        if "licen" in file.name.lower():
            return file.read_text(encoding="utf-8")[:300]
    return ""


def known_holes(_: Effort) -> Measured:
    if find_spec("pip_audit") is None:
        return Measured(None, "pip-audit is not installed here")
    command = [sys.executable, "-m", "pip_audit", "-r", str(sbom.LOCK), "--disable-pip", "--no-deps"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no answer"]
    return Measured(done.returncode == 0, last[0][:150])


def bill_of_materials(_: Effort) -> Measured:
    parts = sbom.document()["components"]
    bare = [part["name"] for part in parts if not part["hashes"] or not part["version"]]
    return Measured(bool(parts) and not bare, f"`make sbom` lists {len(parts)} packages, {len(bare)} without a hash")


def lowest_versions(_: Effort) -> Measured:
    return Measured(False, "the lowest versions that pyproject.toml allows are not tested; the newest are")


ATTACKS = (
    Attack("supply chain", "Every locked package has a hash", "requirements.lock is read", hashes),
    Attack("supply chain", "Every dependency has a free licence", "metadata of what is installed", licences),
    Attack("supply chain", "No known hole in a locked package", "pip-audit", known_holes),
    Attack("supply chain", "The lowest supported versions work", "-", lowest_versions),
    Attack("supply chain", "A release lists its parts (SBOM)", "the lock file as CycloneDX", bill_of_materials),
)  # fmt: skip
