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
        shows=("'weight' must be 2-D", "size mismatch, got input ({a}), mat ({b:w}), vec (0)"),
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
        fix="use ZeRO-2, which keeps weights whole; else load the model inside DeepSpeed's context (TrainingArguments before "
        "from_pretrained) and gather a value head before it is loaded, or upgrade transformers and accelerate",
        source="hiyouga/LlamaFactory#2189",
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
        id="deepspeed/active-sub-modules",
        shows=("^assert not param.ds_active_sub_modules", "'active_sub_modules': {"),
        cause="under ZeRO-3 a module was still at work when its weights were to be released: ranks ran different numbers of passes, as with a last batch that "
        "is smaller on some of them",
        fix="make every batch equal on all ranks: a data set or batch that is a multiple of processes x per-device batch (drop_last=True cuts the rest), the "
        "processes without the one that the engine uses; upgrade DeepSpeed, or use ZeRO-2",
        source="huggingface/open-r1#299", certainty="likely", kind="program-error",
        frames=("partitioned_param_coordinator", "zero/"),
        example='  File "/x/site-packages/deepspeed/runtime/zero/partitioned_param_coordinator.py", line 217, in release_and_reset_all\n'
        "    assert not param.ds_active_sub_modules, param.ds_summary()\n"
        "AssertionError: {'id': 0, 'status': 'AVAILABLE', 'numel': 8, 'active_sub_modules': {2}}",
    ),
    Trouble(
        id="deepspeed/order-lost",
        shows=("pop from an empty deque", "already in registry", "'status': 'NOT_AVAILABLE'", "'status': 'INFLIGHT'"),
        frames=("partitioned_param_coordinator", "partition_parameters", "parameter_offload", "zero/"),
        cause="ZeRO-3 loads parameters in the order of the pass before, and this pass uses them in another: generation between two training passes, a reference or value model that shares "
        "weights, a part that is skipped for some batches, or experts",
        fix="ZeRO-2 (or FSDP) if it fits; else an engine for generation instead of model.generate, a reference of its own (no shared weights), stage3_prefetch_bucket_size 0, and for experts "
        "deepspeed.utils.set_z3_leaf_modules; upgrade DeepSpeed",
        source="deepspeedai/DeepSpeed#4194", certainty="likely",
        example='  File "/x/site-packages/deepspeed/runtime/zero/partitioned_param_coordinator.py", line 301, in fetch_sub_module\n'
        "IndexError: pop from an empty deque",
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
        shows=("Current loss scale already at minimum - cannot decrease scale anymore", "Minimum loss scale reached"),
        cause="float16 gradients overflow at the smallest loss scale: numbers beyond float16's range, or NaN in the model",
        fix="train in bfloat16 (bf16: true, fp16: false); a model that was trained in bfloat16 overflows in float16",
        source="microsoft/DeepSpeed: fp16 loss scaler", certainty="likely",
        example="Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
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
    Trouble(
        id="deepspeed/cuda-mismatch",
        shows=("Installed CUDA version {have:w} does not match the version torch was compiled with {want:w}, unable to compile",),
        cause="DeepSpeed compiles a part at first use with the CUDA toolkit {have}, and torch was built for {want}",
        fix="install the toolkit of CUDA {want} (conda install -c nvidia cuda-toolkit={want}) or torch for CUDA {have}; if only the minor version "
        "differs, DS_SKIP_CUDA_CHECK=1; or avoid the part: optimizer offload (cpu_adam) off, torch's own AdamW",
        source="deepspeedai/DeepSpeed: op_builder/builder.py", certainty="certain", kind="config-error",
        example="deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 11.8 does not match the version "
        "torch was compiled with 12.1, unable to compile cuda/cpp extensions without a matching cuda version.",
    ),
    Trouble(
        id="deepspeed/extension-not-built",
        shows=("Error building extension '{name:w}'", "{name:w}.so: cannot open shared object file: No such file or directory",
               "Unable to JIT load the {name:w} op due to"),
        frames=("deepspeed", "cpp_extension", "op_builder"),
        cause="the compiled part {name} could not be built or was built half: no compiler or toolkit, another CUDA than torch's, or several ranks that "
        "built it at once",
        fix="the first compiler error above names what is missing (ninja, g++ 9 or later, nvcc of torch's CUDA, libaio-dev for async_io); then rm -rf "
        "~/.cache/torch_extensions and start once with one process",
        source="deepspeedai/DeepSpeed: advanced install", certainty="likely", kind="config-error",
        example='  File "/x/site-packages/torch/utils/cpp_extension.py", line 2096, in _run_ninja_build\n'
        "RuntimeError: Error building extension 'cpu_adam'",
    ),
    Trouble(
        id="deepspeed/parameter-not-partitioned",
        shows=("'Parameter' object has no attribute 'ds_{name:w}'", "'ds_status': <ZeroParamStatus", "has no attribute 'ds_id'",
               "'NoneType' object has no attribute 'ds_{name:w}'"),
        cause="under ZeRO-3 a parameter is used that DeepSpeed does not know or has not gathered: a layer added or a model made outside its context "
        "(adapters, a value head, a resized embedding, a reference model prepared separately)",
        fix="make the model complete before the trainer wraps it (add adapters and resize embeddings first, TrainingArguments before from_pretrained), "
        "call the wrapped model only, or use ZeRO-2",
        source="deepspeedai/DeepSpeed: zero/partition_parameters.py", certainty="likely",
        example="AttributeError: 'Parameter' object has no attribute 'ds_status'",
    ),
    Trouble(
        id="deepspeed/nothing-to-train",
        shows=("max() arg is an empty sequence", "max() iterable argument is empty", "optimizer got an empty parameter list"),
        frames=("deepspeed", "optimizer", "optim"),
        cause="no parameter is to be trained: all weights are frozen, the adapter was not applied or was loaded for inference",
        fix="model.print_trainable_parameters() must show some; PeftModel.from_pretrained(..., is_trainable=True), target_modules that exist, and "
        "no requires_grad_(False) on everything",
        source="deepspeedai/DeepSpeed: zero/stage3.py", certainty="likely", kind="config-error",
        example='  File "/x/site-packages/deepspeed/runtime/zero/stage3.py", line 640, in _create_fp16_partitions\n'
        "ValueError: max() arg is an empty sequence",
    ),
    Trouble(
        id="deepspeed/gather-types",
        shows=("output tensor must have the same type as input tensor",),
        cause="ZeRO-3 gathers weights of two types at once: some layers (an adapter, a norm, a value head) are float32 beside bf16 or fp16",
        fix="cast the whole model to one type before it is wrapped (torch_dtype, adapters with autocast_adapter_dtype=False), and bf16: true in the DeepSpeed "
        "configuration",
        source="deepspeedai/DeepSpeed", certainty="likely", kind="config-error",
        example="RuntimeError: output tensor must have the same type as input tensor",
    ),
    Trouble(
        id="deepspeed/fractional-setting",
        shows=("Input should be a valid integer, got a number with a fractional part [type=int_from_float",),
        frames=("deepspeed", "config"),
        cause="transformers fills stage3_prefetch_bucket_size with 0.9 x hidden size squared, which is no whole number, and newer DeepSpeed refuses that",
        fix="pip install -U transformers accelerate (fixed there), or write a whole number for stage3_prefetch_bucket_size, or deepspeed<0.16",
        source="huggingface/transformers", certainty="likely", kind="config-error",
        example='  File "/x/site-packages/deepspeed/runtime/config.py", line 97, in get_zero_config\n'
        "  Input should be a valid integer, got a number with a fractional part [type=int_from_float, input_value=11560550.4, input_type=float]",
    ),
    Trouble(
        id="deepspeed/no-optimizer",
        shows=("zero stage 3 requires an optimizer", "zero stage {stage} requires an optimizer"),
        cause="a model without optimizer (a reference or reward model) is given to DeepSpeed with a ZeRO stage that needs one",
        fix="stage 0 for such a model, or 3 for inference through the trainer's own preparation (prepare_deepspeed); upgrade DeepSpeed and accelerate",
        source="deepspeedai/DeepSpeed: engine.py", certainty="likely", kind="config-error",
        example="AssertionError: zero stage 2 requires an optimizer",
    ),
    Trouble(
        id="deepspeed/overflow",
        shows=("[deepspeed] OVERFLOW! Rank {rank} Skipping step. Attempted loss scale: {scale}", "OVERFLOW! Skipping step. Attempted loss scale: {scale}"),
        cause="a float16 gradient overflowed and the update was skipped, at a loss scale of {scale}: expected in the first steps, a fault when it goes on",
        fix="if it repeats after some 20 steps, train in bfloat16 (bf16: true, fp16: false); a scale that falls to 1 means the loss itself is inf or NaN",
        source="deepspeedai/DeepSpeed: fp16/loss_scaler.py", severity="info", certainty="certain",
        example="[2025-03-02 10:00:12,123] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: "
        "4294967296, reducing to 2147483648",
    ),
    Trouble(
        id="deepspeed/cache-flushes",
        shows=("{n} pytorch allocator cache flushes since last step",),
        cause="the GPU's memory is nearly full: torch gave its reserve back {n} times in one step, which costs much time",
        fix="a smaller micro-batch or shorter texts, gradient checkpointing, a higher ZeRO stage; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True if "
        "lengths vary",
        source="deepspeedai/DeepSpeed: zero/stage3.py", severity="warn", certainty="certain", kind="out-of-memory",
        example="[WARNING] [stage3.py:1949:step] 3 pytorch allocator cache flushes since last step. this happens when there is high memory pressure and is "
        "detrimental to performance.",
    ),
    Trouble(
        id="deepspeed/config-not-read",
        shows=("Expected a string path to an existing deepspeed config, or a dictionary",),
        cause="the DeepSpeed configuration that is named does not exist there, seen from the folder the program starts in",
        fix="give an absolute path to the JSON file, and check that every node has it",
        source="deepspeedai/DeepSpeed: runtime/config.py", certainty="certain", kind="config-error",
        example="ValueError: Expected a string path to an existing deepspeed config, or a dictionary or a valid base64. Received: ds_config.json",
    ),
)  # fmt: skip
