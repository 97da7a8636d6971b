"""Two KL keys that only seem to contradict each other, or one that is not used.

What it checks
    A reward KL weight of 0 beside a loss KL weight (EasyR1 of early 2025), and a KL weight that is written while the
    switch that would use it is off.
Why it matters
    "Inconsistent KL coefficients" have been blamed for flat runs. The keys are two places for one term: 0.0 in the
    reward and 1e-3 in the loss means KL in the loss only, as that version shipped. Equal values would switch on both.
Exceptions
    None; this explains.
Fix
    Keep one place. Remove the unused weight, so that it does not mislead the next reader.
References
    hiyouga/EasyR1#24 and `examples/config.yaml` of February 2025.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.easyr1.config import is_old
from stabilizer.trainers.quantities import View

ID = "kl/placement"


def check(view: View) -> Iterator[Finding]:
    """An explanation of two keys, or of an idle one."""
    yield from _two_places(view)
    for weight, switch in view.config.trainer.read_with.items():
        if weight in view.config.settings and not view.ask.flag(switch) and view.ask.num(weight):
            yield found(
                view,
                "info",
                weight,
                f"{weight} is written, but {switch} is off, so it is not used",
                why="A reader of the configuration will expect a KL term that is not there.",
                how=f"{switch}: true if it is wanted, else take it out",
                sure="certain",
                source="the trainer's loss, which asks the switch first",
            )


def _two_places(view: View) -> Iterator[Finding]:
    """EasyR1 of early 2025, with a weight of 0 for the reward beside one for the loss."""
    loss, reward = view.number("kl_loss"), view.number("kl_reward")
    old = view.config.trainer.name == "easyr1" and is_old(view.ask)
    if old and "algorithm.kl_coef" in view.config.settings and loss and not reward:
        yield found(
            view,
            "info",
            "algorithm.kl_coef",
            f"algorithm.kl_coef {reward or 0:g} beside worker.actor.kl_loss_coef {loss:g} is no contradiction:"
            " the KL term is in the loss only",
            why="The first weighs a penalty in the reward, the second a term in the loss; this is how the version"
            " shipped. Making them equal would switch on both.",
            how="keep one place, the loss; newer versions have one algorithm.kl_coef for whichever is on",
            sure="certain",
            source="hiyouga/EasyR1 of February 2025, examples/config.yaml",
        )
