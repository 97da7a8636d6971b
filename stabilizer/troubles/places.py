"""What an exception of no known message is about: the place in the program where it was raised.

A place is asked for only when no message of the catalogue fits. It says which part of a training failed and what to look
at there, never more than as a possibility.
"""

from __future__ import annotations

from stabilizer.core.failures import NO_ENTRY
from stabilizer.troubles.trouble import CODE, LIBRARIES, Trouble

UNKNOWN = f"{NO_ENTRY}; it was raised "
OWN = ". The innermost frame of your own code: "


def _place(what: str, where: str, look: str, *frames: str) -> Trouble:
    return Trouble(
        id=f"place/{what}", shows=(), frames=frames, cause=f"{UNKNOWN}{where}", fix=look + "{own}", source="the traceback",
        certainty="possible", example="",
    )  # fmt: skip


PLACES = (
    _place(
        "rewards", "while rewards are computed: an answer, a column of the data or a setting of the verifier is not what "
        "the reward function expects",
        "call the reward function yourself on one answer and its row (stabilizer preflight --rewards FILE.py:FUNCTION tries "
        "empty, cut and odd answers)",
        "_calculate_rewards", "reward_func", "reward_fn", "_reward", "rm_hub", "reward_manager", "reward_score", "reward_loop", "math_verify", "latex2sympy", "compute_score",
    ),
    _place(
        "engine", "in the engine that generates (vLLM, SGLang): its release, its memory, a prompt it does not take, or weights "
        "that do not fit it",
        "look for the engine's first error above; try one prompt without the trainer, with the same model and settings; compare "
        "the installed release with the one that the trainer names",
        "vllm/", "sglang/", "vllm_client", "vllm_generation", "rollout/",
    ),
    _place(
        "checkpoint", "while a checkpoint is saved or loaded: another number of processes, another form (shards, adapter, whole "
        "model), or files that are cut off",
        "list the folder and compare it with one that loads; resume with the same number of GPUs and the same releases; start "
        "from the merged weights otherwise",
        "checkpoint", "save_pretrained", "load_state_dict", "state_dict", "safetensors",
    ),
    _place(
        "data", "while data are read or tokenised: a row or column is not what this code expects",
        "print(dataset[0]) and dataset.features; compare them with the form that the trainer's documentation shows, and look for "
        "empty, very long or otherwise typed rows",
        "data_utils", "arrow_dataset", "datasets/", "tokenization", "rl_dataset", "collat", "preprocess", "processing_", "jinja2",
    ),
    _place(
        "settings", "while settings are read: a name, type or combination that this release does not take",
        "stabilizer preflight CONFIG checks names, values and combinations against the trainer's releases",
        "training_args", "_config.py", "hydra/", "omegaconf", "argparse", "hf_argparser", "pydantic", "hparams/",
    ),
    _place(
        "sharding", "in the code that shards or exchanges the model (DeepSpeed, FSDP, torch.distributed): a part of the model "
        "outside the wrapper, types that differ, or ranks that went different ways",
        "try the same on one GPU without sharding, then with the next lower stage (ZeRO-2 for ZeRO-3); upgrade accelerate, "
        "transformers, DeepSpeed and torch together",
        "deepspeed/", "fully_sharded", "fsdp", "torch/distributed", "accelerate/", "megatron",
    ),
    _place(
        "model", "inside the model's own code: inputs, releases or parts of the model do not fit each other",
        "run one batch of text through the model alone (model.generate); upgrade transformers and PEFT together; load without "
        "trust_remote_code where transformers has the class",
        "transformers/models", "modeling_", "peft/", "bitsandbytes/", "flash_attn", "torch/nn/modules",
    ),
)  # fmt: skip
"""Asked in this order, for the innermost frames first."""


def by_place(frames: tuple[str, ...], own: str) -> tuple[Trouble, dict[str, str]] | None:
    """The place of an exception raised in installed or trainers' code; `own` is the innermost frame of the user's."""
    for frame in (frame.partition(CODE)[0] for frame in reversed(frames)):
        if not any(library in frame for library in LIBRARIES):
            continue
        for place in PLACES:
            if place.among((frame,)):
                return place, {"own": f"{OWN}{own}" if own else ""}
    return None
