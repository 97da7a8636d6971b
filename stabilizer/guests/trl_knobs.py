"""What can be turned in a TRL training while it runs, and when each change takes effect.

    learning rate, clip range, gradient limit, entropy bonus        the next step
    beta, temperature, passes, answer length, and how advantages,   the next generation: buffered completions were made,
    masks, averages and an engine's mismatch enter the loss         and their log-probabilities measured, under the old
    prompts a step (gradient accumulation)                          the next step at which accumulation is aligned

The group size, and what this trainer cannot change live, take a restart (`AT_RESTART`). The batch size per device,
precision, adapters and the vLLM mode are for a person to change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from stabilizer.core.knobs import KNOBS
from stabilizer.guests.trl_reference import Reference, adapted, fused_head

SCALES = {
    "group": "group_std", "none": "group_mean", "batch": "batch_std", True: "group_std", False: "group_mean",
}  # fmt: skip
"""TRL's `scale_rewards` as our advantages; before TRL 0.22 it was a bool."""
AVERAGES = {"grpo": "sequence", "dr_grpo": "constant", "bnpo": "token", "dapo": "token"}
"""TRL's `loss_type` as what our loss is averaged over: `bnpo` over tokens of a micro-batch, `dapo` over those of a
step."""
MISMATCHES = {
    "token_truncate": "tis_token", "sequence_truncate": "tis_sequence",
    "token_mask": "mask_token", "sequence_mask": "mask_sequence",
}  # fmt: skip
"""TRL's `vllm_importance_sampling_mode` as our correction of engine mismatch."""
SUMMED = "sum_then_normalize"
"""TRL's `multi_objective_aggregation` under which there is one advantage an answer."""
AT_RESTART = {
    "group_size": "num_generations", "beta": "beta", "temperature": "temperature",
    "max_completion": "max_completion_length", "max_grad_norm": "max_grad_norm", "inner_epochs": "num_iterations",
}  # fmt: skip
"""Knobs that a restart can set, as arguments of TRL."""
Number = Callable[[], float]
Setter = Callable[[float], Any]


@dataclass(frozen=True)
class Offer:
    """A knob that a trainer can turn."""

    name: str
    get: Number
    set: Setter
    check: Setter = lambda value: None
    """ValueError if this trainer cannot have that value."""
    argument: str = ""
    """TRL's argument, for a knob that takes a restart."""


class TrlKnobs:
    """The knobs of one trainer. Everything is called in the trainer's thread, between two steps."""

    def __init__(self, trainer: Any, reference: Reference, say: Callable[[str, Exception], None]):
        self._trainer = trainer
        self._reference = reference
        self._say = say
        """Reports a change that could not be made."""
        self._next: dict[str, tuple[float, Setter]] = {}
        """Values that wait for the next generation."""
        self._aligned: float | None = None
        """Accumulation that waits for an aligned step."""
        self._heads: dict[int, Any] = {}
        """The forward methods of models as TRL made them."""
        self._fixed = dict(_fixed(trainer))
        self.withheld: dict[str, str] = {**self._fixed}
        """Knobs that are not offered, or not in full, and why."""
        self._wrap_generation()

    def offers(self) -> Iterator[Offer]:
        """Every knob that this trainer has."""
        for offer in self._all():
            if offer.name in self._fixed:
                continue
            try:
                offer.get()
            except (AttributeError, TypeError, ValueError, KeyError):
                continue
            yield offer

    def at_restart(self, live: Collection[str]) -> Iterator[Offer]:
        """Knobs that take a restart: those that are not live, or live only in part."""
        args = self._trainer.args
        for name, argument in AT_RESTART.items():
            value = getattr(args, argument, None)
            if isinstance(value, (int, float)) and (name not in live or name in self.withheld):
                check = self._check_group if name == "group_size" else lambda value: None
                yield Offer(name, functools.partial(float, value), lambda value: None, check, argument)

    def _check_group(self, value: float) -> None:
        batch = int(getattr(self._trainer.args, "generation_batch_size", 0) or 0)
        if value < 2 or batch % int(value):
            raise ValueError(
                f"num_generations = {value:g}: must be at least 2 and divide generation_batch_size={batch}"
            )

    def step_ended(self) -> None:
        """A step ended: make the change that waited for an aligned accumulation."""
        if self._aligned is not None and self._micro_steps() % int(self._aligned) == 0:
            self._trainer.args.gradient_accumulation_steps = int(self._aligned)
            self._aligned = None

    def _all(self) -> Iterator[Offer]:
        trainer, args = self._trainer, self._trainer.args
        yield Offer("lr", self._rate, self._set_rate)
        yield from (self._attribute(name, trainer) for name in ("epsilon_low", "epsilon_high"))
        yield self._attribute("max_grad_norm", args)
        if not getattr(trainer, "use_adaptive_entropy", True):
            yield Offer("entropy_coef", lambda: float(trainer.entropy_coef), self._set_entropy)
        yield self._at_generation("beta", lambda: float(trainer.beta), self._set_beta, self._check_beta)
        yield self._at_generation("temperature", lambda: float(trainer.temperature), self._set_temperature)
        yield self._at_generation("max_completion", lambda: float(trainer.max_completion_length), self._set_longest)
        yield self._at_generation("inner_epochs", lambda: float(trainer.num_iterations), self._set_passes)
        yield self._at_generation("advantage", self._advantage, self._set_advantage, self._scale)
        yield self._at_generation(
            "mask_truncated", lambda: float(trainer.mask_truncated_completions),
            lambda value: setattr(trainer, "mask_truncated_completions", bool(value)),
        )  # fmt: skip
        yield self._at_generation("average", self._average, self._set_average)
        yield self._at_generation("mismatch", self._mismatch, self._set_mismatch, self._mode)
        yield Offer("prompts", self._prompts, self._set_prompts, self._check_prompts)

    def _attribute(self, name: str, owner: Any) -> Offer:
        return Offer(name, lambda: float(getattr(owner, name)), lambda value: setattr(owner, name, value))

    def _at_generation(
        self, name: str, get: Number, set: Setter, check: Setter = lambda value: None
    ) -> Offer:  # fmt: skip
        """A knob whose value may change only when completions are generated."""

        def wait(value: float) -> None:
            self._next[name] = value, set

        return Offer(name, lambda: self._next[name][0] if name in self._next else get(), wait, check)

    def _wrap_generation(self) -> None:
        trainer = self._trainer
        plain = getattr(trainer, "_generate_and_score_completions", None)
        if plain is None:
            return

        @functools.wraps(plain)
        def generate(*args: Any, **named: Any) -> Any:
            if self._next and trainer.model.training:  # an evaluation may come in the middle of a buffer
                self._take_effect()
            return plain(*args, **named)

        trainer._generate_and_score_completions = generate

    def _take_effect(self) -> None:
        waiting, self._next = self._next, {}
        for name, (value, set) in waiting.items():
            try:
                set(value)
            except Exception as error:  # the old value stays, and the next row shows it
                self._say(f"knob {name} = {value:g}", error)

    # --- the learning rate -------------------------------------------------------------------------------------------

    def _rate(self) -> float:
        """The peak rate."""
        schedule = getattr(self._trainer, "lr_scheduler", None)
        return float(self._trainer.args.learning_rate if schedule is None else schedule.base_lrs[0])

    def _set_rate(self, rate: float) -> None:
        """A new peak rate, in the schedule and in the optimizer: a schedule alone acts two steps later."""
        trainer = self._trainer
        if trainer.optimizer is None:
            trainer.args.learning_rate = rate
            return
        schedule = trainer.lr_scheduler
        factor = rate / float(schedule.base_lrs[0])
        schedule.base_lrs = [base * factor for base in schedule.base_lrs]
        for group in trainer.optimizer.param_groups:
            group["lr"] *= factor

    # --- the loss ----------------------------------------------------------------------------------------------------

    def _set_entropy(self, value: float) -> None:
        self._trainer.entropy_coef = value
        self._trainer._entropy_bonus_enabled = value != 0.0

    def _check_beta(self, value: float) -> None:
        if value > 0 and self._reference_missing() and (why := self.withheld.get("beta")):
            raise ValueError(why)

    def _reference_missing(self) -> bool:
        return getattr(self._trainer, "ref_model", None) is None and not adapted(self._trainer)

    def _set_beta(self, value: float) -> None:
        if value > 0:
            self._reference.load()
        self._trainer.beta = value

    def _advantage(self) -> float:
        if getattr(self._trainer, "multi_objective_aggregation", SUMMED) != SUMMED:
            raise ValueError("advantages of several rewards are normalised one by one")
        return float(KNOBS["control/advantage"].choices.index(SCALES[self._trainer.scale_rewards]))

    def _scale(self, value: float) -> Any:
        """TRL's value, of the type that this version has; ValueError if it has none."""
        choice, kind = KNOBS["control/advantage"].choices[int(value)], type(self._trainer.scale_rewards)
        known = {ours: theirs for theirs, ours in SCALES.items() if isinstance(theirs, kind)}
        if choice not in known:
            raise ValueError(f"TRL has no advantages {choice!r}; it has {', '.join(known)}")
        return known[choice]

    def _set_advantage(self, value: float) -> None:
        self._trainer.scale_rewards = self._scale(value)

    def _average(self) -> float:
        return float(KNOBS["control/average"].choices.index(AVERAGES[self._trainer.loss_type]))

    def _set_average(self, value: float) -> None:
        choice = KNOBS["control/average"].choices[int(value)]
        has_dapo = isinstance(self._trainer.scale_rewards, str)  # both came with TRL 0.22
        types = {ours: theirs for theirs, ours in AVERAGES.items() if theirs != "dapo" or has_dapo}
        self._trainer.loss_type = types[choice]

    def _mismatch(self) -> float:
        """Of a trainer that samples with vLLM: the correction measures each answer a second time."""
        trainer = self._trainer
        if not trainer.use_vllm:
            raise ValueError("the policy that learns writes the answers itself")
        mode = trainer.vllm_importance_sampling_mode
        ours = MISMATCHES[mode] if trainer.vllm_importance_sampling_correction else "none"
        return float(KNOBS["control/mismatch"].choices.index(ours))

    def _mode(self, value: float) -> str | None:
        """TRL's mode, None for no correction; ValueError if it has none."""
        choice = KNOBS["control/mismatch"].choices[int(value)]
        modes = {ours: theirs for theirs, ours in MISMATCHES.items()}
        if choice != "none" and choice not in modes:
            raise ValueError(f"TRL has no correction {choice!r}; it has none, {', '.join(modes)}")
        return modes.get(choice)

    def _set_mismatch(self, value: float) -> None:
        mode = self._mode(value)
        self._trainer.vllm_importance_sampling_correction = mode is not None
        self._trainer.vllm_importance_sampling_mode = mode or self._trainer.vllm_importance_sampling_mode

    # --- generation --------------------------------------------------------------------------------------------------

    def _set_temperature(self, value: float) -> None:
        """The sampler's and the learner's temperature: log-probabilities are divided by it in the fused head."""
        trainer = self._trainer
        model = trainer.accelerator.unwrap_model(trainer.model)
        self._head(model.get_base_model() if adapted(trainer) else model, value, ("log_probs", "entropy"))
        if getattr(trainer, "ref_model", None) is not None:
            self._head(trainer.accelerator.unwrap_model(trainer.ref_model), value, ("log_probs",))
        trainer.temperature = value
        self._generates("temperature", value)

    def _head(self, model: Any, temperature: float, outputs: tuple[str, ...]) -> None:
        model.forward = self._heads.setdefault(id(model), model.forward)  # without the head of an earlier change
        cast = getattr(self._trainer.args, "cast_lm_head_to_fp32", False)  # RLOO has no such setting
        fused_head(model, temperature=temperature, cast_lm_head_to_fp32=cast, outputs=outputs)

    def _set_longest(self, value: float) -> None:
        self._trainer.max_completion_length = int(value)
        self._generates("max_new_tokens", int(value))

    def _generates(self, name: str, value: float) -> None:
        setattr(self._trainer.generation_config, name, value)
        getattr(self._trainer, "generation_kwargs", {})[name] = value  # of newer releases

    def _set_passes(self, value: float) -> None:
        """Passes over each buffer. The counter restarts here, at the start of a buffer, so that later passes align.

        The data loader has begun to repeat the prompts of this buffer and goes on: they may be answered again.
        """
        trainer = self._trainer
        trainer.num_iterations = int(value)
        trainer._step = 0
        sampler = _sampler(trainer)
        if sampler is not None:
            sampler.repeat_count = int(value) * trainer.args.steps_per_generation

    # --- the batch ---------------------------------------------------------------------------------------------------

    def _unit(self) -> float:
        """Prompts of one micro-batch over all processes."""
        args = self._trainer.args
        return float(args.per_device_train_batch_size * args.world_size / self._trainer.num_generations)

    def _prompts(self) -> float:
        """Prompts of one optimizer step."""
        steps = self._trainer.args.gradient_accumulation_steps if self._aligned is None else self._aligned
        prompts = steps * self._unit()
        if prompts != int(prompts):
            raise ValueError("a step has a fraction of a prompt")
        return prompts

    def _check_prompts(self, value: float) -> None:
        steps = value / self._unit()
        if steps != int(steps) or steps < 1:
            raise ValueError(
                f"prompts = {value:g}: must be a multiple of {self._unit():g}, the prompts of a micro-batch"
            )

    def _set_prompts(self, value: float) -> None:
        self._aligned = value / self._unit()
        self.step_ended()

    def _micro_steps(self) -> int:
        """Micro-batches of this epoch so far: transformers steps the optimizer by their number."""
        epoch = float(self._trainer.state.epoch or 0.0)
        return round((epoch - int(epoch)) * len(self._trainer.callback_handler.train_dataloader))


def _fixed(trainer: Any) -> Iterator[tuple[str, str]]:
    """Knobs that something outside of the trainer's attributes holds, and why they cannot be turned."""
    if getattr(trainer, "is_deepspeed_enabled", False):
        yield "max_grad_norm", "DeepSpeed clips by its own configuration"
    if getattr(trainer, "use_vllm", False):
        for name in ("temperature", "max_completion"):
            yield name, f"{name}: the engine's own setting under vLLM is untested"
    if any(getattr(trainer, loss, None) is not None for loss in ("liger_grpo_loss", "liger_loss")):
        for name in ("epsilon_low", "epsilon_high", "beta", "temperature", "average"):
            yield name, f"{name}: Liger's loss keeps the value that it was made with"


def _sampler(trainer: Any) -> Any:
    """The sampler that repeats prompts, behind what accelerate wraps around it; None if there is none."""
    found = getattr(getattr(trainer, "callback_handler", None), "train_dataloader", None)
    for name in ("batch_sampler", "batch_sampler", "sampler", "sampler"):
        inner = getattr(found, name, None)
        found = inner if inner is not None else found
    return found if hasattr(found, "repeat_count") else None


def trl_knobs(trainer: Any, reference: Reference, say: Callable[[str, Exception], None]) -> TrlKnobs:
    """The knobs of a trainer, with beta free to leave 0 where a reference can be made."""
    knobs = TrlKnobs(trainer, reference, say)
    try:
        why = reference.keep()
    except Exception as error:
        why = f"the starting weights could not be copied: {type(error).__name__}: {error}"
    if why:
        knobs.withheld["beta"] = why
    return knobs
