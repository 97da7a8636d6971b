"""All settings, each with its unit and its reason. `config.py` reads a configuration."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from stabilizer.core.algorithms import ALGORITHMS
from stabilizer.core.knobs import GROUPED, KNOBS
from stabilizer.training.data.config import DataConfig
from stabilizer.training.environments.config import EnvironmentConfig
from stabilizer.training.environments.search import SearchConfig
from stabilizer.training.rewards.config import RewardConfig, read_specs
from stabilizer.training.tasks import DATA, HELD_OUT, TASKS

Advantage = Literal[
    "group_std", "group_mean", "batch_std", "leave_one_out", "per_reward", "batch_whiten", "greedy", "none", "returns",
    "gae",
]  # fmt: skip
Mismatch = Literal["none", "tis_token", "tis_sequence", "mask_token", "mask_sequence", "mask_geometric"]
COMPARED = (*GROUPED, "per_reward")
"""Advantages that compare the completions of a group."""


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The optimizer: AdamW."""

    kind: Literal["adamw", "adamw_8bit"] = "adamw"
    """Precision of the two moments: 32 bits, or 8 bits through bitsandbytes, which saves 6 bytes per weight."""
    lr: float = 4e-4
    """Peak learning rate. Large because the built-in model is tiny; 1e-6 is usual for models of billions of
    parameters."""
    warmup_steps: int = 5
    """Steps over which the learning rate rises from 0, because Adam's first estimates of the gradient's size are
    poor."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after the warm-up; linear and cosine fall to a tenth of the peak at the last step."""
    weight_decay: float = 0.0
    """AdamW's decay per step, multiplied by the learning rate; not for biases and norms. The default is 0."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Adam's decay rates for the gradient and its square. The second is below the usual 0.999: runs are short."""
    max_grad_norm: float = 1.0
    """Global L2 norm above which the gradient is scaled down, so that one bad batch cannot undo a hundred good ones."""
    adaptive_clip: float = 0.0
    """Also scale gradients down to this multiple of their own running median; 0 for no such limit."""
    micro_batch: int = 0
    """Rows per pass, with and without gradients; gradients accumulate over the minibatch. 0: the whole minibatch."""
    micro_tokens: int = 0
    """Positions per pass, padding included: rows of similar length go together, as many as fit. 0: no limit."""
    block_norms: bool = False
    """Also report the gradient norm of each block of layers."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """The objective. `algorithm` sets these keys to a published recipe; each key can then be changed separately."""

    advantage: Advantage = "group_std"
    """Baseline of a completion: its group (scaled or not; `per_reward` scales each reward function by itself, GDPO),
    the others of its group, the whole batch, the greedy completion of its prompt (ReMax), or none. Per token: none
    (returns) or a critic (gae)."""
    surrogate: Literal["clip", "cispo", "sapo", "geometric", "reinforce"] = "clip"
    """How the ratio to the sampling policy is limited: PPO's clipping, a clipped weight (CISPO), a soft gate (SAPO), a
    geometric mean of clipped ratios (GMPO), or no limit."""
    ratio: Literal["token", "sequence"] = "token"
    """One ratio per token, or one per completion, applied to each of its tokens (GSPO)."""
    average: Literal["token", "sequence", "constant"] = "token"
    """Every token has equal weight (DAPO, and GRPO here), every completion has (GRPO's paper), or the sum is divided by
    a fixed length (Dr. GRPO)."""
    epsilon_low: float = 0.2
    """How far below 1 a probability ratio may fall before its token stops contributing gradient."""
    epsilon_high: float = 0.2
    """How far above 1 a ratio may rise. Above `epsilon_low`, rare good tokens can grow (0.28 in DAPO)."""
    gate: tuple[float, float] = (1.0, 1.05)
    """Steepness of the `sapo` gate, for answers better than their group and for worse ones."""
    dual_clip: float = 0.0
    """Largest weight of a completion with a negative advantage, as a multiple of it (3 is usual); 0 for no limit."""
    ratio_guard: float = 0.0
    """Ratio above which a token, or a completion, is left out of the loss; 0 for none."""
    advantage_clip: float = 0.0
    """Largest absolute value of an advantage; 0 for no limit."""
    beta: float = 0.0
    """Weight of the KL to the reference, per token. The reference is loaded, and the KL measured, only once this is
    above 0."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where the KL acts: as a term of the loss, or as a part of the reward."""
    kl_kind: Literal["k1", "k2", "k3", "k3_is", "k3_k2grad"] = "k3_is"
    """Estimator of the KL; the values and gradients differ in bias. In the reward the default is k1."""
    kl_target: float = 0.0
    """Target of an adaptive KL coefficient, in nats per token; 0 for a fixed beta."""
    kl_horizon: int = 100
    """Steps over which the adaptive coefficient adjusts."""
    reference_every: int = 0
    """Steps between updates of the reference to the current policy; 0 for never."""
    reference_share: float = 1.0
    """Share of the current policy in an updated reference; the rest is the old reference (0.6 is usual in TRL)."""
    reference_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the reference's weights; auto for that of the policy. bfloat16 halves its memory, and rounds the
    KL."""
    reference_offload: bool = False
    """Keep the reference in the memory of the CPU, and on the device only while it is used."""
    entropy_coef: float = 0.0
    """Entropy bonus, in nats of loss per nat of token entropy; a negative value penalises uncertainty."""
    entropy_target: float = 0.0
    """Token entropy in nats below which the bonus grows automatically; 0 for a fixed bonus."""
    whiten: bool = False
    """Scale token advantages to mean 0 and standard deviation 1 over the batch."""
    gamma: float = 1.0
    """Discount per token of later rewards, for token-level advantages."""
    lam: float = 0.95
    """Lambda of generalised advantage estimation: 1 uses returns only, 0 only the next value."""
    inner_epochs: int = 1
    """Passes over one batch of rollouts. More passes learn more from each answer, and move further from the sampling
    policy."""
    minibatches: int = 1
    """Optimizer updates per pass. With one update and one pass, every update is on-policy."""
    filter_groups: Literal["off", "drop", "resample"] = "off"
    """Handling of groups with equal rewards, which teach nothing: keep them, drop them, or sample others instead."""
    resample_batches: int = 4
    """Maximum number of prompt batches that `resample` may draw for one step."""
    mask_truncated: bool = False
    """Leave truncated completions (cut by the length limit) out of the loss."""
    top_entropy: float = 1.0
    """Share of tokens, those with the highest entropy, that the policy term learns from (0.2 is usual); 1 for all."""
    clip_cov: float = 0.0
    """Share of tokens left out because advantage and log-probability covary there (0.0002 is usual); 0 for none."""
    clip_cov_range: tuple[float, float] = (1.0, 5.0)
    """Covariances between which those tokens are drawn."""
    kl_cov: float = 0.0
    """Share of tokens, those with the largest covariance, held to the sampling policy (0.002 is usual); 0 for none."""
    kl_cov_coef: float = 1.0
    """Weight of that penalty, per nat of difference in log-probability."""
    router_aux_coef: float | None = None
    """Weight of the load-balancing loss of a mixture of experts; null for the one in the model's configuration."""
    kl_stop: float = 0.0
    """KL to the sampling policy, in nats per token, above which the remaining updates of a step are not made; 0 for no
    limit. It needs more than one update per step."""
    off_policy_mask: float = 0.0
    """Leave a completion with a negative advantage out of the loss once its log-probability has fallen by this many
    nats per token; 0 for no such mask."""
    overlong_buffer: float = 0.0
    """Share of the length limit, at its end, over which a completion loses up to `overlong_factor`; 0 for none."""
    overlong_factor: float = 1.0
    """Reward lost by a completion at the length limit."""
    mismatch: Mismatch = "none"
    """Correction where the generating engine and the learner disagree: weight (truncated importance sampling) or mask,
    per token or per completion. With another engine than the built-in one, the default is `mask_sequence` up to 3."""
    mismatch_cap: float = 2.0
    """Largest weight of that correction, or largest ratio that is not masked. `mask_geometric` needs one near 1, such
    as 1.01."""


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """The value function of PPO."""

    kind: Literal["none", "separate", "shared"] = "none"
    """A separate model, or a head on the policy's last hidden state, whose gradient then also reaches the policy."""
    lr: float = 1e-3
    """Peak learning rate of the critic's own parameters."""
    coef: float = 0.5
    """Weight of the value loss relative to the policy loss."""
    clip_range: float = 0.2
    """How far a value may move from its value at sampling time before its error stops counting; 0 for no limit."""
    warmup_steps: int = 0
    """Steps at the start in which only the critic trains."""


@dataclass(frozen=True, kw_only=True)
class VllmConfig:
    """vLLM as the generation engine, in this process. Used only with `rollout.engine: vllm`."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of vLLM's weights. float32 agrees with the learner to 1e-5 nats per token; bfloat16 is visibly less
    exact."""
    max_model_len: int | None = None
    """Tokens of prompt and completion together; null for the model's own limit, capped at 4096."""
    max_num_seqs: int = 256
    """Completions generated at the same time; the others wait."""
    kv_cache_gb: float = 1.0
    """GiB for cached keys and values, on a CPU."""
    gpu_memory: float = 0.3
    """Share of the device's memory that vLLM uses, on CUDA; the learner needs the rest."""
    probe: int = 4
    """Number of 32-token sequences on which every transfer of the weights is checked, also to servers."""
    tolerance: float | None = None
    """Largest difference allowed on the probe, in nats per token; null for 0.001, or 0.2 if either side is not in
    float32."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """vLLM servers as the generation engine. Used only with `rollout.engine: vllm-server`."""

    urls: list[str] = field(default_factory=list)
    """Addresses of the servers, for example [http://127.0.0.1:8000]; completions are divided between them."""
    folder: str = ""
    """Folder through which the servers get new weights, and which they can read; empty for the system's temporary
    one."""
    timeout_s: float = 600.0
    """Longest time in seconds for one answer, after which a server is left out."""
    retries: int = 4
    """Times that a question is repeated to a server that fails, after pauses of 0.5 s, 1 s, 2 s, ..."""
    concurrency: int = 256
    """Completions that one server writes at the same time."""


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """Generation of one step."""

    prompts: int = 32
    """Distinct problems per step."""
    group_size: int = 8
    """Completions per prompt, compared with each other."""
    temperature: float = 1.0
    """Sampling temperature; the learner uses the same value."""
    top_p: float = 1.0
    """Draw only from the likeliest tokens that together reach this probability; 1 for all. The learner's
    log-probabilities remain those of the full distribution."""
    top_k: int = 0
    """Draw only from this many of the likeliest tokens; 0 for all."""
    min_p: float = 0.0
    """Draw only tokens with at least this share of the likeliest token's probability; 0 for all."""
    stop: list[str] = field(default_factory=list)
    """Texts that end a completion, besides the model's end tokens, such as '</answer>' or a second end token. Their
    tokens are learned from; reward functions get the text before them."""
    max_completion: int = 8
    """Maximum completion length in tokens, including the end token."""
    engine: Literal["builtin", "vllm", "vllm-server"] = "builtin"
    """Generation engine: the trainer's own sampler, which shares the learner's weights, or vLLM with a copy of them, in
    this process or as servers."""
    asynchronous: bool = False
    """Generate and score the batch of the next step while the learner updates. Answers are then one step of updates old
    (`rollout/staleness`), and `policy.mismatch` corrects for it, by default with `tis_token` up to 2. The built-in
    engine samples from a copy of the weights."""
    vllm: VllmConfig = field(default_factory=VllmConfig)
    """Settings of vLLM."""
    server: ServerConfig = field(default_factory=ServerConfig)
    """Servers of vLLM."""


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Low-rank adapters through `peft`; the reference is then the model without them and needs no extra memory."""

    rank: int = 0
    """Rank of the adapters; 0 trains all weights."""
    alpha: float = 32.0
    """Scale of the adapters; it is divided by the rank."""
    targets: str = "all-linear"
    """Linear layers that get an adapter: 'all-linear', or names separated by commas."""


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Validation on held-out problems."""

    every: int = 10
    """Steps between validations; 0 for none."""
    problems: int = 256
    """Held-out problems per validation, always the same ones; built-in tasks set 512 aside."""
    samples: int = 0
    """Also sample this many answers per problem, for pass@1 and pass@k; 0 for the greedy answer only."""
    temperature: float = 1.0
    """Temperature of those samples."""
    patience: int = 0
    """Validations without a new best after which the run ends early; 0 for never."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """States saved to disk."""

    every: int = 20
    """Steps between checkpoints; 0 for requested ones only."""
    keep: int = 8
    """Number of newest checkpoints to keep. Step 0 and a few older ones are kept too, increasingly far apart."""
    best: bool = True
    """Also save and keep the state with the best validation result."""
    ring: int = 2
    """Newest states also kept in memory, so that a rollback needs no disk read; 0 for none."""
    ring_mb: float = 1024.0
    """Largest total size of these states in megabytes; a larger state is kept on disk only."""


@dataclass(frozen=True, kw_only=True)
class SamplesConfig:
    """Completions saved for display."""

    every: int = 10
    """Steps between samples; 0 for none."""
    count: int = 4
    """Groups shown per step, with all their completions."""
    tokens: bool = False
    """Also keep each token with its log-probability, which makes the files about ten times larger."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One run."""

    task: str = "addition"
    """Name of a built-in task, or `data`, which `data.path` implies."""
    algorithm: str = "grpo"
    """A published recipe: grpo, grpo_clip_higher, dr_grpo, dapo, gspo, gmpo, cispo, sapo, gdpo, clip_cov, kl_cov, rloo,
    remax, reinforce_pp or ppo."""
    stage: Literal["rl", "sft"] = "rl"
    """Reinforcement learning, or supervised fine-tuning on demonstrations, as a start for it. --stage sets it."""
    steps: int = 400
    """Training steps, each with rollouts and all their updates."""
    seed: int = 0
    """Seed of prompts, sampling and shuffling; on a CPU the same seed gives a bit-identical run."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the model; auto uses CUDA if it is available."""
    threads: int = 1
    """CPU threads for training. More than one helps only for models of a million parameters or more."""
    rank_timeout_s: float = 1800.0
    """Longest time in seconds that one of several processes waits for the others within a step."""
    sharding: Literal["none", "full"] = "none"
    """What each of several processes holds: the whole model, or a part of its weights, gradients and optimizer state
    (FSDP2)."""
    fast: Literal["auto", "off"] = "auto"
    """Use the trainer's own forward pass for Llama-like models of up to 500 million parameters, where possible; off
    uses plain `transformers`. Results agree up to rounding."""
    model: str = "builtin"
    """'builtin', 'builtin:TASK' (that task's warm start), a folder, a GGUF file, or a name on the Hugging Face hub: any
    causal language model with its tokenizer."""
    precision: Literal["float32", "mixed", "bfloat16"] = "float32"
    """float32; mixed: float32 weights, bfloat16 arithmetic; bfloat16: the model's weights and gradients too, while the
    optimizer keeps weights in float32. Adapters are always in float32."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"] = "auto"
    """Implementation of attention in `transformers`; auto is its own choice."""
    head_float32: bool = True
    """Compute the learner's last layer, logits and log-probabilities in float32 at any precision."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of keeping them."""
    data: DataConfig = field(default_factory=DataConfig)
    """A data set to train on."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """The reward of completions."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """The optimizer."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """The objective."""
    critic: CriticConfig = field(default_factory=CriticConfig)
    """The value function of PPO."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    """Generation of one step."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """Low-rank adapters."""
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    """Held-out accuracy."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """States on disk."""
    samples: SamplesConfig = field(default_factory=SamplesConfig)
    """Completions saved for display."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """The search environment."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    """An environment of your own."""

    def __post_init__(self) -> None:
        _check(self)


# --- settings that may change during a run ----------------------------------------------------------------------------

KNOB_SETTINGS = (
    ("policy", ("beta", "kl_kind", "epsilon_low", "epsilon_high", "entropy_coef", "entropy_target", "inner_epochs",
                "minibatches", "filter_groups", "mask_truncated", "overlong_buffer", "mismatch", "average")),
    ("optim", ("max_grad_norm",)),
    ("rollout", ("prompts", "group_size", "temperature", "max_completion")),
)  # fmt: skip
"""Settings that are knobs, by group."""


def knob_values(config: TrainConfig) -> dict[str, tuple[str, Any]]:
    """Name of the knob -> (key, value), for all settings that are knobs."""
    keys = [f"{group}.{name}" for group, names in KNOB_SETTINGS for name in names]
    keys += ["policy.advantage"] if config.policy.advantage in GROUPED else []
    values = {f"control/{key.split('.')[1]}": (key, operator.attrgetter(key)(config)) for key in keys}
    return values | {
        "control/head_float32": ("head_float32", config.head_float32),
        "control/validate_every": ("validation.every", config.validation.every),
    }


# --- rules that types cannot express ----------------------------------------------------------------------------------


Rules = tuple[tuple[str, bool, str], ...]
"""(key, whether its value is allowed, what is allowed)"""


def _check(config: TrainConfig) -> None:
    """Check the rules that types cannot express; raises ValueError with the key, its value and the allowed values."""
    _check_choices(config)
    for key, allowed, rule in (*_run_rules(config), *_policy_rules(config), *_part_rules(config)):
        if not allowed:
            raise ValueError(f"{key} = {operator.attrgetter(key)(config)!r}: must be {rule}")
    read_specs(config.reward)
    for name, (key, value) in knob_values(config).items():
        knob = KNOBS[name]
        if not knob.choices and not knob.low <= value <= knob.high:
            raise ValueError(f"{key} = {value!r}: must be between {knob.low:g} and {knob.high:g}")


def _run_rules(c: TrainConfig) -> Rules:
    """Rules for the run, its data, rewards and optimizer."""
    return (
        ("task", c.task in (*TASKS, DATA), f"one of {', '.join((*TASKS, DATA))}"),
        (
            "data.path",
            bool(c.data.path) == (c.task == DATA),
            f"a file or a data set with task: {DATA}, or empty with a built-in task",
        ),
        ("data.held_out", c.data.held_out >= 0, "0 (none), a share below 1, or a count"),
        ("data.max_prompt_tokens", c.data.max_prompt_tokens >= 0, "0 (no limit) or more"),
        (
            "model",
            c.task != DATA or c.model != "builtin",
            "a folder or a name on the hub with your own data set; builtin:addition is a tiny model for trials",
        ),
        (
            "reward.functions",
            c.task != DATA or bool(c.reward.functions) or bool(c.environment.use) or c.stage == "sft",
            "at least one function with a data set, for example [numeric] or [reward.py:mine], or set environment.use",
        ),
        ("reward.timeout_s", 0 < c.reward.timeout_s <= 86400, "above 0 and at most a day"),
        ("reward.import_timeout_s", 0 < c.reward.import_timeout_s <= 86400, "above 0 and at most a day"),
        ("reward.memory_gb", c.reward.memory_gb == 0 or c.reward.memory_gb >= 0.25, "0 (no limit) or at least 0.25"),
        ("algorithm", c.algorithm in ALGORITHMS, f"one of {', '.join(ALGORITHMS)}"),
        ("steps", c.steps >= 1, "at least 1"),
        *_stage_rules(c),
        ("seed", c.seed >= 0, "0 or more"),
        ("threads", 1 <= c.threads <= 1024, "between 1 and 1024"),
        ("rank_timeout_s", 1 <= c.rank_timeout_s <= 604800, "between 1 and 604800 (a week)"),
        ("optim.lr", 0 < c.optim.lr <= 1, "above 0 and at most 1"),
        ("optim.warmup_steps", c.optim.warmup_steps >= 0, "0 or more"),
        ("optim.weight_decay", 0 <= c.optim.weight_decay <= 1, "between 0 and 1"),
        ("optim.betas", all(0 <= beta < 1 for beta in c.optim.betas), "two numbers in [0, 1)"),
        (
            "optim.adaptive_clip",
            c.optim.adaptive_clip == 0 or c.optim.adaptive_clip > 1,
            "0 (off) or above 1, in units of the median gradient norm",
        ),
        (
            "optim.kind",
            c.optim.kind == "adamw" or c.precision != "bfloat16" or c.lora.rank > 0,
            "adamw with precision=bfloat16, where 8-bit moments would update rounded weights; precision=mixed needs as"
            " much memory",
        ),
        ("optim.kind", c.optim.kind == "adamw" or c.sharding == "none", "adamw with sharding=full"),
        ("optim.micro_batch", c.optim.micro_batch >= 0, "0 (all) or more"),
        ("optim.micro_tokens", c.optim.micro_tokens >= 0, "0 (no limit) or more"),
        ("lora.rank", 0 <= c.lora.rank <= 1024, "between 0 (off) and 1024"),
        ("lora.alpha", c.lora.alpha > 0, "above 0"),
    )


def _stage_rules(c: TrainConfig) -> Rules:
    """Rules for supervised fine-tuning, whose loss is the objective with exactly these settings."""
    supervised = c.policy.advantage == "none" and c.policy.surrogate == "reinforce" and c.policy.kl_in == "loss"
    sft = c.stage == "sft"
    return (
        ("policy.surrogate", supervised or not sft, "reinforce, with policy.advantage=none, in the stage `sft`"),
        ("rollout.group_size", c.rollout.group_size == 1 or not sft, "1 in the stage `sft`: one demonstration each"),
        ("rollout.engine", c.rollout.engine == "builtin" or not sft, "builtin in the stage `sft`"),
        ("environment.use", not (sft and c.environment.use), "empty in the stage `sft`"),
    )


def _policy_rules(c: TrainConfig) -> Rules:
    """Rules for the objective and the critic."""
    return (
        ("policy.gate", 0 < min(c.policy.gate) <= max(c.policy.gate) <= 100, "two numbers above 0 and at most 100"),
        ("policy.dual_clip", c.policy.dual_clip == 0 or c.policy.dual_clip > 1, "0 or above 1"),
        ("policy.ratio_guard", c.policy.ratio_guard == 0 or c.policy.ratio_guard > 1, "0 or above 1"),
        ("policy.advantage_clip", c.policy.advantage_clip >= 0, "0 (off) or more"),
        ("policy.kl_target", c.policy.kl_target >= 0, "0 (off) or more"),
        (
            "policy.kl_target",
            c.policy.kl_target == 0 or c.policy.beta > 0,
            "0 while policy.beta = 0, since an adaptive coefficient scales beta",
        ),
        ("policy.kl_horizon", c.policy.kl_horizon >= 1, "at least 1"),
        ("policy.reference_every", c.policy.reference_every >= 0, "0 (never) or more"),
        ("policy.reference_share", 0 < c.policy.reference_share <= 1, "above 0, at most 1"),
        (
            "policy.reference_share",
            c.policy.reference_share == 1 or not c.lora.rank,
            "1 with lora.rank above 0: adapters have no mean",
        ),
        (
            "policy.reference_dtype",
            c.policy.reference_dtype == "auto" or not c.lora.rank,
            "auto with lora.rank above 0: the reference is then the policy without adapters",
        ),
        (
            "policy.reference_offload",
            not (c.policy.reference_offload and (c.lora.rank or c.sharding == "full")),
            "false with lora.rank above 0, where the reference is no second model, and with sharding=full",
        ),
        ("policy.gamma", 0 < c.policy.gamma <= 1, "above 0 and at most 1"),
        ("policy.resample_batches", 1 <= c.policy.resample_batches <= 64, "between 1 and 64"),
        ("policy.lam", 0 <= c.policy.lam <= 1, "between 0 and 1"),
        ("policy.off_policy_mask", c.policy.off_policy_mask >= 0, "0 (off) or more"),
        ("policy.router_aux_coef", (c.policy.router_aux_coef or 0) >= 0, "0 (off) or more, or null"),
        ("policy.kl_stop", c.policy.kl_stop >= 0, "0 (off) or more"),
        *_selection_rules(c.policy),
        ("policy.overlong_factor", c.policy.overlong_factor >= 0, "0 or more"),
        (
            "policy.dual_clip",
            c.policy.dual_clip == 0 or c.policy.surrogate == "clip",
            f"0 with policy.surrogate={c.policy.surrogate}: it bounds only the clipped surrogate",
        ),
        ("policy.mismatch_cap", c.policy.mismatch_cap >= 1, "at least 1"),
        (
            "critic.kind",
            (c.critic.kind != "none") == (c.policy.advantage == "gae"),
            "separate or shared with policy.advantage=gae, none with any other advantage; algorithm=ppo sets both",
        ),
        ("critic.lr", 0 < c.critic.lr <= 1, "above 0 and at most 1"),
        ("critic.coef", c.critic.coef > 0, "above 0"),
        ("critic.clip_range", c.critic.clip_range >= 0, "0 (off) or more"),
        ("critic.warmup_steps", c.critic.warmup_steps >= 0, "0 or more"),
        (
            "policy.filter_groups",
            c.policy.filter_groups == "off" or c.rollout.group_size >= 2,
            "off with rollout.group_size = 1: a group of one always has equal rewards, so all would be dropped",
        ),
        (
            "policy.minibatches",
            c.policy.minibatches <= c.rollout.prompts * c.rollout.group_size,
            f"at most prompts x group_size = {c.rollout.prompts * c.rollout.group_size}, or a minibatch would be empty",
        ),
    )


def _selection_rules(policy: PolicyConfig) -> Rules:
    """Rules for tokens that are treated differently from the others, and for what acts from the second update on."""
    several = policy.minibatches * policy.inner_epochs > 1
    return (
        (
            "policy.kl_stop",
            policy.kl_stop == 0 or several,
            "0 with one update per step, after which nothing is left to stop; raise policy.minibatches",
        ),
        ("policy.top_entropy", 0 < policy.top_entropy <= 1, "above 0, at most 1 (all tokens)"),
        ("policy.clip_cov", 0 <= policy.clip_cov < 1, "0 (off) or more, below 1"),
        ("policy.clip_cov_range", policy.clip_cov_range[0] < policy.clip_cov_range[1], "two numbers, the lower first"),
        ("policy.kl_cov", 0 <= policy.kl_cov < 1, "0 (off) or more, below 1"),
        ("policy.kl_cov_coef", policy.kl_cov_coef > 0, "above 0"),
        (
            "policy.kl_cov",
            policy.kl_cov == 0 or several,
            "0 with one update per step: the policy is the sampling policy then; raise policy.minibatches",
        ),
        (
            "policy.kl_in",
            policy.kl_in == "loss" or policy.advantage != "per_reward",
            "loss with policy.advantage=per_reward, which standardises each reward by itself",
        ),
    )


def _part_rules(c: TrainConfig) -> Rules:
    """Rules for everything else."""
    return (
        ("validation.every", c.validation.every >= 0, "0 (never) or more"),
        ("validation.problems", 1 <= c.validation.problems <= HELD_OUT or c.task == DATA, f"between 1 and {HELD_OUT}"),
        ("validation.samples", 0 <= c.validation.samples <= 256, "between 0 and 256"),
        ("validation.temperature", 0 < c.validation.temperature <= 2, "above 0, at most 2"),
        ("validation.patience", c.validation.patience >= 0, "0 (never) or more"),
        ("checkpoint.every", c.checkpoint.every >= 0, "0 (never) or more"),
        ("checkpoint.keep", c.checkpoint.keep >= 2, "at least 2, so that one may be damaged"),
        ("checkpoint.ring", 0 <= c.checkpoint.ring <= 64, "between 0 (none) and 64"),
        ("checkpoint.ring_mb", c.checkpoint.ring_mb >= 0, "0 (none) or more"),
        ("samples.every", c.samples.every >= 0, "0 (never) or more"),
        ("samples.count", c.samples.count >= 0, "0 or more"),
        (
            "search.url",
            not c.search.url or c.task in ("search", DATA),
            f"empty with task: {c.task}; only the task `search` and your own data (data.path) can be searched",
        ),
        (
            "search.corpus",
            not c.search.corpus or c.task == DATA,
            f"empty with task: {c.task}; it is for your own data (data.path); `search` has built-in documents",
        ),
        (
            "search.corpus",
            not (c.search.corpus and c.search.url),
            "empty with search.url: the retriever has its own documents",
        ),
        ("search.topk", c.search.topk >= 1, "at least 1"),
        ("search.max_turns", c.search.max_turns >= 1, "at least 1"),
        ("search.max_chars", c.search.max_chars >= 1, "at least 1"),
        ("search.timeout_s", c.search.timeout_s > 0, "above 0"),
        (
            "rollout.group_size",
            c.rollout.group_size >= 2 or c.policy.advantage not in COMPARED,
            f"at least 2 with policy.advantage={c.policy.advantage}, because an advantage compares the answers of a"
            " group: with one answer it is always 0",
        ),
        ("rollout.top_p", 0 < c.rollout.top_p <= 1, "above 0, at most 1 (all tokens)"),
        ("rollout.top_k", c.rollout.top_k >= 0, "0 (all tokens) or more"),
        ("rollout.min_p", 0 <= c.rollout.min_p < 1, "0 (all tokens) or more, below 1"),
        ("rollout.stop", all(c.rollout.stop), "texts with at least one character"),
        (
            "rollout.stop",
            not c.rollout.stop or not (_searches(c) or c.environment.use),
            "empty with an environment, which names the texts that end a turn",
        ),
        ("environment.use", not (c.environment.use and _searches(c)), "empty where the policy may search"),
        ("environment.max_turns", c.environment.max_turns >= 1, "at least 1"),
        ("environment.timeout_s", 0 < c.environment.timeout_s <= 86400, "above 0 and at most a day"),
        ("environment.import_timeout_s", 0 < c.environment.import_timeout_s <= 86400, "above 0 and at most a day"),
        (
            "rollout.vllm.max_model_len",
            (c.rollout.vllm.max_model_len or 2) >= 2,
            "at least 2: one prompt token and one completion token",
        ),
        (
            "rollout.asynchronous",
            not (c.rollout.asynchronous and c.rollout.engine == "vllm"),
            "false with rollout.engine=vllm, which generates in the learner's process; servers can (vllm-server)",
        ),
        ("rollout.asynchronous", not (c.rollout.asynchronous and c.stage == "sft"), "false in the stage `sft`"),
        (
            "policy.mismatch",
            not c.rollout.asynchronous or c.policy.mismatch != "none",
            "a correction with rollout.asynchronous, such as tis_token: answers come from older weights",
        ),
        (
            "rollout.asynchronous",
            not (c.rollout.asynchronous and c.rollout.engine == "vllm-server" and _cut(c.rollout)),
            "false with top_p, top_k or min_p on servers: they report log-probabilities of the reduced distribution,"
            " which the correction for older weights cannot use",
        ),
        (
            "rollout.server.urls",
            bool(c.rollout.server.urls) == (c.rollout.engine == "vllm-server"),
            "at least one address with rollout.engine=vllm-server, and empty otherwise",
        ),
        ("rollout.server.timeout_s", 0 < c.rollout.server.timeout_s <= 86400, "above 0 and at most a day"),
        ("rollout.server.retries", 0 <= c.rollout.server.retries <= 16, "between 0 and 16"),
        ("rollout.server.concurrency", 1 <= c.rollout.server.concurrency <= 4096, "between 1 and 4096"),
        ("rollout.vllm.max_num_seqs", c.rollout.vllm.max_num_seqs >= 1, "at least 1"),
        ("rollout.vllm.kv_cache_gb", c.rollout.vllm.kv_cache_gb > 0, "above 0"),
        ("rollout.vllm.gpu_memory", 0 < c.rollout.vllm.gpu_memory < 1, "between 0 and 1"),
        ("rollout.vllm.probe", c.rollout.vllm.probe >= 1, "at least 1: nothing else shows stale weights"),
        ("rollout.vllm.tolerance", (c.rollout.vllm.tolerance or 0) >= 0, "0 or more, or null"),
    )


def _cut(rollout: RolloutConfig) -> bool:
    return (rollout.top_k, rollout.top_p, rollout.min_p) != (0, 1.0, 0.0)


def _searches(config: TrainConfig) -> bool:
    return bool(config.search.url or config.search.corpus) or config.task == "search"


def _check_choices(config: TrainConfig) -> None:
    for key, value, hint in _leaves(config):
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ValueError(f"{key} = {value!r}: must be one of {', '.join(get_args(hint))}")


def _leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    hints = get_type_hints(type(config))
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{prefix}{f.name}.")
        else:
            yield f"{prefix}{f.name}", value, hints[f.name]
