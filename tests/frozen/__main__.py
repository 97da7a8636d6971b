"""Record what the product prints and shows, and compare two recordings byte for byte.

    python -m tests.frozen record DIR [--only PART]     write every output below DIR, one file each
    python -m tests.frozen compare BEFORE AFTER         list what differs; exit 1 when something does

A commit that only moves code leaves every output equal. The numbers of a training depend on the processor and on torch,
so both recordings are made on one machine. The path of the checkout is replaced by ROOT.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLES = ("tests/trainers/samples", "tests/trainers/tool_samples")
TASKS = ("addition", "sorting", "length", "search")
STEPS = 60
"""Steps of each training that is recorded; enough for every metric to appear."""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "COLUMNS": "120", "NO_COLOR": "1",
    "TZ": "UTC", "HF_HUB_OFFLINE": "1",
}  # fmt: skip
DIFF_LINES = 40
"""Lines of a difference that `compare` shows for each output."""


def main() -> int:
    """Run one verb of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    record = verbs.add_parser("record")
    record.add_argument("directory", type=Path)
    record.add_argument("--only", choices=sorted(PARTS), action="append")
    compare = verbs.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.verb == "record":
        recording(args.directory, args.only or sorted(PARTS))
        return 0
    return compared(args.before, args.after)


def recording(directory: Path, parts: list[str]) -> None:
    """Write the outputs of some parts below a folder; what the folder held of them before is removed."""
    for part in parts:
        shutil.rmtree(directory / part, ignore_errors=True)
        for name, text in PARTS[part]():
            target = directory / part / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text.replace(str(ROOT), "ROOT"), encoding="utf-8")
        print(f"{part}: {sum(1 for file in (directory / part).rglob('*') if file.is_file())} outputs", flush=True)


def compared(before: Path, after: Path) -> int:
    """Print the differences of two recordings; 1 when there is one."""
    names = sorted({str(file.relative_to(top)) for top in (before, after) for file in top.rglob("*") if file.is_file()})
    differing = 0
    for name in names:
        old, new = ((top / name).read_text() if (top / name).exists() else None for top in (before, after))
        if old == new:
            continue
        differing += 1
        print(f"--- {name}: {'new' if old is None else 'gone' if new is None else 'differs'}")
        if old is not None and new is not None:
            lines = difflib.unified_diff(_lines(old), _lines(new), lineterm="", n=0)
            for line, _ in zip(lines, range(DIFF_LINES), strict=False):
                print("   ", line[:300])
    print(f"{len(names)} outputs, {differing} differ")
    return int(differing > 0)


def _lines(text: str) -> list[str]:
    """The lines of an output; JSON on one line is spread out so that a difference can be read."""
    if text.startswith(("{", "[")) and text.count("\n") <= 1:
        text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    return text.splitlines()


def stabilizer(*args: str, cwd: Path = ROOT) -> str:
    """What a verb prints, its errors and its exit code, as one text."""
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "stabilizer", *args], cwd=cwd, env=environment, capture_output=True, text=True
    )
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}"


def own_samples() -> list[str]:
    """The sample runs that ship with the product."""
    return sorted(str(run.parent.relative_to(ROOT)) for run in (ROOT / "sample_runs").glob("*/run.json"))


def foreign_samples() -> list[str]:
    """The sample logs of other trainers."""
    names = (path for folder in SAMPLES for path in (ROOT / folder).iterdir())
    return sorted(str(path.relative_to(ROOT)) for path in names if path.suffix not in (".py", ".md", ""))


def _file(path: str) -> str:
    return path.replace("/", "__")


def diagnoses() -> Iterator[tuple[str, str]]:
    """`diagnose`, as JSON and as text, of every sample."""
    for path in own_samples() + foreign_samples():
        yield f"{_file(path)}.json", stabilizer("diagnose", path, "--json")
        yield f"{_file(path)}.txt", stabilizer("diagnose", path)


def preflights() -> Iterator[tuple[str, str]]:
    """`preflight` of every recipe and of the configuration of every sample run."""
    recipes = sorted((ROOT / "tests/preflight/recipes").iterdir())
    for path in (*recipes, *sorted((ROOT / "sample_runs").glob("*/config.*"))):
        name, file = str(path.relative_to(ROOT)), path.name if path in recipes else f"{path.parent.name}{path.suffix}"
        yield f"{file}.json", stabilizer("preflight", name, "--json")
        yield f"{file}.txt", stabilizer("preflight", name)


def manuals() -> Iterator[tuple[str, str]]:
    """The generated pages: detectors, remedies, configuration keys, the planner."""
    yield "detectors.txt", stabilizer("detectors")
    listed = stabilizer("detectors", "--json")
    yield "detectors.json", listed
    for detector in json.loads(listed.partition("\n")[2]):
        yield f"{_file(detector['id'])}.txt", stabilizer("detectors", "explain", detector["id"])
    yield "plan.json", stabilizer("plan", "--trainer", "open-r1", "--gpus", "7", "--num-generations", "8", "--json")


def reports() -> Iterator[tuple[str, str]]:
    """`report` of every own sample, as Markdown and as a page."""
    with tempfile.TemporaryDirectory() as folder:
        for path in own_samples():
            for suffix in ("md", "html"):
                target = Path(folder, f"{_file(path)}.{suffix}")
                said = stabilizer("report", path, "-o", str(target)).replace(folder, "FOLDER")
                yield target.name, said + (target.read_text() if target.exists() else "")


def pages() -> Iterator[tuple[str, str]]:
    """The data behind each page of the dashboard, over the own samples."""
    program = "from tests.frozen.pages import write; import sys; write(sys.argv[1])"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", program, folder], cwd=ROOT, env=environment, check=True)
        for file in sorted(Path(folder).iterdir()):
            yield file.name, file.read_text()


def trainings() -> Iterator[tuple[str, str]]:
    """Metrics of a short training of each task, and whether one can be replayed to the bit."""
    with tempfile.TemporaryDirectory() as folder:
        for task in TASKS:
            said = stabilizer(
                "train", task, "--steps", str(STEPS), "--seed", "7", "--runs", folder, "--remedy", "auto-full", "--json"
            )
            (run,) = (run for run in Path(folder).iterdir() if task in run.name)
            rows = [
                json.loads(line)["m"] | {"step": json.loads(line)["step"]}
                for file in sorted(run.glob("metrics/r0-*.jsonl"))
                for line in file.read_text().splitlines()
            ]
            timeless = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]
            yield f"{task}.jsonl", "\n".join(json.dumps(row, sort_keys=True) for row in timeless)
            yield f"{task}.exit", said.partition("\n")[0]
            checked = stabilizer("replay", str(run), "--check")
            yield f"{task}.replay", re.sub(r"\d+(\.\d+)? s\b", "N s", checked.replace(str(run), "RUN"))


PARTS: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "diagnose": diagnoses, "preflight": preflights, "manuals": manuals, "reports": reports, "pages": pages,
    "training": trainings,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
