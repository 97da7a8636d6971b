"""What stands out in a handful of rows, and what to look at: what a colleague says of a pasted table.

Detectors judge trends and need more rows. A sign is a fact of the newest row with the settings that usually make it; it
is no verdict. Each entry of `SIGNS` is one function over the newest view. It answers only where the fact is in the log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from stabilizer.detectors.evidence.settings import penalised
from stabilizer.detectors.system.first_rows import BEYOND_TEXT, CALL_IT, silent_parts
from stabilizer.detectors.system.first_rows import FAR as NOTHING_LEFT
from stabilizer.runs.history import RunView
from stabilizer.trainers.settings import configured

FEW = 24
"""Rows up to which signs are shown; with more, the detectors judge."""
CUT = 0.25
"""Share of answers cut at the limit from which users ask for it: a quarter of the answers earn nothing."""
GENERATES = 0.6
"""Share of a step spent on generation from which it decides the pace."""
WITH_ENGINE = (
    "verl", "easyr1", "search_r1", "openrlhf", "skyrl", "nemo_rl", "slime", "prime_rl", "areal", "roll"
)  # fmt: skip
"""Trainers that always generate with an engine: minutes a step are usual there."""
SLOW_S = 60.0
"""Seconds a step from which users ask why it is slow."""
FAR = 0.05
"""Approximate KL, in nats, of the updates of one batch: PPO's usual target is 0.01 to 0.02."""
CLIPPED = 0.4
"""Share clipped in the updates of one batch, from which most samples teach nothing; 0.1 to 0.2 is usual."""
RANDOM = 3.5
"""Entropy in nats a token above which text is nearly random: language models sample at 0.2 to 2."""
SPENT = 0.02
"""Entropy in nats below which a policy chooses nearly the same each time."""
BLIND = 0.05
"""Explained variance below which a critic is no better than a constant."""
HIGH_RATE = 2e-5
"""Learning rate above the usual 1e-6 to 1e-5 of reinforcement learning with language models."""
LOW_RATE = 1e-7
"""Learning rate at which hundreds of steps change a policy less than its noise, as in preflight's `lr/range`."""
HIGH_RATE_GAME = 3e-3
"""The same for small networks in environments; PPO's default is 3e-4."""
DRIFTED = 0.5
"""KL to the reference in nats a token; runs that stay sane end below 0.1."""
FAR_ANSWER = 18.0
"""KL in nats an answer: three times the 6 at which TRL's PPO holds it by default (`target`)."""
RECOMPUTED = 5e-4
"""KL in nats between two passes of the same weights; rounding of bfloat16 alone gives 1e-5 to 1e-4."""
APART = 0.01
"""KL between engine and trainer on the same weights; 1e-4 to 1e-3 is rounding."""
GAP = 0.04
"""Mean absolute difference of a token's log-probability; 0.005 to 0.02 is bf16's rounding."""
GAPS = ("logprob_abs_diff", "logprobs_abs_diff_mean", "sampling_logp_difference/mean")
"""How trainers call this difference."""
WEIGHED = 2.0
"""Mean importance ratio between trainer and engine, or its inverse; exact probabilities give 1."""
LEAST_OF_A_TREND = 6
"""Rows from which a trend is said."""
BEYOND_CHANCE = 3.3
"""Standard errors of Kendall's rank statistic (one in a thousand by chance) from which rows go one way."""
LOST = 0.2
"""Share of its level that the reward has lost when users ask why it falls."""
GROWN = 1.5
"""Factor by which a critic's loss, or the length of answers, has grown when users ask why it does."""
STALE = 4.0
"""Mean age of samples in weight versions; asynchronous trainers allow 1 to 4."""
SEPARATED = 0.99
"""Share of pairs told apart after which preference training has nothing left to learn."""
LARGE_LOSS = 1e4
"""Loss of a critic: a squared error of returns, so returns are in the hundreds; 0.1 to 100 is usual."""
HEAVY = 10.0
"""Entropy coefficient of SAC; it starts at 1 and usually falls below."""
HELD_OUT = ("validation_loss", "eval_loss", "val_loss")
RISEN = 1.1
"""Factor of a held-out loss over its lowest, from which it has risen; noise of an evaluation is a few per cent."""
SCORES = 0.4
"""Share of a step spent on rewards from which they decide the pace."""
STEADY = 0.1
"""Relative spread of length, KL and entropy within which the policy counts as unchanged."""
DROPPED = 0.5
"""Factor of the reward from one row to the next that noise of prompts hardly makes."""
JUMPED, AROUND = 5.0, 6
"""Factor of a rise in one row that learning hardly makes, and the rows on each side that it must last."""
OF_GAMES = {"fps", "ep_rew_mean", "episode_len_mean", "total_timesteps", "training_iteration", "clip_range"}
"""Columns of logs whose policy plays in an environment instead of writing text."""


class Sign(NamedTuple):
    """A fact of the newest row, and what usually makes it."""

    id: str
    what: str
    """With the numbers of the log."""
    look: str
    """What to look at or to change."""


Answer = tuple[str, str] | None


def signs(view: RunView, causes: Collection[str] = ()) -> list[Sign]:
    """What stands out, mostly in a short log; `causes` of findings are not repeated."""
    few = max((len(view.series(name).values) for name in view.names()), default=0) <= FEW
    told = [(name, ask(view)) for name, ask, cause in SIGNS if cause not in causes and (few or name in OF_ANY_LENGTH)]
    return [Sign(name, *said) for name, said in told if said]


def _last(view: RunView, name: str) -> float | None:
    """The newest value; None where there is none or it is not finite."""
    values = view.series(name).values
    return float(values[-1]) if len(values) and math.isfinite(values[-1]) else None


def _named(view: RunView, end: str | tuple[str, ...]) -> float | None:
    """The newest value of a column of the trainer's own."""
    return next((_last(view, name) for name in view.names() if name.endswith(end)), None)


def _plays(view: RunView) -> bool:
    return any(name.rpartition("/")[2] in OF_GAMES for name in view.names())


def not_a_number(view: RunView) -> Answer:
    """A column whose newest value is NaN or infinite."""
    bad = [name for name in view.names() if len(v := view.series(name).values) and not math.isfinite(v[-1])]
    if not bad:
        return None
    zero = [name for name in view.names() if name.endswith("loss") and _last(view, name) == 0]
    masked = (
        f"; {zero[0]} prints as 0 because the trainer replaces NaN by 0" if zero and "optim/grad_norm" in bad else ""
    )
    return (
        f"{', '.join(bad[:3])} is not a number{masked}",
        "usual causes: float16 where the model was made for bfloat16 (load and train in bf16 or float32), a batch in"
        " which every label is masked or every answer empty, log-probabilities of -inf from a masked token, or weights"
        " damaged by an earlier update (then go back to a checkpoint before the first NaN, at a lower learning rate)",
    )


def answers_cut(view: RunView) -> Answer:
    """Many answers end at the length limit."""
    cut = _last(view, "rollout/truncated_frac")
    if cut is None or cut < CUT:
        return None
    most = _last(view, "rollout/length_max")
    at = f" at {most:,.0f} tokens" if most else ""
    return (
        f"{cut:.0%} of answers are cut by the length limit{at}",
        "a cut answer has no result and earns nothing, so the reward shows the limit as much as the skill: raise"
        " max_completion_length (data.max_response_length, generate_max_len), ask for shorter answers, or leave cut"
        " ones out of the loss (mask_truncated_completions)",
    )


def lengths_equal(view: RunView) -> Answer:
    """Every row has the same mean length."""
    length = view.series("rollout/length_mean").finite().values
    if "rollout/truncated_frac" in view or _plays(view) or len(length) < 2 or np.ptp(length) or length[0] % 1:
        return None
    return (
        f"the mean length of answers is exactly {length[0]:,.0f} in every row",
        "that is the length limit itself: every answer is cut before it ends. Raise the limit, check that the end token"
        " of the chat template is the one generation stops at, and that the prompt asks for an end",
    )


def generation_rules(view: RunView) -> Answer:
    """Generation takes most of a step."""
    step, rollout = _last(view, "time/step_s"), _last(view, "time/rollout_s")
    if step is None or rollout is None or step < SLOW_S / 6 or rollout < GENERATES * step:
        return None
    return (
        f"generation takes {rollout:,.0f} s of a step of {step:,.0f} s ({rollout / step:.0%})",
        "the longest answer of a batch sets its time, and other GPUs wait: a lower length limit, an engine on every GPU"
        " (vllm_mode='colocate', tensor parallel 1, more engines), more memory for its cache (gpu_memory_utilization,"
        " max_num_seqs), CUDA graphs (enforce_eager=False), or asynchronous rollouts",
    )


def rewards_slow(view: RunView) -> Answer:
    """Rewards take much of a step."""
    step, rewards = _last(view, "time/step_s"), _named(view, "timing_s/reward")
    if step is None or rewards is None or rewards < SCORES * step:
        return None
    return (
        f"rewards take {rewards:,.0f} s of a step of {step:,.0f} s ({rewards / step:.0%})",
        "compute them in parallel or while answers are still generated (asynchronous rewards, a pool of processes, more"
        " workers), and bound each one's time: one answer that hangs a verifier or a service holds up the whole step",
    )


def loss_gone(view: RunView) -> Answer:
    """Loss and gradient have fallen to exactly 0 in training without rewards."""
    names = [name for name in view.names() if name.rpartition("/")[2] == "loss"]
    loss = view.series(names[0]).finite().values if names else np.array([])
    if "reward/mean" in view or len(loss) < 2 or loss[-1] != 0 or loss.max() <= 0 or _last(view, "optim/grad_norm"):
        return None
    return (
        f"the loss went from {loss.max():.3g} to exactly 0, with no gradient",
        "the model has diverged (NaN is printed as 0: float16, too high a learning rate; return to a checkpoint)"
        " or no token counts any more: labels all masked, texts cut before the answer",
    )


def reward_constant(view: RunView) -> Answer:
    """Every row has the same mean reward."""
    reward = view.series("reward/mean").finite().values
    if len(reward) < 3 or np.ptp(reward) or not reward[0]:
        return None
    why = (
        "episodes end at their time limit without ever reaching the goal: shape the reward, explore more (ent_coef, a"
        " higher learning rate), or start nearer to the goal"
        if _plays(view) or reward[0] < 0
        else "the reward function gives the same to every answer: call it on a right and a wrong one"
    )
    return f"the mean reward is exactly {reward[0]:.3g} in every row", why


def part_silent(view: RunView) -> Answer:
    """One of several reward functions gives next to nothing in all rows."""
    silent = silent_parts(view)
    return (silent, CALL_IT) if silent else None


def reward_drops_alone(view: RunView) -> Answer:
    """The reward moves from one row to the next, for good, while the policy stays as it was."""
    reward = view.series("reward/mean").finite().values
    names = ("rollout/length_mean", "policy/kl_ref", "policy/entropy")
    others = [view.series(name).finite().values for name in names]
    others = [values for values in others if len(values) == len(reward)]
    if len(reward) < 3 or not others or reward.max() <= 0:
        return None
    place = int(np.argmax(np.abs(np.diff(reward)))) + 1
    before, after = reward[:place], reward[place:]
    near = slice(max(0, place - AROUND), place + AROUND)
    steady = all(np.ptp(values[near]) <= STEADY * max(np.abs(values[near]).max(), 1e-3) for values in others)
    dropped = after.max() <= DROPPED * before.min()
    jumped = min(len(before), len(after)) >= AROUND and 0 < JUMPED * before.max() < after.min()
    if not steady or not (dropped or jumped):
        return None
    was, now = (before.min(), after.max()) if dropped else (before.max(), after.min())
    went = "fell" if dropped else "rose"
    return (
        f"the reward {went} from {was:.3g} to {now:.3g} in one row, while length, KL or entropy stayed as they were",
        "then the policy did not change but what judges it: the unit or a weight of the reward, the verifier or its"
        " service, the data, or the engine lost its weights (a restart); score some stored answers again",
    )


def _trend(view: RunView, name: str) -> tuple[float, float] | None:
    """Means of the first third of the rows and of the last, where the rows go one way by more than chance."""
    values = view.series(name).finite().values
    rows = len(values)
    if rows < LEAST_OF_A_TREND:
        return None
    later = np.sign(values[None, :] - values[:, None])[np.triu_indices(rows, 1)].sum()
    if abs(later) < BEYOND_CHANCE * math.sqrt(rows * (rows - 1) * (2 * rows + 5) / 18):
        return None
    return float(values[: rows // 3].mean()), float(values[-(rows // 3) :].mean())


OUTWEIGHED = (
    "training optimises the penalised reward, so the penalty outweighs the task: halve the weight of the KL penalty"
    " (algorithm.kl_ctrl.kl_coef, kl_coef) until both rise together"
)
"""What to do about a reward that falls for its KL penalty."""


def _rose_after_penalty(view: RunView) -> str:
    name = penalised(view)
    trained = _trend(view, name) if name else None
    if trained is None or trained[1] <= trained[0]:
        return ""
    return f"and after its KL penalty ({name}) it rose from {trained[0]:.3g} to {trained[1]:.3g}"


def reward_falls(view: RunView) -> Answer:
    """The reward has fallen over the rows, and the policy moved meanwhile."""
    before, after = _trend(view, "reward/mean") or (0.0, 0.0)
    if before <= 0 or after > (1 - LOST) * before or _plays(view):
        return None
    named = (("policy/entropy", "entropy"), ("rollout/length_mean", "length"), ("policy/kl_ref", "KL to the reference"),
             ("optim/grad_norm", "gradient norm"), ("rollout/truncated_frac", "share of answers cut"))  # fmt: skip
    moved = [f"{word} {move[0]:.3g} to {move[1]:.3g}" for name, word in named if (move := _trend(view, name))]
    rate = _last(view, "optim/lr")
    what = f"the reward fell from {before:.3g} to {after:.3g} over the rows"
    if for_penalty := _rose_after_penalty(view):
        return f"{what}, {for_penalty}", OUTWEIGHED
    return (
        f"{what}{'; meanwhile ' if moved else ''}" + ", ".join(moved),
        f"steps too large for the batch are the usual reason: a learning rate 3 to 10 times lower{_at(rate)}, more"
        " prompts a batch, a KL weight; start again from a checkpoint before it began to fall",
    )


def _at(rate: float | None) -> str:
    return f" (now {rate:.2g})" if rate else ""


def ratios_far(view: RunView) -> Answer:
    """The importance ratio between trainer and engine is far from 1."""
    ratio = _named(view, "importance_sampling_ratio/mean")
    if ratio is None or 1 / WEIGHED < ratio < WEIGHED:
        return None
    gap, length = _named(view, "sampling_logp_difference/mean"), _last(view, "rollout/length_mean")
    total = ""
    if gap and length:
        factor = math.exp(min(gap * length, 700))
        total = f": {gap:.3g} a token over {length:,.0f} tokens multiplies to a factor of {factor:.2g}"
    return (
        f"the mean importance ratio of trainer to engine is {ratio:.3g}{total}",
        "a ratio of whole answers grows with their length though each token's difference is rounding: weigh tokens"
        " (vllm_importance_sampling_mode='token_truncate'), which is bounded by vllm_importance_sampling_cap; more than"
        " 0.02 a token is a fault instead: stale weights, another precision or temperature in the engine",
    )


def length_with_score(view: RunView) -> Answer:
    """A score without bounds rises with the length of answers."""
    reward, length = _trend(view, "reward/mean"), _trend(view, "rollout/length_mean")
    scores = view.series("reward/mean").finite().values
    if reward is None or length is None or _plays(view) or 0 <= scores.min() <= scores.max() <= 1:
        return None
    if reward[1] <= reward[0] or length[1] < GROWN * length[0]:
        return None
    return (
        f"the reward rose from {reward[0]:.3g} to {reward[1]:.3g} and the answers from {length[0]:,.0f} to"
        f" {length[1]:,.0f} tokens, together",
        "a reward model may pay for length: score some answers cut to half and padded to double. If it does, subtract a"
        " penalty on length, raise the KL weight (init_kl_coef, kl_loss_coef, beta), or compare answers of one length",
    )


def critic_outgrown(view: RunView) -> Answer:
    """The critic's loss grows with the rewards."""
    loss, reward = _trend(view, "value/loss"), _trend(view, "reward/mean")
    if loss is None or reward is None or loss[1] < GROWN * loss[0] or reward[1] <= reward[0]:
        return None
    return (
        f"the critic's loss rose from {loss[0]:.3g} to {loss[1]:.3g} while the reward rose from {reward[0]:.3g} to"
        f" {reward[1]:.3g}",
        "returns grow faster than the critic follows: scale or normalise rewards (running mean and deviation, clips),"
        " gamma below 1, a higher learning rate for the critic; advantages are biased until its loss falls again",
    )


def ratio_leaves_one(view: RunView) -> Answer:
    """Old and new log-probabilities differ although the policy has not changed between them."""
    trainer = str(view.about("trainer"))
    once = (configured(view.about("config"), trainer, name) == 1 for name in ("updates", "inner"))
    clip, kl = _last(view, "policy/clip_frac"), _last(view, "policy/kl_old")
    if not (clip or abs(kl or 0) > RECOMPUTED) or not all(once):
        return None
    parts = [f"{clip:.2%} of tokens are clipped" if clip else "", f"the KL of the update is {kl:.2g}" if kl else ""]
    return (
        f"one update is made of a batch, so old and new log-probabilities are of the same weights and every ratio"
        f" should be 1, but {' and '.join(filter(None, parts))}",
        "the two passes compute differently: give both the same micro-batch (log_prob_micro_batch_size_per_gpu ="
        " ppo_micro_batch_size_per_gpu in veRL), padding, dropout off and attention kernel, or drop the first pass and"
        " use the engine's log-probabilities with importance weights",
    )


def samples_stale(view: RunView) -> Answer:
    """Samples are older than asynchronous training allows."""
    age = _last(view, "rollout/staleness")
    age = _named(view, ("staleness/avg", "staleness/mean", "staleness_avg")) if age is None else age
    if age is None or age < STALE:
        return None
    return (
        f"samples are {age:.3g} weight versions old on average when they are learned from",
        "the limit on their age does not hold, or is set high: lower it (max_head_offpolicyness in AReaL,"
        " max_off_policy_steps in prime-rl, max_staleness in TRL) or the number of rollouts in flight, and weigh by"
        " importance ratios. If it grew after a resume, the counters of the limit started again (AReaL#1388)",
    )


def step_slow(view: RunView) -> Answer:
    """A step takes minutes."""
    pace = view.about("pace_s")
    step = _last(view, "time/step_s") or (pace if isinstance(pace, float) else None)
    answers = {"reward/mean", "rollout/length_mean"} & set(view.names())
    if step is None or step < SLOW_S or "time/rollout_s" in view or not answers or _plays(view):
        return None
    if view.about("trainer") in WITH_ENGINE:
        return None
    length, most = _last(view, "rollout/length_mean"), _last(view, "rollout/length_max")
    of = f", with answers of {length:,.0f} tokens in the mean" if length else ""
    longest = f" and {most:,.0f} at most" if length and most else ""
    return (
        f"a step takes {step:,.0f} s{of}{longest}",
        "nearly all of that is generation as a rule: transformers generates slowly, an engine (use_vllm=True,"
        " vllm_mode='colocate') is 5 to 20 times faster, one GPU that generates for all lets the others wait, and"
        " gradient checkpointing with use_cache=False slows every token; fewer or shorter answers cost least",
    )


def updates_far(view: RunView) -> Answer:
    """The updates of one batch move the policy far."""
    kl, clip = _last(view, "policy/kl_old"), _last(view, "policy/clip_frac")
    if not ((kl or 0) > FAR or (clip or 0) > CLIPPED):
        return None
    parts = [f"an approximate KL of {kl:.3g}" if kl else "", f"{clip:.0%} of samples clipped" if clip else ""]
    rate = _last(view, "optim/lr")
    return (
        f"the updates of one batch move the policy far: {' and '.join(filter(None, parts))}",
        f"usual are 0.02 and 20 %: lower the learning rate{_at(rate)} by 3 to 10, use fewer epochs or updates a batch"
        " (n_epochs, ppo_epochs, num_iterations), a larger batch, or target_kl=0.02, which ends a batch early",
    )


def entropy_random(view: RunView) -> Answer:
    """Text is nearly random."""
    entropy = _last(view, "policy/entropy")
    if entropy is None or entropy < RANDOM or _plays(view):
        return None
    return (
        f"the entropy is {entropy:.3g} nats a token: the text is nearly random",
        "if it was so from the start: the wrong chat template, damaged weights, or a temperature far above 1. If it"
        " rose: an entropy bonus (set entropy_coeff to 0), a high upper clip limit (clip_ratio_high), or too high a"
        " learning rate; read some answers and go back to a checkpoint before it rose",
    )


def entropy_spent(view: RunView) -> Answer:
    """The policy chooses nearly the same each time."""
    entropy = _last(view, "policy/entropy")
    if entropy is None:
        entropy = abs(value) if (value := _named(view, "entropy_loss")) is not None else None
    if entropy is None or not 0 <= entropy < SPENT:
        return None
    return (
        f"the entropy is {entropy:.2g}: the policy chooses nearly the same each time and no longer explores",
        "an entropy bonus (ent_coef or entropy_coeff 0.01), temperature 1, a higher upper clip limit"
        " (clip_ratio_high 0.28), a lower learning rate; start from a checkpoint in which it still varied",
    )


def critic_blind(view: RunView) -> Answer:
    """The critic explains nothing."""
    explained, loss = _last(view, "value/explained_variance"), _last(view, "value/loss")
    if explained is None or explained > BLIND:
        return None
    worse = "worse than a constant guess" if explained < -BLIND else "no better than a constant guess"
    lost = f", at a value loss of {loss:,.3g}" if loss is not None else ""
    return (
        f"the explained variance is {explained:.2g}: the critic is {worse}{lost}",
        "expected in the first updates. If it stays: normalise rewards or returns (VecNormalize, reward scaling), a"
        " critic of its own or a higher learning rate for it, warm it up before the policy moves (critic_warmup), and"
        " more samples a batch",
    )


def losses_large(view: RunView) -> Answer:
    """The critic's loss or the entropy coefficient is out of proportion."""
    loss = _last(view, "value/loss")
    loss = _named(view, "critic_loss") if loss is None else loss
    weight = _named(view, "ent_coef")
    large, heavy = (loss or 0) > LARGE_LOSS, (weight or 0) > HEAVY
    if not (large or heavy):
        return None
    parts = [f"the critic's loss is {loss:,.3g}" if large else "", f"ent_coef is {weight:.3g}" if heavy else ""]
    return (
        " and ".join(filter(None, parts)),
        "rewards are too large for the networks: divide or normalise them (VecNormalize, reward scaling, clips) until"
        " returns are of the order of 1 to 10, check gamma and endless episodes; a fixed ent_coef instead of 'auto'"
        " shows whether the entropy term runs away by itself",
    )


def validation_rises(view: RunView) -> Answer:
    """The loss on held-out data rises while that of training falls."""
    names = [name for name in view.names() if name.lower().replace(" ", "_").endswith(HELD_OUT)]
    held = view.series(names[0]).finite().values if names else np.array([])
    if len(held) < 2 or held[-1] < RISEN * held.min():
        return None
    return (
        f"the loss on held-out data rose from {held.min():.3g} to {held[-1]:.3g}",
        "the model learns the training data by heart: stop at the lowest (load_best_model_at_end, early stopping), one"
        " to three epochs, a lower learning rate or rank, more or more varied data",
    )


def rate_high(view: RunView) -> Answer:
    """A learning rate above what such runs use."""
    rates = view.series("optim/lr").finite().values
    games = _plays(view)
    limit = HIGH_RATE_GAME if games else HIGH_RATE
    rewarded = games or "reward/mean" in view
    if not rewarded or not len(rates) or rates.max() < limit:
        return None
    usual = "3e-4 is PPO's default" if games else "1e-6 is usual for all weights, up to 1e-5 for adapters (LoRA)"
    return (
        f"the learning rate is {rates.max():.2g}",
        f"{usual}; a rate that is too high shows as KL, gradient norm or clipped share that climb, then as shorter,"
        " repeated or broken text",
    )


def rate_low(view: RunView) -> Answer:
    """A constant learning rate at which the policy hardly moves."""
    rates = view.series("optim/lr").finite().values
    if len(rates) < LEAST_OF_A_TREND or not 0 < rates.max() < LOW_RATE or rates.min() < rates.max():
        return None
    return (
        f"the learning rate is {rates.max():.2g} in all {len(rates)} rows",
        "at this rate hundreds of steps change the policy less than its noise: 3e-7 to 1e-6 is usual for all weights,"
        " 1e-5 for adapters (LoRA)",
    )


def drifted(view: RunView) -> Answer:
    """The policy is far from the reference."""
    kl, answer = _last(view, "policy/kl_ref"), _named(view, "objective/kl")
    far = "a lower learning rate, a larger KL weight (beta, kl_loss_coef, init_kl_coef), and rewards that odd text does"
    if kl is None and answer is not None and answer > FAR_ANSWER:
        return f"the KL to the reference is {answer:.3g} nats an answer", f"6 is a usual target: {far} not gain"
    if kl is None or kl < DRIFTED:
        return None
    if kl > BEYOND_TEXT:
        return (
            f"the KL to the reference is {kl:.3g} nats a token, more than any text has on average",
            "a few tokens that one model finds nearly impossible dominate it: the k3 estimate holds an exponential"
            " without a bound. Look at the median, compute log-probabilities in fp32, clamp the log-ratio or use k2"
            " (kl_loss_type=mse); a small KL weight hides it, and its gradient is as large",
        )
    return (
        f"the KL to the reference is {kl:.3g} nats a token",
        f"below 0.1 is usual: {far} not gain; if it is high in the first row, reference and policy are not one model",
    )


def reference_left(view: RunView) -> Answer:
    """In a long log: the policy has nothing in common with its reference any more, whatever the reward does."""
    kl = _last(view, "policy/kl_ref")
    rows = len(view.series("policy/kl_ref").values)
    return drifted(view) if kl is not None and kl >= NOTHING_LEFT and rows > FEW else None


def engine_apart(view: RunView) -> Answer:
    """Engine and trainer give different probabilities."""
    kl, gap = _last(view, "policy/mismatch_kl"), _named(view, GAPS)
    factor = _named(view, "token_mult_prob_error")  # the mean of exp(|difference|) over tokens
    gap = math.log(factor) if gap is None and factor and factor > 0 else gap
    if not ((kl or 0) > APART or (gap or 0) > GAP):
        return None
    by = f"{kl:.3g} nats a token" if (kl or 0) > APART else f"{gap:.3g} in a token's log-probability"
    return (
        f"engine and trainer differ by {by} on the same text",
        "stale or wrongly sent weights, a part the engine left unloaded (a vision encoder, an adapter), another"
        " precision (fp8 or fp16 in the engine), another temperature or template, or an engine release with a fault:"
        " try another release, compare one text by both, and correct by importance weights (TIS)",
    )


def never_ends(view: RunView) -> Answer:
    """No answer holds an end token."""
    ends = _named(view, "num_eos_tokens")
    if ends is None or ends > 0:
        return None
    return (
        "no answer holds an end token (num_eos_tokens is 0)",
        "answers are longer than response_length, or the end token is none that the model writes: a longer"
        " response_length, stop_token='eos', the tokenizer of the SFT model, missing_eos_penalty=1.0",
    )


def pairs_separated(view: RunView) -> Answer:
    """Preference training tells every pair apart by far."""
    accuracy, margin = _named(view, "rewards/accuracies"), _named(view, "rewards/margins")
    if accuracy is None or margin is None or accuracy < SEPARATED or margin < 5:
        return None
    return (
        f"{accuracy:.0%} of pairs are separated, by a margin of {margin:.3g}",
        "nothing is left to learn from them, and more steps only push both answers down: stop earlier (one epoch), a"
        " lower learning rate (5e-7 for all weights), a larger beta, and check that chosen and rejected do not differ"
        " in a trivial way (length, format, a template on one side)",
    )


def both_fall(view: RunView) -> Answer:
    """The chosen answers become less likely too."""
    chosen, margin = _named(view, "rewards/chosen"), _named(view, "rewards/margins")
    if chosen is None or margin is None or chosen > -0.5 or margin <= 0:
        return None
    return (
        f"rewards/chosen is {chosen:.3g} while the margin is {margin:.3g}",
        "expected in DPO: only the gap is trained, and both log-probabilities usually fall. If the text gets worse: a"
        " lower learning rate, a larger beta, an SFT term (rpo_alpha), or SFT on the chosen answers first",
    )


def signal_rare(view: RunView) -> Answer:
    """Most groups give no gradient."""
    silent, reward = _last(view, "reward/zero_std_frac"), _last(view, "reward/mean")
    if silent is None or silent < 0.5:
        return None
    at = f" at a mean reward of {reward:.3g}" if reward is not None else ""
    return (
        f"in {silent:.0%} of groups every answer earns the same{at}",
        "such groups give no gradient: prompts of middle difficulty (solved in 20 to 80 % of tries), more answers a"
        " prompt, or dynamic sampling, which draws again",
    )


SIGNS: tuple[tuple[str, Callable[[RunView], Answer], str], ...] = (
    ("not-a-number", not_a_number, ""),
    ("loss-gone", loss_gone, ""),
    ("reward-drops-alone", reward_drops_alone, ""),
    ("reward-constant", reward_constant, "dead-groups"),
    ("part-silent", part_silent, "reward-fault"),
    ("reward-falls", reward_falls, "lr-too-high"),
    ("answers-cut", answers_cut, "capped-length"),
    ("lengths-equal", lengths_equal, "capped-length"),
    ("length-with-score", length_with_score, "length-rewarded"),
    ("updates-far", updates_far, "lr-too-high"),
    ("drifted", drifted, "lr-too-high"),
    ("reference-left", reference_left, "lr-too-high"),
    ("entropy-random", entropy_random, ""),
    ("entropy-spent", entropy_spent, "exploration-exhausted"),
    ("rate-high", rate_high, "lr-too-high"),
    ("rate-low", rate_low, "lr-too-low"),
    ("critic-blind", critic_blind, "config-error"),
    ("losses-large", losses_large, "config-error"),
    ("critic-outgrown", critic_outgrown, "config-error"),
    ("validation-rises", validation_rises, ""),
    ("never-ends", never_ends, ""),
    ("engine-apart", engine_apart, ""),
    ("ratios-far", ratios_far, ""),
    ("ratio-leaves-one", ratio_leaves_one, ""),
    ("samples-stale", samples_stale, ""),
    ("signal-rare", signal_rare, "dead-groups"),
    ("generation-rules", generation_rules, ""),
    ("rewards-slow", rewards_slow, ""),
    ("step-slow", step_slow, ""),
    ("pairs-separated", pairs_separated, ""),
    ("both-fall", both_fall, ""),
)
"""Every sign: id, question, and the cause of a finding that says the same. The gravest come first."""
OF_ANY_LENGTH = ("part-silent", "reward-drops-alone", "reference-left", "rate-low")
"""Signs of all rows together, which are shown of a long log too."""
