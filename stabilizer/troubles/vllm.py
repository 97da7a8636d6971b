"""vLLM."""

from __future__ import annotations

from stabilizer.troubles.arithmetic import by_nearness, divisors, listed, whole
from stabilizer.troubles.trouble import Trouble, Values


def _cap(values: Values) -> dict[str, object]:
    length, room = whole(values["length"]), whole(values["room"])
    if room >= length:
        raise ValueError("it fits")
    return {"most": room // 16 * 16, "times": f"{length / max(room, 1):.1f}"}


def _heads(values: Values) -> dict[str, object]:
    heads, size = whole(values["heads"]), whole(values["size"])
    return {"sizes": listed(by_nearness(size, divisors(heads))[:4])}


def _free(values: Values) -> dict[str, object]:
    share = float(values["free"]) / float(values["total"])
    return {"share": f"{max(share - 0.03, 0.05):.2f}"}


TROUBLES = (
    Trouble(
        id="vllm/length-exceeds-kv-cache",
        shows=(
            "max seq len ({length}) is larger than the maximum number of tokens that can be stored in KV cache ({room})",
        ),
        cause="vLLM reserves room for one sequence of max_model_len = {length} tokens, but beside the weights the KV cache "
        "holds {room}: {times} times too little",
        fix="set max_model_len to at most {most} (prompt + completion is enough), or raise gpu_memory_utilization, or "
        "spread the model with tensor_parallel_size",
        source="vllm-project/vllm#2418", certainty="certain", kind="out-of-memory", work=_cap,
        example="ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be "
        "stored in KV cache (3952). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
        "initializing the engine.",
    ),
    Trouble(
        id="vllm/length-exceeds-kv-cache-memory",
        shows=(
            "To serve at least one request with the models's max seq len ({length}), ({need} GiB KV cache is needed, which "
            "is larger than the available KV cache memory ({have} GiB)",
            "To serve at least one request with the model's max seq len ({length}), ({need} GiB KV cache is needed, which "
            "is larger than the available KV cache memory ({have} GiB)",
        ),
        cause="one sequence of max_model_len = {length} tokens needs {need} GiB of KV cache, and {have} GiB are left beside "
        "the weights",
        fix="set max_model_len to at most {most} (prompt + completion is enough), or raise gpu_memory_utilization, or "
        "spread the model with tensor_parallel_size",
        source="vllm-project/vllm: v1/core/kv_cache_utils.py", certainty="certain", kind="out-of-memory",
        work=lambda v: {"most": int(whole(v["length"]) * float(v["have"]) / float(v["need"])) // 16 * 16},
        example="ValueError: To serve at least one request with the models's max seq len (32768), (7.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (3.50 GiB). Based on the available memory,",
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
        id="vllm/heads-not-divisible",
        shows=("Total number of attention heads ({heads}) must be divisible by tensor parallel size ({size})",),
        cause="{heads} attention heads can't be divided over tensor_parallel_size = {size}",
        fix="set tensor_parallel_size (vllm_tensor_parallel_size) to a divisor of {heads}: {sizes}",
        source="vllm-project/vllm: config.py", certainty="certain", kind="config-error", work=_heads,
        example="ValueError: Total number of attention heads (14) must be divisible by tensor parallel size (4).",
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
        id="vllm/engine-core-dead",
        shows=(
            "EngineDeadError", "Engine core initialization failed. See root cause above",
            "Engine process failed to start", "AsyncEngineDeadError", "Background loop has errored already",
            "Engine loop has died", "Engine loop is not running",
            "EngineCore encountered an issue. See stack trace (above) for the root cause",
        ),
        cause="vLLM's engine process ended; this line only reports it",
        fix="look further up for the first error of EngineCore or a worker: most often GPU memory, a model it cannot load, "
        "or a CUDA version that does not fit",
        source="vllm-project/vllm: v1/engine/exceptions.py", consequence=True, kind="infrastructure",
        example="vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for "
        "the root cause.",
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
        shows=("Expandable segments are not compatible with memory pool",),
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
        shows=("max_num_batched_tokens ({tokens}) is smaller than max_model_len ({length})",),
        cause="without chunked prefill a prompt must fit in one batch: max_num_batched_tokens = {tokens} is below "
        "max_model_len = {length}",
        fix="raise max_num_batched_tokens to at least {length}, lower max_model_len, or switch enable_chunked_prefill on",
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
        shows=("Duplicate GPU detected : rank {a} and rank {b} both on CUDA device {device:w}",),
        cause="ranks {a} and {b} of one communicator use the same GPU ({device}): the vLLM server and the trainer share a "
        "device, or each process sees only one GPU and takes it as cuda:0",
        fix="give server and trainer different GPUs (CUDA_VISIBLE_DEVICES=0 trl vllm-serve ..., CUDA_VISIBLE_DEVICES=1,2 "
        "accelerate launch ...), or use vllm_mode='colocate'",
        source="huggingface/trl#3706", certainty="certain", kind="config-error",
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
               "Unexpected keyword argument '{key:w}'...vllm", "SamplingParams...has no attribute 'guided_decoding'"),
        cause="the installed vLLM does not take {key}: it was removed or added in another release than the trainer was written for",
        fix="install the vLLM that the trainer supports (TRL: pip install 'trl[vllm]'; veRL: its requirements), or upgrade the "
        "trainer; `pip show vllm trl` tells what is there",
        source="vllm-project/vllm: releases", certainty="certain", kind="config-error",
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
)  # fmt: skip
