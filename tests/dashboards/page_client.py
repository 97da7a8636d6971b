"""A browser's questions to the app, without a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from dashboards.data.chart_sections import SECTIONS
from dashboards.data.followed_run import FollowedRun
from dashboards.data.run_list import compared
from dashboards.data.run_page import Page, page_of
from dashboards.pages import PAGES

RUN = "20260102-093000-sorting-7c2e"
CALM = "20260101-080000-addition-0aa1"
THERE = {
    "/": ".runs-table tbody tr",
    "/workspace": ".workspace-chart, .empty",
    "/run": ".chart .main-svg",
    "/incident": ".card.incident, .headline .ways",
    "/completions": ".sample",
    "/journal": ".trial, .empty",
    "/setup": ".setup-config, .empty",
    "/preflight": "textarea",
    "/detectors": "tbody tr",
    "/compare": ".compare-verdict, .compare-choice",
    "/detector": "h1",
    "/alerts": "h1",
}
"""What is seen of a page once it is there."""
LARGE = {"width": 1440, "height": 1000}
"""The size of a tab, unless a test sets another."""
CHROMIUM = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
)


def page_now(followed: FollowedRun) -> Page:
    """The page of a run, up to date."""
    return page_of(followed.refresh(), followed.clock(), followed.verdict())


def components(tree: Any) -> list[dict[str, Any]]:
    """Every component of a serialised layout."""
    found = []
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if "namespace" in node:
                found.append(node)
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return found


class Client:
    """Asks the app what a browser would ask, without one."""

    def __init__(self, app: Any):
        self.app = app
        self.http = app.server.test_client()

    def call(
        self,
        name: str,
        trigger: str,
        values: dict[str, Any],
        charts: Sequence[Any] = (),
        places: Sequence[str] = (),
        slots: Sequence[str] = (),
    ) -> Any:
        """POST one callback (found by one of its output ids and its trigger); the decoded answer, None for no news."""
        key, entry = next(
            (key, entry)
            for key, entry in self.app.callback_map.items()
            if f"{name}." in key
            and any(f"{i['id']}.{i['property']}" == trigger for i in entry["inputs"])
            and not str(entry.get("clientside_function") or "")
        )
        outputs: list[Any] = []
        for part in key.strip(".").split("..."):
            id, prop = part.rsplit(".", 1)
            if id.startswith("{"):
                kind = next(iter(json.loads(id)))
                there = {"chart": charts, "slot": slots}.get(kind, places or charts)
                outputs.append([{"id": {kind: of}, "property": prop} for of in there])
            else:
                outputs.append({"id": id, "property": prop})
        body = {
            "output": key,
            "outputs": outputs if key.startswith("..") else outputs[0],
            "inputs": [self._input(item, values) for item in entry["inputs"]],
            "state": [self._state(item, values, charts) for item in entry["state"]],
            "changedPropIds": [trigger],
        }
        answer = self.http.post("/_dash-update-component", json=body, headers={"Host": "127.0.0.1:8050"})
        self.size = len(answer.data)
        assert answer.status_code in (200, 204), answer.data[:500]
        return json.loads(answer.data)["response"] if answer.status_code == 200 else None

    @staticmethod
    def _input(item: dict[str, Any], values: dict[str, Any]) -> Any:
        """What the browser says of an input; none of those that a pattern names was touched."""
        if item["id"].startswith("{"):
            return []
        return {**item, "value": values.get(f"{item['id']}.{item['property']}")}

    @staticmethod
    def _state(item: dict[str, Any], values: dict[str, Any], charts: Sequence[Any]) -> Any:
        """What the browser says of one property, or of that property of all charts on its page."""
        if item["id"].startswith("{"):
            ids = [{next(iter(json.loads(item["id"]))): of} for of in charts]
            return [{"id": id, "property": item["property"], "value": id} for id in ids]
        return {**item, "value": values.get(f"{item['id']}.{item['property']}")}

    def open(self, path: str, search: str = "", scheme: str = "light") -> Any:
        """Open an address; the page as a tree of components."""
        given = {"url.pathname": path, "url.search": search, "scheme.data": scheme}
        answer = self.call("page", "url.pathname", given)
        self.search = answer.get("url", {}).get("search", search)
        return answer["page"]["children"]

    def show(self, search: str = "", scheme: str = "light") -> Any:
        """Open a run; the properties of the parts of its page, by id, once its first charts are there."""
        tree = self.open("/run", search, scheme)
        parts = {c["props"]["id"]: c["props"] for c in components(tree) if isinstance(c["props"].get("id"), str)}
        shown = {"url": {"search": self.search}, "tree": tree, **parts}
        answer = (
            self.poll(parts["seen"]["data"], **{"settings.data": parts["settings"]["data"]})
            if "seen" in parts
            else None
        )
        for id, given in (answer or {}).items():
            if not id.startswith("{"):
                shown[id] = {**shown.get(id, {}), **given}
        places = {id: given for id, given in (answer or {}).items() if id.startswith(('{"section"', '{"slot"'))}
        shown["grid"] = [parts.get("grid"), places]
        return shown

    def poll(self, seen: dict[str, Any], **values: Any) -> Any:
        """One tick of the interval."""
        given = {"tick.n_intervals": 1, "seen.data": seen, "settings.data": seen["settings"], **values}
        return self.call(
            "tick", "tick.n_intervals", given, list(seen["charts"]), SECTIONS, [*seen["charts"], *seen["rest"]]
        )


def settled(client: Client, shown: dict[str, Any]) -> dict[str, Any]:
    """What the browser holds once the rest of the charts has come."""
    seen = shown["seen"]["data"]
    while seen["rest"]:
        client.app.runs.get(seen["run"])._read = 0
        seen = client.poll(seen)["seen"]["data"]
    return seen


def addresses(run: str, other: str) -> list[tuple[str, str]]:
    """Every page as it opens for a run: path and query."""
    of = {"run": run}
    queries: dict[str, list[dict[str, str]]] = {
        "/": [{}, {"group": "seeds"}],
        "/workspace": [{}, {"group": "seeds", "find": "entropy"}],
        "/run": [{**of, "pin": "entropy"}],
        "/incident": [of, {**of, "n": "1"}, {**of, "n": "2"}],
        "/completions": [of, {**of, "step": "10", "q": "1", "tokens": "1"}, {**of, "format": "1", "over": "length"}],
        "/journal": [of],
        "/compare": [{}, {"runs": compared([run, other])}],
        "/preflight": [{}, of],
        "/detectors": [{}, {"q": "kl"}],
        "/detector": [{"id": "policy/kl-runaway"}, {"id": "nothing"}],
        "/alerts": [{}],
    }
    return [
        (page.PATH, "?" + urlencode(query) if query else "")
        for page in PAGES
        for query in queries.get(page.PATH, [{}, of])
    ]


def questions(app: Any, value: Any) -> Iterator[dict[str, Any]]:
    """Every callback of the app asked once with nothing but `value`, in the values and in the ids of what is many."""
    for key, entry in app.callback_map.items():
        if "callback" not in entry:
            continue  # the browser does that one by itself
        outputs = [_named(*part.rsplit(".", 1), value) for part in key.strip(".").split("...")]
        inputs = [_given(item, value) for item in entry["inputs"]]
        body = {
            "output": key,
            "outputs": outputs if key.startswith("..") else outputs[0],
            "inputs": inputs,
            "state": [_given(item, value) for item in entry["state"]],
        }
        first = inputs[0][0] if isinstance(inputs[0], list) else inputs[0]
        id = first["id"]
        spelled = json.dumps(id, sort_keys=True, separators=(",", ":")) if isinstance(id, dict) else id
        yield {**body, "changedPropIds": [f"{spelled}.{first['property']}"]}


def _named(id: str, prop: str, value: Any) -> Any:
    prop = prop.partition("@")[0]
    if not id.startswith("{"):
        return {"id": id, "property": prop}
    wild = json.loads(id)
    one = {"id": _concrete(wild, value), "property": prop}
    return [one] if ["ALL"] in wild.values() else one


def _given(item: dict[str, Any], value: Any) -> Any:
    id = item["id"]
    wild = json.loads(id) if isinstance(id, str) and id.startswith("{") else id
    if not isinstance(wild, dict):
        return {"id": id, "property": item["property"], "value": value}
    one = {"id": _concrete(wild, value), "property": item["property"], "value": value}
    return [one] if ["ALL"] in wild.values() else one


def _concrete(wild: dict[str, Any], value: Any) -> dict[str, Any]:
    word = value if isinstance(value, (str, int, float)) and not isinstance(value, bool) else "x"
    return {key: word if isinstance(part, list) else part for key, part in wild.items()}
