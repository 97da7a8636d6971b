"""CUDA and the GPU's memory."""

from __future__ import annotations

from math import ceil

from stabilizer.troubles.trouble import Trouble, Values


def _gib(size: str, unit: str) -> float:
    return float(size.replace(",", "")) / {"GiB": 1, "MiB": 1024, "KiB": 1024**2, "bytes": 1024**3}[unit]


LEAST_SPARE_GIB = 1.0
"""GiB reserved and unused below which nothing is said of fragmentation: PyTorch keeps that much at any time."""
LEAST_SPARE_SHARE = 0.05
"""The same as a share of what PyTorch holds: of 80 GiB it keeps 1 to 3 unused, and giving them back helps for a moment."""


def _accounts(values: Values) -> dict[str, float]:
    """The sizes that the message tells, in GiB. Before torch 2.1 it holds the reserved total."""
    sizes = {name: _gib(values[name], values[f"{name}_unit"]) for name in _SIZES if name in values}
    if "reserved" in sizes:
        sizes["spare"] = max(0.0, sizes["reserved"] - sizes["used"])
    return sizes | {"want": _gib(values["want"], values["unit"])}


_SIZES = ("used", "free", "spare", "reserved")


def _fragmented(values: Values) -> dict[str, object]:
    sizes = _accounts(values)
    held = sizes["used"] + sizes["spare"]
    if sizes["spare"] < max(sizes["want"], LEAST_SPARE_GIB, LEAST_SPARE_SHARE * held):
        raise ValueError("the reserved memory would not do")
    return {"spare_gib": f"{sizes['spare']:.1f}"}


def _full(values: Values) -> dict[str, object]:
    sizes = _accounts(values)
    short = sizes["want"] - sizes["free"]
    outside = float(values["total"]) - sizes["used"] - sizes["spare"] - sizes["free"]
    others = f", {outside:.1f} belong to other processes and to CUDA" if outside > MUCH_GIB else ""
    shown: dict[str, object] = {name: f"{size:.1f}" for name, size in sizes.items()}
    return shown | {"others": others, "short": f"{max(short, 0):.2f}"}


VOCABULARIES = {"Qwen": 151_936, "Llama 3": 128_256, "Mistral": 32_768}
"""Tokens of common vocabularies, from the models' config.json."""
COPIES = 3
"""Tensors of the size of the logits that live at once: the logits, their softmax and the gradient."""


def _logits(values: Values) -> dict[str, object]:
    """What the refused tensor holds, and how much smaller a pass must be."""
    want = _gib(values["want"], values["unit"])
    if want < LEAST_LOGITS_GIB:
        raise ValueError("a small piece")
    tokens = {name: want * 1024**3 / 4 / size for name, size in VOCABULARIES.items()}
    held = ", ".join(
        f"{round(count, -2):,.0f} tokens of {name}'s {VOCABULARIES[name]:,}" for name, count in tokens.items()
    )
    free = _gib(values["free"], values["free_unit"]) if "free" in values else 0.0
    less = f": {free:.1f} GiB were free, so at least {ceil(COPIES * want / free)} times fewer" if free else ""
    return {"keys": _KEYS, "held": held, "less": less}


LEAST_LOGITS_GIB = 2.0
"""GiB of a tensor from which it is taken for logits where the function that failed computes them."""
MUCH_GIB = 2.0
"""GiB of another process from which it explains a lack: a bare CUDA context takes about half of one."""
LARGE_SHARE = 0.25
"""Share of the GPU from which one allocation counts as too large by itself."""


def _much_held(values: Values) -> dict[str, object]:
    if float(values["held"].replace(",", "")) < MUCH_GIB:
        raise ValueError("a context alone")
    return {}


def _large_share(values: Values) -> dict[str, object]:
    share = float(values["want"].replace(",", "")) / float(values["total"].replace(",", ""))
    if share < LARGE_SHARE:
        raise ValueError("a small part")
    return {"share": f"{share:.0%}"}


_OOM = "CUDA out of memory. Tried to allocate {want} {unit:w}. GPU {gpu} has a total capacity of {total} GiB of which"
_LOGITS = (
    "the logits of one pass don't fit: rows x length x vocabulary in float32, with copies for softmax and gradient; one "
    "allocation of {want} {unit} failed ({held})"
)
_LOGITS_FIX = (
    "fewer tokens a pass{less}. That is a smaller micro-batch or token budget ({keys}), a shorter longest answer, or a loss that works "
    "in chunks (logprob_chunk_size in NeMo-RL, use_liger_loss in TRL, entropy_from_logits_with_chunking in veRL)"
)
_KEYS = (
    "per_device_train_batch_size in TRL; ppo_max_token_len_per_gpu and log_prob_micro_batch_size_per_gpu in veRL; "
    "--max-tokens-per-gpu in slime, whose later releases balance micro-batches by tokens"
)

_BEFORE_2_1 = (
    "Tried to allocate {want} {unit:w} (GPU {gpu}; {total} GiB total capacity; {used} {used_unit:w} already allocated; {free} "
    "{free_unit:w} free; {reserved} {reserved_unit:w} reserved in total by PyTorch"
)

TROUBLES = (
    Trouble(
        id="cuda/logits-out-of-memory",
        shows=(_OOM + " {free} {free_unit:w} is free", _OOM, "CUDA out of memory. Tried to allocate {want} {unit:w}."),
        frames=("log_prob", "logp", "logits", "entropy", "cross_entropy", "softmax", "vocab_parallel", "loss_function"),
        cause=_LOGITS, fix=_LOGITS_FIX, kind="out-of-memory",
        work=_logits,
        source="THUDM/slime#1951",
        example='  File "/opt/slime/slime/utils/ppo_utils.py", line 672, in calculate_log_probs_and_entropy\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 44.07 GiB. GPU 0 has a total capacity of 139.81 GiB "
        "of which 39.50 GiB is free.",
    ),
    Trouble(
        id="cuda/weights-out-of-memory",
        shows=("CUDA out of memory. Tried to allocate {want} {unit:w}",),
        frames=("stage_1_and_2.py __init__", "stage3.py __init__", "_post_init_method", "_zero_init_param", "modeling_utils", "from_pretrained",
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
            "CUDA out of memory. Tried to allocate {want} {unit:w}. ...Of the allocated memory {used} {used_unit:w} is allocated by "
            "PyTorch...and {spare} {spare_unit:w} is reserved by PyTorch but unallocated", _BEFORE_2_1,
        ),
        cause="{spare_gib} GiB are reserved and unused, more than the {want} {unit} that were asked for: the memory is "
        "fragmented, as happens with lengths that vary",
        fix="set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (not together with vLLM's sleep mode), and empty the "
        "cache between generation and update",
        source="pytorch/pytorch: CUDA memory management", kind="out-of-memory", work=_fragmented,
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 1.10 GiB is free. Of the allocated memory 60.01 GiB is allocated by PyTorch, and 15.20 GiB is "
        "reserved by PyTorch but unallocated.",
    ),
    Trouble(
        id="cuda/full",
        shows=(
            "Tried to allocate {want} {unit:w}. GPU {gpu} has a total ... of {total} GiB of which {free} {free_unit:w} is free...Of the "
            "allocated memory {used} {used_unit:w} is allocated by PyTorch, and {spare} {spare_unit:w} is reserved by PyTorch but",
            _BEFORE_2_1,
        ),
        cause="a GPU of {total} GiB is full: tensors hold {used} GiB, {spare} are reserved and unused, {free} are free{others}; the next "
        "tensor lacks {short} GiB, so the amount is the trouble and not fragmentation",
        fix="run fewer completions or tokens through the model at once (the trainer's micro-batch key, which changes memory and speed "
        "alone), switch gradient checkpointing on, or shorten the longest completion; give an engine on the same GPU less",
        source="pytorch/pytorch: CUDACachingAllocator.cpp", kind="out-of-memory", work=_full, general=True, gpu_memory=True,
        example="torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 130.00 MiB (GPU 0; 79.15 GiB total capacity; 77.02 GiB "
        "already allocated; 12.56 MiB free; 77.10 GiB reserved in total by PyTorch)",
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
        shows=("Assertion `srcIndex < srcSelectDimSize` failed", "Assertion `-sizes[i] <= index && index < sizes[i]", "Assertion `idx_dim >= 0 && idx_dim < index_size"),
        cause="an index is out of range: a token id beyond the embedding (the tokenizer has more tokens than the model, or belongs to another), or "
        "positions beyond what the model supports, as with sequence packing in a model that does not take it",
        fix="load tokenizer and model from the same folder; after adding tokens call "
        "model.resize_token_embeddings(len(tokenizer)). If they fit: switch sequence packing (remove padding) off, and compare the longest row with max_position_embeddings",
        source="pytorch/pytorch: Indexing.cu",
        example="../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [105,0,0], thread: [0,0,0] "
        "Assertion `srcIndex < srcSelectDimSize` failed.",
    ),
    Trouble(
        id="cuda/no-kernel-image",
        shows=("no kernel image is available for execution on the device", "CUDA error: invalid device function", "HIP error: invalid device function", "HIP error: no kernel image is available", "is not compatible with the current PyTorch"),
        cause="this build of torch (or of an extension) has no code for this GPU's architecture",
        fix="install a build of torch for the GPU: CUDA 12.8 or newer for Blackwell (sm_120, sm_100), and rebuild extensions "
        "such as flash-attn with TORCH_CUDA_ARCH_LIST set. AMD: torch for your ROCm, or HSA_OVERRIDE_GFX_VERSION=11.0.0 (10.3.0 for RDNA 2)",
        source="pytorch/pytorch: release notes", certainty="certain", kind="config-error",
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    Trouble(
        id="cuda/ecc",
        shows=("uncorrectable ECC error encountered", "GPU has fallen off the bus"),
        cause="the GPU reports a hardware fault",
        fix="take the machine out, look at `nvidia-smi -q -d ECC` and `dmesg | grep -i xid`, and continue from the newest "
        "checkpoint elsewhere",
        source="NVIDIA: XID errors", certainty="likely", kind="infrastructure",
        example="RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    Trouble(
        id="cuda/cublas-memory",
        shows=("CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate"),
        cause="cuBLAS could not make its handle: mostly the GPU is full; else an index out of range failed just before, or the driver does not fit",
        fix="leave memory free: lower the engine's share (gpu_memory_utilization), the micro-batch, or offload. With memory left: CUDA_LAUNCH_BLOCKING=1, and compare len(tokenizer) with the embedding",
        source="pytorch/pytorch: CUDABlas.cpp", certainty="possible", kind="out-of-memory",
        example="RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    ),
    Trouble(
        id="cuda/no-device",
        shows=("No CUDA GPUs are available", "Found no NVIDIA driver on your system", "Torch not compiled with CUDA enabled", "Unsloth cannot find any torch accelerator",
               "Unsloth: No NVIDIA GPU found", "Unsloth currently only works on NVIDIA GPUs"),
        cause="torch sees no GPU: CUDA_VISIBLE_DEVICES is empty, the container was started without GPUs, or torch is a CPU "
        "build",
        fix="check nvidia-smi in the same container (docker run --gpus all), CUDA_VISIBLE_DEVICES, Ray's num_gpus of the "
        "actor, torch.version.cuda, and the runtime of a notebook (Colab: T4)",
        source="pytorch/pytorch: torch/cuda/__init__.py", certainty="certain", kind="config-error",
        example="RuntimeError: No CUDA GPUs are available",
    ),
    Trouble(
        id="cuda/another-process",
        shows=("Process {pid} has {held} GiB memory in use. Including non-PyTorch memory, this process has {own} GiB memory in use",),
        cause="another process (id {pid}) holds {held} GiB of this GPU, beside the {own} GiB of this one",
        fix="if process {pid} is an engine that shares the GPU on purpose, lower its gpu_memory_utilization (mem_fraction_static); if it is "
        "left over from an earlier run, end it (nvidia-smi, kill {pid}); else take another GPU (CUDA_VISIBLE_DEVICES)",
        source="pytorch/pytorch: CUDACachingAllocator.cpp", certainty="likely", kind="out-of-memory", work=_much_held,
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
        "640.00 MiB is free. Process 3141 has 52.40 GiB memory in use. Including non-PyTorch memory, this process has 25.9 GiB memory in use.",
    ),
    Trouble(
        id="cuda/one-large-tensor",
        shows=("Tried to allocate {want} GiB. GPU {gpu} has a total capacity of {total} GiB", "Tried to allocate {want} GiB. GPU {gpu} has a "
               "total capacty of {total} GiB", "Tried to allocate {want} GiB (GPU {gpu}; {total} GiB total capacity"),
        cause="one tensor of {want} GiB is asked for on a GPU of {total} GiB: that is {share} of it, so it is the size of this tensor and "
        "not fragmentation. Such tensors are logits (rows x length x vocabulary), an attention matrix (length squared) or a whole model",
        fix="fewer rows or shorter texts in one pass: micro-batch 1, a shorter max_completion_length, chunked or fused logits (Liger, "
        "logits_to_keep), flash attention instead of eager; shards (ZeRO-3, FSDP) if it is the model",
        source="pytorch/pytorch: CUDA memory", certainty="likely", kind="out-of-memory", work=_large_share,
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 37.09 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
        "12.10 GiB is free.",
    ),
    Trouble(
        id="cuda/attention-out-of-memory",
        shows=("CUDA out of memory. Tried to allocate {want} {unit:w}",),
        frames=("eager_attention_forward", "_upad_input", "attn_weights", "_prepare_4d_causal", "_update_causal_mask"), innermost=True,
        cause="attention is computed as a whole matrix here (eager): its memory grows with the square of the length",
        fix="attn_implementation='flash_attention_2' or 'sdpa', shorter texts, or fewer rows a pass",
        source="huggingface/transformers: attention", kind="out-of-memory",
        example='  File "/x/site-packages/transformers/models/qwen2/modeling_qwen2.py", line 120, in eager_attention_forward\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has a total capacity of 79.10 GiB",
    ),
    Trouble(
        id="cuda/generation-out-of-memory",
        shows=("CUDA out of memory. Tried to allocate {want} {unit:w}",),
        frames=("transformers/generation", "transformers/cache_utils", "generation/utils.py", "cache_utils.py", "model_generate"),
        cause="memory ran out while transformers generates: the key-value cache grows with rows x (prompt + answer), and all answers of the "
        "batch are generated together",
        fix="generate fewer rows at a time (per_device_train_batch_size, per_device_eval_batch_size, generation_batch_size), shorten "
        "max_completion_length, or generate with vLLM (use_vllm=True)",
        source="huggingface/trl: reducing memory", kind="out-of-memory",
        example='  File "/x/site-packages/transformers/generation/utils.py", line 3206, in _sample\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 52.00 MiB. GPU 0 has a total capacity of 23.57 GiB",
    ),
    Trouble(
        id="cuda/backward-out-of-memory",
        shows=("CUDA out of memory. Tried to allocate {want} {unit:w}",),
        frames=("torch/_tensor.py backward", "autograd/graph.py", "_engine_run_backward", "torch/autograd/__init__.py backward",
                "accelerator.py backward", "engine.py backward", "checkpoint.py backward"),
        cause="memory ran out in the backward pass: activations of all layers for the rows of one micro-batch, and the gradients, are held at "
        "once",
        fix="micro-batch 1 with more accumulation steps (the optimisation stays the same), gradient_checkpointing=True, shorter texts; then "
        "shards or offload (ZeRO-2/3, FSDP), LoRA or an 8-bit optimizer for the gradients and states",
        source="huggingface/transformers: memory", kind="out-of-memory",
        example='  File "/x/site-packages/torch/_tensor.py", line 581, in backward\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 79.10 GiB",
    ),
    Trouble(
        id="cuda/gather-out-of-memory",
        shows=("CUDA out of memory. Tried to allocate {want} {unit:w}",),
        frames=("full_tensor", "summon_full_params", "_post_state_dict_hook", "GatheredParameters", "all_gather_coalesced",
                "partition_parameters.py __enter__", "full_state_dict", "get_model_state_dict", "save_checkpoint", "update_weights", "sync_weights",
                "_move_model_to_vllm", "_move_full_model_to_vllm"),
        cause="the whole model is gathered on one GPU here, to be saved or sent to the engine, and does not fit beside what is there",
        fix="gather parameter by parameter or layer by layer (ds3_gather_for_generation=False, move_model_batches in ms-swift with a release "
        "that gathers batch by batch, sharded checkpoints: SHARDED_STATE_DICT), "
        "offload the gathered copy to the CPU, and lower the engine's share (gpu_memory_utilization)",
        source="pytorch/pytorch: FSDP", kind="out-of-memory",
        example='  File "/x/site-packages/trl/trainer/grpo_trainer.py", line 950, in _move_model_to_vllm\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 79.10 GiB",
    ),
    Trouble(
        id="cuda/out-of-memory-at-start",
        shows=("CUDA error: out of memory", "CUDA driver error: out of memory"),
        cause="the GPU has no memory even for a first allocation outside torch's own pool: another process or an engine holds it",
        fix="nvidia-smi shows who; end left-over processes, choose another GPU (CUDA_VISIBLE_DEVICES), or lower the engine's share "
        "(gpu_memory_utilization) when trainer and engine share it",
        source="pytorch/pytorch: CUDA semantics", certainty="likely", kind="out-of-memory",
        example="RuntimeError: CUDA error: out of memory",
    ),
    Trouble(
        id="cuda/fabric-manager",
        shows=("Error 802: system not yet initialized", "CUDA error: system not yet initialized"),
        cause="GPUs joined by NVSwitch need the Fabric Manager service, which does not run or is of another version than the driver",
        fix="systemctl start nvidia-fabricmanager, in exactly the driver's version (nvidia-smi shows it); in a cloud: another machine",
        source="NVIDIA: Fabric Manager", certainty="certain", kind="infrastructure",
        example="RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() "
        "that might have already set an error? Error 802: system not yet initialized",
    ),
    Trouble(
        id="cuda/driver-combination",
        shows=("Error 803: system has unsupported display driver / cuda driver combination", "Error 804: forward compatibility was "
               "attempted on non supported HW", "Failed to initialize NVML: Driver/library version mismatch",
               "CUDA driver version is insufficient for CUDA runtime version", "The NVIDIA driver on your system is too old (found version"),
        cause="the driver of the machine and the CUDA libraries of this environment or container do not fit: the driver is older than what torch was built for, was upgraded without "
        "a reboot, or the container brings newer (compat) libraries than the driver allows",
        fix="reboot after a driver upgrade; else upgrade the driver, take a torch or an image of an older CUDA, or remove /usr/local/cuda/compat from "
        "LD_LIBRARY_PATH",
        source="NVIDIA: CUDA compatibility", certainty="certain", kind="infrastructure",
        example="RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW",
    ),
    Trouble(
        id="cuda/unknown-error",
        shows=("CUDA unknown error - this may be due to an incorrectly set up environment",
               "CUDA driver initialization failed, you might not have a CUDA gpu", "Unexpected error from cudaGetDeviceCount()"),
        cause="CUDA could not be started: CUDA_VISIBLE_DEVICES was changed after torch had started or names a GPU that is not there, or the "
        "driver lost its state (after suspend)",
        fix="set CUDA_VISIBLE_DEVICES before Python starts, not in the script; check nvidia-smi; sudo rmmod nvidia_uvm && sudo modprobe "
        "nvidia_uvm, or reboot",
        source="pytorch/pytorch: CUDAFunctions.cpp", certainty="likely", kind="infrastructure",
        example="RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable "
        "CUDA_VISIBLE_DEVICES after program start.",
    ),
    Trouble(
        id="cuda/busy",
        shows=("CUDA-capable device(s) is/are busy or unavailable", "all CUDA-capable devices are busy or unavailable"),
        cause="the GPU is in exclusive mode and used by another process, or in a bad state",
        fix="nvidia-smi shows the mode and the process; nvidia-smi -c 0 allows several processes (rank and engine share one GPU in "
        "colocation), or end the other process",
        source="NVIDIA: compute modes", certainty="likely", kind="infrastructure",
        example="RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    ),
    Trouble(
        id="cuda/kernel-failed",
        shows=("RuntimeError: CUDA error: an illegal instruction was encountered", "CUDA error: misaligned address", "CUDA error: unknown error",
               "CUDA error: unspecified launch failure", "an illegal memory access was encountered"),
        cause="a kernel failed on the GPU: a fault of a compiled kernel (attention, fused loss, engine) with these shapes, or of the GPU. The line that is shown is not where it happened, because "
        "kernels run later than they are called",
        fix="run once with CUDA_LAUNCH_BLOCKING=1 for the true place; then another attention implementation (sdpa), no custom kernels (flash-attn, Liger, fused optimizers, the engine with "
        "enforce_eager=True), and the torch and CUDA releases that the package names. `dmesg | grep -i xid` tells a broken GPU",
        source="pytorch/pytorch: CUDA semantics", certainty="possible", kind="infrastructure",
        example="RuntimeError: CUDA error: misaligned address",
    ),
)  # fmt: skip
