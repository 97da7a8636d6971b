"""What trainers call our metrics in their logs: "log policy/kl_ref" tells nobody that TRL's is `kl`, with a beta."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stabilizer.trainers.nemo_rl import log as nemo_rl
from stabilizer.trainers.openrlhf import log as openrlhf
from stabilizer.trainers.prime_rl import log as prime_rl
from stabilizer.trainers.skyrl import log as skyrl
from stabilizer.trainers.trl import old_ppo, state
from stabilizer.trainers.verl import names

_TRL = (state.NAMES,)
TABLES: dict[str, tuple[Mapping[str, str], ...]] = {
    **dict.fromkeys(("trl", "open-r1", "unsloth", "ms-swift", "llama-factory"), _TRL),
    "trl-ppo": (state.PPO_NAMES,),
    "trl-old-ppo": (old_ppo.NAMES,),
    "verl": (names.NAMES,),
    "search_r1": ({"actor/entropy_loss": "policy/entropy"}, names.SEARCH_R1_NAMES, names.NAMES),
    "easyr1": (names.EASYR1_NAMES, names.NAMES),
    "openrlhf": (openrlhf.NAMES,),
    "skyrl": (skyrl.NAMES,),
    "nemo_rl": (nemo_rl.NAMES,),
    "prime_rl": (prime_rl.NAMES,),
}
"""By trainer, the names of its readers' tables; the first that has a metric counts."""

_TRL_SWITCHES = {"policy/kl_ref": "with beta above 0"}
_KL_LOSS = "with actor_rollout_ref.actor.use_kl_loss=true"
SWITCHES: dict[str, dict[str, str]] = {
    **dict.fromkeys(("trl", "open-r1", "unsloth", "ms-swift", "llama-factory"), _TRL_SWITCHES),
    "verl": {
        "policy/kl_ref": _KL_LOSS,
        "policy/mismatch_kl": "with actor_rollout_ref.rollout.calculate_log_probs=true",
        "policy/mismatch_k1": "with actor_rollout_ref.rollout.calculate_log_probs=true",
    },
    "search_r1": {"policy/kl_ref": _KL_LOSS},
    "easyr1": {"policy/kl_ref": "with algorithm.disable_kl=false"},
    "openrlhf": {
        "policy/kl_ref": "with --algo.kl.init_coef above 0",
        "policy/entropy": "with --actor.entropy_coef 0",
    },
}
"""Metrics that a trainer measures only when told to."""


def logged_as(trainer: str, ours: str) -> str:
    """The name under which a trainer logs a metric of ours, and what makes it; "" where it has none that we know."""
    theirs = next((key for table in TABLES.get(trainer, ()) for key, name in table.items() if name == ours), "")
    switch = SWITCHES.get(trainer, {}).get(ours, "")
    return f"{theirs}, {switch}" if theirs and switch else theirs


def asked_for(needs: Iterable[str], trainer: str) -> str:
    """Metrics that are wanting, each with the trainer's word for it; `a|b` is either."""
    return ", ".join(" or ".join(_with_theirs(name, trainer) for name in need.split("|")) for need in needs)


def _with_theirs(ours: str, trainer: str) -> str:
    theirs = logged_as(trainer, ours)
    return f"{ours} ({theirs})" if theirs else ours
