"""What our trainer prints: a line every few seconds, between incidents and fixes.

         step    reward     train  held-out grad norm   KL(ref)  incidents    left
        6/900     0.098      9.8%     21.5%     0.775     0.114          0   13:51

The run directory has every step and all metrics, so a note names it. Traps:

- The held-out share is repeated until it is measured again: only a change counts as a measurement.
- What is not measured yet is printed as a dash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stabilizer.formats.console import ConsoleParser, Line
from stabilizer.formats.rows import number
from stabilizer.trainers.naming import Naming

NAME = "stabilizer_console"
WHAT = "what `stabilizer train` prints, with lines like 6/900 0.098 9.8% 21.5% 0.775 0.114 0 13:51"
NAMES = {
    # a column       ours
    "reward":        "reward/mean",
    "train":         "accuracy/train",
    "held-out":      "accuracy/val",
    "grad norm":     "optim/grad_norm",
    "KL(ref)":       "policy/kl_ref",
}  # fmt: skip
"""The columns in their order."""
CUT = "lines of metrics"
SIGNS = (
    re.compile(rb"\xc2\xb7\s+remedies:\s+[a-z-]+\s"),
    re.compile(rb"\bstep +" + b" +".join(re.escape(name.encode()) for name in NAMES) + rb" +incidents +left\b"),
)
_RUN = re.compile(r"run (.+) · remedies:")
_ROW = re.compile(r" {0,9}(\d{1,15})(?:/(\d{1,15}))? +(\S.*)")


def naming(_keys: Iterable[str]) -> Naming:
    """The names of one log."""
    return Naming(trainer="stabilizer", prefix="stabilizer", names=NAMES, aggregation="the printed step alone")


class Parser(ConsoleParser):
    def __init__(self) -> None:
        super().__init__()
        self._run = ""
        self._held_out = ""

    def remarks(self) -> list[str]:
        """Where the rest is."""
        where = f", {self._run}," if self._run else ""
        return [f"only the steps that were printed; the run directory{where} has all steps and metrics"]

    def see(self, line: Line) -> None:
        match = _ROW.fullmatch(line.text)
        cells = match[3].split() if match else []
        if match is None or len(cells) != len(NAMES) + 2 or not cells[-2].isdigit():
            if found := _RUN.match(line.text):
                self._run = found[1]
            self._other(line)
            return
        if not line.whole:
            self.torn += 1
            return
        said = dict(zip(NAMES, cells, strict=False))
        if said["held-out"] == self._held_out:
            del said["held-out"]
        else:
            self._held_out = said["held-out"]
        self.planned = int(match[2]) if match[2] else self.planned
        self._row(int(match[1]), {name: value for name, text in said.items() if (value := _value(text)) is not None})


def _value(text: str) -> float | None:
    found = number(text.removesuffix("%"))
    return found / 100 if found is not None and text.endswith("%") else found
