"""No KL term where one is likely to be missed.

What it checks
    KL weight 0 in loss and reward together with a long run (2,000 steps and more at 2e-6 and above), a high learning
    rate (5e-6 and above on all weights), or answers that are learned from more than once.
Why it matters
    Nothing pulls the policy back to its starting point, and the KL to it is often not measured either: drift adds up
    unseen. A gradient norm that climbs while the reward rises is another matter. It comes from advantages that are
    divided by the spread of a group, and a KL weight of 0.001 does not change it (docs/case-studies/trl-beta0.md).
Exceptions
    Short runs, small learning rates, adapters and verifiable rewards do without a KL term, and DAPO and Dr. GRPO leave
    it out on purpose: then it is only mentioned. Trainers without a reference model are left alone.
Fix
    A small weight, 0.001. In most trainers it needs a restart, because without a KL term no reference model is loaded.
    It delays a collapse more surely than it prevents one; passes and learning rate matter as much.
References
    huggingface/trl#2980 (settled with beta 0.001); huggingface/open-r1#403 (0.001 only delays); arXiv:2503.14476;
    sample_runs/case-trl-beta0.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found, number
from stabilizer.trainers.quantities import View

ID = "kl/no-anchor"
RESTART = "; it needs a restart, because without it no reference model is loaded"
LONG, FAST, HIGH = 2000, 2e-6, 5e-6


def check(view: View) -> Iterator[Finding]:
    """One finding, when neither loss nor reward holds the policy."""
    fix, at = view.config.trainer.kl_fix, view["kl_loss"]
    if not number(view, "kl_loss") <= 0 or (view.number("kl_reward") or 0) > 0 or fix is None:
        return
    reasons = list(_reasons(view))
    if not reasons:
        yield found(
            view,
            "info",
            at,
            "no KL term: nothing ties the policy to the model it starts from",
            why="Common for verifiable rewards and short runs. KL to the start is then not measured either.",
            how="watch entropy and length instead; a small weight makes the KL visible",
            sure="likely",
            source="arXiv:2503.14476; huggingface/trl#4040",
        )
        return
    change = dict(fix(view.ask))
    weight = next(new for new in change.values() if isinstance(new, float))
    restart = RESTART if view.config.trainer.name != "stabilizer" else ""
    yield found(
        view,
        "warn",
        at,
        f"no KL term, with {' and '.join(reasons)}",
        why="Nothing ties the policy to its start, so drift adds up. This is not why a gradient norm (logged before"
        " clipping) climbs while the reward rises: that comes from dividing advantages by the spread of a group.",
        how=f"a small weight, {weight:g}{restart}. It delays a collapse, so look at passes and learning rate as well",
        change=change,
        sure="likely",
        source="huggingface/trl#2980, huggingface/open-r1#403, sample_runs/case-trl-beta0",
    )


def _reasons(view: View) -> Iterator[str]:
    """What makes a run without a KL term risky."""
    lr, steps, inner = (number(view, name) for name in ("lr", "steps", "inner"))
    if lr >= HIGH and not view.value("lora"):
        yield f"a learning rate of {lr:g}"
    if steps >= LONG and lr >= FAST:
        yield f"{steps:,.0f} steps"
    if inner > 1:
        yield f"{inner:g} passes over every answer"
