"""Packages that do not fit together, and what the environment of a training lacks."""

from __future__ import annotations

from typing import Any

from stabilizer.troubles.arithmetic import whole
from stabilizer.troubles.trouble import Trouble, Values

LIBRARY = ("site-packages", "dist-packages")
"""The last frames lie in installed code: the caller was written for another release."""
TOGETHER = (
    "install the versions that the trainer names (setup.py, requirements, Dockerfile), all together: trainer, torch, vLLM,"
    " transformers, flash-attn; `pip show` tells what is there"
)


def _nonempty(values: Values) -> dict[str, object]:
    if not whole(values["want"]):
        raise ValueError("empty under ZeRO-3")
    return {}


def _release(what: str, shows: tuple[str, ...], cause: str, example: str, fix: str = "", **more: Any) -> Trouble:
    """Two packages of releases that do not fit together, by what one misses of the other."""
    return Trouble(
        id=f"versions/{what}", shows=shows, cause=cause, fix=f"{fix}; {TOGETHER}" if fix else TOGETHER, example=example,
        kind="config-error", **({"source": "huggingface/trl: installation", "certainty": "possible"} | more),
    )  # fmt: skip


_KNOWN = ("torch", "transformers", "trl", "datasets", "triton", "ray", "vllm", "verl", "sglang", "megatron")
"""Packages whose parts go missing with a release, not with a mistake in the user's code."""
_IMPORTED = ("transformers", "trl", "vllm", "peft", "accelerate", "huggingface_hub")
_OF_CALLER = "trl/trainer/grpo_trainer.py"
_RELEASES = (
    _release(
        "module-gone", tuple(f"No module named '{package}.{{name:w}}'" for package in _KNOWN),
        "the installed release has no module {name}: it was moved or removed since the calling code was written, or comes "
        "from a newer release",
        "ModuleNotFoundError: No module named 'vllm.worker.worker_base'", certainty="likely",
    ),
    *(
        _release(
            name, shows,
            "{name} does not exist in the installed release of the package in the message: it was renamed, moved or removed, or "
            "comes with a later one; the importing code was written for another release",
            example, "install the release of that package which the importing one names, or upgrade the importing one",
            certainty=certainty,
        )
        for name, certainty, shows, example in (
            ("cannot-import-known", "likely", tuple(f"cannot import name '{{name:w}}' from '{package}" for package in _IMPORTED),
             "ImportError: cannot import name 'is_torch_xpu_available' from 'transformers.utils' (/opt/x/__init__.py)"),
            ("cannot-import", "possible", ("cannot import name '{name:w}' from '{module:w}'",),
             "ImportError: cannot import name 'EntryNotFoundError' from 'datasets.utils' (/x/datasets/utils/__init__.py)"),
        )
    ),
    _release(
        "library-has-no",
        tuple(f"module '{package}{rest}' has no attribute '{{name:w}}'" for package in _KNOWN for rest in ("", ".{rest:w}")),
        "the installed release has no {name}: the calling code was written for a newer (or much older) one",
        "AttributeError: module 'torch.library' has no attribute 'register_fake'",
        "upgrade the package that the message names, or pin the caller to a release of its time", certainty="likely",
    ),
    _release(
        "attribute-of-module", ("module '{module:w}' has no attribute '{name:w}'",),
        "{module} has no {name}: the calling code was written for another release, or a file of yours has the same name",
        "AttributeError: module 'xformers.ops' has no attribute 'memory_efficient_attention'",
    ),
    _release(
        "attribute-of-object", ("'{kind:w}' object has no attribute '{name:w}'",),
        "{caller} reads {name} of a {kind}, and the installed release has none: it was renamed or removed, so {caller} and "
        "the package of {kind} are of different releases",
        f"  File \"/x/site-packages/{_OF_CALLER}\", line 404, in f\n"
        "AttributeError: 'Qwen2_5_VLConfig' object has no attribute 'hidden_size'",
        "upgrade {caller} if {kind} is of a newer package, or install the release of that package which {caller} names",
        frames=LIBRARY,
    ),
    _release(
        "unexpected-keyword", ("got an unexpected keyword argument '{key:w}'",),
        "{caller} passes {key}, and the called function of the installed release has no such argument: {caller} and the "
        "package it calls are of different releases",
        f"  File \"/x/site-packages/{_OF_CALLER}\", line 404, in f\n"
        "TypeError: unwrap_model_for_generation() got an unexpected keyword argument 'is_peft_model'",
        "upgrade both together (pip install -U {caller} {above}), or pin the older one to what the other names",
        frames=LIBRARY,
    ),
    _release(
        "other-arguments",
        ("{name:w}() takes {n} positional argument", "{name:w}() takes from {n} to {m} positional arguments",
         "{name:w}() missing {n} required positional argument", "{name:w}() missing {n} required keyword-only argument"),
        "installed code calls {name} with other arguments than it takes: the two packages are of different releases",
        '  File "/x/unsloth_compiled_cache/UnslothGRPOTrainer.py", line 1490, in compute_loss\n'
        "TypeError: grpo_accumulated_loss() missing 1 required positional argument: 'old_hidden_states'",
        "upgrade both together (with Unsloth: unsloth and unsloth_zoo, then delete unsloth_compiled_cache), or pin the newer "
        "to what the older names",
        frames=(*LIBRARY, "unsloth_compiled_cache"), innermost=True, certainty="likely", source="unslothai/unsloth#2738",
    ),
)  # fmt: skip

PER_BYTE = 2
"""Numbers of 4 bits in a byte."""


def _packed(values: Values) -> dict[str, object]:
    """A 4-bit weight as one column of bytes, which the width of the input divides."""
    one, width, packed = (whole(values[name]) for name in ("one", "width", "packed"))
    if one != 1 or width < 1 or packed <= width or packed * PER_BYTE % width:
        raise ValueError("not a packed weight")
    return {"other": packed * PER_BYTE // width}


TROUBLES = (
    *_RELEASES,
    Trouble(
        id="vllm/v1-engine-internals",
        shows=("'LLMEngine' object has no attribute 'model_executor'", "'LLM' object has no attribute 'llm_engine'",
               "'SyncMPClient' object has no attribute", "'InprocClient' object has no attribute"),
        cause="the trainer reaches into vLLM's engine, which lives in a process of its own in vLLM's V1",
        fix="set VLLM_ENABLE_V1_MULTIPROCESSING=0 (or VLLM_USE_V1=0 in old releases), or install the vLLM that the trainer "
        "names",
        source="vllm-project/vllm: V1 guide", certainty="certain", kind="config-error",
        example="AttributeError: 'LLMEngine' object has no attribute 'model_executor'",
    ),
    Trouble(
        id="transformers/model-type-key",
        shows=("KeyError: 'qwen{name:w}'", "KeyError: 'llama{name:w}'", "KeyError: 'gemma{name:w}'", "KeyError: 'glm{name:w}'",
               "Unrecognized configuration class"),
        cause="the installed transformers does not know this type of model, or the class cannot load it",
        fix="upgrade transformers (and the engine) to a release that has the model; for vision models use their own class",
        source="huggingface/transformers: auto classes", kind="config-error",
        example="KeyError: 'qwen2_5_vl'",
    ),
    Trouble(
        id="unsloth/name-missing",
        shows=("NameError: name '{name:w}' is not defined",), frames=("unsloth", "Unsloth"),
        cause="Unsloth's generated trainer uses {name}, which this release of TRL or transformers does not have there",
        fix="delete unsloth_compiled_cache and update unsloth and unsloth_zoo together, or install the TRL that they name",
        source="unslothai/unsloth: updating", certainty="likely", kind="config-error",
        example='  File "/x/unsloth_compiled_cache/UnslothGRPOTrainer.py", line 12, in f\n'
        "NameError: name 'is_conversational' is not defined",
    ),
    Trouble(
        id="reward/returned-none",
        shows=("must be real number, not NoneType", "unsupported operand type(s) for +: 'NoneType'",
               "unsupported operand type(s) for +: 'float' and 'NoneType'"),
        frames=("reward", "score", "grpo_trainer", "ppo_trainer", "rollout"),
        cause="a reward function returned None for an answer where the trainer wants a number",
        fix="return 0.0 for an answer that cannot be judged; TRL from 0.16 on takes None as 'not judged'",
        source="huggingface/trl: custom rewards", certainty="likely",
        example='  File "/x/site-packages/trl/trainer/grpo_trainer.py", line 980, in _calculate_rewards\n'
        "TypeError: must be real number, not NoneType",
    ),
    Trouble(
        id="reward/parsing",
        shows=("IndexError: list index out of range", "'NoneType' object has no attribute 'group'",
               "'NoneType' object is not subscriptable", "could not convert string to float"),
        frames=("reward", "grader", "verif", "score"), innermost=True,
        cause="the reward function fails on an answer that is not in the form it expects: nothing was found to parse",
        fix="check for a missing match and return 0; `stabilizer preflight --rewards FILE.py:FUNCTION` tries it on empty, cut "
        "and odd answers",
        source="huggingface/trl: custom rewards", certainty="likely",
        example='  File "/home/me/rewards.py", line 40, in format_reward\nIndexError: list index out of range',
    ),
    Trouble(
        id="data/missing-column",
        shows=("KeyError: '{column:w}'",), frames=("reward", "make_conversation", "map(", "arrow_dataset", "preprocess", "collat"),
        cause="the data set has no column {column}, which this code reads",
        fix="rename the column of your data to {column} (dataset.rename_column), or change the key in the code or "
        "configuration",
        source="huggingface/open-r1: data", certainty="likely", kind="config-error",
        example='  File "/x/open_r1/grpo.py", line 201, in make_conversation\nKeyError: \'problem\'',
    ),
    Trouble(
        id="data/unequal-lengths",
        shows=("stack expects each tensor to be equal size", "expected sequence of length {a} at dim {d} (got {b})",
               "Unable to create tensor, you should probably activate truncation and/or padding"),
        cause="texts of different lengths were put into one batch without padding",
        fix="pad in the collator (padding=True, a padding token), or remove columns of lists that the model does not take "
        "(remove_unused_columns)",
        source="huggingface/transformers: padding", certainty="likely",
        example="RuntimeError: stack expects each tensor to be equal size, but got [12] at entry 0 and [15] at entry 1",
    ),
    Trouble(
        id="ray/not-registered",
        shows=("Failed to register worker", "The current node timed out during startup", "Raylet exited unexpectedly",
               "Some workers of the worker process({pid}) have not registered within the timeout",
               "The current node has not been updated within {s} seconds"),
        cause="Ray's workers could not start in time: too many at once for this machine's processors, an old Ray still runs, or /tmp is full",
        fix="ray stop --force, start Ray with the CPUs the job really has (--num-cpus; in containers Ray counts the host's), and "
        "clear /tmp/ray (raylet.out and gcs_server.out in its session_latest/logs tell more)",
        source="Jiayi-Pan/TinyZero#7", certainty="likely", kind="infrastructure",
        example="(raylet) Some workers of the worker process(3141) have not registered within the timeout.",
    ),
    Trouble(
        id="ray/socket-path",
        shows=("AF_UNIX path length cannot exceed {most} bytes",),
        cause="Ray's session folder has too long a path for its sockets",
        fix="set a short one: RAY_TMPDIR=/tmp/r, or ray start --temp-dir /tmp/r",
        source="ray-project/ray", certainty="certain", kind="config-error",
        example="OSError: AF_UNIX path length cannot exceed 107 bytes: /very/long/session/sockets/plasma_store",
    ),
    Trouble(
        id="ray/runtime-env",
        shows=("RuntimeEnvSetupError", "Failed to set up runtime environment"),
        cause="Ray could not prepare the environment of a worker: the working directory is too large, or a package cannot be "
        "installed",
        fix="read the rest of the message; exclude data and checkpoints (runtime_env excludes), or start from a smaller folder",
        source="ray-project/ray: runtime environments", certainty="likely", kind="config-error",
        example="ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.",
    ),
    Trouble(
        id="nccl/invalid-usage",
        shows=("NCCL error: invalid usage", "ncclInvalidUsage"),
        cause="NCCL refuses the communicator: most often two ranks use the same GPU, or the ranks do not agree on their number",
        fix="run with NCCL_DEBUG=WARN, which names the reason; give every rank a GPU of its own (CUDA_VISIBLE_DEVICES, "
        "LOCAL_RANK), and server and trainer different ones",
        source="huggingface/trl#3706", certainty="likely", kind="config-error",
        example="RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
    ),
    Trouble(
        id="torch/compile-failed",
        shows=("torch._dynamo.exc", "BackendCompilerFailed", "torch._inductor.exc", "InductorError"),
        cause="torch.compile failed on this model or machine",
        fix="switch it off (TORCHDYNAMO_DISABLE=1, torch_compile=False; enforce_eager=True for vLLM), or upgrade torch and "
        "triton; a missing C compiler shows above",
        source="pytorch/pytorch: torch.compile troubleshooting", certainty="possible",
        example="torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
    ),
    Trouble(
        id="torch/meta-tensor",
        shows=("Cannot copy out of meta tensor; no data!", "is on the meta device, we need a `value` to put in on",
               "weight is on the meta device"),
        cause="parts of the model were never loaded (they are on the meta device): too little memory for device_map, or weights "
        "that the checkpoint lacks",
        fix="load without device_map='auto' and without low_cpu_mem_usage, give it enough memory, and read the warning about "
        "weights that were not initialised",
        source="huggingface/accelerate: big models", certainty="likely",
        example="NotImplementedError: Cannot copy out of meta tensor; no data!",
    ),
    Trouble(
        id="torch/nan-backward",
        shows=("returned nan values in its {n}th output",),
        cause="a gradient became NaN in this operation: a division by zero, log of 0, or overflow in half precision",
        fix="train in bfloat16 or float32, look for a standard deviation of 0 or an empty mask in the batch, and clip the "
        "gradient norm",
        source="pytorch/pytorch: anomaly detection", certainty="likely",
        example="RuntimeError: Function 'LogSoftmaxBackward0' returned nan values in its 0th output.",
    ),
    Trouble(
        id="torch/value-overflow",
        shows=("value cannot be converted to type {kind:w} without overflow",),
        cause="a constant such as -1e9 does not fit into half precision",
        fix="use torch.finfo(dtype).min for masks, or train in bfloat16",
        source="pytorch/pytorch", certainty="certain",
        example="RuntimeError: value cannot be converted to type at::Half without overflow",
    ),
    Trouble(
        id="torch/half-on-cpu",
        shows=("not implemented for 'Half'", "not implemented for 'BFloat16'"),
        cause="an operation in half precision ran on the CPU: the model is not on the GPU",
        fix="move model and inputs to the GPU (check torch.cuda.is_available()), or load in float32 on a CPU",
        source="pytorch/pytorch", certainty="likely", kind="config-error",
        example="RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
    ),
    Trouble(
        id="torch/unscale-fp16",
        shows=("Attempting to unscale FP16 gradients",),
        cause="the weights themselves are float16, and mixed precision needs them in float32",
        fix="load the model in float32 (or bfloat16 with bf16=True) and let fp16=True do the rest; adapters in float32",
        source="huggingface/peft: troubleshooting", certainty="certain", kind="config-error",
        example="ValueError: Attempting to unscale FP16 gradients.",
    ),
    Trouble(
        id="transformers/no-bf16",
        shows=("Your setup doesn't support bf16/gpu", "bf16 mixed precision requires"),
        cause="bf16=True, and this GPU or torch has no bfloat16 (older than Ampere, or no GPU is seen)",
        fix="set bf16=False and fp16=True on an older GPU, or check that torch sees the GPU",
        source="huggingface/transformers: training_args.py", certainty="certain", kind="config-error",
        example="ValueError: Your setup doesn't support bf16/gpu. You need Ampere+ GPU with cuda>=11.0",
    ),
    Trouble(
        id="cuda/cublas-failed",
        shows=("CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_NOT_SUPPORTED", "CUBLAS_STATUS_INVALID_VALUE"),
        cause="cuBLAS failed: another CUDA library than torch's own is loaded, or an index error came before",
        fix="unset LD_LIBRARY_PATH (a system CUDA shadows torch's), pip install -U nvidia-cublas of torch's version, and run once "
        "with CUDA_LAUNCH_BLOCKING=1",
        source="pytorch/pytorch: CUDABlas.cpp", certainty="possible",
        example="RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx`",
    ),
    Trouble(
        id="cuda/library-mismatch",
        shows=("undefined symbol: __nvJitLink{name:w}", "libcudart.so.{n}: cannot open shared object file",
               "libcudnn...cannot open shared object file", "libcuda.so.1: cannot open shared object file"),
        cause="a CUDA library is missing or of another version than torch or the extension was built with",
        fix="install torch and the extension for the same CUDA, unset LD_LIBRARY_PATH, and in a container pass the driver "
        "through (--gpus all)",
        source="pytorch/pytorch: installation", certainty="certain", kind="config-error",
        example="ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
    ),
    Trouble(
        id="torch/torchvision-mismatch",
        shows=("operator torchvision::nms does not exist",
               "Detected that PyTorch and torchvision were compiled with different CUDA"),
        cause="torch and torchvision are of different builds",
        fix="install both from one index in one command: pip install torch==X torchvision==Y of the same release",
        source="pytorch/vision: installation", certainty="certain", kind="config-error",
        example="RuntimeError: operator torchvision::nms does not exist",
    ),
    Trouble(
        id="transformers/repo-id",
        shows=("Repo id must be in the form 'repo_name' or 'namespace/repo_name'", "Repo id must use alphanumeric chars"),
        cause="the path does not exist on this machine, so it was taken for a name on the hub",
        fix="check the path (inside the container, on every node) and its spelling; the checkpoint may not have been saved yet",
        source="huggingface/huggingface_hub", certainty="certain", kind="config-error",
        example="huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
        "'/models/missing'.",
    ),
    Trouble(
        id="transformers/damaged-weights",
        shows=("Error while deserializing header", "PytorchStreamReader failed"),
        cause="a file of weights is damaged or not complete: a download or a save that was cut off, or a pointer of Git LFS",
        fix="look at the file's size, download it again (git lfs pull), or take the checkpoint before",
        source="huggingface/safetensors", certainty="certain",
        example="safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
    ),
    Trouble(
        id="batch/zero",
        shows=("integer division or modulo by zero", "integer modulo by zero", "ZeroDivisionError: division by zero",
               "range() arg 3 must not be zero"),
        frames=("trainer", "config", "batch", "sampler"),
        cause="a batch divided by the number of processes or answers a group came out as 0: one update holds fewer answers than what it is "
        "divided by",
        fix="raise the batch to at least processes x group size, or use fewer processes or a smaller group (num_generations); `stabilizer plan` lists valid batches",
        source="verl-project/verl: configuration", certainty="possible", kind="config-error",
        example='  File "/x/verl/workers/fsdp_workers.py", line 150, in trainer_config\n'
        "ZeroDivisionError: integer modulo by zero",
    ),
    Trouble(
        id="linux/killed",
        shows=("^Killed$", "line {n}: {pid} Killed", "[{pid:w}] Killed ", "is killed by signal: Killed", "exitcode: -9", "exit code -9",
               "died with <Signals.SIGKILL: 9>", "Signal 9 (SIGKILL) received by PID", "exit code 137", "with code 137", "zsh: killed ", "Exit Code:    137"),
        cause="the process was killed from outside without a word of its own, nearly always by the kernel because main memory (not the GPU's) was full, "
        "else by the scheduler",
        fix="`dmesg -T | grep -i kill` or the scheduler's record of that minute tells which. Then less main memory: no CPU offload, one process that loads the model at a time, fewer workers, a smaller "
        "vLLM swap_space; or more memory for the container or job",
        source="linux: oom killer", certainty="likely", kind="out-of-memory",
        example="Killed",
    ),
    Trouble(
        id="linux/crashed-in-compiled-code",
        shows=("^Segmentation fault (core dumped)$", "^Segmentation fault$", "Fatal Python error: Segmentation fault", "Fatal Python error: Aborted", "^Aborted (core dumped)$",
               "free(): invalid pointer", "double free or corruption", "munmap_chunk(): invalid pointer", "corrupted size vs. prev_size", "exitcode: -11", "exitcode  : -11",
               "is killed by signal: Segmentation fault", "is killed by signal: Aborted"),
        cause="a process crashed inside compiled code; the log does not show where",
        fix="PYTHONFAULTHANDLER=1 prints the Python line; usual causes are packages built for another torch or CUDA (flash-attn, vLLM, bitsandbytes, opencv or "
        "tcmalloc beside them): import them one by one, reinstall them as one set, then try without CUDA graphs and custom kernels",
        source="python: faulthandler", certainty="possible", kind="infrastructure",
        example="Fatal Python error: Segmentation fault",
    ),
    Trouble(
        id="linux/crashed-in-package",
        shows=("Fatal Python error: {what:t}$",), frames=("site-packages/", "dist-packages/"),
        cause="a process crashed inside compiled code that {caller} called ({what})",
        fix="packages built for another torch or CUDA are the usual reason: reinstall {caller} and {above} as one set with torch, or take another release of "
        "{caller}; the function named is what to leave out until then (an engine's sleep mode: vllm_enable_sleep_mode=False, its server mode)",
        source="python: faulthandler; vllm-project/vllm#16993", certainty="likely", kind="infrastructure",
        example='Fatal Python error: Segmentation fault\n  File "/x/site-packages/vllm/device_allocator/cumem.py", line 78, in unmap_and_release',
    ),
    Trouble(
        id="python/no-file",
        shows=("No such file or directory: '{path:w}'", "can't open file '{path:w}': [Errno 2]"),
        cause="the process finds no file or folder {path}",
        fix="give an absolute path (Ray workers and launchers start in other folders), check the name and that every node and the container see it, and create "
        "the folder first if the program writes there",
        source="python: FileNotFoundError", certainty="likely", kind="config-error",
        example="FileNotFoundError: [Errno 2] No such file or directory: 'data/gsm8k/train.parquet'",
    ),
    Trouble(
        id="python/encoding",
        shows=("'{codec:w}' codec can't decode byte", "'{codec:w}' codec can't encode character"),
        cause="a file is read or written as {codec}, and it is of another encoding (UTF-8 on a Windows machine of another language, or a binary file read as text)",
        fix="export PYTHONUTF8=1 (set PYTHONUTF8=1 on Windows), or open(..., encoding='utf-8'); if the codec is utf-8 already, look whether the file is text at all",
        source="python: UTF-8 mode", certainty="likely", kind="config-error",
        example="UnicodeDecodeError: 'gbk' codec can't decode byte 0xa6 in position 35: illegal multibyte sequence",
    ),
    Trouble(
        id="python/arguments",
        shows=("error: the following arguments are required: {names:t}$", "error: argument {names:t}: expected", "error: argument {names:t}: invalid"),
        cause="the command line lacks or misuses {names}",
        fix="run the script with --help for its arguments in the installed release; a backslash at the end of a line must be its last character, or the lines that "
        "follow are lost",
        source="python: argparse", certainty="certain", kind="config-error",
        example="train.py: error: the following arguments are required: --model_name_or_path",
    ),
    Trouble(
        id="torch/no-nccl",
        shows=("Distributed package doesn't have NCCL built in",),
        cause="this torch has no NCCL: a Windows, macOS or CPU build",
        fix="the gloo backend (backend='gloo', ddp_backend='gloo'), a Linux machine or WSL 2 for several GPUs, or one process",
        source="pytorch/pytorch: distributed_c10d.py", certainty="certain", kind="config-error",
        example="RuntimeError: Distributed package doesn't have NCCL built in",
    ),
    Trouble(
        id="torch/libuv",
        shows=("use_libuv was requested but PyTorch was buil",),
        cause="torch on Windows was built without libuv, and its rendezvous asks for it",
        fix="set USE_LIBUV=0 before the start, or use WSL 2",
        source="pytorch/pytorch: TCPStore", certainty="certain", kind="config-error",
        example="RuntimeError: use_libuv was requested but PyTorch was build without libuv support",
    ),
    Trouble(
        id="torch/mps",
        shows=("MPS backend out of memory", "is not currently implemented for the MPS device", "Placeholder storage has not been allocated on MPS device"),
        cause="Apple's GPU backend lacks the memory or the operation, or a part of the model stayed on the CPU",
        fix="PYTORCH_ENABLE_MPS_FALLBACK=1 for missing operations, model and inputs on one device (.to('mps')), smaller batches "
        "(PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts the limit); these trainers are made for CUDA",
        source="pytorch/pytorch: MPS backend", certainty="certain", kind="config-error",
        example="RuntimeError: MPS backend out of memory (MPS allocated: 17.20 GB, other allocations: 1.02 GB, max allowed: 18.13 GB).",
    ),
    Trouble(
        id="build/no-compiler",
        shows=("Ninja is required to load C++ extensions", "nvcc: not found", "nvcc: command not found", "Could not find nvcc", "No such file or directory: "
               "'/usr/local/cuda/bin/nvcc'", "CUDA_HOME does not exist, unable to compile CUDA op(s)", "CUDA_HOME environment variable is not set"),
        cause="a kernel is compiled here at run or install time, and ninja or the CUDA compiler (nvcc) is not there",
        fix="pip install ninja; install the CUDA toolkit of torch.version.cuda (conda install -c nvidia cuda-toolkit), set CUDA_HOME and put $CUDA_HOME/bin on PATH; or "
        "install a ready wheel of the package; without DeepSpeed's fused Adam: optimizer torch_adam",
        source="pytorch/pytorch: cpp_extension", certainty="certain", kind="config-error",
        example="/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
    ),
    Trouble(
        id="build/killed",
        shows=("Killed signal terminated program cc1plus", "Killed signal terminated program cicc", "nvcc error   : 'cicc' died due to signal 9"),
        cause="the compiler was killed, because many files were compiled at once and main memory was full",
        fix="MAX_JOBS=2 pip install --no-build-isolation PACKAGE, or a ready wheel",
        source="Dao-AILab/flash-attention: installation", certainty="certain", kind="out-of-memory",
        example="c++: fatal error: Killed signal terminated program cc1plus",
    ),
    Trouble(
        id="build/failed",
        shows=("ERROR: Could not build wheels for {names:t}, which is required", "ERROR: Failed building wheel for {names:w}", "error: subprocess-exited-with-error",
               "Failed to build `{names:w}`", "ERROR: Failed to build installable wheels", "'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'",
               "ninja: build stopped: subcommand failed"),
        cause="a package or an extension is compiled from source, and the build fails",
        fix="the first error above names the reason (no compiler, no nvcc or ninja, torch missing in the isolated build, Python too new): prefer a ready wheel for your Python, torch and CUDA; "
        "else install torch first, then pip install --no-build-isolation with MAX_JOBS=4; an extension built at first use: clear ~/.cache/torch_extensions",
        source="pypa/pip", certainty="possible", kind="config-error",
        example="ERROR: Could not build wheels for deepspeed, which is required to install pyproject.toml-based projects",
    ),
    Trouble(
        id="versions/shared-library",
        shows=("ImportError: {library:w}: cannot open shared object file: No such file or directory", "OSError: {library:w}: cannot open shared object file: No such file"),
        cause="a compiled package needs the system library {library}, which is not installed or not on the search path",
        fix="apt install the package that holds it (libGL.so.1: libgl1, or opencv-python-headless; libnuma: libnuma1; libcu*: the CUDA release torch was built for), or "
        "put its folder on LD_LIBRARY_PATH",
        source="linux: ld.so", certainty="likely", kind="config-error",
        example="ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
    ),
    Trouble(
        id="versions/protobuf",
        shows=("Descriptors cannot not be created directly", "Descriptors cannot be created directly", "cannot import name 'builder' from 'google.protobuf.internal'"),
        cause="generated code and the installed protobuf are of different times",
        fix="pip install -U protobuf for 'builder'; pip install 'protobuf<4' for descriptors, or upgrade the package in the traceback (wandb, tensorboard, onnx, ray)",
        source="protocolbuffers/protobuf", certainty="certain", kind="config-error",
        example="TypeError: Descriptors cannot be created directly.",
    ),
    Trouble(
        id="transformers/tokenizer-of-newer-release",
        shows=("'list' object has no attribute 'keys'", "'dict' object has no attribute 'model_type'"), frames=("tokenization_", "configuration_", "tokenizer"),
        cause="the tokenizer or configuration was saved by a newer transformers, in a form the installed one cannot read",
        fix="pip install -U transformers (in the range the trainer and engine allow), or take tokenizer_config.json from the original model",
        source="huggingface/transformers", certainty="likely", kind="config-error",
        example='  File "/x/site-packages/transformers/tokenization_utils_base.py", line 1180, in _set_model_specific_special_tokens\n'
        "AttributeError: 'list' object has no attribute 'keys'",
    ),
    Trouble(
        id="torch/float-gradients",
        shows=("Only Tensors of floating point and complex dtype can require gradients", "only Tensors of floating point dtype can require gradients"),
        cause="quantised weights (integers) are to be trained or sharded as if they were numbers with gradients",
        fix="train adapters on top of them (LoRA, prepare_model_for_kbit_training); with FSDP set bnb_4bit_quant_storage to the training type; ZeRO-3 does not shard them",
        source="huggingface/peft: quantization", certainty="likely", kind="config-error",
        example="RuntimeError: Only Tensors of floating point and complex dtype can require gradients",
    ),
    Trouble(
        id="torch/leaf-in-place",
        shows=("a leaf Variable that requires grad is being used in an in-place operation", "a view of a leaf Variable that requires grad is being used in an in-place"),
        cause="the output of the embeddings was made to require a gradient (as checkpointing of adapters needs) and is then changed in place, or a weight is edited without "
        "no_grad",
        fix="gradient_checkpointing_kwargs={{'use_reentrant': False}} instead of enable_input_require_grads(); for vision models freeze the tower or upgrade transformers; "
        "edit weights under torch.no_grad()",
        source="huggingface/transformers: gradient checkpointing", certainty="likely",
        example="RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",
    ),
    Trouble(
        id="bitsandbytes/packed-weight",
        shows=("mat1 and mat2 shapes cannot be multiplied ({rows}x{width} and {one}x{packed})",),
        cause="a 4-bit weight was used as it lies in memory: 1 x {packed} is {width} x {other} with two numbers a byte. It lost what is needed to unpack it",
        fix="make one GPU visible (CUDA_VISIBLE_DEVICES=0 before the first import): with several in one process the Trainer copies the model (DataParallel), and 4-bit weights "
        "do not survive the copy. On one GPU: update bitsandbytes, PEFT and the loader together, and do not call .to() or .half() on the model",
        source="unslothai/unsloth#1875", certainty="likely", work=_packed,
        example="RuntimeError: mat1 and mat2 shapes cannot be multiplied (2158x4096 and 1x8388608)",
    ),
    Trouble(
        id="torch/matrix-shapes",
        shows=("mat1 and mat2 shapes cannot be multiplied ({a:w} and {b:w})", "mat1 and mat2 shapes cannot be multiplied"), general=True,
        cause="a layer gets an input of another width than it was made for: parts of different models are combined (a value or reward head, a vision projector, a quantised "
        "layer that was not prepared), or ZeRO-3 left a weight empty",
        fix="check hidden sizes of both parts; under ZeRO-3 call the wrapped model; with quantised bases keep lm_head and projectors out of quantisation",
        source="pytorch/pytorch", certainty="possible",
        example="RuntimeError: mat1 and mat2 shapes cannot be multiplied (512x3584 and 4096x8192)",
    ),
    Trouble(
        id="transformers/vocabulary-size",
        shows=("size mismatch for ...embed_tokens.weight: copying a param with shape torch.Size([{have}, ...the shape in current model is torch.Size([{want}, ",
               "size mismatch for ...lm_head.weight: copying a param with shape torch.Size([{have}, ...the shape in current model is torch.Size([{want}, "),
        cause="the checkpoint's vocabulary has {have} tokens and the model's {want}: tokens were added before it was saved, or its config is another's",
        fix="load the config saved beside the checkpoint, or model.resize_token_embeddings({have}) before the weights or adapter are loaded",
        source="huggingface/transformers: resize_token_embeddings", certainty="certain", kind="config-error", work=_nonempty,
        example="RuntimeError: Error(s) in loading state_dict: size mismatch for model.embed_tokens.weight: copying a param with shape torch.Size([151936, 3584]) from "
        "checkpoint, the shape in current model is torch.Size([152064, 3584]).",
    ),
    Trouble(
        id="transformers/tensor-of-other-shape",
        shows=("Trying to set a tensor of shape torch.Size([{have:t}]) in \"{name:w}\" (which has shape torch.Size([{want:t}]))",),
        cause="a weight of shape [{have}] is loaded into {name} of shape [{want}]: the files belong to another model, to another vocabulary, or are quantised (packed) while "
        "the model is not",
        fix="load with the config.json saved beside the weights; quantised files need their quantization_config and bitsandbytes; shape [0] means ZeRO-3: load inside the "
        "trainer",
        source="huggingface/accelerate: modeling.py", certainty="likely", kind="config-error",
        example='ValueError: Trying to set a tensor of shape torch.Size([8028160, 1]) in "weight" (which has shape torch.Size([3584, 4480])), this looks incorrect.',
    ),
    Trouble(
        id="hub/certificate",
        shows=("SSLCertVerificationError", "certificate verify failed", "Cannot connect to proxy", "ProxyError('Unable to connect to proxy'"),
        cause="a proxy or firewall stands between this machine and the internet: its certificate is not trusted, or it refuses",
        fix="set https_proxy rightly (or unset it), REQUESTS_CA_BUNDLE and SSL_CERT_FILE to the company's certificate, HF_ENDPOINT to a mirror; or download elsewhere and "
        "HF_HUB_OFFLINE=1",
        source="python: requests", certainty="certain", kind="infrastructure",
        example="requests.exceptions.SSLError: HTTPSConnectionPool(host='cdn.x.co', port=443): Max retries exceeded (Caused by SSLError(SSLCertVerificationError(1, "
        "'certificate verify failed'",
    ),
    Trouble(
        id="trl/ppo-value-model",
        shows=("has no attribute 'base_model_prefix'", "'PolicyAndValueWrapper' object has no attribute '{name:w}'", "ForCausalLM' object has no attribute 'score'"),
        cause="PPOTrainer wants a reward and a value model with a score head, and one of them is missing or a text model (or this release lacks a method of its wrapper)",
        fix="reward_model and value_model from AutoModelForSequenceClassification.from_pretrained(..., num_labels=1), both given; missing methods of PolicyAndValueWrapper: pip install "
        "-U trl, or gradient_checkpointing=False",
        source="huggingface/trl: PPO", certainty="likely", kind="config-error",
        example="AttributeError: 'NoneType' object has no attribute 'base_model_prefix'",
    ),
    Trouble(
        id="cuda/allocator-mapping",
        shows=("CUDA Error: invalid argument at {where:w}cumem_allocator.cpp", "CUDA Error: invalid device context at"),
        cause="vLLM's sleep mode could not map its memory again: two engines or allocators in one process, an expandable_segments allocator beside it, or another current device",
        fix="unset PYTORCH_CUDA_ALLOC_CONF, torch.cuda.set_device(local_rank) before the engine is made, one engine a process, or switch sleep mode off "
        "(vllm_enable_sleep_mode=False, free_cache_engine=False)",
        source="vllm-project/vllm: csrc/cumem_allocator.cpp", certainty="likely", kind="infrastructure",
        example="CUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:119",
    ),
)  # fmt: skip
