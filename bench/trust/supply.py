"""What is installed: hashes, licences, known holes."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

from bench import lowest, sbom
from bench.trust.row import Attack, Effort, Measured, counts

LOWEST = "STABILIZER_LOWEST"
"""The environment variable that names the Python of an environment with the lowest versions; else one is made."""
PYTHONS = "STABILIZER_PYTHONS"
"""The environment variable that names Pythons of environments made from requirements.lock, as a path of programs."""
NEWER = ("3.12", "3.13", "3.14")
LOWEST_TESTS = (
    "tests/runs/test_history.py", "tests/figures", "tests/analysis/test_diagnose.py", "tests/trainers/test_tables.py",
    "tests/trainers/test_wandb.py", "tests/dashboards/test_sections.py", "tests/dashboards/test_setup_page.py",
)  # fmt: skip
SHOWN = ("dash", "plotly", "pandas", "numpy")
"""Packages of which the lowest versions are listed."""
PIP_AUDIT = "PIP_AUDIT"
"""The environment variable that names the program pip-audit, where it is in no folder of the path."""
ROOT = Path(__file__).parents[2]
UNSAFE = {
    "eval", "exec", "os.system", "yaml.load", "yaml.unsafe_load", "marshal.loads", "dill.load", "dill.loads",
    "pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads",
}  # fmt: skip
"""Calls that run what a file or a message says."""
UNSAFE_KEYS = {"shell", "trust_remote_code", "allow_pickle"}
"""Arguments that must never be True."""
EXPLAINED = (
    "stabilizer/training/rewards/worker.py: exec",  # the user's own reward function
    "stabilizer/training/rewards/worker.py: pickle.loads",  # from the trainer, over its own pipe
    "stabilizer/training/ranks.py: torch.load",  # from another rank of the same training
    "dashboards/data/worker.py: pickle.loads",  # from the dashboard's own process, over its own pipe
)
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
    program = os.environ.get(PIP_AUDIT) or shutil.which("pip-audit")
    if program is None:
        return Measured(None, f"pip-audit is not installed here ({PIP_AUDIT} names one)")
    command = [program, "-r", str(sbom.LOCK), "--disable-pip", "--no-deps"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    unknown = done.stdout.count("could not be audited")
    if not done.returncode and unknown:
        return Measured(None, f"{unknown} packages are unknown to the index that pip-audit asks here")
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no answer"]
    return Measured(done.returncode == 0, last[0][:150])


def unsafe_calls(_: Effort) -> Measured:
    """Ruff's rules on security over the product, and the calls that run what a file or a message says."""
    command = [sys.executable, "-m", "ruff", "check", "--select", "S", "--ignore", "S101", "stabilizer", "dashboards"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    found = []
    for file in [*(ROOT / "stabilizer").rglob("*.py"), *(ROOT / "dashboards").rglob("*.py")]:
        calls = (node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        found += [f"{file.relative_to(ROOT)}: {ast.unparse(call.func)}" for call in calls if _is_unsafe(call)]
    others = [call for call in found if call not in EXPLAINED]
    named = f": {others[0]}" if others else ""
    words = f"ruff's rules S {'do not hold' if done.returncode else 'hold'}; {len(others)} unsafe calls{named}"
    return Measured(not done.returncode and not others, f"{words}, beside {len(EXPLAINED)} explained ones")


def _is_unsafe(call: ast.Call) -> bool:
    name = ast.unparse(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else ""
    true = {key.arg for key in call.keywords if isinstance(key.value, ast.Constant) and key.value.value is True}
    return name in UNSAFE or bool(true & UNSAFE_KEYS) or (name == "torch.load" and "weights_only" not in true)


def bill_of_materials(_: Effort) -> Measured:
    parts = sbom.document()["components"]
    bare = [part["name"] for part in parts if not part["hashes"] or not part["version"]]
    return Measured(bool(parts) and not bare, f"`make sbom` lists {len(parts)} packages, {len(bare)} without a hash")


def lowest_versions(effort: Effort) -> Measured:
    """Tests of reading, judging, figures and pages in an environment that has the lowest versions."""
    wanted = lowest.lowest()
    python = os.environ.get(LOWEST)
    if python is None and effort.quick:
        return Measured(None, f"{LOWEST} names no Python of an environment that `python -m bench.lowest` describes")
    if python is None:
        venv.create(effort.folder / "lowest", with_pip=True)
        python = str(effort.folder / "lowest" / "bin" / "python")
        install = [python, "-m", "pip", "install", "-q", *(f"{name}=={version}" for name, version in wanted.items())]
        done = subprocess.run(install, capture_output=True, text=True, timeout=1200)
        if done.returncode:
            return Measured(None, f"they could not be installed: {done.stderr.strip().splitlines()[-1][:150]}")
    code = "import json, sys, importlib.metadata as m; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    there = json.loads(subprocess.run([python, "-c", code, *wanted], check=True, capture_output=True, text=True).stdout)
    newer = [name for name, version in wanted.items() if not f"{there[name]}.".startswith(f"{version}.")]
    if newer:
        return Measured(False, f"{', '.join(newer)} are newer there than the lowest versions")
    good, bad = _tested(python)
    words = f"{len(wanted)} packages (of them {', '.join(f'{name} {wanted[name]}' for name in SHOWN)})"
    return Measured(bool(good) and not bad, f"{words}, without torch: {good} tests pass, {bad} fail")


def _tested(python: str) -> tuple[int, int]:
    """Tests that pass and that fail with another Python and its packages."""
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "--tb=line", *LOWEST_TESTS]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=1800)
    good, bad = counts(done.stdout)
    return good, bad or int(done.returncode != 0)


def newer_pythons(_: Effort) -> Measured:
    """The same tests with each named Python; held only where all that the package allows were tried."""
    found = {}
    for python in filter(None, os.environ.get(PYTHONS, "").split(os.pathsep)):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        version = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        found[version] = _tested(python)
    missing = [version for version in NEWER if version not in found]
    words = "; ".join(f"{version}: {good} tests pass, {bad} fail" for version, (good, bad) in sorted(found.items()))
    if missing:
        words = "; ".join(filter(None, (words, f"{PYTHONS} names no Python {', '.join(missing)}")))
    return Measured(False if any(bad for _, bad in found.values()) else None if missing else True, words)


ATTACKS = (
    Attack("supply chain", "Every locked package has a hash", "requirements.lock is read", hashes),
    Attack("supply chain", "Every dependency has a free licence", "metadata of what is installed", licences),
    Attack("supply chain", "Nothing unsafe stands in the source", "ruff's security rules, and calls that run text",
           unsafe_calls),
    Attack("supply chain", "No known hole in a locked package", "pip-audit", known_holes),
    Attack("supply chain", "The lowest supported versions work", "tests beside the lowest versions allowed",
           lowest_versions),
    Attack("supply chain", "Newer Pythons work", "the same tests with Python 3.12 to 3.14", newer_pythons, quick=False),
    Attack("supply chain", "A release lists its parts (SBOM)", "the lock file as CycloneDX", bill_of_materials),
)  # fmt: skip
