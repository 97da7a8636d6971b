"""Guesses what the columns of an unknown log mean.

A note lists every guess, and `--map` corrects it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stabilizer.core.metrics import VOCABULARY
from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import Row, assemble, definition
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.other.plain_names import plainly

GUESSES: dict[str, tuple[str, ...]] = {
    "reward/mean": (
        "reward", "rewards", "reward_mean", "mean_reward", "rewards_mean", "avg_reward", "reward_avg", "rewards_avg",
        "average_reward", "ep_rew_mean", "ep_reward_mean", "episode_reward", "eprewmean", "mean_score",
    ),
    "reward/std": ("reward_std", "std_reward", "rewards_std"),
    "policy/kl_ref": ("kl", "kl_divergence", "kl_ref", "kl_mean", "mean_kl", "kl_avg", "kl_div", "kl_loss"),
    "policy/kl_old": ("approx_kl", "approxkl", "ppo_kl", "old_kl"),
    "policy/entropy": ("entropy", "policy_entropy", "mean_entropy", "entropy_mean", "entropy_avg"),
    "policy/clip_frac": ("clip_fraction", "clipfrac", "clip_frac", "clip_ratio", "pg_clipfrac"),
    "policy/loss": ("policy_loss", "pg_loss", "policy_gradient_loss", "actor_loss", "act_loss"),
    "optim/grad_norm": ("grad_norm", "gradient_norm", "gradnorm", "total_grad_norm"),
    "optim/lr": ("learning_rate", "lr"),
    "value/loss": ("value_loss", "vf_loss", "critic_loss", "cri_loss"),
    "value/explained_variance": ("explained_variance", "vf_explained_var"),
    "accuracy/val": (
        "val_accuracy", "eval_accuracy", "val_acc", "validation_accuracy", "test_accuracy", "val_accuracies_avg",
        "val_accuracy_avg", "eval_acc",
    ),
    "accuracy/train": ("train_accuracy", "accuracy", "acc", "train_accuracies_avg", "train_accuracy_avg"),
    "rollout/length_mean": (
        "completion_length", "response_length", "mean_length", "response_length_mean", "completion_length_mean",
        "avg_length", "length_mean", "ep_len_mean",
    ),
    "rollout/truncated_frac": ("truncated", "truncated_frac", "truncation_rate", "clipped_ratio"),
    "rollout/weight_version": ("weight_version", "weights_version", "policy_version", "engine_version"),
}  # fmt: skip
"""Our metric -> what people call it, the likeliest first. Compared without case, spaces, hyphens and a leading
`train/`. SB3's `entropy_loss` is the entropy's negative and so is not among them."""

SPELLINGS: dict[str, tuple[str, ...]] = {
    "reward/mean": (
        "reward", "total reward", "reward overall", "episode reward", "batch reward", "score", "reward score",
        "critic score", "critic reward", "total score", "return", "episode return", "r",
    ),
    "policy/kl_ref": (
        "kl", "kl ref", "kl to ref", "kl with ref", "kl vs ref", "kl divergence", "kl divergence ref", "approx kl ref",
        "kl from ref",
    ),
    "policy/kl_old": ("approx kl", "kl old", "kl to old", "kl sample train v1"),
    "policy/entropy": ("entropy", "token entropy", "policy entropy", "action entropy"),
    "policy/clip_frac": ("clip frac", "policy clip frac", "ratio clip frac"),
    "policy/loss": ("policy loss", "pi loss", "grpo loss"),
    "optim/grad_norm": (
        "grad norm", "policy grad norm", "actor grad norm", "global grad norm", "total grad norm", "gnorm",
        "total norm",
    ),
    "optim/lr": ("lr", "current lr", "actor lr", "policy lr"),
    "rollout/length_mean": (
        "response length", "completion length", "generation length", "output length", "answer length",
        "response token", "completion token", "output token", "ac token turn", "generated token", "generation token",
        "response length token", "completion length token", "length", "seq length",
    ),
    "rollout/truncated_frac": (
        "truncated frac", "truncation frac", "overlong frac", "response length clip frac", "completion clip frac",
        "response clip frac", "clip frac length",
        "max length frac", "hit max frac",
    ),
    "reward/std": ("reward std", "reward total std"),
    "reward/zero_std_frac": (
        "reward zero std frac", "zero std frac", "zero std group frac", "zero variance frac",
        "zero variance group frac", "zero advantage frac", "degenerate group frac", "uniform group frac",
        "degenerate group", "dead group frac", "all same frac", "same reward frac",
    ),
    "accuracy/train": (
        "accuracy", "success frac", "pass frac", "solve frac", "correct frac", "correct", "pass@1", "win frac",
        "solved frac", "success", "exact match", "correctness frac",
    ),
    "accuracy/val": tuple(
        f"{held_out} {word}" for held_out in ("val", "eval", "test", "validation", "heldout", "held out")
        for word in ("accuracy", "success frac", "pass frac", "solve frac", "correct frac", "pass@1")
    ),
}  # fmt: skip
"""Our metric -> what its names come down to (`plain_names.plainly`, in any order), for whatever `GUESSES` does not
list."""

_AMBIGUOUS = ("score", "total score", "return", *SPELLINGS["accuracy/train"], *SPELLINGS["accuracy/val"])
"""Words that other kinds of training use as well: they count only beside signs of a policy."""
_OF_A_POLICY = re.compile(
    r"kl(?![a-z])|(?<!cross)(?<!cross[_\- ])entropy|advantage|clip_?frac|rollout|episod|completion|reward"
    r"|(?:response|generat[a-z]*)[^a-z]*(?:len|token)|p[ig]_?loss|policy[^a-z]*(?:loss|grad|lr)"
)
"""Not `weekly`, a cross entropy, a rate of responses, an insurance's policies."""

_OF_A_CRITIC = re.compile(r"value|critic|(?:^|[^a-z])vf?(?:$|[^a-z])", re.I)
"""Names of logs whose `loss` may hold a critic's; without a critic it is the policy's, with its KL term."""
_PREFIX = re.compile(r"^(?:train|training|rollout|actor|policy|metrics|log|optim)[/.]")
_HELD_OUT = re.compile(r"^(val|eval|validation|test)/")
"""`eval/accuracy` is `eval_accuracy`."""
_JUDGED = (
    "(?:format|correct|correctness|accuracy|acc|answer|match|math|code|xml|tag|strict|soft|int|think|reasoning|language"
    "|tool|equation)"
)
_JUDGES = re.compile(
    rf"({_JUDGED}(?:_\w{{1,20}})?)_rewards?(?:_func)?(?:_mean)?|rewards?_({_JUDGED}(?:_\w{{1,20}})?)(?:_mean)?"
)
"""What reward functions of verifiable tasks are called in hand-written loops."""
_STATISTICS = re.compile(
    r"(?:^|[/_])(?:mean|std|min|max|median|avg|sum|total|count|minus|diff|p\d+|failed_frac)(?:$|[/_])"
)


def run_of(log: NumberLog, mapping: Mapping[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in rows whose names are guessed."""
    seen = log.names()
    names, notes = guessed(log.rows, seen, mapping)
    return assemble(
        log.name,
        format=log.format,
        trainer="stable-baselines3" if _sb3(seen) else "unknown",
        files=log.files,
        rows=((step, {names[key]: value for key, value in values.items()}) for step, values in log.rows),
        about={
            "clock": "step",
            "steps": None,
            "config": log.configured(config),
            "versions": {},
            "metrics": {ours: definition(ours, theirs) for theirs, ours in names.items()},
        },
        skipped=log.skipped,
        notes=[*log.notes, *notes],
    )


def completed(run: LoadedRun, writer: str, mapping: Mapping[str, str]) -> LoadedRun:
    """The run of a known trainer, with guesses for the names that the folder of `writer` does not list, where its log
    has no reward: a script that copied the loop of that trainer kept some of its names and changed others."""
    view, prefix = run.history.view(), f"{writer}/"
    left = {name.removeprefix(prefix): name for name in view.names() if name.startswith(prefix)}
    if "reward/mean" in view or not left:
        return run
    ends = _ends({short: view.series(name).finite().values for short, name in left.items()})
    known = [name for name in view.names() if not name.startswith(prefix)]
    found, notes = guessed(ends, [*left, *known], dict.fromkeys(mapping, ""))
    new = {left[short]: ours for short, ours in found.items() if short in left and ours in VOCABULARY}
    if "reward/mean" not in new.values():
        return run  # the trainer's own log, in which names are as they should be
    for history in run.histories.values():
        said = {ours: definition(ours, theirs.removeprefix(prefix)) for theirs, ours in new.items()}
        history.about = {**history.about, "metrics": {**(history.about.get("metrics") or {}), **said}}
    return replace(run, histories={n: one.renamed(new) for n, one in run.histories.items()}).noted(notes)


def _ends(values: Mapping[str, np.ndarray]) -> list[Row]:
    """Two rows with the lowest and the highest of each: enough to see which metrics the values fit."""
    known = {name: of for name, of in values.items() if len(of)}
    return [(row, {name: float(end(of)) for name, of in known.items()}) for row, end in enumerate((np.min, np.max))]


def guessed(rows: list[Row], seen: Iterable[str], mapping: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Our name for each of theirs, and notes for the user. Names in the log that are ours are kept."""
    names = {key: key for key in seen}
    taken = set(mapping) | {key for key in seen if key in VOCABULARY}
    said: dict[str, str] = {}

    def take(pairs: Iterable[tuple[str, str]]) -> None:
        for theirs, ours in pairs:
            if ours not in taken:
                names[theirs] = said[theirs] = ours
                taken.add(ours)

    take(_listed(seen, rows))
    take(_spelled(seen, names, rows).items())
    free = sorted(key for key in seen if names[key] == key and key not in VOCABULARY)
    take((key, ours) for key in free if (ours := _component(key)))
    if {"policy/kl_ref", "reward/mean"} <= taken and not any(map(_OF_A_CRITIC.search, seen)):
        take((key, "policy/loss") for key in sorted(seen) if names[key] == key and _plain(key) == "loss")
    names.update({theirs: ours for ours, theirs in mapping.items()})
    pairs = [f"{key} as {ours}" for key, ours in said.items() if key not in mapping.values()]
    notes = [f"guessed from the names: {', '.join(pairs[:8])}; correct it with --map OURS=THEIRS"] if pairs else []
    return names, notes


def _listed(seen: Iterable[str], rows: list[Row]) -> Iterator[tuple[str, str]]:
    """Their name and ours, for what `GUESSES` lists; of names that differ in case only, the one in most rows."""
    plain: dict[str, str] = {}
    often = Counter(name for _, values in rows for name in values)
    for key in sorted(seen, key=lambda key: (len(key), -often[key], key)):
        plain.setdefault(_plain(key), key)
    for ours, words in GUESSES.items():
        theirs = next((plain[word] for word in words if word in plain and plain[word] not in VOCABULARY), None)
        if theirs is not None and _possible(ours, theirs, rows):
            yield theirs, ours


def _spelled(seen: Iterable[str], names: Mapping[str, str], rows: list[Row]) -> dict[str, str]:
    """Names that come down to one we know, the likeliest of each first; the exact ones before those with more words."""
    free = [key for key in sorted(seen, key=lambda key: (len(key), key)) if names[key] == key and key not in VOCABULARY]
    policy = any(_OF_A_POLICY.search(key.lower()) for key in seen)
    found: dict[str, str] = {}
    for loosely in (False, True):
        plain: dict[str, str] = {}
        for key in free:
            plain.setdefault(plainly(key, loosely=loosely), key)
        for ours, words in SPELLINGS.items():
            if ours in found.values():
                continue
            for word in words:
                key = plain.get(plainly(word), "")
                if key and key not in found and (policy or word not in _AMBIGUOUS) and _possible(ours, key, rows):
                    found[key] = ours
                    break
    return found


def _plain(key: str) -> str:
    return re.sub(r"[\s\-]+", "_", _HELD_OUT.sub(r"\1_", _PREFIX.sub("", key.strip().lower())))


def _possible(ours: str, theirs: str, rows: list[Row]) -> bool:
    """Whether the values fit the metric: a fraction must stay in [0, 1]."""
    if VOCABULARY[ours].kind != "fraction":
        return True
    return all(not (value < 0 or value > 1) for _, values in rows if (value := values.get(theirs)) is not None)


def _component(key: str) -> str | None:
    """`reward/<function>` and `rewards/<function>` with or without `/mean`, or a name as `format_reward`: one reward
    function among several."""
    if named := _JUDGES.fullmatch(_plain(key)):
        return f"reward/{named[1] or named[2]}/mean"
    family, _, function = key.partition("/")
    function = function.removesuffix("/mean")
    if family not in ("reward", "rewards") or not function or "/" in function or _STATISTICS.search(function):
        return None
    return f"reward/{function}/mean"


def _sb3(keys: Iterable[str]) -> bool:
    """Whether PPO of Stable-Baselines3 wrote these."""
    return {"rollout/ep_rew_mean", "train/clip_range"} <= set(keys)
