"""A run that trains in approve mode and has something to answer, and a hand that presses the page's buttons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from page_client import Client, components
from synthetic_run import EXPLOSION, RUNAWAY, record, values

from stabilizer.core.records import Action
from stabilizer.runs.requests import Request, look, settle
from stabilizer.runs.writer import RunWriter

ASKING = "20260103-100000-sorting-ask1"
CHANGE = {"control/lr_scale": (1.0, 0.5)}
HYPOTHESIS = {
    "expects": "the incident's findings clear and the reward is no lower than before",
    "guard": "reward/mean",
    "guard_level": 0.71,
    "guard_noise": 0.02,
    "horizon_steps": 30,
    "undo": {"control/lr_scale": 1.0},
    "rollback_to": None,
}
HERE = {"Host": "127.0.0.1:8050", "Origin": "http://127.0.0.1:8050"}


def asking(path: Path, *, mode: str | None = "approve", safety: str = "soft", back: int | None = None) -> RunWriter:
    """A run at step 300, in trouble since 268, with one proposal `a1`."""
    writer = RunWriter.create(path, config={"optim": {"lr": 3e-5}}, task="sorting", steps=500, argv=[])
    for step in range(1, 301):
        writer.metrics(step, values(step, trouble=max(0.0, min(1.0, (step - 262) / 38))))
    for finding in (RUNAWAY, EXPLOSION):
        writer.finding(record(finding, "open", 300))
    propose(writer, safety=safety, back=back)
    writer.status("running", 300, remedy=mode, force=True)
    return writer


def propose(writer: RunWriter, action: str = "a1", *, safety: str = "soft", back: int | None = None) -> None:
    """The process proposes a fix."""
    writer.action(
        Action(
            action,
            "proposed",
            "lower-lr",
            285,
            incident=2,
            safety=safety,
            change=CHANGE,
            text="smaller steps keep the policy within reach; expected within 30 steps: findings quiet",
            data={"hypothesis": {**HYPOTHESIS, "rollback_to": back}},
        )
    )


def entry(writer: RunWriter, kind: str, step: int, text: str = "", **data: Any) -> None:
    """A later entry of a1's life."""
    writer.action(
        Action("a1", kind, "lower-lr", step, incident=2, change=CHANGE, text=text, data=data)  # type: ignore[arg-type]
    )


def requests(path: Path) -> list[dict[str, Any]]:
    """What lies in `requests/`."""
    return [json.loads(file.read_bytes()) for file in sorted((path / "requests").glob("*.json"))]


def pressable(tree: Any) -> dict[str, dict[str, Any]]:
    """The buttons of a page, by what they ask for."""
    ids = [c["props"].get("id") for c in components(tree)]
    return {id["kind"]: id for id in ids if isinstance(id, dict) and id.get("type") == "ask"}


def press(
    client: Client,
    kind: str,
    run: str = ASKING,
    action: str = "a1",
    *,
    token: Any = None,
    headers: Any = None,
    clicks: int | None = 1,
) -> str:
    """Press a button as a browser would; the answer as text, "" for none."""
    key = next(key for key in client.app.callback_map if '"answers"' in key)
    where = {"of": action, "run": run, "type": "answers"}
    id = {"kind": kind, "of": action, "run": run, "type": "ask"}
    spelled = json.dumps(id, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    token = client.app.runs.token if token is None else token
    body = {
        "output": key,
        "outputs": {"id": where, "property": "children"},
        "inputs": [[{"id": id, "property": "n_clicks", "value": clicks}]],
        "state": [{"id": "action-token", "property": "data", "value": token}],
        "changedPropIds": [f"{spelled}.n_clicks"],
    }
    answer = client.http.post("/_dash-update-component", json=body, headers=HERE if headers is None else headers)
    assert answer.status_code in (200, 204), (answer.status_code, answer.data[:300])
    return json.dumps(json.loads(answer.data)["response"], ensure_ascii=False) if answer.status_code == 200 else ""


def take(run: Path) -> list[Request]:
    """What the training process does with requests, short of heeding them."""
    requests = look(run).requests
    for request in requests:
        settle(run, request)
    return requests
