"""The page an engineer reads in a terminal: the verdict first, then what happened, why, and what to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stabilizer.analysis.analyse import Analysis
from stabilizer.core.knobs import turned
from stabilizer.core.metrics import metric
from stabilizer.core.records import SEVERITIES, Cause, Finding, RemedyAdvice
from stabilizer.core.severity import WORDS
from stabilizer.core.text import plain
from stabilizer.detectors import MESSAGES
from stabilizer.output.screen import STYLES, Screen
from stabilizer.preflight.check import Preflight
from stabilizer.remedies import LIKELY
from stabilizer.runs.history import Series
from stabilizer.runs.loaded import PASTED
from stabilizer.runs.story import Incident, summary

VERDICTS = {
    "healthy": "HEALTHY",
    "info": "HEALTHY, with a remark",
    "warn": "WARNING",
    "critical": "CRITICAL",
    "too-short": "TOO SHORT to tell",
    "not-rl": "NOT a reinforcement-learning run",
    "crashed": "CRASHED",
}
_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-=+*%#"
UNEXPLAINED = ("", "undetermined", "program-error")
"""Causes that explain nothing."""
MOST_ENTRIES = 40
"""Newest entries of the journal that are shown."""
MOST_WANTED = 6
"""Missing metrics that are named where a text has few rows: those that most checks need."""


def sparkline(series: Series, width: int, *, log: bool = False, ascii_only: bool = False) -> str:
    """The trend of a metric in one line of text: medians of `width` equal pieces, `×` where there is no number."""
    bars, gap = (_PLAIN_BARS, "x") if ascii_only else (_BARS, "×")
    pieces = np.array_split(series.values, min(width, len(series))) if len(series) else []
    levels = np.array([np.median(finite) if len(finite := p[np.isfinite(p)]) else np.nan for p in pieces])
    shown = np.log(np.maximum(levels, 1e-300)) if log else levels
    if not np.isfinite(shown).any():
        return gap * len(levels)
    low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
    scaled = np.full(len(shown), 3.0) if high <= low else (shown - low) / (high - low) * 7.999
    return "".join(
        bars[int(place)] if np.isfinite(place) else gap for place in np.where(np.isfinite(shown), scaled, np.nan)
    )


def show(analysis: Analysis, out: Console, *, everything: bool = False, settings: Preflight | None = None) -> None:
    """Print the page: about one screen, or with `everything` all incidents, fixes and checks in full.

    `settings` are those that stand in the same text, judged by preflight.
    """
    _Page(analysis, out, everything=everything, settings=settings).print()


CHANGES, NORMAL, INCIDENTS, FIXES, BESIDE, SETTINGS, RESTARTS = 4, 3, 6, 3, 4, 3, 3
"""Changes, normal patterns, further incidents, further fixes, further findings of an incident, settings and restarts
that a page lists without --full."""


class _Page(Screen):
    """One analysis being printed."""

    def __init__(self, analysis: Analysis, out: Console, *, everything: bool, settings: Preflight | None = None):
        super().__init__(out)
        self.settings = [found for found in settings.findings if found.severity != "info"] if settings else []
        self.checks = everything
        """Whether to list each check that lacks a metric."""
        self.everything = everything or analysis.run.name == PASTED  # pasted text has few rows and one question
        self.analysis = analysis
        self.view = analysis.run.history.view()
        self.steps = analysis.run.source.steps > 0

    def print(self) -> None:
        self._head()
        explained = any(one.open and one.cause not in UNEXPLAINED for one in self.analysis.incidents)
        for part in (self._incidents, self._settings)[:: 1 if explained else -1]:
            part()
        self._signs()
        self._changes()
        self._outlook()
        self._journal()
        self._healthy()
        self._normal()
        self._not_checked()
        self._notes()
        self._closing()

    def _settings(self) -> None:
        """What preflight finds in the settings beside the log: before what it can't explain, behind what it can."""
        if self.settings:
            self.title("In the settings of the same text")
        for found in self.settings[: None if self.checks else SETTINGS]:
            head = f"{self.icon(found.severity)} {plain(found.id)}"
            said = plain(f"{found.summary}. {found.why}")
            self.line(Text.assemble((head, STYLES[found.severity]), f"  {plain(found.key)}: {said}"))
            if found.how:
                self.line(plain(f"Set instead: {found.how}"), 4)

    # --- parts ------------------------------------------------------------------------------------------------------

    def _head(self) -> None:
        analysis, verdict = self.analysis, self.analysis.verdict
        line = Text.assemble(
            (f"{self.icon(verdict)} {VERDICTS.get(verdict, verdict)}", STYLES.get(verdict, "bold")), "  "
        )
        line.append(plain(analysis.run.name), "bold")
        if analysis.worst and verdict == "healthy" and analysis.worst != "info":
            line.append(f"  (after a {WORDS.get(analysis.worst, analysis.worst)} incident)", "dim")
        self.line(line, 0)
        self.line(" · ".join(self._facts()), style="dim")
        if analysis.live:
            state = f"The run is {plain(analysis.state)}: results as of step {analysis.last_step:,}."
            self.line(state, style="cyan")
        if (changes := summary(analysis.run.actions))["count"]:
            self.line(f"Intervened: {changes['text']}.", style="cyan")
        for text in self._explained(verdict):
            self.line(text)

    def _facts(self) -> Iterator[str]:
        analysis, source = self.analysis, self.analysis.run.source
        yield plain(source.trainer) + (f", {source.format}" if source.format != source.trainer else "")
        clock = "optimizer steps" if self.view.about("clock") == "optimizer_step" else "steps"
        rows = f"{source.steps:,} row{'s' * (source.steps != 1)}"
        steps = f"{rows}, {clock} {analysis.first_step:,}-{analysis.last_step:,}" if source.steps else "no steps"
        planned = self.view.about("steps")
        more = isinstance(planned, int) and planned > analysis.last_step
        yield steps + (f" of {planned:,} planned" if more else "")
        if restarts := len(self._restarts()):
            yield f"{restarts:,} restart{'s' * (restarts != 1)}"
        if source.skipped_lines:
            yield f"{source.skipped_lines:,} unreadable entries skipped"

    def _explained(self, verdict: str) -> list[str]:
        if verdict == "too-short":
            rows = self.analysis.run.source.steps
            counted = f"{rows} rows are" if rows != 1 else "1 row is"
            return [f"{counted} too few for the detectors to judge."]
        if verdict == "not-rl":
            said = ["No rewards, completions or KL are logged, so the detectors have nothing to judge."]
            if names := sorted(self.view.names()):
                more = f" and {len(names) - 8} more" if len(names) > 8 else ""
                listed = plain(", ".join(names[:8]))
                said.append(
                    f"Logged: {listed}{more}. If one of them is the reward, name it with --map reward/mean=NAME."
                )
            return said
        doubts = [f"But {item.why}." for item in self.analysis.not_checked if item.why]
        if verdict == "healthy" and not self.analysis.findings:
            return ["The detectors that had their metrics found no problem.", *doubts]
        return doubts

    def _incidents(self) -> None:
        """The incident that matters most in full, each other kind in some lines; with `everything` all in full."""
        incidents = self.analysis.incidents
        if self.everything:
            for incident in incidents:
                self.out.print()
                self._incident(incident)
            return
        order = sorted(incidents, key=_importance, reverse=True)
        first = [one for one in order[:1] if one.open or one.severity != "info"]  # a remark that is over needs no page
        for incident in first:
            self.out.print()
            self._incident(incident)
        others = order[len(first) :]
        if others:
            self.title("Other incidents" if first else "Remarks that are over")
        alike: dict[tuple[str, str, bool], list[Incident]] = {}
        for incident in others:
            alike.setdefault((incident.lead.id, incident.severity, incident.open), []).append(incident)
        for incident, *again in list(alike.values())[:INCIDENTS]:
            self._head_of(incident)
            if not incident.headline and (said := str(incident.lead.evidence.get("what", ""))):
                self.line(plain(said))
            if again:
                numbers = ", ".join(str(other.number) for other in again)
                self.line(
                    f"{len(again)} more like it, until step {max(i.last for i in again):,}: {numbers}", style="dim"
                )
        if left := sum(map(len, list(alike.values())[INCIDENTS:])):
            self.line(f"{left:,} more with --full", style="dim")

    def _head_of(self, incident: Incident) -> None:
        state = "open" if incident.open else "resolved"
        title = f"{self.icon(incident.severity)} Incident {incident.number}"
        head = Text.assemble(
            (title, STYLES[incident.severity]), f"  {plain(incident.lead.id)}  {WORDS[incident.severity]}, {state}"
        )
        if self.steps:
            head.append(", ").append(incident.when, "bold")
        self.line(head, 0)
        if incident.headline:
            self.line(plain(incident.headline))

    def _incident(self, incident: Incident) -> None:
        if self.everything and len(incident.findings) > 1:
            self._head_of(incident)
            for finding in incident.findings:
                self._finding(finding)
        else:
            self._in_short(incident)
        if incident.severity != "info" or incident.cause != "undetermined":
            self._causes(incident.explained.causes, incident.lead.summary)
        self._what_to_do(incident)

    def _what_to_do(self, incident: Incident) -> None:
        explained = incident.explained
        first = next(iter(explained.causes), None)
        guess = first is not None and (first.confidence < LIKELY or first.id == "undetermined")
        label = "If so" if guess else "What to do" if incident.open else "Next time"
        self._remedies(explained.remedies, label)
        unknown = incident.cause == "undetermined" and not explained.remedies
        if incident.severity != "info" and incident.open and unknown:
            words = f"do not change settings on a guess: keep a checkpoint from before step {incident.onset:,}, and"
            self.label("What to do", Text(f"{words} read ten answers with their rewards from before and after it"))

    def _in_short(self, incident: Incident) -> None:
        """The leading finding, and the newest of each other kind."""
        self._head_of(incident)
        self._lead(incident.lead, incident.headline or "")
        newest = {finding.id: finding for finding in incident.findings if finding.id != incident.lead.id}
        for finding in list(newest.values())[:BESIDE]:
            self._beside(finding, sum(one.id == finding.id for one in incident.findings))
        if len(newest) > BESIDE:
            self.line(f"{len(newest) - BESIDE} more findings with --full", style="dim")

    def _beside(self, finding: Finding, times: int) -> None:
        """The newest finding of its kind in the same incident, in short."""
        line = Text.assemble((plain(finding.id), "bold"), (f"  {WORDS[finding.severity]}", STYLES[finding.severity]))
        line.append(
            f", {finding.state}, onset {finding.onset_step:,}" + (f", {times} times" if times > 1 else ""), "dim"
        )
        line.append(f": {plain(finding.summary)}")
        self.line(line)

    def _lead(self, finding: Finding, said: str) -> None:
        """The leading finding under the headline of its incident, which keeps the words it began with."""
        if not said:
            self.line(plain(finding.summary))
        elif finding.summary != said:
            when = "last" if finding.state == "resolved" else "now"
            self.line(f"{when}: {plain(finding.summary)}", 4)
        self._drawn(finding)
        if self.steps:
            self.line(self._seen(finding), 4, style="dim")

    def _finding(self, finding: Finding) -> None:
        word = (f"  {WORDS[finding.severity]}", STYLES[finding.severity])
        seen = f", {finding.state}, {self._seen(finding)}"
        self.line(Text.assemble((plain(finding.id), "bold"), word, (seen, "dim")))
        self.line(plain(finding.summary), 4)
        self._drawn(finding)

    @staticmethod
    def _seen(finding: Finding) -> str:
        later = f", last seen at {finding.last_step:,}" if finding.last_step > finding.detected_step else ""
        return f"onset {finding.onset_step:,}, detected at {finding.detected_step:,}{later}"

    def _drawn(self, finding: Finding) -> None:
        name = finding.evidence.get("metric")
        if isinstance(name, str):
            self._evidence(name, finding)

    def _evidence(self, name: str, finding: Finding) -> None:
        """The metric from well before the onset to the end of the finding, with the onset marked under it."""
        histories = self.analysis.run.histories
        whole = (
            histories.get(finding.attempt, self.analysis.run.history).view().series(name)
        )  # as it was, if rolled back
        onset = int(np.searchsorted(whole.steps, finding.onset_step))
        end = int(np.searchsorted(whole.steps, finding.last_step, side="right"))
        before = max(20, min(onset, (end - onset) or 1))
        start = max(0, onset - before)
        part = Series(whole.steps[start:end], whole.values[start:end])
        if len(part) < 4:
            return
        width = max(10, min(60, self.out.width - 14))
        positive = part.values[np.isfinite(part.values) & (part.values > 0)]
        wide = metric(name).kind == "positive" and len(positive) > 3 and positive.max() > 20 * np.median(positive[:5])
        line = sparkline(part, width, log=bool(wide), ascii_only=self.ascii)
        label = f"{plain(name)}, steps {part.steps[0]:,}-{part.steps[-1]:,}"
        self.line(label + (", logarithmic" if wide else ""), 4, style="dim")
        self.line(line, 4, style=STYLES[finding.severity])
        place = int((onset - start) / len(part) * len(line))
        self.line(f"{' ' * min(place, len(line) - 1)}▲ {finding.onset_step:,}", 4, style="dim")

    def _causes(self, causes: Sequence[Cause], said: str) -> None:
        """The causes with their reasons, but for what the finding itself has said already."""
        if not causes:
            self.label("Cause", Text("undetermined: no rule explains these findings"))
            return
        first, *others = causes
        known = first.id != "undetermined"
        text = Text.assemble((plain(first.id), "bold"), f" ({first.confidence:.0%})" if known else "")
        if rest := first.beyond(said):
            text.append(f": {plain(rest)}")
        elif not known:
            text.append(": the reason above is one possibility" if first.why.startswith("possibly ") else "")
        self.label("Likely cause" if known else "Cause", text)
        for other in others:
            rest = other.beyond(said)
            self.label(
                "Or else", Text(f"{plain(other.id)} ({other.confidence:.0%}){': ' if rest else ''}{plain(rest)}")
            )

    def _remedies(self, remedies: Sequence[RemedyAdvice], label: str) -> None:
        """The first in full and some others in one line each; with `everything` all in full."""
        first: dict[str, int] = {}
        full = len(remedies) if self.everything else 1
        for place, remedy in enumerate(remedies[: full + FIXES], 1):
            text = self._fix(remedy)
            if place <= full:
                same = first.setdefault(remedy.how, place)
                how = plain(remedy.how) if same == place else f"how: see {same}"
                text.append(f"\n{how}").append(f"\n{plain(remedy.why)}" if remedy.why else "", "dim")
            else:
                text.append(f"  {plain(remedy.why)}", "dim")
            self.label(label if place == 1 else "", _hanging(f"{place}.", self.shown(text)))
        if len(remedies) > full:
            self.label("", Text("--full shows how to make each of them", "dim"))
        if any(remedy.change for remedy in remedies):
            self.label("", Text("Make one change at a time, and check the reward before the next.", "dim"))

    def _fix(self, remedy: RemedyAdvice) -> Text:
        text = Text.assemble((plain(remedy.id), "bold"))
        if changes := change_text(remedy.change, self.analysis.run.source.trainer):
            text.append(f"  {changes}", "cyan")
        return text.append(f"  [{remedy.safety}]", "dim")

    def _journal(self) -> None:
        actions = self.analysis.run.actions
        if not actions:
            return
        tried = any(action.entry == "applied" for action in actions)
        self.title("Fixes tried" if tried else "Proposed but not applied")
        if len(actions) > MOST_ENTRIES:
            self.line(f"{len(actions) - MOST_ENTRIES:,} earlier entries are in the report", style="dim")
        for action in actions[-MOST_ENTRIES:]:
            text = Text(f"step {action.step:,}  ", "dim")
            text.append(f"{action.entry} {plain(action.remedy)}", "bold")
            text.append(f"  {plain(action.text)}" if action.text else "")
            self.line(text)

    def _outlook(self) -> None:
        if self.analysis.forecast is None:
            return
        self.title("Outlook")
        for line in self.analysis.forecast.lines:
            self.line(f"· {plain(line)}")

    def _healthy(self) -> None:
        if not self.analysis.healthy:
            return
        self.title("Healthy")
        for item in self.analysis.healthy:
            text = Text.assemble(("+ " if self.ascii else "✓ ", "green"), plain(item.what))
            text.append(f": {plain(item.why)}", "dim")
            self.line(text)

    def _not_checked(self) -> None:
        from stabilizer.trainers.logged_as import asked_for  # here, because readers tell errors in this page's words

        blind = self.analysis.blind_spots
        if not blind:
            return
        if not self.checks:
            self.title(f"Not checked because a metric is missing: {len(blind)}  (--full lists them and what to log)")
            if self.analysis.verdict == "too-short" or self.analysis.run.name == PASTED:
                wanted = Counter(need.partition("|")[0] for item in blind for need in item.needs)
                names = [name for name, _ in wanted.most_common(MOST_WANTED)]
                words = plain(asked_for(names, self.analysis.run.source.trainer))
                self.line(f"most of them need {words}", style="dim")
            return
        self.title("Not checked because a metric is missing")
        for item in blind:
            wants = plain(asked_for(item.needs, self.analysis.run.source.trainer))
            said = f"log {wants}" + (" (see the top of the page)" if item.why else "")
            self.line(Text.assemble(f"· {plain(item.id)}", (f": {said}", "dim")))

    def _restarts(self) -> list[str]:
        """What begins each further attempt; a later one may have gone back to before an earlier one."""
        lineages = self.analysis.run.histories.items()
        begun = [event for number, one in lineages for event in one.events if event.attempt == number]
        return [event.text for event in begun if event.kind == "resume"]

    def _notes(self) -> None:
        restarts = self._restarts()[: None if self.everything else RESTARTS]
        if notes := [*self.analysis.run.source.notes, *restarts]:
            self.title("About this log")
        for note in notes:
            self.line(f"· {plain(note)}", style="dim")

    def _changes(self) -> None:
        """The largest changes; of a run that is judged without a finding the first thing to read."""
        if not self.analysis.changes:
            return
        self.title("What changed")
        for change in self.analysis.changes[: None if self.everything else CHANGES]:
            self.line(f"· {plain(change.words)}")

    def _signs(self) -> None:
        """Facts of a short log, each with what to look at."""
        if not self.analysis.signs:
            return
        self.title("What stands out")
        for item in self.analysis.signs:
            self.line(f"· {plain(item.what)}. {plain(item.look[:1].upper() + item.look[1:])}")

    def _normal(self) -> None:
        """Patterns that look wrong and are not."""
        known = self.analysis.normal
        if not known or (self.analysis.verdict in ("critical", "crashed") and not self.everything):
            return  # what is wrong comes first
        self.title("Looks odd, is normal here")
        shown = known if self.everything else known[:NORMAL]
        for item in shown:
            self.line(f"· {plain(item.why)}")
        if len(shown) < len(known):
            self.line(f"{len(known) - len(shown)} more with --full", style="dim")

    def _closing(self) -> None:
        if self.analysis.run.name == PASTED:
            return
        if self.analysis.findings and self.analysis.run.source.steps:
            source = self.analysis.run.source
            path = source.files[0] if source.files else self.analysis.run.name
            if source.format == "stabilizer" and source.files:
                path = str(Path(path).parent.parent)
            self.out.print()
            hint = f"Plots and full report: stabilizer report {plain(path)}"
            self.out.print(self.shown(hint, "dim"), soft_wrap=True)


def _importance(incident: Incident) -> tuple[bool, int, bool, int]:
    """By which incidents are ordered: open, severe, measured rather than printed, early."""
    severity = SEVERITIES.index(incident.severity)
    return incident.open, severity, incident.lead.id not in MESSAGES, -incident.onset


def _hanging(number: str, text: Text) -> Table:
    """A numbered text whose further lines begin below its first word."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row(number, text)
    return grid


Changes = Mapping[str, tuple[float | None, float | None]]
"""Knob -> (value before, value after)."""


def change_text(change: Changes, trainer: str = "stabilizer") -> str:
    """A change of knobs as text: `beta 0 → 0.001`. Only our own trainer has a knob that scales the learning rate."""

    def said(knob: str, before: float | None, after: float | None) -> str:
        if knob == "control/lr_scale" and trainer != "stabilizer" and before and after:
            return f"learning rate × {after / before:g}"
        return plain(turned(knob, before, after).removeprefix("control/"))

    return ", ".join(said(knob, *values) for knob, values in change.items())
