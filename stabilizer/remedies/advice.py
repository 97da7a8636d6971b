"""What only a person should do: these propose, and no mode applies them."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy


class CheckReward(Remedy):
    """Look at the reward function and whatever it calls; reward functions are never edited automatically."""

    id = "check-reward"
    safety = "advice"
    answers = ("reward-fault",)
    why = "what fails is the reward and not the policy: look at the verifier, its timeouts and its inputs first"
    expects = "the reward is back at its level, for every completion, without any change to the policy"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {}


class EasierPrompts(Remedy):
    """Train on prompts that are sometimes solved: filter, mix in easier ones, or give partial credit."""

    id = "easier-prompts"
    safety = "advice"
    answers = ("prompts-too-hard", "dead-groups")
    why = "a group in which every answer fails teaches nothing, at any learning rate"
    expects = "the share of all-fail groups falls under one half"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {}


class RaiseLr(Remedy):
    """Raise the learning rate, as a test of its own and by hand: the automatic modes never raise it."""

    id = "raise-lr"
    safety = "advice"
    answers = ("lr-too-low",)
    why = "steps this small barely move the policy"
    expects = "the policy moves by more than 1e-4 nats/token a step and the reward rises"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        before = knobs.get("control/lr_scale")
        return None if before is None else {"control/lr_scale": (before, before * 1.5)}


class FixConfig(Remedy):
    """Write settings that the trainer accepts, and start again."""

    id = "fix-config"
    safety = "advice"
    answers = ("config-rejected",)
    why = "nothing was trained: the trainer checks its settings before the first step"
    expects = "the run starts"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {}


class Restart(Remedy):
    """Remove what stopped the run, and go on from its newest checkpoint."""

    id = "restart"
    safety = "advice"
    answers = (
        "gpu-memory", "host-memory", "lost-rank", "native-crash", "worker-killed", "disk-full", "program-error",
    )  # fmt: skip
    why = "a restart without a change runs into most of these again"
    expects = "the run passes the step at which it stopped"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {}
