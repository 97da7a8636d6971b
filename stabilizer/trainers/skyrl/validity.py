"""SkyRL: `validate_batch_sizes` and the switches `validate_cfg` holds against each other. Batches count prompts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stabilizer.trainers.constraints import Refusals, Settings, Violation, divisors, near_multiple, nearest, positive

_SOURCE = "skyrl 0.3.0, skyrl/train/utils/utils.py validate_batch_sizes"
_SWITCHES = "skyrl 0.3.0, skyrl/train/utils/utils.py validate_cfg"
_refuse = Refusals("skyrl", _SOURCE)


def skyrl(settings: Settings) -> Iterator[Violation]:
    """The policy's batches, the critic's when there is one, and what excludes each other."""
    has_critic = settings.get("trainer.critic.model.path") is not None
    n = settings.number("generator.n_samples_per_prompt")
    micro = settings.number("trainer.micro_train_batch_size_per_gpu")
    sizes = ["generator.n_samples_per_prompt", "trainer.train_batch_size", "trainer.policy_mini_batch_size"]
    sizes += ["trainer.critic_mini_batch_size"] if has_critic else []
    sizes += ["trainer.micro_train_batch_size_per_gpu", "trainer.micro_forward_batch_size_per_gpu"]
    wrong = list(positive(settings, "skyrl", _SOURCE, *sizes))
    yield from wrong
    if not wrong and n is not None and micro is not None:
        yield from _role(settings, "policy", n, micro)
        if has_critic:
            yield from _role(settings, "critic", n, micro)
        yield from _enough(settings, n)
    if settings.flag("trainer.algorithm.use_kl_in_reward") and settings.flag("trainer.algorithm.use_kl_loss"):
        text = "use_kl_in_reward and use_kl_loss should be mutually exclusive"
        change = "one of them; use_kl_loss True is the default"
        yield _refuse("kl-twice", "trainer.algorithm.use_kl_in_reward", text, change, _SWITCHES)
    if settings.text("trainer.algorithm.advantage_estimator") == "gae" and not has_critic:
        text = "`trainer.critic.model.path` should be provided for PPO training, got `None`"
        change = "trainer.critic.model.path, usually the policy's own path"
        yield _refuse("critic-path", "trainer.critic.model.path", text, change, _SWITCHES)


def ranks(settings: Settings, role: str) -> int:
    """Data-parallel ranks of policy, critic or ref; the placement in the configuration, else the GPUs said to be."""
    place = f"trainer.placement.{role}"
    world = settings.placed(settings.gpus, {f"{place}_num_nodes": 1, f"{place}_num_gpus_per_node": 1})
    if settings.text("trainer.strategy") == "megatron" and role != "critic":
        section = f"trainer.{role}.megatron_config"
        sizes = ("pipeline_model_parallel_size", "context_parallel_size", "tensor_model_parallel_size")
        return world // settings.product(*(f"{section}.{key}" for key in sizes))
    return world // max(settings.number(f"trainer.{role}.sequence_parallel_size") or 1, 1)


def _role(settings: Settings, role: str, n: int, micro: int) -> Iterator[Violation]:
    key, parallel = f"trainer.{role}_mini_batch_size", ranks(settings, role)
    train, mini = settings.number("trainer.train_batch_size"), settings.number(key)
    if train is None or mini is None or parallel < 1:
        return
    if train < mini or train % mini:
        text = f"train_batch_size {train} should be divisible by {role}_mini_batch_size {mini}"
        change = f"{key} {nearest(mini, divisors(train))}; or trainer.train_batch_size {near_multiple(train, mini)}"
        yield _refuse("mini-divides-train", key, text, change)
        return
    per_gpu, train_per_gpu = mini * n // parallel, train * n // parallel
    if per_gpu == 0:
        text = f"{role}_mini_batch_size {mini} x {n} samples leaves nothing for each of {parallel} ranks"
        yield _refuse("mini-under-ranks", key, text, f"{key} {math.ceil(parallel / n)} or more")
    elif per_gpu % micro:
        text = (
            f"normalized {role}_mini_batch_size_per_gpu {per_gpu} should be divisible by "
            f"micro_train_batch_size_per_gpu {micro}"
        )
        change = f"micro_train_batch_size_per_gpu {nearest(micro, divisors(per_gpu))}"
        yield _refuse("micro-divides-mini", "trainer.micro_train_batch_size_per_gpu", text, change)
    elif train_per_gpu % per_gpu:
        unit = parallel // math.gcd(parallel, n)
        text = (
            f"normalized {role}_train_batch_size_per_gpu ({train} x {n} // {parallel} = {train_per_gpu}) "
            f"should be divisible by {role}_mini_batch_size_per_gpu ({mini} x {n} // {parallel} = {per_gpu})"
        )
        yield _refuse("mini-divides-train-per-gpu", key, text, f"{key} a multiple of {unit}")


def _enough(settings: Settings, n: int) -> Iterator[Violation]:
    train, parallel = settings.number("trainer.train_batch_size"), ranks(settings, "policy")
    if settings.flag("trainer.algorithm.use_kl_loss") or settings.flag("trainer.algorithm.use_kl_in_reward"):
        parallel = math.lcm(parallel, max(ranks(settings, "ref"), 1))
    if train is not None and train * n < parallel:
        text = (
            f"train_batch_size * n_samples_per_prompt ({train * n}) should be at least the least common "
            f"multiple of the data parallel sizes ({parallel})"
        )
        change = f"trainer.train_batch_size {math.ceil(parallel / n)} or more"
        yield _refuse("train-under-ranks", "trainer.train_batch_size", text, change)
