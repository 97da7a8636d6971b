"""vLLM."""

from __future__ import annotations

from stabilizer.troubles.arithmetic import whole
from stabilizer.troubles.trouble import Trouble, Values


def _cap(values: Values) -> dict[str, object]:
    """The longest sequence that the KV cache holds; the message tells it in tokens or in GiB."""
    length = whole(values["length"])
    share = whole(values["room"]) / length if "room" in values else float(values["have"]) / float(values["need"])
    if not 0 < share < 1:
        raise ValueError("it fits")
    most = int(share * length) // 16 * 16
    held = values["room"] if "room" in values else f"{int(share * length)} ({values['have']} of {values['need']} GiB)"
    return {"most": most, "held": held, "times": f"{1 / share:.1f}"}


def _free(values: Values) -> dict[str, object]:
    share = float(values["free"]) / float(values["total"])
    return {"share": f"{max(share - 0.03, 0.05):.2f}"}


TROUBLES = (
    Trouble(
        id="vllm/length-exceeds-kv-cache",
        shows=(
            "max seq len ({length}) is larger than the maximum number of tokens that can be stored in KV cache ({room})",
            "max seq len ({length}), ({need} GiB KV cache is needed, which is larger than the available KV cache memory ({have} GiB)",
        ),
        cause="vLLM reserves room for one sequence of max_model_len = {length} tokens, but beside the weights the KV cache "
        "holds {held}: {times} times too little",
        fix="set max_model_len to at most {most} (prompt + completion is enough), or raise gpu_memory_utilization, or "
        "spread the model with tensor_parallel_size",
        source="vllm-project/vllm#2418", certainty="certain", kind="out-of-memory", work=_cap,
        example="ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be "
        "stored in KV cache (3952). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
        "initializing the engine.",
    ),
    Trouble(
        id="vllm/no-kv-cache",
        shows=("No available memory for the cache blocks",),
        cause="after the weights and the profiling run nothing of vLLM's share of the GPU is left for the KV cache",
        fix="raise gpu_memory_utilization, lower max_num_batched_tokens, max_num_seqs or max_model_len, or free the GPU: "
        "in colocated mode the trainer's own memory counts against the share",
        source="vllm-project/vllm: v1/core/kv_cache_utils.py", certainty="certain", kind="out-of-memory",
        example="ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine.",
    ),
    Trouble(
        id="vllm/memory-taken",
        shows=(
            "Free memory on device ({free}/{total} GiB) on startup is less than desired GPU memory utilization ({share_}, "
            "{want} GiB)",
        ),
        cause="vLLM wants {want} GiB of the GPU, and only {free} of {total} GiB are free when it starts: another process, "
        "often the trainer or an old run, holds the rest",
        fix="set gpu_memory_utilization to at most {share}, start the engine before the trainer fills the GPU, or end the "
        "other process (nvidia-smi lists it)",
        source="vllm-project/vllm: v1/worker/gpu_worker.py", certainty="certain", kind="out-of-memory", work=_free,
        example="ValueError: Free memory on device (21.4/79.1 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 71.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    ),
    Trouble(
        id="vllm/memory-profile",
        shows=("Error in memory profiling. Initial free memory",),
        cause="another process freed GPU memory while vLLM measured it at its start, for example a trainer that was loading",
        fix="start vLLM alone on its GPU, or start engine and trainer one after the other",
        source="vllm-project/vllm: v1/worker/gpu_worker.py", kind="infrastructure",
        example="AssertionError: Error in memory profiling. Initial free memory 31.2 GiB, current free memory 40.9 GiB.",
    ),
    Trouble(
        id="vllm/image-cache",
        shows=("Expected a cached item for mm_hash=",),
        cause="vLLM's API side and its engine each keep a cache of processed images, and the two lost step: one calls an image cached "
        "that the other has dropped, as with many or large images at once",
        fix="switch that cache off (mm_processor_cache_gb=0; vllm_mm_processor_cache_gb 0 in ms-swift), or make it larger than the images "
        "of all requests that run at once; a later vLLM refuses the one request instead",
        source="modelscope/ms-swift#9863; vllm-project/vllm#31404", certainty="certain",
        example="AssertionError: Expected a cached item for mm_hash='3fe1c0'",
    ),
    Trouble(
        id="vllm/prompt-too-long",
        shows=(
            "Prompt length of {prompt} is longer than the maximum model length of {length}",
            "The decoder prompt (length {prompt}) is longer than the maximum model length of {length}",
            "Input prompt ({prompt} tokens) is too long and exceeds limit of {length}",
        ),
        cause="a prompt of {prompt} tokens is longer than the engine's max_model_len of {length}; truncating the text does "
        "not shorten image tokens or a chat template",
        fix="drop long prompts (data.filter_overlong_prompts=True with data.max_prompt_length in veRL and EasyR1, "
        "max_prompt_length in TRL), or set max_model_len to at least {room} plus the completion",
        source="verl-project/verl#1015", certainty="certain", kind="config-error",
        work=lambda v: {"room": whole(v["prompt"])},
        example="ValueError: Prompt length of 731 is longer than the maximum model length of 640.",
    ),
    Trouble(
        id="vllm/not-enough-gpus",
        shows=(
            "The number of required GPUs exceeds the total number of available GPUs in the placement group",
            "The world size ({size}) is larger than the number of available GPUs",
        ),
        cause="the engine wants more GPUs than the processes that start it can see",
        fix="lower tensor_parallel_size, or give it more devices (CUDA_VISIBLE_DEVICES, the Ray placement group)",
        source="vllm-project/vllm: executor/ray_utils.py", kind="config-error",
        example="ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group.",
    ),
    Trouble(
        id="engine/died",
        shows=("EngineDeadError", "Engine core initialization failed. See root cause above", "Engine process failed to start", "AsyncEngineDeadError",
               "Background loop has errored already", "Engine loop has died", "Engine loop is not running",
               "EngineCore encountered an issue. See stack trace (above) for the root cause", "WorkerProc initialization failed due to an exception in a background process",
               "WorkerProc failed to start", "EngineCore failed to start", "EngineCore hit an exception", "EngineCore encountered a fatal error",
               "Worker proc {name:w} died unexpectedly", "Worker VllmWorkerProcess pid {pid} died", "Failed core proc(s)", "Scheduler hit an exception",
               "Rank {rank} scheduler is dead", "SIGQUIT received. ...It usually means one child failed", "Received sigquit from a child process. It usually means the child failed",
               "DetokenizerManager hit an exception", "TokenizerManager hit an exception", "Initialization failed. warmup error", "Server process terminated unexpectedly",
               "Scheduler watchdog timeout", "Failed to connect to router", "No healthy workers available", "No available workers (all circuits open or unhealthy)"),
        cause="an engine (vLLM, SGLang), one of its workers, or a server behind its router, ended or is not up; this line only reports it",
        fix="look further up, or into the engine's own log, for the first traceback of a worker (VllmWorker, EngineCore, WorkerProc, Scheduler): most often GPU memory, a model it cannot load, a "
        "kernel package or attention backend that does not fit, or NCCL; unset http_proxy and allow more time for loading. VLLM_LOGGING_LEVEL=DEBUG and tensor_parallel_size=1 narrow it down",
        source="vllm-project/vllm: v1/engine/exceptions.py", certainty="possible", consequence=True, kind="infrastructure",
        example="vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    ),
    Trouble(
        id="vllm/v1-multiprocessing-fork",
        shows=("Cannot re-initialize CUDA in forked subprocess",),
        cause="a process that had already used CUDA was forked, and CUDA can't be used in such a copy",
        fix="set VLLM_WORKER_MULTIPROC_METHOD=spawn (and num_workers=0 or the spawn context for data loaders that use CUDA), "
        "and guard the script with if __name__ == '__main__'",
        source="vllm-project/vllm: troubleshooting", certainty="certain",
        example="RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
        "use the 'spawn' start method",
    ),
    Trouble(
        id="vllm/main-guard",
        shows=("An attempt has been made to start a new process before the", "start a new process before the current"),
        cause="the script starts processes while it is being imported by one of them: it has no main guard",
        fix="put what the script does under if __name__ == '__main__':",
        source="vllm-project/vllm: troubleshooting", certainty="certain",
        example="RuntimeError: An attempt has been made to start a new process before the current process has finished its "
        "bootstrapping phase.",
    ),
    Trouble(
        id="vllm/bfloat16-old-gpu",
        shows=("Bfloat16 is only supported on GPUs with compute capability of at least 8.0",),
        cause="the GPU is older than Ampere and has no bfloat16",
        fix="set dtype to half (float16) for the engine and fp16 for the trainer; watch for overflow, or train in float32",
        source="vllm-project/vllm: platforms/cuda.py", certainty="certain", kind="config-error",
        example="ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU "
        "has compute capability 7.5.",
    ),
    Trouble(
        id="vllm/unknown-architecture",
        shows=("Model architectures ['{name:w}'] are not supported for now", "has no vLLM implementation"),
        cause="this release of vLLM does not know the model's architecture",
        fix="upgrade vLLM (and transformers) to a release that lists it, or generate without vLLM (use_vllm=False)",
        source="vllm-project/vllm: model_executor/models/registry.py", kind="config-error",
        example="ValueError: Model architectures ['Qwen3NextForCausalLM'] are not supported for now.",
    ),
    Trouble(
        id="vllm/sleep-mode-allocator",
        shows=("Expandable segments are not compatible with memory pool", "MemPool doesn't currently support expandable_segments"),
        cause="vLLM's sleep mode uses its own memory pool, and PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True forbids that",
        fix="unset expandable_segments in PYTORCH_CUDA_ALLOC_CONF, or switch sleep mode off (vllm_enable_sleep_mode, "
        "free_cache_engine)",
        source="vllm-project/vllm: device_allocator/cumem.py", certainty="certain", kind="config-error",
        example="AssertionError: Expandable segments are not compatible with memory pool. Please track https://github.com/"
        "pytorch/pytorch/issues/147851 for the latest updates.",
    ),
    Trouble(
        id="vllm/lora-rank",
        shows=("LoRA rank {rank} is greater than max_lora_rank {most}",),
        cause="the adapter has rank {rank}, and the engine was started for ranks up to {most}",
        fix="start the engine with max_lora_rank of at least {rank} (8, 16, 32, 64, ... are allowed)",
        source="vllm-project/vllm: lora/request.py", certainty="certain", kind="config-error",
        example="ValueError: LoRA rank 64 is greater than max_lora_rank 16.",
    ),
    Trouble(
        id="vllm/weight-names",
        shows=(
            "There is no module or parameter named '{name:w}' in",
            "The following weights were not initialized from checkpoint",
        ),
        cause="the weights that the trainer sends have other names than the engine's model, as with adapters that were not "
        "merged or a wrapper's prefix",
        fix="merge adapters before the weights are sent, strip the prefix (base_model.model., _fsdp_wrapped_module., "
        "module.), or upgrade trainer and vLLM together",
        source="vllm-project/vllm: model_executor/models/utils.py",
        example="ValueError: There is no module or parameter named 'base_model' in Qwen2ForCausalLM",
    ),
    Trouble(
        id="vllm/flashinfer-sampler",
        shows=("FlashInfer is not available. Falling back to the PyTorch-native implementation of top-p & top-k",),
        cause="FlashInfer is not installed, so sampling uses PyTorch; results are the same and a little slower",
        fix="nothing to repair; pip install flashinfer-python makes top-p and top-k sampling faster",
        source="vllm-project/vllm: v1/sample/ops/topk_topp_sampler.py", severity="info", certainty="certain",
        example="WARNING 07-21 13:02:44 [topk_topp_sampler.py:69] FlashInfer is not available. Falling back to the "
        "PyTorch-native implementation of top-p & top-k sampling. For the best performance, please install FlashInfer.",
    ),
    Trouble(
        id="vllm/preemption",
        shows=("is preempted by PreemptionMode.{mode:w} mode because there is not enough KV cache space",),
        cause="the KV cache is too small for the running sequences: some are thrown out and computed again, which slows "
        "generation",
        fix="raise gpu_memory_utilization or tensor_parallel_size, or lower max_num_seqs or max_num_batched_tokens",
        source="vllm-project/vllm: core/scheduler.py", severity="warn", certainty="certain",
        example="WARNING 05-09 00:49:33 scheduler.py:1057] Sequence group 0 is preempted by PreemptionMode.RECOMPUTE mode "
        "because there is not enough KV cache space.",
    ),
    Trouble(
        id="vllm/context-shorter",
        shows=("User-specified max_model_len ({asked}) is greater than the derived max_model_len (max_position_embeddings={has}",),
        cause="max_model_len = {asked} is more than the {has} positions the model was made for",
        fix="set max_model_len to at most {has}, or configure rope scaling for longer contexts on purpose",
        source="vllm-project/vllm: config.py", certainty="certain", kind="config-error",
        example="ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len "
        "(max_position_embeddings=32768 or model_max_length=None in model's config.json).",
    ),
    Trouble(
        id="vllm/batched-tokens",
        shows=("max_num_batched_tokens ({tokens}) is smaller than max_model_len ({length})", "max_num_batched_tokens should be greater than prompt_length + response_length",
               "Enable chunked prefill, max_num_batched_tokens is smaller than max_model_len"),
        cause="without chunked prefill a whole sequence must fit in one batch of the engine, and max_num_batched_tokens is below max_model_len",
        fix="raise max_num_batched_tokens (actor_rollout_ref.rollout.max_num_batched_tokens in veRL) to at least prompt + answer or max_model_len, lower max_model_len, or switch "
        "enable_chunked_prefill on",
        source="vllm-project/vllm: config.py", certainty="certain", kind="config-error",
        example="ValueError: max_num_batched_tokens (8192) is smaller than max_model_len (16384).",
    ),
    Trouble(
        id="vllm/logprobs-limit",
        shows=("Requested sample logprobs of {asked}, which is greater than max allowed: {most}",),
        cause="{asked} log-probabilities a token are asked for, and the engine allows {most}",
        fix="start the engine with max_logprobs of at least {asked}, or ask for fewer",
        source="vllm-project/vllm: v1/engine/processor.py", certainty="certain", kind="config-error",
        example="ValueError: Requested sample logprobs of 50, which is greater than max allowed: 20",
    ),
    Trouble(
        id="vllm/pynccl-same-gpu",
        shows=("Duplicate GPU detected : rank {a} and rank {b} both on CUDA device {device:w}", "for multiple distinct roles/ranks within the same communicator",
               "Attempting to use the same CUDA device"),
        cause="two ranks of one communicator use the same GPU: the vLLM server and the trainer share a device, which cannot send weights to "
        "itself, or each process sees only one GPU and takes it as cuda:0",
        fix="keep them apart: CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model M, CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch --num_processes 3 SCRIPT; with one "
        "GPU vllm_mode='colocate' and no server",
        source="huggingface/trl#3706", certainty="certain", kind="infrastructure",
        example="gpu7:7745:7745 [0] init.cc:422 NCCL WARN Duplicate GPU detected : rank 0 and rank 2 both on CUDA device "
        "1a000",
    ),
    Trouble(
        id="vllm/max-tokens-negative",
        shows=("max_tokens must be at least 1, got -{short}", "max_tokens must be at least 1, got {short}"),
        cause="the prompt is as long as the engine's context or longer, so no room is left for an answer (short of {short} tokens)",
        fix="raise max_model_len (vllm_max_model_len) to prompt plus answer, drop or cut long prompts (max_length, "
        "truncation_strategy delete, filter_overlong_prompts), or fewer image pixels",
        source="modelscope/ms-swift#8223", certainty="certain", kind="config-error",
        example="ValueError: max_tokens must be at least 1, got -239.",
    ),
    Trouble(
        id="vllm/request-too-long",
        shows=("maximum context length is {length} tokens. However, you requested {want} tokens ({prompt} in the messages, {answer} in "
               "the completion)", "'max_tokens' or 'max_completion_tokens' is too large: {answer}. This model's maximum context "
               "length is {length} tokens and your request has {prompt} input tokens"),
        cause="prompt ({prompt} tokens) and answer ({answer}) together exceed the engine's context of {length}",
        fix="set max_tokens to at most {length} minus the longest prompt, or raise max_model_len; in several turns the prompt grows, "
        "so leave max_tokens out or limit the turns",
        source="PrimeIntellect-ai/prime-rl#863", certainty="certain", kind="config-error",
        example="openai.BadRequestError: Error code: 400 - {'message': \"This model's maximum context length is 4096 tokens. However, "
        "you requested 4344 tokens (3320 in the messages, 1024 in the completion).\"}",
    ),
    Trouble(
        id="vllm/old-device-argument",
        shows=("LLM.__init__() got an unexpected keyword argument '{key:w}'", "EngineArgs.__init__() got an unexpected keyword argument "
               "'{key:w}'", "AsyncEngineArgs.__init__() got an unexpected keyword argument '{key:w}'",
               "SamplingParams.__init__() got an unexpected keyword argument '{key:w}'",
               "Unexpected keyword argument '{key:w}'...vllm", "SamplingParams...has no attribute '{key:w}'"),
        cause="the installed vLLM does not take {key}: it was removed or added in another release than the trainer was written for",
        fix="install the vLLM that the trainer supports (TRL: pip install 'trl[vllm]'; veRL: its requirements), or upgrade the "
        "trainer; `pip show vllm trl` tells what is there",
        source="huggingface/trl#3304", certainty="certain", kind="config-error",
        example="TypeError: LLM.__init__() got an unexpected keyword argument 'device'",
    ),
    Trouble(
        id="vllm/sleep-not-enabled",
        shows=("Sleep mode is not enabled", "Sleep mode can only be used for one instance per process"),
        cause="the trainer puts the engine to sleep, and the engine was built without it, or there are two in one process",
        fix="enable_sleep_mode=True (vllm_enable_sleep_mode in TRL), one engine a process; or free_cache_engine=False in veRL",
        source="vllm-project/vllm: sleep mode", certainty="certain", kind="config-error",
        example="AssertionError: Sleep mode can only be used for one instance per process.",
    ),
    Trouble(
        id="vllm/multimodal-limit",
        shows=("At most {n} image(s) may be provided in one request", "You set image={n} (or defaulted to 1)"),
        cause="a prompt holds more images than the engine was built for",
        fix="limit_mm_per_prompt={{'image': n}} with the largest number of images in your data",
        source="vllm-project/vllm: multimodal inputs", certainty="certain", kind="config-error",
        example="ValueError: At most 1 image(s) may be provided in one request.",
    ),
    Trouble(
        id="vllm/rpc-timeout",
        shows=("RPC call to {name:w} timed out", "No available shared memory broadcast block found in {s} second", "Timed out waiting "
               "for engine core processes to start", "execute_model timed out"),
        cause="a worker of vLLM does not answer: it still compiles or loads, or it waits in a collective that another one never entered",
        fix="wait for the first compilation, or enforce_eager=True to rule it out; look at every worker with py-spy dump. With tensor "
        "parallel colocation all ranks must send the same number of requests",
        source="vllm-project/vllm: troubleshooting", severity="warn", certainty="possible", kind="infrastructure",
        example="INFO shm_broadcast.py:466] No available shared memory broadcast block found in 60 second.",
    ),
    Trouble(
        id="vllm/sampler-warm-up",
        shows=("CUDA out of memory occurred when warming up sampler with {n} dummy requests",),
        cause="the engine had room for weights and cache, and not for the logits of {n} requests sampled at once",
        fix="lower max_num_seqs below {n} (vllm_max_num_seqs, rollout.max_num_seqs), or gpu_memory_utilization by 0.05 to 0.1; and "
        "look at nvidia-smi for memory that the trainer or another process holds on this GPU",
        source="vllm-project/vllm: v1/worker/gpu_model_runner.py", certainty="certain", kind="out-of-memory",
        example="RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
        "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
    ),
    Trouble(
        id="vllm/wake-up-memory",
        shows=("CUDA Error: out of memory at {where:w}cumem_allocator.cpp",),
        cause="the sleeping engine wakes up and finds its memory taken: weights, optimizer or activations of the trainer still lie on "
        "the GPU",
        fix="lower gpu_memory_utilization (vllm_gpu_memory_utilization 0.3 to 0.5 when trainer and engine share GPUs), offload "
        "parameters and optimizer while generating (fsdp_config.param_offload, optimizer_offload in veRL), smaller micro-batches, or "
        "torch.cuda.empty_cache() before the engine wakes",
        source="TideDra/lmm-r1#43", certainty="likely", kind="out-of-memory",
        example="CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
    ),
    Trouble(
        id="vllm/weights-out-of-memory",
        shows=("CUDA out of memory. Tried to allocate {want} {unit:w}",),
        frames=("vllm/model_executor/model_loader", "gpu_model_runner.py load_model", "create_weights", "model_runner.py load_model"),
        cause="the engine does not even fit its weights: they are larger than the GPU's free memory, or the trainer or another "
        "process is already on this GPU",
        fix="tensor_parallel_size over more GPUs, a quantised or smaller model, or free the GPU first: start the engine before the "
        "trainer loads, give server and trainer different CUDA_VISIBLE_DEVICES, end left-over processes (nvidia-smi)",
        source="vllm-project/vllm: conserving memory", kind="out-of-memory",
        example='  File "/x/site-packages/vllm/v1/worker/gpu_model_runner.py", line 1332, in load_model\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 260.00 MiB. GPU 0 has a total capacity of 23.57 GiB",
    ),
    Trouble(
        id="vllm/profile-out-of-memory",
        shows=("CUDA out of memory. Tried to allocate {want} {unit:w}",),
        frames=("profile_run", "determine_available_memory", "determine_num_available_blocks", "_dummy_run", "allocate_kv_cache",
                "initialize_kv_cache", "_allocate_kv_cache_tensors", "capture_model"),
        cause="the engine runs out of memory while it measures itself or sets up its cache: one full batch of prompt tokens, images, "
        "the cache or the CUDA graphs do not fit beside what is on the GPU",
        fix="lower gpu_memory_utilization if the trainer shares the GPU (raise it if not), max_model_len, max_num_batched_tokens and "
        "max_num_seqs; limit_mm_per_prompt for vision models; enforce_eager=True saves the graphs",
        source="vllm-project/vllm: conserving memory", kind="out-of-memory",
        example='  File "/x/site-packages/vllm/v1/worker/gpu_worker.py", line 185, in determine_available_memory\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 has a total capacity of 23.57 GiB",
    ),
    Trouble(
        id="vllm/token-out-of-vocabulary",
        shows=("Token id {token} is out of vocabulary", "Token id {token} is out of the vocabulary"),
        cause="a prompt holds token {token}, which the engine's tokenizer does not have: the model's output layer is padded beyond the "
        "tokenizer and sampled such an id, or prompts were made with another tokenizer",
        fix="use one tokenizer for trainer and engine; mask ids from len(tokenizer) on in sampling (logits processor or "
        "allowed_token_ids), or drop such answers before they become a prompt again (several turns)",
        source="vllm-project/vllm: v1/engine/processor.py", certainty="likely", kind="config-error",
        example="ValueError: Token id 151936 is out of vocabulary",
    ),
    Trouble(
        id="vllm/prompt-empty",
        shows=("The decoder prompt cannot be empty", "The decoder prompt...must not be empty", "Prompt cannot be empty",
               "Either prompt or prompt_token_ids must be provided"),
        cause="a prompt has no token: an empty text in the data, or a template or a cut that leaves nothing",
        fix="drop rows with an empty prompt (dataset.filter(lambda row: row['prompt'])), print the rendered template of the first "
        "row, and look at truncation from the left or a prompt limit of 0",
        source="vllm-project/vllm: v1/engine/processor.py", certainty="certain", kind="config-error",
        example="ValueError: The decoder prompt cannot be empty",
    ),
    Trouble(
        id="vllm/extension-of-another-torch",
        shows=("vllm/_C.abi3.so: undefined symbol", "No module named 'vllm._C'", "vllm/_C{name:w}.so: undefined symbol",
               "Failed to import from vllm._C"),
        cause="vLLM's compiled part does not fit the installed torch (another release or CUDA), or Python imports vLLM's source folder "
        "instead of the installed package",
        fix="install vLLM first and leave the torch it brings: pip uninstall -y vllm torch torchvision torchaudio && pip install vllm; "
        "do not upgrade torch afterwards; run from outside a folder that is called vllm",
        source="vllm-project/vllm: installation", certainty="certain", kind="config-error",
        example="ImportError: /x/site-packages/vllm/_C.abi3.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE",
    ),
    Trouble(
        id="vllm/no-platform",
        shows=("NotImplementedError: is_async_output_supported", "Current node has no GPU available", "Failed to infer device type", "Device string must not be empty", "No platform detected, vLLM is running on "
               "UnspecifiedPlatform"),
        cause="vLLM recognises no GPU: a release of vLLM or torch that does not fit this machine (a CPU build, another CUDA), no driver in the container, or "
        "CUDA_VISIBLE_DEVICES that hides all",
        fix="python -c 'import torch; print(torch.cuda.is_available(), torch.version.cuda)' must say True: start the container with "
        "--gpus all, and reinstall vLLM with the torch that it brings; in Ray ask for num_gpus=1 or a placement group for the actor that makes the engine (or distributed_executor_backend 'mp')",
        source="vllm-project/vllm: platforms/__init__.py", certainty="likely", kind="config-error",
        example="RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`",
    ),
    Trouble(
        id="vllm/inspect-failed",
        shows=("Model architectures ['{name:w}'] failed to be inspected",),
        cause="vLLM knows {name} and could not import its code: the real error (a missing or unfitting package, mostly transformers) "
        "is in the lines above",
        fix="read the traceback above this line; most often: pip install -U transformers (within vLLM's range), or install the "
        "package of the model (qwen-vl-utils, timm, mamba-ssm)",
        source="vllm-project/vllm: model_executor/models/registry.py", certainty="likely", kind="config-error",
        example="ValueError: Model architectures ['Qwen2_5_VLForConditionalGeneration'] failed to be inspected. Please check the logs "
        "for more details.",
    ),
    Trouble(
        id="vllm/transformers-too-new",
        shows=("has no attribute all_special_tokens_extended", "has no attribute 'all_special_tokens_extended'",
               "'{kind:w}' is already used by a Transformers config, pick another name"),
        cause="the installed transformers is newer than this vLLM knows",
        fix="install the transformers of vLLM's requirements (all_special_tokens_extended: pip install 'transformers<5'; "
        "aimv2: 'transformers<4.54'), or upgrade vLLM",
        source="vllm-project/vllm", certainty="certain", kind="config-error",
        example="AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended. Did you mean: 'num_special_tokens_to_add'?",
    ),
    Trouble(
        id="vllm/batched-below-sequences",
        shows=("max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs})",),
        cause="a batch of {tokens} tokens cannot hold one token of each of the {seqs} sequences",
        fix="raise max_num_batched_tokens to at least {seqs}, or lower max_num_seqs to at most {tokens}",
        source="vllm-project/vllm: config", certainty="certain", kind="config-error",
        example="ValueError: max_num_batched_tokens (512) must be greater than or equal to max_num_seqs (1024).",
    ),
    Trouble(
        id="vllm/sampling-range",
        shows=("top_p must be in (0, 1], got {value}", "temperature must be non-negative, got -{value}", "n must be 1 when using greedy "
               "sampling, got {value}", "n must be at least 1, got {value}", "min_p must be in [0, 1], got {value}",
               "repetition_penalty must be greater than zero, got {value}"),
        cause="a sampling setting is outside its range ({value}); with temperature 0 only one answer a prompt is possible",
        fix="temperature above 0 (1.0 for GRPO) where several answers are sampled, top_p from above 0 to 1, n at least 1",
        source="vllm-project/vllm: sampling_params.py", certainty="certain", kind="config-error",
        example="ValueError: n must be 1 when using greedy sampling, got 8.",
    ),
    Trouble(
        id="vllm/lora-modules",
        shows=("is unsupported LoRA weight", "expected target modules in {names:t} but received", "No adapter found for {path:w}",
               "Loading lora {name:w} failed"),
        cause="the adapter that was sent holds modules that vLLM cannot serve as an adapter (embeddings, lm_head, saved modules, "
        "names with a wrapper's prefix), or its folder is not there",
        fix="restrict target_modules to the attention and MLP projections (q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
        "down_proj) without modules_to_save, or merge the adapter into the weights before they go to the engine",
        source="vllm-project/vllm: lora/models.py", certainty="likely", kind="config-error",
        example="ValueError: base_model.model.lm_head.weight is unsupported LoRA weight",
    ),
    Trouble(
        id="vllm/no-weights",
        shows=("Error no file named pytorch_model.bin", "Error no file named model.safetensors", "Cannot find any model weights with `{path:w}`", "Invalid repository ID or local directory specified: '{path:w}'"),
        cause="the folder that is named holds no whole model: no config.json or no *.safetensors, as in a checkpoint of shards (FSDP, DeepSpeed, "
        "Megatron) or of an adapter alone",
        fix="merge the checkpoint first (python -m verl.model_merger merge ..., zero_to_fp32.py, or merge_and_unload() for an adapter) "
        "and give the merged folder; check the path for a typo",
        source="vllm-project/vllm: model_executor/model_loader", certainty="likely", kind="config-error",
        example="RuntimeError: Cannot find any model weights with `/ckpt/global_step_100/actor`",
    ),
    Trouble(
        id="vllm/groups-initialised",
        shows=("tensor parallel group already initialized, but of unexpected size", "tensor model parallel group is already initialized",
               "data parallel group is already initialized", "pipeline model parallel group is already initialized",
               "tensor parallel group already initialized, but of unexpected size"),
        cause="a second engine is made in a process that already has one, or the trainer made parallel groups of another size in it",
        fix="one LLM a process: reuse the first, or destroy it (del llm; destroy_model_parallel(); "
        "destroy_distributed_environment()); in colocation make tensor_parallel_size divide the trainer's processes",
        source="vllm-project/vllm: distributed/parallel_state.py", certainty="likely", kind="config-error",
        example="AssertionError: tensor model parallel group is already initialized",
    ),
    Trouble(
        id="vllm/quantisation-gpu",
        shows=("The quantization method {method:w} is not supported for the current GPU. Minimum capability: {need}. Current "
               "capability: {has}",),
        cause="{method} needs a GPU of compute capability {need} or newer, and this one has {has}",
        fix="use another quantisation that this GPU has kernels for (bitsandbytes, AWQ or GPTQ), the unquantised model, or a newer GPU "
        "(fp8 needs 8.9: L4, L40, H100)",
        source="vllm-project/vllm: model_executor/model_loader", certainty="certain", kind="config-error",
        example="ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current "
        "capability: 80.",
    ),
    Trouble(
        id="vllm/quantisation-dtype",
        shows=("{dtype:w} is not supported for quantization method {method:w}. Supported dtypes: [{supported:t}]",),
        cause="{method} runs in {supported} alone, and the engine was asked for {dtype}",
        fix="set dtype to {supported} (vllm dtype='float16' or 'half'), or use a model without this quantisation",
        source="vllm-project/vllm: config", certainty="certain", kind="config-error",
        example="ValueError: torch.bfloat16 is not supported for quantization method awq. Supported dtypes: [torch.float16]",
    ),
    Trouble(
        id="vllm/quantised-tensor-parallel",
        shows=("The input size is not aligned with the quantized weight shape", "is not divisible by weight quantization block",
               "BitAndBytes quantization with TP or PP is not supported yet", "Weight output_partition_size = {a} is not divisible by"),
        cause="the quantised layers cannot be cut into that many tensor-parallel parts",
        fix="lower tensor_parallel_size to 1 or 2 (and use data parallel engines instead), or serve the unquantised weights",
        source="vllm-project/vllm: quantization", certainty="certain", kind="config-error",
        example="ValueError: The input size is not aligned with the quantized weight shape. This can be caused by too large tensor "
        "parallel size.",
    ),
    Trouble(
        id="vllm/vocabulary-changed",
        shows=("assert loaded_weight.shape[output_dim] == self.org_vocab_size",),
        cause="the weights have another vocabulary size than the configuration the engine was built from: tokens were added (embeddings "
        "resized) after the config was saved, or the config of another model is used",
        fix="save model and tokenizer together after resize_token_embeddings (model.config.vocab_size is then right), and give the engine "
        "that folder",
        source="vllm-project/vllm: layers/vocab_parallel_embedding.py", certainty="certain", kind="config-error",
        example="    assert loaded_weight.shape[output_dim] == self.org_vocab_size",
    ),
    Trouble(
        id="vllm/prompt-ids-argument",
        shows=("generate() got an unexpected keyword argument 'prompt_token_ids'",),
        cause="newer releases of vLLM take prompts as one argument; prompt_token_ids was removed from LLM.generate",
        fix="llm.generate([{{'prompt_token_ids': ids}} for ids in batch], sampling_params), or install the vLLM the trainer names",
        source="vllm-project/vllm: entrypoints/llm.py", certainty="certain", kind="config-error",
        example="TypeError: LLM.generate() got an unexpected keyword argument 'prompt_token_ids'",
    ),
    Trouble(
        id="vllm/v1-unsupported",
        shows=("NotImplementedError: VLLM_USE_V1=1 is not supported with {what:t}.",),
        cause="vLLM's V1 engine does not support {what}, and VLLM_USE_V1=1 forbids falling back",
        fix="unset VLLM_USE_V1 (or set it to 0 in releases that still have V0), or leave {what} out",
        source="vllm-project/vllm: V1 guide", certainty="certain", kind="config-error",
        example="NotImplementedError: VLLM_USE_V1=1 is not supported with --kv-cache-dtype.",
    ),
    Trouble(
        id="vllm/image-placeholders",
        shows=("Attempted to assign ...{has} multimodal tokens to {want} placeholders", "Failed to apply prompt replacement for "
               "mm_items", "Expected there to be {want} prompt updates"),
        cause="the prompt has another number of image tokens than the images give: placeholders were expanded twice or cut off, or the "
        "processor resizes images otherwise than the engine",
        fix="send the prompt with one placeholder an image, not already expanded (raw prompt, not the processor's input_ids); set the same "
        "min_pixels and max_pixels for processor and engine; keep the prompt limit above text plus image tokens",
        source="vllm-project/vllm: multimodal", certainty="likely", kind="config-error",
        example="ValueError: Attempted to assign 25 + 25 + 25 = 75 multimodal tokens to 147 placeholders",
    ),
    Trouble(
        id="vllm/notebook-output",
        shows=("io.UnsupportedOperation: fileno", "UnsupportedOperation: fileno"),
        cause="in a notebook the output has no file number, and vLLM's process for the engine wants one",
        fix="run it as a script, or set os.environ['VLLM_ENABLE_V1_MULTIPROCESSING'] = '0' before vllm is imported",
        source="vllm-project/vllm", certainty="likely",
        example="io.UnsupportedOperation: fileno",
    ),
    Trouble(
        id="vllm/served-model-name",
        shows=("The model `{name:w}` does not exist",),
        cause="the server answers, and serves no model of the name {name}: the client's name must be the served one, letter by letter",
        fix="curl http://HOST:PORT/v1/models lists the names; start the server with --served-model-name {name}, or ask for the listed one",
        source="vllm-project/vllm: OpenAI-compatible server", certainty="certain", kind="config-error",
        example="openai.NotFoundError: Error code: 404 - {'object': 'error', 'message': 'The model `qwen` does not exist.'}",
    ),
    Trouble(
        id="vllm/tool-choice",
        shows=('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',),
        cause="the agent sends tools, and the server was started without a parser for tool calls",
        fix="start it with --enable-auto-tool-choice --tool-call-parser hermes (Qwen 2.5 and 3; llama3_json, mistral, ... for others)",
        source="vllm-project/vllm: tool calling", certainty="certain", kind="config-error",
        example='openai.BadRequestError: Error code: 400 - "auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser '
        "to be set",
    ),
    Trouble(
        id="vllm/waiting-for-placement",
        shows=("Waiting for creating a placement group of specs for {s} seconds",),
        cause="the engine has waited {s} s for GPUs of the Ray cluster: those it asks for are not free together",
        fix="`ray status` shows free GPUs; lower tensor_parallel_size x engines, end other actors that hold GPUs, or leave the engine GPUs "
        "that the trainer does not reserve",
        source="vllm-project/vllm: executor/ray_utils.py", severity="warn", certainty="likely", kind="infrastructure",
        example="INFO 03-09 20:11:43 ray_utils.py:212] Waiting for creating a placement group of specs for 40 seconds. "
        "specs=[{'node:10.0.0.1': 0.001, 'GPU': 1.0}, {'GPU': 1.0}]. Check `ray status` to see if you have enough resources.",
    ),
    Trouble(
        id="vllm/driver-without-gpu",
        shows=("Ray does not allocate any GPUs on the driver node",),
        cause="the engine wants Ray's workers, and the process that makes it reserved no GPU on its own node",
        fix="distributed_executor_backend='mp' on one node; else run the driver on a GPU node inside the placement group",
        source="vllm-project/vllm: executor/ray_distributed_executor.py", certainty="certain", kind="config-error",
        example="ValueError: Ray does not allocate any GPUs on the driver node. Consider adjusting the Ray placement group or running the "
        "driver on a GPU node.",
    ),
    Trouble(
        id="vllm/weight-key",
        shows=("KeyError: '{name:w}.weight'", "KeyError: '{name:w}.bias'", "KeyError: '{name:w}.qweight'",
               "Call to collective_rpc method failed: '{name:w}.weight'", "Call to collective_rpc method failed: '{name:w}.bias'"),
        frames=("load_weights", "vllm/"),
        cause="the engine's model has no parameter {name}: the weights come with a wrapper's prefix, an adapter's names, or from another "
        "class (a value head, a vision model, a newer architecture)",
        fix="send merged weights under the names of model.state_dict() of the plain model (strip base_model.model., module., "
        "_fsdp_wrapped_module.). Names that transformers changed need the pair of vLLM and transformers releases the trainer names: a "
        "newer vLLM, or the transformers of its time",
        source="vllm-project/vllm: model_executor/models", certainty="likely",
        example='  File "/x/site-packages/vllm/model_executor/models/qwen2.py", line 410, in load_weights\n'
        "KeyError: 'layers.0.mlp.down_proj.base_layer.weight'",
    ),
    Trouble(
        id="vllm/sleep-memory-grew",
        shows=("Memory usage increased after sleeping",),
        cause="vLLM counts the GPU's free memory before and after it goes to sleep, and another process on the same GPU took memory in between",
        fix="one engine and one trainer process a GPU, which do not load or update at that moment: let the trainer wait for the sleep, and give "
        "engines of other jobs other GPUs",
        source="vllm-project/vllm: v1/worker/gpu_worker.py", certainty="likely", kind="infrastructure",
        example="AssertionError: Memory usage increased after sleeping.",
    ),
)  # fmt: skip
