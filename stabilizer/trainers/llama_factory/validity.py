"""LLaMA-Factory 0.8 to 0.9: what `hparams/parser.py` and `FinetuningArguments` refuse."""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.trainers.constraints import Refusals, Settings, Violation, positive

_PARSER = "LLaMA-Factory 0.9, src/llamafactory/hparams/parser.py"
_METHOD = "LLaMA-Factory 0.9, src/llamafactory/hparams/finetuning_args.py"
_LOGGERS = ("wandb", "tensorboard", "trackio", "none", "[]")
_refuse = Refusals("llama-factory", _PARSER)


def llama_factory(settings: Settings) -> Iterator[Violation]:
    """Sizes, its PPO stage, and methods that exclude each other."""
    sizes = ("per_device_train_batch_size", "gradient_accumulation_steps", "ppo_buffer_size", "ppo_epochs")
    yield from positive(settings, "llama-factory", _PARSER, *sizes)
    if settings.text("stage") == "ppo":
        yield from _ppo(settings)
    yield from _methods(settings)
    yield from _data(settings)


def _ppo(settings: Settings) -> Iterator[Violation]:
    if not settings.get("reward_model"):
        text = "`reward_model` is necessary for PPO training"
        yield _refuse("reward-model", "reward_model", text, "the path of a reward model, or of its adapter", _METHOD)
    kind, method = settings.text("reward_model_type"), settings.text("finetuning_type")
    if kind in ("lora", "oft") and method != kind:
        text = f"`reward_model_type` cannot be {kind} for Freeze/Full PPO training"
        yield _refuse("reward-type", "reward_model_type", text, f"full or api, or finetuning_type: {kind}", _METHOD)
    if settings.config and not settings.flag("do_train"):
        text = "PPO training does not support evaluation, use the SFT stage to evaluate models"
        yield _refuse("ppo-train", "do_train", text, "true")
    if settings.flag("load_best_model_at_end"):
        text = "RM and PPO stages do not support `load_best_model_at_end`"
        yield _refuse("ppo-best", "load_best_model_at_end", text, "false")
    if settings.get("resume_from_checkpoint") not in (None, False, "false", "null"):
        text = "`resume_from_checkpoint` will be supported in the future version"
        yield _refuse("ppo-resume", "resume_from_checkpoint", text, "model_name_or_path: <the checkpoint>",
                      "LLaMA-Factory 0.9, src/llamafactory/train/ppo/trainer.py")  # fmt: skip
    reports = settings.get("report_to")
    named = [str(name).lower() for name in (reports if isinstance(reports, list) else [reports]) if name is not None]
    if any(name not in _LOGGERS for name in named):
        text = "PPO only accepts wandb, tensorboard, or trackio logger"
        yield _refuse("ppo-report", "report_to", text, "wandb, tensorboard or none")


def _methods(settings: Settings) -> Iterator[Violation]:
    method = settings.text("finetuning_type")
    if settings.get("adapter_name_or_path") and method != "lora":
        text = "Adapter is only valid for the LoRA method"
        yield _refuse("adapter", "adapter_name_or_path", text, "finetuning_type: lora")
    if settings.number("quantization_bit") and method not in ("lora", "oft"):
        text = "Quantization is only compatible with the LoRA or OFT method"
        yield _refuse("quantized", "quantization_bit", text, "finetuning_type: lora")
    if method != "lora":
        for key in ("use_rslora", "use_dora", "pissa_init", "loraplus_lr_ratio"):
            if settings.get(key) not in (None, False, "false"):
                yield _refuse("lora-only", key, f"`{key}` is only valid for LoRA training", f"without {key}", _METHOD)
    elif any(settings.flag(key) for key in ("use_galore", "use_apollo", "use_badam")):
        text = "Cannot use LoRA with GaLore, APOLLO or BAdam together"
        yield _refuse("lora-galore", "finetuning_type", text, "full", _METHOD)


def _data(settings: Settings) -> Iterator[Violation]:
    if settings.flag("do_train") and not settings.get("dataset"):
        yield _refuse("dataset", "dataset", "Please specify dataset for training", "a name of dataset_info.json")
    steps = settings.number("max_steps")
    if settings.flag("streaming") and (steps is None or steps < 0):
        yield _refuse("streaming", "max_steps", "Please specify `max_steps` in streaming mode", "a number of steps")
    if settings.text("stage") == "sft":
        return
    for key in ("predict_with_generate", "neat_packing", "train_on_prompt", "mask_history"):
        if settings.flag(key):
            yield _refuse("sft-only", key, f"`{key}` cannot be set as True except SFT", "false")
