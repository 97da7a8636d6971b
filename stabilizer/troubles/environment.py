"""Packages that do not fit together, and what the environment of a training lacks."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble

LIBRARY = ("site-packages", "dist-packages")
"""The last frames lie in installed code: the caller was written for another release."""
TOGETHER = (
    "install the versions that the trainer names (setup.py, requirements, Dockerfile), all together: trainer, torch, vLLM,"
    " transformers, flash-attn; `pip show` tells what is there"
)

TROUBLES = (
    Trouble(
        id="versions/module-gone",
        shows=("No module named 'vllm.{name:w}'", "No module named 'transformers.{name:w}'", "No module named 'trl.{name:w}'",
               "No module named 'torch.{name:w}'", "No module named 'verl.{name:w}'", "No module named 'sglang.{name:w}'",
               "No module named 'megatron.{name:w}'"),
        cause="the installed release has no module {name}: it was moved or removed since the calling code was written, or "
        "comes from a newer release",
        fix=TOGETHER, source="verl-project/verl: installation", certainty="likely", kind="config-error",
        example="ModuleNotFoundError: No module named 'vllm.worker.worker_base'",
    ),
    Trouble(
        id="versions/cannot-import",
        shows=("cannot import name '{name:w}' from '{module:w}'",),
        cause="{module} of the installed release has no {name}: it was renamed, moved or removed, or comes with a later one; the "
        "importing code was written for another release",
        fix="install the release of that package which the importing one names, or upgrade the importing one; " + TOGETHER,
        source="python: importlib", certainty="possible", kind="config-error",
        example="ImportError: cannot import name 'EntryNotFoundError' from 'datasets.utils' (/x/datasets/utils/__init__.py)",
    ),
    Trouble(
        id="versions/attribute-of-module",
        shows=("module '{module:w}' has no attribute '{name:w}'",),
        cause="the installed release of {module} has no {name}: the calling code was written for another release",
        fix=TOGETHER, source="huggingface/trl: installation", certainty="possible", kind="config-error",
        example="AttributeError: module 'xformers.ops' has no attribute 'memory_efficient_attention'",
    ),
    Trouble(
        id="versions/attribute-of-object",
        shows=("'{kind:w}' object has no attribute '{name:w}'",), frames=LIBRARY,
        cause="{caller} reads {name} of a {kind}, and the installed release has none: it was renamed or removed, so {caller} and the "
        "package of {kind} are of different releases",
        fix="upgrade {caller} if {kind} is of a newer package, or install the release of that package which {caller} names; " + TOGETHER, source="huggingface/trl: installation", certainty="possible", kind="config-error",
        example='  File "/x/site-packages/trl/trainer/grpo_trainer.py", line 404, in f\n'
        "AttributeError: 'Qwen2_5_VLConfig' object has no attribute 'hidden_size'",
    ),
    Trouble(
        id="versions/unexpected-keyword",
        shows=("got an unexpected keyword argument '{key:w}'",), frames=LIBRARY,
        cause="{caller} passes {key}, and the called function of the installed release has no such argument: {caller} and the package "
        "it calls are of different releases",
        fix="upgrade both together (pip install -U {caller} {above}), or pin the older one to what the other names; " + TOGETHER, source="huggingface/trl: installation", certainty="possible", kind="config-error",
        example='  File "/x/site-packages/trl/trainer/grpo_trainer.py", line 404, in f\n'
        "TypeError: unwrap_model_for_generation() got an unexpected keyword argument 'is_peft_model'",
    ),
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
        cause="a reward function returned None for an answer where the trainer wants a number",
        fix="return 0.0 for an answer that cannot be judged; TRL from 0.16 on takes None as 'not judged'",
        source="huggingface/trl: custom rewards", certainty="likely",
        example="TypeError: must be real number, not NoneType",
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
        id="llama-factory/reward-model",
        shows=("`reward_model` is necessary for PPO training",),
        cause="PPO of LLaMA-Factory needs a reward model",
        fix="train one (stage: rm) and set reward_model to its path",
        source="hiyouga/LLaMA-Factory: hparams/parser.py", certainty="certain", kind="config-error",
        example="ValueError: `reward_model` is necessary for PPO training.",
    ),
    Trouble(
        id="ray/not-registered",
        shows=("Failed to register worker", "The current node timed out during startup", "Raylet exited unexpectedly",
               "Some workers of the worker process({pid}) have not registered within the timeout"),
        cause="Ray's workers could not start in time: too many at once for this machine's processors, or an old Ray still runs",
        fix="ray stop --force, start Ray with the CPUs the job really has (--num-cpus; in containers Ray counts the host's), and "
        "clear /tmp/ray",
        source="ray-project/ray: troubleshooting", certainty="likely", kind="infrastructure",
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
        source="pytorch/pytorch: torch.compile troubleshooting", certainty="likely",
        example="torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
    ),
    Trouble(
        id="torch/no-compiler",
        shows=("Failed to find C compiler. Please specify via CC",),
        cause="Triton compiles code when it is first used, and there is no C compiler",
        fix="apt install gcc (build-essential) and python3-dev, or set CC",
        source="triton-lang/triton", certainty="certain", kind="config-error",
        example="RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
    ),
    Trouble(
        id="torch/meta-tensor",
        shows=("Cannot copy out of meta tensor; no data!",),
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
        id="torch/input-and-weight-types",
        shows=("Input type ({one:t}) and bias type ({two:t}) should be the same",
               "Input type ({one:t}) and weight type ({two:t}) should be the same"),
        cause="inputs in {one} met weights in {two}",
        fix="convert the inputs (pixel values too) with .to(model.dtype), or run under autocast",
        source="pytorch/pytorch", certainty="certain",
        example="RuntimeError: Input type (float) and bias type (c10::BFloat16) should be the same",
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
        source="pytorch/pytorch: installation", certainty="likely", kind="config-error",
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
        shows=("Error while deserializing header", "safetensors_rust.SafetensorError", "PytorchStreamReader failed"),
        cause="a file of weights is damaged or not complete: a download or a save that was cut off, or a pointer of Git LFS",
        fix="look at the file's size, download it again (git lfs pull), or take the checkpoint before",
        source="huggingface/safetensors", certainty="certain",
        example="safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
    ),
    Trouble(
        id="transformers/no-weights",
        shows=("Error no file named pytorch_model.bin", "Error no file named model.safetensors"),
        cause="the folder holds no weights that transformers can load: shards of FSDP or DeepSpeed, or an adapter alone",
        fix="merge the shards first (python -m verl.model_merger merge, zero_to_fp32.py), or load the base model with the adapter",
        source="huggingface/transformers", certainty="certain", kind="config-error",
        example="OSError: Error no file named pytorch_model.bin, model.safetensors, tf_model.h5 found in directory /c/step_100.",
    ),
    Trouble(
        id="batch/zero",
        shows=("integer division or modulo by zero", "integer modulo by zero", "ZeroDivisionError: division by zero"),
        frames=("trainer", "config", "batch", "sampler"),
        cause="a batch divided by the number of processes or groups came out as 0: the batch is smaller than what it is "
        "divided by",
        fix="raise the batch to at least processes x group size, or use fewer processes; `stabilizer plan` lists valid batches",
        source="verl-project/verl: configuration", certainty="possible", kind="config-error",
        example='  File "/x/verl/workers/fsdp_workers.py", line 150, in trainer_config\n'
        "ZeroDivisionError: integer modulo by zero",
    ),
    Trouble(
        id="xformers/extensions",
        shows=("xFormers can't load C++/CUDA extensions", "xFormers wasn't build with CUDA support"),
        cause="xformers was built for another torch or Python; its kernels are not used",
        fix="pip install -U xformers for the installed torch, or remove it",
        source="facebookresearch/xformers", severity="warn", certainty="certain", kind="config-error",
        example="WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:",
    ),
)  # fmt: skip
