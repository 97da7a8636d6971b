"""DeepSpeed."""

from __future__ import annotations

from stabilizer.troubles.arithmetic import whole
from stabilizer.troubles.trouble import Trouble, Values


def _product(values: Values) -> dict[str, object]:
    batch, micro, passes, ranks = (whole(values[name]) for name in ("batch", "micro", "passes", "ranks"))
    if micro * passes * ranks == batch:
        raise ValueError("it is equal")
    return {"product": micro * passes * ranks}


TROUBLES = (
    Trouble(
        id="deepspeed/batch-product",
        shows=("micro_batch_per_gpu * gradient_acc_step * world_size {batch} != {micro} * {passes} * {ranks}",),
        cause="train_batch_size = {batch}, but {micro} rows a GPU x {passes} accumulation steps x {ranks} processes are "
        "{product}",
        fix="set train_batch_size to {product} or to 'auto', or change one of the factors; OpenRLHF: a train_batch_size that "
        "is a multiple of micro_train_batch_size x GPUs",
        source="OpenRLHF/OpenRLHF: configuration", certainty="certain", kind="config-error", work=_product,
        example="AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
        "gradient_acc_step * world_size 128 != 4 * 5 * 8",
    ),
    Trouble(
        id="deepspeed/embedding-is-one-dimensional",
        shows=("'weight' must be 2-D",),
        cause="under ZeRO-3 a weight is empty where it was not gathered: the model was used outside DeepSpeed's engine "
        "(a reference model, a generation or a resize before it was wrapped)",
        fix="let the trainer load the reference (pass its name, not a model), gather with deepspeed.zero.GatheredParameters, "
        "or use ZeRO-2",
        source="huggingface/trl: deepspeed integration",
        example="RuntimeError: 'weight' must be 2-D",
    ),
    Trouble(
        id="deepspeed/empty-shape",
        shows=("size mismatch for {name:w}: copying a param with shape {shape:t} from checkpoint, the shape in current model "
               "is torch.Size([0])",),
        cause="under ZeRO-3 the model's weights are empty while a checkpoint is loaded into it directly",
        fix="load the model inside DeepSpeed's context (TrainingArguments before from_pretrained), or upgrade transformers "
        "and accelerate",
        source="huggingface/transformers: deepspeed",
        example="RuntimeError: size mismatch for lm_head.weight: copying a param with shape torch.Size([32000, 4096]) from "
        "checkpoint, the shape in current model is torch.Size([0]).",
    ),
    Trouble(
        id="deepspeed/inflight-parameters",
        shows=("still have inflight params",),
        cause="ZeRO-3 recorded an order of modules in one pass, and this pass used another: generation or a second forward "
        "between forward and backward",
        fix="upgrade DeepSpeed and TRL together; leave ds3_gather_for_generation at its default, or generate with vLLM",
        source="microsoft/DeepSpeed: zero/partitioned_param_coordinator.py",
        example="RuntimeError: still have inflight params [{'id': 0, 'status': 'AVAILABLE'}]",
    ),
    Trouble(
        id="deepspeed/auto-left",
        shows=("invalid literal for int() with base 10: 'auto'", "not supported between instances of 'int' and 'str'...auto"),
        cause="an 'auto' of the DeepSpeed configuration was not filled in: the script starts DeepSpeed itself, or through a "
        "launcher that does not know the values",
        fix="start with accelerate launch (or deepspeed=... in the training arguments), or write numbers for train_batch_size "
        "and train_micro_batch_size_per_gpu",
        source="huggingface/transformers: deepspeed", kind="config-error",
        example="ValueError: invalid literal for int() with base 10: 'auto'",
    ),
    Trouble(
        id="deepspeed/loss-scale",
        shows=("Current loss scale already at minimum - cannot decrease scale anymore",),
        cause="float16 gradients overflow at the smallest loss scale: numbers beyond float16's range, or NaN in the model",
        fix="train in bfloat16 (bf16: true, fp16: false); a model that was trained in bfloat16 overflows in float16",
        source="microsoft/DeepSpeed: fp16 loss scaler", certainty="likely",
        example="Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
    ),
    Trouble(
        id="deepspeed/cpu-adam",
        shows=("'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'", "ninja: build stopped: subcommand failed"),
        cause="an extension that is compiled at first use failed to build",
        fix="install ninja, a compiler and the CUDA toolkit of torch's version, and clear ~/.cache/torch_extensions; the first "
        "error above names what is missing",
        source="microsoft/DeepSpeed: advanced install", kind="config-error",
        example="AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'",
    ),
    Trouble(
        id="deepspeed/zero3-slow-generation",
        shows=("ds3_gather_for_generation=False", "ds3_gather_for_generation: false"),
        cause="ds3_gather_for_generation=False keeps the weights sharded under ZeRO-3, so every generated token gathers all of "
        "them: generation is extremely slow and looks like a hang",
        fix="set ds3_gather_for_generation=True if the weights fit, generate with vLLM (use_vllm=True), or shorten "
        "max_completion_length",
        source="huggingface/trl#3858", severity="warn", certainty="likely", kind="config-error",
        example="    ds3_gather_for_generation=False,",
    ),
    Trouble(
        id="deepspeed/no-grad-accumulation-sync",
        shows=("no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage {stage}",),
        cause="gradients can't be accumulated without exchange under ZeRO stage {stage}: accelerate and DeepSpeed disagree",
        fix="upgrade accelerate (1.1 or newer with DeepSpeed 0.16), or use ZeRO stage 1",
        source="microsoft/DeepSpeed: engine.py", certainty="certain", kind="config-error",
        example="AssertionError: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3",
    ),
)  # fmt: skip
