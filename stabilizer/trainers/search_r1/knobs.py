"""Search-R1, an old fork of veRL with its keys."""

from __future__ import annotations

from stabilizer.trainers.spelling import WORKERS, Key, Spelling
from stabilizer.trainers.verl.knobs import ACTOR, FIXED, KEYS, PROCEDURES, ROLLOUT

SEARCH_R1 = Spelling(
    title="Search-R1",
    why_restart=WORKERS,
    keys={
        **{knob: KEYS[knob] for knob in KEYS if knob not in ("control/epsilon_high", "control/filter_groups")},
        "control/epsilon_low": Key(f"{ACTOR}.clip_ratio={{value}} (it clips both sides)", WORKERS),
        "control/group_size": Key(f"{ROLLOUT}.n_agent={{value}}", WORKERS),
    },
    procedures={
        **PROCEDURES,
        "roll-back": "actor_rollout_ref.model.path=<actor/global_step_N, N below {onset}>; it has no resume of its own",
        "reset-reference": "actor_rollout_ref.model.path=<the newest actor/global_step_N>, whose weights become the"
        " reference",
        "narrow-clip": f"{ACTOR}.clip_ratio=0.2 (it clips both sides)",
        "widen-clip": f"{ACTOR}.clip_ratio=0.28 (it clips both sides)",
        "steadier-reward": f"[2 x {ROLLOUT}.n_agent], or [2 x data.train_batch_size] and"
        f" [2 x {ACTOR}.ppo_mini_batch_size]",
        "mend-critic": "trainer.critic_warmup=20, [1/3 x critic.optim.lr], critic.cliprange_value=0.5",
        "mend-tool": f"{ACTOR}.state_masking=true keeps what the tool returns out of the loss",
        "declare-data": "data.shuffle_train_dataloader=true unless the order is meant",
    },
    lacks={"target-entropy": FIXED, "unpay-length": "its loss is averaged over tokens already",
           "reset-optimizer": "its checkpoints hold weights alone"},
)  # fmt: skip
