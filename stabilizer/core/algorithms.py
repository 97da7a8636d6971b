"""Named algorithms as configuration keys. A key given by the user wins.

An algorithm is an advantage function, a surrogate, an average and perhaps a critic; the training loop never checks its
name. Values are those of the papers. Keys left out keep their default, or depend on the task (beta, learning rate).
"""

from __future__ import annotations

from typing import Any

_CLIPPED: dict[str, Any] = {
    "policy.advantage": "group_std",
    "policy.surrogate": "clip",
    "policy.ratio": "token",
    "policy.average": "token",
    "policy.epsilon_low": 0.2,
    "policy.epsilon_high": 0.2,
    "critic.kind": "none",
}
"""What most of them share: PPO's clipped ratio, with rewards standardised in their group and no critic."""

_REINFORCE: dict[str, Any] = {
    "policy.surrogate": "reinforce",
    "policy.ratio": "token",
    "policy.average": "constant",
    "policy.kl_in": "reward",
    "policy.kl_kind": "k1",
    "policy.inner_epochs": 1,
    "policy.minibatches": 1,
    "critic.kind": "none",
}
"""REINFORCE with one update a batch, the KL in the reward and no critic."""

ALGORITHMS: dict[str, dict[str, Any]] = {
    # Shao et al. 2024, DeepSeekMath, arXiv:2402.03300, as it is run today: mean over tokens (the paper's own average is
    # `sequence`).
    "grpo": {**_CLIPPED, "policy.kl_in": "loss"},
    # The same with DAPO's clip range, which leaves rare good tokens more room (arXiv:2503.14476).
    "grpo_clip_higher": {**_CLIPPED, "policy.epsilon_high": 0.28, "policy.kl_in": "loss"},
    # Liu et al. 2025, arXiv:2503.20783: neither the deviation nor the length is divided by, and there is no KL.
    # Nor an entropy bonus: beside advantages that are not scaled up, and with no KL to hold the policy, that of the
    # task `addition` makes it random within ten steps.
    "dr_grpo": {
        **_CLIPPED,
        "policy.advantage": "group_mean",
        "policy.average": "constant",
        "policy.beta": 0.0,
        "policy.entropy_coef": 0.0,
    },
    # Yu et al. 2025, arXiv:2503.14476: clip-higher, mean over tokens, dynamic sampling, soft overlong penalty, no KL.
    "dapo": {
        **_CLIPPED,
        "policy.epsilon_high": 0.28,
        "policy.beta": 0.0,
        "policy.filter_groups": "resample",
        "policy.overlong_buffer": 0.2,  # share of max_completion: 4,096 of 20,480 tokens in the paper
        "policy.overlong_factor": 1.0,
    },
    # Zheng et al. 2025, arXiv:2507.18071, sec. 5.1. The ratio is a mean over a completion, hence the narrow range. For
    # completions of a few tokens it is too narrow (after the first update of a batch nearly all is clipped): widen it.
    "gspo": {
        **_CLIPPED,
        "policy.ratio": "sequence",
        "policy.average": "sequence",
        "policy.epsilon_low": 3e-4,
        "policy.epsilon_high": 4e-4,
    },
    # Zhao et al. 2025, arXiv:2507.20673: a geometric mean of the ratios instead of the arithmetic one of PPO,
    # which a single extreme ratio can move. The range is of the logarithm of a ratio.
    "gmpo": {
        **_CLIPPED,
        "policy.surrogate": "geometric",
        "policy.average": "sequence",
        "policy.epsilon_low": 0.4,
        "policy.epsilon_high": 0.4,
    },
    # MiniMax-M1, 2025, arXiv:2506.13585: no lower bound on the weight, no KL. The upper bound isn't given there; a
    # weight of at most 5 is within the range that ScaleRL (arXiv:2510.13786) found to make no difference.
    "cispo": {
        **_CLIPPED,
        "policy.surrogate": "cispo",
        "policy.epsilon_low": 1.0,
        "policy.epsilon_high": 4.0,
        "policy.beta": 0.0,
    },
    # Gao et al. 2025, arXiv:2511.20347. Steeper for worse answers: they push up every token that was not chosen.
    "sapo": {
        "policy.advantage": "group_std",
        "policy.surrogate": "sapo",
        "policy.ratio": "token",
        "policy.average": "sequence",
        "policy.gate": (1.0, 1.05),
        "critic.kind": "none",
    },
    # Liu et al. 2026, arXiv:2601.05242: every reward is standardised in its group before they are added.
    "gdpo": {
        "policy.advantage": "per_reward",
        "policy.surrogate": "clip",
        "policy.ratio": "token",
        "policy.average": "token",
        "policy.kl_in": "loss",
        "critic.kind": "none",
    },
    # Cui et al. 2025, arXiv:2505.22617: both slow the fall of entropy at the few tokens that cause it. Shares of tokens
    # are those of the paper for 7B models; KL-Cov replaces the clipping, hence the widest range.
    "clip_cov": {
        "policy.advantage": "group_std",
        "policy.surrogate": "clip",
        "policy.ratio": "token",
        "policy.average": "token",
        "policy.beta": 0.0,
        "policy.clip_cov": 2e-4,
        "policy.minibatches": 4,
        "critic.kind": "none",
    },
    "kl_cov": {
        **_CLIPPED,
        "policy.epsilon_low": 1.0,
        "policy.epsilon_high": 10.0,
        "policy.beta": 0.0,
        "policy.kl_cov": 2e-3,
        "policy.minibatches": 4,
    },
    # Ahmadian et al. 2024, arXiv:2402.14740. A completion is one action: its tokens' log-probabilities are summed,
    # which dividing by a constant keeps. Without a ratio only the first update of a batch is right, so there is one.
    "rloo": {"policy.advantage": "leave_one_out", **_REINFORCE},
    # Li et al. 2023, arXiv:2310.10505: REINFORCE whose baseline is the reward of the greedy completion of the prompt.
    "remax": {"policy.advantage": "greedy", **_REINFORCE},
    # Hu et al. 2025, arXiv:2501.03262: every token's return (KL in the reward), whitened over the batch; no critic.
    "reinforce_pp": {
        **_CLIPPED,
        "policy.advantage": "returns",
        "policy.whiten": True,
        "policy.gamma": 1.0,
        "policy.kl_in": "reward",
        "policy.kl_kind": "k1",
    },
    # Schulman et al. 2017, arXiv:1707.06347, as used on language models: Ziegler et al. 2019, arXiv:1909.08593; Huang
    # et al. 2024, arXiv:2403.17031.
    "ppo": {
        **_CLIPPED,
        "policy.advantage": "gae",
        "policy.whiten": True,
        "policy.gamma": 1.0,
        "policy.lam": 0.95,
        "policy.kl_in": "reward",
        "policy.kl_kind": "k1",
        "critic.kind": "separate",
        "critic.clip_range": 0.2,
    },
}
