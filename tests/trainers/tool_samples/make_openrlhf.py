"""How the sample of OpenRLHF was written: by its own trainer's loop and its own loggers, with numbers made up here.

python make_openrlhf.py FOLDER OUT    a wheel unpacked with pip install --no-deps --target FOLDER openrlhf==VERSION;
                                      needs torch, tqdm and tensorboard

`PPOTrainer.fit` runs, with its evaluations and TensorBoard, and so does `ActorPPOTrainer.ppo_train`, which averages
over micro-batches. Stand-ins take the place of Ray, DeepSpeed, vLLM, and of all that needs a model: what a micro-batch
measured, the samples and their rewards.
"""

import contextlib
import math
import os
import sys
import types
from pathlib import Path
from types import SimpleNamespace as Bag
from unittest.mock import MagicMock

import torch

PACKAGES = ("openrlhf", *(f"openrlhf.{part}" for part in ("utils", "trainer", "trainer.ray", "trainer.ppo_utils")))
STAND_INS = ("deepspeed", "openrlhf.datasets", "openrlhf.datasets.utils", "openrlhf.models", "openrlhf.models.utils")
STAND_INS += tuple(f"openrlhf.utils.{name}" for name in ("deepspeed", "deepspeed.deepspeed_utils", "distributed_util"))
STAND_INS += ("openrlhf.utils.utils", "openrlhf.utils.vlm_utils", "openrlhf.trainer.ray.vllm_engine")
STAND_INS += tuple(f"openrlhf.trainer.ppo_utils.{name}" for name in ("experience", "experience_maker"))
STAND_INS += ("openrlhf.trainer.ppo_utils.samples_generator", "openrlhf.trainer.ray.utils")
STEPS, PROMPTS, GROUP, MICRO_BATCHES = 4, 4, 2, 3


def bare(folder: str) -> None:
    """Make OpenRLHF's modules importable without what its packages' __init__ would bring along."""
    for name in PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")))]
        sys.modules[name] = package
    for name in STAND_INS:
        sys.modules[name] = MagicMock()
    sys.modules["openrlhf.utils"].get_tokenizer = MagicMock()
    sys.modules["openrlhf.trainer.ppo_utils"].NaiveReplayBuffer = MagicMock()
    sys.modules["openrlhf.trainer.ray.launcher"] = Bag(BaseModelActor=object, RayActorGroup=object)
    sys.modules["ray"] = Bag(get=lambda results: results, remote=remote)


def remote(*args: object, **resources: object) -> object:
    """`ray.remote`, with or without arguments, of what stays in this process."""
    return (lambda kind: kind) if resources else args[0]


class Micro(MagicMock):
    """A micro-batch: only its mask is looked at."""

    action_mask = torch.ones(2, 8)


def measured(step: int, micro: int) -> dict[str, object]:
    """What `ActorPPOTrainer.training_step` gives: its names, and by what each is weighed; NaN as the loss of step 3."""
    wobble = 1 + 0.05 * math.sin(7 * step + micro)
    values = {
        "policy_loss": (math.nan if step == 3 else -0.0031 * wobble, "token"), "actor_lr": (1e-6, None),
        "actor_grad_norm": (0.187 * wobble, None), "ppo_clip_ratio": (0.0021 * wobble, "token"),
        "ppo_kl": (0.0002 * wobble, "token"), "vllm_kl": (0.0004 * wobble, "token"),
        "kl": (0.0008 * wobble, "sample"), "reward": (0.4 + step / 64, "sample"),
        "score": (0.4 + step / 64, "sample"), "return": (0.4 + step / 64, "sample"),
        "response_length": (231.5, "sample"), "total_length": (331.5, "sample"), "truncated": (0.0625, "sample"),
        "group_reward_std": (0.31 * wobble, "sample"),
    }  # fmt: skip
    return {
        "metrics": {name: torch.tensor(value) if weight else value for name, (value, weight) in values.items()},
        "weights": {name: weight for name, (_, weight) in values.items()},
        "num_action_tokens": 400 + micro, "num_samples": 2,
    }  # fmt: skip


class Actor:
    """A group of one actor, whose training pass averages over micro-batches as OpenRLHF does."""

    def __init__(self, strategy: Bag):
        from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer

        self.step = 0
        self.trainer = ActorPPOTrainer.__new__(ActorPPOTrainer)
        buffer = Buffer([Micro()] * MICRO_BATCHES)
        self.trainer.__dict__.update(
            args=strategy.args, strategy=strategy, replay_buffer=buffer, dataloader_pin_memory=False, max_epochs=1,
            training_step=lambda batch, kl, micro, about: measured(self.step, micro),
        )  # fmt: skip

    def async_run_method(self, method_name: str, **about: object) -> list[dict[str, float]]:
        if method_name != "fit":
            return [{}]
        self.step += 1
        return [self.trainer.ppo_train(about["kl_ctl"])]

    def async_run_method_batch(self, **about: object) -> list[object]:
        return []


class Buffer(list):
    """Micro-batches, one at a time."""

    sample_batch_size = 1

    @staticmethod
    def collate_fn(batch: list[object]) -> object:
        return batch[0]


class Samples:
    """Completions and their rewards, without a model."""

    step = 0

    def generate_samples(self, **about: object) -> tuple[list[object], float, int, bool]:
        self.step += 1
        reward = torch.full((PROMPTS * GROUP,), 0.4 + self.step / 64)
        made = Bag(
            info={"reward": reward}, sequences=torch.zeros(1, 4, dtype=torch.long),
            response_length=torch.full((PROMPTS * GROUP,), 231.5), truncated=torch.tensor([1.0] + [0.0] * 7),
        )  # fmt: skip
        return [made], 87.5, PROMPTS, self.step == STEPS

    def generate_eval_samples(self, **about: object) -> list[object]:
        length, cut = torch.tensor(200.0), torch.tensor(0.0)
        return [Bag(prompts=["p"], rewards=float(i < 3), response_length=length, truncated=cut) for i in range(8)]


class Loader(list):
    """Prompts by source; it can be asked where it stands."""

    def state_dict(self) -> dict[str, object]:
        return {}


def main(folder: str, out: Path) -> None:
    torch.cuda.current_device = lambda: "cpu"
    bare(folder)
    args = Bag(
        algo=Bag(dynamic_filtering_enable=True, kl=Bag(target=None, init_coef=0.001)),
        ckpt=Bag(path="nowhere", load_enable=False, save_steps=math.inf, best_metric_key=""),
        critic=Bag(freezing_steps=-1),
        data=Bag(disable_fast_tokenizer=False), ds=Bag(enable_sleep=False, tensor_parallel_size=1),
        eval=Bag(steps=2, temperature=0.6, n_samples_per_prompt=4),
        logger=Bag(logging_steps=1, tensorboard_dir=str(out), wandb=Bag(key=None, run_name="run")),
        rollout=Bag(batch_size=PROMPTS, n_samples_per_prompt=GROUP),
        train=Bag(dynamic_batch_enable=False, num_episodes=1),
    )  # fmt: skip
    strategy = Bag(
        args=args, ring_attn_group=None, accumulated_gradient=1, is_rank_0=lambda: True,
        all_reduce=lambda status: status,
    )  # fmt: skip
    with (out / "console.log").open("w") as console, contextlib.redirect_stdout(console):
        from openrlhf.trainer import ppo_trainer

        loader = Loader([(["math"], ["p"], None, None)])
        ppo_trainer.prepare_datasets = lambda strategy, tokenizer: (loader, loader, STEPS)
        ppo_trainer.SamplesGenerator = lambda **about: Samples()
        ppo_trainer.RemoteExperienceMaker = lambda *about: Bag(make_experience_batch=lambda samples: samples)
        ppo_trainer.get_tokenizer = lambda *about, **more: Bag(decode=lambda *about, **more: ["What is 2 + 2? 4"])
        ppo_trainer.PPOTrainer("model", strategy, Actor(strategy), None, None, None, None).fit()


if __name__ == "__main__":
    os.makedirs(sys.argv[2], exist_ok=True)
    main(sys.argv[1], Path(sys.argv[2]))
