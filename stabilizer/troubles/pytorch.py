"""PyTorch, FSDP, Triton and its compilers."""

from __future__ import annotations

from stabilizer.troubles.arithmetic import whole
from stabilizer.troubles.trouble import Trouble, Values


def _square(values: Values) -> dict[str, object]:
    if not whole(values["rows"]) == whole(values["columns"]) == whole(values["size"]):
        raise ValueError("no square of the values")
    return {}


_EMPTY = (
    "(): Expected reduction dim to be specified for input.numel() == 0",
    "(): Expected reduction dim {dim} to have non-zero size",
)

TROUBLES = (
    Trouble(
        id="torch/two-dtypes",
        shows=("mat1 and mat2 must have the same dtype, but got {one:w} and {two:w}$",
               "self and mat2 must have the same dtype, but got {one:w} and {two:w}$",
               "expected m1 and m2 to have the same dtype, but got: {one:w} != {two:w}", "Found dtype {one:w} but expected {two:w}$",
               "expected mat1 and mat2 to have the same dtype, but got: {one:w} != {two:w}", "expected scalar type {one:w} but found {two:w}",
               "Input type ({one:t}) and bias type ({two:t}) should be the same", "Input type ({one:t}) and weight type ({two:t}) should be the same"),
        cause="two parts of the model have different types, {one} and {two}: inputs (pixel values), adapters, a value head, a norm or logits "
        "were left in another precision than the weights",
        fix="load everything with one torch_dtype and run under autocast (bf16=True); convert inputs with .to(model.dtype) and cast the odd part: "
        "model.lm_head.to(torch.bfloat16), autocast_adapter_dtype=False with PEFT, or prepare_model_for_kbit_training for quantised bases. "
        "With Unsloth: the same dtype in from_pretrained and in the arguments (bf16 or fp16), and a newer unsloth",
        source="huggingface/peft: troubleshooting, dtypes", certainty="likely",
        example="RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
    ),
    Trouble(
        id="torch/empty-reduction",
        shows=_EMPTY,
        cause="the largest element of an empty tensor was asked for: a batch, a mask or an answer holds nothing here",
        fix="print the shapes before that line, and follow the empty one to where it is made: a batch that was filtered away, a text without a token, a mask of zeros",
        source="pytorch/pytorch: reductions", certainty="possible",
        example="RuntimeError: max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.",
    ),
    Trouble(
        id="torch/empty-answer",
        shows=_EMPTY, frames=("grpo_trainer", "GRPOTrainer", "ppo_trainer", "generat", "rollout", "sampl"),
        cause="the largest element of an empty tensor was asked for. After generation that is an answer without a token: its prompt fills the whole sequence "
        "length, or all of it is masked",
        fix="leave out prompts that are too long (data.filter_overlong_prompts, max_prompt_length), or raise the length until prompt and answer fit (max_seq_length, "
        "max_model_len, policy.max_total_sequence_length); otherwise print the shapes before that line",
        source="NVIDIA-NeMo/RL#623", certainty="likely",
        example='  File "/x/nemo_rl/models/generation/vllm.py", line 404, in generate\n'
        "IndexError: argmax(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.",
    ),
    Trouble(
        id="torch/fsdp-states",
        shows=("expected to be in states [...] but current state is",),
        cause="FSDP's passes came out of order: a part of the model was called outside the forward of the wrapped model, one forward followed another before its backward, or an error inside a "
        "pass was caught and the training went on",
        fix="look for the first error above this one. Call the wrapped model alone (its forward takes images and videos too), put no try around a pass, and disable gradient checkpointing once to "
        "see whether it is the recomputed pass",
        source="hiyouga/EasyR1#397", certainty="possible",
        example="ValueError: expected to be in states [<TrainingState.FORWARD_BACKWARD: 2>] but current state is TrainingState.IDLE",
    ),
    Trouble(
        id="torch/fsdp-not-on-device",
        shows=("Expects tensor to be on the compute device {device:w}, was on {where:w}",),
        cause="FSDP computes on {device} and finds its parameters on {where}: they were offloaded and not brought back before this pass",
        fix="switch the trainer's own offload off for this model (actor_rollout_ref.actor.fsdp_config.param_offload=False and that of ref and critic in veRL), "
        "or upgrade the trainer: each pass must load the parameters first",
        source="verl-project/verl#181", certainty="likely", kind="config-error",
        example="AssertionError: Expects tensor to be on the compute device cuda:0, was on cpu",
    ),
    Trouble(
        id="torch/optimizer-state-device",
        shows=("Tensors of the same index must be on the same device and the same dtype",),
        cause="the optimizer's state has another type or device than the parameters: it was restored or offloaded, or the model "
        "was cast after the optimizer was built",
        fix="cast and move the model before the optimizer is built; when resuming, with the same dtype and offload settings; or "
        "a fresh optimizer (foreach=False avoids the check alone)",
        source="pytorch/pytorch: torch.optim", certainty="likely",
        example="RuntimeError: Tensors of the same index must be on the same device and the same dtype except `step` tensors "
        "that can be CPU and float32 notwithstanding",
    ),
    Trouble(
        id="torch/nvml-allocator",
        shows=("NVML_SUCCESS == r INTERNAL ASSERT FAILED",),
        cause="the allocator ran out of memory and then failed to ask the driver: a GPU memory shortage in disguise, or a "
        "container that cannot reach NVML",
        fix="treat it as out of memory: smaller micro-batches, a lower gpu_memory_utilization, shorter completions; in a "
        "container check that nvidia-smi works there",
        source="pytorch/pytorch: CUDACachingAllocator.cpp", certainty="likely", kind="out-of-memory",
        example='RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":1090',
    ),
    Trouble(
        id="fsdp/layer-class",
        shows=("Could not find the transformer layer class {name:w}", "Could not find the transformer layer class to wrap"),
        cause="the layer class named for FSDP's wrapping is not in this model",
        fix="set fsdp_transformer_layer_cls_to_wrap to the class of its blocks (print(model) shows it, as Qwen2DecoderLayer or "
        "LlamaDecoderLayer), or drop the setting so that the model's own _no_split_modules is used",
        source="huggingface/accelerate: FSDP", certainty="certain", kind="config-error",
        example="ValueError: Could not find the transformer layer class LlamaDecoderLayer in the model.",
    ),
    Trouble(
        id="fsdp/parameters-on-cpu",
        shows=("An FSDP-managed module unexpectedly has parameters on {device:w}",),
        cause="the model's parameters are on {device} when FSDP begins to use them: they are offloaded, or were never moved to the GPU",
        fix="move them before (model.cuda(), or load the offloaded weights back before load_checkpoint), or resume with parameter "
        "offloading off; cpu_offload belongs into FSDP's own settings",
        source="RLinf/RLinf#655", certainty="certain",
        example="RuntimeError: An FSDP-managed module unexpectedly has parameters on cpu. Make sure to move the module to cuda:0 before training.",
    ),
    Trouble(
        id="torch/accidental-square",
        shows=("shape '[{rows}, {columns}]' is invalid for input of size {size}",), work=_square,
        cause="a tensor of {size} values became {rows} x {columns} by broadcasting: shapes ({size},) and ({size}, 1) were combined",
        fix="give both the same number of dimensions before the arithmetic: x.view(-1, 1) or y.squeeze(-1); mostly rewards, values or "
        "masks, of which one kept a last dimension of 1",
        source="facebookresearch/bc-irl#4", certainty="certain",
        example="RuntimeError: shape '[256, 256]' is invalid for input of size 256",
    ),
    Trouble(
        id="fsdp/mixed-dtensor",
        shows=("got mixed torch.Tensor and DTensor", "KeyError: 'DTensor'"),
        cause="a sharded parameter (DTensor) meets a plain tensor: a part of the model was left unwrapped, or a module is called "
        "outside the wrapped forward pass",
        fix="shard or replicate the odd part too (adapters, value head, a tied embedding), call the wrapped model, or use "
        ".full_tensor() where a whole parameter is needed; update accelerate, transformers and torch together",
        source="pytorch/pytorch: distributed.tensor", certainty="likely",
        example="RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor "
        "before calling distributed operators!",
    ),
    Trouble(
        id="fsdp/offload-needs-cpu-backend",
        shows=("No backend type associated with device type cpu",),
        cause="a collective ran on CPU tensors and the process group has NCCL alone: usual with CPU offload or when saving",
        fix="dist.init_process_group('cpu:gloo,cuda:nccl'); in veRL and accelerate update, or switch the offload off",
        source="pytorch/pytorch: torch.distributed", certainty="certain", kind="config-error",
        example="RuntimeError: No backend type associated with device type cpu",
    ),
    Trouble(
        id="fsdp/full-state-memory",
        shows=("in _full_post_state_dict_hook", "in get_model_state_dict", "FSDP.state_dict_type"),
        frames=("fsdp", "state_dict"),
        cause="the whole model is gathered on each rank to be saved or sent to the engine",
        fix="save sharded (SHARDED_STATE_DICT, checkpoint contents without hf_model), or offload the gathered state to the CPU on "
        "rank 0 alone",
        source="pytorch/pytorch: FSDP", certainty="possible", severity="info",
        example='  File "/x/torch/distributed/fsdp/_state_dict_utils.py", line 360, in _full_post_state_dict_hook',
    ),
    Trouble(
        id="triton/kernel-image",
        shows=("Triton Error [CUDA]: device kernel image is invalid", "Triton Error [CUDA]: no kernel image",
               "PTXASError", "ptxas fatal", "Value 'sm_{arch:w}' is not defined for option 'gpu-name'"),
        cause="Triton compiles for another GPU or with another ptxas than the driver knows",
        fix="install the Triton that belongs to the installed torch (pip install -U torch reinstalls it), clear "
        "~/.triton/cache, and for new GPUs (Blackwell) a torch built with CUDA 12.8 or later",
        source="triton-lang/triton", certainty="likely", kind="config-error",
        example="RuntimeError: Triton Error [CUDA]: device kernel image is invalid",
    ),
    Trouble(
        id="triton/gcc-failed",
        shows=("Command '['{path:w}gcc'", "Command '['{path:w}cc'", "fatal error: Python.h: No such file", "cannot find -lcuda",
               "Failed to find C compiler. Please specify via CC"),
        cause="Triton or torch.compile builds a small C file, and the compiler failed: no gcc, no Python headers or no libcuda to link",
        fix="apt-get install build-essential python3-dev (python3.11-dev for that Python); for -lcuda put the folder of "
        "libcuda.so into LIBRARY_PATH (export LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LIBRARY_PATH)",
        source="triton-lang/triton#1955", certainty="likely", kind="config-error",
        example="subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', '-O3']' returned non-zero exit status 1.",
    ),
    Trouble(
        id="torch/guessed-device",
        shows=("Guessing device ID based on global rank. This can cause a hang",
               "using GPU {n} to perform barrier as devices used by this process are currently unknown",
               "using GPU {n} as device used by this process is currently unknown"),
        cause="a barrier does not know the GPU of its process and guesses it; harmless where rank and GPU agree, a hang where "
        "they do not",
        fix="torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group, or "
        "init_process_group(device_id=...)",
        source="pytorch/pytorch: ProcessGroupNCCL.cpp", severity="info", certainty="certain",
        example="[rank0]:[W1126 ProcessGroupNCCL.cpp:4715] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to perform barrier as devices "
        "used by this process are currently unknown. This can potentially cause a hang",
    ),
    Trouble(
        id="torch/client-socket",
        shows=("The client socket has failed to connect to [{host:w}]:{port}", "The client socket has timed out after {s}ms while "
               "trying to connect to ({host:w}, {port})", "failed to connect to ({host:w}, {port})"),
        cause="a rank cannot reach the rendezvous at {host}:{port}: rank 0 is not up, the address or port is wrong, or a "
        "firewall is in between",
        fix="give every node the same MASTER_ADDR (an address of rank 0 that all nodes reach, not localhost) and MASTER_PORT, "
        "start rank 0, and set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface",
        source="modelscope/ms-swift#5545", certainty="likely", kind="infrastructure",
        example="torch.distributed.DistNetworkError: The client socket has failed to connect to [node-0]:29500 (errno: 110 - "
        "Connection timed out).",
    ),
    Trouble(
        id="nccl/cuda-failure",
        shows=("NCCL WARN Cuda failure 'out of memory'", "Cuda failure {n} 'out of memory'", "Cuda failure 'out of memory'"),
        cause="NCCL could not get memory on a GPU: it is full, by this program or by another process",
        fix="look at nvidia-smi for processes that are left over; give the engine less (gpu_memory_utilization), smaller "
        "micro-batches; NCCL_DEBUG=INFO names the call",
        source="NVIDIA/nccl: troubleshooting", certainty="likely", kind="out-of-memory",
        example="node-0:812:905 [0] enqueue.cc:99 NCCL WARN Cuda failure 'out of memory'",
    ),
    Trouble(
        id="torch/pin-memory-dead",
        shows=("Pin memory thread exited unexpectedly", "DataLoader worker (pid(s) {pid:t}) exited unexpectedly"),
        cause="a data-loader worker died: main memory or /dev/shm was full, or it raised",
        fix="dataloader_num_workers=0 shows its exception; else more --shm-size or fewer workers",
        source="pytorch/pytorch: data loading", consequence=True, certainty="possible", kind="infrastructure",
        example="RuntimeError: DataLoader worker (pid(s) 3141) exited unexpectedly",
    ),
    Trouble(
        id="torch/no-process-group",
        shows=("Default process group has not been initialized, please make sure to call init_process_group",),
        cause="code for several processes runs in a process that was started alone",
        fix="start with torchrun --nproc_per_node=N or accelerate launch (also for one GPU), or call "
        "torch.distributed.init_process_group('nccl') first",
        source="pytorch/pytorch: distributed_c10d.py", certainty="certain", kind="config-error",
        example="ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
    ),
    Trouble(
        id="torch/process-group-twice",
        shows=("trying to initialize the default process group twice",),
        cause="two parts of the program open the process group: the trainer (accelerate, DeepSpeed) and the script or the engine",
        fix="guard your own call with torch.distributed.is_initialized(), or leave it to the trainer; in a notebook restart the kernel",
        source="pytorch/pytorch: distributed_c10d.py", certainty="certain", kind="config-error",
        example="ValueError: trying to initialize the default process group twice!",
    ),
    Trouble(
        id="torch/rendezvous-environment",
        shows=("Error initializing torch.distributed using env:// rendezvous: environment variable {name:w} expected, but not set",),
        cause="{name} is not set: a script for several processes was started with plain python",
        fix="start with torchrun --nproc_per_node=1 SCRIPT or accelerate launch SCRIPT, which set RANK, WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT; in a notebook set them with os.environ",
        source="pytorch/pytorch: rendezvous.py", certainty="certain", kind="config-error",
        example="ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set",
    ),
    Trouble(
        id="torch/collectives-differ",
        shows=("Detected mismatch between collectives on ranks", "disagreement between rank0 and rank{rank}"),
        cause="the ranks went different ways: one entered another collective, or one with another shape, than the rest",
        fix="look for a branch that depends on the rank or on its data: an empty batch skipped, an early stop, a save or evaluation on rank 0 "
        "alone, layers that only some samples use (experts, images), different package versions on the nodes",
        source="pytorch/pytorch: ProcessGroupWrapper.cpp", certainty="likely", kind="infrastructure",
        example="RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint",
    ),
    Trouble(
        id="nccl/store-lost",
        shows=("is setting up NCCL communicator and retrieving ncclUniqueId from", "wait timeout after {ms}ms, keys:",
               "store->get('{key:w}') got error", "TCPStore.recvValue failed", "failed to recv, got {n} bytes"),
        cause="a rank could not fetch the key of the communicator: rank 0 has ended, or has not arrived yet",
        fix="look for the first error of rank 0 or the rank named; if none failed, one was only late (downloading, tokenising, loading): let one "
        "process prepare the data first, and raise the time limit (ddp_timeout, nccl_timeout)",
        source="pytorch/pytorch: ProcessGroupNCCL.cpp", certainty="possible", consequence=True, kind="infrastructure",
        example="torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
        "key-value store by key '0', but store->get('0') got error: Connection reset by peer",
    ),
    Trouble(
        id="nccl/cuda-call",
        shows=("unhandled cuda error (run with NCCL_DEBUG=", "unhandled cuda error, NCCL version", "ncclUnhandledCudaError: Call to CUDA function failed"),
        cause="a CUDA call inside NCCL failed; this line does not name it",
        fix="the line after 'Last error:' names it, else NCCL_DEBUG=INFO does: out of memory (free the GPU), peer access (NCCL_P2P_DISABLE=1), or an earlier "
        "failure on that GPU, whose traceback is above or in another rank's log",
        source="NVIDIA/nccl: troubleshooting", certainty="possible", consequence=True, kind="infrastructure",
        example="torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:317, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version "
        "2.21.5",
    ),
    Trouble(
        id="torch/compile-worker-left",
        shows=("struct.error: unpack requires a buffer of 8 bytes",),
        cause="a compile worker of torch lost its main process, which had ended before; this is no failure of its own",
        fix="look for the first error of the main process above",
        source="pytorch/pytorch: _inductor/compile_worker/subproc_pool.py", certainty="possible", consequence=True, kind="infrastructure",
        example="struct.error: unpack requires a buffer of 8 bytes",
    ),
    Trouble(
        id="nccl/peer-access",
        shows=("peer access is not supported between these two devices", "Cuda failure 'peer access", "Cuda failure {n} 'peer access"),
        cause="NCCL tries direct access between two GPUs that do not offer it (consumer cards, virtual machines, IOMMU or ACS switched on)",
        fix="export NCCL_P2P_DISABLE=1 (and NCCL_IB_DISABLE=1 without InfiniBand); in a virtual machine let the host allow it",
        source="NVIDIA/nccl: troubleshooting", certainty="certain", kind="infrastructure",
        example="node-0:812:905 [0] NCCL WARN Cuda failure 'peer access is not supported between these two devices'",
    ),
    Trouble(
        id="nccl/infiniband-link",
        shows=("NET/IB : Got completion from peer ...with error {code}", "NCCL WARN NET/IB : Got async event"),
        cause="an InfiniBand or RoCE link failed between two nodes (error {code_or_so}): a cable, a port, or a wrong GID or interface",
        fix="ibstat and ibv_devinfo on both nodes; NCCL_IB_HCA names the ports to use, NCCL_IB_GID_INDEX=3 is usual for RoCE; NCCL_IB_DISABLE=1 "
        "shows whether it is the link; then NCCL_IB_TIMEOUT=22 for a busy fabric",
        source="NVIDIA/nccl: environment variables", certainty="likely", kind="infrastructure",
        work=lambda values: {"code_or_so": values.get("code", "event")},
        example="node-0:812:905 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<45321> with error 12, opcode 0, len 0, vendor err 129",
    ),
    Trouble(
        id="gloo/interface",
        shows=("Gloo connectFullMesh failed with", "makeDeviceForHostname(): unsupported gloo device", "Unable to resolve hostname to a (local) "
               "address", "gloo...Connect timeout", "connectFullMesh failed"),
        cause="Gloo connects the processes over the wrong network interface, or the machine's host name resolves to no address of its own",
        fix="export GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface all nodes share (ip addr shows it), give /etc/hosts the "
        "machine's real address for its name, and unset proxies",
        source="pytorch/pytorch: ProcessGroupGloo.cpp", certainty="likely", kind="infrastructure",
        example="RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
    ),
    Trouble(
        id="torch/data-parallel",
        shows=("'DataParallel' object has no attribute '{name:w}'", "in replica {n} on device {m}",
               "StopIteration: Caught StopIteration in replica", "module must have its parameters and buffers on device cuda:{n}"),
        cause="one process with several visible GPUs wraps the model into nn.DataParallel, which these trainers do not support",
        fix="start one process a GPU: accelerate launch --num_processes N SCRIPT or torchrun --nproc_per_node=N SCRIPT; for one GPU set "
        "CUDA_VISIBLE_DEVICES=0 before Python starts",
        source="huggingface/trl: distributing training", certainty="certain", kind="config-error",
        example="AttributeError: 'DataParallel' object has no attribute 'generate'",
    ),
    Trouble(
        id="torch/wrapped-model",
        shows=("'DistributedDataParallel' object has no attribute '{name:w}'", "'DeepSpeedEngine' object has no attribute '{name:w}'",
               "'FullyShardedDataParallel' object has no attribute '{name:w}'", "'OptimizedModule' object has no attribute '{name:w}'"),
        cause="{name} is asked of the wrapper that distributes the model, and it belongs to the model inside",
        fix="accelerator.unwrap_model(model).{name} (model.module.{name} for DDP and DeepSpeed); under ZeRO-3 or FSDP gather the weights "
        "first. In installed code: upgrade trainer, accelerate and transformers together",
        source="huggingface/accelerate: unwrap_model", certainty="likely",
        example="AttributeError: 'DistributedDataParallel' object has no attribute 'generate'",
    ),
    Trouble(
        id="accelerate/state-twice",
        shows=("AcceleratorState has already been initialized and cannot be changed", "AcceleratorState` object has no attribute",
               "the `Accelerator` should only be initialized inside your training function",
               "CUDA has been initialized before the `notebook_launcher` could create a forked subprocess"),
        cause="an Accelerator of other settings, or CUDA itself, was already in use in this process, as after a second run of a notebook's cell",
        fix="restart the kernel, and make one Accelerator (one trainer) a process; put everything that touches the GPU into the function given to notebook_launcher, or run a script with "
        "accelerate launch; mixed_precision is chosen where the first is made",
        source="huggingface/accelerate: state.py", certainty="certain", kind="config-error",
        example="ValueError: AcceleratorState has already been initialized and cannot be changed, restart your runtime completely and pass `mixed_precision='bf16'` to `Accelerator()`.",
    ),
    Trouble(
        id="accelerate/deepspeed-batch",
        shows=("requires you to pass at least one of training or evaluation dataloaders with `batch_size` attribute returning an integer",),
        cause="DeepSpeed wants the micro-batch size, and nothing that was prepared has one: the model was prepared alone, or the data loader's "
        "batch_size is None",
        fix="set train_micro_batch_size_per_gpu to a number in the DeepSpeed configuration instead of 'auto', or prepare the data loader with "
        "the model",
        source="huggingface/accelerate: accelerator.py", certainty="certain", kind="config-error",
        example="ValueError: When using DeepSpeed, `accelerate.prepare()` requires you to pass at least one of training or evaluation "
        "dataloaders with `batch_size` attribute returning an integer value",
    ),
    Trouble(
        id="accelerate/offloaded-modules",
        shows=("Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit",
               "You can't move a model that has some modules offloaded to cpu or disk", "The current `device_map` had weights offloaded to the "
               "disk"),
        cause="the GPU's free memory does not hold the model, so device_map put a part of it on the CPU or the disk, where it cannot be trained "
        "or quantised",
        fix="free the GPU (nvidia-smi), use more GPUs or a smaller or 4-bit model, and set device_map={{'': local_rank}} so that a lack shows as "
        "out of memory; llm_int8_enable_fp32_cpu_offload only for inference",
        source="huggingface/transformers: bitsandbytes", certainty="likely", kind="out-of-memory",
        example="ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quantized model.",
    ),
    Trouble(
        id="torch/sdpa-no-kernel",
        shows=("No available kernel. Aborting execution", "No available kernel.  Aborting execution"),
        cause="no kernel of scaled_dot_product_attention fits: a backend was forced that this GPU, type or mask does not allow",
        fix="remove the sdp_kernel context or torch.backends.cuda.enable_*_sdp(False) calls, use bfloat16, or attn_implementation='eager'",
        source="pytorch/pytorch: scaled_dot_product_attention", certainty="likely", kind="config-error",
        example="RuntimeError: No available kernel. Aborting execution.",
    ),
    Trouble(
        id="torch/embedding-index",
        shows=("IndexError: index out of range in self",),
        cause="a token id (or a position) is beyond the embedding table: the tokenizer has more tokens than the model, or the text is longer than "
        "the model's positions",
        fix="compare len(tokenizer) with model.get_input_embeddings().num_embeddings; call model.resize_token_embeddings(len(tokenizer)) after "
        "tokens were added (a new pad token), use the model's own tokenizer, and keep prompt plus answer below max_position_embeddings",
        source="pytorch/pytorch: embedding", certainty="likely", kind="config-error",
        example="IndexError: index out of range in self",
    ),
    Trouble(
        id="torch/float8-gpu",
        shows=("torch._scaled_mm is only supported on CUDA devices with compute capability",),
        cause="float8 products need a GPU of compute capability 8.9 or newer (Ada, Hopper)",
        fix="switch fp8 off for the model or the engine (quantization, kv_cache_dtype), or use a newer GPU",
        source="pytorch/pytorch", certainty="certain", kind="config-error",
        example="RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+",
    ),
    Trouble(
        id="torch/recomputed-otherwise",
        shows=("A different number of tensors was saved during the original forward and recomputation",
               "Recomputed values for the following tensors have different metadata"),
        cause="gradient checkpointing computes a layer again in the backward pass and gets other tensors than the first time: a cache was kept, "
        "autocast or the adapter was switched in between, or weights were gathered (ZeRO-3) or routed (experts) otherwise",
        fix="model.config.use_cache=False, forward and backward in the same autocast and with the same adapter, and "
        "gradient_checkpointing_kwargs={{'use_reentrant': True}}; see whether it runs with gradient checkpointing off",
        source="pytorch/pytorch: utils/checkpoint.py", certainty="likely",
        example="torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during the original forward "
        "and recomputation.",
    ),
    Trouble(
        id="torch/nothing-to-train",
        shows=("optimizer got an empty parameter list", "No inf checks were recorded for this optimizer"),
        cause="no parameter of the model is trained or got a gradient: everything is frozen, an adapter was loaded for inference, target_modules matched nothing, or the loss was skipped",
        fix="model.print_trainable_parameters() must show some; PeftModel.from_pretrained(..., is_trainable=True) for a saved adapter, target_modules by the names of this model's layers, no "
        "requires_grad_(False) after the adapter was added, model.train(), and bf16=True instead of fp16",
        source="pytorch/pytorch: optim/optimizer.py", kind="config-error",
        example="ValueError: optimizer got an empty parameter list",
    ),
    Trouble(
        id="torch/index-beyond",
        shows=("index {a} is out of bounds for dimension {dim} with size {size}",),
        cause="something is picked at place {a} of {size}: a token id beyond the vocabulary, a batch that holds fewer entries than another, or a mask of "
        "another length",
        fix="print the shapes in that line. If {size} is the vocabulary, compare len(tokenizer) with the model's embedding; if it is a batch, compare "
        "prompts x answers with what the rewards or the engine returned",
        source="pytorch/pytorch: indexing", certainty="possible", general=True,
        example="IndexError: index 151665 is out of bounds for dimension 1 with size 151665",
    ),
    Trouble(
        id="tokenizers/no-limit",
        shows=("OverflowError: int too big to convert",),
        cause="texts are to be cut at the tokenizer's own limit, and it has none (model_max_length is 10^30)",
        fix="tokenizer.model_max_length = 4096 (what the model takes), or pass max_length with truncation=True",
        source="huggingface/transformers: tokenization", certainty="likely", kind="config-error",
        example="OverflowError: int too big to convert",
    ),
    Trouble(
        id="python/process-pool",
        shows=("BrokenProcessPool: A process in the process pool was terminated abruptly", "One of the subprocesses has abruptly died during map operation"),
        cause="a process of a pool (answers that are checked, texts that are tokenised) was killed: mostly main memory ran out, or what it ran or parsed took it down",
        fix="one process (num_proc=1) shows the real error; fewer workers, a smaller batch_size and writer_batch_size, a limit of time and memory for each answer, and a new pool after such an "
        "error; `dmesg -T | grep -i kill` shows whether memory was the reason",
        source="python: concurrent.futures", certainty="possible", kind="infrastructure",
        example="concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running",
    ),
    Trouble(
        id="engine/answers-500",
        shows=("ClientResponseError: 500", "HTTPError: 500 Server Error", "Server error '500 Internal Server Error' for url",
               "Failed after {n} retries each. Payload"),
        cause="the server that generates or judges answered with an error of its own, and this process only reports it",
        fix="look for the first traceback in that server's log at this minute: mostly a text above its context, GPU memory, or an update of weights "
        "that did not fit",
        source="areal-project/AReaL: utils/http.py; aio-libs/aiohttp", certainty="possible", consequence=True, kind="infrastructure",
        example="aiohttp.client_exceptions.ClientResponseError: 500, message='Internal Server Error'",
    ),
)  # fmt: skip
