"""Why a run was not saved: at which of detection, cause, remedy, trial or time the help ended."""

from __future__ import annotations

from typing import Any

from bench.rescue.faults import Fault
from bench.rescue.play import Outcome

DONE = ("applied",)
KEPT = "verified"


def changes(outcome: Outcome) -> list[dict[str, Any]]:
    """Journal entries by which something was changed."""
    return [row for row in outcome["actions"] if row["entry"] in DONE]


def reason(outcome: Outcome, fault: Fault) -> str:
    """Where the help ended, in a few words that can be counted, and what was seen."""
    heard = [row for row in outcome["findings"] if row["at"] >= outcome["onset"]]
    if not heard:
        early = len(outcome["findings"])
        return "not detected" + (f" ({early} before the onset)" if early else "")
    first = heard[0]
    delay = f"first {first['id']} {first['at'] - outcome['onset']} iterations after the onset"
    told = [row["causes"][0] for row in heard if row["causes"]]
    right = not fault.causes or any(cause in fault.causes for cause in told)
    cause = f"cause {', '.join(dict.fromkeys(told)) or 'none'}"
    done = changes(outcome)
    if outcome["ended"]:
        return f"ended ({outcome['ended']}): {cause}; {delay}"
    if not done:
        if not right:
            return f"wrong cause, nothing done: {cause}; {delay}"
        asked = [f"{row['remedy']} ({row['entry']})" for row in outcome["actions"]]
        return f"nothing done: {cause}; proposed {', '.join(dict.fromkeys(asked)) or 'nothing'}; {delay}"
    tried = ", ".join(f"{row['remedy']} at +{row['at'] - outcome['onset']}" for row in done)
    kept = [row["remedy"] for row in outcome["actions"] if row["entry"] == KEPT]
    back = [f"{row['remedy']}: {row['text'][:90]}" for row in outcome["actions"] if row["entry"] == "reverted"]
    words = f"{tried}; {cause}; {delay}" + (f"; reverted {' | '.join(back)}" if back else "")
    if not right:
        return f"wrong cause: {words}"
    if kept:
        return f"kept {', '.join(kept)}, not enough: {words}"
    return f"{'reverted' if back else 'not judged yet'}: {words}"
