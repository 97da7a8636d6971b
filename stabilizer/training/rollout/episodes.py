"""The scored completions of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from stabilizer.core.records import Sample
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.rollout.turns import Outcome
from stabilizer.training.tasks import Problem, Score


class Episodes(NamedTuple):
    """The data a step can learn from, per row: a problem, a completion, its score, and its outcome in an
    environment."""

    problems: list[Problem]
    rollouts: Rollouts
    scores: list[Score]
    outcomes: list[Outcome]
    prompts_drawn: int
    greedy: Episodes | None = None
    """The greedy completion of each prompt, for advantages that are measured from it."""

    def samples(self, step: int, groups: int, advantages: Callable[[int], list[float]]) -> list[Sample]:
        """The first groups in readable form."""
        rollouts, size = self.rollouts, self.rollouts.group_size
        count = min(groups * size, len(self.scores))
        advantage = advantages(count)
        lengths, truncated = rollouts.length_B[:count].tolist(), rollouts.truncated_B[:count].tolist()
        return [
            Sample(
                step=step,
                group=row // size,
                prompt=self.problems[row].prompt,
                completion=rollouts.texts[row],
                reward=self.scores[row].reward,
                advantage=advantage[row],
                rewards={**self.scores[row].components, **self.scores[row].extra},
                length=lengths[row],
                truncated=truncated[row],
                solved=None if self.scores[row].failed else self.scores[row].solved,
                expected="" if self.problems[row].answer is None else str(self.problems[row].answer),
            )
            for row in range(count)
        ]


def with_tokens(samples: list[Sample], rollouts: Rollouts, tokenizer: PreTrainedTokenizerBase) -> list[Sample]:
    """The same samples with each of their tokens and its log-probability."""
    told = []
    for row, sample in enumerate(samples):
        span = int(rollouts.span_B[row])
        ids, chosen = rollouts.completion_ids_BT[row, :span].tolist(), rollouts.mask_BT[row, :span].tolist()
        logps = rollouts.logp_BT[row, :span].tolist()
        words = tokenizer.batch_decode([[id] for id in ids], clean_up_tokenization_spaces=False)
        likely = tuple(round(logp, 4) if own else None for logp, own in zip(logps, chosen, strict=True))
        told.append(replace(sample, tokens=tuple(words), logps=likely))
    return told
