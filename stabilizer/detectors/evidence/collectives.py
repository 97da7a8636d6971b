"""What ranks of a hang were waiting in, as the lines of NCCL's watchdog say."""

from __future__ import annotations

import re

from stabilizer.detectors.evidence.ending import message_of
from stabilizer.runs.history import RunView

WATCHDOG = "nccl/watchdog-timeout"
"""The known trouble whose lines are compared."""
_RANK = re.compile(r"\[Rank (\d{1,6})\]")
PATHS = (
    "the ranks run different code, and none can go on. Look for what differs between ranks before it: generation that"
    " ends at different lengths under ZeRO-3 or FSDP (generate(..., synced_gpus=True), or an engine), a branch or a"
    " batch that only some ranks have, an exception that one rank caught. A longer time limit mends nothing"
)
"""What to look at where ranks wait in different collectives at the same place."""


def out_of_step(view: RunView) -> str:
    """Ranks that wait in different collectives under the same number, in words; "" if none do."""
    waiting: dict[str, dict[str, str]] = {}
    for event in view.events(("note",)):
        values, rank = event.data.get("values"), _RANK.search(message_of(event))
        if event.data.get("trouble") == WATCHDOG and isinstance(values, dict) and rank and "op" in values:
            waiting.setdefault(values["seq"], {}).setdefault(values["op"], rank[1])
    for number, ranks in waiting.items():
        if len(ranks) > 1:
            where = " and ".join(f"rank {rank} in {operation}" for operation, rank in ranks.items())
            return f"at collective {number} {where}"
    return ""
