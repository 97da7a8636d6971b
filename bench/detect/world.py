"""The process behind a generated run: courses of its hidden quantities, and the numbers a trainer would log of them.

A `World` is first built healthy from a `Host` (the set-up of a run); look-alikes and faults then bend its courses, and
only at the end `World.rows` samples what is logged. So numbers agree with one another as they do in a run: rewards are
counts of right answers in groups of the batch's size, silent groups follow from the same counts, the gradient rests on
the groups that are not silent, truncation on the lengths, effective sample size on the KL. Nothing here knows a
detector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.detect.host import Host


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def logit(p: Any) -> Any:
    """The inverse of sigmoid, for shares that are not quite 0 or 1."""
    p = np.clip(p, 1e-4, 1 - 1e-4)
    return np.log(p / (1 - p))


@dataclass
class World:
    """The hidden courses of one run, one entry a step. What is called `log_...` is added to a logarithm, `lg_...` to a
    logit; all of these start at 0 and are bent by look-alikes and faults."""

    host: Host
    seed: int
    events: list[tuple[int, str, str]] = field(default_factory=list)
    """(step, kind, text) of what was declared."""

    def __post_init__(self) -> None:
        h, n = self.host, self.host.steps
        self.n = n
        self._seeds = np.random.SeedSequence([self.seed, 0])
        self.t = np.arange(n)
        pace = self._schedule()
        learning = np.maximum(0.0, np.cumsum(pace) / n - h.delay)
        self.gain = 1 - np.exp(-learning / h.tau)
        """Share of what there is to learn that has been learned."""
        self.p = h.p_start + (h.p_end - h.p_start) * self.gain
        self.p_val = self.p - h.gap
        zeros = lambda: np.zeros(n)  # noqa: E731
        self.difficulty, self.hack, self.misjudged, self.failed = zeros(), zeros(), zeros(), zeros()
        self.spread = np.full(n, h.spread)
        self.prompts = np.full(n, h.prompts)
        self.reward_scale, self.format_weight, self.p_format = np.ones(n), np.ones(n), sigmoid(2 + 6 * self.gain)
        self.log_entropy = -h.entropy_fall * self.gain
        self.log_length = h.length_growth * self.gain
        self.log_kl, self.log_kl_old, self.log_ratio, self.log_mismatch = zeros(), zeros(), zeros(), zeros()
        self.log_grad = h.grad_creep * self.t / n
        self.log_update, self.log_time, self.log_cap = zeros(), zeros(), zeros()
        self.lg_clip, self.lg_repetition, self.lg_distinct, self.lg_distinct_2 = zeros(), zeros(), zeros(), zeros()
        self.lg_dependence = zeros()
        self.logp_correct, self.length_corr, self.tiny_std = zeros(), zeros(), zeros()
        self.explained = 0.65 * (1 - np.exp(-self.t / 40))
        self.staleness = np.full(n, float(h.staleness))
        self.lr, self.beta = h.lr * pace, np.full(n, h.beta)
        self.searches, self.lg_invalid = np.full(n, 1.6), zeros()
        self.centre, self.first_ratio, self.sync = zeros(), zeros(), zeros()
        self.frozen = np.zeros(n, bool)
        """Steps whose update changed nothing."""
        self.kl_spikes = np.ones(n)
        self.odd: dict[str, np.ndarray] = {}
        """Factors on single logged values: outliers."""
        self.not_finite: dict[str, np.ndarray] = {}

    def _schedule(self) -> np.ndarray:
        rising, share = np.minimum(1.0, (self.t + 1) / 20), self.t / self.n
        if self.host.schedule == "warming":
            return (self.t + 1) / self.n
        if self.host.schedule == "linear":
            return rising * (1 - 0.95 * share)
        if self.host.schedule == "cosine":
            return rising * (0.5 + 0.5 * np.cos(np.pi * share)) + 1e-3
        return rising

    # --- bending ----------------------------------------------------------------------------------------------------

    def step_at(self, at: int) -> np.ndarray:
        """0 before a step, 1 from it on."""
        return (self.t >= at).astype(float)

    def ramp(self, at: int, over: float) -> np.ndarray:
        """0 before a step, 1 after `over` more; a straight line between, and never 0 from `at` on."""
        return np.clip((self.t - at + 1) / max(over, 1), 0, 1)

    def hurt(self, at: int, over: float, share: float) -> None:
        """The policy loses this share of its right answers, in training as on held-out problems."""
        self.p = self.p * (1 - share * self.ramp(at, over))
        self.p_val = self.p_val * (1 - share * self.ramp(at, over))

    def slow(self, at: int, rate: float) -> None:
        """From a step on, learning goes on at this share of its pace."""
        after = np.where(self.t > at, self.gain[at] + rate * (self.gain - self.gain[at]), self.gain)
        for name in ("p", "p_val"):
            lost = (self.host.p_end - self.host.p_start) * (self.gain - after)
            setattr(self, name, getattr(self, name) - lost)
        self.log_entropy += self.host.entropy_fall * (self.gain - after)
        self.log_length -= self.host.length_growth * (self.gain - after)
        self.gain = after

    def expected_reward(self) -> np.ndarray:
        """Mean reward without sampling noise, in shares of its support at the start."""
        p = sigmoid(logit(self.p) - self.difficulty / np.sqrt(1 + np.pi / 8 * self.spread**2))
        p = self._judged(p)
        return self.reward_scale * p

    def _judged(self, p: Any) -> Any:
        """The share of answers that are paid for, right or not."""
        shape = (-1, *[1] * (np.ndim(p) - 1))
        return (p + (1 - p) * self.hack.reshape(shape)) * (1 - self.misjudged.reshape(shape))

    # --- sampling what is logged ------------------------------------------------------------------------------------

    def fresh(self) -> np.random.Generator:
        """A generator for each thing that is drawn: what a fault draws, or makes rarer, leaves the rest of the run's
        luck as it was. So a run with a fault equals its healthy twin up to the onset."""
        return np.random.default_rng(self._seeds.spawn(1)[0])

    def noise(self, scale: float, heavy: bool = False) -> np.ndarray:
        """Autocorrelated noise of this standard deviation (of this scale, where tails are heavy)."""
        phi = self.host.phi
        memory = phi ** np.arange(int(np.log(1e-3) / np.log(phi)) + 1)
        rows = self.n + len(memory) - 1
        rng = self.fresh()
        fresh = rng.standard_t(3, rows) if heavy else rng.normal(size=rows)
        return scale * np.convolve(fresh, memory * np.sqrt(1 - phi * phi), mode="valid")

    def columns(self) -> dict[str, np.ndarray]:
        """Everything our own trainer would log; NaN where a metric is not measured at a step."""
        h = self.host
        self._seeds = np.random.SeedSequence([self.seed, 1])
        out = self._rewards()
        batch = float(np.sqrt(128 / (h.prompts * h.group)).clip(0.5, 3))
        alive = np.sqrt(1 - out["reward/zero_std_frac"] + 0.02)
        pace = self.lr / h.lr
        moved = ~self.frozen
        entropy = h.entropy * np.exp(self.log_entropy + self.noise(0.04 * batch))
        kl = h.kl * (0.01 + 0.7 * self.gain + 0.3 * self.t / self.n)
        kl = kl * np.exp(self.log_kl + self.noise(0.08 * batch)) * self.kl_spikes
        kl_old = moved * h.kl_old * np.minimum(pace, 10) ** 1.5 * np.exp(self.log_kl_old + self.noise(0.25))
        clip = moved * sigmoid(
            logit(h.clip) + np.log(np.maximum(pace, 1e-3)).clip(-5, 1) + self.lg_clip + self.noise(0.25)
        )
        low = np.clip(0.45 + self.noise(0.05), 0.1, 0.9)
        reach = 0.8 * np.clip(pace, 0.02, 10) ** 0.5 * np.exp(self.log_ratio + self.noise(0.35))
        mismatch = h.mismatch * np.exp(self.log_mismatch + self.noise(0.2))
        if h.on_policy:
            kl_old, clip, reach = kl_old * 0, clip * 0, np.abs(self.noise(1e-7))
        length = h.length * np.exp(self.log_length + self.noise(0.03 * batch))
        grad = h.grad * alive * np.exp(self.log_grad + self.noise(h.grad_noise * batch**0.5, h.heavy))
        grad = moved * grad * (h.length / length) ** 0.3
        out |= {
            "optim/grad_norm": grad,
            "optim/grad_norm_max": grad * np.exp(np.abs(self.noise(0.15))),
            "optim/lr": self.lr,
            "optim/update_ratio": moved * 2e-4 * pace * np.exp(self.log_update + self.noise(0.05)),
            "optim/skipped": np.zeros(self.n),
            "policy/loss": self.noise(0.02 * batch) + self.beta * kl,
            "policy/clip_frac": clip,
            "policy/clip_frac_low": clip * low,
            "policy/clip_frac_high": clip * (1 - low),
            "policy/entropy": entropy,
            "policy/kl_old": kl_old,
            "policy/ratio_max": 1 + moved * reach,
            "policy/ess": 1 / (1 + 6 * kl_old + 4 * mismatch),
            "policy/ratio_first_error": 10 ** self.fresh().uniform(-7.3, -6.3, self.n) + self.first_ratio,
            "policy/mismatch_kl": mismatch,
            "policy/mismatch_ratio_max": 1 + np.sqrt(mismatch) * 8 * np.exp(self.noise(0.3)),
            "policy/logp_correct": np.where(
                out["accuracy/train"] > 0, -0.8 * entropy * np.exp(self.noise(0.04)) + self.logp_correct, np.nan
            ),
            "reward/advantage_center_error": 10 ** self.fresh().uniform(-8.3, -7.3, self.n) + self.centre,
            "rollout/staleness": self.staleness,
            "rollout/sync_error": 10 ** self.fresh().uniform(-6.8, -6.0, self.n) + self.sync,
        }  # fmt: skip
        out |= self._answers(length, entropy) | self._times(length)
        if h.kl_logged != "absent":
            out["policy/kl_ref"] = kl if h.kl_logged == "yes" else np.zeros(self.n)
        if h.algorithm == "ppo":
            explained = np.minimum(self.explained + self.noise(0.05), 0.99)
            out["value/explained_variance"] = explained
            out["value/loss"] = (
                0.5 * (1 - explained) * np.maximum(out["reward/std"], 0.02) ** 2 * np.exp(self.noise(0.1))
            )
            out["value/mean"] = out["reward/mean"] + self.noise(0.05)
        out |= {f"control/{knob}": value for knob, value in self._knobs().items()}
        dependence = logit(0.4) + 0.5 * self.gain + self.lg_dependence + self.noise(0.12 * batch)
        out["rollout/prompt_dependence"] = sigmoid(dependence)  # drawn last: all else keeps its luck
        for name, factor in self.odd.items():
            if name in out:
                out[name] = out[name] * factor
        for name, where in self.not_finite.items():
            if name in out:
                out[name] = np.where(where, np.inf, out[name])
        return out

    def _rewards(self) -> dict[str, np.ndarray]:
        """Counts of right answers in groups, and all that is made of them."""
        h, widest = self.host, int(self.prompts.max())
        scale = np.sqrt(1 + np.pi / 8 * self.spread**2)
        skill = logit(self.p) * scale - self.difficulty
        hard = self.fresh().normal(size=(self.n, widest)) * self.spread[:, None]
        right = self.fresh().binomial(h.group, self._judged(sigmoid(skill[:, None] - hard)))
        shaped = self.fresh().binomial(h.group, np.broadcast_to(self.p_format[:, None], right.shape))
        used = np.arange(widest) < self.prompts[:, None]
        answers = self.prompts * h.group

        def mean(values: np.ndarray) -> np.ndarray:
            return (values * used).sum(1) / self.prompts

        share, form = right / h.group, shaped / h.group
        within = {name: s * (1 - s) * h.group / (h.group - 1) for name, s in (("right", share), ("form", form))}
        silent = within["right"] == 0
        accuracy = mean(share)
        weight, base = {"0-1": (1.0, 0.0), "-1..1": (2.0, -1.0), "0-5": (4.0, 0.0)}[h.rewards]
        variance = weight**2 * within["right"]
        total = weight * accuracy + base
        spread_all = weight**2 * accuracy * (1 - accuracy)
        out: dict[str, np.ndarray] = {}
        if h.rewards == "0-5":
            variance = variance + self.format_weight[:, None] ** 2 * within["form"]
            silent = silent & (within["form"] == 0)
            form_mean = self.format_weight * mean(form)
            for name, paid in zip(h.components, (self.reward_scale * total, form_mean), strict=True):
                out[f"reward/{name}/mean"] = paid
            total = total + form_mean / self.reward_scale
            spread_all = spread_all + self.format_weight**2 * mean(form) * (1 - mean(form))
        tiny = self.tiny_std[:, None] * np.abs(1 + 0.3 * self.fresh().normal(size=variance.shape))
        silent = silent & (self.tiny_std[:, None] == 0)
        failed = self.fresh().binomial(answers, self.failed) / answers
        out |= {
            "reward/mean": self.reward_scale * total,
            "reward/std": self.reward_scale * np.sqrt(spread_all),
            "reward/std_group": self.reward_scale * mean(np.sqrt(variance) + tiny),
            "reward/zero_std_frac": mean(silent),
            "reward/all_fail_frac": mean(right == 0),
            "reward/all_pass_frac": mean(right == h.group),
            "reward/failed_frac": failed,
            "accuracy/train": accuracy,
            "batch/prompts": self.prompts.astype(float),
            "batch/group_size": np.full(self.n, float(h.group)),
            "batch/updates": np.full(self.n, 1.0 if h.on_policy else 4.0),
        }
        asked = (self.t + 1 - h.val_offset) % h.val_every == 0
        solved = sigmoid(logit(self.p_val) + 0.2 - 0.3 * self.difficulty)
        scores = self.fresh().binomial(h.val_size, solved) / h.val_size
        out["accuracy/val"] = np.where(asked, scores, np.nan)
        return out

    def _answers(self, length: np.ndarray, entropy: np.ndarray) -> dict[str, np.ndarray]:
        h = self.host
        cap = h.length * h.cap * np.exp(self.log_cap)
        s = h.length_spread
        over = (np.log(cap / length) + s * s / 2) / s
        cut = self.fresh().binomial(self.prompts * h.group, 0.5 * (1 - _erf(over / np.sqrt(2)))) / (
            self.prompts * h.group
        )
        mean = np.minimum(length, cap)
        lost = np.log(np.maximum(entropy, 1e-6) / h.entropy)
        out = {
            "rollout/length_mean": mean,
            "rollout/length_max": np.minimum(length * np.exp(2.7 * s + self.noise(0.1)), cap),
            "rollout/length_p90": np.minimum(length * np.exp(1.28 * s - s * s / 2), cap),
            "rollout/length_reward_corr": np.clip(
                self.length_corr + self.noise(1 / np.sqrt(h.prompts * h.group)), -1, 1
            ),
            "rollout/truncated_frac": cut,
            "rollout/repetition": sigmoid(logit(0.08) + self.lg_repetition + self.noise(0.08)),
            "rollout/distinct": sigmoid(logit(0.9) + 1.2 * lost + self.lg_distinct + self.noise(0.12)),
            "rollout/distinct_2": sigmoid(logit(0.4) + 0.6 * lost + self.lg_distinct_2 + self.noise(0.06)),
        }
        if h.tool:
            out["rollout/searches_mean"] = self.searches * np.exp(self.noise(0.04))
            out["rollout/turns_mean"] = 1 + out["rollout/searches_mean"]
            out["rollout/invalid_calls_frac"] = sigmoid(logit(0.05) + self.lg_invalid + self.noise(0.2))
        return out

    def _times(self, length: np.ndarray) -> dict[str, np.ndarray]:
        h = self.host
        rollout = 0.6 * h.step_s * length / h.length * np.exp(self.noise(0.06) + self.log_time)
        update = 0.3 * h.step_s * (0.5 + 0.5 * length / h.length) * np.exp(self.noise(0.04) + self.log_time)
        asked = (self.t + 1 - h.val_offset) % h.val_every == 0
        step = rollout + update + 0.1 * h.step_s + 0.4 * h.step_s * asked
        tokens = np.cumsum(self.prompts * h.group * (length + 100))
        return {"time/step_s": step, "time/rollout_s": rollout, "time/update_s": update, "tokens/total": tokens}

    def _knobs(self) -> dict[str, np.ndarray]:
        ones = np.ones(self.n)
        return {"beta": self.beta, "lr_scale": ones, "epsilon_low": 0.2 * ones, "epsilon_high": 0.2 * ones,
                "temperature": ones, "max_grad_norm": ones, "prompts": ones * self.prompts,
                "group_size": ones * self.host.group}  # fmt: skip

    def rows(self) -> Iterator[tuple[int, dict[str, float]]]:
        """What the host's trainer logs: (step, values), counted from 1."""
        columns = self.columns()
        wanted = VIEWS[self.host.trainer]
        columns = {name: values for name, values in columns.items() if wanted is None or _logged(name, wanted)}
        every = self.host.log_every
        for row in range(self.n):
            if every == 1:
                values = {name: float(column[row]) for name, column in columns.items()}
            elif (row + 1) % every == 0:
                values = {
                    name: window_value(name, column[row + 1 - every : row + 1]) for name, column in columns.items()
                }
            else:
                values = {"accuracy/val": float(columns["accuracy/val"][row])} if "accuracy/val" in columns else {}
            values = {name: value for name, value in values.items() if not np.isnan(value)}
            if values:
                yield row + 1, {name: np.nan if np.isinf(value) else value for name, value in values.items()}


def window_value(name: str, values: np.ndarray) -> float:
    """How a trainer that logs every so many steps makes one number of them."""
    if name == "accuracy/val" or name in ("optim/grad_norm", "optim/lr", "tokens/total"):
        return float(values[-1])
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan


def _logged(name: str, wanted: frozenset[str]) -> bool:
    return name in wanted or (name.startswith("reward/") and name.count("/") == 2 and "reward/mean" in wanted)


def _erf(x: np.ndarray) -> np.ndarray:
    """Error function to 1e-7 (Abramowitz and Stegun 7.1.26), because numpy has none."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - poly * np.exp(-x * x))


_COMMON = ("reward/mean", "policy/entropy", "policy/kl_ref", "policy/loss", "policy/clip_frac", "optim/grad_norm",
           "optim/lr", "rollout/length_mean", "rollout/length_max", "rollout/truncated_frac", "time/step_s",
           "accuracy/val", "rollout/searches_mean", "rollout/invalid_calls_frac")  # fmt: skip
VIEWS: dict[str, frozenset[str] | None] = {
    "own": None,
    "trl": frozenset((*_COMMON, "reward/std", "reward/zero_std_frac", "policy/clip_frac_low", "policy/clip_frac_high",
                      "policy/mismatch_kl", "tokens/total")),
    "verl": frozenset((*_COMMON, "policy/kl_old", "policy/mismatch_kl", "value/loss", "value/explained_variance",
                       "value/mean", "time/rollout_s", "time/update_s", "rollout/turns_mean")),
}  # fmt: skip
"""What each trainer logs of it; None is everything."""
