"""The vocabulary: name, unit, estimator, better direction and meaning of every canonical metric.

The estimators are those of our own trainer. A run of another trainer states its own in `run.json` under `metrics`. Where
a trainer uses the same word for another quantity, that quantity has another name here. `kind` tells signals and charts
how a number behaves:

    positive   heavy-tailed and above zero: compared by ratio (grad_norm, KL, lengths, times)
    fraction   a share of 0-1
    real       may have any sign: compared by difference
    count      a whole number that describes the set-up, or a running total
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["positive", "fraction", "real", "count"]
Better = Literal["up", "down", "neither"]


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of one metric. `aggregation` says how the values of several updates become one number a step."""

    name: str
    unit: str
    kind: Kind
    better: Better
    estimator: str
    meaning: str
    aggregation: str = "mean over the step's updates"

    @property
    def family(self) -> str:
        """The part before the slash; charts are grouped by it."""
        return self.name.split("/", 1)[0]


_STEP = "one value a step"

# fmt: off
_METRICS = (
    # optim
    Metric("optim/grad_norm", "1", "positive", "neither", "global L2 norm of the gradient before clipping",
           "How hard the loss pulls at the weights. It fluctuates in healthy runs; together with a falling reward it is a warning."),
    Metric("optim/grad_norm_max", "1", "positive", "neither", "largest pre-clip global L2 norm of the step's updates",
           "The worst update of the step, which a mean can hide.", "maximum over the step's updates"),
    Metric("optim/lr", "1", "positive", "neither", "learning rate used by the last update, schedule and scale included",
           "The step size the optimizer really used.", "last update"),
    Metric("optim/grad_cosine", "1", "real", "neither", "cosine of the gradients of a step's first two minibatches, over at most 20,000 weights; the second is taken after the first's update",
           "How far two parts of a batch agree: near 0 the gradient is mostly noise, and a larger batch helps.", _STEP),
    Metric("optim/update_ratio", "1", "positive", "neither", "L2 norm of the change of the weights over the step / L2 norm of the weights; of a model above 5,000 weights over so many of them, the same share of every tensor",
           "How far the weights moved, relative to their size. Zero means nothing was learned.", _STEP),
    Metric("optim/clip_limit", "1", "positive", "neither", "norm above which adaptive clipping scales a gradient down",
           "A multiple of the run's own recent norms, never above `max_grad_norm`."),
    Metric("optim/skipped", "updates", "count", "down", "updates not made because loss or gradient was not finite",
           "Updates discarded to protect the weights.", "sum over the step's updates"),
    # policy
    Metric("policy/loss", "nats/token", "real", "neither", "surrogate plus beta x KL, averaged over completion tokens as the algorithm says; entropy bonus and value error are left out",
           "The quantity that is minimised, without the entropy bonus and the critic. With centred advantages it stays near zero; it does not measure progress."),
    Metric("policy/clip_frac", "share of tokens", "fraction", "neither", "tokens whose ratio left the clip range on the side that matters for their advantage",
           "How many tokens already moved as far as one step allows. Exactly 0 when every rollout is used once."),
    Metric("policy/clip_frac_low", "share of tokens", "fraction", "neither", "tokens with advantage < 0 and ratio < 1 - epsilon_low",
           "Clipping of tokens that are being pushed down."),
    Metric("policy/clip_frac_high", "share of tokens", "fraction", "neither", "tokens with advantage > 0 and ratio > 1 + epsilon_high",
           "Clipping of tokens that are being pushed up."),
    Metric("policy/entropy", "nats/token", "positive", "neither", "softmax entropy of the policy at the sampling temperature, mean over completion tokens",
           "How undecided the policy is. Falling while the reward rises is convergence; falling while it does not is collapse."),
    Metric("policy/kl_old", "nats/token", "positive", "neither", "k3 estimate of KL(sampling policy, current policy), mean over completion tokens",
           "How far the updates of one step moved the policy from the one that wrote the completions."),
    Metric("policy/kl_ref", "nats/token", "positive", "neither", "k3 estimate of KL(policy, reference), mean over completion tokens",
           "How far the policy has drifted from where it started. Drift that raises the reward is learning."),
    Metric("policy/ratio_max", "1", "positive", "neither", "largest probability ratio new/old over completion tokens",
           "The most extreme token of the step; ratios far above the clip range come before gradient spikes.", "maximum over the step's updates"),
    Metric("policy/ratio_min", "1", "positive", "neither", "smallest probability ratio new/old over completion tokens",
           "The token that lost most of its probability.", "minimum over the step's updates"),
    Metric("policy/ratio_p99", "1", "positive", "neither", "99th percentile of the ratios in use (tokens, or completions with a sequence ratio)",
           "The tail of the ratios: `ratio_max` is one token, this is a hundredth of them."),
    Metric("policy/ess", "share of tokens", "fraction", "up", "effective sample size of the ratios, (sum r)^2 / (n sum r^2)",
           "How much of the batch still counts: near 1 on-policy, small when a few tokens outweigh the rest."),
    Metric("policy/dual_clip_frac", "share of tokens", "fraction", "down", "tokens with advantage < 0 and a ratio above `dual_clip`",
           "Bad tokens whose ratio exploded, and whose weight was therefore bounded."),
    Metric("policy/guarded_frac", "share of tokens", "fraction", "down", "tokens left out because their ratio was above `ratio_guard`",
           "Tokens too far from the sampling policy to learn from."),
    Metric("policy/off_policy_masked_frac", "share of completions", "fraction", "down", "completions with a negative advantage left out because they became unlikely already",
           "Bad answers that would teach nothing more."),
    Metric("policy/router_aux", "1", "positive", "down", "load-balancing loss of the routers before its weight, mean over the passes of the step",
           "How unevenly the tokens are spread over the experts."),
    Metric("policy/unselected_frac", "share of tokens", "fraction", "neither", "tokens left out of the policy term by `top_entropy` or `clip_cov`",
           "Tokens that the objective does not learn from.", _STEP),
    Metric("policy/beta", "1", "positive", "neither", "weight of the KL in force: the knob times the adaptive factor", "How strongly the policy is held to its reference in effect.", "one value a step"),
    Metric("policy/entropy_coef", "1", "real", "neither", "weight of the entropy bonus in force: the knob plus what the target entropy adds", "How much entropy is rewarded in effect.", "one value a step"),
    Metric("policy/ratio_first_error", "1", "positive", "down", "largest |ratio - 1| on the step's first update, before any weight moved",
           "Must be zero up to rounding: sampler and trainer are the same policy then.", "first update"),
    Metric("policy/mismatch_kl", "nats/token", "positive", "down", "k3 estimate of KL(generation engine, trainer) on the same weights (first minibatch), mean over completion tokens",
           "How much the engine that generates disagrees with the model that learns.", _STEP),
    Metric("policy/mismatch_k1", "nats/token", "real", "neither", "mean of log p(engine) - log p(trainer) on the same weights: signed, unbiased",
           "Which way the engine disagrees.", _STEP),
    Metric("policy/mismatch_ratio_max", "1", "positive", "down", "largest ratio trainer / engine of a token on the same weights",
           "The token on which engine and trainer disagree most.", _STEP),
    Metric("policy/mismatch_masked_frac", "share of tokens", "fraction", "down", "tokens whose correction weight is 0",
           "Tokens left out because engine and trainer disagree.", _STEP),
    Metric("policy/logp_correct", "nats/token", "real", "up", "mean token log-probability of completions that solved their problem; absent when none did",
           "If correct answers become less likely, the policy unlearns even while the reward still rises.", _STEP),
    Metric("policy/router_shift", "share of assignments", "fraction", "down", "expert assignments of the completion tokens, over all routed layers and slots, that the trainer makes otherwise than the engine did; of a mixture of experts only, as its trainer logs it",
           "How many tokens meet other experts when they are learned from than when they were sampled.", _STEP),
    # reward
    Metric("reward/mean", "reward", "real", "up", "mean over the step's completions",
           "The reward that the policy gets.", _STEP),
    Metric("reward/failed_frac", "share of completions", "fraction", "down", "completions whose reward function failed or timed out",
           "Answers that could not be judged. They are left out of learning and of all other metrics.", _STEP),
    Metric("reward/std", "reward", "positive", "neither", "standard deviation (n - 1) over the step's completions",
           "Spread of rewards over the whole batch.", _STEP),
    Metric("reward/std_group", "reward", "positive", "neither", "mean over groups of the standard deviation (n - 1) within a group",
           "Spread among answers to the same prompt: the learning signal itself.", _STEP),
    Metric("reward/zero_std_frac", "share of groups", "fraction", "down", "groups whose completions all got the same reward",
           "Groups that teach nothing this step.", _STEP),
    Metric("reward/overlong/mean", "reward", "real", "neither", "mean penalty for length over the step's completions", "The penalty that long answers got.", _STEP),
    Metric("reward/raw/mean", "reward", "real", "up", "mean over the step's completions before the penalty for length", "The reward of the task alone, to compare with runs without that penalty.", _STEP),
    Metric("reward/greedy/mean", "reward", "real", "up", "mean over the step's prompts of the greedy completion's reward", "The baseline of ReMax.", _STEP),
    Metric("reward/all_fail_frac", "share of groups", "fraction", "down", "groups in which no completion solved the problem",
           "Prompts that are too hard for now, or a reward that is broken.", _STEP),
    Metric("reward/all_pass_frac", "share of groups", "fraction", "neither", "groups in which every completion solved the problem",
           "Prompts that are already solved.", _STEP),
    Metric("reward/advantage_center_error", "1", "positive", "down", "largest |mean advantage of a group|",
           "Must be zero up to rounding: advantages compare answers within a group.", _STEP),
    # accuracy
    Metric("accuracy/train", "share of completions", "fraction", "up", "sampled completions of the step that solved their problem",
           "How often the policy is right on training problems.", _STEP),
    Metric("accuracy/val", "share of problems", "fraction", "up", "held-out problems solved by the greedy completion",
           "How often the policy is right on problems it never trains on.", _STEP),
    Metric("accuracy/val_pass1", "share of answers", "fraction", "up", "sampled answers to held-out problems that were right",
           "How often a sampled answer is right.", _STEP),
    Metric("accuracy/val_passk", "share of problems", "fraction", "up", "held-out problems that at least one of k sampled answers solved, k = validation.samples",
           "What the policy can solve at all. Falling while pass@1 rises means variety is lost.", _STEP),
    # rollout
    Metric("rollout/length_mean", "tokens", "positive", "neither", "mean completion length, end token included",
           "How long answers are.", _STEP),
    Metric("rollout/length_max", "tokens", "positive", "neither", "longest completion of the step",
           "The longest answer.", _STEP),
    Metric("rollout/length_p90", "tokens", "positive", "neither", "smallest length that nine completions in ten do not exceed",
           "The long end of the answers.", _STEP),
    Metric("rollout/length_reward_corr", "1", "real", "neither", "Pearson correlation of length and reward over the step's completions; absent when either is constant",
           "Whether longer answers get more reward.", _STEP),
    Metric("rollout/truncated_frac", "share of completions", "fraction", "down", "completions cut by the length limit before their end token",
           "Answers that were not finished.", _STEP),
    Metric("rollout/repetition", "share of bigrams", "fraction", "down", "1 - distinct bigrams / bigrams within a completion, mean over completions",
           "How much answers repeat themselves.", _STEP),
    Metric("rollout/distinct", "share of completions", "fraction", "neither", "distinct completions / completions within a group, mean over groups",
           "How different the answers to one prompt are.", _STEP),
    Metric("rollout/distinct_2", "share of bigrams", "fraction", "neither", "distinct bigrams / bigrams over all completions of the step",
           "Variety of wording over the whole step.", _STEP),
    Metric("rollout/prompt_dependence", "1", "real", "neither", "1 - (chance that two tokens agree, drawn from completions of different prompts) / (the same for different completions of one prompt), unbiased over pairs; absent with one prompt or one completion a prompt",
           "How much answers depend on the question. Near 0: every question gets the same answer, however varied its wording.", _STEP),
    Metric("rollout/language_frac", "share of completions", "fraction", "up", "completions in the expected language; not of our own trainer: readers map it, or a reward function reports it",
           "Whether answers stay in the language they are asked for.", _STEP),
    Metric("rollout/staleness", "updates", "count", "down", "optimizer updates between the weights that generated and the weights that learn, at the step's first update",
           "0 means the policy learns from its own fresh answers.", _STEP),
    Metric("rollout/weight_version", "version", "count", "neither", "version of the weights that generated the step's completions, as the engine counts them; the lowest where several did",
           "It grows with every transfer of weights. A version that goes back means an engine that was restarted with older weights.", _STEP),
    Metric("rollout/turns_mean", "turns", "positive", "neither", "mean turns of the policy per episode",
           "How often the policy spoke before its episode was over.", _STEP),
    Metric("rollout/searches_mean", "searches", "positive", "neither", "mean answered calls of the tool per episode",
           "How often the policy looks something up. Falling to zero while rewards stay low: it has given up on the tool.", _STEP),
    Metric("rollout/retrieved_frac", "share of tokens", "fraction", "neither", "completion tokens put in by the environment / all completion tokens",
           "How much of an episode the policy only reads. These tokens are left out of the loss.", _STEP),
    Metric("rollout/invalid_calls_frac", "share of calls", "fraction", "down", "calls without a query / calls; absent when nothing was called",
           "How often the policy uses the tool wrongly.", _STEP),
    Metric("rollout/sync_error", "nats/token", "positive", "down", "mean difference of the probe tokens' log-probabilities between generation engine and trainer, after the weights were handed over",
           "Must be rounding. More means that the engine answers with other weights than those that learn.", _STEP),
    Metric("rollout/sync_retries", "attempts", "count", "down", "hand-overs repeated because the first one did not arrive",
           "Must be zero: a hand-over that fails once will fail again.", _STEP),
    # value
    Metric("value/loss", "reward^2", "positive", "down", "half the squared error of the values, the larger of the clipped and the plain one, mean over completion tokens", "How wrong the critic is."),
    Metric("value/clip_frac", "share of tokens", "fraction", "neither", "tokens whose value moved further than the clip range", "Where the critic was held back."),
    Metric("value/mean", "reward", "real", "neither", "mean value over completion tokens", "What the critic expects."),
    Metric("value/grad_norm", "1", "positive", "neither", "L2 norm of the gradient of the critic's own weights before clipping", "How hard the value error pulls."),
    Metric("value/explained_variance", "1", "real", "up", "1 - var(returns - values) / var(returns)",
           "1: the critic predicts the returns; 0: it is no better than a constant; below 0: it misleads."),
    # time, tokens, batch
    # the machine, sampled seldom
    Metric("system/ranks_apart", "processes", "count", "down", "processes of a training whose knobs are not those of the first one after a step, by a hash of all values", "Above 0 the processes no longer train one policy.", _STEP),
    Metric("system/cpu_frac", "share of all cores", "fraction", "neither", "busy time of all cores since the previous sample", "How busy the machine is, other programs included.", _STEP),
    Metric("system/process_cores", "cores", "positive", "neither", "processor time of the process per second since the previous sample", "How many cores training uses.", _STEP),
    Metric("system/memory_frac", "share of memory", "fraction", "neither", "memory of the machine that is not available to new programs", "Near 1 the system ends processes.", _STEP),
    Metric("system/container_memory_frac", "share of the limit", "fraction", "neither", "memory used by the container over its limit", "At 1 the container is killed.", _STEP),
    Metric("system/process_memory_gb", "GB", "positive", "neither", "resident memory of the process", "A steady rise is a leak.", _STEP),
    Metric("system/disk_free_gb", "GB", "positive", "neither", "free space where the run is written", "Checkpoints fail when it is gone.", _STEP),
    Metric("system/network_mb_s", "MB/s", "positive", "neither", "bytes received and sent by the machine since the previous sample, without loopback", "Traffic of the machine.", _STEP),
    Metric("system/gpu_frac", "share of time", "fraction", "neither", "share of the last moment in which a kernel ran on the GPU", "How busy the GPU is.", _STEP),
    Metric("system/gpu_memory_frac", "share of memory", "fraction", "neither", "memory of the GPU in use, other programs included", "Near 1 the next allocation fails.", _STEP),
    Metric("system/gpu_memory_gb", "GB", "positive", "neither", "memory of the GPU in use, other programs included", "How much of the GPU is taken.", _STEP),
    Metric("time/step_s", "s", "positive", "down", "wall time of the whole step, validation included, monitoring excluded", "How long a step takes.", _STEP),
    Metric("time/rollout_s", "s", "positive", "down", "wall time of generation and scoring; with rollout.asynchronous, of waiting for them", "How long answering takes.", _STEP),
    Metric("time/scoring_s", "s", "positive", "down", "wall time of advantages, reference, values and what else is computed before the updates", "How long preparing takes.", _STEP),
    Metric("time/metrics_s", "s", "positive", "down", "wall time of the trainer's own metrics beyond the training pass, but for those left until the row is written", "What measuring costs.", _STEP),
    Metric("time/update_s", "s", "positive", "down", "wall time of the optimizer updates", "How long learning takes.", _STEP),
    Metric("time/sync_s", "s", "positive", "down", "wall time of handing the weights to the generation engine and checking them there, part of the updates'", "What an engine with a copy of the weights costs.", _STEP),
    Metric("time/monitor_s", "s", "positive", "down", "wall time of logging and detectors after the previous step, and of the metrics left until then", "What watching costs.", _STEP),
    Metric("tokens/total", "tokens", "count", "neither", "prompt and completion tokens so far", "How much text the run has seen.", "running total"),
    Metric("batch/prompts", "prompts", "count", "neither", "prompts with a completion that took part in an update", "Distinct problems a step learns from.", _STEP),
    Metric("batch/prompts_drawn", "prompts", "count", "neither", "prompts the step generated for", "More than are learned from when groups are filtered.", _STEP),
    Metric("batch/group_size", "completions", "count", "neither", "completions per prompt", "Answers compared with one another.", _STEP),
    Metric("batch/updates", "updates", "count", "neither", "optimizer updates made in the step; skipped ones do not count", "How often one batch is used, minibatches included.", _STEP),
    # control: the knobs as they were for the step
    Metric("control/lr_scale", "1", "positive", "neither", "factor on the scheduled learning rate", "Changed by remedies and manually.", _STEP),
    Metric("control/beta", "1", "positive", "neither", "weight of the KL term", "How strongly the policy is held to its reference.", _STEP),
    Metric("control/epsilon_low", "1", "positive", "neither", "lower clip range", "How far below 1 a ratio may go.", _STEP),
    Metric("control/epsilon_high", "1", "positive", "neither", "upper clip range", "How far above 1 a ratio may go.", _STEP),
    Metric("control/temperature", "1", "positive", "neither", "sampling temperature", "How boldly answers are sampled.", _STEP),
    Metric("control/max_grad_norm", "1", "positive", "neither", "gradient norm above which updates are scaled down", "The clip on the gradient.", _STEP),
    Metric("control/entropy_coef", "1", "real", "neither", "weight of the entropy bonus", "How much entropy is rewarded.", _STEP),
    Metric("control/prompts", "prompts", "count", "neither", "prompts per step asked for", "The batch knob.", _STEP),
    Metric("control/group_size", "completions", "count", "neither", "completions per prompt asked for", "The group knob.", _STEP),
    Metric("control/inner_epochs", "passes", "count", "neither", "passes over one batch of rollouts", "How often answers are reused.", _STEP),
    Metric("control/minibatches", "updates", "count", "neither", "optimizer updates per pass", "How a batch is split.", _STEP),
    Metric("control/kl_kind", "k1 k2 k3 k3_is k3_k2grad", "count", "neither", "estimator of the KL in the loss, counted from 0", "Which estimate of the KL is penalised.", _STEP),
    Metric("control/entropy_target", "nats/token", "positive", "neither", "entropy below which the bonus grows; 0 for none", "The entropy that is defended.", _STEP),
    Metric("control/filter_groups", "off drop resample", "count", "neither", "what happens to groups of equal rewards, counted from 0", "Whether silent groups are kept.", _STEP),
    Metric("control/mask_truncated", "off on", "count", "neither", "whether cut completions are left out of the loss", "Whether unfinished answers teach.", _STEP),
    Metric("control/overlong_buffer", "share of the limit", "fraction", "neither", "part of the length limit over which length is penalised", "Where the penalty for length begins.", _STEP),
    Metric("control/mismatch", "none tis_token tis_sequence mask_token mask_sequence mask_geometric", "count", "neither", "correction of engine mismatch, counted from 0", "What is done where engine and trainer disagree.", _STEP),
    Metric("control/head_float32", "off on", "count", "neither", "whether logits are computed in float32", "Precision of the last layer.", _STEP),
    Metric("control/validate_every", "steps", "count", "neither", "steps between validations", "How often held-out problems are tested.", _STEP),
    Metric("control/advantage", "group_std group_mean batch_std leave_one_out", "count", "neither", "how advantages are formed within groups, counted from 0", "The normaliser.", _STEP),
    Metric("control/average", "token sequence constant", "count", "neither", "what the loss is averaged over, counted from 0", "Whether long answers weigh more.", _STEP),
    Metric("control/actor_frozen", "off on", "count", "neither", "whether only the critic learns", "Whether the policy waits for the critic to catch up.", _STEP),
    Metric("control/max_completion", "tokens", "count", "neither", "longest completion allowed", "The length limit.", _STEP),
)
# fmt: on

VOCABULARY: dict[str, Metric] = {metric.name: metric for metric in _METRICS}

_COMPONENT = Metric("reward/<component>/mean", "reward", "real", "up", "mean of one reward component over the step's completions",
                    "One term of the reward.", _STEP)  # fmt: skip
_BLOCK = Metric("optim/grad_norm/<block>", "1", "positive", "neither", "pre-clip L2 norm of the gradient of one block of layers",
                "Which part of the model the loss pulls at.")  # fmt: skip
_COMPONENT_FAILED = Metric("reward/<component>/failed_frac", "share of completions", "fraction", "down", "completions for which one reward function failed, of those it applies to",
                           "How often one reward function raised, hung or returned no number.", _STEP)  # fmt: skip
_RANK = Metric(
    "rank/<quantity>", "", "real", "neither", "value of one process before reduction", "A single process's view.", _STEP
)


UNKNOWN = Metric(
    name="",
    unit="",
    kind="real",
    better="neither",
    estimator="as logged by the trainer",
    meaning="Not in our vocabulary: shown as it was logged.",
    aggregation="as logged",
)


def metric(name: str) -> Metric:
    """The definition of `name`. An unknown name gets an empty definition, so that any logged metric can be shown."""
    if known := VOCABULARY.get(name):
        return known
    if name.startswith("reward/") and name.endswith("/mean"):
        return replace(_COMPONENT, name=name)
    if name.startswith("reward/") and name.endswith("/failed_frac"):
        return replace(_COMPONENT_FAILED, name=name)
    if name.startswith("optim/grad_norm/"):
        return replace(_BLOCK, name=name)
    if name.startswith("rank/"):
        return replace(_RANK, name=name)
    return replace(UNKNOWN, name=name)


def is_known(name: str) -> bool:
    """Whether a metric has a definition here."""
    return metric(name).meaning != UNKNOWN.meaning


_RL_FAMILIES = ("reward/", "accuracy/", "rollout/", "value/", "policy/kl", "policy/clip", "policy/ratio", "policy/mismatch")  # fmt: skip


def is_rl(names: Iterable[str]) -> bool:
    """Whether a run with these metrics is a reinforcement-learning run: it has a reward, or the drift of a policy."""
    return any(name.startswith(_RL_FAMILIES) for name in names)


_RIGHT = ("accura", "correct", "solve", "success", "answer", "passed", "pass_rate", "exact_match", "ground_truth",
          "gold", "true", "oracle")  # fmt: skip
_FORM = ("format", "xml", "tag", "length", "style", "compil", "think")


def means_right(name: str) -> bool:
    """Whether the name of a reward component says that it rewards correct answers, and not their form."""
    component = name.split("/")[1].lower() if name.count("/") == 2 else ""
    return any(word in component for word in _RIGHT) and not any(word in component for word in _FORM)
