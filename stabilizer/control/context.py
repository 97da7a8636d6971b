"""Shared state of the remedy engine: the run, its watch, the journal and its fold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stabilizer.control.budget import affordable
from stabilizer.control.host import Host
from stabilizer.control.probe import Probe
from stabilizer.control.trial import SETTLE, Trial
from stabilizer.core.knobs import Controls
from stabilizer.core.records import Action, Cause, Finding, JournalEntry, Reason
from stabilizer.incidents.watch import Watch
from stabilizer.remedies.situation import Mode, Situation
from stabilizer.runs.history import RunView
from stabilizer.runs.journal import Memory, by_remedies, fold, newest


class Ledger:
    """The journal of remedies' actions and its fold, which is updated with every entry."""

    def __init__(self, host: Host, earlier: Iterable[Action]):
        self._host = host
        self._entries = by_remedies(earlier)
        self.memory: Memory = fold(self._entries)

    def write(self, action: Action) -> None:
        """Write an entry."""
        self._entries.append(self._host.journal(action))
        self.memory = fold(self._entries)

    def record(self, trial: Trial, entry: JournalEntry, step: int, text: str, reason: Reason = "", **data: Any) -> None:
        """Write an entry about a trial."""
        self.write(
            Action(
                trial.action,
                entry,
                trial.remedy.id,
                step,
                trial.incident,
                safety=trial.remedy.safety,
                change=trial.change,
                text=text,
                data=data,
                origin="remedy",
                reason=reason,
            )
        )

    def latest(self) -> dict[str, Action]:
        """The newest entry of every action, in the order in which they began."""
        return newest(self._entries)

    def next_id(self) -> str:
        """The name of the next action."""
        return f"a{self.memory.numbered + 1}"


@dataclass
class Context:
    """The run as the engine sees it."""

    mode: Mode
    controls: Controls
    watch: Watch
    host: Host
    ledger: Ledger
    fork_steps: int = 0
    """Steps for which a fix is tried on a copy of the run, next to a copy without it, before it is applied; 0 for no
    copies."""
    probed: tuple[tuple[int, int, int], Probe] | None = None
    """The newest comparison of weights, with its attempt, its step and the checkpoint's."""

    @property
    def memory(self) -> Memory:
        """The trials so far."""
        return self.ledger.memory

    @property
    def acts(self) -> bool:
        """Whether fixes are applied without asking."""
        return self.mode in ("auto-safe", "auto-full")

    def members(self, number: int) -> tuple[Finding, ...]:
        """Unresolved findings of an incident that need a remedy, without those that a fix explained or made
        harmless."""
        memory = self.memory
        return tuple(
            f
            for f in self.watch.active()
            if f.incident == number
            and f.severity != "info"
            and not (follows_restoring(memory, f) or reward_is_back(memory, f))
            and (number, f.id) not in memory.outlived
        )

    def situation(self, number: int, view: RunView, *, cause: Cause | None = None, asked: str = "") -> Situation:
        """An incident as a value, with its most likely cause unless another is given."""
        incident = self.watch.incident(number)
        likeliest = incident.causes[0] if incident.causes else Cause("undetermined", 0.0, "")
        return Situation(
            incident=number,
            cause=cause or likeliest,
            onset=incident.onset_step,
            members=self.members(number),
            view=view,
            knobs=self.controls.values(),
            active=tuple(f for f in self.watch.active() if f.incident == number),
            had=frozenset(incident.findings),
            findings=tuple(self.watch.findings()),
            list_checkpoints=self.controls.checkpoints,
            memory=self.memory,
            affordable=affordable(self.memory, view),
            restarts=self.controls.restarts,
            mode=self.mode,
            asked=asked,
        )


def follows_restoring(memory: Memory, finding: Finding) -> bool:
    """Whether a reward changed because a setting was restored, which changes its level and is no loss."""
    near = memory.restored is not None and abs(finding.onset_step - memory.restored) <= SETTLE
    return near and finding.id.startswith("reward/")


def reward_is_back(memory: Memory, finding: Finding) -> bool:
    """Whether a finding is about a reward that failed and has recovered since.

    It stays open until it has been quiet for long enough. The recovered reward shows whether the policy was damaged.
    """
    return finding.id.startswith("reward/") and finding.onset_step < memory.came.get(finding.incident, 0)
