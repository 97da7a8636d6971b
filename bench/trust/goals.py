"""Which goals of reliability, speed and security each row of the table answers, and where the others are measured.

R: reliability, P: speed, C: the security checklist. The words are in short what is promised.
"""

from __future__ import annotations

from collections.abc import Mapping

OF: Mapping[str, str] = {
    "No acknowledged row is lost": "R1",
    "The newest saved state is whole": "R7",
    "Every prefix of a file is readable": "R2",
    "A failing disk loses nothing that fits the queue": "R3",
    "A full disk loses nothing": "R4",
    "Several processes write beside each other": "R9",
    "Numbers come back as they were written": "R12",
    "Runs of earlier versions stay readable": "R14",
    "A state that does not load is passed over, with a word": "R7",
    "Resuming is bit-identical and `replay --check` agrees": "R8",
    "A change that is cut off is done or undone": "R11",
    "A run of two processes survives the loss of one": "R8",
    "Training survives its monitor, with the same weights": "R13",
    "A copy for another tracker that fails or hangs harms nothing": "R13",
    "Writing 100 metrics takes at most 0.3 ms": "R5",
    "A million rows add at most 50 MB": "R10",
    "A million numbers are read in a second": "P1 P7",
    "Every request is answered 2xx to 4xx in time": "C11",
    "Text of a run is only ever text": "C8 C9 C10",
    "Host, Origin, token and headers guard every request": "C1 C2 C3 C4 C6",
    "Nothing outside the runs is read": "C7",
    "A damaged run costs only itself": "C11 C12",
    "Viewers write nothing but requests, and connect to nothing": "C5 R6",
    "Secrets are not recorded": "C14",
    "Notifications and answers are guarded": "C14",
    "Nothing unsafe stands in the source": "C13",
    "Remedies change only knobs within their bounds": "C15 R11",
    "No known hole in a locked package": "C16",
    "Every locked package has a hash": "C16",
}
"""Promise -> the goals it answers."""
ELSEWHERE: Mapping[str, str] = {
    "P2": "`bench dashboard`: a poll with a new step",
    "P3": "`tests/figures`: points and size of every figure",
    "P4": "`bench dashboard`: the list of 1,000 runs",
    "P5": "`bench dashboard`: the first page",
    "P6": "`bench dashboard`: polls beside a comparison",
}
"""Goals that no row answers -> where they are measured. On a machine that does other things their times mean little."""
GOALS = (
    *(f"R{number}" for number in range(1, 15)),
    *(f"P{number}" for number in range(1, 8)),
    *(f"C{number}" for number in range(1, 17)),
)
