"""A comparison in a terminal: the verdict first, then the evidence, the differences, their effects, what to try."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stabilizer.compare import VERDICTS, Comparison
from stabilizer.compare.differences import label
from stabilizer.compare.gaps import Compared
from stabilizer.compare.words import (
    LEVELS,
    STATES,
    difference,
    gap_labels,
    how,
    rows,
    seeds,
    sentence,
    support_rows,
)
from stabilizer.core.text import plain, short
from stabilizer.output.screen import STYLES, Screen

MOST_ROWS = 16
"""One-sided settings and explanations that are listed; JSON has them all."""


def show(comparison: Comparison, out: Console) -> None:
    """Print the whole answer."""
    _Answer(comparison, out).print()


class _Answer(Screen):
    label_width, label_style = 20, ""

    def __init__(self, comparison: Comparison, out: Console):
        super().__init__(out)
        self.c = comparison

    def print(self) -> None:
        self._head()
        if self.c.verdict != "identical":
            self._support(self.c.main)
            self._measures(self.c.main)
            self._others()
        self._differences()
        self._explanations()
        self._next()
        self._cautions()

    def _head(self) -> None:
        c = self.c
        level = LEVELS[c.verdict]
        self.line(f"{self.icon(level)} {VERDICTS[c.verdict]}", 0, STYLES[level])
        self.line(sentence(plain(c.headline, 1000)))
        mine, theirs = seeds(c)
        self.line(f"run        {plain(c.run.name)} ({mine})", style="dim")
        self.line(f"reference  {plain(c.reference.name)} ({theirs})", style="dim")
        self.line(f"aligned by {_clock(c)}: {plain(c.clock.why)}", style="dim")

    def _support(self, item: Compared) -> None:
        self._table(f"What {plain(item.run_metric)} can be", ("", "run", "reference"), support_rows(item))
        for remark in item.remarks:
            self.line(sentence(plain(remark)))

    def _measures(self, item: Compared) -> None:
        names = item.run_metric
        if item.reference_metric != item.run_metric:
            names += f" (the reference's {item.reference_metric})"
        table = rows(item, self.c)
        self._table(
            f"{plain(names)}, with 95 % intervals; differences (run − reference, or × it) with 99 %",
            ("", "run", "reference", "difference", ""),
            [(row.what, row.run, row.reference, row.difference, _state(row.state)) for row in table],
        )
        for row in table:
            if row.estimator:
                self.line(f"{row.what}: {how(row)}", style="dim")

    def _others(self) -> None:
        heads = ("", "level: run − reference", "", "noise: × the reference's", "")
        table = []
        for item in self.c.others:
            gaps = item.gap("level-at-end") or item.gap("final-level"), item.gap("noise")
            cells = [cell for gap in gaps for cell in ((difference(gap), _state(gap.state)) if gap else ("–", ""))]
            table.append((item.run_metric, *cells))
        if table:
            self._table("Beside it: level and noise", heads, table)

    def _differences(self) -> None:
        c = self.c
        if c.differences:
            table = []
            for d in c.differences:
                name = d.label if d.key in (d.label, "") else f"{d.label}  ({d.key})"
                table.append((name, short(d.run), short(d.reference)))
            self._table("What was set differently", ("", "run", "reference"), table)
        elif c.verdict != "identical":
            self.title("What was set differently")
            self.line("no setting that both sides state", style="dim")
        for who, index in (("the run", 1), ("the reference", 2)):
            said = [f"{row[0]} {short(row[index])}" for row in c.one_sided if row[index] is not None]
            if said:
                more = f" and {len(said) - MOST_ROWS} more" if len(said) > MOST_ROWS else ""
                self.line(f"stated by {who} alone: {plain(', '.join(said[:MOST_ROWS]))}{more}", style="dim")

    def _explanations(self) -> None:
        if not self.c.explanations:
            return
        self.title("Which difference explains what")
        labels = gap_labels(self.c)
        order = {gap: place for place, gap in enumerate(labels)}
        told = ""
        for item in sorted(self.c.explanations, key=lambda e: (not e.explains, order.get(e.gap, 99)))[:MOST_ROWS]:
            head = plain(labels.get(item.gap, item.gap))
            head, told = ("" if head == told else head), head
            verb = "" if item.explains else "NOT "
            text = Text.assemble((f"{verb}{plain(label(item.cause))}", "bold"), (f" ({item.sure})", "dim"))
            text.append(f": {plain(item.why)}", "" if item.explains else "dim")
            self.label(head, text)
        if self.c.unknown:
            self.label("not stated", Text(f"the reference does not state its {', '.join(self.c.unknown)}", "dim"))

    def _next(self) -> None:
        c = self.c
        self.title("What to do next, one variable at a time")
        text = Text.assemble((plain(c.next.what), "bold cyan"), f": {plain(c.next.why)}")
        self.label("first", text)
        for change in c.then[:3]:
            self.label("only then", Text.assemble((plain(change.what), "cyan"), (f": {plain(change.why)}", "dim")))

    def _cautions(self) -> None:
        notes = [note for side in (self.c.run, self.c.reference) for m in side.members for note in m.notes]
        said: Sequence[str] = list(dict.fromkeys([*self.c.cautions, *notes]))
        if not said:
            return
        self.title("To keep in mind")
        for caution in said:
            self.line(f"· {plain(caution)}", style="dim")

    def _table(self, title: str, heads: Sequence[str], table: Iterable[Sequence[str | Text]]) -> None:
        self.title(title)
        grid = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, header_style="dim", expand=False)
        for head in heads:
            grid.add_column(self.shown(head), overflow="fold")
        for row in table:
            grid.add_row(*(self.shown(plain(cell) if isinstance(cell, str) else cell) for cell in row))
        self.grid(grid)


def _state(state: str) -> Text:
    """What a comparison of two measures says, in its colour."""
    return Text(STATES[state], STYLES[LEVELS[state]]) if state else Text()


def _clock(c: Comparison) -> str:
    return {"samples": "completions", "time": "wall time"}.get(c.clock.name, c.clock.name)
