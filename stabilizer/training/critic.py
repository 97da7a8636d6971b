"""What the policy's prospects are worth, token by token: the critic of PPO.

Shape letters: B rows, T completion positions, H hidden size. The value at a position is of the text before it: what is
still to come when the policy is about to choose that token.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stabilizer.training.rollout.logprobs import Scorer
from stabilizer.training.rollout.rollouts import Rollouts


class Critic(nn.Module):
    """A linear head on hidden states: its own model's (`separate`) or the policy's (`shared`).

    The head starts at 0, so that the first advantages are returns and not the noise of random weights.
    """

    def __init__(
        self, kind: Literal["separate", "shared"], hidden_size: int, trunk: PreTrainedModel | None, scorer: Scorer
    ):
        super().__init__()
        self.shared = kind == "shared"
        self.trunk = trunk
        self._scorer = scorer
        self.head = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def values(self, rollouts: Rollouts, hidden_BTH: Tensor | None) -> Tensor:
        """Values of all completion positions, in float32; `hidden_BTH` is the policy's, when it is shared."""
        if self.trunk is not None:
            hidden_BTH = self._scorer.hidden_states(self.trunk, rollouts)
        assert hidden_BTH is not None, "a shared critic reads the policy's hidden states"
        with torch.autocast(hidden_BTH.device.type, enabled=False):
            value_BT1: Tensor = self.head(hidden_BTH.float())
            return value_BT1[:, :, 0]
