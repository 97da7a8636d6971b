"""prime-rl: the orchestrator's batch must hold whole groups. `batch_size` counts rollouts, not prompts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stabilizer.trainers.constraints import Refusals, Settings, Violation, divisors, near_multiple, nearest, positive

_SOURCE = "prime-rl, configs/orchestrator.py resolve_batching"
_refuse = Refusals("prime-rl", _SOURCE)


def prime_rl(settings: Settings) -> Iterator[Violation]:
    """One kind of batch, whole groups in it, and room for a group in flight. Keys with or without `orchestrator.`."""

    def named(key: str) -> str:
        return key if key in settings.config else f"orchestrator.{key}"

    def at(key: str) -> int | None:
        return settings.number(named(key))

    old = named("rollouts_per_example")
    group_key = old if old in settings.config else named("group_size")
    group = settings.number(group_key)
    batch_set, token_set = (settings.config.get(named(key)) is not None for key in ("batch_size", "token_batch_size"))
    wrong = list(positive(settings, "prime-rl", _SOURCE, group_key, named("batch_size")))
    yield from wrong
    if batch_set and token_set:
        text = "set exactly one of batch_size or token_batch_size"
        yield _refuse("batch-both", named("token_batch_size"), text, "one of the two")
        return
    batch = None if token_set else at("batch_size")
    if wrong or group is None:
        return
    if batch is not None and batch % group:
        text = f"batch size ({batch}) must be divisible by the number of samples per problem ({group})"
        change = (
            f"{named('batch_size')} {near_multiple(batch, group)}; or {group_key} {nearest(group, divisors(batch))}"
        )
        yield _refuse("whole-groups", named("batch_size"), text, change)
    yield from _room_for_prompt(settings)
    for name in ("max_inflight", "initial_inflight"):
        key = f"concurrency.{name}"
        value = at(key)
        if value is not None and value < group:
            text = f"concurrency.{name} ({value}) must be at least the number of rollouts per example ({group})"
            yield _refuse("inflight", named(key), text, f"{named(key)} {group} or more")


def _room_for_prompt(settings: Settings) -> Iterator[Violation]:
    """An answer as long as the whole sequence leaves no token to the prompt."""
    for prefix in ("", "orchestrator."):
        whole = settings.number(f"{prefix}seq_len") or settings.number("seq_len")
        for name in ("sampling.max_tokens", "train.sampling.max_completion_tokens"):
            key = f"{prefix}{name}"
            most = settings.number(key)
            if whole is not None and most is not None and most >= whole:
                text = (
                    f"max_tokens ({most}) takes the whole seq_len ({whole}), which is also the engine's"
                    " max_model_len: the prompt has no room and every request is refused"
                )
                change = f"leave {key} out, or set it to seq_len minus the longest prompt"
                refused = _refuse("no-room-for-prompt", key, text, change, "PrimeIntellect-ai/prime-rl#699")
                yield replace(refused, choose=True)
