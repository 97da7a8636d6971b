"""The reference of the KL for a TRL training that began without one: its starting weights, loaded when beta leaves 0.

A small model's starting weights are copied to the run's folder (`reference/model.safetensors`) when the run begins, so
the reference is exact, whatever the model was made from. A larger one is loaded by the name of the model, as TRL does
for a training with beta above 0. Fresh adapters need neither: their base model is the reference. Of an adapter that was
trained before, its starting weights are copied, and become the adapter `ref` of TRL.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

DEFAULT, REF = "default", "ref"
"""TRL's names of the adapter that is trained and of its copy at the start."""
COPIED = 4 * 10**9
"""Bytes of weights up to which they are copied: a disk writes that in some seconds."""


class Reference:
    """The starting weights of one trainer."""

    def __init__(self, trainer: Any, run: Path | None):
        self._trainer = trainer
        self.run = run
        """The folder of the run; None in another process until it is known."""
        self.source = ""
        """Where it would come from, in words."""

    @property
    def _file(self) -> Path:
        return (self.run or Path()) / "reference" / "model.safetensors"

    def keep(self) -> str:
        """See to it that a reference can be made later; returns why it cannot, or nothing."""
        trainer = self._trainer
        if getattr(trainer, "ref_model", None) is not None:
            return ""
        if adapted(trainer):
            if not _fresh(trainer.model) and REF not in trainer.model.peft_config:
                self._write(_adapter(trainer.model, DEFAULT))
                self.source = f"a copy of the starting adapter in {self._file.parent.name}/"
            return ""
        for name, what in (("is_deepspeed_enabled", "DeepSpeed"), ("is_fsdp_enabled", "FSDP")):
            if getattr(trainer, name, False):
                return f"no reference can be added under {what}"
        if getattr(trainer.args, "cast_lm_head_to_fp32", False):
            return "no reference can be added with cast_lm_head_to_fp32"
        if getattr(trainer.model, "hf_quantizer", None) is not None:
            return "no reference can be added to a quantized model"
        weights = _weights(trainer.model)
        size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        named = trainer.model.config._name_or_path
        if size > COPIED:
            self.source = f"loaded by its name, {named}"
            return "" if named else f"the model has no name to load a reference by, and {size:,} bytes are not copied"
        self._write(weights)
        self.source = f"a copy of the starting weights, {size / 1e6:,.1f} MB in {self._file.parent.name}/"
        return ""

    def _write(self, weights: dict[str, Any]) -> None:
        """Only the first process writes."""
        from stabilizer.training.tensor_file import TensorFile

        if self._trainer.args.process_index == 0 and not self._file.exists():  # an earlier attempt wrote it
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._file.with_suffix(".new")
            with fresh.open("wb") as file:
                for chunk in TensorFile(weights).chunks():
                    file.write(chunk)
            fresh.replace(self._file)

    def load(self) -> None:
        """Give the trainer its reference, if it needs one. Takes as much memory as the policy."""
        trainer = self._trainer
        if getattr(trainer, "ref_model", None) is not None:
            return
        if adapted(trainer):
            if self._file.is_file() and REF not in trainer.model.peft_config:
                self._load_adapter(trainer.model)
            return
        reference = self._copied() if self._file.is_file() else self._named()
        reference.to(trainer.accelerator.device).eval().requires_grad_(False)
        fused_head(reference, temperature=trainer.temperature)
        trainer.ref_model = trainer.accelerator.prepare_model(reference, evaluation_mode=True)

    def _load_adapter(self, model: Any) -> None:
        import torch
        from safetensors.torch import load_file

        saved = load_file(self._file)
        with torch.random.fork_rng(), torch.no_grad():
            model.add_adapter(REF, model.peft_config[DEFAULT])
            for name, parameter in _adapter(model, REF).items():
                parameter.copy_(saved[name.replace(f".{REF}.", f".{DEFAULT}.")])
                parameter.requires_grad_(False)

    def _copied(self) -> Any:
        import torch
        from safetensors.torch import load_file

        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        config, attention = model.config, model.config._attn_implementation
        with torch.random.fork_rng():  # the weights that it begins with are overwritten, and drawn all the same
            reference = type(model)._from_config(config, torch_dtype=model.dtype, attn_implementation=attention)
        missing, unknown = reference.load_state_dict(load_file(self._file), strict=False)
        reference.tie_weights()
        tied = {name for name, _ in reference.named_parameters(remove_duplicate=False)} - {*_weights(reference)}
        if unknown or set(missing) - tied:
            raise ValueError(f"{self._file}: {len(unknown) + len(missing)} weights do not fit this model")
        return reference

    def _named(self) -> Any:
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        name, attention = model.config._name_or_path, model.config._attn_implementation
        return type(model).from_pretrained(name, torch_dtype=model.dtype, attn_implementation=attention)


def fused_head(model: Any, **settings: Any) -> None:
    """Have a model return log-probabilities at a temperature, as TRL does; before 1.0 its loss divides by its own."""
    with contextlib.suppress(ImportError):
        from trl.trainer.utils import add_fused_lm_head

        add_fused_lm_head(model, **settings)


def adapted(trainer: Any) -> bool:
    """Whether the model has adapters, whose base is the reference."""
    return hasattr(getattr(trainer, "model", None), "peft_config")


def _adapter(model: Any, adapter: str) -> dict[str, Any]:
    """The weights of one adapter."""
    return {name: parameter for name, parameter in model.named_parameters() if f".{adapter}." in name}


def _fresh(model: Any) -> bool:
    """Whether the adapter changes nothing yet: LoRA begins with one of its two factors at zero."""
    factors = [parameter for name, parameter in _adapter(model, DEFAULT).items() if ".lora_B." in name]
    return bool(factors) and not any(bool(factor.any()) for factor in factors)


def _weights(model: Any) -> dict[str, Any]:
    """Parameters, tied ones once, and persistent buffers."""
    kept = model.state_dict(keep_vars=True).keys()
    found = dict(model.named_parameters())
    return found | {name: tensor for name, tensor in model.named_buffers() if name in kept}
