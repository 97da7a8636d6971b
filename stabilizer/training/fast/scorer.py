"""Log-probabilities by the fast forward pass, for the models it supports."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from stabilizer.training.fast.forward import completion_states
from stabilizer.training.fast.weights import read, refusal
from stabilizer.training.rollout.logprobs import Scorer
from stabilizer.training.rollout.rollouts import Rollouts


class FastScorer(Scorer):
    """A `Scorer` that reads each prompt once for all its completions."""

    def hidden_states(self, model: PreTrainedModel, rollouts: Rollouts) -> Tensor:
        if refusal(model) is not None:
            return super().hidden_states(model, rollouts)
        longest, written = int(rollouts.prompt_mask_BP.sum(1).max()), int(rollouts.span_B.max())
        states_BTH = completion_states(
            read(model),
            rollouts.prompt_ids_BP[:, -longest:],
            rollouts.prompt_mask_BP[:, -longest:],
            rollouts.completion_ids_BT[:, :written],
        )
        return pad(states_BTH, (0, 0, 0, rollouts.completion_ids_BT.shape[1] - written))
