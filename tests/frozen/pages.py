"""The data behind each page of the dashboard, asked as a browser asks it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "dashboards"))


def write(folder: str) -> None:
    """One file per page and sample run, below a folder."""
    from page_client import Client, addresses

    from dashboards.app import build

    client = Client(build([ROOT / "sample_runs"]))
    runs = sorted(run.parent.name for run in (ROOT / "sample_runs").glob("*/run.json"))
    for run in runs:
        for number, (path, search) in enumerate(addresses(run, runs[0])):
            if run not in search and run != runs[0]:
                continue  # the same for every run
            tree = client.open(path, search)
            name = f"{run}.{number:02d}{path.replace('/', '-')}.json"
            Path(folder, name).write_text(json.dumps(tree, sort_keys=True, ensure_ascii=False))
