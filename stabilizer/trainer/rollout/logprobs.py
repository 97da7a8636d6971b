"""Log-probabilities and entropy of given completions: the learner's half of what the sampler reported.

Shape letters: B rows, P prompt positions, T completion positions, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stabilizer.trainer.rollout.rollouts import Rollouts, cat_mask, position_ids


def completion_logps(
    model: PreTrainedModel, rollouts: Rollouts, temperature: float, *, entropy_grad: bool = False
) -> tuple[Tensor, Tensor]:
    """(logp_BT, entropy_BT) of the completions, both at the sampling temperature.

    At another temperature the ratio to the sampler's log-probabilities would not be 1 on fresh rollouts. Logits are
    made for the positions that predict a completion token and no others; the entropy has no gradient unless paid for.
    """
    num_tokens = rollouts.completion_ids_BT.shape[1]
    ids = torch.cat([rollouts.prompt_ids_BP, rollouts.completion_ids_BT], dim=1)[:, :-1]
    mask = cat_mask(rollouts)[:, :-1] if rollouts.padded else None
    logits_BTV = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=None if mask is None else position_ids(mask),
        use_cache=False,
        logits_to_keep=num_tokens,
    ).logits
    all_logp_BTV = torch.log_softmax(logits_BTV.float() / temperature, dim=-1)
    logp_BT = all_logp_BTV.gather(2, rollouts.completion_ids_BT[:, :, None])[:, :, 0]
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        probability_BTV = all_logp_BTV.exp()
        # 0 * log 0 = 0, also where a model forbids a token with a logit of -inf; NaN stays NaN
        entropy_BT = -(probability_BTV * all_logp_BTV).masked_fill(probability_BTV == 0, 0.0).sum(-1)
    return logp_BT, entropy_BT
