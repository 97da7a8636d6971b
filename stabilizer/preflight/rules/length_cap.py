"""Answers cut before they can end.

What it checks
    A cap below 2,048 tokens on a model whose name says that it reasons at length; prompt and answer caps that together
    exceed what the engine holds; Search-R1's rule for its turns.
Why it matters
    A cut answer has no final result, so it scores 0 whatever its reasoning was worth; the policy learns to be brief or
    learns nothing. When all answers of a group are cut the group has no signal at all.
Exceptions
    A short cap on purpose, with a reward that asks for brevity. Base models that reason briefly.
Fix
    A longer cap, or cut answers masked from the loss. The cap is right when fewer than 10 % of answers are cut.
References
    modelscope/ms-swift#4950; DAPO (arXiv:2503.14476), overlong filtering; the comment in Search-R1's train_ppo.sh.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "length/cap"
REASONS = re.compile(r"r1-distill|deepseek-r1|qwq|thinking|qwen3-[\d.]+b(?:-a\d+b)?$|openthinker|-o1|magistral", re.I)
SHORT = 2048


def check(view: View) -> Iterator[Finding]:
    """Findings about what is too short for what."""
    cap, prompt, room = (view.number(name) for name in ("max_completion", "max_prompt", "context"))
    model = str(view.value("model") or "")
    if cap and cap < SHORT and REASONS.search(model):
        yield found(
            view,
            "warn",
            view["max_completion"],
            f"answers are cut after {cap:g} tokens, and {model.rpartition('/')[2]} reasons for thousands",
            why="A cut answer scores 0 whatever its reasoning was worth, and a group cut whole teaches nothing.",
            how="4096 and more, judged by the share of cut answers in the first steps (below 10 %)",
            change={view["max_completion"].key: 4096},
            sure="likely",
            source="modelscope/ms-swift#4950, arXiv:2503.14476",
        )
    if cap and prompt and room and prompt + cap > room:
        yield found(
            view,
            "warn",
            view["context"],
            f"the engine holds {room:g} tokens; prompts of {prompt:g} and answers of {cap:g} need {prompt + cap:g}",
            why="Answers to long prompts are cut early, without being counted as such by every trainer.",
            how=f"{prompt + cap:g}",
            change={view["context"].key: int(prompt + cap)},
            sure="certain",
            source="arithmetic",
        )
    yield from _turns(view)


def _turns(view: View) -> Iterator[Finding]:
    if view.config.trainer.name != "search-r1":
        return
    start, answer, seen = (
        view.ask.num(f"data.{k}") for k in ("max_start_length", "max_response_length", "max_obs_length")
    )
    turns, holds = view.ask.num("max_turns"), view.ask.num("data.max_prompt_length")
    if None in (start, answer, seen, turns, holds):
        return
    assert start is not None and answer is not None and seen is not None and turns is not None and holds is not None
    needs = start + answer * (turns - 1) + seen * turns
    if needs > holds:
        yield found(
            view,
            "warn",
            "data.max_prompt_length",
            f"max_prompt_length {holds:g} is less than {turns:g} turns need: {start:g} + {answer:g} x {turns - 1:g}"
            f" + {seen:g} x {turns:g} = {needs:g}",
            why="The conversation is cut from the left when it grows, so the question itself is lost.",
            how=f"{needs:g}",
            change={"data.max_prompt_length": int(needs)},
            sure="certain",
            source="comment in Search-R1's train_ppo.sh; not checked by the trainer",
        )
