"""The updates of one step: from minibatches of scored rollouts to new weights and metrics.

Shape letters: B rows (completions), T completion positions, R rows of a minibatch.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stabilizer.core.schedule import learning_rate
from stabilizer.training.adaptive import AdaptiveClip
from stabilizer.training.corrections import off_policy_mask
from stabilizer.training.critic import Critic
from stabilizer.training.kl import kl_penalty
from stabilizer.training.knobs import Knobs
from stabilizer.training.losses import average_tokens, denominator, masked_mean, policy_loss
from stabilizer.training.model import Policy
from stabilizer.training.moved import Moved, slices
from stabilizer.training.optimizer import build_optimizer
from stabilizer.training.ranks import ALONE, Ranks
from stabilizer.training.rollout.logprobs import Scorer, TokenStats
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.selection import clip_cov, covariance, kl_cov, top_entropy
from stabilizer.training.settings import PolicyConfig, TrainConfig
from stabilizer.training.sharding import is_sharded, whole
from stabilizer.training.state import Progress
from stabilizer.training.values import value_loss

NO_GRADIENT = 1e-6
"""Norm below which a gradient is rounding, as where no group has spread: its direction says nothing."""
SAMPLED = 20_000
"""Number of weights whose gradients are compared between two halves of a batch."""
IDLE = 0.25
"""Share of rows without gradient above which a separate pass without gradients is cheaper for them."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rollouts with everything their updates need, one row per completion."""

    rollouts: Rollouts
    mask_BT: Tensor
    """Tokens that are learned from."""
    old_logp_BT: Tensor
    """Log-probabilities under the weights at the start of the step, computed by the learner or equal to its result."""
    advantage_BT: Tensor
    entropy_BT: Tensor | None = None
    """Entropies under the weights at the start of the step, if known and no weight has changed since."""
    ref_logp_BT: Tensor | None = None
    weight_BT: Tensor | None = None
    """Correction for an engine that disagrees with the learner."""
    value_BT: Tensor | None = None
    return_BT: Tensor | None = None
    held_BT: Tensor | None = None
    """Tokens that are penalised for moving away from the sampling policy."""

    def __len__(self) -> int:
        return len(self.mask_BT)

    def rows(self, row_R: Tensor) -> Batch:
        """Some of the rows."""
        parts: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rollouts"}
        chosen: dict[str, Any] = {name: part if part is None else part[row_R] for name, part in parts.items()}
        return Batch(self.rollouts.rows(row_R), **chosen)


def selected(policy: PolicyConfig, batch: Batch, seed: int) -> tuple[Batch, dict[str, Tensor]]:
    """The batch with the tokens that the policy treats differently from the others, and how many it leaves out.

    Tokens left out have weight 0: they still count in the average, so the others don't grow.
    """
    mask_BT = batch.mask_BT
    if not mask_BT.any():
        return batch, {}
    out_BT = torch.zeros_like(mask_BT)
    if policy.top_entropy < 1:
        assert batch.entropy_BT is not None, "a selection by entropy needs a pass that computes it"
        out_BT = mask_BT & ~top_entropy(batch.entropy_BT, mask_BT, policy.top_entropy)
    if policy.clip_cov or policy.kl_cov:
        covariance_BT = covariance(batch.old_logp_BT, batch.advantage_BT, mask_BT)
        if policy.kl_cov:
            batch = replace(batch, held_BT=kl_cov(covariance_BT, mask_BT, policy.kl_cov))
        if policy.clip_cov:
            out_BT = out_BT | clip_cov(covariance_BT, mask_BT, policy.clip_cov, policy.clip_cov_range, seed)
    if policy.top_entropy == 1 and not policy.clip_cov:
        return batch, {}
    weight_BT = torch.ones_like(batch.old_logp_BT) if batch.weight_BT is None else batch.weight_BT
    metrics = {"policy/unselected_frac": masked_mean(out_BT.float(), mask_BT)}
    return replace(batch, weight_BT=weight_BT.masked_fill(out_BT, 0.0)), metrics


class Outputs(NamedTuple):
    """Results of a pass for every completion token."""

    logp_BT: Tensor
    entropy_BT: Tensor
    value_BT: Tensor | None
    """None without a critic."""
    balance_BT: Tensor | None = None
    """None without a mixture of experts."""

    def detached(self) -> Outputs:
        """The same without gradients."""
        return self._each(Tensor.detach)

    def rows(self, row_R: Tensor) -> Outputs:
        """Some of the rows, or all in another order."""
        return self._each(lambda part: part[row_R])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Outputs:
        value_BT, balance_BT = (None if part is None else change(part) for part in self[2:])
        return Outputs(change(self.logp_BT), change(self.entropy_BT), value_BT, balance_BT)


def joined(parts: Sequence[Outputs]) -> Outputs:
    """The outputs of several passes joined into one."""
    values = [part.value_BT for part in parts if part.value_BT is not None]
    balances = [part.balance_BT for part in parts if part.balance_BT is not None]
    return Outputs(
        torch.cat([part.logp_BT for part in parts]),
        torch.cat([part.entropy_BT for part in parts]),
        torch.cat(values) if values else None,
        torch.cat(balances) if balances else None,
    )


def router_coefficient(wanted: float | None, model: Any) -> float:
    """The weight of the load-balancing loss; 0 for a model without experts. ValueError if one is wanted there."""
    config = model.config.get_text_config()
    routed = hasattr(config, "output_router_logits")
    if wanted and not routed:
        raise ValueError(
            f"policy.router_aux_coef = {wanted:g}: a {type(model).__name__} reports no router logits; set it to null"
        )
    own = getattr(config, "router_aux_loss_coef", 0.0) or 0.0
    return (own if wanted is None else wanted) if routed else 0.0


class Learner:
    """The optimizer and the models it updates: the policy, and the critic if there is one."""

    def __init__(
        self, config: TrainConfig, policy: Policy, critic: Critic | None, scorer: Scorer, ranks: Ranks = ALONE
    ):
        self._config = config
        self._ranks = ranks
        self._policy = policy
        self._critic = critic
        self._scorer = scorer
        self.parameters = [p for p in policy.model.parameters() if p.requires_grad]
        self._critic_parameters = list(critic.parameters()) if critic else []
        self.all_parameters = [*self.parameters, *self._critic_parameters]
        decay = config.optim.weight_decay
        groups = [*_groups(self.parameters, decay, critic=False), *_groups(self._critic_parameters, decay, critic=True)]
        self.optimizer = build_optimizer(groups, betas=config.optim.betas, weight_decay=decay, kind=config.optim.kind)
        self._sharded = is_sharded(policy.model)
        self._sharers = ranks if self._sharded else ALONE
        self.moved = Moved(self.parameters, sharers=self._sharers)
        self._router_coef = router_coefficient(config.policy.router_aux_coef, policy.model)
        self._adaptive_clip = AdaptiveClip(factor=config.optim.adaptive_clip) if config.optim.adaptive_clip else None

    def reset(self) -> None:
        """Reset the running averages of the optimizer."""
        self.optimizer.state.clear()

    def update(
        self, step: int, batch: Batch, knobs: Knobs, progress: Progress, *, skip: bool, shuffle_seed: int
    ) -> dict[str, float]:
        """All updates of a step; with `skip` they are computed and reported but not applied."""
        lr = self.set_lr(step, knobs.lr_scale)
        only_critic = self._critic is not None and (knobs.actor_frozen or step <= self._config.critic.warmup_steps)
        rows: list[dict[str, float]] = []
        halves: list[Tensor] = []
        made = not_finite = 0
        with self._checkpointing():
            for row_R in _minibatches(len(batch), knobs, shuffle_seed, batch.mask_BT.device):
                # rows of one prompt next to each other
                minibatch = batch if len(row_R) == len(batch) else batch.rows(row_R.sort().values)
                if made:
                    minibatch = replace(minibatch, entropy_BT=None)
                row = self._gradient(minibatch, knobs, only_critic=only_critic)
                if len(halves) < 2 <= knobs.minibatches and not only_critic:
                    halves.append(self._sampled_gradient())
                row |= self._clip(knobs.max_grad_norm, progress)
                sizes = (row.pop("total"), row["optim/grad_norm"], row.get("value/grad_norm", 0.0))
                if not all(math.isfinite(size) for size in sizes):
                    not_finite += 1
                elif made and self._too_far(row):
                    rows.append(row)
                    break
                elif not skip:
                    self.optimizer.step()
                    made += 1
                rows.append(row)
        began = perf_counter()
        metrics = self._summary(rows, halves, made) | {"optim/lr": lr, "optim/skipped": not_finite}
        return metrics | {"time/metrics_s": perf_counter() - began}

    def _summary(self, rows: list[dict[str, float]], halves: Sequence[Tensor], made: int) -> dict[str, float]:
        """The metrics of a step from those of its updates."""
        moved = self.moved.in_step() if made else 0.0
        metrics = _reduced(rows) | {"optim/update_ratio": moved, "batch/updates": made}
        if len(halves) == 2 and min(float(half.norm()) for half in halves) > NO_GRADIENT:
            metrics["optim/grad_cosine"] = torch.nn.functional.cosine_similarity(halves[0], halves[1], dim=0).item()
        return metrics

    def _too_far(self, row: Mapping[str, float]) -> bool:
        """Whether the weights have moved so far in this step that the rest of its updates is not made."""
        limit = self._config.policy.kl_stop
        return limit > 0 and row["policy/kl_old"] > limit

    # --- one update -------------------------------------------------------------------------------------------------

    def _gradient(self, batch: Batch, knobs: Knobs, *, only_critic: bool) -> dict[str, float]:
        """Gradients of one minibatch, in as many passes as `micro_batch` requires, and its metrics."""
        for parameter in self.all_parameters:  # like `zero_grad`, without its overhead
            parameter.grad = None
        per_token = denominator(batch.mask_BT, knobs.average, knobs.max_completion)
        limits = self._config.optim.micro_batch, self._config.optim.micro_tokens
        parts, mine = self._ranks.passes(batch.rollouts, *limits)
        total, seen = torch.zeros(()), []
        for part_R in mine:
            rows = batch if len(parts) == 1 else batch.rows(part_R)
            outputs = self._outputs(rows, knobs, only_critic=only_critic)
            loss, metrics = self._terms(rows, outputs, knobs, per_token, only_critic=only_critic, of=len(batch))
            loss.backward()
            total = total + loss.detach()
            seen.append((part_R, outputs.detached()))
        if self._sharded:
            if self._ranks.lacks(parts, mine):  # it still has to gather and add what the other ranks do
                rows = batch.rows(parts[0][:1])
                outputs = self._outputs(rows, knobs, only_critic=only_critic)
                loss, _ = self._terms(rows, outputs, knobs, per_token, only_critic=only_critic, of=len(batch))
                (0.0 * loss).backward()
        else:
            self._ranks.add_gradients(self.all_parameters)
        if len(parts) > 1 or self._ranks.size > 1:  # metrics of a whole minibatch, from the numbers of its parts
            whole, total = self._whole(seen, total)
            with torch.no_grad():
                _, metrics = self._terms(batch, whole, knobs, per_token, only_critic=only_critic, of=len(batch))
        metrics["total"] = total
        return dict(zip(metrics, torch.stack([m.float() for m in metrics.values()]).tolist(), strict=True))

    def _whole(self, seen: list[tuple[Tensor, Outputs]], total: Tensor) -> tuple[Outputs, Tensor]:
        """The outputs for a whole minibatch, in the order of its rows, and its loss, from the passes of all ranks."""
        found = self._ranks.gather((seen, total))
        parts = [part for seen, _ in found for part in seen]
        back_R = torch.cat([part_R for part_R, _ in parts]).argsort()
        return joined([outputs for _, outputs in parts]).rows(back_R), torch.stack([t for _, t in found]).sum()

    def _outputs(self, batch: Batch, knobs: Knobs, *, only_critic: bool) -> Outputs:
        """A pass of policy and critic over some rows."""
        shared = self._critic is not None and self._critic.shared
        with self.arithmetic():
            stats = self._stats(batch, knobs, hidden=shared)
            hidden_BTH = stats.hidden_BTH
            if hidden_BTH is not None and only_critic:
                hidden_BTH = hidden_BTH.detach()  # the policy remains unchanged while the critic warms up
            value_BT = self._critic.values(batch.rollouts, hidden_BTH) if self._critic else None
        return Outputs(stats.logp_BT, stats.entropy_BT, value_BT, stats.balance_BT)

    def _stats(self, batch: Batch, knobs: Knobs, *, hidden: bool) -> TokenStats:
        """A pass of the policy over the rows that have a gradient. The other rows are scored without gradients, or not
        at all if no weight has changed since their numbers were computed. Ranks that share the weights make one pass
        each."""

        def scored(rollouts: Rollouts) -> TokenStats:
            return self._scorer.logps(
                self._policy.model,
                rollouts,
                knobs.temperature,
                hidden=hidden,
                entropy_grad=knobs.entropy_coef != 0,
                head_dtype=torch.float32 if knobs.head_float32 else None,
                **({"balance": True} if self._router_coef else {}),
            )

        rollouts, idle_B = batch.rollouts, self._idle(batch, knobs)
        known = batch.entropy_BT is not None
        share = float(idle_B.float().mean())
        if self._sharded or share in (0, 1) or (share < IDLE and not known):
            return scored(rollouts)
        idle_R, pulling_R = idle_B.nonzero()[:, 0], (~idle_B).nonzero()[:, 0]
        pulling = scored(rollouts.rows(pulling_R))
        if batch.entropy_BT is not None:
            idle = (batch.old_logp_BT[idle_R], batch.entropy_BT[idle_R])
        else:
            with torch.no_grad():
                idle = scored(rollouts.rows(idle_R))[:2]
        back_B = torch.cat([pulling_R, idle_R]).argsort()
        logp_BT, entropy_BT = (torch.cat(parts)[back_B] for parts in zip(pulling[:2], idle, strict=True))
        return TokenStats(logp_BT, entropy_BT, None)

    def _idle(self, batch: Batch, knobs: Knobs) -> Tensor:
        """Rows without any gradient, as in a group with equal rewards: only advantages produce a gradient for a row."""
        in_loss = knobs.beta and self._config.policy.kl_in == "loss" and batch.ref_logp_BT is not None
        if self._critic or knobs.entropy_coef or in_loss or batch.held_BT is not None or self._router_coef:
            return torch.zeros(len(batch), dtype=torch.bool, device=batch.mask_BT.device)
        return ~((batch.advantage_BT != 0) & batch.mask_BT).any(1)

    def _terms(
        self, batch: Batch, outputs: Outputs, knobs: Knobs, per_token: Tensor, *, only_critic: bool, of: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Surrogate, KL, entropy and value loss, weighted by the configuration; returns (loss, metrics).

        `of` is the number of rows of the minibatch of which these are a part.
        """
        logp_BT, entropy_BT, value_BT, balance_BT = outputs
        policy, mask_BT = self._config.policy, batch.mask_BT
        averaging = (knobs.average, knobs.max_completion, per_token)
        learns_BT, metrics = self._learned(batch, logp_BT.detach())
        loss, measured = policy_loss(
            logp_BT, batch.old_logp_BT, batch.advantage_BT, learns_BT,
            surrogate=policy.surrogate, ratio=policy.ratio, average=knobs.average,
            epsilon_low=knobs.epsilon_low, epsilon_high=knobs.epsilon_high, dual_clip=policy.dual_clip or None,
            weight_BT=batch.weight_BT, max_completion=knobs.max_completion, normalizer=per_token,
            ratio_guard=policy.ratio_guard or None, gate=policy.gate,
        )  # fmt: skip
        metrics |= measured
        if batch.held_BT is not None:  # KL-Cov, arXiv:2505.22617
            away_BT = (logp_BT - batch.old_logp_BT).abs().masked_fill(~batch.held_BT, 0.0)
            loss = loss + policy.kl_cov_coef * average_tokens(away_BT, mask_BT, *averaging)
        if batch.ref_logp_BT is not None and knobs.beta and policy.kl_in == "loss":
            kl_BT = kl_penalty(knobs.kl_kind, logp_BT, batch.ref_logp_BT, batch.old_logp_BT, mask_BT)
            loss = loss + knobs.beta * average_tokens(kl_BT, mask_BT, *averaging)
        metrics["policy/loss"] = loss.detach()
        metrics["policy/entropy"] = masked_mean(entropy_BT.detach(), mask_BT)
        if knobs.entropy_coef:
            loss = loss - knobs.entropy_coef * average_tokens(entropy_BT, mask_BT, *averaging)
        if balance_BT is not None:
            balance = balance_BT.sum() / of  # of a minibatch, the mean over the rows of its passes
            metrics["policy/router_aux"] = balance.detach()
            loss = loss + self._router_coef * balance
        if value_BT is None:
            return loss, metrics
        assert batch.value_BT is not None and batch.return_BT is not None, "a critic needs its values before the update"
        error, measured = value_loss(
            value_BT, batch.value_BT, batch.return_BT, mask_BT, self._config.critic.clip_range or None, *averaging
        )
        return self._config.critic.coef * error + (0.0 if only_critic else loss), metrics | measured

    def _learned(self, batch: Batch, logp_BT: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The tokens of completions that the policy has not yet moved away from."""
        bound, mask_BT = self._config.policy.off_policy_mask, batch.mask_BT
        if not bound:
            return mask_BT, {}
        advantage_B = masked_row_mean(batch.advantage_BT, mask_BT)
        keep_B, metrics = off_policy_mask(advantage_B, logp_BT, batch.rollouts.logp_BT, mask_BT, bound)
        return mask_BT & keep_B[:, None], metrics

    def _clip(self, max_norm: float, progress: Progress) -> dict[str, float]:
        """Scale gradients down to their limit; the returned norms are those before scaling."""
        limit = max_norm
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = _total_norm(gradients)
        metrics = {"optim/grad_norm": norm.item()}
        if self._adaptive_clip and metrics["optim/grad_norm"] != 0:  # 0: no gradient, so no usual size
            state, limit = self._adaptive_clip.step(tuple(progress.norms), metrics["optim/grad_norm"], max_norm)
            progress.norms = list(state)
            metrics["optim/clip_limit"] = limit
        if self._config.optim.block_norms:
            metrics |= _block_norms(self._policy.model)
        if limit < metrics["optim/grad_norm"] + 1e-6:  # else it would multiply all of them by 1
            torch.nn.utils.clip_grads_with_norm_(self.parameters, limit, norm)
        if self._critic:
            norm = whole(torch.nn.utils.clip_grad_norm_(self._critic_parameters, max_norm))
            metrics["value/grad_norm"] = norm.item()
        return metrics

    def _sampled_gradient(self) -> Tensor:
        """The gradient of a sample of the weights."""
        gradients = [p.grad.contiguous() for p in self.parameters if p.grad is not None]
        return torch.cat(self._sharers.gather(torch.cat(slices(gradients, SAMPLED))))

    def set_lr(self, step: int, scale: float) -> float:
        """Set the learning rate of a step and return the policy's. The critic follows the same schedule from its own
        peak, and no knob scales its rate."""
        scheduled = learning_rate(self._config.optim, step, self._config.steps)
        critic = scheduled / self._config.optim.lr * self._config.critic.lr
        for group in self.optimizer.param_groups:
            group["lr"] = critic if group["critic"] else scheduled * scale
        return scheduled * scale

    # --- how the arithmetic is done ---------------------------------------------------------------------------------

    def arithmetic(self) -> contextlib.AbstractContextManager[None]:
        """Mixed precision if configured."""
        if self._config.precision != "mixed":
            return contextlib.nullcontext()
        return torch.autocast(self._policy.model.device.type, dtype=torch.bfloat16)

    @contextlib.contextmanager
    def _checkpointing(self) -> Iterator[None]:
        """`transformers` recomputes activations only in training mode. There is no dropout that this mode could
        enable."""
        models = [self._policy.model, *([self._critic.trunk] if self._critic and self._critic.trunk else [])]
        if not self._config.gradient_checkpointing:
            models = []
        for model in models:
            model.train()
        try:
            yield
        finally:
            for model in models:
                model.eval()


def _groups(parameters: Sequence[Tensor], decay: float, *, critic: bool) -> list[dict[str, Any]]:
    """Groups of an optimizer. Only matrices decay: a bias or the scale of a norm has no size to be limited."""
    if not decay:
        return [{"params": list(parameters), "critic": critic}]
    matrices, vectors = ([p for p in parameters if (p.dim() > 1) == matrix] for matrix in (True, False))
    return [{"params": matrices, "critic": critic}, {"params": vectors, "weight_decay": 0.0, "critic": critic}]


def masked_row_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the tokens of each row; 0 for a row without tokens."""
    return value_BT.masked_fill(~mask_BT, 0.0).sum(1) / mask_BT.sum(1).clamp_min(1)


def _minibatches(num_rows: int, knobs: Knobs, seed: int, device: torch.device) -> Iterator[Tensor]:
    shuffling = torch.Generator().manual_seed(seed)
    for _ in range(knobs.inner_epochs):
        order = torch.randperm(num_rows, generator=shuffling).to(device)
        yield from order.tensor_split(min(knobs.minibatches, num_rows))


_FIRST = {"ratio_error": "policy/ratio_first_error", "policy/kl_old": "policy/mismatch_kl"}
"""Before any weight has changed, the distance to the sampler is the engine's disagreement with the learner."""


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _highest(values: list[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else max(values)


def _lowest(values: list[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else min(values)


_REDUCERS = {"policy/ratio_max": _highest, "policy/ratio_min": _lowest}


def _reduced(rows: list[dict[str, float]]) -> dict[str, float]:
    """One value per step: the mean over the updates, or the aggregate that the name states. NaN is passed on as
    evidence."""
    first = rows[0]
    if len(rows) == 1:
        metrics = {name: value + 0.0 for name, value in first.items()}  # like a mean: never -0
    else:
        metrics = {name: _REDUCERS.get(name, _mean)([row[name] for row in rows]) for name in first}
    del metrics["ratio_error"]
    if "value/explained_variance" in metrics:
        del metrics["value/explained_variance"]
        metrics |= _explained_variance(rows)
    metrics["optim/grad_norm_max"] = _highest([row["optim/grad_norm"] for row in rows])
    for key, name in _FIRST.items():
        metrics[name] = first[key]
    return metrics


def _explained_variance(rows: list[dict[str, float]]) -> dict[str, float]:
    """Mean over the updates in which it is defined. It is undefined where all returns are equal, which is no fault of
    the critic."""
    known = [row["value/explained_variance"] for row in rows if not math.isnan(row["value/explained_variance"])]
    return {"value/explained_variance": _mean(known)} if known else {}


def _total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """L2 norm of all gradients together."""
    return whole(torch.nn.utils.get_total_norm(gradients))


def _block_norms(model: torch.nn.Module) -> dict[str, float]:
    """Gradient norm of each numbered block of layers, and of all other weights together."""
    blocks: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            number = next((part for part in name.split(".") if part.isdigit()), None)
            blocks.setdefault("other" if number is None else f"block{number}", []).append(parameter.grad)
    norms = {name: _total_norm(gradients).item() for name, gradients in blocks.items()}
    return {f"optim/grad_norm/{name}": norm for name, norm in norms.items()}
