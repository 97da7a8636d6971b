"""First rows: what a log proves without a trend, mostly in its first rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stabilizer.core.records import SEVERITIES, Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.rounding import rate_unseen
from stabilizer.runs.history import RunView
from stabilizer.trainers.all import find

FEW = 25
"""Rows from which the other detectors judge a run."""
NEARLY_ALL = 0.95
"""Share of answers cut, or of groups without a signal, that counts as all of them."""
FAR = 5.0
"""KL to the reference, in nats/token, that no useful policy has: at 5 nats the reference gives its tokens a probability
of 1 in 150."""
BEYOND_TEXT = 20.0
"""KL in nats a token that no two models have on average: if the reward holds, single tokens dominate the estimate."""
SOME_ROWS = 5
"""Rows from which one of several rewards that is always 0 is said."""
BELOW_ZERO = -0.5
"""A mean KL in nats from which noise of an estimator no longer explains its sign."""
FALLEN = 0.6
"""Share of the highest reward that is lost at the lowest row, and that may be left at the end, when it has fallen."""
MATERIAL = 0.1
"""Share of the highest reward that one of its parts must have paid for its fall to count."""
HELD = 3
"""Rows of which most must agree before a value counts: with fewer, one row decides."""
LONGER = 1.5
"""Growth of answers that goes with cut ones."""
SWOLLEN = 5.0
"""Gradient norm over its first value that tells an unstable policy."""
MOVED = 0.3
"""KL to the reference, in nats/token, that a few rows reach only with too large steps."""
TESTED = 0.1
"""Share of the training return below which an evaluation counts as failed."""
COEFFICIENT = 100.0
"""KL coefficient that makes the penalty the whole loss."""
UNEXPLAINED, LARGE_LOSS = 0.02, 10_000.0
"""Explained variance and value loss of a critic that learns nothing because returns are large."""
PROVED, PROBABLE, GUESSED = 0.9, 0.8, 0.6
"""Confidence in a cause that the rows show, in one that fits all of them best, and in the most usual of several."""
SILENT = 0.02
"""Share of the whole reward that a reward function may give at most, over the rows, to count as one that never pays."""
_PENALTY = re.compile("penalt|overlong|length|repet")
"""Words in the name of a part that only ever takes away."""
DRIFTS = 1e-4
"""KL to the reference, in nats/token, that only weights which change can reach."""
CUT = 0.25
"""Share of cut answers at the end from which the limit may explain a reward that falls."""
NO_TEXT = (7.0, 12.5)
"""Entropy in nats/token of a policy that writes no text: a perplexity of 1,000, up to the logarithm of a large
vocabulary. Answers of language models have 0.1 to 3; more than a vocabulary allows is a sum over tokens."""
SPENT, LOST = 0.05, 0.2
"""Entropy in nats/token below which nearly every token is certain, and the share of its first value that is left."""


class Fact(NamedTuple):
    """Something that the rows prove."""

    name: str
    severity: Severity
    what: str
    cause: str
    fix: str
    sure: float = PROVED


@dataclass(frozen=True, kw_only=True)
class FirstRows(Detector):
    """The few rows of this log prove that nothing can be learned as it is, or that something is broken already.

    Signature
        In a log of fewer than 25 rows, one of these holds in every row (the first two also in a longer one): the
        entropy is that of random tokens, no answer earns anything or all get one penalty, each answer is cut at the
        limit, the answers of each group earn the same, the gradient is exactly 0, one of several reward functions gives
        next to nothing (`info`), the learning rate is 0 after the first row. Or the KL to the reference is 5 nats/token
        or more. Or, over the rows: the entropy fell to nothing; the reward fell by 60 % while the KL or the gradient
        norm rose far, or while answers grew; the KL is negative; the KL coefficient is without bound; the critic
        explains nothing of large returns; no finished episode is reported. A fact that shows a failure with a detector
        of its own is reported as that failure, as `rollout/truncation` where every answer is cut; the others are
        reported under this name.

    Why it matters
        These facts need no trend. A run that begins like this wastes every further hour.

    Look-alikes
        A reward that is 0 in some rows, or groups alike in most of them, is an ordinary hard task. A learning rate of 0
        in the first row is a warm-up. In a log whose numbers all have five decimals or fewer, a rate of 0 may be 1e-6.

    False alarms
        A sparse reward that nobody earns in the first rows and somebody does later: the fact is still true of the rows.

    Remedies
        The change that the finding names, as `longer-answers` or `easier-prompts`; after a KL of 5 nats, `roll-back`.

    References
        huggingface/trl and verl-project/verl threads in which the first rows held the answer.
    """

    id = "system/first-rows"
    needs = ()
    confirm = 1
    at_end = True

    def check(self, view: RunView) -> Finding | None:
        return next((found for found in self.ends(view) if found.id == self.id), None)

    def ends(self, view: RunView) -> list[Finding]:
        """One finding for each failure that the rows prove. The first fact is the cause; the gravest finding has it."""
        rows = max((len(view.series(name).finite()) for name in view.names()), default=0)
        known = rows and (rows < FEW or nothing_earned(view) or writes_no_text(view))
        facts = [fact for ask in (FACTS if rows < FEW else IN_ANY_LOG) if known and (fact := ask(view))]
        of: dict[str, list[Fact]] = {}
        for fact in facts:
            of.setdefault(OF.get(fact.name, self.id), []).append(fact)
        found = [self._proved(view, rows, id, some) for id, some in of.items()]
        gravest = max(found, key=lambda one: SEVERITIES.index(one.severity), default=None)
        return [_explained(one, facts[0]) if one is gravest else one for one in found]

    def _proved(self, view: RunView, rows: int, id: str, facts: list[Fact]) -> Finding:
        in_each = facts[0].name not in OVER_ROWS
        each, onset = ("in each of the", _first_step(view)) if in_each else ("over the", view.step)
        found = self.finding(
            view, max((fact.severity for fact in facts), key=SEVERITIES.index), onset,
            f"{each} {rows} row{'s' * (rows > 1)}: {'; '.join(fact.what for fact in facts)}",
            facts=[fact.name for fact in facts],
        )  # fmt: skip
        return replace(found, id=id)


def _explained(found: Finding, by: Fact) -> Finding:
    return replace(
        found,
        evidence={**found.evidence, "cause": by.cause, "what": by.what, "next": by.fix, "confidence": by.sure},
    )


def _first_step(view: RunView) -> int:
    return min((int(steps[0]) for name in view.names() if len(steps := view.series(name).steps)), default=view.step)


def _all(view: RunView, name: str, least: int = 1) -> np.ndarray | None:
    """The finite values of a metric, if there are enough."""
    values = view.series(name).finite().values
    return values if len(values) >= least else None


def writes_no_text(view: RunView) -> Fact | None:
    """The policy chooses among thousands of tokens alike."""
    entropy = _all(view, "policy/entropy", 3)
    if entropy is None or not NO_TEXT[0] <= entropy.min() <= entropy.max() <= NO_TEXT[1]:
        return None
    return Fact(
        "no-text", "warn",
        f"the entropy is at least {entropy.min():.3g} nats/token, as if tokens were drawn at random: the policy writes"
        " no text", "config-error",
        "generate one answer and read it. Weights that were not loaded (a random initialisation, keys that do not"
        " match), another tokenizer, or an extreme temperature do this", PROBABLE,
    )  # fmt: skip


def all_cut(view: RunView) -> Fact | None:
    """Every answer ends at the length limit."""
    cut, high = _all(view, "rollout/truncated_frac"), _all(view, "rollout/length_max")
    if not (_piled_up(view) or (cut is not None and cut.min() >= NEARLY_ALL)):
        return None
    limit = high if high is not None else _all(view, "rollout/length_mean")
    at = f" at {limit[-1]:,.0f} tokens" if limit is not None else ""
    trainer = find(str(view.about("trainer", "")))
    key = next(iter(trainer.keys_of("max_completion")), "") if trainer else ""
    named = f" ({key})" if key else ""
    return Fact(
        "all-cut", "warn", f"nearly every answer is cut{at} by the length limit before it ends", "capped-length",
        f"raise the length limit{named} until most answers end by themselves, or ask for shorter ones in the prompt: an"
        " answer that is cut before its result earns nothing",
    )  # fmt: skip


def _piled_up(view: RunView) -> bool:
    """Whether all answers of all rows have one length, so that a limit cut them."""
    low, high = _all(view, "rollout/length_min", 2), _all(view, "rollout/length_max", 2)
    return low is not None and high is not None and len({*low, *high}) == 1


def same_rewards(view: RunView) -> Fact | None:
    """All answers of a group earn the same."""
    share, spread = _all(view, "reward/zero_std_frac"), _all(view, "reward/std_group")
    alike = (share is not None and share.min() >= NEARLY_ALL) or (spread is not None and not spread.any())
    if not (alike or _one_reward(view)):
        return None
    if nothing_earned(view):
        return None  # reported as that
    return Fact(
        "same-rewards", "warn", "the answers of every group earn the same, so no advantage and no gradient is left",
        "dead-groups",
        "check the reward function on a right and a wrong answer of one prompt, make it finer than pass or fail,"
        " sample at temperature 1, take more answers a group, or prompts that are solved sometimes",
    )  # fmt: skip


def _one_reward(view: RunView) -> bool:
    """Whether the highest and the lowest reward of each row are the same, where the log has both."""
    highest = next((name for name in view.names() if name.endswith(("score/max", "reward/max", "rewards/max"))), "")
    high, low = (_all(view, f"{highest.removesuffix('max')}{end}") if highest else None for end in ("max", "min"))
    return high is not None and low is not None and np.array_equal(high, low)


def nothing_earned(view: RunView) -> Fact | None:
    """No answer earned anything, or each got the same penalty."""
    mean = _all(view, "reward/mean", 2)
    if mean is None or np.ptp(mean) or mean[0] > 0:
        return None
    if mean[0] and (len(mean) < SOME_ROWS or _differ(view)):
        return None
    return Fact(
        "no-reward", "warn", f"the reward is {mean[0]:.4g} for every answer", "reward-fault",
        "print one completion and call the reward function on it yourself: a verifier that raises or times out"
        " (math_verify outside the main thread, a missing package) scores all answers alike, and so do a format that"
        " the model does not write, answers cut before their result, and prompts that are too hard", GUESSED,
    )  # fmt: skip


def _differ(view: RunView) -> bool:
    """Whether a row says that some answers earned more than others."""
    spreads = [_all(view, name) for name in ("reward/std", "reward/std_group")]
    return any(spread is not None and spread.any() for spread in spreads)


def silent_parts(view: RunView) -> str:
    """Which of several reward functions gave next to nothing, or the same penalty, in all rows; "" if none did."""
    parts = [name for name in view.names() if name.startswith("reward/") and name.endswith("/mean")]
    paid = {name: values for name in parts if (values := _all(view, name, SOME_ROWS)) is not None}
    most = max((np.abs(values).max() for values in paid.values()), default=0.0)
    if not any(np.ptp(values) for values in paid.values()) or not paid.get("reward/mean", np.ones(1)).any():
        return ""
    paid.pop("reward/mean", None)
    varied = any(map(np.ptp, paid.values()))
    silent = {
        name: values
        for name, values in paid.items()
        if np.abs(values).max() <= SILENT * most
        or (varied and values[0] < 0 and not np.ptp(values) and not _PENALTY.search(name))
    }
    if not silent:
        return ""
    named = ", ".join(name.split("/")[1] for name in list(silent)[:3])
    high = max(float(values.max()) for values in silent.values())
    gives = f"{high:.2g} at most" if any(map(np.ptp, silent.values())) else f"{high:.3g} to every answer"
    return f"the reward function {named} gives {gives}"


CALL_IT = (
    "call it yourself on a completion that should earn something: its pattern may not fit what the model writes (text"
    " before the answer, as <think>, or another form of it), an answer may be cut before it, or an exception may be"
    " swallowed; `stabilizer preflight --rewards` tries it"
)
"""What to do about a reward function that pays next to nothing."""


def part_earns_nothing(view: RunView) -> Fact | None:
    """One of several reward functions never pays."""
    silent = silent_parts(view)
    return Fact("part-earns-nothing", "info", silent, "reward-fault", CALL_IT, GUESSED) if silent else None


def no_gradient(view: RunView) -> Fact | None:
    """The gradient is exactly 0."""
    norm, kl = _all(view, "optim/grad_norm"), _all(view, "policy/kl_ref")
    if norm is None or norm.any() or (kl is not None and len(kl) > 1 and kl[-1] > max(kl[0], DRIFTS)):
        return None
    share, spread = _all(view, "reward/zero_std_frac"), _all(view, "reward/std_group")
    what = "the gradient norm is exactly 0, so no weight changes"
    if (share is not None and share.max() < NEARLY_ALL) or (share is None and spread is not None and spread.all()):
        differ = f"at least {1 - share.max():.0%} of groups" if share is not None else "groups"
        return Fact(
            "no-gradient", "critical", f"{what}, though rewards differ within {differ}", "weights-frozen",
            "look for what loses the gradient: frozen weights, an adapter under reentrant gradient checkpointing"
            " (gradient_checkpointing_kwargs={'use_reentrant': False}, model.enable_input_require_grads()), answers"
            " that are all masked in the loss, or a loss of detached log-probabilities", PROBABLE,
        )  # fmt: skip
    return Fact(
        "no-gradient", "critical", what, "dead-groups",
        "look first whether rewards differ within a group (see the other facts of these rows); if they do, look for"
        " parameters without gradient: frozen weights, adapters under reentrant gradient checkpointing",
        PROVED if same_rewards(view) or nothing_earned(view) else GUESSED,
    )  # fmt: skip


def no_rate(view: RunView) -> Fact | None:
    """The learning rate is 0 after the first row."""
    rate = _all(view, "optim/lr", 3)
    if rate is None or rate[1:].any() or rate_unseen(view):
        return None
    return Fact(
        "no-rate", "warn", "the learning rate is 0 after the first row", "still-warming-up",
        "check the schedule: a warm-up counted in more steps than the run has, or a total of steps that is too small",
    )  # fmt: skip


def far_from_reference(view: RunView) -> Fact | None:
    """The policy has little to do with its reference."""
    kl = _all(view, "policy/kl_ref")
    if kl is None or (far := _held(kl).max()) < FAR or (far > BEYOND_TEXT and not _fell(view)):
        return None
    at = f"{far:.3g} nats/token"
    return Fact(
        "far", "critical", f"the KL to the reference has reached {at}", "lr-too-high",
        "start from the last checkpoint before it rose, with a lower learning rate. If it is that high in the first"
        " row, the reference is another model or template than the policy, or the two compute different"
        " log-probabilities",
    )  # fmt: skip


def entropy_gone(view: RunView) -> Fact | None:
    """The policy became certain of every token while its answers are cut."""
    entropy, cut = _all(view, "policy/entropy", 3), _all(view, "rollout/truncated_frac", 3)
    if entropy is None or cut is None or entropy[0] <= 0:
        return None
    if entropy[-1] > min(SPENT, LOST * entropy[0]) or cut[-1] < NEARLY_ALL - 0.1:
        return None
    return Fact(
        "entropy-gone", "critical",
        f"the entropy fell from {entropy[0]:.3g} to {entropy[-1]:.2g} nats/token while {cut[-1]:.0%} of answers are"
        " cut: the policy repeats itself", "exploration-exhausted",
        "return to the start with a lower learning rate and a KL term or entropy bonus; the present weights are not"
        " worth continuing",
    )  # fmt: skip


def kl_below_zero(view: RunView) -> Fact | None:
    """The KL estimate is clearly negative."""
    for name in ("policy/kl_ref", *(name for name in view.names() if name.endswith("objective/kl"))):
        kl = _all(view, name)
        if kl is not None and kl.min() < BELOW_ZERO and kl[-1] < 0:
            return Fact(
                "negative-kl", "warn",
                f"the KL to the reference is negative, down to {kl.min():.3g}, which no KL is: text is sampled with"
                " other settings than it is scored with", "config-error",
                "generate plainly (top_k 0, top_p 1, do_sample, temperature 1, no min_length), mask the padding, and"
                " keep dropout off in both passes; then lower the learning rate",
            )  # fmt: skip
    return None


def runs_away(view: RunView) -> Fact | None:
    """The reward, or one of its parts, fell while the policy moved far."""
    fell = _fell(view)
    if not fell:
        return None
    norm, kl = _all(view, "optim/grad_norm", 3), _all(view, "policy/kl_ref", 3)
    signs = []
    if kl is not None and kl[-1] >= MOVED and kl[-1] > kl[0]:
        signs.append(f"the KL rose to {kl.max():.3g} nats/token")
    if norm is not None and norm[0] > 0 and norm.max() >= max(1.0, SWOLLEN * norm[0]):
        signs.append(f"the gradient norm rose from {norm[0]:.2g} to {norm.max():.3g}")
    if not signs:
        return None
    rate = _all(view, "optim/lr")
    at = f" ({rate.max():.2g})" if rate is not None else ""
    return Fact(
        "runs-away", "warn", f"{fell}, while {' and '.join(signs)}: the steps are too large", "lr-too-high",
        f"lower the learning rate{at} by 5 to 10, with a warm-up and a KL weight (beta) or tighter clipping, and start"
        " from a checkpoint before the fall. Look at what the answers became: a part of the reward that is easy"
        " (format) may have replaced the one that counts",
    )  # fmt: skip


def grows_into_limit(view: RunView) -> Fact | None:
    """The reward fell while answers grew."""
    length, cut = _all(view, "rollout/length_mean", 3), _all(view, "rollout/truncated_frac")
    fell = _fell(view)
    if cut is not None and cut[-1] < CUT:
        return None
    if (
        length is None
        or not fell
        or length[0] <= 0
        or length[-1] < LONGER * length[0]
        or length[-1] < 0.9 * length.max()
    ):
        return None
    return Fact(
        "into-limit", "warn",
        f"{fell}, while answers grew from {length[0]:,.0f} to {length[-1]:,.0f} tokens"
        + (f" and {cut[-1]:.0%} are cut at the end" if cut is not None else ": they may reach the length limit and be"
           " cut before their result and closing tag"), "capped-length",
        "look at the share of cut answers (completions/clipped_ratio); raise the limit (max_completion_length,"
        " data.max_response_length), reward shorter answers (DAPO's soft overlong penalty), or mask cut answers",
        PROBABLE if cut is not None else GUESSED,
    )  # fmt: skip


def _fell(view: RunView) -> str:
    """What of the reward fell, in words; "" if nothing did."""
    parts = sorted(name for name in view.names() if name.startswith("reward/") and name.endswith("/mean"))
    earned = _all(view, "reward/mean")
    whole = 0.0 if earned is None else float(earned.max())
    for name in ("reward/mean", *(part for part in parts if part != "reward/mean")):
        values = _all(view, name, SOME_ROWS - 1)
        if values is None or values.max() <= max(0.0, MATERIAL * whole):
            continue
        held = _held(values)
        low = held[int(held.argmax()) :].min()
        if low <= (1 - FALLEN) * held.max() and held[-1] <= FALLEN * held.max():
            what = "reward" if name == "reward/mean" else name.split("/")[1]
            return f"the {what} fell from {values.max():.3g} to {low:.2g}"
    return ""


def _held(values: np.ndarray) -> np.ndarray:
    """Medians of `HELD` neighbours, where there are enough rows: one row that returns at once is chance."""
    if len(values) < 3 * HELD:
        return values
    medians: np.ndarray = np.median(np.lib.stride_tricks.sliding_window_view(values, HELD), axis=1)
    return medians


def entropy_spent(view: RunView) -> Fact | None:
    """The policy became certain of every token."""
    entropy = _all(view, "policy/entropy", SOME_ROWS - 1)
    if entropy is None or entropy[0] <= 0 or entropy[-1] > min(SPENT, LOST * entropy[0]) or entropy_gone(view):
        return None
    return Fact(
        "entropy-spent", "warn",
        f"the entropy fell from {entropy[0]:.3g} to {entropy[-1]:.2g} nats/token: the policy hardly explores any more",
        "exploration-exhausted",
        "go back to a checkpoint with entropy left and continue with more exploration: a higher upper clip limit"
        " (epsilon_high, clip_ratio_high 0.28), a small entropy bonus (entropy_coeff 0.001), temperature 1, or harder"
        " prompts",
    )  # fmt: skip


def no_episode(view: RunView) -> Fact | None:
    """No finished episode is reported."""
    for name in ("ep_rewmean", "ep_rew_mean", "rollout/ep_rew_mean", "eprewmean", "episode_reward_mean"):
        values = view.series(name).values
        if len(values) and not np.isfinite(values).any():
            return Fact(
                "no-episode", "warn",
                f"{name} is nan: no finished episode is reported, as the environments have no Monitor or none ended",
                "config-error",
                "wrap each environment in Monitor (before the vector environment; make_vec_env does it); if it has one,"
                " the episodes are longer than the steps so far: wait, or set a time limit",
            )  # fmt: skip
    return None


def penalty_explodes(view: RunView) -> Fact | None:
    """The adaptive KL coefficient grew without bound."""
    for name in ("control/beta", *(name for name in view.names() if name.rsplit("/", 1)[-1] in KL_COEFFICIENTS)):
        values = view.series(name).values
        if len(values) and not values[-1] < COEFFICIENT:
            return Fact(
                "penalty-explodes", "critical",
                f"the adaptive KL coefficient has reached {values[-1]:.3g}: the measured KL stays above its target, so"
                " the coefficient is multiplied in every iteration until it is infinite", "config-error",
                "raise kl_target (0.01 is small), lower the learning rate or the number of epochs per batch, or fix the"
                " coefficient (kl_coeff 0 leaves clipping alone); restart from before it was large",
            )  # fmt: skip
    return None


KL_COEFFICIENTS = ("cur_kl_coeff", "curr_kl_coeff", "kl_coeff", "kl_coef", "kl_ctl")
"""Names of the adaptive coefficient in RLlib, OpenRLHF and others."""


def critic_blind(view: RunView) -> Fact | None:
    """The critic explains nothing of large returns."""
    known, loss = _all(view, "value/explained_variance"), _all(view, "value/loss")
    if known is None or loss is None or np.abs(known).max() > UNEXPLAINED or loss[-1] < LARGE_LOSS:
        return None
    return Fact(
        "critic-blind", "warn",
        f"the critic explains nothing (explained variance {known[-1]:.1g}) at a value loss of {loss[-1]:,.0f}: returns"
        " are too large for it", "config-error",
        "normalise the rewards (VecNormalize, or divide them until returns are near 1) and the observations; lower"
        " ent_coef (0.01 or less) if the entropy stays at its maximum",
    )  # fmt: skip


def fails_when_tested(view: RunView) -> Fact | None:
    """Episodes of the evaluation earn a small part of those of training."""
    earned, tested = _all(view, "reward/mean", 3), _all(view, "eval/episodic_return")
    if earned is None or tested is None or earned[-1] <= 0 or tested.mean() > TESTED * earned[-1]:
        return None
    return Fact(
        "fails-when-tested", "warn",
        f"episodes of the evaluation earn {tested.mean():.3g} and those of training {earned[-1]:,.0f}: the evaluation"
        " sees other observations than training did", "config-error",
        "save the running mean and variance of the observations (obs_rms of NormalizeObservation, VecNormalize) with"
        " the weights, set them in the evaluation environment and stop updating them there; check the wrappers too",
    )  # fmt: skip


OF = {
    "all-cut": "rollout/truncation", "same-rewards": "reward/no-signal", "no-reward": "reward/no-signal",
    "no-gradient": "optim/no-update", "no-rate": "optim/lr-too-low", "far": "policy/kl-runaway",
    "negative-kl": "policy/kl-estimator", "entropy-gone": "policy/entropy-collapse",
    "entropy-spent": "policy/entropy-collapse", "runs-away": "reward/collapse", "into-limit": "reward/collapse",
    "critic-blind": "value/critic-failure",
}  # fmt: skip
"""The failure that a fact shows; one that is not here has no name but this detector's."""
OVER_ROWS = (
    "entropy-gone", "far", "negative-kl", "runs-away", "into-limit", "entropy-spent", "no-episode", "penalty-explodes",
    "fails-when-tested",
)  # fmt: skip
"""Facts about the rows together and not about each."""
FACTS: tuple[Callable[[RunView], Fact | None], ...] = (
    penalty_explodes, writes_no_text, entropy_gone, far_from_reference, kl_below_zero, all_cut, nothing_earned,
    runs_away, grows_into_limit, entropy_spent, part_earns_nothing, same_rewards, no_rate, no_gradient, critic_blind,
    no_episode, fails_when_tested,
)  # fmt: skip
"""What is asked, causes before their consequences."""
IN_ANY_LOG = (writes_no_text, nothing_earned, no_gradient)
"""What is asked of a long log too, if the first or second holds. A gradient norm of 0 alone may not be measured."""
