"""One answer per prompt with advantages that compare answers.

What it checks
    Group size 1 where advantages are taken within a group.
Why it matters
    An answer compared with itself has advantage 0 at every token, or, where the trainer falls back on the raw reward,
    no baseline at all. veRL and prime-rl start such a run without complaint, and it trains on nothing. That 1 is a
    valid number of generations is said in places; it never is.
Exceptions
    PPO with a critic and REINFORCE with a batch baseline take one answer per prompt.
Fix
    8 answers, with fewer prompts if memory is short; at least 2.
References
    DeepSeekMath (arXiv:2402.03300), equation of the advantage; TRL's own check since 0.15.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.preflight.rules.rejected import asked
from stabilizer.trainers.quantities import View

ID = "group/single"


def check(view: View) -> Iterator[Finding]:
    """One finding, unless the trainer refuses it itself."""
    size = view.number("group_size")
    if size is None or size > 1 or not view.value("groups"):
        return
    key = view["group_size"].key
    if any(v.key == key for v in asked(view, view.config.plain())):
        return
    yield found(
        view,
        "critical",
        view["group_size"],
        f"{size:g} answer per prompt, and advantages compare the answers to one prompt: there is nothing to compare",
        why=f"{view.config.trainer.title} starts such a run without complaint and trains on nothing.",
        how="8 answers per prompt; at least 2, never 1",
        change={key: 8},
        sure="certain",
        source="arXiv:2402.03300; huggingface/trl grpo_config.py",
    )
