"""A KL term in the loss and another in the reward.

What it checks
    Both weights above 0.
Why it matters
    The same drift is penalized twice, by two estimators, with two weights that were not tuned together. The logged KL
    belongs to only one of them.
Exceptions
    None is known to help. veRL prints a notice and continues; SkyRL refuses.
Fix
    Keep the one in the loss, switch off the one in the reward.
References
    `verl/utils/config.py`; OpenRLHF/OpenRLHF#768.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "kl/doubled"


def check(view: View) -> Iterator[Finding]:
    """One finding, at the key of the penalty in the reward."""
    loss, reward = view.number("kl_loss"), view.number("kl_reward")
    if not loss or not reward or loss < 0 or reward < 0 or view["kl_loss"].key == view["kl_reward"].key:
        return
    at = view["kl_reward"]
    off: object = False if isinstance(view.ask.raw(at.key), bool) else 0.0
    yield found(
        view,
        "warn",
        at,
        f"KL is penalized twice: {loss:g} in the loss and {reward:g} in the reward",
        why="Two weights for one drift; neither was tuned for the other, and the KL in the log is only one of them.",
        how="keep the one in the loss",
        change={at.key: off},
        sure="certain",
        source="verl/utils/config.py; OpenRLHF/OpenRLHF#768",
    )
