"""CUDA and the GPU's memory."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble, Values


def _gib(size: str, unit: str) -> float:
    return float(size.replace(",", "")) / {"GiB": 1, "MiB": 1024, "KiB": 1024**2}[unit]


def _fragmented(values: Values) -> dict[str, object]:
    wanted, spare = _gib(values["want"], values["unit"]), _gib(values["spare"], values["spare_unit"])
    if spare < wanted or spare < 1:
        raise ValueError("the reserved memory would not do")
    return {}


def _filled(values: Values) -> dict[str, object]:
    if _gib(values["want"], values["unit"]) < 2:
        raise ValueError("a small piece")
    return {}


_OOM = "CUDA out of memory. Tried to allocate {want} {unit:w}. GPU {gpu} has a total capacity of {total} GiB of which"
_LOGITS = (
    "the logits of one pass don't fit: rows x length x vocabulary in float32, with copies for softmax and gradient; one "
    "allocation of {want} {unit} failed"
)
_LOGITS_FIX = (
    "fewer tokens a pass: a smaller micro-batch or token budget ({keys}), a shorter longest answer, or a loss that works "
    "in chunks (logprob_chunk_size in NeMo-RL, use_liger_loss in TRL, entropy_from_logits_with_chunking in veRL)"
)
_KEYS = (
    "per_device_train_batch_size in TRL; ppo_max_token_len_per_gpu and log_prob_micro_batch_size_per_gpu in veRL; "
    "--max-tokens-per-gpu in slime, whose later releases balance micro-batches by tokens"
)

TROUBLES = (
    Trouble(
        id="cuda/logits-out-of-memory",
        shows=(_OOM, "CUDA out of memory. Tried to allocate {want} {unit:w}."),
        frames=("log_prob", "logp", "logits", "entropy", "cross_entropy", "softmax", "vocab_parallel", "loss_function"),
        cause=_LOGITS, fix=_LOGITS_FIX, kind="out-of-memory",
        work=lambda v: _filled(v) | {"keys": _KEYS},
        source="THUDM/slime#1951",
        example='  File "/opt/slime/slime/utils/ppo_utils.py", line 672, in calculate_log_probs_and_entropy\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 44.07 GiB. GPU 0 has a total capacity of 139.81 GiB "
        "of which 39.50 GiB is free.",
    ),
    Trouble(
        id="cuda/weights-out-of-memory",
        shows=("CUDA out of memory. Tried to allocate {want} {unit:w}",),
        frames=("stage_1_and_2.py __init__", "stage3.py __init__", "partition_parameters", "modeling_utils", "from_pretrained",
                "module.py _apply", "module.py convert", "fully_sharded_data_parallel.py __init__", "_init_utils.py"),
        cause="the GPU was full while models were loaded or prepared, before the first step: weights and gradients of the models on "
        "one card are larger than its memory ({want} {unit} more were asked for)",
        fix="shard over more GPUs (ZeRO-3, FSDP), use LoRA or a 4-bit base or a smaller model, put fewer models on one card, and "
        "free what another process holds; a smaller micro-batch does not help here",
        source="OpenRLHF/OpenRLHF#275", kind="out-of-memory",
        example='  File "/x/deepspeed/runtime/zero/stage_1_and_2.py", line 330, in __init__\n'
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.55 GiB. GPU 0 has a total capacity of 23.65 GiB",
    ),
    Trouble(
        id="cuda/optimizer-out-of-memory",
        shows=("CUDA out of memory. Tried to allocate {want} {unit:w}",),
        frames=("_init_group", "adamw.py", "adam.py", "stage_1_and_2.py step", "stage3.py step"),
        cause="the GPU was full when the optimizer made or used its state: Adam keeps 8 bytes a weight from the first step on",
        fix="offload or shard the optimizer (optimizer_offload, ZeRO-2 or 3, FSDP), use LoRA or an 8-bit optimizer (optim='adamw_8bit'), "
        "or give the engine less memory (gpu_memory_utilization)",
        source="huggingface/transformers: GPU memory", kind="out-of-memory",
        example='  File "/x/torch/optim/adamw.py", line 180, in _init_group\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 520.00 MiB. GPU 0 has a total capacity of 23.65 GiB",
    ),
    Trouble(
        id="cuda/fragmented-memory",
        shows=(
            "CUDA out of memory. Tried to allocate {want} {unit:w}. ...and {spare} {spare_unit:w} is reserved by PyTorch but "
            "unallocated",
        ),
        cause="{spare} {spare_unit} are reserved and unused, more than the {want} {unit} that were asked for: the memory is "
        "fragmented, as happens with lengths that vary",
        fix="set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (not together with vLLM's sleep mode), and empty the "
        "cache between generation and update",
        source="pytorch/pytorch: CUDA memory management", kind="out-of-memory", work=_fragmented,
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 1.10 GiB is free. Of the allocated memory 60.01 GiB is allocated by PyTorch, and 15.20 GiB is "
        "reserved by PyTorch but unallocated.",
    ),
    Trouble(
        id="cuda/device-assert",
        shows=("device-side assert triggered",),
        cause="a kernel met an index out of range: most often a token id beyond the embedding (added tokens without a "
        "resize, another model's tokenizer), or NaN probabilities in sampling",
        fix="run once with CUDA_LAUNCH_BLOCKING=1 to see the operation; compare len(tokenizer) with "
        "model.get_input_embeddings().num_embeddings, and call model.resize_token_embeddings where tokens were added",
        source="pytorch/pytorch: CUDA error messages",
        example="RuntimeError: CUDA error: device-side assert triggered",
    ),
    Trouble(
        id="cuda/index-kernel",
        shows=("Assertion `srcIndex < srcSelectDimSize` failed", "Assertion `-sizes[i] <= index && index < sizes[i]"),
        cause="a token id is larger than the embedding: the tokenizer has more tokens than the model, or belongs to another "
        "model",
        fix="load tokenizer and model from the same folder; after adding tokens call "
        "model.resize_token_embeddings(len(tokenizer))",
        source="pytorch/pytorch: Indexing.cu", certainty="likely",
        example="../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [105,0,0], thread: [0,0,0] "
        "Assertion `srcIndex < srcSelectDimSize` failed.",
    ),
    Trouble(
        id="cuda/no-kernel-image",
        shows=("no kernel image is available for execution on the device", "is not compatible with the current PyTorch"),
        cause="this build of torch (or of an extension) has no code for this GPU's architecture",
        fix="install a build of torch for the GPU: CUDA 12.8 or newer for Blackwell (sm_120, sm_100), and rebuild extensions "
        "such as flash-attn with TORCH_CUDA_ARCH_LIST set",
        source="pytorch/pytorch: release notes", certainty="certain", kind="config-error",
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    Trouble(
        id="cuda/driver-too-old",
        shows=("The NVIDIA driver on your system is too old (found version {version})",),
        cause="the driver ({version}) is older than the CUDA version that torch was built with",
        fix="update the driver, or install a torch built for an older CUDA",
        source="pytorch/pytorch: torch/cuda/__init__.py", certainty="certain", kind="config-error",
        example="RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
    ),
    Trouble(
        id="cuda/illegal-access",
        shows=("an illegal memory access was encountered",),
        cause="a kernel read outside its memory: a fault of a compiled kernel (attention, fused loss, engine) with these "
        "shapes, or of the GPU",
        fix="run once with CUDA_LAUNCH_BLOCKING=1 to find the kernel; try another attention implementation (sdpa), the "
        "engine with enforce_eager=True, and newer releases. `dmesg | grep -i xid` tells a broken GPU",
        source="pytorch/pytorch: CUDA error messages", certainty="possible",
        example="RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    Trouble(
        id="cuda/ecc",
        shows=("uncorrectable ECC error encountered", "GPU has fallen off the bus", "CUDA error: unspecified launch failure"),
        cause="the GPU reports a hardware fault",
        fix="take the machine out, look at `nvidia-smi -q -d ECC` and `dmesg | grep -i xid`, and continue from the newest "
        "checkpoint elsewhere",
        source="NVIDIA: XID errors", certainty="likely", kind="infrastructure",
        example="RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    Trouble(
        id="cuda/cublas-memory",
        shows=("CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate"),
        cause="cuBLAS found no memory for its handle: the GPU is full",
        fix="leave memory free: lower the engine's share (gpu_memory_utilization), the micro-batch, or offload",
        source="pytorch/pytorch: CUDABlas.cpp", kind="out-of-memory",
        example="RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    ),
    Trouble(
        id="cuda/no-device",
        shows=("No CUDA GPUs are available", "Found no NVIDIA driver on your system", "Torch not compiled with CUDA enabled"),
        cause="torch sees no GPU: CUDA_VISIBLE_DEVICES is empty, the container was started without GPUs, or torch is a CPU "
        "build",
        fix="check nvidia-smi in the same container (docker run --gpus all), CUDA_VISIBLE_DEVICES, Ray's num_gpus of the "
        "actor, and torch.version.cuda",
        source="pytorch/pytorch: torch/cuda/__init__.py", certainty="certain", kind="config-error",
        example="RuntimeError: No CUDA GPUs are available",
    ),
    Trouble(
        id="cuda/nvcc-missing",
        shows=("CUDA_HOME does not exist, unable to compile CUDA op(s)", "CUDA_HOME environment variable is not set"),
        cause="an extension is compiled when it is first used, and no CUDA toolkit is installed for it",
        fix="install the toolkit of torch's CUDA version and set CUDA_HOME, or install ready-made wheels; without DeepSpeed's "
        "fused Adam: optimizer torch_adam",
        source="microsoft/DeepSpeed: op_builder/builder.py", certainty="certain", kind="config-error",
        example="deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA "
        "op(s)",
    ),
)  # fmt: skip
