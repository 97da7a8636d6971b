"""A setting is not what it was, or not what it was set to. The effect is known without looking at any curve."""

from __future__ import annotations

from functools import partial

from stabilizer.incidents.diagnosis.case import Case
from stabilizer.incidents.diagnosis.rules.base import NO, TURNED, Table, Verdict

DOES = {
    "control/epsilon_high": ("clip-too-wide", ""),
    "control/epsilon_low": ("clip-too-wide", ""),
    "control/max_grad_norm": ("clip-too-wide", ""),
    "control/inner_epochs": ("too-many-epochs", ""),
    "control/minibatches": ("too-many-epochs", ""),
    "control/lr_scale": ("lr-too-high", "lr-too-low"),
    "optim/lr": ("lr-too-high", "lr-too-low"),
    "control/beta": ("pinned-by-kl", "no-kl-anchor"),
    "policy/beta": ("pinned-by-kl", "no-kl-anchor"),
    "control/entropy_coef": ("entropy-bonus-too-large", "exploration-exhausted"),
    "policy/entropy_coef": ("entropy-bonus-too-large", "exploration-exhausted"),
    "control/entropy_target": ("entropy-bonus-too-large", "exploration-exhausted"),
    "control/temperature": ("entropy-bonus-too-large", "exploration-exhausted"),
    "control/prompts": ("", "batch-too-small"),
    "batch/prompts_drawn": ("", "batch-too-small"),
    "control/group_size": ("", "batch-too-small"),
    "batch/group_size": ("", "batch-too-small"),
    "control/max_completion": ("", "capped-length"),
    "rollout/length_max": ("", "capped-length"),
}
"""The cause that more and less than the intended value leads to; empty where it does no harm with a name."""


def _because(cause: str, case: Case) -> Verdict:
    """The cause of the first setting in the finding whose change leads to it."""
    found = case.find("system/invariant")
    if found is None:
        return NO
    for name in found.evidence.get("settings", ()):
        for up, does in zip((True, False), DOES.get(name, ("", "")), strict=True):
            series = case.view.series(name)
            before = series.between(0, found.onset_step - 1).last(1).values
            wanted = before[0] if len(before) else found.evidence.get("baseline")
            now = series.values[-1] if len(series) else None
            if does == cause and now is not None and wanted is not None and now != wanted and (now > wanted) == up:
                return TURNED, [found.summary]
    return NO


RULES: Table = tuple(
    (cause, partial(_because, cause)) for cause in dict.fromkeys(c for pair in DOES.values() for c in pair if c)
)
