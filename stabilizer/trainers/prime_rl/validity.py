"""prime-rl: the orchestrator's batch must hold whole groups. `batch_size` counts rollouts, not prompts."""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.trainers.constraints import Settings, Violation, divisors, near_multiple, nearest, positive

NEWEST = "2026.8"
"""Released as source only: the rules are those of August 2026."""
DEFAULTS = {"orchestrator.group_size": 1}
_SOURCE = "prime-rl, configs/orchestrator.py resolve_batching"


def prime_rl(settings: Settings) -> Iterator[Violation]:
    """One kind of batch, whole groups in it, and room for a group in flight. Keys with or without `orchestrator.`."""

    def named(key: str) -> str:
        return key if key in settings.config else f"orchestrator.{key}"

    def at(key: str) -> int | None:
        return settings.number(named(key))

    old = named("rollouts_per_example")
    group_key = old if old in settings.config else named("group_size")
    group = settings.number(group_key)
    batch_set, token_set = (settings.get(named(key)) is not None for key in ("batch_size", "token_batch_size"))
    wrong = list(positive(settings, "prime-rl", _SOURCE, group_key, named("batch_size")))
    yield from wrong
    if batch_set and token_set:
        yield Violation(
            rule="prime-rl/batch-both",
            key=named("token_batch_size"),
            message="set exactly one of batch_size or token_batch_size",
            expected="one of the two",
            source=_SOURCE,
        )
        return
    batch = at("batch_size") if batch_set else None if token_set else 128
    if wrong or group is None:
        return
    if batch is not None and batch % group:
        yield Violation(
            rule="prime-rl/whole-groups",
            key=named("batch_size"),
            message=f"batch size ({batch}) must be divisible by the number of samples per problem ({group})",
            expected=f"{named('batch_size')} {near_multiple(batch, group)}; or {group_key} "
            f"{nearest(group, divisors(batch))}",
            source=_SOURCE,
        )
    yield from _room_for_prompt(settings)
    for name in ("max_inflight", "initial_inflight"):
        key = f"concurrency.{name}"
        value = at(key)
        if value is not None and value < group:
            yield Violation(
                rule="prime-rl/inflight",
                key=named(key),
                message=f"concurrency.{name} ({value}) must be at least the number of rollouts per example ({group})",
                expected=f"{named(key)} {group} or more",
                source=_SOURCE,
            )


def _room_for_prompt(settings: Settings) -> Iterator[Violation]:
    """An answer as long as the whole sequence leaves no token to the prompt."""
    for prefix in ("", "orchestrator."):
        whole = settings.number(f"{prefix}seq_len") or settings.number("seq_len")
        for name in ("sampling.max_tokens", "train.sampling.max_completion_tokens"):
            key = f"{prefix}{name}"
            most = settings.number(key)
            if whole is not None and most is not None and most >= whole:
                yield Violation(
                    rule="prime-rl/no-room-for-prompt",
                    key=key,
                    message=f"max_tokens ({most}) takes the whole seq_len ({whole}), which is also the engine's"
                    " max_model_len: the prompt has no room and every request is refused",
                    expected=f"leave {key} out, or set it to seq_len minus the longest prompt",
                    source="PrimeIntellect-ai/prime-rl#699",
                )
