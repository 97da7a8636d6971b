"""What users ask about and what is no fault: patterns in a log that look wrong and are normal.

Each entry is one function over the newest view. It answers only where the pattern is in the log, with the log's own
numbers. `NORMAL` lists them, those asked about most first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stabilizer.runs.history import RunView

EQUAL = 0.02
"""Relative difference up to which the loss counts as beta x KL: logs round to four digits."""
SMALL = 1e-3
"""Absolute loss that prints as 0 or nearly so."""
SOME = 0.3
"""Share of groups without a signal from which users ask about it."""
USUAL_LIMIT = 1.0
CLIPS_AT_ONE = ("trl", "open-r1", "verl", "easyr1", "ms-swift", "llama-factory", "nemo_rl")
"""Trainers whose gradients are clipped to a norm of 1 where nothing else is set: their own defaults."""
BRIEF = 0.5
"""Share of their length that answers keep, up to which users ask whether the reward is exploited."""
LEAST_ROWS = 6
"""Rows from which the first third and the last are compared."""
SURE = 0.7
"""Mean reward of 0..1 above which groups are mostly right."""


class Normal(NamedTuple):
    """A pattern in this log that is no fault."""

    id: str
    why: str
    """With the numbers of the log."""
    source: str


def normal(view: RunView) -> list[Normal]:
    """The patterns of this log that look wrong and are not."""
    return [Normal(name, why, source) for name, ask, source in NORMAL if (why := ask(view))]


def _values(view: RunView, name: str) -> np.ndarray:
    return view.series(name).finite().values


def _both(view: RunView, one: str, other: str) -> tuple[np.ndarray, np.ndarray]:
    """The values of two metrics at the steps that have both."""
    a, b = view.series(one).finite(), view.series(other).finite()
    _, at, other_at = np.intersect1d(a.steps, b.steps, return_indices=True)
    return a.values[at], b.values[other_at]


def _ends(values: np.ndarray) -> tuple[float, float]:
    """Mean of the first third and of the last."""
    third = len(values) // 3
    return float(values[:third].mean()), float(values[-third:].mean())


def _gain(reward: np.ndarray) -> float:
    """Rise of the reward from its first third to its last; 0 if it is within two standard errors."""
    before, after = _ends(reward)
    risen = after - before
    return risen if risen >= 2 * float(reward.std()) / math.sqrt(len(reward) // 3) else 0.0


def _set(view: RunView, *keys: str) -> float | None:
    config = view.about("config") or {}
    for key in keys:
        if isinstance(value := config.get(key), (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def loss_is_kl(view: RunView) -> str:
    """The loss starts at 0 and follows the KL."""
    loss, kl = _both(view, "policy/loss", "policy/kl_ref")
    moved = kl > 1e-5
    if len(loss) < 3 or not moved.any() or abs(loss[0]) > SMALL:
        return ""
    beta = _set(view, "beta", "kl_loss_coef", "policy.beta")
    ratio = float(np.median(loss[moved] / kl[moved]))
    spread = np.abs(loss[moved] - ratio * kl[moved]).max()
    if not 1e-5 < ratio < 1 or spread > max(EQUAL * np.abs(loss).max(), 1.1e-4):
        return ""
    named = f"beta = {beta:g}" if beta else f"about {ratio:.2g}"
    return (
        f"the loss starts at {loss[0]:.2g} and equals beta x KL ({named}): with one update a batch the policy term is"
        " 0 in value though not in gradient, so the loss is no sign of progress; watch the reward"
    )


def _at_most(loss: np.ndarray) -> str:
    most = np.abs(loss).max()
    return f"{most:.1g} or less" if most else "0"


def loss_zero(view: RunView) -> str:
    """The loss prints as 0 while there is a gradient."""
    if "optim/grad_norm" not in view:
        return _loss_of_kl_alone(view)
    loss, norm = _both(view, "policy/loss", "optim/grad_norm")
    if len(loss) < 2 or np.abs(loss).max() > SMALL or float(np.median(norm)) <= 0 or loss_is_kl(view):
        return ""
    return (
        f"the loss prints as {_at_most(loss)} while the gradient norm is {np.median(norm):.2g}: advantages"
        " sum to 0 in every group and the ratio is 1 in the first update, so the value vanishes and its gradient does"
        " not. This is expected, and no sign of a fault"
    )


def _loss_of_kl_alone(view: RunView) -> str:
    """The loss prints as 0 while rewards differ within groups, or the policy leaves its reference."""
    loss, spread, kl = (_values(view, name) for name in ("policy/loss", "reward/std_group", "policy/kl_ref"))
    differs, moves = len(spread) > 0 and float(np.median(spread)) > 0, len(kl) > 1 and kl[-1] > kl[0]
    if len(loss) < 2 or np.abs(loss).max() > SMALL or not (differs or moves) or loss_is_kl(view):
        return ""
    meanwhile = "rewards differ within groups" if differs else "the KL grows"
    return (
        f"the loss prints as {_at_most(loss)} while {meanwhile}: with one update a"
        " batch the policy term is 0 in value though not in gradient, and what is left is beta x KL, which starts at 0."
        " This is expected, and no sign of a fault; watch the reward"
    )


def loss_negative(view: RunView) -> str:
    """A policy loss below 0."""
    loss = _values(view, "policy/loss")
    if len(loss) < 2 or np.mean(loss < -SMALL) < 0.3:
        return ""
    return (
        f"the loss is negative in {np.mean(loss < 0):.0%} of rows (lowest {loss.min():.2g}): a policy loss is minus an"
        " average of advantages times ratios and has no lower bound of 0; only its gradient matters"
    )


def loss_rises(view: RunView) -> str:
    """The loss rises while the reward does."""
    loss, reward = _both(view, "policy/loss", "reward/mean")
    if len(loss) < 10 or loss_is_kl(view):
        return ""
    up, (before, after) = _gain(loss), _ends(reward)
    if not up > 0 or after <= before:
        return ""
    return (
        f"the loss rose by {up:.2g} while the reward rose from {before:.3g} to {after:.3g}: in reinforcement learning"
        " the loss need not fall as training succeeds"
    )


def clip_zero(view: RunView) -> str:
    """No token is clipped."""
    clip = _values(view, "policy/clip_frac")
    if len(clip) < 2 or clip.any():
        return ""
    return (
        "the clip fraction is 0 in every row: with one update a batch the ratio is 1 and nothing can be clipped"
        " (num_iterations 1 and one minibatch); it says nothing about the size of the steps"
    )


def norm_above_limit(view: RunView) -> str:
    """The gradient norm exceeds the limit."""
    limit = _set(view, "max_grad_norm", "optim.max_grad_norm", "actor_rollout_ref.actor.grad_clip", "grad_clip")
    usual = USUAL_LIMIT if view.about("trainer") in CLIPS_AT_ONE else None
    norm = _values(view, "optim/grad_norm")
    bound = limit or usual
    if not bound or len(norm) < 2 or np.mean(norm > bound) < 0.2:
        return ""
    which = "" if limit else ", this trainer's default"
    return (
        f"the gradient norm is above the limit of {bound:g}{which} in {np.mean(norm > bound):.0%} of rows: it is logged"
        " before clipping, and the update used the clipped gradient"
    )


def silent_when_solved(view: RunView) -> str:
    """Groups without spread because they are all right."""
    silent, reward = _values(view, "reward/zero_std_frac"), _values(view, "reward/mean")
    solved = _values(view, "reward/all_pass_frac")
    right = solved[-1] > 0.8 * silent[-1] if len(solved) and len(silent) else len(reward) and SURE < reward[-1] <= 1
    if not len(silent) or silent[-1] < SOME or not right:
        return ""
    return (
        f"{silent[-1]:.0%} of groups have equal rewards at a mean reward of {reward[-1]:.3g}: most of them are solved,"
        " which is success. They give no gradient; harder prompts would"
    )


def binary_spread(view: RunView) -> str:
    """Standard deviations of 0 or 0.5 in small groups."""
    spread, reward = _values(view, "reward/std_group"), _values(view, "reward/mean")
    if len(spread) < 2 or not len(reward) or not (0 <= reward.min() and reward.max() <= 1):
        return ""
    share = float(np.mean(spread == 0))
    if not 0.1 < share < 0.9:
        return ""
    return (
        f"the reward's deviation is 0 in {share:.0%} of rows: with rewards of 0 or 1 and few groups a row, all answers"
        " of the row are often right or wrong together"
    )


def kl_negative(view: RunView) -> str:
    """A negative KL."""
    for name in ("policy/kl_ref", "policy/kl_old", "policy/mismatch_kl"):
        kl = _values(view, name)
        if len(kl) and kl.min() < -1e-6 and abs(np.mean(kl)) < 0.1:
            return (
                f"the logged KL falls below 0 ({kl.min():.2g}): the estimator k1 (the mean of log-ratios) is negative"
                " in single batches although the KL itself is not; k3 is never negative"
            )
    return ""


def kl_zero_at_start(view: RunView) -> str:
    """No KL in the first row."""
    kl = _values(view, "policy/kl_ref")
    if not len(kl) or kl[0] != 0 or len(kl) > 20:
        return ""
    return "the KL is 0 in the first row: policy and reference are the same model before the first update"


def no_kl(view: RunView) -> str:
    """No KL is logged."""
    if "policy/kl_ref" in view or "reward/mean" not in view or _set(view, "beta", "policy.beta") != 0:
        return ""
    return "no KL to the reference is logged: beta is 0, so no reference model is loaded to measure it against"


def reward_out_of_unit(view: RunView) -> str:
    """Rewards outside 0..1."""
    reward = _values(view, "reward/mean")
    parts = [
        name for name in view.names() if name.startswith("reward/") and name.endswith("/mean") and name.count("/") == 2
    ]
    if len(reward) < 2 or (reward.min() >= 0 and reward.max() <= 1):
        return ""
    made = f"the weighted sum of {len(parts)} functions" if len(parts) > 1 else "a score"
    return (
        f"the reward runs from {reward.min():.3g} to {reward.max():.3g}: it is {made} and has no fixed range or zero;"
        f" only differences between answers teach, so watch whether it rises{_way(reward)}"
    )


def _way(values: np.ndarray) -> str:
    """From where to where the values went, where there are enough."""
    if len(values) < LEAST_ROWS:
        return ""
    before, after = _ends(values)
    return f" (here from {before:.3g} to {after:.3g})"


def entropy_rises(view: RunView) -> str:
    """Entropy that rises with clip-higher."""
    entropy = _values(view, "policy/entropy")
    high = _set(view, "epsilon_high", "policy.epsilon_high", "actor_rollout_ref.actor.clip_ratio_high")
    low = _set(view, "epsilon", "epsilon_low", "policy.epsilon_low", "actor_rollout_ref.actor.clip_ratio_low")
    reward = _values(view, "reward/mean")
    if len(entropy) < 10 or not high or not low or high <= low or not len(reward):
        return ""
    (before, after), (earned, earns) = _ends(entropy), _ends(reward)
    if after < 1.1 * before or earns < earned:
        return ""
    return (
        f"entropy rose from {before:.3g} to {after:.3g} nats/token without a loss of"
        f" reward: the upper clip limit ({high:g}) is above the lower ({low:g}), which lets rare tokens grow"
    )


def entropy_falls(view: RunView) -> str:
    """Entropy that falls while the reward rises."""
    entropy, reward = _both(view, "policy/entropy", "reward/mean")
    if len(entropy) < 10:
        return ""
    (before, after), gained = _ends(entropy), _gain(reward)
    if not 0.3 * before < after < 0.85 * before or not gained > 0:
        return ""
    return (
        f"entropy fell from {before:.3g} to {after:.3g} nats/token while the reward rose by {gained:.2g}: the policy"
        " becomes surer of what earns more. It is a fault only when it falls to nearly 0 or the reward stops"
    )


def warmup_rate(view: RunView) -> str:
    """A learning rate of 0 in the first row."""
    rate = _values(view, "optim/lr")
    if len(rate) < 2 or rate[0] != 0 or rate.max() <= 0:
        return ""
    return f"the learning rate is 0 in the first row and {rate[1]:.2g} in the next: the warm-up starts at 0"


def slow_first_step(view: RunView) -> str:
    """A first step that takes longer."""
    took = _values(view, "time/step_s")
    if len(took) < 4 or took[0] < 2 * np.median(took[1:]):
        return ""
    return (
        f"the first step took {took[0]:.3g} s and later ones {np.median(took[1:]):.3g}: kernels are compiled, memory is"
        " reserved and the engine warms up once"
    )


def validation_apart(view: RunView) -> str:
    """Training and validation accuracies that differ."""
    train, held = _values(view, "accuracy/train"), _values(view, "accuracy/val")
    if not len(train) or not len(held) or held[-1] - train[-5:].mean() < 0.08:
        return ""
    return (
        f"held-out accuracy ({held[-1]:.2f}) is above that of training ({train[-5:].mean():.2f}): training samples at a"
        " temperature, validation is often greedy, and the prompts differ"
    )


def fractional_epochs(view: RunView) -> str:
    """Few epochs."""
    epoch = _values(view, "progress/epoch")
    if len(epoch) < 3 or epoch[-1] >= 1:
        return ""
    return (
        f"the epoch is {epoch[-1]:.2g} after {view.step:,} steps: a step uses few prompts, and one pass is often enough"
    )


def length_in_tokens(view: RunView) -> str:
    """Completion lengths that look short or long."""
    length, most = _values(view, "rollout/length_mean"), _values(view, "rollout/length_max")
    if len(length) < 2 or not len(most) or most.max() < 1.5 * length.max() or len(length) > 30:
        return ""
    return (
        f"completion lengths (mean {length[-1]:,.0f}, longest {most[-1]:,.0f}) are counted in tokens, of about four"
        " characters of English each"
    )


def lengths_grow(view: RunView) -> str:
    """Answers grow with the reward."""
    length, reward = _both(view, "rollout/length_mean", "reward/mean")
    if len(length) < 10:
        return ""
    (before, after), gained = _ends(length), _gain(reward)
    if after < 1.3 * before or not gained > 0 or not 0 <= reward.min() <= reward.max() <= 1:
        return ""  # a score without bounds may be of a model that likes long answers
    return (
        f"answers grew from {before:,.0f} to {after:,.0f} tokens while the reward rose by {gained:.2g}: longer"
        " reasoning that earns more is no length hacking"
    )


def lengths_shrink(view: RunView) -> str:
    """Answers lose most of their length while the reward rises."""
    length, reward = _both(view, "rollout/length_mean", "reward/mean")
    if len(length) < 10:
        return ""
    (before, after), gained = _ends(length), _gain(reward)
    if after > BRIEF * before or not gained > 0:
        return ""
    return (
        f"answers shrank from {before:,.0f} to {after:,.0f} tokens while the reward rose by {gained:.2g}: brief and"
        " right is fine, but a reward that takes an empty or one-word answer for right looks the same. Read ten answers"
        " of the end, and score an empty one (stabilizer preflight --rewards FILE.py:FUNCTION). A loss averaged within"
        " each answer (loss_type='grpo', seq-mean-token-mean) favours short right ones too; 'dr_grpo' and 'dapo' do not"
    )


def accuracy_in_steps(view: RunView) -> str:
    """Accuracies that jump in equal steps."""
    held = _values(view, "accuracy/val")
    if len(held) < 4:
        return ""
    gaps = np.diff(np.unique(np.round(held, 6)))
    if not len(gaps) or gaps.min() < 0.005:
        return ""
    return (
        f"held-out accuracy moves in steps of {gaps.min():.3g}: it is a share of about {1 / gaps.min():.0f} problems,"
        " so one problem more or less is noise"
    )


def noisy_reward(view: RunView) -> str:
    """A reward that jumps from row to row."""
    reward = _values(view, "reward/mean")
    if not 8 <= len(reward) <= 60:
        return ""
    jump, trend = np.abs(np.diff(reward)).mean(), abs(reward[-3:].mean() - reward[:3].mean())
    if jump < 0.05 or trend > 2 * jump:
        return ""
    return (
        f"the reward changes by {jump:.2g} from row to row: every row has other prompts. Compare means of 20 rows and"
        " more, or held-out accuracy"
    )


def ratio_spikes(view: RunView) -> str:
    """Single tokens with a large ratio."""
    most, clip = _values(view, "policy/ratio_max"), _values(view, "policy/clip_frac")
    if len(most) < 3 or most.max() < 3 or not len(clip) or np.median(clip) > 0.05:
        return ""
    return (
        f"the largest ratio reaches {most.max():.3g} while {np.median(clip):.1%} of tokens are clipped: one rare token"
        " among thousands; the clip limits what it does"
    )


def skipped_rows(view: RunView) -> str:
    """Steps that are missing because only every k-th is logged."""
    steps = view.series("reward/mean").steps
    gaps = np.diff(steps)
    if len(gaps) < 3 or gaps.min() < 2 or len(set(gaps.tolist())) > 2:
        return ""
    first = ", ".join(f"{int(step)}" for step in steps[:3])
    return f"steps {first}, ...: only every {int(gaps.min())}th step is logged (logging_steps)"


NORMAL: tuple[tuple[str, Callable[[RunView], str], str], ...] = (
    ("loss-is-beta-kl", loss_is_kl, "huggingface/trl#2703"),
    ("loss-zero", loss_zero, "huggingface/trl#3452"),
    ("loss-negative", loss_negative, "huggingface/trl: GRPO, logged metrics"),
    ("loss-rises", loss_rises, "huggingface/trl: GRPO, logged metrics"),
    ("clip-zero", clip_zero, "huggingface/trl: GRPO, num_iterations"),
    ("norm-above-limit", norm_above_limit, "huggingface/transformers: Trainer, grad_norm"),
    ("silent-when-solved", silent_when_solved, "DAPO, arXiv 2503.14476"),
    ("binary-spread", binary_spread, "huggingface/trl: GRPO, reward_std"),
    ("kl-negative", kl_negative, "huggingface/trl#1005"),
    ("kl-zero-at-start", kl_zero_at_start, "huggingface/trl: GRPO, beta"),
    ("no-kl", no_kl, "huggingface/trl: GRPO, beta"),
    ("reward-out-of-unit", reward_out_of_unit, "huggingface/trl: custom rewards"),
    ("entropy-rises", entropy_rises, "DAPO, arXiv 2503.14476"),
    ("entropy-falls", entropy_falls, "arXiv 2505.22617"),
    ("warmup-rate", warmup_rate, "huggingface/transformers: schedules"),
    ("slow-first-step", slow_first_step, "vllm-project/vllm: compilation"),
    ("validation-apart", validation_apart, "verl-project/verl: val_kwargs"),
    ("fractional-epochs", fractional_epochs, "huggingface/transformers: Trainer"),
    ("length-in-tokens", length_in_tokens, "huggingface/trl: GRPO, logged metrics"),
    ("lengths-grow", lengths_grow, "arXiv 2501.12948"),
    ("lengths-shrink", lengths_shrink, "Liuziyu77/Visual-RFT#176"),
    ("accuracy-in-steps", accuracy_in_steps, "binomial share"),
    ("noisy-reward", noisy_reward, "huggingface/open-r1#256"),
    ("ratio-spikes", ratio_spikes, "huggingface/trl: GRPO, clip_ratio"),
    ("skipped-rows", skipped_rows, "huggingface/transformers: logging_steps"),
)
"""Every pattern: id, question, and where users or papers speak of it."""
