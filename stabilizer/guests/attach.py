"""Monitor TRL's GRPOTrainer, RLOOTrainer and their heirs: `attach(trainer)` before `trainer.train()`.

Every optimizer step becomes a row, whatever `logging_steps` is, with the gradient norm before clipping and losses that
are not finite. Completions with their rewards are kept. Knobs that can be changed safely between two steps are offered
to `stabilizer fix`; what was found is printed in one line. Nothing is imported before `attach` is called, and every
hook catches what fails in it.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stabilizer.core.records import Sample
from stabilizer.formats.samples import is_binary
from stabilizer.guests.adapter import versions
from stabilizer.guests.own_loop import ACTING, Decision, GuestRun
from stabilizer.guests.states import Keeper
from stabilizer.guests.trl_follow import follow
from stabilizer.guests.trl_knobs import TrlKnobs, trl_knobs
from stabilizer.guests.trl_phases import mark_phases
from stabilizer.guests.trl_probe import TrlProbe, logged, tell_apart, totals
from stabilizer.guests.trl_ranks import Ranks, SharedKeeper, fingerprint
from stabilizer.guests.trl_reference import Reference
from stabilizer.guests.trl_state import TrlKeeper, why_not
from stabilizer.live.announced import attempt, changed_arguments, restarts_left
from stabilizer.trainers.trl import state

SAMPLES_EVERY, SAMPLES = 10, 32
"""Steps between kept completions, and how many of a step."""
LONGEST_VALUE = 500
"""Characters of a setting that are kept."""
PACKAGES = ("trl", "transformers", "torch", "peft", "vllm", "accelerate")
"""Packages whose versions are recorded."""
NAMES = {**state.NAMES, "completions/min_length": "rollout/length_min"}
"""TRL's names of our metrics, as its log has them."""


def attach(
    trainer: Any, *, runs: str | Path = "runs", remedy: str = "suggest", name: str = "",
    sinks: Iterable[str] | None = None, checkpoint_every: int | None = None,
) -> GuestRun | None:  # fmt: skip
    """Monitor a trainer. Returns the run; `run.path` is its folder for `stabilizer dashboard` and `fix`.

    `remedy` is off, suggest, approve, auto-safe or auto-full. The last three save checkpoints of ours, at least every
    `checkpoint_every` steps; by default as often as 2 % of the time allows. With several processes each one attaches:
    the main one has the run and decides, the others get None and follow it at the end of each step.
    """
    args = trainer.args
    rank, world = getattr(args, "process_index", 0), getattr(args, "world_size", 1)
    ranks = Ranks(rank, world) if world > 1 else None
    if rank != 0 and ranks is not None:
        follow(trainer, ranks, rank, world)
        return None
    unkept = why_not(trainer)
    keeper: Keeper | None = None if unkept else TrlKeeper(trainer)
    if ranks is not None and keeper is not None:
        keeper = SharedKeeper(keeper, ranks)
    if remedy in ACTING and keeper is None:
        print(f"stabilizer: remedy={remedy!r} becomes 'suggest': {unkept}", file=sys.stderr)
        remedy = "suggest"
    run = GuestRun(
        name or type(trainer).__name__, runs=runs, config=_settings(args), remedy=remedy, trainer="trl", names=NAMES,
        steps=args.max_steps if getattr(args, "max_steps", -1) > 0 else None, versions=versions(PACKAGES), sinks=sinks,
        world=world, keeper=keeper, pay=TrlProbe(trainer) if ranks is None else None, checkpoint_every=checkpoint_every,
    )  # fmt: skip
    guest = _Guest(trainer, run, ranks)
    if numbered := tell_apart(trainer):
        guest._say(f"reward functions with the same name are logged with a number: {', '.join(numbered)}")
    found = guest.offer_knobs()
    trainer.add_callback(guest.callback())
    if hasattr(trainer, "_get_grad_norm"):  # of newer releases of transformers
        guest.wrap(trainer, "_get_grad_norm", guest.saw_norm)
    else:
        guest.wrap(getattr(trainer, "accelerator", None), "clip_grad_norm_", guest.saw_norm)
    guest.wrap(trainer, "training_step", guest.saw_loss)
    mark_phases(trainer, run.heart)
    guest.note_crashes()
    print(f"stabilizer: watching {type(trainer).__name__} in {run.path}; knobs: {', '.join(found) or 'none'}")
    print(f"stabilizer: to see it: stabilizer dashboard {runs}")
    return run


class _Guest:
    """The hooks in one trainer."""

    def __init__(self, trainer: Any, run: GuestRun, ranks: Ranks | None = None):
        self._trainer = trainer
        self._run = run
        self._ranks = ranks
        self._apart = 0
        """Processes that had other knobs than this one after the last step."""
        self._seen: dict[str, tuple[list[Any], int]] = {}
        """Each list of TRL's metrics and how many of its values were taken. TRL begins new lists after its own log."""
        self._knobs: TrlKnobs | None = None
        self._graded = False
        """Whether a reward was neither 0 nor 1."""
        self._norms: list[float] = []
        self._losses: list[float] = []
        self._skipped = False

    # --- what the trainer computes ----------------------------------------------------------------------------------

    def wrap(self, owner: Any, method: str, saw: Callable[[Any], None]) -> None:
        """Have `saw` see what a method returns; its caller gets it unchanged."""
        plain = getattr(owner, method, None)
        if plain is None:
            return

        @functools.wraps(plain)
        def seen(*args: Any, **named: Any) -> Any:
            result = plain(*args, **named)
            self._guard(saw, result)
            return result

        setattr(owner, method, seen)

    def note_crashes(self) -> None:
        """Put an exception that ends `train()` on record; the caller gets it unchanged."""
        plain = self._trainer.train

        @functools.wraps(plain)
        def train(*args: Any, **named: Any) -> Any:
            try:
                return plain(*args, **named)
            except BaseException as error:
                self._guard(self._run.crashed, error)
                raise

        self._trainer.train = train

    def saw_norm(self, norm: Any) -> None:
        """The global norm before clipping."""
        self._norms.append(float(norm))

    def saw_loss(self, loss: Any) -> None:
        """The loss of one micro-batch, already divided by the number of them."""
        self._losses.append(float(loss.detach().mean()))

    def row(self) -> dict[str, float]:
        """All that is new since the last step."""
        found: dict[str, float] = {}
        for name, values in dict(getattr(self._trainer, "_metrics", {}).get("train", {})).items():
            before, taken = self._seen.get(name, (values, 0))
            self._seen[name] = (values, len(values))
            fresh = values[taken:] if values is before else values
            numbers = [float(value) for value in fresh if isinstance(value, (int, float))]
            if numbers:
                found[name] = numbers[-1] if name == "num_tokens" else sum(numbers) / len(numbers)
                if name == "reward":  # a generation was scored since the last step
                    found |= self._groups()
        if self._losses:
            found["loss"] = sum(self._losses)
        if self._norms:
            found["grad_norm"] = self._norms[-1]
        if self._ranks is not None and self._ranks.joined:
            found["system/ranks_apart"] = float(self._apart)
        if self._skipped:
            found["optim/skipped"] = 1.0
        self._losses, self._norms, self._skipped = [], [], False
        if rates := self._rates():
            found["learning_rate"] = rates[0]
        return found | self._memory()

    def _groups(self) -> dict[str, float]:
        """Statistics of the newest groups that newer releases of TRL do not log."""
        size, total = int(getattr(self._trainer, "num_generations", 1)), totals(self._trainer)
        if size < 2:
            return {}
        groups = total[: len(total) // size * size].reshape(-1, size)
        if not len(groups):
            return {}
        found = {"reward/std_group": float(groups.std(axis=1, ddof=1).mean())}
        self._graded = self._graded or not is_binary(total)
        if len(self._trainer.reward_weights) == 1 and not self._graded:
            found["reward/all_fail_frac"] = float((groups == 0).all(axis=1).mean())
            found["reward/all_pass_frac"] = float((groups == 1).all(axis=1).mean())
        return found

    def samples(self, step: int) -> list[Sample]:
        """The newest completions with the rewards of each function."""
        logs = logged(self._trainer)
        if step % SAMPLES_EVERY or not logs.get("completion"):
            return []
        prompts, texts = list(logs["prompt"])[-SAMPLES:], list(logs["completion"])[-SAMPLES:]
        rewards = {name: list(values)[-len(texts) :] for name, values in dict(logs.get("rewards", {})).items()}
        advantages = list(logs.get("advantages", []))[-len(texts) :] or [0.0] * len(texts)
        size = max(1, int(getattr(self._trainer, "num_generations", 1)))
        names, given = getattr(self._trainer, "reward_func_names", ()), getattr(self._trainer, "reward_weights", ())
        weights = dict(zip(names, map(float, given), strict=False))
        kept = []
        for row, (prompt, text) in enumerate(zip(prompts, texts, strict=False)):
            parts = {name: float(values[row]) for name, values in rewards.items() if _is_number(values, row)}
            total = sum(weights.get(name, 1.0) * value for name, value in parts.items() if not math.isnan(value))
            kept.append(Sample(step, row // size, _text(prompt), _text(text), total, float(advantages[row]), parts))
        return kept

    def _rates(self) -> list[float]:
        optimizer = getattr(self._trainer, "optimizer", None)
        return [float(group["lr"]) for group in optimizer.param_groups] if optimizer is not None else []

    @staticmethod
    def _memory() -> dict[str, float]:
        import torch

        if not torch.cuda.is_available():
            return {}
        return {"system/gpu_memory_peak_gb": torch.cuda.max_memory_allocated() / 1e9}

    # --- what can be changed ----------------------------------------------------------------------------------------

    def offer_knobs(self) -> list[str]:
        """Make the trainer's knobs changeable; returns their names."""
        reference = Reference(self._trainer, self._run.path)
        self._knobs = trl_knobs(self._trainer, reference, self._run.complain)
        for text in filter(None, (reference.source and f"reference for beta: {reference.source}",
                                  *self._knobs.withheld.values())):  # fmt: skip
            self._run.event(text)
        names = []
        for offer in self._knobs.offers():
            self._run.knob(offer.name, offer.get, offer.set, check=offer.check, follow=True)
            names.append(offer.name)
        if self._restarts_work():
            for offer in self._knobs.at_restart(names):
                self._run.restart_knob(offer.name, offer.get, offer.argument, self._saved, offer.check)
                names += [f"{offer.name} (by a restart)"] if restarts_left() else []
        return names

    def _saved(self) -> str:
        """Where TRL saves its state at the end of this step."""
        return f"{self._trainer.args.output_dir}/checkpoint-{self._trainer.state.global_step}"

    def _restarts_work(self) -> bool:
        """Whether the script uses the arguments that restarts changed so far, if any; what it does not use is said."""
        asked, args = changed_arguments(), self._trainer.args
        unused = [f"{key}={value}" for key, value in asked.items() if getattr(args, key, value) != value]
        if unused:
            words = f"restarted for {', '.join(unused)}, which the script does not use"
            self._say(f"{words}: give its config **stabilizer.changed_arguments()")
        return not unused

    def _say(self, text: str) -> None:
        self._run.event(text)
        print(f"stabilizer: {text}", file=sys.stderr)

    # --- the trainer's own events -----------------------------------------------------------------------------------

    def callback(self) -> Any:
        """A callback of transformers; its class is made here because transformers is imported here."""
        from transformers import TrainerCallback

        guest = self

        class Stabilizer(TrainerCallback):  # type: ignore[misc, unused-ignore]
            """Writes a row after every optimizer step."""

            def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                guest._guard(guest.begin)

            def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                guest._guard(guest.before_update)

            def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                guest._guard(guest.step_end, state, control)

            def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                guest._guard(guest._run.finish)

        return Stabilizer()

    def begin(self) -> None:
        """The training begins, in all processes."""
        if attempt() > 1 and not self._trainer.state.global_step:
            self._say("this attempt begins at step 0: give train() resume_from_checkpoint to go on where it was")
        if self._ranks is not None:
            if not self._ranks.join():
                self._run.watch_only("several processes, and not all of them attached; call attach() in each")
            self._ranks.send("run", folder=str(self._run.path.resolve()))
        try:
            self._run.begin(int(self._trainer.state.global_step))
        finally:
            if self._ranks is not None and self._ranks.joined:
                self._share(self._ranks, stop=False)

    def before_update(self) -> None:
        """Discard the gradient of a step that is to be skipped: nothing moves, weight decay included."""
        if self._run.take_skip():
            self._trainer.optimizer.zero_grad(set_to_none=True)
            self._skipped = True

    def step_end(self, progress: Any, control: Any) -> None:
        """Log the step, and stop or wait if somebody asked for it. The other processes always get their `go`."""
        stop = False
        try:
            if self._knobs is not None:
                self._knobs.step_ended()
            step = int(progress.global_step)
            decision: Decision = self._run.log(self.row(), step, samples=self.samples(step))
            stop = decision.stop
            if decision.paused:
                self._run.wait(lambda: self._ranks.send("wait") if self._ranks is not None else None)
        finally:
            if self._ranks is not None and self._ranks.joined:
                self._share(self._ranks, stop)
        if stop:
            control.should_training_stop = control.should_save = True

    def _share(self, ranks: Ranks, stop: bool) -> None:
        """Let the other processes make the same changes now, and see whether they have the same knobs then."""
        knobs = self._run.knobs
        values = {name: knob.applied for name, knob in knobs.items()}
        ranks.send("go", knobs=values, stop=stop, skip=self._run.skipping)
        apart = ranks.compare(fingerprint(knobs))
        if apart and len(apart) != self._apart:
            self._run.event(f"other knobs than rank 0: rank {', '.join(map(str, apart))}")
        self._apart = len(apart)

    def _guard(self, hook: Callable[..., None], *args: Any) -> None:
        """Nothing that fails here reaches the trainer."""
        try:
            hook(*args)
        except Exception as error:
            self._run.complain(getattr(hook, "__name__", "hook"), error)


def _settings(args: Any) -> dict[str, Any]:
    """The trainer's settings that are plain values."""
    values: Mapping[str, Any] = args.to_dict() if hasattr(args, "to_dict") else vars(args)
    plain = {key: value for key, value in values.items() if isinstance(value, (str, int, float, bool, type(None)))}
    return {key: value[:LONGEST_VALUE] if isinstance(value, str) else value for key, value in plain.items()}


def _is_number(values: Sequence[Any], row: int) -> bool:
    return row < len(values) and isinstance(values[row], (int, float))


def _text(value: Any) -> str:
    """A prompt or completion as text; of chat messages the contents."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "\n".join(str(part.get("content", "")) if isinstance(part, Mapping) else str(part) for part in value)
    return str(value)
