"""One training step from start to end: generate, score, assign credit, update, report.

There are three distributions. The `policy` learns, the `sampler` is the policy with the weights that wrote the
completions, and the `reference` is the policy at the start of the run. GRPO and PPO differ in credit assignment and in
whether there is a critic; nothing here depends on an algorithm's name.

Shape letters: G groups (prompts), N completions per group, B = G x N rows, T completion positions.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from stabilizer.core.earnings import BATCHES, Paid
from stabilizer.core.knobs import Checkpoint, Controls
from stabilizer.core.records import Sample
from stabilizer.training import checkpoint as disk
from stabilizer.training.adaptive import AdaptiveKL, TargetEntropy
from stabilizer.training.build_task import UnscoredTask, build_task
from stabilizer.training.corrections import mismatch_weights
from stabilizer.training.credit import Credit, give_credit
from stabilizer.training.critic import Critic
from stabilizer.training.demonstrations import reported
from stabilizer.training.kl import kl_penalty
from stabilizer.training.knobs import Knobs, initial_knobs
from stabilizer.training.knobs import read as read_knobs
from stabilizer.training.learner import Batch, Learner, selected
from stabilizer.training.losses import masked_mean
from stabilizer.training.metrics import episode_metrics, judged, reward_metrics, rollout_metrics
from stabilizer.training.model import Policy
from stabilizer.training.optimizer import need_optimizer
from stabilizer.training.ranks import ALONE, Ranks, together
from stabilizer.training.reference import Reference
from stabilizer.training.rewards.config import read_specs
from stabilizer.training.ring import Ring
from stabilizer.training.rollout.ahead import Ahead, Place
from stabilizer.training.rollout.collect import Collector, unobserved
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.engines import build_engine, build_scorer
from stabilizer.training.rollout.episodes import Episodes, with_tokens
from stabilizer.training.rollout.logprobs import has_plain_head
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.rollout.turns import Outcome
from stabilizer.training.saved import adapt, load_state, policy_with, starting_policy, write_policy
from stabilizer.training.settings import TrainConfig
from stabilizer.training.sharding import gathered, shard, whole
from stabilizer.training.state import Loaded, Progress, Weights, apply, decode, to_files
from stabilizer.training.tasks import Score, random_bits
from stabilizer.training.tensor_file import TensorFile

T = TypeVar("T")
REUSE = 1e-3
"""Largest |ratio - 1| before any update at which the sampler's log-probabilities count as equal to the learner's."""


@dataclass(frozen=True)
class StepResult:
    """The outcome of one step."""

    step: int
    metrics: dict[str, float]
    samples: list[Sample]
    failure: Exception | None = None
    """Why the metrics of completions and scores are missing, if computing them failed. Training continues without
    them."""


class Trainer:
    """A run in progress. It is also the `Backend` of its own controls."""

    def __init__(self, config: TrainConfig, *, checkpoints: Path, attempt: int = 0, ranks: Ranks = ALONE):
        ranks.begin(config)
        self.config = config
        self.ranks = ranks
        self._take_threads()
        self.attempt = attempt
        """Part of a checkpoint's name. The loop's owner increments it after a rollback, before the next checkpoint is
        saved."""
        self.device = _device(config.device, ranks.local)
        need_optimizer(config.optim.kind)
        self.policy = self._load_policy()
        self.task = build_task(config, self.policy.tokenizer, scores=ranks.leads)
        adapt(self.policy, config)
        self.controls = Controls(self._knobs(), self)
        self.scorer = build_scorer(config)
        self.critic = self._build_critic()
        for model in (self.policy.model, self.critic.trunk if self.critic else None):
            if model is not None and config.gradient_checkpointing:
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        ranks.agree(Weights(self.policy.model, self.critic).parameters().values(), "at the start")
        self.sharded = config.sharding == "full" and ranks.size > 1
        """Whether each rank holds a part of the weights only."""
        self._shard(self.policy.model, self.critic)
        self.engine = build_engine(config.rollout, self.policy)
        self.reference = Reference(
            self.policy.model,
            self._load_reference,
            adapters=config.lora.rank > 0,
            offload=config.policy.reference_offload,
        )
        self.learner = Learner(config, self.policy, self.critic, self.scorer, ranks)
        self.collector = Collector(config, self.task, self.policy, self.engine, self._generating, ranks)
        self.on_phase: Callable[[str], object] = unobserved
        self._weights = Weights(self.policy.model, self.critic, config.optim.kind)
        self._weights_of_rewards = {spec.name: spec.weight for spec in read_specs(config.reward)}
        self._folder = Path(checkpoints)
        self._asynchronous = config.rollout.asynchronous
        self._ahead = Ahead()
        self._ring = Ring(config.checkpoint.ring, config.checkpoint.ring_mb * 1e6)
        own_arithmetic = config.rollout.engine == "builtin" and config.precision == "float32" and not self._asynchronous
        self._progress = Progress(seed=config.seed, reuse=own_arithmetic)
        self._graded = not (config.stage == "sft" and isinstance(self.task, UnscoredTask))
        self._unsynced = 0  # updates that the engine has not received
        self._transfer = dict[str, float]()  # metrics of the newest transfer of weights, until a step reports them
        self._torn = False  # whether a step or a load is in progress, or was interrupted
        self._begin = 0  # the step after which the current attempt began
        self.ungraded = 0
        """Held-out problems whose reward failed when the newest step was validated; 0 without a validation."""
        self.passed_over: list[str] = []
        """Checkpoints that the last `resume` could not load, each with the reason, newest first."""

    def watched_by(self, on_phase: Callable[[str], object]) -> None:
        """Have phases reported: rollout, reward, update, sync, validation, save and other."""
        self.on_phase = self.collector.on_phase = on_phase

    @property
    def step(self) -> int:
        """The last finished step; 0 before the first."""
        return self._progress.step

    @property
    def best_step(self) -> int:
        """The step of the best validation so far; 0 before the first."""
        return self._progress.best_step

    @property
    def whole(self) -> bool:
        """Whether weights, optimizer and position belong together. An interrupted step or load breaks that."""
        return not self._torn

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the task and the model for the user, before the first step."""
        positions = getattr(self.policy.model.config.get_text_config(), "max_position_embeddings", None)
        longest = self.config.rollout.max_completion
        if not positions or longest <= positions:
            return self.task.notes
        beyond = f"rollout.max_completion = {longest:,} exceeds the {positions:,} positions of this model"
        return *self.task.notes, f"{beyond}: text beyond them will be unreliable"

    @property
    def finished(self) -> str | None:
        """Why training is finished, or empty if it is not."""
        progress, patience = self._progress, self.config.validation.patience
        if progress.step >= self.config.steps:
            return f"all {self.config.steps} steps are done"
        if patience and progress.since_best >= patience:
            return (
                f"no better validation than {progress.best:.1%} (step {progress.best_step}) {patience} times in a row"
            )
        return None

    # --- one step ---------------------------------------------------------------------------------------------------

    @together
    def train_step(self) -> StepResult:
        """One outer iteration: fresh rollouts, all their updates, and the metrics of both."""
        began = perf_counter()
        self._refuse_if_torn()
        self._take_threads()
        self.ungraded = 0
        step, knobs, skip = self.step + 1, read_knobs(self.controls, self.config.policy), self.controls.take_skip()

        episodes, stale = self._episodes(step, knobs)
        self.on_phase("update")
        rolled_out = perf_counter()
        knobs = self._adapted(knobs)
        batch, credit, metrics = self._prepare(episodes, knobs)
        scored = perf_counter()
        self._torn = True
        metrics = self._update(step, batch, knobs, skip=skip) | metrics | stale
        self.ranks.agree(self.learner.all_parameters, f"after step {step}")
        self.on_phase("other")
        updated = perf_counter()

        self._advance(step, episodes, knobs, metrics)
        metrics |= credit.metrics | {
            "tokens/total": self._progress.tokens,
            "batch/prompts": credit.num_teaching,
            "batch/prompts_drawn": episodes.prompts_drawn,
            "batch/group_size": knobs.group_size,
            "policy/beta": knobs.beta,
            "policy/entropy_coef": knobs.entropy_coef,
        }
        metrics |= self.controls.values()
        samples = self._samples(step, episodes, credit)
        failure = None
        try:
            metrics = _measured(episodes.rollouts, episodes.scores, episodes.outcomes, credit.reward_GN) | metrics
        except Exception as error:
            failure = error
        measured = perf_counter()
        if _due(step, knobs.validate_every) or (knobs.validate_every and step == self.config.steps):
            self.on_phase("validation")
            metrics |= self.validate()
            self.on_phase("other")
            self.note_validation(metrics)
        metrics |= {
            "time/rollout_s": rolled_out - began,
            "time/scoring_s": scored - rolled_out,
            "time/update_s": updated - scored,
            "time/metrics_s": metrics.get("time/metrics_s", 0.0) + measured - updated,
            "time/step_s": perf_counter() - began,
        }
        self._torn = False
        return StepResult(step, reported(metrics) if self.config.stage == "sft" else metrics, samples, failure)

    def _episodes(self, step: int, knobs: Knobs) -> tuple[Episodes, dict[str, float]]:
        """The batch of this step, and how old the weights are that wrote it. With `rollout.asynchronous` it was begun
        in the step before, and that of the next step begins here."""
        newest = self.engine.version + self._unsynced
        place = self._place(knobs, step)
        if self._asynchronous:
            self.on_phase("rollout")
        episodes = self._ahead.take(place)
        old = 0 if episodes is None else self._ahead.updates
        if self._asynchronous:
            self._hand_over()
        if episodes is None:
            episodes = self._written(place, knobs, self.on_phase)
        old += episodes.rollouts.staleness + self._unsynced
        if self._asynchronous and step < self.config.steps:
            following = self._place(knobs, step + 1, episodes.prompts_drawn)
            self._ahead.begin(following, partial(self._written, following, knobs, unobserved))
        age: dict[str, float] = {"rollout/staleness": old}
        if newest > old:  # the version of a batch that an earlier process began is not known
            age["rollout/weight_version"] = newest - old
        return episodes, age

    def _place(self, knobs: Knobs, step: int, prompts: int = 0) -> Place:
        """Where the batch of a step begins, so many prompts after the present one."""
        at = self._progress
        return Place.of(knobs, seed=at.seed, salt=at.salt, step=step, cursor=at.cursor + prompts)

    def _written(self, place: Place, knobs: Knobs, on_phase: Callable[[str], object]) -> Episodes:
        """A batch with the weights that the engine has."""
        self._take_threads()
        return self.collector.episodes(knobs, partial(place.problems, self.task), place.random_bits, on_phase)

    def _hand_over(self) -> None:
        """Give the engine the current weights, once it writes nothing any more."""
        self._ahead.wait()
        if self._unsynced:
            self._transfer = self.engine.sync(self._unsynced)
            self._unsynced = 0

    def _update(self, step: int, batch: Batch, knobs: Knobs, *, skip: bool) -> dict[str, float]:
        """All updates of the step; then the engine receives the new weights, unless it is writing the next batch."""
        metrics: dict[str, float] = {"batch/updates": 0}
        if len(batch):
            seed = self._random_bits(step, "shuffle")
            metrics |= self.learner.update(step, batch, knobs, self._progress, skip=skip, shuffle_seed=seed)
        else:
            metrics["optim/lr"] = self.learner.set_lr(step, knobs.lr_scale)
        self._unsynced += int(metrics["batch/updates"])
        self._ahead.updates += int(metrics["batch/updates"])
        if self._unsynced and not self._asynchronous:
            self.on_phase("sync")
            self._hand_over()
        transfer, self._transfer = self._transfer, {}
        return metrics | transfer

    def _advance(self, step: int, episodes: Episodes, knobs: Knobs, metrics: Mapping[str, float]) -> None:
        """The position of the run and all adaptive state, as the next step needs them."""
        progress = self._progress
        progress.step = step
        progress.cursor += episodes.prompts_drawn
        progress.tokens += episodes.rollouts.num_tokens
        progress.reuse = progress.reuse and metrics.get("policy/ratio_first_error", 0.0) <= REUSE
        self._adapt(knobs, metrics)
        if progress.reference and _due(step, self.config.policy.reference_every):
            self.reset_reference(self.config.policy.reference_share)

    def _samples(self, step: int, episodes: Episodes, credit: Credit) -> list[Sample]:
        wanted = self.config.samples
        if not _due(step, wanted.every):
            return []
        samples = episodes.samples(step, wanted.count, credit.row_advantages)
        return with_tokens(samples, episodes.rollouts, self.policy.tokenizer) if wanted.tokens else samples

    @torch.no_grad()
    def _prepare(self, episodes: Episodes, knobs: Knobs) -> tuple[Batch, Credit, dict[str, float]]:
        """The rows to learn from, with everything their updates need, and the metrics of all rows: the learned rows are
        a selection and would bias the metrics."""
        rollouts, mask_BT = episodes.rollouts, episodes.rollouts.mask_BT
        old_logp_BT, entropy_BT, value_BT = self._old_logps(rollouts, knobs)
        ref_logp_BT = self._reference_logps(rollouts, knobs)
        weight_BT, metrics = None, dict[str, float]()
        if old_logp_BT is not rollouts.logp_BT:
            weight_BT, measured = mismatch_weights(
                knobs.mismatch, old_logp_BT, rollouts.logp_BT, mask_BT, self.config.policy.mismatch_cap
            )
            metrics = {name: value.item() for name, value in measured.items()}
        if entropy_BT is not None:
            metrics["policy/entropy"] = masked_mean(entropy_BT, mask_BT).item()
        kl_BT = None
        if ref_logp_BT is not None:
            away_BT = kl_penalty("k3", old_logp_BT, ref_logp_BT, mask_BT=mask_BT)
            metrics["policy/kl_ref"] = masked_mean(away_BT, mask_BT).item()
            if self.config.policy.kl_in == "reward":
                kl_BT = kl_penalty(knobs.kl_kind, old_logp_BT, ref_logp_BT, old_logp_BT, mask_BT)
        greedy = None if episodes.greedy is None else (episodes.greedy.rollouts, episodes.greedy.scores)
        credit = give_credit(
            self.config.policy, knobs, rollouts, episodes.scores,
            kl_BT=kl_BT, value_BT=value_BT, greedy=greedy, weights=self._weights_of_rewards,
        )  # fmt: skip
        batch = Batch(
            rollouts, mask_BT, old_logp_BT, credit.advantage_BT, entropy_BT,
            ref_logp_BT, weight_BT, value_BT, credit.return_BT,
        )  # fmt: skip
        if not credit.teaches_B.all():
            batch = batch.rows(credit.teaches_B.nonzero()[:, 0])
        batch, measured = selected(self.config.policy, batch, self._random_bits(self.step + 1, "clip_cov"))
        return batch, credit, metrics | {name: value.item() for name, value in measured.items()}

    def _old_logps(self, rollouts: Rollouts, knobs: Knobs) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Log-probabilities, entropies (if known) and values under the weights before any update.

        The sampler's log-probabilities replace a pass of the learner as long as every first minibatch confirms that
        they are equal. After the first mismatch, and with an engine whose arithmetic differs, the pass is computed.
        """
        if self.config.stage == "sft":
            return rollouts.logp_BT, None, None
        shared = self.critic is not None and self.critic.shared
        needed = self.config.policy.top_entropy < 1 and rollouts.entropy_BT is None
        recomputed = shared or needed or not self._progress.reuse
        if not recomputed and self.critic is None:
            return rollouts.logp_BT, rollouts.entropy_BT, None

        def passed(rows: Rollouts) -> tuple[Tensor | None, ...]:
            logp_BT, entropy_BT, hidden_BTH = None, None, None
            if recomputed:
                logp_BT, entropy_BT, hidden_BTH, _ = self.scorer.logps(
                    self.policy.model,
                    rows,
                    knobs.temperature,
                    hidden=shared,
                    head_dtype=torch.float32 if knobs.head_float32 else None,
                )
            return logp_BT, entropy_BT, self.critic.values(rows, hidden_BTH) if self.critic else None

        with self.learner.arithmetic(), gathered(self.policy.model, self.critic):
            logp_BT, entropy_BT, value_BT = self.ranks.every_row(passed, rollouts)
        if logp_BT is None:
            return rollouts.logp_BT, rollouts.entropy_BT, value_BT
        return logp_BT, entropy_BT, value_BT

    def _reference_logps(self, rollouts: Rollouts, knobs: Knobs) -> Tensor | None:
        """None until beta first leaves 0; then the reference is loaded and the KL to it is measured from then on."""
        if knobs.beta > 0:
            self._progress.reference = True
        if not self._progress.reference:
            return None
        with self.reference.model() as model, gathered(model), self.learner.arithmetic():
            dtype = torch.float32 if knobs.head_float32 else None
            (logp_BT,) = self.ranks.every_row(
                lambda rows: (self.scorer.logps(model, rows, knobs.temperature, head_dtype=dtype).logp_BT,), rollouts
            )
            return logp_BT

    # --- adaptive coefficients
    # ---------------------------------------------------------------------------------------------

    def _adapted(self, knobs: Knobs) -> Knobs:
        """The knobs with adaptive coefficients applied; the controls keep the values that users and remedies set."""
        progress = self._progress
        bonus = progress.entropy_bonus if progress.entropy_low else 0.0
        return knobs._replace(beta=knobs.beta * progress.beta_scale, entropy_coef=knobs.entropy_coef + bonus)

    def _adapt(self, used: Knobs, metrics: Mapping[str, float]) -> None:
        """Adjust the coefficients towards their targets, for the next step."""
        progress, policy = self._progress, self.config.policy
        if policy.kl_target and "policy/kl_ref" in metrics:
            scale = AdaptiveKL(target=policy.kl_target, horizon=policy.kl_horizon, low=1 / 64, high=64.0)
            progress.beta_scale, _ = scale.step(progress.beta_scale, metrics["policy/kl_ref"])
        if used.entropy_target and "policy/entropy" in metrics:
            bonus = TargetEntropy(target=used.entropy_target)
            progress.entropy_bonus, used_next = bonus.step(progress.entropy_bonus, metrics["policy/entropy"])
            progress.entropy_low = used_next > 0
        elif not used.entropy_target:
            progress.entropy_bonus = 0.0

    @together
    def reset_optimizer(self) -> None:
        """Reset the optimizer's running averages."""
        self.learner.reset()
        self._progress.optimizer_step = self.step

    @together
    def reset_reference(self, share: float = 1.0) -> None:
        """Reset the reference to the current policy, or to a mixture of it and the old reference."""
        self.reference.reset(share)
        self._progress.reference_step = self.step

    # --- held-out problems ------------------------------------------------------------------------------------------

    @together
    def validate(self) -> dict[str, float]:
        """Share of the held-out problems that the greedy completion solves; pass@1 and pass@k of sampled ones.

        Completions whose reward failed are excluded, and `ungraded` counts them. If they are more than half, no result
        is reported: the failures may be the wrong answers, and the rest would look too good.
        """
        self._take_threads()
        self._hand_over()
        wanted = self.config.validation
        problems = self.task.held_out(wanted.problems) if self._graded else []
        limit = int(self.controls.get("control/max_completion"))
        if not problems:
            return {}
        solved_P = self.collector.solved(problems, Sampling(1, 0.0, limit))
        self.ungraded = int(solved_P.isnan().sum())
        if 2 * self.ungraded > len(problems):
            return {}
        metrics = {"accuracy/val": float(solved_P.nanmean())}
        if k := wanted.samples:
            seed = random_bits(self._progress.seed, "validation") >> 1  # always the same: comparisons are paired
            solved_PK = self.collector.solved(problems, Sampling(k, wanted.temperature, limit, seed)).view(-1, k)
            known_P = ~solved_PK.isnan().all(1)
            metrics["accuracy/val_pass1"] = float(solved_PK.nanmean())
            metrics["accuracy/val_passk"] = float(solved_PK[known_P].nan_to_num(0.0).amax(1).mean())
        return {name: value for name, value in metrics.items() if not math.isnan(value)}

    def note_validation(self, metrics: Mapping[str, float]) -> None:
        """Compare a validation of the current state with the best so far; later ones are compared with the better one.

        The owner of a new run passes the validation of the starting policy, because training may never improve on it.
        """
        progress = self._progress
        if "accuracy/val" not in metrics:
            return
        progress.since_best += 1
        if progress.best is None or metrics["accuracy/val"] > progress.best:
            progress.best, progress.best_step, progress.since_best = metrics["accuracy/val"], progress.step, 0

    def paid(self, checkpoint: Checkpoint | None = None) -> Paid:
        """Rewards on the next prompts, and held-out accuracy, with the current weights or a checkpoint's. Nothing is
        learned from it, and the trainer is left unchanged."""
        if checkpoint is None:
            return self._paid(None)
        return self._paid(load_state(checkpoint, self._weights, self._ring.get(checkpoint)))

    @together
    def _paid(self, loaded: Loaded | None) -> Paid:
        if loaded is None:
            return self._paid_now()
        before, begin, progress = self.state(), self._begin, self._progress
        try:
            self._load(loaded)
            self._progress = progress  # with the current prompts and random numbers
            return self._paid_now()
        finally:
            self._load(decode(before, self._weights))
            self._begin = begin

    def _paid_now(self) -> Paid:
        self._hand_over()
        knobs = read_knobs(self.controls, self.config.policy)._replace(filter_groups="off", advantage="none")
        rewards = np.concatenate([self._paid_ahead(knobs, batch) for batch in range(BATCHES)])
        solved = self.validate().get("accuracy/val", math.nan)
        return Paid(rewards, solved, len(self.task.held_out(self.config.validation.problems)))

    def _paid_ahead(self, knobs: Knobs, batch: int) -> np.ndarray:
        """Mean reward of each prompt of the next batch, or of a later one."""
        ahead = self._written(self._place(knobs, self.step + 1 + batch, batch * knobs.prompts), knobs, self.on_phase)
        paid_B = torch.tensor([score.reward for score in ahead.scores], dtype=torch.float64)
        return paid_B.view(-1, knobs.group_size).nanmean(1).numpy()

    def _random_bits(self, step: int, purpose: str) -> int:
        """A seed that depends only on the run's seed, the salt and the step, so that no random state needs to be
        stored."""
        return random_bits(self._progress.seed, self._progress.salt, step, purpose) >> 1

    # --- states -----------------------------------------------------------------------------------------------------

    @property
    def checkpoint_due(self) -> bool:
        """Whether the configuration requires a checkpoint after the last step. The loop's owner saves it."""
        wanted, progress = self.config.checkpoint, self._progress
        best = wanted.best and progress.best is not None and progress.best_step == progress.step
        return best or _due(self.step, wanted.every)

    def state(self) -> dict[str, bytes]:
        """A copy of everything that later steps depend on. The knobs are included for a resume."""
        return self._with_all_parts(Trainer._state)

    def _state(self) -> dict[str, bytes]:
        return {name: bytes(content) for name, content in self._files().items()}

    def _with_all_parts(self, method: Callable[..., T], *args: Any) -> T:
        """The result of a method that reads weights: all ranks call it if each holds a part of them."""
        return self.ranks.call(self, method, *args) if self.sharded else method(self, *args)

    def _files(self) -> dict[str, bytes | TensorFile]:
        return to_files(
            self._weights, self.learner.optimizer, self._progress, self.controls.values(), self.reference.weights,
            self._ahead.waiting(),
        )  # fmt: skip

    def put_back(self, state: Mapping[str, bytes]) -> None:
        """Restore `state` within the same attempt; knobs keep their current values."""
        begin = self._begin
        self._load(decode(state, self._weights))
        self._begin = begin

    def snapshot(self, *, keep: bool = False) -> Checkpoint:
        """Save the current state for a rollback: on disk (permanently with `keep`), and in memory if it fits."""
        if keep and self.step not in self._progress.kept:
            self._progress.kept.append(self.step)
        return self.save_checkpoint(remember=True)

    def save_checkpoint(self, *, remember: bool = False) -> Checkpoint:
        """Write the current state and thin out the old ones; raises OSError when the write cannot be made durable."""
        self._refuse_if_torn()
        self._progress.lineage.setdefault(str(self.attempt), self._begin)
        saved = self._with_all_parts(Trainer._write, remember)
        if isinstance(saved, OSError):
            raise saved
        assert saved is not None, "rank 0 writes the state"
        there = set(disk.scan(self._folder))  # not those in memory: they are lost with the process
        present = [checkpoint for checkpoint in self.checkpoints() if checkpoint in there]
        also = [*self._progress.kept, *([self._progress.best_step] if self.config.checkpoint.best else [])]
        kept = disk.worth_keeping([checkpoint.step for checkpoint in present], self.config.checkpoint.keep, also)
        for old in present:
            if old.step not in kept:
                disk.remove(old)
        return saved

    def _write(self, remember: bool) -> Checkpoint | OSError | None:
        """Write the current state on rank 0, with the parts of all ranks, and put it into memory if it fits. An error
        of the disk is returned, because the ranks still work together."""
        files: Mapping[str, bytes | TensorFile] = self._files()
        tensors = [content for content in files.values() if isinstance(content, TensorFile)]
        try:
            if not self.ranks.leads:
                return None
            if remember := remember and self._ring.takes(files):
                files = {name: bytes(content) for name, content in files.items()}
            saved = disk.write(self._folder, self.step, self.attempt, files)
            if remember:
                self._ring.put(saved, {name: bytes(content) for name, content in files.items()})
            return saved
        except OSError as error:
            return error
        finally:
            for content in tensors:
                content.finish()

    def checkpoints(self) -> list[Checkpoint]:
        """States this run can return to, oldest first; branches that a rollback abandoned are excluded."""
        return self._progress.line({*disk.scan(self._folder), *self._ring.checkpoints()})

    def load_checkpoint(self, checkpoint: Checkpoint, *, vary_data: bool) -> None:
        """Return to a state; knobs keep their current values.

        With `vary_data`, later prompts and random numbers differ from all earlier attempts. Nothing changes unless the
        whole state is sound; CheckpointDamaged otherwise.
        """
        loaded = load_state(checkpoint, self._weights, self._ring.get(checkpoint))
        self._load(loaded, vary_data=vary_data)

    def resume(self) -> Checkpoint | None:
        """Continue from the newest state of the folder that loads, knobs included; None when none does.

        `passed_over` says which newer ones do not load, and why.
        """
        self.passed_over = []
        for checkpoint in reversed(disk.scan(self._folder)):
            try:
                loaded = load_state(checkpoint, self._weights)
            except disk.CheckpointDamaged as error:
                self.passed_over.append(str(error))
                continue
            try:
                self.controls.set_all(loaded.knobs)
            except ValueError as error:
                self.passed_over.append(f"{checkpoint.path}: {error}")
                continue
            self._load(loaded)
            return checkpoint
        return None

    @together
    def _load(self, loaded: Loaded, *, vary_data: bool = False) -> None:
        salt = self._progress.salt
        self._ahead.restore(loaded.waiting, self.task, self.device)
        self._torn = True
        reference = apply(loaded, self._weights, self.learner.optimizer)
        self._progress = loaded.progress
        self.reference.restore(reference)
        self.learner.moved.start_anew()
        self.engine.sync()
        self._unsynced = 0
        self._begin = self._progress.step
        if vary_data:
            self._progress.salt = max(salt, self._progress.salt) + 1
        self._torn = False

    def _refuse_if_torn(self) -> None:
        """A mixture of two states must neither learn nor be saved."""
        if self._torn:
            raise RuntimeError(
                "a step or a rollback was interrupted, so this process holds neither the state"
                " before it nor the state after it: resume the run from its newest checkpoint"
            )

    def save_pretrained(self, path: Path) -> None:
        """Write the policy, adapters merged in, as a folder that `transformers` and vLLM can load and `model` can
        name."""
        write_policy(self._with_all_parts(Trainer._whole_policy), self.config, path)

    def _whole_policy(self) -> Policy:
        if not self.sharded:
            return self.policy
        named = {name: {key: whole(t) for key, t in part.items()} for name, part in self._weights.named().items()}
        return policy_with(self.config, lambda _: named)

    def _take_threads(self) -> None:
        """Results depend on the number of threads, and other code in the process may have changed it."""
        torch.set_num_threads(self.config.threads)

    # --- setting up -------------------------------------------------------------------------------------------------

    def _load_policy(self) -> Policy:
        return starting_policy(self.config, self.device)

    def _load_reference(self) -> PreTrainedModel:
        policy = self.config.policy
        device = torch.device("cpu") if policy.reference_offload else self.device
        model = starting_policy(self.config, device, policy.reference_dtype).model.requires_grad_(False)
        self._shard(model)
        return model

    def _shard(self, *models: torch.nn.Module | None) -> None:
        for model in models:
            if self.sharded and model is not None:
                shard(model, self.ranks)

    @contextlib.contextmanager
    def _generating(self) -> Iterator[None]:
        with gathered(self.policy.model), self.learner.arithmetic():
            yield

    def _knobs(self) -> dict[str, float | str]:
        """The configured settings, without those that this model has no layer for."""
        knobs = initial_knobs(self.config)
        if not has_plain_head(self.policy.model):
            del knobs["control/head_float32"]
        return knobs

    def _build_critic(self) -> Critic | None:
        kind = self.config.critic.kind
        if kind == "none":
            return None
        trunk = self._load_policy().model if kind == "separate" else None
        return Critic(kind, self.policy.model.config.hidden_size, trunk, self.scorer).to(self.device)


def _measured(
    rollouts: Rollouts, scores: Sequence[Score], outcomes: Sequence[Outcome], paid_GN: Tensor
) -> dict[str, float]:
    """The metrics of a step's completions and their scores."""
    taken_apart = judged(scores)
    metrics = reward_metrics(scores, taken_apart, paid_GN) | rollout_metrics(rollouts, taken_apart)
    return metrics | episode_metrics(rollouts, outcomes)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _device(wanted: str, number: int) -> torch.device:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ValueError("device = 'cuda': torch finds no usable CUDA device here; set device=cpu or device=auto")
    return torch.device("cuda", number) if wanted != "cpu" and torch.cuda.is_available() else torch.device("cpu")
