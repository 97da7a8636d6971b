"""Everything that can be set, each with its unit and the reason it exists. How a configuration is read: `config.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stabilizer.training.checks import check
from stabilizer.training.data.config import DataConfig
from stabilizer.training.environments.search import SearchConfig
from stabilizer.training.rewards.config import RewardConfig

Advantage = Literal["group_std", "group_mean", "batch_std", "leave_one_out", "batch_whiten", "none", "returns", "gae"]
Mismatch = Literal["none", "tis_token", "tis_sequence", "mask_token", "mask_sequence"]


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The optimizer: AdamW."""

    lr: float = 4e-4
    """Peak learning rate. Large, because the built-in model is tiny; 1e-6 is usual at billions of parameters."""
    warmup_steps: int = 5
    """Steps over which the learning rate rises from 0: Adam's first estimates of the gradient's size are poor."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the learning rate does after the warm-up; linear and cosine fall to a tenth at the last step."""
    weight_decay: float = 0.0
    """AdamW's decay per step, times the learning rate. 0: the reference holds the weights already."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Adam's memory of gradient and squared gradient. The second is shorter than usual, because runs are short."""
    max_grad_norm: float = 1.0
    """Global L2 norm to which a larger gradient is scaled down: one bad batch must not undo a hundred good ones."""
    adaptive_clip: float = 0.0
    """Also scale gradients down to this many times their own running median; 0 for no such limit."""
    micro_batch: int = 0
    """Rows that go through the model at once; their gradients add up to the minibatch's. 0: all of a minibatch."""
    block_norms: bool = False
    """Report the gradient norm of every block of layers too."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """The objective. `algorithm` sets these keys to a published recipe; each may then be changed by itself."""

    advantage: Advantage = "group_std"
    """What a completion is compared with: its group, scaled or not; the others of its group; the whole batch; nothing;
    or, token by token, nothing (returns) or a critic (gae)."""
    surrogate: Literal["clip", "cispo", "sapo", "reinforce"] = "clip"
    """How the ratio to the sampling policy is held: PPO's clipping, a clipped weight (CISPO), a gate that closes softly
    (SAPO), or not at all."""
    ratio: Literal["token", "sequence"] = "token"
    """Ratios of single tokens, or one of the whole completion, per token (GSPO)."""
    average: Literal["token", "sequence", "constant"] = "token"
    """Every token counts the same (DAPO, and GRPO here), every completion does (GRPO's paper), or a sum over a fixed
    length (Dr. GRPO)."""
    epsilon_low: float = 0.2
    """How far below 1 a probability ratio may go before its token stops pulling."""
    epsilon_high: float = 0.28
    """How far above 1 a ratio may go. Larger than `epsilon_low`, so that rare good tokens can grow (DAPO)."""
    gate: tuple[float, float] = (1.0, 1.05)
    """How steeply `sapo` closes its gate, for better answers than their group and for worse ones."""
    dual_clip: float = 0.0
    """Most that a completion with a negative advantage may weigh, in units of it (3 is usual); 0 for no limit."""
    ratio_guard: float = 0.0
    """Ratio above which a token, or a completion, leaves the loss altogether; 0 for none."""
    advantage_clip: float = 0.0
    """Largest size of an advantage; 0 for no limit."""
    beta: float = 0.005
    """Weight of the KL to the reference, per token. Above 0 also to have that drift measured."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where the KL acts: as a term of the loss, or as a part of what is paid."""
    kl_kind: Literal["k1", "k2", "k3", "k3_is", "k3_k2grad"] = "k3"
    """Estimator of the KL; their values and gradients differ in bias. In the reward it is k1 unless it is set."""
    kl_target: float = 0.0
    """Nats a token that an adaptive coefficient holds the KL to; 0 for a fixed beta."""
    kl_horizon: int = 100
    """Steps over which the adaptive coefficient moves."""
    reference_every: int = 0
    """Steps between refreshes of the reference with the present policy; 0 for never."""
    reference_share: float = 1.0
    """Share of the present policy in a refreshed reference; the rest of it is what it was (0.6 is usual in TRL)."""
    entropy_coef: float = 0.0
    """Nats of loss per nat of token entropy, paid as a bonus; negative punishes indecision."""
    entropy_target: float = 0.0
    """Nats of token entropy below which the bonus grows by itself; 0 for a fixed one."""
    whiten: bool = False
    """Scale the advantages of tokens to mean 0 and deviation 1 over the batch."""
    gamma: float = 1.0
    """Discount per token of what comes later, for advantages by token."""
    lam: float = 0.95
    """Lambda of generalised advantage estimation: 1 trusts returns alone, 0 the next value alone."""
    inner_epochs: int = 1
    """Passes over one batch of rollouts. More learn more from an answer and move further from who wrote it."""
    minibatches: int = 2
    """Optimizer updates per pass."""
    filter_groups: Literal["off", "drop", "resample"] = "off"
    """Groups whose rewards are all the same teach nothing: keep them, leave them out, or sample others instead."""
    resample_batches: int = 4
    """Most batches of prompts that `resample` may draw for one step."""
    mask_truncated: bool = False
    """Leave completions that ran into the length limit out of the loss."""
    off_policy_mask: float = 0.0
    """Nats a token by which a completion with a negative advantage may have become less likely before it leaves the
    loss; 0 for no such mask."""
    overlong_buffer: float = 0.0
    """Share of the length limit, at its end, over which a completion loses up to `overlong_factor`; 0 for none."""
    overlong_factor: float = 1.0
    """Reward lost by a completion at the length limit."""
    mismatch: Mismatch = "none"
    """What is done where the engine that generated and the learner disagree: weigh (truncated importance sampling) or
    mask, by token or by completion."""
    mismatch_cap: float = 2.0
    """Largest weight, or ratio that is still trusted, of that correction."""


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """The value function of PPO."""

    kind: Literal["none", "separate", "shared"] = "none"
    """A model of its own, or a head on the policy's last hidden state, whose gradient then reaches the policy."""
    lr: float = 1e-3
    """Peak learning rate of what belongs to the critic alone."""
    coef: float = 0.5
    """Weight of the value loss beside the policy's."""
    clip_range: float = 0.2
    """How far a value may move from what it was at sampling time before its error stops counting; 0 for no limit."""
    warmup_steps: int = 0
    """Steps at the start in which only the critic learns."""


@dataclass(frozen=True, kw_only=True)
class VllmConfig:
    """vLLM as the generation engine, in this process. Read only under `rollout.engine: vllm`."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of its weights. float32 agrees with the learner to 1e-5 nats a token; bfloat16 visibly does not."""
    max_model_len: int | None = None
    """Tokens of prompt and completion together; null for what the model allows, but no more than 4096."""
    max_num_seqs: int = 256
    """Completions written at the same time; more wait their turn."""
    kv_cache_gb: float = 1.0
    """GiB for keys and values, on a CPU."""
    gpu_memory: float = 0.3
    """Share of the device's memory that vLLM takes, on CUDA; the learner needs the rest."""
    probe: int = 4
    """Sequences of 32 tokens on which every hand-over of the weights is checked."""
    tolerance: float | None = None
    """Nats a token by which the probe may differ; null for 0.001, or 0.2 where either side is not in float32."""


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """What a step generates."""

    prompts: int = 32
    """Distinct problems of a step."""
    group_size: int = 8
    """Completions per prompt, compared with one another."""
    temperature: float = 1.0
    """Sampling temperature; the learner uses the same."""
    max_completion: int = 8
    """Tokens after which a completion is cut, its end token included."""
    engine: Literal["builtin", "vllm"] = "builtin"
    """Who generates: the trainer's own sampler, which shares the learner's weights, or vLLM with a copy of them."""
    vllm: VllmConfig = field(default_factory=VllmConfig)
    """vLLM as the engine."""


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Low-rank adapters through `peft`; the reference is then the model without them, and costs no memory."""

    rank: int = 0
    """Rank of the adapters; 0 trains all weights."""
    alpha: float = 32.0
    """Scale of the adapters, divided by the rank."""
    targets: str = "all-linear"
    """Which linear layers get one: 'all-linear', or names separated by commas."""


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Answers to held-out problems."""

    every: int = 10
    """Steps between validations; 0 for none."""
    problems: int = 256
    """Held-out problems asked, always the same ones; built-in tasks set 512 aside."""
    samples: int = 0
    """Also sample this many answers a problem, for pass@1 and pass@k; 0 for the greedy answer alone."""
    temperature: float = 1.0
    """Temperature of those samples."""
    patience: int = 0
    """Validations without a new best after which the run ends early; 0 for never."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """States kept on disk."""

    every: int = 20
    """Steps between checkpoints; 0 for none but those asked for."""
    keep: int = 8
    """Newest ones kept whole. Of older ones a few stay, spaced further apart the older they are, and step 0."""
    best: bool = True
    """Also save and keep the state with the best validation."""
    ring: int = 2
    """Newest states a fix may go back to that stay in memory too, so that going back reads nothing; 0 for none."""
    ring_mb: float = 1024.0
    """Megabytes these may take together; a state larger than this is on disk alone."""


@dataclass(frozen=True, kw_only=True)
class SamplesConfig:
    """Completions shown to people."""

    every: int = 10
    """Steps between samples; 0 for none."""
    count: int = 4
    """Groups of a step that are shown, with all their completions."""
    tokens: bool = False
    """Also keep each token with its log-probability, which makes the files some ten times larger."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One run."""

    task: str = "addition"
    """Name of a built-in task, or `data`, which setting `data.path` implies."""
    algorithm: str = "grpo"
    """A published recipe: grpo, dr_grpo, dapo, gspo, cispo, sapo, rloo, reinforce_pp or ppo."""
    steps: int = 400
    """Outer iterations: rollouts, then all their updates."""
    seed: int = 0
    """Prompts, sampling and shuffling follow from it; the same seed gives the same run, bit for bit, on a CPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model lives; auto takes CUDA where there is one."""
    threads: int = 1
    """CPU threads to train with. Where the model is too small for several to share each operation, every one writes and
    learns from some of the completions by itself; the numbers then differ in the last digits from those of one."""
    model: str = "builtin"
    """'builtin', 'builtin:TASK' (that task's warm start), a folder, or a name on the Hugging Face hub: any causal
    language model with its tokenizer."""
    precision: Literal["float32", "mixed", "bfloat16"] = "float32"
    """float32; mixed: float32 weights, bfloat16 arithmetic; bfloat16: weights too, at half the memory."""
    head_float32: bool = True
    """Have the learner compute the last layer, logits and log-probabilities in float32 whatever the precision."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of keeping them."""
    data: DataConfig = field(default_factory=DataConfig)
    """A data set to train on."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """What completions are paid."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """The optimizer."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """The objective."""
    critic: CriticConfig = field(default_factory=CriticConfig)
    """The value function of PPO."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    """What a step generates."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """Low-rank adapters."""
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    """Held-out accuracy."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """States on disk."""
    samples: SamplesConfig = field(default_factory=SamplesConfig)
    """Completions shown to people."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """The search environment."""

    def __post_init__(self) -> None:
        check(self)
