"""The whole objective against a slow, obvious version that goes token by token, and where the KL in the reward goes.

Loss functions have tests of their own. Here it is whether the learner uses them: with the right sign and weight, on the
right tokens, divided by the right number, and with every option that the configuration asks for.

Shape letters: B rows (completions), T completion positions.
"""

import math

import pytest
import torch
from transformers import PretrainedConfig

from stabilizer.core.knobs import Controls
from stabilizer.training.config import load_config
from stabilizer.training.knobs import initial_knobs
from stabilizer.training.knobs import read as read_knobs
from stabilizer.training.learner import Batch, Learner
from stabilizer.training.model import Policy
from stabilizer.training.rollout.logprobs import Scorer, TokenStats
from stabilizer.training.rollout.rollouts import Rollouts
from tests.training.conftest import SMALL
from tests.training.test_losses import draw

# --- the slow version -------------------------------------------------------------------------------------------------


def surrogate_by_hand(policy, r, logp, advantage):
    """What a token gains by its ratio `r`; min, max and clip are written as the choices they are."""
    bounded = min(max(r.item(), 1 - policy.epsilon_low), 1 + policy.epsilon_high)
    if policy.ratio_guard and r.item() > policy.ratio_guard:
        return 0.0
    if policy.surrogate == "reinforce":
        return advantage * logp
    if policy.surrogate == "cispo":
        return bounded * advantage * logp
    gain = r * advantage if r.item() * advantage <= bounded * advantage else bounded * advantage
    if policy.dual_clip and advantage < 0 and gain < policy.dual_clip * advantage:
        gain = policy.dual_clip * advantage
    return gain


def kl_by_hand(kind, logp, old, ref):
    k2, k3 = (logp - ref) ** 2 / 2, torch.exp(ref - logp) - 1 - (ref - logp)
    return {
        "k1": logp - ref,
        "k2": k2,
        "k3": k3,
        "k3_k2grad": k2 + (k3 - k2).item(),
        "k3_is": torch.exp(logp - old) * k3,
    }[kind]


def value_error_by_hand(value, old, wanted, reach):
    """Half the squared error, or that of the value held within `reach` of the old one, where that is larger."""
    held = old + math.copysign(reach, value.item() - old)
    outside = reach and abs(value.item() - old) > reach
    if outside and (held - wanted) ** 2 > (value.item() - wanted) ** 2:
        return (held - wanted) ** 2 / 2
    return (value - wanted) ** 2 / 2


def objective_by_hand(config, batch, logp, entropy, value, *, only_critic=False):
    """What is minimised: every token's surrogate, KL, entropy and value error, each token with its share."""
    policy, critic = config.policy, config.critic
    old, advantage, weight, ref, old_value, returns, engine = (
        tensor.tolist()
        for tensor in (
            batch.old_logp_BT, batch.advantage_BT, batch.weight_BT, batch.ref_logp_BT, batch.value_BT, batch.return_BT,
            batch.rollouts.logp_BT,
        )
    )  # fmt: skip
    rows = [[t for t, chosen in enumerate(row) if chosen] for row in batch.mask_BT.tolist()]
    total = torch.tensor(0.0, dtype=torch.float64)
    for b, tokens in enumerate(rows):
        if not tokens:
            continue
        share = {
            "token": 1 / sum(len(row) for row in rows),
            "sequence": 1 / len(tokens) / sum(1 for row in rows if row),
            "constant": 1 / (len(rows) * config.rollout.max_completion),
        }[policy.average]
        mean_advantage = sum(advantage[b][t] for t in tokens) / len(tokens)
        mean_log_ratio = sum(logp[b, t] - old[b][t] for t in tokens) / len(tokens)
        drift = sum(engine[b][t] - logp[b, t] for t in tokens) / len(tokens)
        left_behind = policy.off_policy_mask and mean_advantage < 0 and drift > policy.off_policy_mask
        for t in tokens:
            if not only_critic:
                r = torch.exp(mean_log_ratio if policy.ratio == "sequence" else logp[b, t] - old[b][t])
                if not left_behind:
                    total = total - share * weight[b][t] * surrogate_by_hand(policy, r, logp[b, t], advantage[b][t])
                if policy.kl_in == "loss":
                    total = total + share * policy.beta * kl_by_hand(policy.kl_kind, logp[b, t], old[b][t], ref[b][t])
                total = total - share * policy.entropy_coef * entropy[b, t]
            if critic.kind != "none":
                error = value_error_by_hand(value[b, t], old_value[b][t], returns[b][t], critic.clip_range)
                total = total + share * critic.coef * error
    return total


# --- the learner, of a policy and a critic whose every number is a weight --------------------------------------------


class Table(torch.nn.Module):
    """Log-probability, entropy and value of every token as weights, so that their gradients can be read off."""

    shared, trunk, config = False, None, PretrainedConfig()

    def __init__(self, **tensors):
        super().__init__()
        for name, tensor in tensors.items():
            setattr(self, name, torch.nn.Parameter(tensor.clone()))

    def values(self, rollouts, hidden_BTH):
        return self.value_BT[rollouts.completion_ids_BT[:, 0]]


class TableScorer(Scorer):
    """Looks rows up in the table; the first token of a completion is its row's number."""

    def logps(self, model, rollouts, temperature, *, entropy_grad=False, **options):
        row_B = rollouts.completion_ids_BT[:, 0]
        entropy_BT = model.entropy_BT[row_B]
        return TokenStats(model.logp_BT[row_B], entropy_BT if entropy_grad else entropy_BT.detach(), None)


SEED = 13  # one of those with which every option of every case below has something to act on


def drawn():
    """(batch, (logp, entropy, value)) in float64: ratios of 0.17 to 8, masks with gaps, a row without any token, two
    whose advantages are all 0."""
    logp_BT, old_BT, advantage_BT, mask_BT, weight_BT = draw(SEED, rows=12)
    logp_BT = 2 * logp_BT - old_BT  # twice as far from the old ones
    ref_BT, entropy_BT, value_BT, old_value_BT, return_BT = (draw(SEED + n, rows=12)[0] for n in range(1, 6))
    advantage_BT[2:4] = 0
    engine_BT = old_BT + 0.15 * draw(SEED + 8, rows=12)[2]
    row_BT = torch.arange(len(mask_BT))[:, None].expand(mask_BT.shape)
    length_B, one_B = mask_BT.sum(1), torch.ones(len(mask_BT), 1, dtype=torch.bool)
    rollouts = Rollouts(
        prompt_ids_BP=row_BT[:, :1], prompt_mask_BP=one_B, completion_ids_BT=row_BT, mask_BT=mask_BT, logp_BT=engine_BT,
        length_B=length_B, span_B=length_B, truncated_B=one_B[:, 0], texts=[], group_size=2,
    )  # fmt: skip
    batch = Batch(
        rollouts=rollouts, mask_BT=mask_BT, old_logp_BT=old_BT, advantage_BT=advantage_BT, ref_logp_BT=ref_BT,
        weight_BT=weight_BT, value_BT=old_value_BT, return_BT=return_BT,
    )  # fmt: skip
    return batch, (logp_BT, -entropy_BT, value_BT)


def learned(config, batch, logp_BT, entropy_BT, value_BT, *, only_critic=False):
    """(loss, gradients of log-probabilities, entropies and values), by the learner."""
    policy = Table(logp_BT=logp_BT, entropy_BT=entropy_BT)
    critic = Table(value_BT=value_BT) if config.critic.kind != "none" else None
    knobs = read_knobs(Controls(initial_knobs(config), None), config.policy)
    metrics = Learner(config, Policy(policy, None), critic, TableScorer())._gradient(
        batch, knobs, only_critic=only_critic
    )
    weights = (policy.logp_BT, policy.entropy_BT, critic.value_BT if critic else value_BT)
    return metrics["total"], [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]


def expected(config, batch, *tensors, **options):
    """The same by hand."""
    weights = [tensor.clone().requires_grad_() for tensor in tensors]
    loss = objective_by_hand(config, batch, *weights, **options)
    loss.backward()
    return loss.item(), [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]


WITHOUT = {
    "policy.beta": 0, "policy.entropy_coef": 0, "policy.dual_clip": 0, "policy.ratio_guard": 0,
    "policy.off_policy_mask": 0, "policy.epsilon_low": 0.9, "policy.epsilon_high": 0.9, "policy.surrogate": "clip",
    "policy.ratio": "token", "policy.average": "sequence", "policy.kl_kind": "k1", "policy.kl_in": "loss",
    "critic.clip_range": 0, "critic.coef": 1, "rollout.max_completion": 8,
}  # fmt: skip
"""What each option is compared with."""

PPO = {"algorithm": "ppo", "policy.kl_in": "loss"}
CASES = {  # (where it starts from, options)
    "everything, with a critic": (PPO, {
        "policy.beta": 0.3, "policy.kl_kind": "k3_is", "policy.entropy_coef": 0.1, "policy.dual_clip": 1.3,
        "policy.ratio_guard": 1.8, "policy.off_policy_mask": 0.1, "policy.epsilon_low": 0.3,
        "policy.epsilon_high": 0.1, "policy.average": "token", "critic.coef": 0.7, "critic.clip_range": 0.4,
    }),
    "ratios of completions": ({}, {
        "policy.ratio": "sequence", "policy.beta": 0.3, "policy.kl_kind": "k3_k2grad", "policy.entropy_coef": -0.1,
        "policy.dual_clip": 1.1, "policy.ratio_guard": 1.2, "policy.off_policy_mask": 0.3, "policy.epsilon_low": 0.1,
        "policy.epsilon_high": 0.05, "policy.average": "constant", "rollout.max_completion": 7,
    }),
    "clipped weights": ({}, {
        "policy.surrogate": "cispo", "policy.beta": 0.2, "policy.kl_kind": "k2", "policy.entropy_coef": 0.1,
        "policy.ratio_guard": 1.8, "policy.off_policy_mask": 0.2, "policy.epsilon_low": 0.4,
        "policy.epsilon_high": 0.2, "policy.average": "token",
    }),
    "no ratio": ({"policy.average": "constant"}, {
        "policy.surrogate": "reinforce", "policy.beta": 0.2, "policy.kl_kind": "k3", "policy.ratio_guard": 1.8,
        "policy.off_policy_mask": 0.2, "rollout.max_completion": 9,
    }),
    "advantages alone, which some rows are without": ({"policy.beta": 0}, {
        "policy.dual_clip": 1.3, "policy.ratio_guard": 1.8, "policy.average": "token",
    }),
    "the KL paid and not minimised": (PPO | {"policy.beta": 0.3, "policy.average": "sequence"}, {
        "policy.kl_in": "reward", "policy.entropy_coef": 0.1, "policy.ratio_guard": 1.8, "critic.clip_range": 0.2,
    }),
}  # fmt: skip


def configured(case, **more):
    start, options = CASES[case]
    texts = [f"{key}={value}" for key, value in (start | options | more).items()]
    return load_config("addition", [*SMALL, *texts])


@pytest.mark.parametrize("case", CASES)
def test_every_option_of_a_case_changes_what_is_expected(case):
    """So that none of them could be left out and the next test not see it."""
    batch, tensors = drawn()
    loss, gradients = expected(configured(case), batch, *tensors)
    for key in CASES[case][1]:
        other, others = expected(configured(case, **{key: WITHOUT[key]}), batch, *tensors)
        assert abs(other - loss) > 1e-3, key
        if key != "policy.ratio_guard" or "policy.dual_clip" not in CASES[case][1]:  # beyond that there is no gradient
            assert max(float((one - two).abs().max()) for one, two in zip(gradients, others, strict=True)) > 1e-3, key


@pytest.mark.parametrize("micro_batch", [0, 3])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_those_of_the_slow_version(case, micro_batch):
    config, (batch, tensors) = configured(case, **{"optim.micro_batch": micro_batch}), drawn()
    loss, gradients = learned(config, batch, *tensors)
    wanted_loss, wanted = expected(config, batch, *tensors)
    assert loss == pytest.approx(wanted_loss, rel=1e-6)  # what is reported is in float32
    for name, gradient, right in zip(("logp", "entropy", "value"), gradients, wanted, strict=True):
        torch.testing.assert_close(
            gradient, right, rtol=1e-10, atol=1e-14, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_while_only_the_critic_learns_there_is_nothing_but_its_error():
    config, (batch, tensors) = configured("everything, with a critic"), drawn()
    loss, gradients = learned(config, batch, *tensors, only_critic=True)
    wanted_loss, wanted = expected(config, batch, *tensors, only_critic=True)
    assert loss == pytest.approx(wanted_loss, rel=1e-6)
    assert gradients[0].abs().max() == gradients[1].abs().max() == 0
    torch.testing.assert_close(gradients[2], wanted[2], rtol=1e-10, atol=1e-14)


# --- the KL in the reward -------------------------------------------------------------------------------------------


def first_batch(trainer, *overrides):
    """What the first step learned from, by a policy that is no longer the reference."""
    run = trainer(*overrides, "policy.minibatches=1", folder="-".join(overrides), task="length")
    with torch.no_grad():
        for parameter in run.policy.model.parameters():
            parameter.mul_(1.05)
    seen, update = [], run.learner.update

    def noted(step, batch, *rest, **options):
        seen.append(batch)
        return update(step, batch, *rest, **options)

    run.learner.update = noted
    run.train_step()
    return seen[0]


def kl_rows(batch):
    """log p - log p_ref of the tokens of each row."""
    rows = zip(batch.old_logp_BT.tolist(), batch.ref_logp_BT.tolist(), batch.mask_BT.tolist(), strict=True)
    return [[p - q for p, q, chosen in zip(*row, strict=True) if chosen] for row in rows]


@pytest.mark.parametrize(("algorithm", "decay"), [("ppo", 0.9), ("reinforce_pp", 1.0)])
def test_every_token_pays_for_the_kl_of_those_that_follow(trainer, algorithm, decay):
    # advantages are linear in what is paid, and -beta * kl is paid at each token: of one k tokens on, decay^k arrives
    options = (f"algorithm={algorithm}", "policy.whiten=false", "policy.lam=0.9")
    free, paying = (first_batch(trainer, *options, f"policy.beta={beta}") for beta in (0, 0.5))
    assert torch.equal(free.rollouts.completion_ids_BT, paying.rollouts.completion_ids_BT)
    moved = 0.0
    for b, kls in enumerate(kl_rows(paying)):
        charged = [-0.5 * sum(kl * decay**k for k, kl in enumerate(kls[t:])) for t in range(len(kls))]
        change_T = (paying.advantage_BT - free.advantage_BT)[b, paying.mask_BT[b]]
        assert change_T.tolist() == pytest.approx(charged, abs=1e-4)
        moved = max(moved, *map(abs, charged))
    assert moved > 0.1


def test_a_completion_pays_for_the_kl_that_it_has_more_of_than_the_others_of_its_group(trainer):
    free, paying = (first_batch(trainer, "algorithm=rloo", f"policy.beta={beta}") for beta in (0, 0.5))
    assert torch.equal(free.rollouts.completion_ids_BT, paying.rollouts.completion_ids_BT)
    kl_B = [sum(kls) for kls in kl_rows(paying)]
    charged = []
    for b, kl in enumerate(kl_B):
        group = kl_B[b // 4 * 4 : b // 4 * 4 + 4]
        charged.append(-0.5 * (kl - (sum(group) - kl) / 3))  # less what the three others pay, on average
    change_BT = paying.advantage_BT - free.advantage_BT
    assert change_BT[:, 0].tolist() == pytest.approx(charged, abs=1e-4)
    assert max(map(abs, charged)) > 0.1


def test_a_kl_in_the_loss_is_no_part_of_any_advantage(trainer):
    free, paying = (first_batch(trainer, "algorithm=grpo", f"policy.beta={beta}") for beta in (0, 0.5))
    assert paying.ref_logp_BT is not None and torch.equal(free.advantage_BT, paying.advantage_BT)
