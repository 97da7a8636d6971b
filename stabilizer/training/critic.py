"""The critic of PPO: it predicts the return of the policy, token by token.

Shape letters: B rows, T completion positions, H hidden size. The value at a position depends on the text before it: it
predicts the rewards still to come when the policy is about to choose that token.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stabilizer.training.rollout.logprobs import Scorer
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.sharding import within


class Critic(nn.Module):
    """A linear head on hidden states of a separate model (`separate`) or of the policy (`shared`).

    The head starts at 0, so that the first advantages are returns and not noise from random weights.
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
        """Values of all completion positions, in float32; `hidden_BTH` is the policy's hidden states for a shared
        critic."""
        return within(self, lambda: self._values(rollouts, hidden_BTH))

    def _values(self, rollouts: Rollouts, hidden_BTH: Tensor | None) -> Tensor:
        if self.trunk is not None:
            hidden_BTH = self._scorer.hidden_states(self.trunk, rollouts)
        assert hidden_BTH is not None, "a shared critic reads the policy's hidden states"
        with torch.autocast(hidden_BTH.device.type, enabled=False):
            value_BT1: Tensor = self.head(hidden_BTH.float())
            return value_BT1[:, :, 0]
