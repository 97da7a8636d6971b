"""A comparison in a terminal: the verdict first, then the evidence, the differences, their effects, what to try."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stabilizer.compare import VERDICTS, Comparison
from stabilizer.compare.differences import label
from stabilizer.compare.gaps import Compared
from stabilizer.compare.words import STATES, difference, how, rows, seeds, sentence, support_rows
from stabilizer.core.text import plain, short

STYLES = {
    "identical": "green",
    "same-run": "green",
    "same": "green",
    "different": "yellow",
    "rescaled": "yellow",
    "not-comparable": "bold red",
    "undetermined": "blue",
    "not": "",
}
_MARKS = {
    "identical": "✔",
    "same-run": "✔",
    "same": "✔",
    "different": "▲",
    "rescaled": "▲",
    "not-comparable": "■",
    "undetermined": "–",
}
MOST_ROWS = 16
"""One-sided settings and explanations that are listed; JSON has them all."""
_TYPED = (
    ("✔", "[ok]"),
    ("▲", "[!]"),
    ("■", "[X]"),
    ("–", "-"),
    ("×", "x"),
    ("±", "+-"),
    ("−", "-"),
    ("·", "-"),
    ("…", "..."),
)


def show(comparison: Comparison, out: Console) -> None:
    """Print the whole answer."""
    _Answer(comparison, out).print()


class _Answer:
    def __init__(self, comparison: Comparison, out: Console):
        self.c = comparison
        self.out = out
        self.ascii = not (out.encoding or "").lower().startswith("utf")

    def print(self) -> None:
        self._head()
        self._support(self.c.main)
        self._measures(self.c.main)
        self._others()
        self._differences()
        self._explanations()
        self._next()
        self._cautions()

    def _head(self) -> None:
        c = self.c
        self._line(Text(f"{_MARKS[c.verdict]} {VERDICTS[c.verdict]}", STYLES[c.verdict]), 0)
        self._line(Text(sentence(plain(c.headline, 1000))), 2)
        mine, theirs = seeds(c)
        self._line(Text(f"run        {plain(c.run.name)} ({mine})", "dim"), 2)
        self._line(Text(f"reference  {plain(c.reference.name)} ({theirs})", "dim"), 2)
        self._line(Text(f"aligned by {_clock(c)}: {plain(c.clock.why)}", "dim"), 2)

    def _support(self, item: Compared) -> None:
        if self.c.verdict in ("identical", "same-run"):
            return
        self._title(f"What {plain(item.run_metric)} can be")
        grid = self._grid(("", "run", "reference"))
        for row in support_rows(item):
            grid.add_row(*(self._text(cell) for cell in row))
        self._put(grid)
        for remark in item.remarks:
            self._line(Text(sentence(plain(remark))), 2)

    def _measures(self, item: Compared) -> None:
        if self.c.verdict in ("identical", "same-run"):
            return
        names = item.run_metric
        if item.reference_metric != item.run_metric:
            names += f" (the reference's {item.reference_metric})"
        self._title(f"{plain(names)}, with 95 % intervals; differences (run − reference, or × it) with 99 %")
        grid = self._grid(("", "run", "reference", "difference", ""))
        table = rows(item, self.c)
        for row in table:
            grid.add_row(
                self._text(row.what),
                self._text(row.run),
                self._text(row.reference),
                self._text(row.difference),
                self._text(STATES.get(row.state, ""), STYLES.get(row.state, "")),
            )
        self._put(grid)
        for row in table:
            if row.estimator:
                self._line(Text(f"{row.what}: {how(row)}", "dim"), 2)

    def _others(self) -> None:
        if not self.c.others or self.c.verdict in ("identical", "same-run"):
            return
        self._title("Beside it: level and noise")
        grid = self._grid(("", "level: run − reference", "", "noise: × the reference's", ""))
        for item in self.c.others:
            level = item.gap("level-at-end") or item.gap("final-level")
            noise = item.gap("noise")
            cells = [self._text(item.run_metric)]
            for gap in (level, noise):
                cells += [self._text(difference(gap) if gap else "–")]
                cells += [self._text(STATES[gap.state] if gap else "", STYLES.get(gap.state, "") if gap else "")]
            grid.add_row(*cells)
        self._put(grid)

    def _differences(self) -> None:
        c = self.c
        if c.differences:
            self._title("What was set differently")
            grid = self._grid(("", "run", "reference"))
            for d in c.differences:
                name = d.label if d.key in (d.label, "") else f"{d.label}  ({d.key})"
                grid.add_row(*(self._text(cell) for cell in (name, short(d.run), short(d.reference))))
            self._put(grid)
        elif c.verdict not in ("identical", "same-run"):
            self._title("What was set differently")
            self._line(Text("no setting that both sides state", "dim"), 2)
        if c.one_sided:
            for who, index in (("the run", 1), ("the reference", 2)):
                said = [f"{row[0]} {short(row[index])}" for row in c.one_sided if row[index] is not None]
                if said:
                    more = f" and {len(said) - MOST_ROWS} more" if len(said) > MOST_ROWS else ""
                    self._line(Text(f"stated by {who} alone: {plain(', '.join(said[:MOST_ROWS]))}{more}", "dim"), 2)

    def _explanations(self) -> None:
        if not self.c.explanations:
            return
        self._title("Which difference explains what")
        labels = {"support": "reward range"} | {gap.id: gap.label for gap in self.c.main.gaps}
        order = {gap: place for place, gap in enumerate(labels)}
        told = ""
        for item in sorted(self.c.explanations, key=lambda e: (not e.explains, order.get(e.gap, 99)))[:MOST_ROWS]:
            head = plain(labels.get(item.gap, item.gap))
            head, told = ("" if head == told else head), head
            verb = "" if item.explains else "NOT "
            text = Text.assemble((f"{verb}{plain(label(item.cause))}", "bold"), (f" ({item.sure})", "dim"))
            text.append(f": {plain(item.why)}", "" if item.explains else "dim")
            self._pair(head, text)
        if self.c.unknown:
            self._pair("not stated", Text(f"the reference does not state its {', '.join(self.c.unknown)}", "dim"))

    def _next(self) -> None:
        c = self.c
        self._title("What to do next, one variable at a time")
        text = Text.assemble((plain(c.next.what), "bold cyan"), f": {plain(c.next.why)}")
        self._pair("first", text)
        for change in c.then[:3]:
            self._pair("only then", Text.assemble((plain(change.what), "cyan"), (f": {plain(change.why)}", "dim")))

    def _cautions(self) -> None:
        notes = [note for side in (self.c.run, self.c.reference) for m in side.members for note in m.notes]
        said: Sequence[str] = [*self.c.cautions, *notes]
        if not said:
            return
        self._title("To keep in mind")
        for caution in said:
            self._line(Text(f"· {plain(caution)}", "dim"), 2)

    # --- lines ------------------------------------------------------------------------------------------------------

    def _grid(self, heads: Sequence[str]) -> Table:
        grid = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, header_style="dim", expand=False)
        for head in heads:
            grid.add_column(self._typed(head), overflow="fold")
        return grid

    def _put(self, grid: Table) -> None:
        self.out.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def _pair(self, label: str, text: Text) -> None:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=20, overflow="fold")
        grid.add_column(ratio=1, overflow="fold")
        grid.add_row(Text(self._typed(label)), Text(self._typed(text.plain)) if self.ascii else text)
        self._put(grid)

    def _text(self, words: str, style: str = "") -> Text:
        return Text(self._typed(plain(words)), style)

    def _typed(self, text: str) -> str:
        if not self.ascii:
            return text
        for mark, typed in _TYPED:
            text = text.replace(mark, typed)
        return text.encode(self.out.encoding or "ascii", "replace").decode(self.out.encoding or "ascii")

    def _title(self, words: str) -> None:
        self.out.print()
        self.out.print(Text(self._typed(words), "bold"))

    def _line(self, text: Text, indent: int) -> None:
        if self.ascii:
            text = Text(self._typed(text.plain))
        self.out.print(Padding(text, (0, 0, 0, indent), expand=False))


def _clock(c: Comparison) -> str:
    return {"samples": "completions", "time": "wall time"}.get(c.clock.name, c.clock.name)
