"""Log-probabilities by the fast forward pass, for the models it supports."""

from __future__ import annotations

from torch import Tensor
from transformers import PreTrainedModel

from stabilizer.training.fast.forward import completion_states
from stabilizer.training.fast.weights import read, refusal
from stabilizer.training.rollout.logprobs import Scorer
from stabilizer.training.rollout.rollouts import Rollouts


class FastScorer(Scorer):
    """A `Scorer` that reads each prompt once for all its completions."""

    def _states(self, model: PreTrainedModel, rollouts: Rollouts) -> Tensor:
        if refusal(model) is not None:
            return super()._states(model, rollouts)
        return completion_states(
            read(model), rollouts.prompt_ids_BP, rollouts.prompt_mask_BP, rollouts.completion_ids_BT
        )
