"""PyTorch, FSDP, Triton and its compilers."""

from __future__ import annotations

from stabilizer.troubles.trouble import Trouble

TROUBLES = (
    Trouble(
        id="torch/two-dtypes",
        shows=("mat1 and mat2 must have the same dtype, but got {one:w} and {two:w}$",
               "self and mat2 must have the same dtype, but got {one:w} and {two:w}$",
               "expected m1 and m2 to have the same dtype, but got: {one:w} != {two:w}"),
        cause="two parts of the model have different types, {one} and {two}: adapters, a value head, a norm or logits were left "
        "in float32 beside bf16 or fp16 weights",
        fix="load everything with one torch_dtype and run under autocast (bf16=True); cast the odd part: "
        "model.lm_head.to(torch.bfloat16), or prepare_model_for_kbit_training for quantised bases. With Unsloth: the same dtype "
        "in from_pretrained and in the arguments (bf16 or fp16), and a newer unsloth",
        source="huggingface/peft: troubleshooting, dtypes", certainty="likely",
        example="RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
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
        shows=("Command '['{path:w}gcc'", "Command '['{path:w}cc'", "fatal error: Python.h: No such file", "cannot find -lcuda"),
        cause="Triton or torch.compile builds a small C file, and the compiler failed: no Python headers or no libcuda to link",
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
        id="torch/no-destroy",
        shows=("destroy_process_group() was not called before program exit",),
        cause="the process group was not closed at the end: a warning about the exit, no cause of a failure",
        fix="nothing, or call torch.distributed.destroy_process_group() at the end; look for the exception above it",
        source="pytorch/pytorch: ProcessGroupNCCL.cpp", severity="info", certainty="certain",
        example="[rank0]:[W1126 ProcessGroupNCCL.cpp:1250] Warning: WARNING: destroy_process_group() was not called before "
        "program exit, which can leak resources.",
    ),
    Trouble(
        id="torch/client-socket",
        shows=("The client socket has failed to connect to [{host:w}]:{port}", "The client socket has timed out after {s}ms while "
               "trying to connect to ({host:w}, {port})", "failed to connect to ({host:w}, {port})"),
        cause="a rank cannot reach the rendezvous at {host}:{port}: rank 0 is not up, the address or port is wrong, or a "
        "firewall is in between",
        fix="give every node the same MASTER_ADDR (an address of rank 0 that all nodes reach, not localhost) and MASTER_PORT, "
        "start rank 0, and set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface",
        source="pytorch/pytorch: torchrun", certainty="likely", kind="infrastructure",
        example="torch.distributed.DistNetworkError: The client socket has failed to connect to [node-0]:29500 (errno: 110 - "
        "Connection timed out).",
    ),
    Trouble(
        id="nccl/cuda-failure",
        shows=("NCCL WARN Cuda failure 'out of memory'", "Cuda failure {n} 'out of memory'", "ncclUnhandledCudaError: Call to CUDA "
               "function failed"),
        cause="NCCL could not get memory on a GPU, or a CUDA call failed under it: most often the GPU is full, by this program "
        "or by another process",
        fix="look at nvidia-smi for processes that are left over; give the engine less (gpu_memory_utilization), smaller "
        "micro-batches; NCCL_DEBUG=INFO names the call",
        source="NVIDIA/nccl: troubleshooting", certainty="likely", kind="out-of-memory",
        example="node-0:812:905 [0] enqueue.cc:99 NCCL WARN Cuda failure 'out of memory'",
    ),
    Trouble(
        id="nccl/internal-error",
        shows=("ncclInternalError: Internal check failed", "ncclInvalidArgument: Invalid value for an argument",
               "NCCL WARN Message truncated : received {a} bytes instead of {b}"),
        cause="the ranks called different collectives or the network setup differs between them",
        fix="run with NCCL_DEBUG=WARN: its own line above names the reason. Check that every rank takes the same path (a "
        "branch, a batch skipped on one rank), one NCCL release everywhere, and NCCL_SOCKET_IFNAME",
        source="NVIDIA/nccl: troubleshooting", certainty="possible", kind="infrastructure",
        example="ncclInternalError: Internal check failed.",
    ),
    Trouble(
        id="torch/pin-memory-dead",
        shows=("Pin memory thread exited unexpectedly", "DataLoader worker (pid(s) {pid:t}) exited unexpectedly"),
        cause="a data-loader worker died: main memory or /dev/shm was full, or it raised",
        fix="dataloader_num_workers=0 shows its exception; else more --shm-size or fewer workers",
        source="pytorch/pytorch: data loading", consequence=True, kind="infrastructure",
        example="RuntimeError: DataLoader worker (pid(s) 3141) exited unexpectedly",
    ),
)  # fmt: skip
