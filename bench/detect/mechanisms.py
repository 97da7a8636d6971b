"""What goes wrong in generated runs, one function a fault: its docstring is what the fault is.

Each bends the courses of a healthy run from a step on, in the order in which the signals are known to move (mismatch,
staleness and spread of rewards before ratios, those before gradient and KL, those before entropy and length, the reward
last). `size` is the one magnitude by which severities differ; its unit is the fault's own. A subtle fault is barely
material: the reward loses some 15 % of its support, entropy is at 45 %.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.detect.host import Draws
from bench.detect.world import World

Apply = Callable[[World, int, float, Draws], None]


# --- optimisation and numbers ---------------------------------------------------------------------------------------


def not_finite(w: World, at: int, size: float, d: Draws) -> None:
    """Loss and gradient norm stop being numbers: in one row, in many, or in all that follow."""
    where = (w.t >= at) & (w.fresh().random(w.n) < size)
    where[at] = True
    for name in ("policy/loss", "optim/grad_norm"):
        w.not_finite[name] = where
    w.frozen |= where
    if size > 0.9:
        w.hurt(at, 1, 0.98)


def gradient_explosion(w: World, at: int, size: float, d: Draws) -> None:
    """The rate is raised: steps and ratios grow, then the gradient without end, then the reward goes."""
    over = d.span(20, 60)
    w.lr *= 1 + d.span(2, 6) * w.ramp(at, over / 2)
    w.log_ratio += 1.2 * w.ramp(at, over / 2)
    w.lg_clip += 1.5 * w.ramp(at, over)
    w.log_grad += np.log(size) * w.ramp(at + 3, over)
    share = float(np.interp(np.log(size), np.log([2.5, 8, 100]), [0.2, 0.5, 0.95]))
    w.hurt(at + int(0.7 * over), d.span(10, 40), share)


def gradient_spikes(w: World, at: int, size: float, d: Draws) -> None:
    """Rows whose gradient norm is many times its level come again and again, without a new level."""
    hit = (w.fresh().random(w.n) < 0.06) & (w.t >= at)
    hit[(at + w.fresh().integers(5, 30, 3).cumsum()).clip(max=w.n - 1)] = True
    hit[at : at + w.host.log_every] = True  # whichever of them is logged
    w.odd["optim/grad_norm"] = w.odd.get("optim/grad_norm", np.ones(w.n)) * np.where(hit, size, 1.0)


def no_update(w: World, at: int, size: float, d: Draws) -> None:
    """A share of the updates, or all, change nothing: gradient, step and KL of the step are exactly 0."""
    w.frozen |= (w.t >= at) & (w.fresh().random(w.n) < size)
    w.frozen[at] = True
    w.slow(at, 1 - size)


def rate_too_low(w: World, at: int, size: float, d: Draws) -> None:
    """The rate falls to a fraction: steps shrink with it, and learning all but stops."""
    w.lr *= 1 - (1 - 1 / size) * w.step_at(at)
    w.slow(at, 1 / size)


def overstepping(w: World, at: int, size: float, d: Draws) -> None:
    """Updates leave the trust region: KL of the step and clipping jump, the reward goes up and down like a saw."""
    ramp = w.ramp(at, d.span(3, 15))
    w.log_kl_old += np.log(size) * ramp
    w.log_ratio += 0.5 * np.log(size) * ramp
    w.log_update += 0.5 * np.log(size) * ramp
    w.lg_clip += (np.log(size) + 0.5) * ramp
    w.log_grad += w.noise(0.25) * ramp
    deep = float(np.interp(np.log(size), np.log([6, 20, 100]), [0.15, 0.35, 0.75]))
    saw = (w.t % d.whole(9, 25)) / 25
    w.p = w.p * (1 - deep * ramp * (0.5 + 0.9 * saw))
    w.p_val = w.p_val * (1 - deep * ramp * (0.5 + 0.9 * saw))


def optimizer_state(w: World, at: int, size: float, d: Draws) -> None:
    """One huge gradient spoils the optimizer's averages: steps are far too small for their rate for long after."""
    w.log_grad[at : at + 2] += 4.0
    w.log_update -= np.log(size) * w.step_at(at + 1)
    w.log_kl_old -= 1.5 * np.log(size) * w.step_at(at + 1)
    w.slow(at, 1 / size)


# --- policy ---------------------------------------------------------------------------------------------------------


def entropy_collapse(w: World, at: int, size: float, d: Draws) -> None:
    """Entropy falls, answers of a group grow alike, groups fall silent, and learning stops."""
    over = d.span(25, 80)
    fall = w.ramp(at, over)
    w.log_entropy += np.log(size) * fall
    w.spread = w.spread * (1 + 0.5 * np.log(1 / size) * fall)
    w.slow(at + int(over / 2), 0.05)
    if size < 0.06:
        w.hurt(at + int(over), d.span(20, 60), 0.4)


def cold_sampler(w: World, at: int, size: float, d: Draws) -> None:
    """The sampler turns cold from one step to the next: entropy and variety drop at once."""
    w.log_entropy += np.log(size) * w.ramp(at, 2)
    w.spread = w.spread * (1 + 0.5 * np.log(1 / size) * w.step_at(at))
    w.slow(at, 0.05)


def entropy_explosion(w: World, at: int, size: float, d: Draws) -> None:
    """Entropy multiplies; then accuracy goes, then answers grow long and odd."""
    over = d.span(20, 70)
    w.log_entropy += np.log(size) * w.ramp(at, over)
    share = float(np.interp(np.log(size), np.log([1.6, 3, 10]), [0.2, 0.5, 0.95]))
    w.hurt(at + int(over / 3), over, share)
    w.log_length += 0.35 * np.log(size) * w.ramp(at + int(over / 2), over)


def kl_runaway(w: World, at: int, size: float, d: Draws) -> None:
    """Nothing holds the policy: KL to the reference grows ever faster, the reward stands still, then falls."""
    over = d.span(40, 120)
    before = np.maximum(w.host.kl * (0.01 + 0.7 * w.gain + 0.3 * w.t / w.n) * np.exp(w.log_kl), 1e-4)
    w.log_kl += np.log1p(size * w.ramp(at, over) ** 2 / before)
    w.log_kl_old += 0.8 * w.ramp(at, over)
    w.slow(at, 0.1)
    share = float(np.interp(np.log(size), np.log([0.15, 1, 10]), [0.2, 0.5, 0.9]))
    w.hurt(at + int(0.6 * over), over, share)


def kl_pinned(w: World, at: int, size: float, d: Draws) -> None:
    """beta is far too large: KL goes back to next to nothing and the policy can't move."""
    w.beta = np.where(w.t >= at, size, w.beta)
    w.log_kl -= 2.5 * w.ramp(at, 30)
    w.log_grad += 0.3 * w.ramp(at, 5)
    w.slow(at, 0.05)


def kl_estimator(w: World, at: int, size: float, d: Draws) -> None:
    """Single tokens blow up the KL estimate of some rows, a hundredfold and more; nothing else moves."""
    hit = (w.fresh().random(w.n) < 0.08) & (w.t >= at)
    hit[at] = True
    w.kl_spikes = np.where(hit, size * np.exp(0.5 * w.fresh().normal(size=w.n)), 1.0)


def mismatch(w: World, at: int, size: float, d: Draws) -> None:
    """Engine and learner drift apart: mismatch, then ratios, then the gradient, then the reward."""
    _mismatch(w, at, size, d, d.span(5, 40))


def slow_mismatch(w: World, at: int, size: float, d: Draws) -> None:
    """The same over hundreds of steps, as a quantised engine falls behind a sharpening policy."""
    _mismatch(w, at, size, d, d.span(150, 260))


def _mismatch(w: World, at: int, size: float, d: Draws, over: float) -> None:
    w.log_mismatch += np.log(size / w.host.mismatch) * w.ramp(at, over)
    w.log_ratio += 1.0 * w.ramp(at + 3, over)
    strength = float(np.interp(np.log(size), np.log([0.012, 0.1, 1]), [0.2, 0.5, 0.9]))
    w.log_grad += 2.2 * strength * w.ramp(at + 10, over)
    w.hurt(at + 15 + int(over / 2), d.span(20, 60), strength)


def stale_rollouts(w: World, at: int, size: float, d: Draws) -> None:
    """The learner runs ahead of its rollouts: ratios spread, clipping rises, all looks well for a while, then not."""
    w.staleness = np.where(w.t >= at, np.round(size), w.staleness)
    grown = np.log(size) * w.ramp(at, 10)
    w.log_kl_old += 0.9 * grown
    w.log_ratio += 0.6 * grown
    w.lg_clip += 0.6 * grown
    share = float(np.interp(np.log(size), np.log([6, 20, 64]), [0.2, 0.5, 0.9]))
    w.hurt(at + d.whole(40, 90), d.span(20, 60), share)


def likelihood_displacement(w: World, at: int, size: float, d: Draws) -> None:
    """Right answers become less likely while the reward still rises; then gradients grow, and it falls."""
    w.logp_correct -= size * w.ramp(at, 160)
    w.log_grad += 1.2 * w.ramp(at + 100, 60)
    w.hurt(at + 140, d.span(30, 80), float(np.interp(size, [0.25, 0.8, 2.5], [0.2, 0.5, 0.9])))


def template_collapse(w: World, at: int, size: float, d: Draws) -> None:
    """All prompts get the same wording: variety over the step goes, what answers owe to their prompt goes with it,
    entropy and variety in a group stay."""
    gone = w.ramp(at, d.span(30, 80))
    w.lg_distinct_2 -= size * gone
    w.lg_dependence -= size * gone
    w.slow(at, 0.1)


# --- reward ---------------------------------------------------------------------------------------------------------


def plateau(w: World, at: int, size: float, d: Draws) -> None:
    """Learning stops well below the ceiling, and nothing says why."""
    w.slow(at, size)


def early_plateau(w: World, at: int, size: float, d: Draws) -> None:
    """A run of a few hundred steps and small batches rises for a while and then stands, among much noise."""
    w.slow(at, size)


def never_learned(w: World, at: int, size: float, d: Draws) -> None:
    """A run of a few hundred steps and small batches gains nothing from the first step on, among much noise."""
    w.slow(at, size)


def tiny_batch_plateau(w: World, at: int, size: float, d: Draws) -> None:
    """One to four prompts a step: the run rises for a while and then stands, and a row is mostly luck."""
    w.slow(at, size)


def tiny_batch_never_learned(w: World, at: int, size: float, d: Draws) -> None:
    """One to four prompts a step, and nothing is gained from the first step on."""
    w.slow(at, size)


def proxy_learned(w: World, at: int, size: float, d: Draws) -> None:
    """The form of the answers is learned, which pays, while next to none is right from the first step to the last."""
    w.p = w.host.p_start + size * w.ramp(at, w.n)
    w.p_val = w.p.copy()
    w.gain = 1 - np.exp(-w.t / (d.span(0.15, 0.5) * w.n))
    low, high = d.span(0.1, 0.3), d.span(0.65, 1.0)
    w.p_format = low + (high - low) * w.gain


def reward_collapse(w: World, at: int, size: float, d: Draws) -> None:
    """What was learned is lost within tens of steps, with little warning."""
    over = d.span(8, 40)
    w.log_entropy += 0.25 * w.ramp(at, over)
    w.slow(at, 0.2)
    w.hurt(at, over, size)


def reward_oscillation(w: World, at: int, size: float, d: Draws) -> None:
    """The reward swings with growing amplitude and gains nothing any more."""
    swing = np.sin(2 * np.pi * (w.t - at) / d.span(14, 45)) * w.ramp(at, 100)
    w.slow(at, 0.0)
    for name in ("p", "p_val"):
        setattr(w, name, np.clip(getattr(w, name) + size * swing, 0.01, 0.985))
    w.log_kl_old += 0.8 * w.ramp(at, 60)


def prompts_too_hard(w: World, at: int, size: float, d: Draws) -> None:
    """From one step to the next the data are so hard that most groups fail as a whole."""
    w.difficulty += size * w.step_at(at)
    w.log_length += 0.15 * w.step_at(at)
    w.slow(at, 0.1)


def reward_hacking(w: World, at: int, size: float, d: Draws) -> None:
    """The policy finds what the reward overlooks: training reward rises, held-out accuracy falls."""
    over = d.span(60, 150)
    w.slow(at, 0.1)  # what is paid for anyway need not be learned
    w.hack += size * w.ramp(at, over)
    w.p_val = w.p_val * (1 - 0.7 * size * w.ramp(at, over))
    w.log_length += 0.3 * size * w.ramp(at, over)
    w.log_entropy -= 0.4 * size * w.ramp(at, over)


def replayed_prompts(w: World, at: int, size: float, d: Draws) -> None:
    """A few prompts come again and again: they are learned by heart, and nothing else is learned."""
    over = d.span(80, 160)
    learned = size * w.ramp(at, over)
    w.slow(at, 0.05)
    w.p = w.p + (0.99 - w.p) * learned
    w.p_val = w.p_val * (1 - 0.3 * learned)
    w.log_entropy -= 1.2 * learned


def component_dominance(w: World, at: int, size: float, d: Draws) -> None:
    """One component outweighs the other many times over, and the policy learns that one alone."""
    w.format_weight = w.format_weight * (1 + (size - 1) * w.step_at(at))
    w.p_format = np.where(w.t >= at, 0.7 + 0.2 * w.ramp(at, 150), w.p_format)
    w.slow(at, 0.1)


def reward_outage(w: World, at: int, size: float, d: Draws) -> None:
    """The reward function fails on a share of the answers."""
    w.failed += size * w.step_at(at)


def verifier_down(w: World, at: int, size: float, d: Draws) -> None:
    """The verifier calls a share of right answers wrong from one step to the next; the policy stands still."""
    w.misjudged += size * w.step_at(at)


def failing_verifier(w: World, at: int, size: float, d: Draws) -> None:
    """The same, but growing over a hundred steps."""
    w.misjudged += size * w.ramp(at, d.span(80, 150))


def scale_shift(w: World, at: int, size: float, d: Draws) -> None:
    """Rewards are paid on another scale; accuracy does not change."""
    w.reward_scale = w.reward_scale * (1 + (size - 1) * w.step_at(at))


def std_blowup(w: World, at: int, size: float, d: Draws) -> None:
    """Groups differ by a hair of noise, which division by their deviation turns into full-size advantages."""
    w.tiny_std = np.where(w.t >= at, 0.002, w.tiny_std)
    w.spread = w.spread * (1 + 3 * w.ramp(at, 20))
    w.log_grad += np.log(size) * w.ramp(at, 25)
    w.hurt(at + 30, 60, float(np.interp(np.log(size), np.log([2, 6, 25]), [0.2, 0.5, 0.9])))


def noise_floor(w: World, at: int, size: float, d: Draws) -> None:
    """The verifier errs at random both ways, and the batch is too small to learn through it."""
    w.misjudged += size * w.step_at(at)
    w.hack += 0.6 * size * w.step_at(at)
    w.slow(at, 0.0)


def data_shift(w: World, at: int, size: float, d: Draws) -> None:
    """Other data from a step on, undeclared: reward, length, silent groups and entropy step all at once."""
    w.difficulty += size * w.step_at(at)
    w.log_length += 0.3 * size * w.step_at(at)
    w.log_entropy += 0.25 * size * w.step_at(at)


# --- rollouts, critic, system ---------------------------------------------------------------------------------------


def length_explosion(w: World, at: int, size: float, d: Draws) -> None:
    """Answers grow and grow, and are no better for it."""
    over = d.span(60, 160)
    w.log_length += np.log(size) * w.ramp(at, over)
    w.length_corr += 0.4 * w.ramp(at, over)
    w.slow(at, 0.1)


def length_collapse(w: World, at: int, size: float, d: Draws) -> None:
    """Answers shrink to stumps, and the reward follows."""
    over = d.span(20, 70)
    w.log_length += np.log(size) * w.ramp(at, over)
    w.hurt(at + 10, over, float(np.interp(np.log(size), np.log([0.07, 0.3, 0.6]), [0.95, 0.5, 0.2])))


def truncation(w: World, at: int, size: float, d: Draws) -> None:
    """The length limit is suddenly too tight: that share of answers is cut, and what is cut is wrong."""
    h, length = w.host, w.log_length[at]
    limit = length + h.length_spread * (_normal_quantile(size) - h.length_spread / 2) - np.log(h.cap)
    w.log_cap = np.where(w.t >= at, limit, w.log_cap)
    w.log_length = np.where(w.t >= at, length, w.log_length)
    w.hurt(at, 1, 0.9 * size)


def repetition(w: World, at: int, size: float, d: Draws) -> None:
    """Answers repeat themselves; rewards within a group grow alike first, the mean falls last."""
    over = d.span(30, 80)
    w.spread = w.spread * (1 + 0.5 * w.ramp(at, over))
    w.lg_repetition += (np.log(size / (1 - size)) + 2.44) * w.ramp(at + 5, over)
    w.lg_distinct -= 1.0 * w.ramp(at + 5, over)
    w.log_length += 0.5 * size * w.ramp(at + 10, over)
    w.hurt(at + int(over / 2), over, float(np.interp(size, [0.25, 0.5, 0.9], [0.2, 0.5, 0.95])))


def echo_trap(w: World, at: int, size: float, d: Draws) -> None:
    """Agents that echo themselves: spread of rewards, then entropy and variety, then a gradient spike, then the end."""
    over = d.span(30, 60)
    w.spread = w.spread * (1 + 1.5 * size * w.ramp(at, over))
    w.log_entropy -= 3 * size * w.ramp(at + 10, over)
    w.lg_repetition += 4.5 * size * w.ramp(at + 15, over)
    w.log_grad += 3 * size * (w.ramp(at + int(over), 5) - w.ramp(at + int(over) + 12, 5))
    w.hurt(at + int(over), 25, min(0.95, size))


def tool_collapse(w: World, at: int, size: float, d: Draws) -> None:
    """The policy gives up on its tool within fifty steps, and on right answers with it."""
    over = d.span(25, 60)
    w.searches = w.searches * (1 - size * w.ramp(at, over))
    w.lg_invalid += 3 * size * w.ramp(at, over / 2)
    w.hurt(at + 15, over, 0.8 * size)


def critic_failure(w: World, at: int, size: float, d: Draws) -> None:
    """The critic misleads: explained variance falls below 0, steps grow, then the reward falls."""
    w.explained = w.explained - size * w.ramp(at, d.span(5, 30))
    w.log_kl_old += 0.6 * w.ramp(at + 10, 20)
    w.log_grad += 0.5 * w.ramp(at + 10, 20)
    w.hurt(at + 40, 60, float(np.interp(np.log(size), np.log([0.7, 1.5, 6]), [0.2, 0.4, 0.85])))


def advantages_off_centre(w: World, at: int, size: float, d: Draws) -> None:
    """Groups are mixed up: advantages no longer sum to zero within one."""
    w.centre += size * w.step_at(at) * np.exp(w.noise(0.2))
    w.slow(at, 0.3)


def stale_engine(w: World, at: int, size: float, d: Draws) -> None:
    """The engine answers with old weights: neither its probabilities nor the first ratio agree with the learner's."""
    w.sync += size * w.step_at(at) * np.exp(w.noise(0.2))
    w.first_ratio += 5 * size * w.step_at(at) * np.exp(w.noise(0.3))
    w.log_mismatch += np.log1p(size * size / 2 / w.host.mismatch) * w.step_at(at)


def resume_mismatch(w: World, at: int, size: float, d: Draws) -> None:
    """Resumed without the optimizer's state, or from another checkpoint: rate, step and reward do not go on from
    where they were."""
    w.events.append((at + 1, "resume", "resumed from a checkpoint"))
    settling = np.where(w.t >= at, np.exp(-(w.t - at) / 25), 0)
    w.log_grad += np.log(size) * settling
    w.log_kl_old += np.log(size) * settling
    w.log_update += 0.5 * np.log(size) * settling
    w.log_kl -= 2.0 * settling
    share = float(np.interp(np.log(size), np.log([3, 8, 40]), [0.2, 0.5, 0.9]))
    w.p, w.p_val = w.p * (1 - share * settling), w.p_val * (1 - share * settling)


def slowdown(w: World, at: int, size: float, d: Draws) -> None:
    """Every step takes longer than it did; what is learned does not change."""
    w.log_time += np.log(size) * w.ramp(at, d.span(1, 20))


def _normal_quantile(share: float) -> float:
    """z with P(Z > z) = share, to a hundredth (logistic approximation)."""
    return float(np.log((1 - share) / share) / 1.702)
