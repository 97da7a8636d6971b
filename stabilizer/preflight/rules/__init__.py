"""The rules: one file each. The docstring is the rule's page, `ID` its name, and `check(view)` yields its findings.

This list is the table of contents and the order in which findings of one severity are shown.
"""

from __future__ import annotations

from types import ModuleType

from stabilizer.preflight.rules import (
    changed_defaults,
    clip_off,
    doubled_kl,
    eight_bit,
    float16,
    grad_clip,
    kl_placement,
    known_bugs,
    length_cap,
    log_prob_micro,
    lr_conservative,
    lr_range,
    no_anchor,
    no_engine,
    off_policy,
    recipe,
    rejected,
    removed_keys,
    repeated_keys,
    sampling,
    served,
    single_answer,
    smaller_than_recipe,
    sparse_logging,
    sparse_validation,
    too_few_prompts,
    unknown_keys,
    warmup_absent,
    warmup_long,
)

RULES: tuple[ModuleType, ...] = (
    rejected,
    served,
    single_answer,
    repeated_keys,
    unknown_keys,
    removed_keys,
    known_bugs,
    too_few_prompts,
    smaller_than_recipe,
    no_anchor,
    off_policy,
    doubled_kl,
    kl_placement,
    lr_range,
    lr_conservative,
    warmup_long,
    warmup_absent,
    length_cap,
    sampling,
    clip_off,
    grad_clip,
    float16,
    log_prob_micro,
    eight_bit,
    sparse_validation,
    sparse_logging,
    no_engine,
    changed_defaults,
    recipe,
)
