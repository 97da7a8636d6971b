"""Search-R1, configured by the keys of the veRL it was forked from and a few of its own."""

from __future__ import annotations

from stabilizer.trainers.quantities import Ask, Quantity
from stabilizer.trainers.schema import Schema
from stabilizer.trainers.verl.config import ACTOR, DEFAULTS, ROLLOUT, VERL, shared

GROUP = f"{ROLLOUT}n_agent"


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a Search-R1 configuration. Each prompt is repeated `n_agent` times in the mini-batch."""
    return shared(ask, GROUP, repeats=ask.num(GROUP), old=True)


SEARCH_R1 = Schema(
    name="search-r1",
    title="Search-R1",
    newest="0.2.0",
    quantities=quantities,
    defaults={
        **DEFAULTS,
        f"{ROLLOUT}top_p": 0.95,
        f"{ACTOR}entropy_coeff": 0.001,
        f"{ACTOR}ppo_micro_batch_size": 64,
        f"{ROLLOUT}log_prob_micro_batch_size": 128,
        "actor_rollout_ref.ref.log_prob_micro_batch_size": 128,
        "critic.ppo_micro_batch_size": 64,
    },
    signs=("retriever.url", "retriever.topk", "max_turns", "data.max_obs_length", "data.max_start_length",
           f"{ROLLOUT}n_agent", f"{ACTOR}state_masking", "algorithm.no_think_rl", "do_search"),
    commands=("search-r1", "search_r1", "Search-R1"),
    key_files=("search_r1/keys.txt",),
    recipes={
        "ppo": {"lr": 1e-6, "prompts_update": 256, "prompts_rollout": 512, "updates": 2, "warmup_frac": 0.285},
        "grpo": {"lr": 1e-6, "prompts_update": 51.2, "prompts_rollout": 512, "updates": 10, "warmup_frac": 0.285},
    },
    recipe_name="train_ppo.sh and train_grpo.sh",
    script=True,
    memory=VERL.memory,
    parent="verl",
    read_with=VERL.read_with,
    strict_yaml=True,
    placement=VERL.placement,
    kl_fix=VERL.kl_fix,
)  # fmt: skip
