"""Too few answers per prompt for advantages that compare answers.

What it checks
    Group size 1 where advantages are taken within a group, and groups of 2 or 3.
Why it matters
    An answer compared with itself has advantage 0 at every token, or, where the trainer falls back on the raw reward,
    no baseline at all. veRL and prime-rl start such a run without complaint, and it trains on nothing. That 1 is a
    valid number of generations is said in places; it never is.
    With rewards of 0 or 1, a group of g answers ties with a chance of 2^(1-g) or more: half of the pairs teach nothing
    at best. Divided by its own spread, every other pair gets the same two advantages, whatever the margin.
Exceptions
    PPO with a critic and REINFORCE with a batch baseline take one answer per prompt. Pairs can work as well as groups
    where prompts are plentiful and rewards have many values.
Fix
    8 answers, with fewer prompts if memory is short; at least 2.
References
    DeepSeekMath (arXiv:2402.03300), equation of the advantage; TRL's own check since 0.15; arXiv:2510.00977 on pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.preflight.rules.rejected import asked
from stabilizer.trainers.quantities import View

ID = "group/small"
USUAL = 8
"""Answers per prompt of the common recipes, which tie in under 1 % of groups at a success rate of a half."""
SMALL = 3
"""Answers per prompt up to which a quarter of the groups tie at best."""


def check(view: View) -> Iterator[Finding]:
    """One finding, unless the trainer refuses it itself."""
    size = view.number("group_size")
    if size is None or size > SMALL or not view.value("groups"):
        return
    key = view["group_size"].key
    if any(v.key == key for v in asked(view, view.config.plain())):
        return
    if size > 1:
        yield _few(view, size)
        return
    yield found(
        view,
        "critical",
        view["group_size"],
        f"{size:g} answer per prompt, and advantages compare the answers to one prompt: there is nothing to compare",
        why=f"{view.config.trainer.title} starts such a run without complaint and trains on nothing.",
        how=f"{USUAL} answers per prompt; at least 2, never 1",
        change={key: USUAL},
        sure="certain",
        source="arXiv:2402.03300; huggingface/trl grpo_config.py",
    )


def _few(view: View, size: float) -> Finding:
    """Groups that tie often."""
    alike = "Divided by their spread, the others get +0.71 and -0.71 whatever the margin." if size == 2 else ""
    return found(
        view,
        "info",
        view["group_size"],
        f"{size:g} answers per prompt: with rewards of 0 or 1, {2 ** (1 - size):.0%} of the groups or more tie"
        f" ({2.0 ** (1 - USUAL):.1%} of groups of {USUAL} at best)",
        why=f"A group that ties has no gradient. {alike}".strip(),
        how=f"{USUAL} answers per prompt, with fewer prompts if memory or time is short",
        sure="certain",
        source="arXiv:2402.03300, arXiv:2510.00977",
    )
