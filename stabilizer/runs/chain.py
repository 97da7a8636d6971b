"""The hash chain of the journal: each entry holds the hash of the one before, so an edited or missing line shows."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path

from stabilizer.core.records import Action, encode
from stabilizer.runs.reader import read_records


def chain_hash(action: Action) -> str:
    """The hash an entry must carry. It covers all its fields but the hash itself, `prev` among them."""
    return hashlib.sha256(encode(replace(action, hash=""))).hexdigest()


class JournalEnd:
    """The end of a journal, at which the next entry is added."""

    def __init__(self, path: Path):
        entries: list[Action] = read_records(path, Action).records
        self.applied = {entry.action for entry in entries if entry.entry == "applied"}
        """Actions that were ever applied."""
        self._hash, self._n = (entries[-1].hash, entries[-1].n + 1) if entries else ("", 0)

    def add(self, action: Action, attempt: int) -> Action:
        """The entry with its attempt, time and place in the chain."""
        entry = replace(action, attempt=attempt, t=time.time(), n=self._n, prev=self._hash, hash="")
        entry = replace(entry, hash=chain_hash(entry))
        self._hash, self._n = entry.hash, self._n + 1
        if entry.entry == "applied":
            self.applied.add(entry.action)
        return entry
