"""AReaL 1.0: what the dataclasses of `areal/api/cli_args.py` and its trainer refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stabilizer.trainers.constraints import Refusals, Settings, Violation, divisors, near_multiple, nearest, positive

_SOURCE = "areal 1.0.4, areal/api/cli_args.py"
_REJECTION = "actor.rejection_sampling"
_LEGACY = ("behave_imp_weight_cap", "behave_imp_weight_mode")
_DATA_PARALLEL = re.compile(r"d(\d{1,6})")
_refuse = Refusals("areal", _SOURCE)


def areal(settings: Settings) -> Iterator[Violation]:
    """Sizes, batches that do not divide over the actor's ranks, and switches that exclude each other."""
    sizes = ("train_dataset.batch_size", "gconfig.n_samples", "actor.ppo_n_minibatches", "total_train_epochs")
    wrong = list(positive(settings, "areal", _SOURCE, *sizes))
    yield from wrong
    if not wrong:
        yield from _batches(settings)
    if settings.version >= (1, 0, 4):
        yield from _legacy(settings)
    yield from _rejection(settings)
    yield from _sapo(settings)
    yield from _levels(settings)


def ranks(settings: Settings) -> int | None:
    """Data-parallel ranks of the actor, `fsdp:d4p1t1` or the second half of `sglang:d4+fsdp:d4`; None when unsaid."""
    said = str(settings.get("actor.backend") or settings.get("allocation_mode") or "")
    match = _DATA_PARALLEL.search(said.rpartition("+")[2].partition(":")[2] or said.rpartition("+")[2])
    return int(match[1]) if match else None


def _batches(settings: Settings) -> Iterator[Violation]:
    prompts, minis, parallel = (
        settings.number("train_dataset.batch_size"),
        settings.number("actor.ppo_n_minibatches"),
        ranks(settings),
    )
    if prompts is None or minis is None:
        return
    if parallel and prompts % parallel:
        text = f"batch size({prompts}) must be divisible by world_size({parallel}), the actor's data-parallel ranks"
        expected = f"train_dataset.batch_size {near_multiple(prompts, parallel)}"
        yield _refuse("batch-ranks", "train_dataset.batch_size", text, expected,
                      "areal 1.0.4, areal/utils/dataloader.py")  # fmt: skip
    each = prompts // (parallel or 1) * (settings.number("gconfig.n_samples") or 1)
    if 0 < each < minis:
        text = f"Number of values {each} is smaller than min_groups {minis} (sequences of a rank, ppo_n_minibatches)"
        expected = f"actor.ppo_n_minibatches {nearest(minis, divisors(each))}"
        yield _refuse("minibatches", "actor.ppo_n_minibatches", text, expected, "areal 1.0.4, areal/utils/seqpack.py")


def _legacy(settings: Settings) -> Iterator[Violation]:
    for section in ("actor", "teacher"):
        for name in _LEGACY:
            key = f"{section}.{name}"
            if key in settings.config:
                text = f"Found removed config key(s) {{{name!r}}} under {section!r}"
                expected = f"{section}.rejection_sampling with level, action, metric and upper, or null for none"
                yield _refuse("legacy-rejection", key, text, expected)


def _rejection(settings: Settings) -> Iterator[Violation]:
    if not any(key.startswith(f"{_REJECTION}.") for key in settings.config):
        return
    metric = settings.text(f"{_REJECTION}.metric")
    upper, lower = settings.real(f"{_REJECTION}.upper"), settings.real(f"{_REJECTION}.lower")
    if metric == "ratio" and upper is not None and upper <= 1.0:
        text = f"upper must be > 1.0 for 'ratio' metric, got {upper:g}"
        yield _refuse("rejection-upper", f"{_REJECTION}.upper", text, "2.0 or 5.0")
    if upper is not None and lower is not None and lower > upper:
        text = f"lower ({lower:g}) cannot be greater than upper ({upper:g})"
        yield _refuse("rejection-bounds", f"{_REJECTION}.lower", text, f"below {upper:g}")
    if settings.text(f"{_REJECTION}.action") == "clamp" and metric != "ratio":
        text = f"action='clamp' only supports metric='ratio', got metric={metric!r}"
        yield _refuse("rejection-clamp", f"{_REJECTION}.action", text, "action: mask, or metric: ratio")


def _sapo(settings: Settings) -> Iterator[Violation]:
    if settings.flag("actor.use_sapo_loss") and settings.flag("actor.use_decoupled_loss"):
        text = "SAPO is not compatible with `use_decoupled_loss=True`"
        yield _refuse("sapo-decoupled", "actor.use_decoupled_loss", text, "false")


def _levels(settings: Settings) -> Iterator[Violation]:
    for norm in ("reward_norm", "adv_norm"):
        for level in ("mean_level", "std_level"):
            key = f"actor.{norm}.{level}"
            value = settings.get(key)
            if value is not None and str(value).lower() not in ("batch", "group", "none", "null"):
                text = f"{level} must be 'batch', 'group' or None, got {value}"
                yield _refuse("norm-level", key, text, "batch, group or null")
        group, said = settings.number("gconfig.n_samples"), settings.number(f"actor.{norm}.group_size")
        grouped = any(settings.text(f"actor.{norm}.{level}") == "group" for level in ("mean_level", "std_level"))
        if grouped and said is not None and group is not None and said != group:
            text = f"{norm}.group_size {said} differs from gconfig.n_samples {group}: groups of other prompts are mixed"
            yield _refuse("norm-group", f"actor.{norm}.group_size", text, f"{group}, or ${{gconfig.n_samples}}")
